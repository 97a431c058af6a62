"""Every paper's tables, built of scores, for tests of tables."""

from __future__ import annotations

from typing import Any

import msgspec
import polars as pl

from conftest import ROOT
from table_scores import NO_SCORES, NOTHING_WAITS, OAKS, PAPER, frame, score
from upkeep.report import tables, waiting
from upkeep.report.fields import as_printed
from upkeep.report.reference import read_reference
from upkeep.report.specs import TableSpec, read_paper

PAPERS = {path.parent.name: read_paper(path.parent) for path in sorted((ROOT / "papers").glob("*/tables.yaml"))}
SPECS_OF = {(paper, spec.id): spec for paper, specs in PAPERS.items() for spec in specs.tables}
TABLES = list(SPECS_OF)
HOSTILE = 'a&b_c%d#e{f}g$h~i^j\\k[l]*m<n>|o "p"\n\n– ’ 模型 \x07 ± \\\\[1em]'


def reference_of(paper: str, spec: TableSpec) -> pl.DataFrame:
    return read_reference(ROOT / "papers" / paper / "reference" / spec.file)


def as_scores(reference: pl.DataFrame, **fields: Any) -> pl.DataFrame:
    """Scores of our own that are the published numbers."""
    rows = []
    for n, row in enumerate(reference.iter_rows(named=True)):
        setting = ";".join(f"{pair['key']}={pair['value']}" for pair in row["setting"])
        value = float(row["value"])
        own = row | {"value": value, "low": value - 1, "high": value + 1, "setting": setting, "cell": f"d/m/v/{n}"}
        rows.append(score(**(own | fields)))
    return frame(*rows)


def only(spec: TableSpec, **fields: Any) -> TableSpec:
    return msgspec.structs.replace(spec, **fields)


def built_of(spec: TableSpec, scores: pl.DataFrame, name: str = "table_2", **more: Any) -> tables.Table:
    return tables.build(spec, PAPER, read_reference(OAKS / f"reference/{name}.csv"), scores, NOTHING_WAITS, **more)


def evolveqa(name: str, pending: pl.DataFrame, gaps: waiting.Gaps | None = None) -> tables.Table:
    whole, spec = PAPERS["evolveqa"], SPECS_OF["evolveqa", name]
    return tables.build(spec, whole, reference_of("evolveqa", spec), NO_SCORES, as_printed(pending, whole.called), gaps)
