"""A published cell with its verdicts, as what shows its predictions reads it: `upkeep show`, and the report's pages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from upkeep.catalog import Catalog
from upkeep.contract import Manifest
from upkeep.errors import UpkeepError
from upkeep.files import folders_with
from upkeep.grading.became import BECAME
from upkeep.grading.graded import graded
from upkeep.grading.judged import Judged, judged
from upkeep.grading.key import read_key
from upkeep.inputs import command_of
from upkeep.integrity import Missing, verify_folder
from upkeep.jobs import Cell
from upkeep.layout import Layout
from upkeep.published import standing

PARSES = {
    "marker": "after the marker that the prompt demands",
    "lenient": "after another spelling of the marker",
    "whole": "the whole reply, which has no marker",
    "none": "not read: there is no answer in the reply",
}
"""How an answer was read (`grading.reading.Parse`)."""
FORMS = {"short": "in a few words", "choice": "an option's letter", "label": "one of the labels"}
CALLS = 50
"""Calls of a prediction that are shown, unless all are asked for."""
UNASKED = "not asked: the answer key's words stand"
UNKEPT = (
    "no request with this key is on record: it was pruned, or the record is another machine's",
    "(`./upkeep record import`), or the method's container named a key that is none of its own",
)
"""Why a call cannot be shown, in two lines."""


@dataclass(frozen=True)
class Shown:
    """A published cell, verified, with its verdicts."""

    catalog: Catalog
    cell: Cell
    manifest: Manifest
    stale: str | None
    """Why it does not count as things are now."""
    graded: pl.DataFrame
    """As scoring grades it: a row for each probe and trial, in the order of the probes."""
    gold: pl.DataFrame

    @classmethod
    def read(cls, catalog: Catalog, name: str) -> Shown:
        """Read a cell.

        Raises:
            UpkeepError: there is no such cell, it is not published, or its files or its dataset are damaged.
        """
        cell = Cell.parse(name)
        catalog.check(cell)
        layout = Layout(catalog.results)
        folder = layout.cell(cell)
        try:
            manifest = verify_folder(folder, catalog.hashes)
        except Missing:
            raise Missing("this cell is not published", where=folder, remedy=command_of(cell)) from None
        problem = standing(catalog, cell, as_asked=True).problem
        stale = None if problem is None else ": ".join(filter(None, (problem.problem, problem.remedy)))
        key = read_key(catalog, cell.dataset).asked_of(manifest)
        verdicts = graded(catalog, cell, manifest, key).with_key(key, manifest.trials)
        gold = pl.read_parquet(layout.dataset(cell.dataset) / "gold.parquet")
        return cls(catalog, cell, manifest, stale, verdicts.with_columns(said="verdict", verdict=BECAME), gold)

    @property
    def name(self) -> str:
        return str(self.cell)

    def judges(self) -> Iterator[tuple[str, Judged | UpkeepError]]:
        """As `judges_of`."""
        return judges_of(self.catalog, self.cell, self.manifest)


def judges_of(catalog: Catalog, cell: Cell, manifest: Manifest) -> Iterator[tuple[str, Judged | UpkeepError]]:
    """What judges said of a cell's responses, whatever suite they judge in; or why that does not count.

    Args:
        manifest: the cell's, verified.
    """
    for judge in folders_with(Layout(catalog.results).results / "judged", str(cell)):
        try:
            yield judge, judged(catalog, cell, judge, manifest)
        except UpkeepError as error:
            yield judge, error
