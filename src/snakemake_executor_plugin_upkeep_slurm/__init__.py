"""Snakemake's SLURM executor, made patient: a controller that is away for a while costs no job.

Snakemake's own executor forgets its jobs where the controller does not answer several questions in a row, and then
waits for ever. Nobody may be there to notice.
"""

from __future__ import annotations

import functools
import subprocess
from collections.abc import AsyncIterator
from typing import Any

from snakemake_executor_plugin_slurm import Executor as SlurmExecutor
from snakemake_executor_plugin_slurm import ExecutorSettings, common_settings

__all__ = ["Executor", "ExecutorSettings", "common_settings"]


class Executor(SlurmExecutor):  # type: ignore[misc]
    def __post_init__(self, *arguments: Any, **named: Any) -> None:
        self._told: set[str] = set()
        super().__post_init__(*arguments, **named)

    def get_status_command(self) -> str:
        """`sacct` where there is a database, for it forgets nothing; else `squeue`."""
        return "sacct" if _has_accounting() else "squeue"

    def report_job_success(self, job_info: Any) -> None:
        self._told.add(job_info.external_jobid)
        super().report_job_success(job_info)

    def report_job_error(self, job_info: Any, msg: str | None = None, **named: Any) -> None:
        self._told.add(job_info.external_jobid)
        super().report_job_error(job_info, msg=msg, **named)

    async def check_active_jobs(self, active_jobs: list[Any]) -> AsyncIterator[Any]:
        kept = set()
        async for job in super().check_active_jobs(active_jobs):
            kept.add(job.external_jobid)
            yield job
        for job in active_jobs:
            if job.external_jobid not in kept | self._told:
                yield job  # no answer: asked again


@functools.cache
def _has_accounting() -> bool:
    """Whether the cluster has a database of its jobs."""
    try:
        shown = subprocess.run(["scontrol", "show", "config"], capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return False
    return any(
        line.startswith("AccountingStorageType") and line.split()[-1] == "accounting_storage/slurmdbd"
        for line in shown.stdout.splitlines()
    )
