"""What attacks are made of. `attack` puts one among them; each is given the variant's parameters and the probe."""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn

LIBC = ctypes.CDLL(None, use_errno=True)
GIB = 2**30
Attack = Callable[[dict[str, Any], Any], None]
ATTACKS: dict[str, Attack] = {}
AT_THE_END: list[Callable[[], None]] = []
"""What the method does when its last round is done."""


def attack(function: Attack) -> Attack:
    ATTACKS[function.__name__] = function
    return function


def end(message: str) -> NoReturn:
    print(message, flush=True)
    os._exit(1)


def hang() -> None:
    while True:
        time.sleep(3600)


def try_all(attempts: Iterable[Callable[[], object]]) -> None:
    """Do all of this; end here where nothing succeeds."""
    errors, succeeded = [], 0
    for attempt in attempts:
        try:
            attempt()
            succeeded += 1
        except (OSError, ValueError) as error:
            errors.append(f"{type(error).__name__}: {error}")
    if not succeeded:
        end("prevented: " + "; ".join(dict.fromkeys(errors)))
    print("BREACH", flush=True)


def call(name: str, *arguments: object) -> None:
    """Call a function of the C library that returns a negative number where it fails."""
    if getattr(LIBC, name)(*arguments) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)


def output() -> Path:
    return Path(json.loads(Path(sys.argv[1]).read_text())["output"])


def predictions() -> Path:
    return output() / "predictions.jsonl"


def prediction(probe: str, **changes: object) -> dict[str, object]:
    return {
        "probe_id": probe,
        "trial": 0,
        "response": None,
        "reasoning": None,
        "finish_reason": "none",
        "retrieved": [],
        "usage": {},
        "context": {},
        "error": None,
    } | changes


def lie(raw: bytes) -> None:
    with predictions().open("ab") as file:
        file.write(raw)
    hang()


def lie_about(probe: str, **changes: object) -> None:
    lie(json.dumps(prediction(probe, **changes)).encode() + b"\n")
