"""What runs on one machine ends together, whichever process is killed.

The process at the head of a run (`./upkeep run`, or a Snakemake that was started by hand) names itself in the
environment. Every command of the suite below it looks once a second whether the head is still among its ancestors. It
is not where the head is dead, nor where one between them is, for orphans are given another parent; then the command
ends as by SIGTERM. No file says so, so none is left behind. Jobs of a cluster have no head: they outlive Snakemake.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from upkeep.errors import UpkeepError
from upkeep.file_locks import Held, locked

if TYPE_CHECKING:
    import psutil

HEAD = "UPKEEP_LIFELINE"
"""The environment's name for the process id of the head."""
PERIOD_S = 1.0
PATIENCE_S = 60.0
"""What orphans of an earlier run are given to end."""


def patience_s() -> float:
    """How long to wait for another process that is at work on the same cell.

    In a job of a cluster, without end: SLURM may have given up a node on which an earlier start of the job still works.
    Its time limit ends the wait. In a run on this machine, until what was left of a killed one has ended.
    """
    from upkeep.machine.slurm import in_job  # this module is imported by every command, so it imports little

    if in_job():
        return float("inf")
    return PATIENCE_S if HEAD in os.environ else 0.0


# ---------------------------------------------------------------- the head


@contextlib.contextmanager
def leading(folder: Path) -> Iterator[None]:
    """Be the head of a run, the only one of its results.

    Args:
        folder: where its lock lies (`Layout.run`).

    Raises:
        UpkeepError: another one is at work there (it is named).
    """
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked(folder))
        except Held as held:
            raise UpkeepError(
                "another run is at work on these results",
                where=held.where,
                found=held.found,
                remedy="`./upkeep status --watch` follows it; wait for its end, or end it",
                kind="machine",
            ) from None
        os.environ[HEAD] = str(os.getpid())
        try:
            yield
        finally:
            del os.environ[HEAD]


def await_orphans() -> None:
    """Wait until all that was started below this head has ended, or PATIENCE_S are over."""
    deadline = time.monotonic() + PATIENCE_S
    while (left := _of_head()) and time.monotonic() < deadline:
        time.sleep(0.1)
    if left:
        numbers = ", ".join(str(process.pid) for process in left)
        print(f"upkeep: processes of the run have not ended: {numbers}", file=sys.stderr, flush=True)


def _of_head() -> list[psutil.Process]:
    """What was started below this head, by its environment."""
    import psutil

    found, me = [], os.getpid()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid != me and process.environ().get(HEAD) == str(me):
                found.append(process)
    return found


# ---------------------------------------------------------------- below it


@contextlib.contextmanager
def followed() -> Iterator[None]:
    """Run the block until the head is lost, if there is one; it is interrupted then."""
    if HEAD not in os.environ:
        yield
        return
    with stoppable():
        follow(signal.SIGTERM)
        yield


def follow(number: signal.Signals) -> None:
    """Send this process a signal when the head is lost."""
    head = int(os.environ[HEAD])

    def watch() -> None:
        while head in _ancestors():
            time.sleep(PERIOD_S)
        os.kill(os.getpid(), number)

    threading.Thread(target=watch, name="lifeline", daemon=True).start()


def _ancestors() -> Iterator[int]:
    pid = os.getppid()
    while pid > 0:
        yield pid
        try:
            pid = int(_stat(pid)[1])
        except OSError:
            return


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """SIGTERM and SIGHUP interrupt as Ctrl-C does, so that the container is ended; a second signal does not disturb."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    stopped = False

    def stop(number: int, _: FrameType | None) -> None:
        nonlocal stopped
        if not stopped:
            stopped = True
            raise KeyboardInterrupt(signal.Signals(number).name)

    before = [signal.signal(number, stop) for number in signals]
    try:
        yield
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)


# ---------------------------------------------------------------- who owns a container


def this_process() -> str:
    """A name of this process that no other one ever has: user, boot, namespace of process ids, id, start."""
    return f"{_here()}.{os.getpid()}.{_stat(os.getpid())[19]}"


def has_ended(name: str) -> bool:
    """Whether the process of this name is gone for sure; of another user's, or of one that cannot be seen from here,
    nothing is sure."""
    here, _, process = name.partition(f"{_here()}.")
    if here or not process:
        return False
    pid, start = process.split(".")
    try:
        found = _stat(int(pid))
    except OSError:
        return True
    return found[19] != start or found[0] == "Z"


def _here() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{os.getuid()}.{boot}.{Path('/proc/self/ns/pid').stat().st_ino}"


def _stat(pid: int) -> list[str]:
    """The fields of `/proc/PID/stat` after the program's name: state, parent, ...; see proc(5)."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
