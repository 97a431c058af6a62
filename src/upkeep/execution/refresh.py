"""Brings stale cells up to date from the record of replies alone: no engine is loaded, no model is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from upkeep.batches import batches
from upkeep.catalog import Catalog
from upkeep.errors import UpkeepError
from upkeep.execution.detection import detect
from upkeep.execution.job import Runtime
from upkeep.execution.supervise import run_cell
from upkeep.gateway.record import NotRecorded
from upkeep.jobs import Cell
from upkeep.published import standing


@dataclass
class Refreshed:
    """What became of a suite's cells."""

    current: list[Cell] = field(default_factory=list)
    replayed: list[Cell] = field(default_factory=list)
    left: dict[Cell, str] = field(default_factory=dict)
    """Those that want a model; the reason."""
    failed: dict[Cell, UpkeepError] = field(default_factory=dict)

    def summary(self) -> str:
        """A line for each kind that there is, then one for each job that is left or failed."""
        counts = [("up to date before", self.current), ("replayed", self.replayed), ("left", self.left)]
        lines = [f"{len(jobs):>5} {what}" for what, jobs in [*counts, ("failed", self.failed)]]
        lines += [f"left: {job}: {why}" for job, why in self.left.items()]
        return "\n".join(lines)


def refresh(
    catalog: Catalog, suite: str, *, runtime: Runtime | None = None, say: Callable[[str], None] = print
) -> Refreshed:
    """Run again whatever of a suite is not up to date, as far as the record answers all that it asks.

    A job that asks something new is left as it was, with what was replayed kept: a run continues after it.

    Raises:
        UpkeepError: there is no such suite, or no runtime.
    """
    runtime = runtime or detect(catalog)
    cells = [cell for batch in batches(catalog, catalog.cells(catalog.suite(suite))) for cell in batch.cells]
    return replay(catalog, cells, runtime, say)


def replay(catalog: Catalog, cells: Iterable[Cell], runtime: Runtime, say: Callable[[str], None] = print) -> Refreshed:
    """As `refresh`, of some cells."""
    found = Refreshed()
    for cell in cells:
        if standing(catalog, cell).manifest is not None:
            found.current.append(cell)
            continue
        if (model := catalog.training_of(cell)) is not None and standing(catalog, model).manifest is None:
            found.left[cell] = f"its model is to be trained: {model}"
            continue
        try:
            run_cell(catalog, cell, runtime=runtime, ask="nothing")
        except NotRecorded as unknown:
            found.left[cell] = unknown.problem
        except UpkeepError as error:
            found.failed[cell] = error
            say(f"{cell}: failed\n{error}")
        else:
            found.replayed.append(cell)
            say(f"{cell}: replayed")
    return found
