"""All attacks, by name: each module holds those of one kind."""

from __future__ import annotations

import os
from typing import Any

from . import lying_files, lying_lines, not_ending, reaching_out, taking_too_much  # noqa: F401
from .tools import AT_THE_END, ATTACKS, end

__all__ = ["ATTACKS", "AT_THE_END", "TOGETHER", "do"]

TOGETHER = (
    *("network", "names", "raw_sockets", "listening", "read_host", "secrets", "write_outside", "write_inputs"),
    *("kill_others", "mount", "clock", "privileges", "devices", "engine_socket", "hole_of_two_gigabytes"),
    *("predictions_as_device", "predictions_as_hard_link", "engine_as_device", "engine_as_hard_link"),
)
"""Attempts of which each fails by itself and changes nothing: the attack `together` makes them in one container."""


def do(name: str, parameters: dict[str, Any], probe: Any) -> None:
    try:
        (together if name == "together" else ATTACKS[name])(parameters, probe)
    except Exception as error:
        end(f"prevented: {type(error).__name__}: {error}")


def together(parameters: dict[str, Any], probe: Any) -> None:
    """Each in a process of its own, and what it says under its name; end here where every one was prevented."""
    succeeded = []
    for name in TOGETHER:
        told, said = os.pipe()
        if (child := os.fork()) == 0:
            os.dup2(said, 1)
            do(name, parameters, probe)
            os._exit(0)
        os.close(said)
        with open(told, errors="replace") as file:
            text = " ".join(file.read().split())
        if not os.waitpid(child, 0)[1]:
            succeeded.append(name)
        print(f"TOLD {name}: {text}", flush=True)
    if not succeeded:
        end("prevented: all of them")
    print("BREACH", *succeeded, flush=True)
