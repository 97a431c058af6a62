"""Which cells share a job and a loaded engine.

A 235B model is loaded once and not forty times: the cells of a suite that run on one model with one engine form
batches, in the order of the suite. A batch is one job of the workflow.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from upkeep import identity
from upkeep.catalog import Catalog
from upkeep.errors import UpkeepError, nearest
from upkeep.jobs import Cell
from upkeep.needs import gpus_of
from upkeep.samples import cells as cells_of


@dataclass(frozen=True, slots=True)
class Batch:
    """What one job runs, on one engine."""

    name: str
    cells: tuple[Cell, ...]

    @property
    def model(self) -> str:
        return self.cells[0].model


def batches(catalog: Catalog, cells: Iterable[Cell]) -> list[Batch]:
    """The batches of some cells: each cell in exactly one.

    Their names hold the model, what serves it (an image, or the method itself) and a number, and are those of folders
    and rules.
    """
    groups: dict[str, dict[Cell, None]] = {}
    for cell in cells:
        groups.setdefault(_group(catalog, cell), {}).setdefault(cell)
    size = catalog.config.cells_per_job
    return [
        Batch(f"{name}.{number}", some)
        for name, group in groups.items()
        for number, some in enumerate(_chunks(list(group), size))
    ]


def _chunks(cells: Sequence[Cell], size: int) -> list[tuple[Cell, ...]]:
    return [tuple(cells[start : start + size]) for start in range(0, len(cells), size)]


def _group(catalog: Catalog, cell: Cell) -> str:
    """What cells must have in common to share a job: the weights, the engine and its threads; and whether they ask for
    GPUs that their model does not, so that no cell holds one which is there for the embedder of another."""
    engine = cell.method if catalog.method(cell.method).holds_model else catalog.engine(cell.model) or "base"
    name = f"{cell.model}.{engine}.{identity.resources(catalog, cell.method, cell.model).cpus}cpu"
    gpus = gpus_of(catalog, cell)
    if cell.model != "none" and gpus > catalog.spec(cell.model).gpus:
        name = f"{name}.{gpus}gpu"
    # What a model's name does not say, it was trained on what it is asked about: those of two datasets are two models.
    own = any(made.dataset == cell.dataset for made in catalog.trainings_of(cell))
    return f"{cell.dataset}.{name}" if own else name


def find(catalog: Catalog, name: str) -> Batch:
    """The batch of this name, of the configured suite.

    Raises:
        UpkeepError: there is none.
    """
    suite = catalog.config.suite
    known = {batch.name: batch for batch in batches(catalog, cells_of(catalog, catalog.suite(suite)))}
    if name not in known:
        close = nearest(name, known)
        raise UpkeepError(
            f"no batch {name!r} in the suite {suite!r}",
            expected=f"one of {', '.join(sorted(known))[:2000]}",
            remedy=f"did you mean {' or '.join(close)}?" if close else f"./upkeep run {suite} runs all of them",
        )
    return known[name]
