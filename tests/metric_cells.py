"""What tests of metrics share: families of papers, verdicts, and cells whose metrics rest on two."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import scored_cells
from conftest import ROOT
from scored_cells import answered, key_of, manifest_of, suite_of, timeline, write_cell, write_dataset
from upkeep.catalog import Catalog
from upkeep.grading.graded import grade_cell
from upkeep.grading.measuring import measured
from upkeep.grading.metric_families import read_family
from upkeep.grading.metrics import GRADED_SCHEMA, Family, Second
from upkeep.grading.resampling import Draws
from upkeep.grading.score import score_cell
from upkeep.jobs import Cell

catalog = scored_cells.catalog
fresh = scored_cells.fresh
EVOWIKI, PRELUDE, OAKS = (
    read_family(ROOT / "papers" / paper / "metrics.py") for paper in ("evowiki", "prelude", "oaks")
)


def verdicts(*rows: Mapping[str, Any], **slices: Sequence[str]) -> pl.DataFrame:
    """GRADED_SCHEMA with these slices; a question for each row that does not name one."""
    common = {"trial": 0, "position": 0, "phase": 0, "right": False, "exact": False, "outdated": False}
    common |= {"parse": "whole"}
    common |= {"failed": False, "has_evidence": False}
    named = [{"question_id": f"q{n:03}"} | common | row for n, row in enumerate(rows)]
    for row in named:
        row.setdefault("probe_id", f"{row['question_id']}@{row['position']}")
    frame = pl.DataFrame(named, schema=GRADED_SCHEMA)
    return frame.with_columns(pl.Series(f"slice_{name}", values, dtype=pl.String) for name, values in slices.items())


def scores_of(
    family: Family, graded: pl.DataFrame, seconds: dict[Second, pl.DataFrame], retrieved: int = 0
) -> pl.DataFrame:
    """What a family measures."""
    return measured(family, graded, retrieved, seconds, Draws("d", graded["question_id"])).scores


def scored(family: Family, graded: pl.DataFrame, second: pl.DataFrame | None = None) -> dict[tuple[str, str], Any]:
    """(subset, metric) -> its score."""
    seconds = {} if second is None else {one.second: second for one in family.resampled if one.second}
    rows = scores_of(family, graded, seconds).iter_rows(named=True)
    return {(row["subset"], row["metric"]): row for row in rows}


def label(right_one: str, said: str | None) -> dict[str, Any]:
    return {"right": right_one == said, "canonical": said, "answer": said, "parse": "none" if said is None else "whole"}


BABI = "oaks_babi_mini"
RAG, DEEP, CLOSED = (
    Cell(BABI, method, variant, "tiny")
    for method, variant in (("rag_dense", "k5"), ("rag_dense", "k30"), ("closed_book", "default"))
)


@pytest.fixture
def gains(catalog: Catalog, fresh: None) -> Catalog:
    """A suite of three cells on a dataset with EvoWiki's metrics, which crosses no slices; the closed book is run."""
    card = catalog.root / "methods/closed_book/method.yaml"
    card.parent.mkdir()
    card.write_text("{label: Closed, papers: [], summary: s, reference: r, variants: {default: {}}}")
    family = catalog.root / "papers/gains/metrics.py"
    family.parent.mkdir()
    uncrossed = "\n\nimport dataclasses\n\nFAMILY = dataclasses.replace(FAMILY, crossed=())\n"
    family.write_text(Path(EVOWIKI.where).read_text() + uncrossed)
    card = catalog.root / f"datasets/{BABI}/dataset.yaml"
    card.write_text(card.read_text().replace("metrics: oaks", "metrics: gains"))
    catalog = suite_of(catalog, RAG, DEEP, CLOSED)
    write_dataset(catalog.results / "datasets" / BABI, {"p": timeline("x"), "q": timeline("x")})
    publish(catalog, RAG, "xx")
    publish(catalog, DEEP, "xz")
    publish(catalog, CLOSED, "xz")
    return Catalog(catalog.root)


def publish(catalog: Catalog, cell: Cell, answers: str, trials: int = 1) -> None:
    lines = [one for t in range(trials) for q, a in zip("pq", answers, strict=True) for one in answered(q, a, trial=t)]
    write_cell(catalog.results / "cells" / str(cell), lines, trials=trials, cell=cell)


def in_slices(tmp_path: Path, family: Family, **slices: Sequence[str]) -> pl.DataFrame:
    """Scores of a cell that is right on the first of four questions."""
    write_dataset(tmp_path / "dataset", {name: timeline("x") for name in "abcd"})
    write_cell(tmp_path / "cell", [one for name in "abcd" for one in answered(name, "x" if name == "a" else "z")])
    key = key_of(tmp_path / "dataset")
    columns = [pl.Series(f"slice_{name}", values) for name, values in slices.items()]
    key = dataclasses.replace(key, probes=key.probes.drop("slice_changes").with_columns(columns))
    manifest = manifest_of(tmp_path / "cell")
    found = grade_cell(tmp_path / "cell", manifest, scored_cells.CELL, key)
    draws = Draws("d", key.probes["question_id"])
    return score_cell(found, manifest, scored_cells.CELL, scored_cells.IDENTITY, key, family, draws).rows


LEVELS = {"level": ["stable", "stable", "evolved", "evolved"], "hops": ["single_hop", "multi_hop"] * 2}
