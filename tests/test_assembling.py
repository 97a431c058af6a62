"""Datasets are assembled in order, and what breaks a rule is refused with its place."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from reading_texts import MEASURE, ROOT
from upkeep.building import (
    assembling,
    checking,
    store,
)
from upkeep.building.content import content
from upkeep.building.store import validate
from upkeep.catalog import Catalog
from upkeep.contract import Pair
from upkeep.errors import UpkeepError


def item(**fields: Any) -> assembling.Item:
    base: dict[str, Any] = {
        "id": "q",
        "stream": "s",
        "text": "Does it agree?",
        "answers": ["yes"],
        "options": ["yes", "no"],
        "form": "label",
        "slices": {"kind": "x"},
    }
    return assembling.Item(**(base | fields))


STREAM = assembling.Stream("s", ["Ann came.", "Ann left.", "Bob came."])


def built(*items: assembling.Item, streams: Sequence[assembling.Stream] = (STREAM,), **fields: Any) -> assembling.Built:
    tables = assembling.collect(list(streams), list(items), MEASURE)
    base: dict[str, Any] = {
        "pairs": [],
        "tokenizer": str(MEASURE),
        "chunk_tokens": 20,
        "source": "here",
        "statistics": {},
    }
    return assembling.Built(*tables, **(base | fields))


def check(data: assembling.Built) -> None:
    checking.check(data, data.chunk_tokens, "here")


# ---------------------------------------------------------------- the store's rules


def test_items_are_collected_in_order_of_stream_and_position_with_phases() -> None:
    other = assembling.Stream("r", ["Once."])
    items = [
        item(id="b", position=2, answers=["no"], outdated=["yes", "no"], context=["Bob came."], evidence=["s_c2"]),
        item(id="z", stream="r"),
        item(id="b", position=0),
        item(id="a", position=2),
        item(id="b", position=1),
    ]
    data = built(*items, streams=[STREAM, other])
    check(data)
    assert data.probes["probe_id"].to_list() == ["b@0", "b@1", "b@2", "a@2", "z@0"]
    assert data.gold["phase"].to_list() == [0, 0, 1, 0, 0]
    assert data.gold["outdated"].to_list() == [[], [], ["yes"], [], []]
    assert data.gold["context"].to_list() == [[], [], ["Bob came."], [], []]
    assert data.gold["slice_kind"].to_list() == ["x"] * 5


def test_the_column_context_is_there_only_where_an_item_has_one(tmp_path: Path) -> None:
    assert "context" not in built(item()).gold.columns
    data = built(item(context=["Ann came."]))
    spec = Catalog(ROOT).dataset("prelude_mini")
    (tmp_path / "d").mkdir()
    store.write(tmp_path / "d", data, "d", spec)
    validate(tmp_path / "d")
    assert store.load(tmp_path / "d").gold["context"].to_list() == [["Ann came."]]


SHORT: dict[str, Any] = {"form": "short", "options": None}
WRONG: dict[str, tuple[Callable[[], assembling.Built], str]] = {
    "an answer that is no label": (lambda: built(item(answers=["maybe"])), "row 0, column `answers`"),
    "a label in other case": (lambda: built(item(answers=["Yes"])), "not one of the options"),
    "one right answer, one unlisted": (lambda: built(item(answers=["yes", "si"])), "not one of the options"),
    "no label": (lambda: built(item(options=None)), "too few or too many options"),
    "one label": (lambda: built(item(options=["yes"])), "too few or too many options"),
    "a label twice": (lambda: built(item(options=["yes", "no", "yes"])), "an option twice"),
    "a letter as label": (lambda: built(item(answers=["A"])), "not one of the options"),
    "a label as letter": (lambda: built(item(form="choice")), "not the letter of an option"),
    "labels of an open question": (lambda: built(item(form="short")), "options of an open question"),
    "two lists of labels": (
        lambda: built(item(position=0), item(position=1, options=["yes", "never"])),
        "one id for two questions",
    ),
    "an answer in the question": (
        lambda: built(item(**SHORT, text="Did Ann come?", answers=["she", "ann"])),
        "the question holds it",
    ),
    "an empty passage": (lambda: built(item(context=[""])), "row 0, column `context`"),
    "no answer": (lambda: built(item(answers=[])), "no accepted answer"),
    "evidence of nothing": (lambda: built(item(evidence=["s_c9"])), "unknown document"),
    "evidence from the future": (lambda: built(item(position=0, evidence=["s_c1"])), "evidence from the future"),
    "a position before the stream": (lambda: built(item(position=-1)), "no document at this position"),
    "a position behind the stream": (lambda: built(item(position=3)), "no document at this position"),
    "an empty slice": (lambda: built(item(slices={"kind": ""})), "empty slice"),
    "an item twice": (lambda: built(item(), item()), "id given more than once"),
    "an example that is asked": (
        lambda: built(item(), examples=[Pair(question="?", answer="x"), Pair(question="does it AGREE", answer="x")]),
        r"examples\.jsonl, line 2: a question of the evaluation",
    ),
    "a pair that is asked": (
        lambda: built(item(), pairs=[Pair(question="Does  it agree?", answer="x")]),
        r"pairs\.jsonl, line 1: a question of the evaluation",
    ),
    "a pair of no document": (
        lambda: built(item(), pairs=[Pair(question="Who?", answer="x", document="elsewhere")]),
        r"pairs\.jsonl, line 1",
    ),
    "a document that is too long": (lambda: built(item(), chunk_tokens=2), "row 0, column `tokens`"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_breaks_a_rule_is_refused_with_its_place(name: str) -> None:
    make, problem = WRONG[name]
    check(built(item()))
    with pytest.raises(UpkeepError, match=problem):
        check(make())


def test_items_of_no_stream_or_with_other_slices_are_refused() -> None:
    with pytest.raises(UpkeepError, match="unknown stream"):
        built(item(stream="t"))
    with pytest.raises(UpkeepError, match="other slices"):
        built(item(), item(id="r", slices={"kind": "x", "more": "y"}))


def test_a_shown_question_changes_the_content_hash() -> None:
    data = built(item(), pairs=[Pair(question="a", answer="b")])
    moved = dataclasses.replace(data, pairs=[], examples=data.pairs)
    hashes = {
        tuple(content(d.documents, d.probes, d.gold, d.pairs, d.examples).values())
        for d in (data, moved, dataclasses.replace(data, pairs=[]))
    }
    assert len(hashes) == 3
