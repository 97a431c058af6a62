"""Whether what a paper's tables, figures and claims name is there: fields, metrics, datasets.

A paper may have names of its own: those of its published numbers, and those in the code of its metrics. What neither
these nor the suite know gives an empty column or a claim that is never run, and is refused.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from upkeep.catalog import Catalog
from upkeep.errors import UpkeepError, nearest
from upkeep.grading import metric_families
from upkeep.report.card_fields import Cards
from upkeep.report.claims import Claim, place
from upkeep.report.fields import check
from upkeep.report.reference import read_reference
from upkeep.report.specs import FIGURES, TABLES, FigureSpec, PaperSpec

_METRIC = re.compile(r"\bmetric\s*(?:=|in\s*\()\s*((?:'[^']*'[\s,]*)+)", re.IGNORECASE)


def check_tables(folder: Path, paper: PaperSpec) -> None:
    """Refuse tables and figures of a paper that name what nothing gives.

    Raises:
        UpkeepError: a field, a metric or a dataset; with the file, the table or figure, and what is nearest.
    """
    known, root = _known(folder), folder.parents[1]
    cards = Cards(Catalog(root), folder.name) if (root / "Snakefile").is_file() else None
    for number, one in enumerate(paper.called, 1):
        check([*one.where, *one.instead], f"{folder / TABLES}: called, {number}")
    check([*paper.stand_in, *(paper.best or {})], f"{folder / TABLES}")
    for table in paper.tables:
        where = f"{folder / TABLES}: {table.id}"
        columns = [name for axis in table.columns for match in axis.values() for name in match]
        facts = [name for fact in table.facts for name in (*fact.match, *fact.by)]
        names = [*table.rows, *(stub.field for stub in table.stub), *columns, *facts, *table.where]
        matches = [*(one.match for one in table.unfilled), *(one.match for one in table.cards)]
        check([*names, *(table.average or {}), *itertools.chain(*matches)], where)
        _require(msgspec.to_builtins(table), known, where)
        if cards is not None:
            cards.check(table)
    for figure in paper.figures:
        where = f"{folder / FIGURES}: {figure.id}"
        check(_drawn(figure), where)
        _require(msgspec.to_builtins(figure), known, where)


def _drawn(figure: FigureSpec) -> Iterator[str]:
    """The fields that a figure names."""
    for panel in figure.panels:
        yield from panel.match
    for series in figure.series:
        yield from (*series.match, *(series.at or {}))
        yield from filter(None, (series.x, series.largest))


def check_claims(folder: Path, claims: Iterable[Claim]) -> None:
    """Refuse claims on metrics or datasets that there are not.

    Raises:
        UpkeepError: with the file, the claim and its line, and what is nearest.
    """
    known = _known(folder)
    for claim in claims:
        asked = [
            name for one in claim.checks for found in _METRIC.findall(one.query) for name in found.split("'")[1::2]
        ]
        for field, names in (("metric", asked), ("dataset", claim.needs.datasets)):
            for name in names:
                _one(field, name, known[field], place(folder, claim))


def _known(folder: Path) -> dict[str, set[str]]:
    """Metrics and datasets of a paper: its published numbers', those that its code names, and the suite's."""
    printed = [read_reference(path) for path in sorted((folder / "reference").glob("*.csv"))]
    found = {field: {str(name) for one in printed for name in one[field]} for field in ("metric", "dataset")}
    code = [folder / metric_families.FILE, *sorted(Path(metric_families.__file__).parent.glob("*.py"))]
    found["metric"] |= {word for path in code if path.is_file() for word in re.findall(r"\w+", path.read_text("utf-8"))}
    root = folder.parents[1]
    if (root / "Snakefile").is_file():
        found["dataset"] |= set(Catalog(root).datasets)
    return found


def _require(spec: object, known: dict[str, set[str]], where: str) -> None:
    for field, name in _named(spec):
        _one(field, name, known[field], where)


def _named(spec: Any) -> Iterator[tuple[str, str]]:
    """The metrics and datasets that the matches of a spec name."""
    for field, value in spec.items() if isinstance(spec, dict) else enumerate(spec) if isinstance(spec, list) else ():
        if field in ("metric", "dataset") and isinstance(value, str | list):
            yield from ((field, name) for name in ([value] if isinstance(value, str) else value))
        else:
            yield from _named(value)


def _one(field: str, name: str, known: Collection[str], where: str) -> None:
    if name and name not in known:
        close = nearest(name, known)
        raise UpkeepError(
            f"unknown {field} {name!r}",
            where=where,
            expected=f"a {field} of the paper's published numbers, of its metrics.py or of the suite",
            remedy=f"did you mean {' or '.join(close)}?" if close else "mend the name (papers/FORMAT.md)",
        )
