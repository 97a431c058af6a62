"""Runs a cell or trains a model: checks, starts the container, feeds it, watches it, publishes what it made."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from upkeep.catalog import Catalog
from upkeep.contract import Manifest
from upkeep.execution.cell_job import CellJob
from upkeep.execution.job import RETRIES, Runtime, SupervisedJob
from upkeep.execution.share import SharedEngines
from upkeep.execution.steps import Steps, to_end
from upkeep.execution.training_job import TrainingJob
from upkeep.execution.watch import Limits
from upkeep.gateway.record import Asking
from upkeep.jobs import Cell, Job


def run_cell(
    catalog: Catalog,
    cell: Job,
    force: bool = False,
    *,
    runtime: Runtime | None = None,
    limits: Limits | None = None,
    retries: int = RETRIES,
    shared: SharedEngines | None = None,
    ask: Asking | None = None,
) -> Manifest:
    """Run a cell (or train a model) and publish it; what is published of the same identity is reused.

    An interrupted run is continued after its last whole line, whatever interrupted it.

    Args:
        force: run it from the beginning, though it is published.
        runtime: where it runs; by default what the configuration asks for.
        shared: the engine that it shares with others; by default it has one of its own.
        ask: what its models are asked: what the record of replies does not know, everything again, or nothing. By
            default the configuration says it (`fresh`).

    Raises:
        UpkeepError: an input is missing or wrong (nothing is started), the container's output was refused, or it
            ended before every probe was answered. Nothing is published then.
    """
    return to_end(
        steps_of(catalog, cell, force, runtime=runtime, limits=limits, retries=retries, shared=shared, ask=ask)
    )


def steps_of(
    catalog: Catalog,
    job: Job,
    force: bool = False,
    *,
    runtime: Runtime | None = None,
    limits: Limits | None = None,
    retries: int = RETRIES,
    shared: SharedEngines | None = None,
    ask: Asking | None = None,
    sweep: Sequence[Cell] = (),
) -> Steps:
    """The steps of `run_cell`, which raise what it raises.

    Args:
        sweep: cells that can be asked side by side, this one among them (`upkeep.sweeps`).
    """
    ask = ask or ("everything" if catalog.config.fresh else "unknown")
    supervised = _supervised(catalog, job, shared, ask, sweep)
    return (yield from supervised.steps(force or ask == "everything", runtime, limits or Limits(), retries))


def traces(catalog: Catalog, job: Job) -> list[Path]:
    """The files that change as a job gets on."""
    made = _supervised(catalog, job)
    return [*made.traces, made.target / "manifest.json"]


def _supervised(
    catalog: Catalog,
    job: Job,
    shared: SharedEngines | None = None,
    ask: Asking = "unknown",
    sweep: Sequence[Cell] = (),
) -> SupervisedJob:
    if isinstance(job, Cell):
        return CellJob(catalog, job, shared, ask, sweep)
    return TrainingJob(catalog, job, shared, ask)
