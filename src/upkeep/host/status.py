"""How far each job is: small files that the supervisor writes and the progress display reads."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec

from upkeep.contract import Count, Record
from upkeep.files import write_atomically

State = Literal["starting", "running", "publishing", "done", "reused", "failed", "stopped"]


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
    pid: Count = 0
    """Process of the supervisor, to tell a running job from one whose supervisor is gone."""


def now() -> str:
    """The time, ISO 8601 in UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class Reporter:
    """Writes a job's status, at most twice a second while its state stays the same."""

    INTERVAL_S = 0.5

    def __init__(self, path: Path, name: str, pid: int) -> None:
        self._path, self._written = path, 0.0
        self._status = Status(name=name, state="starting", done=0, total=0, started=now(), updated=now(), pid=pid)
        self._write()

    def say(self, state: State, done: int, total: int, message: str = "") -> None:
        last = self._status
        self._status = msgspec.structs.replace(
            last, state=state, done=done, total=total, message=message, updated=now()
        )
        if state != last.state or message != last.message or time.monotonic() - self._written >= self.INTERVAL_S:
            self._write()

    def end(self, state: State, message: str = "") -> None:
        """Say how it ended; counts stay as they are."""
        self.say(state, self._status.done, self._status.total, message)

    def _write(self) -> None:
        write_atomically(self._path, msgspec.json.encode(self._status))
        self._written = time.monotonic()


def read_all(folder: Path) -> Iterator[Status]:
    """Every status under `results/status`, in order of their paths; one that is being replaced is left out."""
    for path in sorted(folder.rglob("*.json")):
        try:
            yield msgspec.json.decode(path.read_bytes(), type=Status)
        except FileNotFoundError:
            continue
