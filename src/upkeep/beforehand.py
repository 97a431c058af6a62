"""What is said of a suite before anything is started: what is refused, and what would surprise."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

from upkeep.catalog import Catalog
from upkeep.contract import Manifest
from upkeep.errors import UpkeepError
from upkeep.integrity import read_record
from upkeep.jobs import Cell
from upkeep.layout import Layout

Asked = tuple[int, int]
"""Seed and trials."""


def require_cells(catalog: Catalog, name: str) -> list[Cell]:
    """The cells of a suite that is run.

    Raises:
        UpkeepError: there are none: its report would take the place of another's, and say nothing.
    """
    if cells := catalog.cells(catalog.suite(name)):
        return cells
    model = f"with --model {catalog.config.model} " if catalog.config.model else ""
    raise UpkeepError(
        f"suite {name!r} {model}has no cells",
        where=catalog.suites[name],
        expected="datasets, methods and models under `cells:`",
        remedy="add some, as config/suites/mini.yaml has them, or run another suite (`./upkeep list suites`)",
    )


def remarks(catalog: Catalog, name: str, cells: Iterable[Cell]) -> Iterator[str]:
    """What would surprise of these cells, asked as a suite asks them: a line each."""
    suite = catalog.suite(name)
    asked = {cell: (suite.seed, catalog.trials(cell, suite)) for cell in cells if cell.model != "none"}
    yield from _copies(catalog, asked)
    yield from _replaced(catalog, name, asked)


def _copies(catalog: Catalog, asked: dict[Cell, Asked]) -> Iterator[str]:
    """Trials that are no new answers: all that ask a greedy model the same get one reply (docs/record.md)."""
    copied: dict[tuple[str, int], list[Cell]] = {}
    for cell, (_, trials) in asked.items():
        if trials > 1 and not catalog.spec(cell.model).sampling.temperature:
            copied.setdefault((cell.model, trials), []).append(cell)
    for (model, trials), found in copied.items():
        yield (
            f"{model} is greedy (temperature 0): of {trials} trials all but the first are copies of it, in "
            f"{_few(found)}; leave `trials` out there, or ask a preset that samples"
        )


def _replaced(catalog: Catalog, name: str, asked: dict[Cell, Asked]) -> Iterator[str]:
    """Cells that another suite has asked otherwise, whose place is taken. Nothing that was paid for is lost by it: the
    replies to both are on record, so the other suite has its cells again without a model. Of a cell without a model
    neither seed nor trials cost anything."""
    found: dict[tuple[Asked, Asked], list[Cell]] = {}
    for cell, now in asked.items():
        with contextlib.suppress(UpkeepError):  # not there, or damaged: it is no cell of anybody's
            manifest = read_record(Layout(catalog.results).cell(cell) / "manifest.json", Manifest)
            if (before := (manifest.seed, manifest.trials)) != now:
                found.setdefault((before, now), []).append(cell)
    for (before, now), cells in found.items():
        other = _suite_of(catalog, cells[0], before)
        by, again = (f" by suite {other!r}", f"`./upkeep refresh {other}`") if other else ("", "a suite that asks so")
        yield (
            f"{_few(cells)}: asked before{by} with {_said(before)}, and now, in the place of that, by suite {name!r} "
            f"with {_said(now)}; the replies to both are kept: {again} has the former again without a model"
        )


def _suite_of(catalog: Catalog, cell: Cell, asked: Asked) -> str | None:
    """A suite that asks a cell so."""
    for name in catalog.suites:
        with contextlib.suppress(UpkeepError):  # what is wrong with a suite is told to who uses it
            suite = catalog.suite(name)
            if (suite.seed, catalog.trials(cell, suite)) == asked and cell in catalog.cells(suite):
                return name
    return None


def _said(asked: Asked) -> str:
    return f"seed {asked[0]}, trials {asked[1]}"


def _few(cells: list[Cell]) -> str:
    return f"{cells[0]}{f' and {len(cells) - 1} more' if len(cells) > 1 else ''}"
