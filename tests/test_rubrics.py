"""Patterns and rubrics: how replies are read, and which judgement a probe has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pytest

from conftest import ROOT
from judged_cells import _quick
from upkeep.catalog import Catalog
from upkeep.contract import Judgement, Pattern, Rubric
from upkeep.errors import UpkeepError
from upkeep.grading.judgements import ABSTAINS, Judgements, filled, right_verdicts, spotted, verdict
from upkeep.judging.nearest import Nearest
from upkeep.operations.validate import validate_path
from upkeep.yaml_files import read_yaml

__all__ = ["_quick"]

RUBRIC = {
    "system": 'Say {"verdict": "Y"}.',
    "user": "{response}",
    "verdicts": {"Y": "right", "O": "outdated", "N": "wrong"},
    "read": "only",
}


def rubric(read: str = "only", **fields: Any) -> Rubric:
    return msgspec.convert(RUBRIC | {"read": read} | fields, Rubric)


YES_NO = Pattern(words=["yes", "no"])
DENIES = Pattern(words=["yes", "no"], right="no", phrases=["no record of", "not mentioned"], within=20)

# ---------------------------------------------------------------- patterns


@pytest.mark.parametrize(
    ("pattern", "response", "expected"),
    [
        (YES_NO, "Yes, and then no.", "yes"),
        (YES_NO, "It is so: NO.", "no"),
        (YES_NO, "Nobody knows, nor yesterday.", None),
        (YES_NO, "yes_no", None),
        (YES_NO, "", None),
        (YES_NO, "## Answer: *no*", "no"),
        (DENIES, "There is No Record Of it. Yes!", ABSTAINS),
        (DENIES, "Yes. It is so long that it is not mentioned where one looks.", "yes"),
        (DENIES, "x" * 19 + "not mentioned", ABSTAINS),
        (DENIES, "x" * 20 + "not mentioned", None),
        (DENIES, "no" * 100_000, None),
    ],
)
def test_a_pattern_finds_the_first_word_or_a_phrase_near_the_beginning(
    pattern: Pattern, response: str, expected: str | None
) -> None:
    assert spotted(pattern, response) == expected


@pytest.mark.parametrize(
    ("response", "right"),
    [
        ("No", True),
        ("no.", True),
        ("No, it did not reach the harbour", True),
        ("It did not; no, never. Yes?", True),
        ("Yes, but there is no record of it", True),
        ("Yes", False),
        ("Yes, and no one knows why", False),
        ("It did not", False),
        ("Norway", False),
        ("not", False),
        ("", False),
    ],
)
def test_of_what_never_was_in_the_news_a_first_no_is_right_and_to_abstain(response: str, right: bool) -> None:
    of = read_yaml(ROOT / "papers/imprintbench/judges.yaml", dict[str, list[Judgement]])["world_news"]
    (pattern,) = [one.pattern for one in of if one.where == {"family": ["bound_abs"]}]
    assert pattern is not None
    assert (spotted(pattern, response) in right_verdicts(pattern, ["No, the corpus contains no record of"])) is right


def test_right_is_the_answer_keys_word_or_the_patterns_own_and_to_abstain() -> None:
    assert right_verdicts(YES_NO, ["Yes"]) == {"yes", ABSTAINS}
    assert right_verdicts(DENIES, ["whatever the key says"]) == {"no", ABSTAINS}


# ---------------------------------------------------------------- replies


@pytest.mark.parametrize(
    ("read", "reply", "expected"),
    [
        ("only", "Y", "Y"),
        ("only", " **N**.\n", "N"),
        ("only", "Y Y Y", "Y"),
        ("only", "Y or N?", None),
        ("only", "y", None),
        ("only", "", None),
        ("only", "Yes", None),
        ("last", "It could be Y. But no: N", "N"),
        ("last", "nothing", None),
        ("json", '{"verdict": "Y", "rationale": {"x": "N"}}', "Y"),
        ("json", 'Well: ```json\n{"verdict": "O"}\n```', "O"),
        ("json", '{"verdict": "maybe"}', None),
        ("json", '{"verdict": ["Y"]}', None),
        ("json", '{"verdict": "Y"', None),
        ("json", "}{", None),
        ("json", '["Y"]', None),
        ("json", "[" * 100_000, None),
        ("json", '{"verdict": "Y"} {"verdict": "N"}', None),
    ],
)
def test_a_reply_is_read_strictly_and_never_guessed(read: str, reply: str, expected: str | None) -> None:
    assert verdict(rubric(read), reply) == expected


def test_a_verdict_is_not_found_in_another_that_holds_it() -> None:
    words = {"MATCH": "right", "NONMATCH": "wrong"}
    assert verdict(rubric("last", verdicts=words), "So NONMATCH") == "NONMATCH"
    assert verdict(rubric("only", verdicts=words), "NONMATCH") == "NONMATCH"


def test_what_a_response_says_is_taken_for_no_slot() -> None:
    slots = {"question": "{gold}", "gold": "G", "response": "{question} {context}", "context": "C", "passages": ""}
    assert filled("{question} {response} {other} {gold}", slots) == "{gold} {question} {context} {other} G"


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({}, "found both, or neither"),
        ({"pattern": {"words": ["a"]}, "decides": "reasoning"}, "decides what is right"),
        ({"rubric": RUBRIC | {"verdicts": {"Y": "right"}}}, "length >= 2"),
        ({"rubric": RUBRIC | {"verdicts": {"Y": "good", "N": "wrong"}}}, "good"),
        ({"rubric": RUBRIC | {"user": "{response} {answer}"}}, "no slot {answer}"),
        ({"rubric": RUBRIC | {"user": "{question}"}}, "does not show the judge"),
    ],
)
def test_a_judgement_that_is_none_is_refused(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=told):
        msgspec.convert(fields, Judgement)


def test_every_list_of_the_papers_is_read_and_every_dataset_finds_its_own() -> None:
    lists = {path: read_yaml(path, dict[str, list[Judgement]]) for path in ROOT.glob("papers/*/judges.yaml")}
    assert len(lists) == 4
    assert all("valid judgements" in validate_path(path) for path in lists)
    catalog, used = Catalog(ROOT), set[tuple[Path, str]]()
    for name in catalog.datasets:
        spec = catalog.dataset(name)
        if spec.judges is not None:
            used.add((ROOT / "papers" / spec.paper / "judges.yaml", spec.judges))
    assert used == {(path, name) for path, known in lists.items() for name in known}


def test_a_probe_has_the_first_judgement_that_is_about_it() -> None:
    of = [
        msgspec.convert({"where": {"family": ["a"]}, "pattern": {"words": ["x"]}}, Judgement),
        Judgement(rubric=rubric(), where={"form": ["short"]}),
        Judgement(rubric=rubric(), decides="reasons"),
    ]
    probes = pl.DataFrame(
        {"probe_id": ["1", "2", "3"], "form": ["short", "short", "choice"], "slice_family": ["a", "b", None]}
    )
    assert Judgements(of).placed(probes).rows() == [("1", 0, 2), ("2", 1, 2), ("3", None, 2)]
    with pytest.raises(UpkeepError, match="'family' that the dataset does not have"):
        Judgements(of, "judges.yaml: x").placed(probes.drop("slice_family"))


def test_the_nearest_passages_come_in_the_order_of_the_book() -> None:
    texts = ["the fox slept", "a hen was kept", "the fox ate the hen", "狐狸吃了母鸡", "nothing here"]
    nearest = Nearest(texts)
    assert nearest.passages("did the fox eat a hen?", 2) == ["a hen was kept", "the fox ate the hen"]
    assert nearest.passages("狐狸", 1) == ["狐狸吃了母鸡"]
    assert nearest.passages("fox", 99) == texts
