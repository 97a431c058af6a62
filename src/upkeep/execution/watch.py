"""What the host does while a container runs: sends it rounds, takes over what it writes, and keeps it within bounds."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import select
import signal
import stat
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec

from upkeep.contract import MAX_LINE_BYTES, Resources
from upkeep.errors import Kind, UpkeepError
from upkeep.execution.collected import Collected
from upkeep.execution.handle import Handle
from upkeep.execution.rounds import Task
from upkeep.files import kind_of_file, open_regular
from upkeep.lines import excerpt, overlong, torn

POLL_S = 0.01
MEASURE_S = 2.0
"""How often a container's writable folder is measured."""
MAX_FILES = 10_000
"""Files in a container's writable folder at most."""
MAX_DEPTH = 64
"""Folders within folders there."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a job may take; the rest is in the method's card."""

    stall_s: float = 3600.0
    """Without a new line. The first one waits for the engine's start."""
    engine_s: float = 600.0
    """Without a reply of an engine that shows no sign of work."""
    exit_s: float = 120.0
    """From the end of its input to the container's own end."""


class Failed(Exception):
    """An attempt that ended early; another may continue."""

    def __init__(self, reason: str, kind: Kind = "method") -> None:
        super().__init__(reason)
        self.kind: Kind = kind


def kind_of_status(status: int, starved: bool | None) -> Kind:
    """What an exit status tells: what was killed outright asked for too much memory, unless it is known that it did not
    (`Handle.starved`); what SIGXFSZ ended, for disk."""
    number = -status if status < 0 else status - 128
    killed: Kind = "interrupted" if starved is False else "memory"
    return {signal.SIGKILL: killed, signal.SIGXFSZ: "disk"}.get(number, "method")  # type: ignore[call-overload,no-any-return]


class Overseer(Protocol):
    """Whose container it is: what may be used, and who is told."""

    @property
    def name(self) -> str: ...

    @property
    def log(self) -> Path: ...

    @property
    def limits(self) -> Limits: ...

    @property
    def resources(self) -> Resources: ...

    @property
    def deadline(self) -> float:
        """By the monotonic clock."""

    def ended(self, status: int) -> str:
        """Why the container ended, in words."""

    def say(self, collected: Collected[Any] | None, message: str = "") -> None:
        """Report progress."""

    @property
    def progress(self) -> int:
        """Grows with each request to its models that is answered."""

    def owed(self) -> str | None:
        """What of its models it waits for, in words; that is ended."""

    def reported(self) -> None:
        """The container has told what it runs with."""


class Tail:
    """Follows a file that a container appends to."""

    def __init__(self, path: Path, limit: int) -> None:
        """`limit` is in bytes."""
        self.path, self._limit = path, limit
        self._file = open_regular(path)
        self._rest, self._hash = b"", hashlib.sha256()
        self.place = self.lines = 0

    def new(self) -> list[bytes]:
        """The lines that have become whole since the last call, as far as one reading holds them.

        Raises:
            UpkeepError: a line or the file is too long, or the file has shrunk.
        """
        size = os.fstat(self._file.fileno()).st_size
        if size > self._limit:
            expected = f"at most {self._limit:,} bytes"
            raise UpkeepError(
                "the output is too large", where=self.path, expected=expected, found=f"{size:,} bytes", kind="disk"
            )
        if size < self.place:
            raise UpkeepError(
                "the output has shrunk", where=self.path, expected="a file that is only appended to", kind="output"
            )
        block = os.pread(self._file.fileno(), min(size - self.place, MAX_LINE_BYTES), self.place)
        self.place += len(block)
        self._hash.update(block)
        *lines, self._rest = (self._rest + block).split(b"\n")
        for number, line in enumerate((*lines, self._rest), self.lines + 1):
            if len(line) > MAX_LINE_BYTES:
                raise overlong().fault.error(f"{self.path}:{number}")
        self.lines += len(lines)
        return [line + b"\n" for line in lines]

    def require_whole(self) -> None:
        """Raises UpkeepError where a line was begun that did not become whole."""
        if self._rest:
            raise torn(self._rest).fault.error(f"{self.path}:{self.lines + 1}")

    def require_same(self) -> None:
        """Raises UpkeepError where something else has taken the file's place."""
        try:
            found = os.lstat(self.path)
        except OSError as error:
            kind = os.strerror(error.errno or 0)
        else:
            if os.path.samestat(found, os.fstat(self._file.fileno())):
                return
            kind = kind_of_file(found.st_mode)
        expected = "the file that was there at the start"
        raise UpkeepError("the output was replaced", where=self.path, expected=expected, found=kind, kind="output")

    def require_unchanged(self) -> None:
        """Raises UpkeepError where what has been read is no longer what the file holds. What was taken over is good,
        but nobody honest changes it."""
        self.require_same()
        now, place = hashlib.sha256(), 0
        while block := os.pread(self._file.fileno(), min(1 << 20, self.place - place), place):
            now.update(block)
            place += len(block)
        if now.digest() != self._hash.digest() or os.fstat(self._file.fileno()).st_size != self.place:
            expected = "a file that is only appended to"
            raise UpkeepError(
                "the output was changed after it was read", where=self.path, expected=expected, kind="output"
            )

    def close(self) -> None:
        self._file.close()


class Watch:
    """A running container: what it is sent, what it writes, and the bounds of both."""

    def __init__(self, handle: Handle, output: Path, collected: Collected[Any] | None, job: Overseer) -> None:
        """What can't be watched is ended.

        Raises:
            OSError: its output can't be opened.
        """
        self._handle, self._output, self._collected, self._job = handle, output, collected, job
        self._unsent = memoryview(b"")
        self._limit = job.resources.disk_gb * 2**30
        try:
            self._tail = Tail(output / collected.path.name, self._limit) if collected is not None else None
        except BaseException:
            handle.kill()
            raise
        self._progress = self._measured = time.monotonic()
        self._noted, self._answered = False, 0
        self.status: int | None = None
        self.remark: str | None = None
        os.set_blocking(handle.stdin.fileno(), False)

    def feed(self, strands: Sequence[Iterator[Task]]) -> Iterator[int]:
        """Send each strand's rounds, one when that before it is on disk and its number given; then wait for the end.

        Raises:
            Failed: the container ended or stood still before all was there.
            UpkeepError: its output is refused, or a bound is broken.
        """
        collected = self._collected
        assert collected is not None
        waiting = deque((strand, list[int]()) for strand in strands)  # and which of its records are not there yet
        numbers = itertools.count()
        while waiting:
            for _ in range(len(waiting)):
                strand, keys = waiting.popleft()
                while keys and collected.done[keys[-1]]:
                    keys.pop()
                if keys or self._unsent:
                    waiting.append((strand, keys))
                elif (task := next(strand, None)) is not None:
                    yield next(numbers)
                    self._progress = time.monotonic()
                    collected.ask(task.keys)
                    self._unsent = memoryview(msgspec.json.encode(task.round) + b"\n")
                    # One without probes is done when it is sent. The other strands come first.
                    waiting.append((strand, [key for key in task.keys if not collected.done[key]]))
                    break
            if waiting and self.status is not None:
                self._measure()
                raise Failed(self._job.ended(self.status), kind_of_status(self.status, self._handle.starved))
            self._turn()
        self.finish()
        if self._tail is not None:
            self._tail.require_whole()
            self._tail.require_unchanged()

    def finish(self) -> None:
        """Close the container's input and wait for its end; where records were expected, not for long."""
        if self.status is None:
            with contextlib.suppress(OSError):
                self._handle.stdin.close()
        self._unsent = memoryview(b"")
        patience = time.monotonic() + self._job.limits.exit_s
        while self.status is None:
            self._turn()
            if self._collected is not None and self.status is None and time.monotonic() > patience:
                self.remark = f"did not end within {self._job.limits.exit_s:g} s after the last record"
                self.status = self._handle.kill()
        self._note_engine()
        if self.status and self.remark is None:
            self.remark = f"after the last record: {self._job.ended(self.status)}"

    def close(self) -> None:
        """End the container, if it has not ended."""
        try:
            if self.status is None:
                self.status = self._handle.kill()
        finally:
            if self._tail is not None:
                self._tail.close()

    def _turn(self) -> None:
        """Send and read what can be without waiting, look at the bounds, and rest where nothing happened."""
        if self.status is not None:
            return
        ended = self._handle.poll() is not None
        sent = self._send()
        busy = self._read()
        if ended:
            while self._read():
                pass
            self.status = self._handle.wait()
            return
        moment, answered = time.monotonic(), self._job.progress
        if busy or sent or answered != self._answered:
            self._progress, self._answered = moment, answered
        self._check_bounds(moment)
        self._job.say(self._collected)
        if not busy:
            self._rest()

    def _rest(self) -> None:
        """Wait a little; where there is something to send, no longer than until it can be."""
        if self._unsent:
            waiting = select.poll()
            waiting.register(self._handle.stdin, select.POLLOUT)
            waiting.poll(1000 * POLL_S)
        else:
            time.sleep(POLL_S)

    def _send(self) -> bool:
        """Write what the container takes without waiting; whether that was the last of a round."""
        unsent = bool(self._unsent)
        try:
            while self._unsent:
                self._unsent = self._unsent[os.write(self._handle.stdin.fileno(), self._unsent) :]
        except BlockingIOError:
            return False
        except BrokenPipeError:
            self._unsent = memoryview(b"")  # it is ending, as a later turn will see
            return False
        return unsent

    def _read(self) -> bool:
        """Take over what is new; whether anything was."""
        if self._tail is None or self._collected is None:
            return False
        before, first = self._tail.place, self._tail.lines + 1
        if lines := self._tail.new():
            self._collected.add(lines, first, self._tail.path)
            self._note_engine()
        return self._tail.place > before

    def _note_engine(self) -> None:
        if not self._noted:
            self._noted = True
            self._job.reported()

    def _check_bounds(self, moment: float) -> None:
        job = self._job
        if moment > job.deadline:
            raise UpkeepError(
                f"{job.name}: not done in time",
                where=job.log,
                expected=f"{job.resources.minutes} minutes (`resources.minutes` of the method's and the model's card)",
                found=self._handle.tail(15) or "it printed nothing",
                remedy="the same command continues; raise the bound where it is too low",
                kind="time",
            )
        stalled = self._collected is not None and moment - self._progress > job.limits.stall_s
        if stalled or moment - self._measured > MEASURE_S:
            self._measured = moment
            self._measure()
        if stalled:
            deaf = ", and its input is not read" if self._unsent else ""
            owed = job.owed()
            reason = f"nothing new for {job.limits.stall_s:g} s{deaf}\n{owed or self._handle.tail(15)}"
            raise Failed(reason, "engine" if owed else "method")

    def _measure(self) -> None:
        _check_folder(self._output, self._limit)
        if self._tail is not None:
            self._tail.require_same()


def _check_folder(folder: Path, limit: int) -> None:
    """Refuse a writable folder that grows without bound, or that hides what it holds. What vanishes meanwhile does not
    count."""
    size, files = _nameless_bytes(folder), 0
    waiting = [(str(folder), 0)]
    while waiting and size <= limit and files <= MAX_FILES:
        parent, depth = waiting.pop()
        try:
            with os.scandir(parent) as entries:
                for entry in entries:
                    files += 1
                    with contextlib.suppress(FileNotFoundError):
                        found = entry.stat(follow_symlinks=False)
                        # A file may have holes, and blocks after its end.
                        size += max(found.st_size, 512 * found.st_blocks)
                        if stat.S_ISDIR(found.st_mode):
                            waiting.append((entry.path, depth + 1))
                    if files > MAX_FILES:
                        break
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError:
            raise UpkeepError(
                "a folder that cannot be entered",
                where=excerpt(parent),
                expected="folders open to their owner",
                kind="output",
            ) from None
        if depth >= MAX_DEPTH:
            raise UpkeepError(
                "folders too deep within each other", where=folder, expected=f"at most {MAX_DEPTH}", kind="disk"
            )
    if size > limit or files > MAX_FILES:
        raise UpkeepError(
            "the writable folder is too large",
            where=folder,
            expected=f"at most {limit:,} bytes (`resources.disk_gb` of its cards) in {MAX_FILES:,} files",
            found=f"{size:,} bytes, {files:,} files or more",
            kind="disk",
        )


def _nameless_bytes(folder: Path) -> int:
    """Bytes in files without a name that a container holds open in its writable folder: no listing shows them.

    A container is known by its root, in which `/output` is that folder. (A plain process has the host's own root.)
    """
    sizes, here = {}, folder.stat()
    for process in Path("/proc").iterdir():
        if not process.name.isdecimal():
            continue
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            if not os.path.samestat((process / "root/output").stat(), here):
                continue
            for descriptor in (process / "fd").iterdir():
                with contextlib.suppress(OSError):
                    found = descriptor.stat()
                    if not found.st_nlink and stat.S_ISREG(found.st_mode) and found.st_dev == here.st_dev:
                        sizes[found.st_ino] = 512 * found.st_blocks
    return sum(sizes.values())
