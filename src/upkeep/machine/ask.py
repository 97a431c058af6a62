"""Asks other programs short questions. Whatever they do, the answer comes in time and in bounds."""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass

from upkeep.text import printable

ANSWER_BYTES = 1 << 20
"""What is read of an answer; a program that says more is ended."""


@dataclass(frozen=True, slots=True)
class Output:
    """What a program said. `problem` is None where it ended with 0, else why there is no good answer."""

    out: str
    problem: str | None

    def __bool__(self) -> bool:
        return self.problem is None


def ask(*command: str, timeout_s: float = 3.0, env: dict[str, str] | None = None) -> Output:
    """Run a program without input and return what it prints; it and all that it started is ended after `timeout_s`.

    Never raises: a program that is missing, fails, hangs or prints without end gives an answer with a problem.
    """
    name = os.path.basename(command[0])  # noqa: PTH119  a name, maybe without a folder
    if shutil.which(command[0]) is None:
        return Output("", f"{name} is not on the PATH")
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | (env or {}),
            start_new_session=True,
        )
    except OSError as error:
        return Output("", f"{name} cannot be started: {error.strerror or error}")
    assert process.stdout is not None and process.stderr is not None
    said: dict[int, bytearray] = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
    deadline, problem = time.monotonic() + timeout_s, None
    try:
        with selectors.DefaultSelector() as selector:
            for descriptor in said:
                selector.register(descriptor, selectors.EVENT_READ)
            while selector.get_map() and problem is None:
                left = deadline - time.monotonic()
                for key, _ in selector.select(max(0.0, left)):
                    block = os.read(key.fd, 65536)
                    said[key.fd] += block
                    if not block:
                        selector.unregister(key.fd)
                if left <= 0:
                    problem = f"{name} does not answer within {timeout_s:g} s"
                elif sum(map(len, said.values())) > ANSWER_BYTES:
                    problem = f"{name} prints without end"
        if problem is None:
            try:
                status = process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                problem = f"{name} does not end within {timeout_s:g} s"
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.stdout.close()
        process.stderr.close()
        # One that is stuck in the kernel cannot be waited for; it ends when the kernel lets it.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.5)
    out, err = (printable(text.decode("utf-8", "replace")) for text in said.values())
    if problem is None and status:
        lines = (err.strip() or out.strip()).splitlines()
        problem = f"{name}: {lines[-1][:300].removeprefix(f'{name}: ') if lines else f'exit status {status}'}"
    return Output(out, problem)
