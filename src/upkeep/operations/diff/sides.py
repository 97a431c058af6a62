"""The two sides of a comparison, a cell, a suite or a results folder each, and which of their cells belong together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from upkeep.catalog import Catalog
from upkeep.contract import Manifest
from upkeep.errors import UpkeepError, nearest
from upkeep.grading.became import BECAME
from upkeep.grading.graded import grade_cell
from upkeep.grading.key import Key, read_key
from upkeep.inputs import command_of
from upkeep.integrity import Missing, verify_folder
from upkeep.jobs import Cell
from upkeep.layout import Layout
from upkeep.operations.located import PARTS, at, in_folder


@dataclass(frozen=True)
class Published:
    """A published cell, of whatever results folder, whether or not it counts as things are now."""

    catalog: Catalog
    """With its results folder."""
    cell: Cell

    @property
    def folder(self) -> Path:
        return Layout(self.catalog.results).cell(self.cell)

    def manifest(self) -> Manifest:
        """Raises Missing where it is not published, Damaged where it is not what was written."""
        try:
            return verify_folder(self.folder, self.catalog.hashes)
        except Missing:
            raise Missing("this cell is not published", where=self.folder, remedy=command_of(self.cell)) from None

    def verdicts(self, manifest: Manifest) -> pl.DataFrame:
        """`graded.VERDICTS` beside the columns of `Key.probes`; `became`, the verdict in one word. Writes nothing.

        Raises:
            UpkeepError: its dataset is not there, or the two do not agree.
        """
        if self.catalog.method(self.cell.method).measures:
            raise UpkeepError(
                "this cell measures numbers and answers nothing, so no prediction of it is right or wrong",
                where=self.folder,
                remedy="`./upkeep score` and `./upkeep report` show its numbers",
            )
        key = self.key(manifest)
        found = grade_cell(self.folder, manifest, self.cell, key)
        return found.with_key(key, manifest.trials).with_columns(became=BECAME)

    def key(self, manifest: Manifest) -> Key:
        return read_key(self.catalog, self.cell.dataset).asked_of(manifest)

    def right(self) -> dict[str, list[str]]:
        """What would be right, by probe."""
        gold = pl.read_parquet(Layout(self.catalog.results).dataset(self.cell.dataset) / "gold.parquet")
        return dict(gold.select("probe_id", "answers").iter_rows())


@dataclass(frozen=True)
class Side:
    """What one name stands for."""

    name: str
    cells: Mapping[str, Published]
    """By their names; of a suite and a results folder, those that are published."""
    single: bool = False
    """Whether it is one cell, and not a suite or a folder that has one."""


def side(catalog: Catalog, name: str) -> Side:
    """Look up a cell's name, a suite, or the folder of a cell, of results, or of a clone.

    Raises:
        UpkeepError: it is none of these, or nothing is published of it.
    """
    if name in catalog.suites:
        cells = catalog.cells(catalog.suite(name))
        there = (Published(catalog, cell) for cell in cells)
        found = {str(one.cell): one for one in there if (one.folder / "manifest.json").is_file()}
        return _some(Side(name, found), f"./upkeep run {name}")
    path = Path(name)
    if path.is_dir():
        return _of_folder(catalog, path.resolve(), name)
    if name.count("/") == PARTS - 1 and not name.startswith(("/", ".")):
        cell = Cell.parse(name)
        catalog.check(cell)
        return Side(name, {name: Published(catalog, cell)}, single=True)
    close = nearest(name, [*catalog.suites])
    raise UpkeepError(
        f"nothing is called {name!r}",
        expected="a cell (DATASET/METHOD/VARIANT/MODEL), a suite, or the folder of a cell, of results or of a clone",
        found="no cell, suite or folder of this name",
        remedy=f"did you mean {' or '.join(close)}?" if close else "`./upkeep list suites`, `./upkeep list cells`",
    )


def _of_folder(catalog: Catalog, path: Path, name: str) -> Side:
    if (path / "manifest.json").is_file():
        place, cell = in_folder(catalog, path)
        return Side(name, {str(cell): Published(place, cell)}, single=True)
    for results in (path, path / "results"):
        if (results / "cells").is_dir():
            other, manifests = at(catalog, results), sorted((results / "cells").glob("*/*/*/*/manifest.json"))
            cells = (Published(other, Cell(*one.parent.parts[-PARTS:])) for one in manifests)
            return _some(Side(name, {str(one.cell): one for one in cells}), "./upkeep run")
    raise UpkeepError(
        "neither a cell nor results are in this folder",
        where=path,
        expected="manifest.json, or cells/",
        remedy="give the folder of a cell, of results, or of a clone",
    )


def _some(found: Side, remedy: str) -> Side:
    if not found.cells:
        raise UpkeepError("no cell of it is published", where=found.name, remedy=remedy)
    return found


def pairs(first: Side, second: Side) -> Iterator[tuple[Published, Published]]:
    """The cells that belong together: two that are named whatever they are, else those of one name; of the others those
    that are all but the model alike, where each side has one such.

    Raises:
        UpkeepError: there are none.
    """
    if first.single and second.single:
        yield from zip(first.cells.values(), second.cells.values(), strict=True)
        return
    both = [name for name in first.cells if name in second.cells]
    rest = [_by_method({n: one for n, one in side.cells.items() if n not in both}) for side in (first, second)]
    found = [(first.cells[name], second.cells[name]) for name in both]
    if not (first.single or second.single):
        alike = [key for key in rest[0] if len(rest[0][key]) == len(rest[1].get(key, [])) == 1]
        found += [(rest[0][key][0], rest[1][key][0]) for key in alike]
    if not found:
        raise UpkeepError(
            f"{first.name} and {second.name} have no cell in common",
            expected="cells of one name, or of one dataset, method and variant",
            found=f"as {next(iter(first.cells))} and {next(iter(second.cells))}",
            remedy="name two cells to compare these, whatever they are called",
        )
    yield from found


def _by_method(cells: Mapping[str, Published]) -> dict[str, list[Published]]:
    found: dict[str, list[Published]] = {}
    for name, one in cells.items():
        found.setdefault(name.rpartition("/")[0], []).append(one)
    return found
