"""Grading: answer equivalence, and what does not belong to a cell, is missing or is damaged."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scored_cells import answered, key_of, line, scored, scores_of, timeline, write_cell, write_dataset
from upkeep.errors import UpkeepError
from upkeep.grading.graded import READ, VERDICTS, grade
from upkeep.grading.matching import EQUIVALENCES, canonical, equivalence, letter, short_answer
from upkeep.jobs import Cell

# ------------------------------------------------------------------ equivalence


@pytest.mark.parametrize("text", ["3", "three", "Three.", "3 times", "three times", "thrice", " THREE  times! ", "03"])
def test_ways_to_write_a_number_are_one_answer(text: str) -> None:
    assert short_answer(text) == "3"


@pytest.mark.parametrize(
    ("text", "digits"),
    [
        *[("zero", "0"), ("never", "0"), ("once", "1"), ("one time", "1"), ("Twice", "2"), ("twenty-three", "23")],
        *[("twenty three times", "23"), ("Twentythree", "23"), ("ninety-nine", "99"), ("1,000", "1000"), ("0", "0")],
    ],
)
def test_number_words_are_read(text: str, digits: str) -> None:
    assert short_answer(text) == digits


def test_articles_punctuation_case_and_spaces_do_not_matter() -> None:
    assert short_answer("  The  Kitchen. ") == short_answer("kitchen") == short_answer("“a kitchen”") == "kitchen"


def test_different_answers_stay_different() -> None:
    texts = ["unknown", "same", "0", "30", "3.0", "theatre", "atheist", "two kitchens", "kitchen", "one kitchen"]
    assert len({short_answer(text) for text in texts}) == len(texts)


@pytest.mark.parametrize("text", ["A", "The", "an", "?!", "—"])
def test_normalising_leaves_no_answer_empty(text: str) -> None:
    assert short_answer(text)


def test_letters_are_compared_as_they_are() -> None:
    assert letter("A") == "A"
    assert letter("a") != letter("A")


@given(st.text(max_size=30))
def test_canonical_form_is_stable(text: str) -> None:
    assert short_answer(short_answer(text)) == short_answer(text)


def test_canonical_column_keeps_order_and_nulls() -> None:
    column = pl.Series(["Three", None, "x", "three times"])
    assert canonical(column, short_answer).to_list() == ["3", None, "x", "3"]
    assert canonical(pl.Series([None, None], dtype=pl.String), short_answer).to_list() == [None, None]


def test_unknown_equivalence_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UpkeepError, match="short_answer"):
        equivalence("exact")
    assert equivalence("letter") is EQUIVALENCES["letter"]


# ------------------------------------------------------------------ failures and completeness


def test_an_error_counts_as_wrong_whatever_the_answer(tmp_path: Path) -> None:
    lines = [line("q@0", "x"), line("q@1", "x", error="out of memory")]
    result = scores_of(tmp_path, {"q": timeline("xx")}, lines)
    assert result["all", "accuracy"]["value"] == 50
    assert result["all", "accuracy"]["n"] == 2
    assert result["all", "error_rate"]["value"] == 50


def test_an_unread_answer_counts_as_wrong_and_lowers_the_parse_rate(tmp_path: Path) -> None:
    result = scores_of(tmp_path, {"q": timeline("xxxx")}, answered("q", "xx.."))
    assert result["all", "accuracy"]["value"] == 50
    assert result["all", "parse_rate"]["value"] == 50
    assert result["all", "error_rate"]["value"] == 0


def test_a_missing_prediction_counts_as_wrong(tmp_path: Path) -> None:
    write_dataset(tmp_path, {"q": timeline("xxxx")})
    key = key_of(tmp_path)
    values = ("q@0", 0, "x", "marker", None, None, False, None, 7, 1)
    predictions = pl.DataFrame(
        {name: [value] for name, value in zip(READ, values, strict=True)},
        schema_overrides={name: VERDICTS[name] for name in READ},
    )
    graded = grade(key, predictions, trials=1)
    assert graded["right"].to_list() == [True, False, False, False]
    assert graded["failed"].to_list() == [False, True, True, True]
    assert graded["prompt_tokens"].to_list() == [7, None, None, None]


@pytest.mark.parametrize(
    ("probe", "message"), [("q@9", "unknown probe"), ("q@0", "two predictions")], ids=["unknown", "twice"]
)
def test_grading_refuses_what_does_not_belong(tmp_path: Path, probe: str, message: str) -> None:
    write_dataset(tmp_path, {"q": timeline("xx")})
    predictions = pl.DataFrame(
        {
            "probe_id": ["q@0", probe],
            "trial": [0, 0],
            "answer": ["x"] * 2,
            "parse": ["whole"] * 2,
            "failed": [False] * 2,
        },
        schema_overrides={"trial": pl.Int32},
    ).with_columns(rank=pl.lit(None, pl.Int32))
    with pytest.raises(UpkeepError, match=message):
        grade(key_of(tmp_path), predictions, trials=1)


def test_trials_are_averaged(tmp_path: Path) -> None:
    lines = answered("q", "xx") + answered("q", "xz", trial=1) + answered("q", "zz", trial=2)
    result = scores_of(tmp_path, {"q": timeline("xx")}, lines, trials=3)
    assert result["all", "accuracy"]["value"] == pytest.approx(50)
    assert result["all", "accuracy"]["n"] == 6
    assert result["gt_stay", "stability_rate"]["value"] == pytest.approx(100 / 3)
    assert result["gt_stay", "obstinacy_rate"]["value"] == pytest.approx(100 / 3)
    assert result["gt_stay", "volatility_rate"]["value"] == pytest.approx(100 / 3)


def test_changed_predictions_are_refused(tmp_path: Path) -> None:
    write_dataset(tmp_path / "dataset", {"q": timeline("xx")})
    write_cell(tmp_path / "cell", answered("q", "xz"))
    path = tmp_path / "cell" / "predictions.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"z"', b'"x"'))
    with pytest.raises(UpkeepError, match="not the ones that the manifest describes"):
        scored(tmp_path)


def test_a_manifest_of_another_cell_is_refused(tmp_path: Path) -> None:
    write_dataset(tmp_path / "dataset", {"q": timeline("xx")})
    write_cell(tmp_path / "cell", answered("q", "xz"))
    other = Cell("oaks_babi", "rag_dense", "k5", "m")
    with pytest.raises(UpkeepError, match="do not agree: name"):
        scored(tmp_path, other)


def test_a_cell_of_an_older_dataset_is_refused(tmp_path: Path) -> None:
    write_dataset(tmp_path / "dataset", {"q": timeline("xxx")})
    write_cell(tmp_path / "cell", answered("q", "xz"))
    with pytest.raises(UpkeepError, match="number of probes"):
        scored(tmp_path)


def test_a_torn_line_is_named(tmp_path: Path) -> None:
    write_dataset(tmp_path / "dataset", {"q": timeline("xx")})
    write_cell(tmp_path / "cell", answered("q", "xz"))
    path = tmp_path / "cell" / "predictions.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(UpkeepError, match="line 2"):
        scored(tmp_path)


def test_a_broken_line_is_named_far_into_the_file(tmp_path: Path) -> None:
    write_dataset(tmp_path / "dataset", {"q": timeline("x" * 2000)})
    write_cell(tmp_path / "cell", answered("q", "x" * 2000))
    path = tmp_path / "cell" / "predictions.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"q@1234"', b'"q@1234'))
    with pytest.raises(UpkeepError, match="line 1235"):
        scored(tmp_path)


def test_an_added_blank_line_is_refused(tmp_path: Path) -> None:
    write_dataset(tmp_path / "dataset", {"q": timeline("xx")})
    write_cell(tmp_path / "cell", answered("q", "xz"))
    with (tmp_path / "cell" / "predictions.jsonl").open("ab") as file:
        file.write(b"\n" * 100_000)
    with pytest.raises(UpkeepError, match="not the ones that the manifest describes"):
        scored(tmp_path)


def test_a_changed_answer_key_is_refused(tmp_path: Path) -> None:
    write_dataset(tmp_path, {"q": timeline("xx")})
    gold = pl.read_parquet(tmp_path / "gold.parquet").with_columns(answers=pl.lit(["z"]))
    gold.write_parquet(tmp_path / "gold.parquet")
    with pytest.raises(UpkeepError, match=r"gold\.parquet: not the file that was written"):
        key_of(tmp_path)
