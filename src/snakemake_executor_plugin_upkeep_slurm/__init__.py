"""Snakemake's SLURM executor, made patient and thrifty: a controller that is away for a while costs no job, and what
the record of replies answers takes none.

Snakemake's own executor forgets its jobs where the controller does not answer several questions in a row, and then
waits for ever; and SLURM holds a job whose node failed when it was to start. Nobody may be there to notice.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from snakemake_executor_plugin_slurm import Executor as SlurmExecutor
from snakemake_executor_plugin_slurm import ExecutorSettings, common_settings
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo

from upkeep.catalog import Catalog
from upkeep.layout import Layout

__all__ = ["Executor", "ExecutorSettings", "common_settings"]

HELD = "launch failed requeued held"
RELEASES = 5
"""How often a job is released; one whose start fails again and again is left to the user."""


class Executor(SlurmExecutor):  # type: ignore[misc]
    def __post_init__(self, *arguments: Any, **named: Any) -> None:
        self._told: set[str] = set()
        self._released = Counter[str]()
        super().__post_init__(*arguments, **named)

    def get_status_command(self) -> str:
        """`sacct` where there is a database, for it forgets nothing; else `squeue`."""
        return "sacct" if _has_accounting() else "squeue"

    def run_job(self, job: Any) -> None:
        """Submit a job; the cells of a batch only where their model is wanted for them. (Called in a thread for it.)"""
        batch = None if job.is_group() else getattr(job.params, "batch", None)
        if batch is None or not replayed(batch, Path(job.log[0])):
            super().run_job(job)
            return
        self.logger.info(f"batch {batch}: answered by the record of replies; no job is wanted")
        self.report_job_success(SubmittedJobInfo(job, external_jobid="none"))

    def report_job_success(self, job_info: Any) -> None:
        self._told.add(job_info.external_jobid)
        super().report_job_success(job_info)

    def report_job_error(self, job_info: Any, msg: str | None = None, **named: Any) -> None:
        self._told.add(job_info.external_jobid)
        super().report_job_error(job_info, msg=msg, **named)

    async def check_active_jobs(self, active_jobs: list[Any]) -> AsyncIterator[Any]:
        for number in held_jobs():
            if self._released[number] < RELEASES:
                self._released[number] += 1
                self.logger.info(f"SLURM could not start job {number} and holds it; it is released")
                _ask("scontrol", "release", number)
        kept = set()
        async for job in super().check_active_jobs(active_jobs):
            kept.add(job.external_jobid)
            yield job
        for job in active_jobs:
            if job.external_jobid not in kept | self._told:
                yield job  # no answer: asked again


def replayed(batch: str, log: Path) -> bool:
    """Whether a batch's cells are complete after running them here, with nothing but what models have said before.

    A batch without a model is left to the cluster: what its cells take is not known.
    """
    catalog = Catalog(Path(os.environ["UPKEEP_ROOT"]))  # as the Snakefile says
    if batch.startswith("none.") or not any(Layout(catalog.results).record.glob("*/engine.json")):
        return False
    with log.open("w") as printed:
        command = [sys.executable, "-m", "upkeep", "batch", batch, "--recorded"]
        return not subprocess.run(command, stdout=printed, stderr=subprocess.STDOUT, check=False).returncode


def held_jobs() -> list[str]:
    """This user's jobs of the suite that SLURM holds because their node failed when they were to start."""
    lines = _ask("squeue", "--me", "--states=PENDING", "--noheader", "--format=%i|%k|%r")
    jobs = [line.split("|") for line in lines if line.count("|") == 2]
    return [number for number, comment, reason in jobs if comment.startswith("rule_batch") and reason == HELD]


@functools.cache
def _has_accounting() -> bool:
    """Whether the cluster has a database of its jobs."""
    return any(
        line.startswith("AccountingStorageType") and line.split()[-1] == "accounting_storage/slurmdbd"
        for line in _ask("scontrol", "show", "config")
    )


def _ask(*words: str) -> list[str]:
    """The lines that a command of SLURM prints; none where it fails, for then it is asked again later."""
    try:
        return subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        return []
