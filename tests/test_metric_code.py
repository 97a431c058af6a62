"""Code of metrics that is broken, fails or is mended: told with its file and line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from metric_cells import BABI, catalog, fresh, scores_of, verdicts
from scored_cells import answered, suite_of, timeline, write_cell, write_dataset
from upkeep.catalog import Catalog
from upkeep.errors import UpkeepError
from upkeep.grading.measuring import numbers
from upkeep.grading.metric_families import family_of, read_family
from upkeep.grading.metrics import Family
from upkeep.grading.scores import score_suite
from upkeep.jobs import Cell

__all__ = ["catalog", "fresh"]

HEAD = "import polars as pl\nfrom upkeep.grading.metrics import *\n"
GOOD = HEAD + "def measure(graded, retrieved):\n    return shares(graded, accuracy=pl.col('right'))\n"
TAIL = "\nFAMILY = Family(measure)\n"


def family(tmp_path: Path, text: str) -> Family:
    (tmp_path / "metrics.py").write_text(text)
    return read_family(tmp_path / "metrics.py")


# ------------------------------------------------------------------ code that is wrong


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("import polars\nx = = 1\n", ":2", "SyntaxError: invalid syntax"),
        ("\n\nimport no_such_package\n", ":3", "ModuleNotFoundError: No module named 'no_such_package'"),
        ("def f():\n    raise SystemExit('no')\nf()\n", ":2", "SystemExit: no"),
        ("FAMILY = 3\n", "", "metrics without FAMILY"),
        (GOOD, "", "metrics without FAMILY"),
        ("x = 1\0\n", "", "null bytes"),
    ],
)
def test_code_that_cannot_be_imported_is_told_with_its_line(tmp_path: Path, text: str, line: str, problem: str) -> None:
    with pytest.raises(UpkeepError) as caught:
        family(tmp_path, text)
    assert str(caught.value.where) == f"{tmp_path}/metrics.py{line}"
    assert problem in caught.value.problem and "\n" not in caught.value.problem
    assert caught.value.remedy is not None and "papers/FORMAT.md" in caught.value.remedy


@pytest.mark.parametrize(
    ("body", "line", "problem"),
    [
        ("    return 1 / 0\n", ":4", "a metric fails: ZeroDivisionError: division by zero"),
        ("    return graded.select('no_such')\n", ":4", "a metric fails: ColumnNotFoundError"),
        ("    return graded\n", ":3", "a metric gives no counts"),
        ("    return None\n", ":3", "a metric gives no counts"),
        (
            "    return shares(graded, a=pl.col('right')).with_columns(hits=pl.lit('many'))\n",
            ":3",
            "a metric gives no counts: conversion from",
        ),
    ],
)
def test_a_metric_that_fails_is_told_with_its_line(tmp_path: Path, body: str, line: str, problem: str) -> None:
    broken = family(tmp_path, HEAD + "def measure(graded, retrieved):\n" + body + TAIL)
    with pytest.raises(UpkeepError) as caught:
        scores_of(broken, verdicts({}, {}), {})
    assert caught.value.where == f"{tmp_path}/metrics.py{line}"
    assert caught.value.problem.startswith(problem) and "\n" not in caught.value.problem


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("lambda sums: {'other': sums['one']}", "not named: other"),
        ("lambda sums: {'m': sums['one'].sum()}", "m: () in place of a number for each of 1 resamples"),
        ("lambda sums: {'m': sums['two']}", "KeyError: 'two'"),
        ("lambda sums: 1", "AttributeError"),
    ],
)
def test_a_resampled_metric_that_fails_is_told_with_its_file(tmp_path: Path, code: str, problem: str) -> None:
    sums = "lambda graded: graded.select('question_id', one=pl.lit(1))"
    broken = family(tmp_path, GOOD + f"FAMILY = Family(measure, resampled=[Resampled(['m'], {sums}, {code})])\n")
    with pytest.raises(UpkeepError) as caught:
        scores_of(broken, verdicts({}, {}), {})
    assert str(caught.value.where).startswith(f"{tmp_path}/metrics.py") and problem in caught.value.problem


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("lambda graded: {'other': 1}", "not named: other"),
        ("lambda graded: {'m': 'many'}", "ValueError: could not convert"),
        ("lambda graded: {'m': graded['no_such'].sum()}", "ColumnNotFoundError"),
        ("lambda graded: 1", "AttributeError"),
        ("lambda graded: {'accuracy': 1}", "not named: accuracy"),
    ],
)
def test_a_described_metric_that_fails_is_told_with_its_file(tmp_path: Path, code: str, problem: str) -> None:
    broken = family(tmp_path, GOOD + f"FAMILY = Family(measure, described=[Described(['m'], {code}, 'tokens')])\n")
    with pytest.raises(UpkeepError) as caught:
        scores_of(broken, verdicts({}, {}), {})
    assert str(caught.value.where).startswith(f"{tmp_path}/metrics.py") and problem in caught.value.problem


def test_a_described_metric_that_a_judge_decides_is_known_to_be(tmp_path: Path) -> None:
    value = "lambda graded: {'m': graded['right'].mean()}"
    mine = family(tmp_path, GOOD + f"FAMILY = Family(measure, described=[Described(['m'], {value}, 'ratio')])\n")
    for right in (True, False):
        assert numbers(mine, verdicts({"right": right}), 0)["all", "m", None] == right


def test_a_score_that_is_given_twice_is_refused(tmp_path: Path) -> None:
    twice = (
        "def measure(graded, retrieved):\n    one = shares(graded, m=pl.col('right'))\n    return as_counts(one, one)\n"
    )
    with pytest.raises(UpkeepError, match=r"metrics\.py: metrics give a score twice(.|\n)*all, m"):
        scores_of(family(tmp_path, HEAD + twice + TAIL), verdicts({}, {}), {})
    sums = "lambda graded: graded.select('question_id', one=pl.lit(1))"
    also = (
        f"FAMILY = Family(measure, resampled=[Resampled(['accuracy'], {sums}, lambda s: {{'accuracy': s['one']}})])\n"
    )
    with pytest.raises(UpkeepError, match="metrics give a score twice"):
        scores_of(family(tmp_path, GOOD + also), verdicts({}, {}), {})


def test_a_mended_file_is_read_anew_and_each_copy_has_its_own(tmp_path: Path) -> None:
    found = []
    for folder, metric in (("one", "aaa"), ("one", "bbb"), ("two", "ccc")):
        (tmp_path / folder).mkdir(exist_ok=True)
        path = tmp_path / folder / "metrics.py"
        path.write_text(GOOD.replace("accuracy", metric) + TAIL)
        os.utime(path, (1, 1))  # as old as before, and as long
        found.append(read_family(path))
    names = [list(dict.fromkeys(one.measure(verdicts({}), 0)["metric"])) for one in found]
    assert names == [["aaa"], ["bbb"], ["ccc"]]
    assert not (tmp_path / "one" / "__pycache__").exists()


@pytest.mark.usefixtures("fresh")
def test_a_dataset_whose_metrics_are_not_there_or_broken_keeps_no_other_from_being_scored(
    catalog: Catalog, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = [Cell(name, "rag_dense", "k5", "tiny") for name in ("oaks_babi_mini", "oaks_novel")]
    catalog = suite_of(catalog, *cells)
    for cell in cells:
        write_dataset(catalog.results / "datasets" / cell.dataset, {"q": timeline("xx")}, name=cell.dataset)
        write_cell(catalog.results / "cells" / str(cell), answered("q", "xz"), cell=cell)
    card = catalog.root / "datasets/oaks_novel/dataset.yaml"
    card.write_text(card.read_text().replace("metrics: oaks", "metrics: mine"))
    scores = score_suite(Catalog(catalog.root), "s")
    assert set(scores.table["dataset_id"]) == {BABI}
    assert scores.refused == {"oaks_novel": "unknown metrics 'mine'"}
    with pytest.raises(UpkeepError) as caught:
        family_of(Catalog(catalog.root), "oaks_novel")
    assert caught.value.where == f"{card}: metrics" and caught.value.expected == "one of answers, oaks"
    assert caught.value.found == "no papers/mine/metrics.py"

    own = catalog.root / "papers/mine/metrics.py"
    own.parent.mkdir()
    own.write_text(GOOD.replace("return", "retrun") + TAIL)
    scores = score_suite(Catalog(catalog.root), "s")
    assert "cannot be imported: SyntaxError" in scores.refused["oaks_novel"]
    assert f"{own}:4" in capsys.readouterr().err
    own.write_text(GOOD + TAIL)
    scores = score_suite(Catalog(catalog.root), "s")
    assert scores.refused == {} and set(scores.table["dataset_id"]) == {BABI, "oaks_novel"}
