"""A cell that runs: its input, its log, its end."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO

from upkeep.machine.resource_watchdog import Bounds, Guard, oom_kills

LOG_BYTES = 16 * 1024 * 1024
"""What is kept of a cell's standard output and error; the rest is read and thrown away."""


class Handle:
    """A cell that runs. Close `stdin` to let it end; `kill` ends it at once."""

    def __init__(
        self, process: subprocess.Popen[bytes], log: Path, stop: Callable[[], None], bounds: Bounds | None = None
    ) -> None:
        """`stop` ends it, and does nothing where it has ended; `bounds` are watched here, where nothing else does."""
        assert process.stdin is not None and process.stdout is not None
        self.process = process
        self.stdin: IO[bytes] = process.stdin
        self.log = log
        self.starved: bool | None = None
        """Whether it was killed for memory, or something was meanwhile; None where nothing tells, or while it runs."""
        self._stop = stop
        self._oom_kills = oom_kills()
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
            file = log.open("wb", buffering=0)
        except OSError:
            stop()
            raise
        self._pump = threading.Thread(target=_pump, args=(process.stdout, file), daemon=True)
        self._pump.start()
        self._guard = Guard(process.pid, bounds, stop) if bounds is not None else None

    @property
    def pid(self) -> int:
        return self.process.pid

    def poll(self) -> int | None:
        """The exit status, None while it runs."""
        return self.process.poll()

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit status; where the watchdog ended it, one that tells why.

        Raises:
            subprocess.TimeoutExpired: it still runs after `timeout` seconds.
        """
        status = self.process.wait(timeout)
        with contextlib.suppress(OSError):
            self.stdin.close()
        # Whatever a cell left running must not write on after its end.
        self._stop()
        self._pump.join(timeout=10)
        if self._oom_kills is not None and (now := oom_kills()) is not None:
            self.starved = now > self._oom_kills
        if self._guard is None or (passed := self._guard.close()) is None:
            return status
        self.starved = passed.signal == signal.SIGKILL
        with self.log.open("ab") as file:
            file.write(f"\n[{passed.reason}]\n".encode())
        return 128 + passed.signal

    def kill(self) -> int:
        """End it and everything it started; returns the exit status."""
        self._stop()
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        return self.wait()

    def tail(self, lines: int = 20) -> str:
        """The last lines of its output, for messages; unprintable characters are replaced."""
        with self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - 16_384))
            text = file.read().decode("utf-8", "replace")
        kept = "\n".join(text.splitlines()[-lines:])
        return "".join(c if c.isprintable() or c in "\n\t" else "�" for c in kept)


def _pump(source: IO[bytes], log: IO[bytes]) -> None:
    left = LOG_BYTES
    with log, source:
        while block := source.read1(65536):  # type: ignore[attr-defined]
            if left:
                # A log that finds no room must not hold up the cell, which waits for its output to be read.
                with contextlib.suppress(OSError):
                    log.write(block[:left])
                    if left <= len(block):
                        log.write(f"\n[output above {LOG_BYTES} bytes is left out]\n".encode())
            left = max(0, left - len(block))
