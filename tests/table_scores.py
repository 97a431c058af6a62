"""Scores of our own in a table of one paper, for tests of tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from upkeep.grading.score import SCORE_SCHEMA
from upkeep.grading.settings import as_rows, pairs
from upkeep.report import tables
from upkeep.report.reference import read_reference
from upkeep.report.rows import Number
from upkeep.report.specs import read_paper
from upkeep.report.waiting import PENDING_SCHEMA

ROOT = Path(__file__).resolve().parents[1]
OAKS = ROOT / "papers" / "oaks"
PAPER = read_paper(OAKS)
SPECS = {spec.id: spec for spec in PAPER.tables}
NO_SCORES = pl.DataFrame(schema=SCORE_SCHEMA)
NOTHING_WAITS = pl.DataFrame(schema=PENDING_SCHEMA)


def score(**fields: Any) -> dict[str, Any]:
    """A score of our own: by default what Table 2 has for Qwen3-30B, Base, OAKS-B, All."""
    row = {
        "table": "",
        "label": "Base",
        "model": "Qwen3-30B",
        "method": "long_context",
        "supervision": "",
        "setting": "thinking=off",
        "dataset": "oaks_babi",
        "subset": "all",
        "metric": "accuracy",
        "value": 36.24,
        "unit": "percent",
        "n": 78000,
        "questions": 1200,
        "se": 0.5,
        "low": 35.24,
        "high": 37.24,
        "cell": "oaks_babi/long_context/default/qwen3-30b",
        "trained": True,
    } | fields
    row["setting"] = as_rows(pairs(row["setting"]))
    row = {"dataset_id": row["dataset"], **row}
    which = row["dataset_id"].removeprefix(row["dataset"]).strip("_")
    return {"provenance": "stand_in" if which else "release", "stand_in": which, **row}


def frame(*rows: dict[str, Any]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=SCORE_SCHEMA)


def table(name: str, scores: pl.DataFrame = NO_SCORES, waiting: pl.DataFrame = NOTHING_WAITS) -> tables.Table:
    return tables.build(SPECS[name], PAPER, read_reference(OAKS / "reference" / f"{name}.csv"), scores, waiting)


def place(built: tables.Table, stub: str, column: str) -> Number:
    """A number of the only row that is called so: one of the paper's, or else of our own."""
    papers, ours = ([r for r in rows if " ".join(filter(None, r.stub)) == stub] for rows in (built.papers, built.ours))
    (row,) = papers or ours
    return row.numbers[built.columns.index(column)]
