"""Published cells by their names or their folders, of these results or of others."""

from __future__ import annotations

import copy
from pathlib import Path

import msgspec

from upkeep.catalog import Catalog
from upkeep.contract import Manifest, Sample
from upkeep.errors import UpkeepError
from upkeep.integrity import read_record
from upkeep.jobs import Cell

PARTS = 4
"""Words of a cell's name, which are folders under `cells/`."""


def at(catalog: Catalog, results: Path, sample: Sample | None = None) -> Catalog:
    """The same repository with another results folder, of cells that were asked a sample or all."""
    other, sample = copy.copy(catalog), sample or Sample()
    other.results = results
    other.config = msgspec.structs.replace(catalog.config, limit=sample.limit, probe=sample.probe)
    return other


def in_folder(catalog: Catalog, path: Path) -> tuple[Catalog, Cell]:
    """The cell whose published folder this is, with the repository as its results folder has it.

    Raises:
        UpkeepError: it is none, or lies elsewhere than under `cells/` beside its dataset.
    """
    manifest = read_record(path / "manifest.json", Manifest)
    cell = Cell.parse(manifest.cell)
    path = path.resolve()
    if path.parts[-PARTS - 1 :] != ("cells", *str(cell).split("/")):
        raise UpkeepError(
            "the folder of a cell in another place",
            where=path,
            expected=f".../cells/{cell}, beside datasets/, for the answer key is in these",
            remedy="leave it in its results folder, and name it there",
        )
    return at(catalog, path.parents[PARTS], manifest.sample), cell


def located(catalog: Catalog, name: str) -> tuple[Catalog, Cell]:
    """A cell by its name, in these results, or by its folder, wherever that is.

    Raises:
        UpkeepError: it is neither.
    """
    if (Path(name) / "manifest.json").is_file():
        return in_folder(catalog, Path(name))
    return catalog, Cell.parse(name)
