"""Runs a cell or trains a model: checks, starts the container, feeds it, watches it, publishes what it made."""

from __future__ import annotations

from pathlib import Path

from upkeep.catalog import Catalog
from upkeep.contract import Manifest
from upkeep.execution.cell_job import CellJob
from upkeep.execution.job import RETRIES, Runtime, SupervisedJob
from upkeep.execution.share import SharedEngines
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
    ask = ask or ("everything" if catalog.config.fresh else "unknown")
    return _supervised(catalog, cell, shared, ask).run(
        force or ask == "everything", runtime, limits or Limits(), retries
    )


def traces(catalog: Catalog, job: Job) -> list[Path]:
    """The files that change as a job gets on."""
    made = _supervised(catalog, job)
    return [*made.traces, made.target / "manifest.json"]


def _supervised(
    catalog: Catalog, job: Job, shared: SharedEngines | None = None, ask: Asking = "unknown"
) -> SupervisedJob:
    return CellJob(catalog, job, shared, ask) if isinstance(job, Cell) else TrainingJob(catalog, job, shared, ask)
