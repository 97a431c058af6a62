"""Audits: a sample of a dataset's probes on a page, and marks that count for that sample alone."""

from __future__ import annotations

import dataclasses
import json
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from test_datasets import small, write
from upkeep.building.assembling import Built
from upkeep.errors import UpkeepError
from upkeep.grading.audited import ASPECTS, RECORD, precision
from upkeep.inputs import verify_dataset
from upkeep.operations.audit.marks import take, told
from upkeep.operations.audit.page import marked, render
from upkeep.operations.audit.sample import draw, hash_of

HOSTILE = "</blockquote><script>document.title='owned'</script><img src=x onerror=alert(1)>\"'"


def marks_of(folder: Path, changes: dict[str, Any] | None = None) -> Path:
    """A file of marks as the page gives it: all of the sample right, the first not natural."""
    items = draw(folder, 4, 0)
    said = {item.probe_id: dict.fromkeys(ASPECTS, True) for item in items}
    said[items[0].probe_id]["natural"] = False
    given = {"version": 1, "dataset": "d", "sample": 4, "seed": 0, "probes": hash_of(items), "marks": said}
    file = folder.parent / "marks.json"
    file.write_text(json.dumps(given | (changes or {})))
    return file


def refused(folder: Path, file: Path, match: str) -> None:
    with pytest.raises(UpkeepError, match=match):
        take(folder, verify_dataset(folder), file)
    assert not (folder / RECORD).exists()


class Read(HTMLParser):
    """Tags and text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.handlers: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.handlers += [name for name, _ in attrs if name.startswith("on")]

    def handle_data(self, data: str) -> None:
        self.text += data


def page_of(folder: Path) -> str:
    return render(draw(folder, 6, 0), verify_dataset(folder), 6, 0)


def test_a_sample_is_the_same_for_a_seed_and_has_every_kind_in_its_share(tmp_path: Path) -> None:
    folder = write(tmp_path / "d", small())
    assert draw(folder, 4, 1) == draw(folder, 4, 1)
    assert len({hash_of(draw(folder, 2, seed)) for seed in range(8)}) > 1
    for seed in range(8):
        assert Counter(item.form for item in draw(folder, 4, seed)) == {"short": 2, "choice": 2}
    assert len(draw(folder, 100, 0)) == 6


def test_a_page_shows_question_options_evidence_key_and_outdated_answers(tmp_path: Path) -> None:
    text = Read(page_of(write(tmp_path / "d", small()))).text
    for shown in ("Where is Ann?", "A. one", "B. two", "Ann is back.", "Unknown / away", "evidence: a_c1"):
        assert shown in text


def test_what_a_dataset_says_is_text_on_the_page_and_nothing_else(tmp_path: Path) -> None:
    def hostile(built: Built) -> Built:
        texts = pl.lit([HOSTILE])
        return dataclasses.replace(
            built,
            documents=built.documents.with_columns(text=pl.lit("so: " + HOSTILE)),
            probes=built.probes.with_columns(question=pl.lit(HOSTILE), stream=pl.lit(HOSTILE)),
            gold=built.gold.with_columns(answers=texts, outdated=texts, context=texts, slice_changes=pl.lit(HOSTILE)),
        )

    page = page_of(write(tmp_path / "d", hostile(small())))
    read = Read(page)
    assert read.tags["script"] == 1 and read.tags["img"] == 0 and not read.handlers
    assert read.tags["mark"] == 5  # one in each document that is named as evidence
    assert "document.title='owned'" in read.text
    assert re.search(r"default-src 'none'.*script-src 'sha256-", page)
    assert not re.search(r"https?://", page)


def test_words_are_marked_as_they_stand() -> None:
    assert marked("a.c abc a.c", ["a.c"]) == [("a.c", True), (" abc ", False), ("a.c", True)]
    assert marked("text", []) == [("text", False)]


def test_marks_give_precision_with_an_interval_and_stand_with_the_card(tmp_path: Path) -> None:
    folder = write(tmp_path / "d", small())
    card = verify_dataset(folder)
    assert list(told(folder, card)) == []
    found = precision(take(folder, card, marks_of(folder)).marks).to_dicts()
    values = {row["metric"]: (row["value"], row["n"], row["questions"]) for row in found}
    assert values == dict.fromkeys(ASPECTS, (100.0, 4, 2)) | {"natural": (75.0, 4, 2)}
    natural = next(row for row in found if row["metric"] == "natural")
    assert natural["low"] < 75 < natural["high"]
    assert any(line.strip().startswith("natural") and "75.0%" in line for line in told(folder, verify_dataset(folder)))


def test_marks_of_a_build_whose_key_changed_are_refused(tmp_path: Path) -> None:
    file = marks_of(write(tmp_path / "old", small()))
    built = small()
    changed = dataclasses.replace(built, gold=built.gold.with_columns(answers=pl.lit(["else"])))
    refused(write(tmp_path / "d", changed), file, "marks of another build or another sample")


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"seed": 5}, "another sample"),
        ({"sample": 3}, "another sample"),
        ({"dataset": "other"}, "marks of another dataset"),
        ({"marks": {"nobody@0": {"right": True}}}, "not in the sample"),
        ({"marks": {}}, "nothing is marked"),
        ({"marks": {"a_q0@0": {"right": "yes"}}}, "expected: `bool`"),
        ({"marks": {"a_q0@0": {"pretty": True}}}, "pretty"),
        ({"more": 1}, "more"),
    ],
)
def test_marks_that_are_not_of_the_sample_are_refused_with_their_place(
    tmp_path: Path, changes: dict[str, Any], match: str
) -> None:
    folder = write(tmp_path / "d", small())
    refused(folder, marks_of(folder, changes), match)


def test_an_audit_that_was_changed_or_is_of_another_build_is_not_shown(tmp_path: Path) -> None:
    folder = write(tmp_path / "d", small())
    take(folder, verify_dataset(folder), marks_of(folder))
    other = write(tmp_path / "e", dataclasses.replace(small(), pairs=[]))
    (other / RECORD).write_bytes((folder / RECORD).read_bytes())
    with pytest.raises(UpkeepError, match="an audit of another build"):
        list(told(other, verify_dataset(other)))
    (folder / RECORD).write_text((folder / RECORD).read_text().replace("false", "true"))
    with pytest.raises(UpkeepError, match="not the record that was written"):
        list(told(folder, verify_dataset(folder)))
