"""Runs the cells of a batch on one engine: one after the other, those of a sweep side by side where it pays."""

from __future__ import annotations

import sys
from functools import partial

from upkeep.batches import Batch
from upkeep.catalog import Catalog
from upkeep.contract import Manifest
from upkeep.errors import UpkeepError
from upkeep.execution.detection import detect
from upkeep.execution.job import RETRIES, Runtime
from upkeep.execution.share import SharedEngines
from upkeep.execution.steps import in_turns
from upkeep.execution.supervise import steps_of
from upkeep.execution.watch import Limits
from upkeep.files import digest
from upkeep.jobs import Cell
from upkeep.layout import Layout
from upkeep.machine.clock import now
from upkeep.machine.lifeline import stoppable
from upkeep.published import folder_of, told
from upkeep.sweeps import sweeps


def run_batch(
    catalog: Catalog,
    batch: Batch,
    *,
    runtime: Runtime | None = None,
    limits: Limits | None = None,
    retries: int = RETRIES,
) -> dict[Cell, Manifest]:
    """Run and publish every cell of a batch; what is published and still right is reused, and starts no engine.

    A cell that fails does not keep the others from running.

    Raises:
        UpkeepError: some failed; the message has the reason of each. The others are published.
    """
    runtime = runtime or detect(catalog)
    limits = limits or Limits()
    begun = now()
    manifests: dict[Cell, Manifest] = {}
    failed: dict[Cell, UpkeepError] = {}
    log = Layout(catalog.results).log("engines", batch.name)
    # Other copies of the suite have batches of the same name.
    name = f"{batch.name}-{digest(str(catalog.results))[:8]}"
    with stoppable(), SharedEngines(name, runtime, log, limits) as shared:
        for sweep in sweeps(catalog, batch.cells):
            steps = partial(steps_of, catalog, runtime=runtime, limits=limits, retries=retries, shared=shared)
            # What has been published before is done at once, or in one pass from the record.
            new = [cell for cell in sweep if not (folder_of(catalog, cell) / "manifest.json").exists()]
            for job, found in in_turns({cell: steps(cell, sweep=new) for cell in sweep}):
                if isinstance(found, UpkeepError):
                    failed[job] = found
                    print(f"{job}: failed\n{found}", file=sys.stderr, flush=True)
                else:
                    manifests[job] = found
                    reused = "; complete already" if found.end < begun else ""
                    print(f"{job}: {told(found)}{reused}", flush=True)
    if failed:
        raise UpkeepError(
            f"{len(failed)} of {len(batch.cells)} cells of the batch failed",
            where=batch.name,
            found="\n".join(str(error) for error in failed.values()),
            remedy=f"the same command continues: ./upkeep batch {batch.name}",
        )
    return manifests
