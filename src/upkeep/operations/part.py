"""A part of a suite: the cells that a table shows, or those of one method, and how that compares with the others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from upkeep import samples
from upkeep.catalog import CONTROLS, Catalog
from upkeep.errors import UpkeepError
from upkeep.grading.paired import holm, p_text
from upkeep.jobs import Cell
from upkeep.layout import Layout
from upkeep.operations.diff.comparing import CellDifference, between
from upkeep.operations.diff.sides import Published
from upkeep.operations.explain import explain
from upkeep.published import standing
from upkeep.text import one_line


def chosen(catalog: Catalog, suite: str, table: str | None, method: str | None) -> list[Cell]:
    """The cells of a suite that a table has a place for, or of one method, or both.

    A method that the suite has no cell of is asked wherever the others are: about their datasets, with their models.

    Args:
        table: as of `explain`.
        method: its name, or `METHOD/VARIANT`.

    Raises:
        UpkeepError: there is no such table, method or variant; the method answers nothing; or nothing is left.
    """
    cells = samples.cells(catalog, catalog.suite(suite))
    if table is not None:
        shown, _ = explain(catalog, suite, table)
        found = {number.cell for row in shown.rows for number in row.numbers}
        cells = [cell for cell in cells if str(cell) in found]
    if method is None:
        return _some(cells, suite, table)
    name, _, variant = method.partition("/")
    card = catalog.method(name)
    if variant and variant not in card.variants:
        raise UpkeepError(
            f"method {name!r} has no variant {variant!r}",
            expected=f"one of {', '.join(card.variants)}",
            remedy=f"`--method {name}` for all of them",
        )
    own = [cell for cell in cells if cell.method == name and variant in ("", cell.variant)]
    if own:
        return own
    variants = [variant] if variant else list(card.variants)
    # A method without a model is one cell of a dataset, whatever the others were asked with.
    asked = dict.fromkeys((cell.dataset, cell.model if card.model else "none") for cell in _some(cells, suite, table))
    pairs = [(dataset, model) for dataset, model in asked if not card.model or model != "none"]
    made = [Cell(dataset, name, one, model) for dataset, model in pairs for one in variants]
    for cell in made:
        catalog.check(cell)
    return _some(made, suite, table)


def _some(cells: list[Cell], suite: str, table: str | None) -> list[Cell]:
    if cells:
        return cells
    raise UpkeepError(
        f"suite {suite!r} has no cell for {table}" if table else f"suite {suite!r} has no cells",
        expected="a table that the suite fills, or another suite",
        remedy=f"`./upkeep explain {table}` says what would fill it" if table else "`./upkeep list suites`",
    )


def beside(catalog: Catalog, suite: str, cells: Iterable[Cell]) -> Iterator[str]:
    """Each of these cells set beside every other of the suite that is published, on the same dataset with the same
    model: paired, probe by probe."""
    others = samples.cells(catalog, catalog.suite(suite))
    found: list[tuple[Cell, CellDifference]] = []
    for cell in cells:
        for other in others:
            same = (other.dataset, other.model) == (cell.dataset, cell.model)
            if not same or other.method in (*CONTROLS, cell.method) or not _published(catalog, other):
                continue
            if not catalog.method(other.method).measures:
                found.append((other, between(Published(catalog, other), Published(catalog, cell), 0)))
    if not found:
        return
    chances = holm([None if one.paired is None else one.paired.p for _, one in found])
    yield f"paired, clustered by question; p by Holm for {len(found)} comparisons"
    rows = [
        (one.second, f"{paired.second:.1f}", str(other), f"{paired.first:.1f}", *_difference(one), p_text(p))
        for (other, one), p in zip(found, chances, strict=True)
        if (paired := one.paired) is not None
    ]
    before = ""
    width = max((len(row[2]) for row in rows), default=0)
    for mine, own, its, theirs, difference, interval, p in rows:
        if mine != before:
            yield f"{mine}: {own} % right; less"
        before = mine
        yield f"  {its:{width}}  {theirs:>5}  {difference:>6}  {interval:18}  p {p}"


def _difference(one: CellDifference) -> tuple[str, str]:
    assert one.paired is not None
    low, high = one.paired.low, one.paired.high
    interval = "" if low is None or high is None else f"{low:+.1f} to {high:+.1f}"
    return f"{one.paired.difference:+.1f}", interval


def _published(catalog: Catalog, cell: Cell) -> bool:
    return (Layout(catalog.results).cell(cell) / "manifest.json").is_file()


def listed(catalog: Catalog, cells: Sequence[Cell]) -> Iterator[str]:
    """What a run would do with each cell: those that it would run, with why, and how many it would not."""
    with catalog.hashes.at_once():
        standings = {cell: standing(catalog, cell) for cell in cells}
    left = {cell: one.problem for cell, one in standings.items() if one.manifest is None}
    yield f"{len(cells) - len(left):,} cells are complete, {len(left):,} would be run" + (":" if left else "")
    for cell, problem in left.items():
        yield f"  {cell}  {'not begun' if problem is None else one_line(problem.problem)}"
