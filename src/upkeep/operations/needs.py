"""What jobs need: the trainings before them, models with weights or keys, room for weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

from upkeep import needs
from upkeep.catalog import Catalog
from upkeep.jobs import Cell, Training, untrained

Of = Literal["cells", "trained"]
"""What a job is, as folders under the results name it: a cell, or a training."""


def trainings(catalog: Catalog, cells: Iterable[Cell]) -> list[Training]:
    """The trainings that cells need, each once."""
    return list(dict.fromkeys(training for cell in cells for training in catalog.trainings_of(cell)))


def models_of(catalog: Catalog, cell: Cell) -> Iterator[str]:
    """The models whose weights or keys a cell needs, of a trained one those that it was trained from."""
    for model in needs.models_of(catalog, cell):
        yield untrained(model)
