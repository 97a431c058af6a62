"""What the suite asks of SLURM, and what SLURM tells a job about itself."""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from types import FrameType

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from upkeep.contract import Job
from upkeep.errors import UpkeepError

PATIENCE_S = 60.0
"""A controller that is being restarted answers again within this time."""
MARGIN_S = 120.0
"""A job stops so long before its time limit, or a tenth of its time before, if that is shorter."""
KILL_S = 300.0
"""What SLURM is given to end a job that was put back into the queue."""


def this_job() -> Job | None:
    """The SLURM job that this process runs in; None outside of one."""
    environment = os.environ
    if (number := environment.get("SLURM_JOB_ID")) is None:
        return None
    gpus = environment.get("CUDA_VISIBLE_DEVICES", "")
    # Steps of a job are not told its restarts.
    restarts = _described(number).get("Restarts") or environment.get("SLURM_RESTART_COUNT") or "0"
    return Job(
        scheduler="slurm",
        id=number,
        node=environment.get("SLURMD_NODENAME", platform.node()),
        partition=environment.get("SLURM_JOB_PARTITION"),
        gpus=[gpu for gpu in gpus.split(",") if gpu],
        restarts=int(restarts),
    )


def in_job() -> bool:
    return "SLURM_JOB_ID" in os.environ


# ---------------------------------------------------------------- the end of a job's time


class TimeIsUp(KeyboardInterrupt):
    """The job's time limit is near: stop as for an interruption, so that what is done is kept."""


@contextlib.contextmanager
def continued(files: Iterable[Path]) -> Iterator[None]:
    """End the block shortly before this job's time limit, and have SLURM start the job once more.

    That is done only where `files` have changed since the block began, so that a job which gets nowhere ends.
    Outside of a job, or in one without a limit, the block just runs. For the main thread.

    Args:
        files: what the block makes, and where it keeps what is half done.

    Raises:
        UpkeepError: the time was up, and either nothing was done or SLURM does not put the job back.
    """
    limit = _limit()
    if limit is None:
        yield
        return
    paths = list(files)
    before = _marks(paths)
    signal.signal(signal.SIGALRM, _time_is_up)
    signal.setitimer(signal.ITIMER_REAL, max(1.0, limit - time.time()))
    try:
        yield
    except TimeIsUp:
        if _marks(paths) == before:
            raise UpkeepError(
                "the time limit of the job was near, and nothing had been done since its start",
                where=f"job {os.environ['SLURM_JOB_ID']}",
                remedy="raise `max_minutes` in profiles/slurm/cluster.yaml, or `resources.minutes` of the cards",
                kind="time",
            ) from None
        _requeue(os.environ["SLURM_JOB_ID"])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _time_is_up(_: int, frame: FrameType | None) -> None:
    raise TimeIsUp


def _marks(files: Iterable[Path]) -> list[tuple[int, int] | None]:
    """What changes when a file grows or is replaced, and not when it is merely touched, or made and left empty."""
    marks: list[tuple[int, int] | None] = []
    for file in files:
        found = file.stat() if file.exists() else None
        marks.append((found.st_ino, found.st_size) if found and found.st_size else None)
    return marks


def _limit() -> float | None:
    """When this job should stop (seconds since 1970); None for never."""
    if not in_job():
        return None
    described = _described(os.environ["SLURM_JOB_ID"])
    try:
        start, end = (datetime.fromisoformat(described[name]).timestamp() for name in ("StartTime", "EndTime"))
    except (KeyError, ValueError):  # no limit, or not known
        return None
    return end - min(MARGIN_S, (end - start) / 10)


def _requeue(number: str) -> None:
    """Have SLURM start this job again; ends with the job, or raises UpkeepError."""
    print("the time limit is near: the job goes back into the queue and continues later", file=sys.stderr, flush=True)
    found: object = f"it still ran {KILL_S:g} s later"
    try:
        _ask(["scontrol", "requeue", number])
        time.sleep(KILL_S)
    except subprocess.CalledProcessError as error:
        found = error.stderr.strip()
    except subprocess.TimeoutExpired:
        found = "no answer"
    raise UpkeepError(
        "the time limit of the job was near, and SLURM did not put it back into the queue",
        where=f"job {number}",
        found=found,
        remedy="what is done is kept; the same command continues",
        kind="time",
    ) from None


# ---------------------------------------------------------------- asking SLURM


@functools.cache
def _described(number: str) -> dict[str, str]:
    """What `scontrol` says of a job; nothing where it does not answer, which not every cluster's nodes let it."""
    command = ["scontrol", "--oneliner", "show", "job", number]
    try:
        answer = _ask(command)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"SLURM does not describe this job, so its time limit is not known: {error}", file=sys.stderr, flush=True)
        return {}
    return dict(re.findall(r"(\w+)=(\S*)", answer))


def _ask(command: list[str], patience_s: float = PATIENCE_S) -> str:
    """The output of a command of SLURM, which is asked again while the controller does not answer."""
    failures = (subprocess.CalledProcessError, subprocess.TimeoutExpired)
    for attempt in Retrying(
        retry=retry_if_exception_type(failures), stop=stop_after_delay(patience_s), wait=wait_fixed(2), reraise=True
    ):
        with attempt:
            return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout
    raise AssertionError("not reached")


@functools.cache
def earlier_jobs(folder: Path) -> dict[str, str]:
    """The jobs that a Snakemake which is no more has left in the queue or running: the latest id of each.

    Keys are what the executor's comment on a job says after `rule_`: the rule, and the wildcards. What was submitted
    from another folder is not among them.
    """
    try:
        listed = _ask(["squeue", "--me", "--noheader", "--format=%A|%Z|%k"])
    except FileNotFoundError:
        return {}
    except subprocess.SubprocessError as error:
        raise UpkeepError(
            "SLURM does not answer", where="squeue", found=getattr(error, "stderr", error), kind="machine"
        ) from None
    rows = [line.split("|", 2) for line in listed.splitlines() if line.count("|") >= 2]
    mine = [(int(number), comment) for number, place, comment in rows if place == str(folder)]
    return {comment.removeprefix("rule_"): str(number) for number, comment in sorted(mine)}
