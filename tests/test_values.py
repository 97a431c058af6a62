"""Numbers that a method measured: from its predictions to what metrics are given of them, and to scores."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pytest

import scored_cells
from scored_cells import answered, key_of, line, manifest_of, suite_of, timeline, write_cell, write_dataset
from upkeep.catalog import Catalog
from upkeep.contract import MAX_VALUES, Prediction
from upkeep.errors import UpkeepError
from upkeep.grading.graded import VERDICTS, Graded, grade_cell, graded
from upkeep.grading.key import read_key
from upkeep.grading.measuring import beside, measured, numbers
from upkeep.grading.metrics import Family, Floats, Resampled, Second, as_counts, shares
from upkeep.grading.resampling import Draws
from upkeep.integrity import fingerprint
from upkeep.jobs import Cell
from upkeep.layout import Layout

catalog = scored_cells.catalog
fresh = scored_cells.fresh

BEFORE = Second("before", untrained=True)


def only_right(graded: pl.DataFrame, retrieved: int) -> pl.DataFrame:
    return as_counts(shares(graded, accuracy=pl.col("right")))


def sums(graded: pl.DataFrame) -> pl.DataFrame:
    return graded.drop_nulls("value_sure").select("question_id", sure="value_sure", n=1)


def mean(sums: Mapping[str, Floats]) -> Mapping[str, Floats]:
    return {"sureness": sums["sure"] / sums["n"]}


SURENESS = Family(only_right, resampled=[Resampled(["sureness"], sums, mean, unit="ratio", values=["sure"])])


def given(tmp: Path, *lines: Prediction, trials: int = 1) -> Graded:
    """The verdicts of these predictions for a@0, a@1 and b@0."""
    write_dataset(tmp / "dataset", {"a": timeline("xy"), "b": timeline("x")})
    write_cell(tmp / "cell", lines, probes=3, trials=trials)
    return grade_cell(tmp / "cell", manifest_of(tmp / "cell"), scored_cells.CELL, key_of(tmp / "dataset"))


def test_each_name_is_a_column_and_what_has_no_number_is_null(tmp_path: Path) -> None:
    lines = [
        line("b@0", "x", values={"sure": -1e300, "b%": 3}),
        line("a@1", None),
        line("a@0", "x", values={"sure": 0.25}),
    ]
    rows = given(tmp_path, *lines).rows
    assert rows.schema == {**VERDICTS, "value_b%": pl.Float64, "value_sure": pl.Float64}
    assert rows.select("probe_id", "value_sure", "value_b%").rows() == [
        ("a@0", 0.25, None),
        ("a@1", None, None),
        ("b@0", -1e300, 3.0),
    ]


def test_a_prediction_that_failed_says_no_number(tmp_path: Path) -> None:
    lines = [line("a@0", None, error="E: no", values={"sure": 1}), *(line(p, "x") for p in ("a@1", "b@0"))]
    assert set(given(tmp_path, *lines).rows.columns) == set(VERDICTS)


def test_numbers_stay_with_their_trial(tmp_path: Path) -> None:
    lines = [
        line(probe, "x", trial=trial, values={"sure": 10 * place + trial})
        for place, probe in enumerate(("a@0", "a@1", "b@0"))
        for trial in (1, 0)
    ]
    rows = given(tmp_path, *lines, trials=2).rows
    assert rows["value_sure"].to_list() == [0, 1, 10, 11, 20, 21]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e301", '"1"', "null", "true", "[1]"])
def test_what_is_no_finite_number_is_no_prediction(tmp_path: Path, number: str) -> None:
    with pytest.raises(UpkeepError, match="line 2 is no prediction"):
        rewritten(tmp_path, f'"values":{{"sure":{number}}}')


def test_of_a_name_that_a_line_has_twice_there_is_one_number(tmp_path: Path) -> None:
    assert rewritten(tmp_path, '"values":{"sure":1,"sure":2}')["value_sure"].to_list() == [None, 2, None]


def rewritten(tmp: Path, values: str) -> pl.DataFrame:
    """The verdicts of a cell whose second prediction has these values, as bytes of the file."""
    lines = [line(probe, "x") for probe in ("a@0", "a@1", "b@0")]
    given(tmp, *lines)
    path = tmp / "cell" / "predictions.jsonl"
    first, second, third = path.read_text().splitlines()
    path.write_text("\n".join([first, second.replace('"values":{}', values), third, ""]))
    manifest = msgspec.structs.replace(manifest_of(tmp / "cell"), files={path.name: fingerprint(path)})
    return grade_cell(tmp / "cell", manifest, scored_cells.CELL, key_of(tmp / "dataset")).rows


def test_names_that_are_as_many_as_the_questions_are_refused(tmp_path: Path) -> None:
    """A thousand predictions of 64 names each would make a table of 64,000 columns."""
    many = [{f"p{n}_{probe}": 1.0 for n in range(MAX_VALUES)} for probe in (0, 1)]
    lines = [line("a@0", "x", values=many[0]), line("a@1", "x"), line("b@0", "x")]
    assert len(given(tmp_path, *lines).rows.columns) == len(VERDICTS) + MAX_VALUES
    with pytest.raises(UpkeepError, match="too many names of values"):
        given(tmp_path, lines[0], lines[1], line("b@0", "x", values=many[1]))


def test_verdicts_are_kept_with_their_numbers_and_without_any_as_ever(catalog: Catalog) -> None:
    cell = Cell("oaks_babi_mini", "rag_dense", "k5", "tiny")
    catalog = suite_of(catalog, cell)
    write_dataset(
        catalog.results / "datasets" / cell.dataset, {"a": timeline("xy"), "b": timeline("x")}, name=cell.dataset
    )
    folder, path = catalog.results / "cells" / str(cell), Layout(catalog.results).verdicts(cell)
    for values in ({}, {"sure": 0.5}):
        lines = [line(probe, "x", values=values) for probe in ("a@0", "a@1", "b@0")]
        write_cell(folder, lines, probes=3, cell=cell)
        key = read_key(catalog, cell.dataset)
        made = [graded(catalog, cell, manifest_of(folder), key).rows for _ in range(2)]
        assert made[0].equals(made[1]) and made[0].equals(pl.read_parquet(path))
        assert set(made[0].columns) - set(VERDICTS) == {f"value_{name}" for name in values}


def scores(family: Family, rows: pl.DataFrame, second: pl.DataFrame | None = None) -> dict[str, Any]:
    seconds = {} if second is None else {BEFORE: second}
    found = measured(family, rows, 0, seconds, Draws("d", rows["question_id"])).scores
    return {row["metric"]: row for row in found.filter(subset="all").iter_rows(named=True)}


def test_a_metric_of_numbers_has_a_score_where_there_are_any(tmp_path: Path) -> None:
    key_lines = [line("a@0", "x", values={"sure": 0.5}), line("a@1", None), line("b@0", "x", values={"sure": 0.25})]
    found = given(tmp_path, *key_lines)
    rows = found.with_key(key_of(tmp_path / "dataset"), 1)
    assert scores(SURENESS, rows)["sureness"]["value"] == 0.375
    assert scores(SURENESS, rows)["sureness"]["questions"] == 2
    assert numbers(SURENESS, rows, 0)["all", "sureness", None] == 0.375
    bare = rows.drop("value_sure")
    assert scores(SURENESS, bare).keys() == {"accuracy"}
    assert not any(metric == "sureness" for _, metric, _ in numbers(SURENESS, bare, 0))


def test_of_two_cells_both_must_have_the_numbers(tmp_path: Path) -> None:
    def both(graded: pl.DataFrame) -> pl.DataFrame:
        return graded.select("question_id", sure=pl.col("value_sure") - pl.col("second_value_sure"), n=1)

    wanted = Resampled(["sureness"], both, mean, second=BEFORE, values=["sure"])
    family = Family(only_right, resampled=[wanted])
    lines = [line(probe, "x", values={"sure": number}) for probe, number in (("a@0", 3), ("a@1", 2), ("b@0", 1))]
    found = given(tmp_path, *lines)
    rows, second = found.with_key(key_of(tmp_path / "dataset"), 1), found.rows.with_columns(value_sure=pl.lit(1.0))
    assert {"value_sure", "second_value_sure"} <= set(beside(rows, second).columns)
    assert scores(family, rows, second)["sureness"]["value"] == 1
    for one, other in ((rows.drop("value_sure"), second), (rows, second.drop("value_sure")), (rows, None)):
        assert scores(family, one, other).keys() == {"accuracy"}


def test_measured_numbers_change_no_score_of_answers(tmp_path: Path) -> None:
    key_lines = answered("a", "xy") + answered("b", "x")
    bare = given(tmp_path, *key_lines)
    key = key_of(tmp_path / "dataset")
    told = [msgspec.structs.replace(one, values={"sure": math.pi}) for one in key_lines]
    full = given(tmp_path, *told)
    assert full.rows.drop("value_sure").equals(bare.rows)
    found = [scores(scored_cells.OAKS, one.with_key(key, 1)) for one in (bare, full)]
    assert found[0] == found[1]
