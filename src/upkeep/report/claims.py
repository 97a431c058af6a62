"""The papers' findings, checked on the published numbers (papers/FORMAT.md, "Claims"); on our own: `verdicts`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec
import polars as pl

from upkeep.contract import Count, Record
from upkeep.errors import UpkeepError
from upkeep.grading.settings import SETTING
from upkeep.report.reference import read_reference
from upkeep.report.view import COLUMNS, View
from upkeep.yaml_files import read_yaml

FOLDER = "claims"

Outcome = Literal["holds", "fails", "undecided", "partial", "not_run", "undecidable", "no_numbers"]

_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_ALIKE = 1e-9
"""Sides that differ by less are equal: they are sums of the same numbers in another order."""


class Check(Record, frozen=True, kw_only=True):
    query: str
    """A SELECT with a row for each case: what names it, then `lhs` and `rhs`."""
    op: Literal[">", ">=", "<", "<="]
    within: float | None = None
    """How far the sides are to be from each other, by `op`; without it they are compared themselves."""
    quantifier: Literal["all", "most", "some"] = "all"
    """How many of the cases must satisfy it; `most` is more than half, `some` is one."""
    rows: Count
    """Cases that the published tables give; 0 where the paper prints no numbers."""
    table: str | list[str]
    """Where the published numbers stand."""

    @property
    def tables(self) -> tuple[str, ...]:
        return (self.table,) if isinstance(self.table, str) else tuple(self.table)

    def satisfied(self, lhs: float, rhs: float) -> bool:
        """Whether a case satisfies it."""
        more = lhs - rhs if self.within is None else abs(lhs - rhs) - self.within
        return _OPERATORS[self.op](0.0 if abs(more) < _ALIKE else more, 0.0)

    def wanted(self, cases: int) -> int:
        """How many of so many cases must satisfy it."""
        return {"all": cases, "most": cases // 2 + 1, "some": 1}[self.quantifier]


class Needs(Record, frozen=True, kw_only=True):
    """What must have been run for a claim to be checked on our own scores."""

    models: list[str] = msgspec.field(default_factory=list)
    """By their printed names; `any`, `open` and `closed` name none in particular."""
    methods: list[str] = msgspec.field(default_factory=list)
    datasets: list[str] = msgspec.field(default_factory=list)
    settings: list[dict[str, str]] = msgspec.field(default_factory=list)
    """Of each, some run has all."""


class Claim(Record, frozen=True, kw_only=True):
    """One finding; it holds when every check does."""

    id: str
    where: str
    statement: str
    checks: list[Check]
    published: Literal["holds", "fails", "no_numbers"]
    needs: Needs
    undecidable: str = ""
    """Why no run of ours can ever decide it; empty where one can."""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Case:
    """One row of a check."""

    name: str
    lhs: float
    rhs: float
    holds: bool
    share: float | None = None
    """Of the resamples, those in which it holds; None for published numbers."""


@dataclass(frozen=True, slots=True)
class Verdict:
    outcome: Outcome
    cases: list[list[Case]]
    """Of each check."""
    so_far: Literal["holds", "fails", "undecided", ""] = ""
    """What a `partial` one would be by what was run."""
    missing: list[str] = field(default_factory=list)
    """What is to be run for a `partial` or a `not_run` one."""
    borrowed: bool = False
    """Whether scores of people are the published ones."""


def claims_in(file: Path) -> list[Claim]:
    """Read one file of claims.

    Raises:
        UpkeepError: missing, or not as papers/FORMAT.md has it.
    """
    return read_yaml(file, list[Claim], expected="claims as in papers/FORMAT.md")


def read_claims(folder: Path) -> list[Claim]:
    """Read `claims/*.yaml` of a paper's folder, in the order of the ids: c2 before c10, whichever file has it.

    Raises:
        UpkeepError: there is none, one is not as papers/FORMAT.md has it, or two claims have one id.
    """
    found: dict[str, tuple[Claim, Path]] = {}
    if not (files := sorted((folder / FOLDER).glob("*.yaml"))):
        raise UpkeepError(
            "no claims",
            where=folder / FOLDER,
            expected="files of claims, as many as you like (papers/FORMAT.md, Claims)",
            remedy="put them there; `[]` in a file where the paper has none",
        )
    for file in files:
        for claim in claims_in(file):
            if claim.id in found:
                raise UpkeepError(
                    f"two claims have the id {claim.id!r}",
                    where=f"{file}: {claim.id}",
                    expected="an id that no other claim of the paper has",
                    found=f"another in {found[claim.id][1]}",
                    remedy="rename one of them",
                )
            found[claim.id] = claim, file
    return [found[name][0] for name in sorted(found, key=_by_number)]


def _by_number(name: str) -> list[tuple[int, str]]:
    """Text in order, and the numbers in it as numbers."""
    return [(int(part or 0), text) for text, part in re.findall(r"(\D*)(\d*)", name)]


def place(folder: Path, claim: Claim) -> str:
    """Where a paper's claim stands, for messages: file, line and id."""
    of_it = re.compile(rf"[\s{{-]*id:\s*[\"']?{re.escape(claim.id)}[\"']?\s*(,|$)")
    for file in sorted((folder / FOLDER).glob("*.yaml")):
        for number, line in enumerate(file.read_text("utf-8").splitlines(), start=1):
            if of_it.match(line):
                return f"{file}:{number}: {claim.id}"
    return f"{folder / FOLDER}: {claim.id}"


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
                if check.tables not in views:
                    views[check.tables] = stack.enter_context(View(printed(folder, check.tables)))
                try:
                    sides = views[check.tables].sides(check.query, claim.id)
                except UpkeepError as error:
                    raise error.at(place(folder, claim)) from None
                cases.append([Case(name, *both, check.satisfied(*both)) for name, both in sides.items()])
            held = [
                sum(case.holds for case in rows) >= check.wanted(len(rows)) if rows else None
                for check, rows in zip(claim.checks, cases, strict=True)
            ]
            outcome: Outcome = "fails" if False in held else "no_numbers" if None in held else "holds"
            verdicts[claim.id] = Verdict(outcome, cases)
    return verdicts


def check_published(file: Path) -> list[Claim]:
    """Read a file of a paper's claims, and ask the published numbers for each.

    Raises:
        UpkeepError: as `read_claims`; or the numbers give another outcome or other numbers of cases than a claim says.
    """
    folder = file.parents[1]
    read_claims(folder)
    claims = claims_in(file)
    verdicts = published(folder, claims)
    for claim in claims:
        verdict = verdicts[claim.id]
        cases = [len(rows) for rows in verdict.cases]
        for what, expected, found in (
            ("other numbers of cases", [check.rows for check in claim.checks], cases),
            ("another outcome", claim.published, verdict.outcome),
        ):
            if expected != found:
                raise UpkeepError(
                    f"the published numbers give {what} than the claim says",
                    where=place(file.parents[1], claim),
                    expected=expected,
                    found=found,
                    remedy="mend `query`, or `rows` and `published` (papers/FORMAT.md, Claims)",
                )
    return claims


def printed(folder: Path, tables: Iterable[str]) -> pl.DataFrame:
    """The distinct rows of published tables: COLUMNS."""
    paths = [folder / "reference" / f"{name}.csv" for name in tables]
    frames = [read_reference(path).drop("table") for path in paths if path.is_file()]
    if not frames:
        return pl.DataFrame(schema=dict.fromkeys(COLUMNS, pl.String) | {"setting": SETTING})
    return pl.concat(frames).unique(maintain_order=True)
