"""How far each job is: small files that the supervisor writes, and what reads them from anywhere.

A status says which process on which node writes it, so that who reads it can tell a job that runs from one whose
supervisor is gone.
"""

from __future__ import annotations

import contextlib
import os
import platform
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Literal

import msgspec
import psutil

from upkeep.contract import Count, Record
from upkeep.errors import Kind, UpkeepError
from upkeep.files import write_atomically
from upkeep.integrity import read_record
from upkeep.machine.clock import age, now
from upkeep.machine.slurm import this_job

State = Literal["starting", "running", "publishing", "done", "reused", "failed", "stopped"]

ENDED: tuple[State, ...] = ("done", "reused", "failed", "stopped")
HEARTBEAT_S = 15.0
"""A running job's status is written at least so often."""
SILENCE_S = 300.0
"""A running job of another node that has been silent for longer is taken for interrupted."""
LONG_SILENCE_S = 7200.0
"""The same while it starts or publishes, which goes without a word: an image is built, a large model is loaded."""
CLOCKS_S = 2.0
"""What two clocks of one machine may differ by."""


class Status(Record, frozen=True, kw_only=True):
    """`results/status/<kind>/<name>.json`."""

    name: str
    state: State
    done: Count
    """Records on disk."""
    total: Count
    started: str
    """ISO 8601, UTC."""
    updated: str
    message: str = ""
    kind: Kind | None = None
    """What sort of reason, where it has failed or was stopped."""
    pid: Count = 0
    """Process of the supervisor."""
    node: str = ""
    """The machine that it runs on."""
    job: str | None = None
    """Its batch system's job."""
    first: str | None = None
    """When the first new record of this run came; the rate is counted from there, after engine and model are loaded."""
    first_done: Count = 0
    """Records on disk then."""

    @property
    def rate(self) -> float | None:
        """New records a second since the first one; None where that says nothing yet."""
        if self.first is None or self.done <= self.first_done:
            return None
        seconds = age(self.first, self.updated)
        return (self.done - self.first_done) / seconds if seconds > 0 else None

    def left_s(self, moment: str) -> float | None:
        """Seconds to its end at this rate, as of `moment`; None where nothing tells."""
        if (rate := self.rate) is None or self.total <= self.done:
            return None
        return max(0.0, (self.total - self.done) / rate - age(self.updated, moment))


class Reporter:
    """Writes a job's status: at once where its state changes, else at most every two seconds, for a results folder may
    be a shared file system that hundreds of jobs write to."""

    INTERVAL_S = 2.0

    def __init__(self, path: Path, name: str) -> None:
        self._path = path
        job = this_job()
        self._status = Status(
            name=name,
            state="starting",
            done=0,
            total=0,
            started=now(),
            updated=now(),
            pid=os.getpid(),
            node=platform.node(),
            job=job.id if job else None,
        )
        self._write()

    def say(self, state: State, done: int, total: int, message: str = "", kind: Kind | None = None) -> None:
        last, moment = self._status, now()
        self._status = msgspec.structs.replace(
            last, state=state, done=done, total=total, message=message, kind=kind, updated=moment
        )
        if last.first is None and last.state == state == "running" and done > last.done:
            self._status = msgspec.structs.replace(self._status, first=moment, first_done=done)
        silent = time.monotonic() - self._written
        changed = (state, message) != (last.state, last.message)
        if changed or silent >= HEARTBEAT_S or (done > self._told and silent >= self.INTERVAL_S):
            self._write()

    def end(self, state: State, message: str = "", kind: Kind | None = None) -> None:
        """Say how it ended; counts stay as they are."""
        self.say(state, self._status.done, self._status.total, message, kind)

    def _write(self) -> None:
        # A job goes on without: where there is no room for its results either, they tell.
        with contextlib.suppress(UpkeepError):
            write_atomically(self._path, msgspec.json.encode(self._status))
        self._written, self._told = time.monotonic(), self._status.done


# ---------------------------------------------------------------- reading


def read(path: Path) -> Status | None:
    """A status; None where there is none that can be read: not there, being replaced, cut short, of another release."""
    try:
        return read_record(path, Status)
    except (UpkeepError, OSError):
        return None


def read_all(folder: Path) -> Iterator[Status]:
    """Every readable status under a folder, in order of their paths."""
    for path in sorted(folder.rglob("*.json")):
        if status := read(path):
            yield status


def alive(status: Status, moment: str, jobs: frozenset[str] | None = None) -> bool:
    """Whether a job that has not ended is still at work.

    Args:
        moment: the time now.
        jobs: the batch system's jobs that are running, where it can be asked.
    """
    if status.state in ENDED:
        return False
    if status.node == platform.node():
        return _runs(status)
    if status.job is not None and jobs is not None:
        return status.job in jobs
    patience = SILENCE_S if status.state == "running" else LONG_SILENCE_S
    return age(status.updated, moment) < patience


def _runs(status: Status) -> bool:
    """Whether the supervisor's process is there, and is not another one that was given its number since."""
    try:
        began = psutil.Process(status.pid).create_time()
    except (psutil.Error, ValueError, OverflowError):
        return False
    try:
        return bool(began <= datetime.fromisoformat(status.started).timestamp() + CLOCKS_S)
    except ValueError:
        return True
