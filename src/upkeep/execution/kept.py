"""Commands of the host that end with what started them, and with them all that they started."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from upkeep.execution.handle import Handle
from upkeep.execution.runtimes import Launch
from upkeep.machine.reaper import kept
from upkeep.machine.resource_watchdog import Bounds
from upkeep.machine.scratch import Scratch

STOP_S = 15.0
"""How long a reaper may take to end what it keeps."""


def limits_of(launch: Launch) -> dict[str, int]:
    """Limits of every process of a cell: no core files, the size of a file, and memory of its own."""
    limits = {"RLIMIT_CORE": 0, "RLIMIT_FSIZE": launch.resources.disk_gb * 2**30}
    # A GPU's driver maps far more than it uses.
    return limits if launch.gpus else limits | {"RLIMIT_DATA": launch.resources.memory_gb * 2**30}


@functools.cache
def _starter(process: int) -> ThreadPoolExecutor:
    """The one thread of a process that starts such commands: they end with the thread that started them, and the one
    that first asks an engine ends with its cell."""
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="starter")


def start_kept(
    command: Sequence[str],
    environment: Mapping[str, str],
    launch: Launch,
    scratch: Scratch,
    limits: Mapping[str, int],
    bounds: Bounds,
) -> Handle:
    """Start a command that ends with this process, however it ends, and with it all that it started and `scratch`."""

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            kept(command, scratch.path, limits),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=scratch.path,
            env=environment,
            umask=0o022,
            start_new_session=True,
        )

    process = _starter(os.getpid()).submit(start).result()

    def stop() -> None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
        if process.returncode is None or process.returncode < 0:  # it hangs or was killed, so what it kept is left
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        scratch.close()

    return Handle(process, launch.log, stop, bounds)
