"""The papers' findings, checked on the published numbers and on our own (papers/FORMAT.md, `claims.yaml`)."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import duckdb
import polars as pl

from upkeep.contract import Count, Record
from upkeep.errors import UpkeepError
from upkeep.report.tables import STAND_IN, read_reference
from upkeep.yaml_files import read_yaml

Outcome = Literal["holds", "fails", "no_numbers", "not_run"]

COLUMNS = ("label", "model", "method", "supervision", "setting", "dataset", "subset", "metric", "value", "unit")
"""Columns of the view `scores` that the queries see."""

_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


class Check(Record, frozen=True, kw_only=True):
    query: str
    """A SELECT with a row for each case: what names it, then `lhs` and `rhs`."""
    op: Literal[">", ">=", "<", "<="]
    quantifier: Literal["all", "most"] = "all"
    """How many of the rows must satisfy it; `most` is more than half."""
    rows: Count
    """Rows that the published tables give; 0 where the paper prints no numbers."""
    table: str | list[str]
    """Where the published numbers stand."""

    @property
    def tables(self) -> list[str]:
        return [self.table] if isinstance(self.table, str) else self.table


class Claim(Record, frozen=True, kw_only=True):
    """One finding; it holds when every check does."""

    id: str
    where: str
    statement: str
    checks: list[Check]
    published: Literal["holds", "fails", "no_numbers"]
    needs: dict[str, Any]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Case:
    """One row of a check."""

    name: str
    lhs: float
    rhs: float
    holds: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    outcome: Outcome
    cases: list[list[Case]]
    """Rows of each check."""


def read_claims(folder: Path) -> list[Claim]:
    """Read `claims.yaml` of a paper's folder.

    Raises:
        UpkeepError: missing, or not as papers/FORMAT.md has it.
    """
    return read_yaml(folder / "claims.yaml", list[Claim], expected="claims as in papers/FORMAT.md")


def published(folder: Path, claims: Iterable[Claim]) -> dict[str, Verdict]:
    """Claims on the published numbers, by claim id: a check sees the distinct rows of the tables that it names.

    Tables without a file (figures whose numbers cannot be read) have no rows.
    """
    with ExitStack() as stack:
        views: dict[tuple[str, ...], View] = {}
        verdicts = {}
        for claim in claims:
            cases = []
            for check in claim.checks:
                names = tuple(check.tables)
                if names not in views:
                    views[names] = stack.enter_context(View(_numbers(folder, names)))
                cases.append(views[names].run(claim, check))
            verdicts[claim.id] = _verdict(claim, cases, "no_numbers")
    return verdicts


def _numbers(folder: Path, tables: Iterable[str]) -> pl.DataFrame:
    paths = [folder / "reference" / f"{name}.csv" for name in tables]
    frames = [read_reference(path).drop("table") for path in paths if path.is_file()]
    if not frames:
        return pl.DataFrame(schema=dict.fromkeys(COLUMNS, pl.String))
    return pl.concat(frames).unique(maintain_order=True)


def own(scores: pl.DataFrame, claims: Iterable[Claim]) -> dict[str, Verdict]:
    """Claims on scores of our own (`scoring.score.SCORE_SCHEMA`), by claim id."""
    with View(scores) as view:
        return {
            claim.id: _verdict(claim, [view.run(claim, check) for check in claim.checks], "not_run") for claim in claims
        }


def comparable(scores: pl.DataFrame) -> pl.DataFrame:
    """Scores that may speak for or against a claim: a trained model on the paper's own dataset."""
    return scores.filter("trained", STAND_IN == "", pl.col("method") != "")


def on_stand_ins(scores: pl.DataFrame) -> pl.DataFrame:
    """Scores on stand-ins, untrained models included: they show that the checks run, and nothing about the paper."""
    return scores.filter(STAND_IN != "", pl.col("method") != "")


def _verdict(claim: Claim, cases: list[list[Case]], missing: Outcome) -> Verdict:
    outcomes = [_outcome(check, rows) for check, rows in zip(claim.checks, cases, strict=True)]
    if False in outcomes:
        return Verdict("fails", cases)
    return Verdict(missing if None in outcomes else "holds", cases)


def _outcome(check: Check, rows: list[Case]) -> bool | None:
    """None where a check has no rows."""
    if not rows:
        return None
    held = sum(case.holds for case in rows)
    return held == len(rows) if check.quantifier == "all" else 2 * held > len(rows)


class View:
    """A DuckDB database in memory with the view `scores` and the macro `opt`; it reaches no file and no network."""

    def __init__(self, numbers: pl.DataFrame) -> None:
        self._connection = duckdb.connect(":memory:", config={"enable_external_access": "false", "threads": "1"})
        columns = [numbers[name] for name in COLUMNS]
        parameters = [c.cast(pl.Float64 if c.name == "value" else pl.String).to_list() for c in columns]
        kinds = ["DOUBLE[]" if name == "value" else "VARCHAR[]" for name in COLUMNS]
        selected = ", ".join(f"unnest(?::{kind}) AS {name}" for name, kind in zip(COLUMNS, kinds, strict=True))
        self._connection.execute(f"CREATE TABLE scores AS SELECT {selected}", parameters)
        self._connection.execute(
            "CREATE MACRO opt(setting, name) AS regexp_extract(setting, '(?:^|;)' || name || '=([^;]*)', 1)"
        )

    def __enter__(self) -> View:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def run(self, claim: Claim, check: Check) -> list[Case]:
        """The cases of a check. A row with a missing side is no case.

        Raises:
            UpkeepError: the query is no SQL, or does not give `lhs` and `rhs`.
        """
        try:
            cursor = self._connection.execute(check.query)
            names = [column[0] for column in cursor.description or []]
            rows = cursor.fetchall()
        except duckdb.Error as error:
            raise UpkeepError(f"the query of a check fails: {error}", where=claim.id) from None
        if not {"lhs", "rhs"} <= set(names):
            raise UpkeepError("the query of a check lacks a side", where=claim.id, expected="lhs, rhs", found=names)
        cases = []
        for row in rows:
            values = dict(zip(names, row, strict=True))
            lhs, rhs = values.pop("lhs"), values.pop("rhs")
            if lhs is None or rhs is None or math.isnan(lhs) or math.isnan(rhs):
                continue
            name = ", ".join(str(value) for value in values.values() if value not in (None, ""))
            cases.append(Case(name, float(lhs), float(rhs), _OPERATORS[check.op](lhs, rhs)))
        return sorted(cases, key=lambda case: case.name)
