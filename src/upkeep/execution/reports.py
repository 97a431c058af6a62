"""What a container says of itself, read as hostile files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeVar

import msgspec

from upkeep.contract import Course, Record, Reported, Spent
from upkeep.files import open_regular
from upkeep.lines import Refused, decode

R = TypeVar("R", bound=Record)


def of_engine(output: Path) -> Reported | None:
    """`engine.json` of a container's folder: what it runs with; None where it has not said it.

    Raises:
        UpkeepError: the file is no regular one, is too large, or says something else.
    """
    path = output / "engine.json"
    return _read(path, Reported, 1 << 20) if os.path.lexists(path) else None


def of_course(output: Path) -> Course | None:
    """`course.json` of a training's folder: how it went; None where its method has not told it.

    Raises:
        UpkeepError: as `of_engine`.
    """
    path = output / "course.json"
    return _read(path, Course, 1 << 20) if os.path.lexists(path) else None


def spent(work: Path) -> dict[str, float]:
    """What the last attempt's container says it has used, by name; nothing where it did not get to say it.

    Raises:
        UpkeepError: as `of_engine`.
    """
    path = next(work.glob("output-*/usage.json"), None)
    if path is None:
        return {}
    found = _read(path, Spent, 1 << 16)
    said = msgspec.structs.asdict(found)
    used = msgspec.structs.asdict(said.pop("arrival"))
    said |= {f"arrival_{name}": value for name, value in used.items() if found.arrival.calls}
    return {name: float(value) for name, value in said.items()}


def _read(path: Path, kind: type[R], most: int) -> R:
    with open_regular(path, most) as file:
        try:
            return decode(file.read(), msgspec.json.Decoder(kind))
        except Refused as refused:
            raise refused.fault.error(path) from None
