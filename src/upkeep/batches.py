"""Which cells share a job and a loaded engine.

A 235B model is loaded once and not forty times: the cells of a suite that run on one model with one engine, and the
memories that they read, form batches, in the order of the suite. A batch is one job of the workflow.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from upkeep import identity
from upkeep.catalog import Catalog, Cell, Job, TrainedModel
from upkeep.errors import UpkeepError


@dataclass(frozen=True, slots=True)
class Batch:
    """What one job runs, one after the other."""

    name: str
    jobs: tuple[Job, ...]
    """A memory comes before the first cell that reads it."""

    @property
    def model(self) -> str:
        return self.jobs[0].model

    @property
    def cells(self) -> list[Cell]:
        return [job for job in self.jobs if isinstance(job, Cell)]


def batches(catalog: Catalog, cells: Iterable[Cell]) -> list[Batch]:
    """The batches of some cells: each cell, and each memory that they read, in exactly one.

    Their names hold the engine image, the model and a number, and are those of folders and rules.
    """
    groups: dict[str, dict[Job, None]] = {}
    for cell in cells:
        group = groups.setdefault(_group(catalog, cell), {})
        if memory := catalog.artifact_of(cell):
            group.setdefault(memory)
        group.setdefault(cell)
    size = catalog.config.cells_per_job
    return [
        Batch(f"{name}.{number}", jobs)
        for name, group in groups.items()
        for number, jobs in enumerate(_chunks(list(group), size))
    ]


def _chunks(jobs: Sequence[Job], size: int) -> list[tuple[Job, ...]]:
    return [tuple(jobs[start : start + size]) for start in range(0, len(jobs), size)]


def _group(catalog: Catalog, cell: Cell) -> str:
    """What cells must have in common to share an engine: the weights, the engine and its threads."""
    engine = catalog.engine(cell.method, cell.model)
    name = f"{cell.model}.{engine}.{identity.resources(catalog, cell.method, cell.model).cpus}cpu"
    # A trained model is made of a dataset; those of two datasets are different weights.
    return f"{cell.dataset}.{name}" if TrainedModel.parse(cell.model) else name


def find(catalog: Catalog, name: str) -> Batch:
    """The batch of this name, of the configured suite.

    Raises:
        UpkeepError: there is none.
    """
    suite = catalog.config.suite
    known = {batch.name: batch for batch in batches(catalog, catalog.cells(catalog.suite(suite)))}
    if name not in known:
        raise UpkeepError(
            f"no batch {name!r} in the suite {suite!r}", expected=f"one of {', '.join(sorted(known))[:2000]}"
        )
    return known[name]
