"""Runs a command and leaves nothing of it behind, however it or its supervisor ends.

Usage (`kept` makes this line): python -I -S reaper.py SETTINGS COMMAND..., where SETTINGS is JSON: `parent` (process id
of the supervisor), `scratch` (a folder to remove at the end, or null) and `limits` (resource limits by name,
`RLIMIT_FSIZE`, in their own units). Ends with the command's status, 128 + N where signal N ended it.

What the command starts and leaves is adopted by this process (PR_SET_CHILD_SUBREAPER) and killed with it. SIGTERM,
which also comes when the supervisor dies, ends everything at once.
"""

import ctypes
import json
import os
import resource
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

SET_PDEATHSIG, SET_CHILD_SUBREAPER = 1, 36  # of linux/prctl.h
SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD}


def kept(command: Sequence[str], scratch: Path | None = None, limits: Mapping[str, int] | None = None) -> list[str]:
    """The line that runs a command, which ends with the calling thread; `scratch` and `limits` as above."""
    settings = {"parent": os.getpid(), "scratch": scratch and str(scratch), "limits": limits or {}}
    return [sys.executable, "-I", "-S", __file__, json.dumps(settings), *command]


def main() -> int:
    settings, command = json.loads(sys.argv[1]), sys.argv[2:]
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    prctl(SET_PDEATHSIG, signal.SIGTERM)
    prctl(SET_CHILD_SUBREAPER, 1)
    if os.getppid() != settings["parent"]:
        return 1
    child = os.fork()
    if not child:
        prctl(SET_PDEATHSIG, signal.SIGKILL)
        for name, value in settings["limits"].items():
            resource.setrlimit(getattr(resource, name), (value, value))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        os.execvp(command[0], command)
    # The pipes are the command's alone: whoever reads or writes them sees its end.
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(nothing, descriptor)
    status = 128 + signal.SIGKILL
    running = True
    while running and signal.sigwait(SIGNALS) == signal.SIGCHLD:
        while running and (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == child:
                code = os.waitstatus_to_exitcode(ended[1])
                status, running = (code if code >= 0 else 128 - code), False
    end_all()
    if settings["scratch"]:
        shutil.rmtree(settings["scratch"], ignore_errors=True)
    return status


def end_all() -> None:
    """Kill children until there are none; those of a child that ends become ours."""
    while True:
        for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
            os.kill(int(pid), signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


if __name__ == "__main__":
    sys.exit(main())
