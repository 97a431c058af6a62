"""A paper's own numbers, put in as if they were scores of ours, come out beside themselves in every table."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import table_papers
from conftest import ROOT
from table_papers import PAPERS as ALL_PAPERS
from table_papers import SPECS_OF
from table_scores import NOTHING_WAITS
from upkeep.grading.score import SCORE_SCHEMA
from upkeep.grading.settings import as_rows, pairs
from upkeep.report import tables
from upkeep.report.fields import agrees, as_printed
from upkeep.report.reference import read_reference
from upkeep.report.rows import Row
from upkeep.report.specs import TableSpec, read_paper
from upkeep.report.waiting import PENDING_SCHEMA

PAPERS = {paper: read_paper(ROOT / "papers" / paper) for paper in ("evolveqa", "imprintbench")}
TABLES = [(paper, spec.id) for paper, read in PAPERS.items() for spec in read.tables]
TRAINED = {"cpt", "sft", "mixed_ft", "sdft", "cartridges"}


def spec_of(paper: str, name: str) -> TableSpec:
    (spec,) = [spec for spec in PAPERS[paper].tables if spec.id == name]
    return spec


def reference_of(paper: str, name: str) -> pl.DataFrame:
    return read_reference(Path(ROOT, "papers", paper, "reference", f"{name}.csv"))


def as_ours(reference: pl.DataFrame, **changed: Any) -> pl.DataFrame:
    """Published numbers as our scores have them: with what a model's card says, and how a trained one is asked."""
    rows = []
    for row in reference.iter_rows(named=True):
        of_model = row["model"] and row["method"]
        setting = row["setting"] + (as_rows(pairs("thinking=off")) if of_model else [])
        method = f"{row['method']}+closed_book" if row["method"] in TRAINED and of_model else row["method"]
        ours = {"value": float(row["value"]), "setting": setting, "method": method, "label": "ours", "cell": "c"}
        ours |= {"dataset_id": row["dataset"], "provenance": "release", "stand_in": "", "trained": True}
        rows.append({name: value for name, value in (row | ours | changed).items() if name in SCORE_SCHEMA})
    return pl.DataFrame(rows, schema=SCORE_SCHEMA)


def built(paper: str, name: str, scores: pl.DataFrame) -> tables.Table:
    waiting = pl.DataFrame(schema=PENDING_SCHEMA)
    printed = as_printed(scores, PAPERS[paper].called)
    return tables.build(spec_of(paper, name), PAPERS[paper], reference_of(paper, name), printed, waiting)


@pytest.mark.parametrize(("paper", "name"), TABLES)
def test_every_number_put_in_stands_beside_the_published_one_and_nowhere_else(paper: str, name: str) -> None:
    reference = reference_of(paper, name)
    numbers = [number for row in built(paper, name, as_ours(reference)).rows for number in row.numbers]
    assert Counter(number.published for number in numbers if number.published) == Counter(reference["value"])
    for number in numbers:
        assert number.own == (float(number.published) if number.published else None)


@pytest.mark.parametrize(("paper", "name"), TABLES)
def test_a_setting_that_no_published_row_has_is_no_number_of_a_published_row(paper: str, name: str) -> None:
    reference = reference_of(paper, name)
    scores = as_ours(reference)
    other = pl.lit(pl.Series([as_rows(pairs("reranked=on"))], dtype=SCORE_SCHEMA["setting"]))
    scores = scores.with_columns(setting=pl.col("setting").list.concat(other))
    assert all(number.own is None for row in built(paper, name, scores).rows if row.published for number in row.numbers)


def test_every_table_that_has_published_numbers_is_laid_out() -> None:
    for paper, read in PAPERS.items():
        files = {path.stem for path in (ROOT / "papers" / paper / "reference").glob("*.csv")}
        assert {spec.id for spec in read.tables} == files


# ------------------------------------------------------------------ how they stand, in all papers' tables


@pytest.mark.parametrize(("paper", "name"), list(SPECS_OF))
def test_published_numbers_as_our_own_lie_within_the_interval_and_those_on_a_rebuild_below(
    paper: str, name: str
) -> None:
    spec, whole = SPECS_OF[paper, name], ALL_PAPERS[paper]
    printed = table_papers.reference_of(paper, spec)

    def table_of(**fields: Any) -> tables.Table:
        return tables.build(spec, whole, printed, table_papers.as_scores(printed, **fields), NOTHING_WAITS)

    def means(row: Row) -> bool:
        return bool(spec.average) and agrees(dict(zip(spec.rows, row.key, strict=True)), spec.average or {})

    same = table_of()
    for number in (number for row in same.papers if not means(row) for number in row.numbers):
        if number.published:
            assert (number.own, number.state, number.reason) == (float(number.published), "within the interval", "")
    assert same.ours == []
    rebuilt = table_of(provenance="rebuild")
    values = Counter(float(n.published) for row in same.papers for n in row.numbers if n.published)
    assert Counter(n.own for row in rebuilt.ours for n in row.numbers if n.own is not None) == values
    for row in rebuilt.ours:
        assert row.data == "rebuild" and "[rebuild]" in row.stub[0] and "built anew" in row.reason
        assert {number.state for number in row.numbers if number.own is not None} == {"not comparable"}
    empty = [number for row in rebuilt.papers if not means(row) for number in row.numbers if number.published]
    assert {number.state for number in empty} <= {"not run", "no number"}
    assert all(number.own is None and number.reason for number in empty)
