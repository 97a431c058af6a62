"""Runs the cells of a batch one after the other, on one engine."""

from __future__ import annotations

import sys

from upkeep.batches import Batch
from upkeep.catalog import Catalog
from upkeep.contract import Manifest
from upkeep.errors import UpkeepError
from upkeep.execution.detection import detect
from upkeep.execution.job import RETRIES, Runtime
from upkeep.execution.share import SharedEngines
from upkeep.execution.supervise import run_cell
from upkeep.execution.watch import Limits
from upkeep.files import digest
from upkeep.jobs import Cell
from upkeep.layout import Layout
from upkeep.machine.clock import now
from upkeep.machine.lifeline import stoppable
from upkeep.published import told


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
        for job in batch.cells:
            try:
                manifests[job] = run_cell(catalog, job, runtime=runtime, limits=limits, retries=retries, shared=shared)
                reused = "; complete already" if manifests[job].end < begun else ""
                print(f"{job}: {told(manifests[job])}{reused}", flush=True)
            except UpkeepError as error:
                failed[job] = error
                print(f"{job}: failed\n{error}", file=sys.stderr, flush=True)
    if failed:
        raise UpkeepError(
            f"{len(failed)} of {len(batch.cells)} cells of the batch failed",
            where=batch.name,
            found="\n".join(str(error) for error in failed.values()),
            remedy=f"the same command continues: ./upkeep batch {batch.name}",
        )
    return manifests
