"""What the suite asks of SLURM, and what SLURM tells a job about itself."""

from __future__ import annotations

import os
import platform

from upkeep.contract import Job


def this_job() -> Job | None:
    """The SLURM job that this process runs in; None outside of one."""
    environment = os.environ
    if (number := environment.get("SLURM_JOB_ID")) is None:
        return None
    gpus = environment.get("CUDA_VISIBLE_DEVICES", "")
    return Job(
        scheduler="slurm",
        id=number,
        node=environment.get("SLURMD_NODENAME", platform.node()),
        partition=environment.get("SLURM_JOB_PARTITION"),
        gpus=[gpu for gpu in gpus.split(",") if gpu],
        restarts=int(environment.get("SLURM_RESTART_COUNT", "0")),
    )
