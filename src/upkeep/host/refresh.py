"""Brings stale cells up to date from the record of replies alone: no engine is loaded, no model is asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from upkeep.batches import batches
from upkeep.catalog import Catalog, Job
from upkeep.errors import UpkeepError
from upkeep.gateway.record import NotRecorded
from upkeep.host.runtimes import detect
from upkeep.host.supervise import Runtime, run_cell
from upkeep.published import standing


@dataclass
class Refreshed:
    """What became of a suite's cells, and of the memories and models that they read."""

    current: list[Job] = field(default_factory=list)
    replayed: list[Job] = field(default_factory=list)
    left: dict[Job, str] = field(default_factory=dict)
    """Those that want a model; the reason."""
    failed: dict[Job, UpkeepError] = field(default_factory=dict)

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
    found = Refreshed()
    for batch in batches(catalog, catalog.cells(catalog.suite(suite))):
        for job in batch.jobs:
            if standing(catalog, job).manifest is not None:
                found.current.append(job)
                continue
            if (model := catalog.training_of(job)) is not None and standing(catalog, model).manifest is None:
                found.left[job] = f"its model is to be trained: {model}"
                continue
            if (memory := catalog.artifact_of(job)) in {**found.left, **found.failed}:
                found.left[job] = f"it reads the memory {memory}"
                continue
            try:
                run_cell(catalog, job, runtime=runtime, ask="nothing")
            except NotRecorded as unknown:
                found.left[job] = unknown.problem
            except UpkeepError as error:
                found.failed[job] = error
                say(f"{job}: failed\n{error}")
            else:
                found.replayed.append(job)
                say(f"{job}: replayed")
    return found
