"""Attacks that do not end, or leave something behind."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Any

from upkeep.cell import Probe

from .tools import attack, end, hang, output


@attack
def ignores_signals(_p: dict[str, Any], _: Probe) -> None:
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_IGN)
    hang()


@attack
def stops_itself(_p: dict[str, Any], _: Probe) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)
    print("BREACH", flush=True)


@attack
def daemons(p: dict[str, Any], _: Probe) -> None:
    """A child that leaves its parent, its group and its session, and writes on."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            heartbeat = Path(p["heartbeat"]) if not p["isolated"] else output() / "heartbeat"
            for number in range(100_000):
                with contextlib.suppress(OSError):
                    heartbeat.write_text(str(number))
                time.sleep(0.05)
        os._exit(0)
    time.sleep(0.5)
    end("left: a process of its own")


@attack
def closes_its_input(_p: dict[str, Any], _: Probe) -> None:
    os.close(0)
    hang()
