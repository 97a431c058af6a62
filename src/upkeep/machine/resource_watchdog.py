"""A watch over what the processes of a cell use, for runtimes whose kernel bounds each process but not their sum.

It looks once a second, so what is quicker is bounded by the limits of each process; together they keep a machine whole.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

PERIOD_S = 1.0
MAX_FILES = 100_000
GB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    memory_gb: int
    """Of all processes together, memory shared by several counted once, with what they keep in /dev/shm."""
    tasks: int
    """Processes and threads."""
    scratch: Path | None = None
    """A folder on disk that they may fill, up to `scratch_gb` and MAX_FILES files."""
    scratch_gb: int = 0
    own_shm: bool = False
    """They have a /dev/shm of their own, so that all in it is theirs."""


@dataclass(frozen=True, slots=True)
class Passed:
    """A bound that a cell passed."""

    reason: str
    signal: signal.Signals
    """What would have ended a process of its own that passed this bound."""


def oom_kills() -> int | None:
    """How many processes the kernel has ended for want of memory since it started; None where it does not tell."""
    with contextlib.suppress(OSError):
        found = re.search(r"^oom_kill (\d+)$", Path("/proc/vmstat").read_text(), re.M)
        return int(found[1]) if found else None
    return None


def processor_s(pid: int) -> float | None:
    """Processor time of a process and of all that it started, in seconds; None where nobody can tell."""
    try:
        root = psutil.Process(pid)
        processes = [root, *root.children(recursive=True)]
        root.cpu_times()
    except (psutil.Error, ValueError):
        return None
    spent = 0.0
    for process in processes:
        with contextlib.suppress(psutil.Error):
            used = process.cpu_times()
            spent += used.user + used.system + used.children_user + used.children_system
    return spent


class Guard:
    """Watches the descendants of process `root` and calls `end` once where they pass a bound."""

    def __init__(self, root: int, bounds: Bounds, end: Callable[[], None]) -> None:
        self._passed: Passed | None = None
        self._root, self._bounds, self._end = root, bounds, end
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=f"guard of {root}", daemon=True)
        self._thread.start()

    def close(self) -> Passed | None:
        """The cell has ended; which bound it passed, None where it passed none."""
        self._over.set()
        self._thread.join()
        return self._passed

    def _watch(self) -> None:
        while not self._over.wait(PERIOD_S):
            try:
                processes = psutil.Process(self._root).children(recursive=True)
                self._passed = look(processes, self._bounds)
            except psutil.NoSuchProcess:
                return
            except Exception as error:  # unwatched, a cell does not go on
                self._passed = Passed(f"killed: what it uses cannot be watched ({error!r})", signal.SIGTERM)
            if self._passed is not None:
                self._end()
                return


def look(processes: list[psutil.Process], bounds: Bounds) -> Passed | None:
    """Which bound these processes pass; None where they pass none."""
    tasks = resident = 0
    for process in processes:
        with contextlib.suppress(psutil.Error):
            tasks += process.num_threads()
            resident += process.memory_info().rss
    if tasks > bounds.tasks:
        return Passed(f"killed: {tasks} processes and threads (limit {bounds.tasks})", signal.SIGTERM)
    shm = _held_in_shm(processes) if bounds.own_shm else 0
    # Resident sizes are quick to read and count shared memory several times, so they can only be too high.
    if resident + shm > bounds.memory_gb * GB and (used := _memory(processes, shm)) > bounds.memory_gb * GB:
        return Passed(f"killed: out of memory ({used / GB:.1f} GB, limit {bounds.memory_gb} GB)", signal.SIGKILL)
    if bounds.scratch is not None:
        return _full(bounds.scratch, bounds.scratch_gb * GB)
    return None


def _memory(processes: list[psutil.Process], shm: int) -> int:
    """Bytes of memory that would be free without these processes; files that the kernel caches do not count."""
    private = shared = 0
    for process in processes:
        try:
            with Path(f"/proc/{process.pid}/smaps_rollup").open() as file:
                sizes = {line.split(":")[0]: int(line.split()[-2]) * 1024 for line in file if line.endswith("kB\n")}
            private += sizes["Pss_Anon"]
            shared += sizes["Pss_Shmem"]
        except (FileNotFoundError, ProcessLookupError):
            continue
        except PermissionError:  # it forbids to look into it
            with contextlib.suppress(psutil.Error):
                private += process.memory_info().rss
    return private + max(shared, shm)


def _held_in_shm(processes: list[psutil.Process]) -> int:
    """Bytes in their /dev/shm, also where no process has them mapped any more."""
    for process in reversed(processes):  # the last started are those farthest inside
        with contextlib.suppress(OSError):
            shm = Path(f"/proc/{process.pid}/root/dev/shm")
            if shm.stat().st_dev == Path("/dev/shm").stat().st_dev:
                continue
            held = os.statvfs(shm)
            return (held.f_blocks - held.f_bfree) * held.f_frsize
    return 0


def _full(folder: Path, limit: int) -> Passed | None:
    size = 0
    for count, entry in enumerate(_entries(str(folder))):
        with contextlib.suppress(OSError):
            size += entry.stat(follow_symlinks=False).st_blocks * 512
        if count > MAX_FILES:
            return Passed(f"killed: more than {MAX_FILES:,} files in /tmp", signal.SIGXFSZ)
        if size > limit:
            return Passed(f"killed: more than {limit // GB} GB in /tmp", signal.SIGXFSZ)
    return None


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
    """All that lies in a folder, however deep; links not followed."""
    folders = [folder]
    while folders:
        with contextlib.suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                yield entry
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
