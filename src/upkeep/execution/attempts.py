"""What is kept of a job's attempts while it is not published: `state.json` of its work folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from upkeep.contract import Attempt, Sealed
from upkeep.errors import UpkeepError
from upkeep.files import remove
from upkeep.integrity import read_sealed, write_sealed

SILENT_END = "it ended without a word: its supervisor was killed, or could not write its end, as on a disk without room"


class State(Sealed, frozen=True, kw_only=True):
    """`state.json` of a work folder: what outlives the supervisor."""

    identity: str
    key: str
    """Of the sums that show damage to what was accepted (`execution.collected`)."""
    attempts: list[Attempt] = msgspec.field(default_factory=list)
    hardware: dict[str, Any] = msgspec.field(default_factory=dict)


def resume(work: Path, identity: str, *, force: bool, accepted: Callable[[], int]) -> State:
    """What an earlier run of the same identity left; anything else in the work folder is removed.

    Args:
        force: begin anew, whatever is there.
        accepted: how many records the earlier supervisor had accepted.
    """
    try:
        state = read_sealed(work / "state.json", State, "none is needed")
    except UpkeepError:
        state = None  # there is none, or nobody can tell what it was: all is done again
    if state is None or force or state.identity != identity:
        clear(work)
        return State(identity=identity, key=os.urandom(16).hex())
    if state.attempts and state.attempts[-1].outcome == "running":
        last = msgspec.structs.replace(state.attempts[-1], outcome="killed", reason=SILENT_END, lines=accepted())
        return msgspec.structs.replace(state, attempts=[*state.attempts[:-1], last])
    return state


def record(work: Path, state: State, attempt: Attempt, *, new: bool) -> State:
    """Write down an attempt, or, where it is not new, how the last one ended; the state with it."""
    attempts = [*(state.attempts if new else state.attempts[:-1]), attempt]
    return write_sealed(work / "state.json", msgspec.structs.replace(state, attempts=attempts), durable=True)


def clear(work: Path) -> None:
    """Remove all that a work folder holds but its lock."""
    for path in work.iterdir():
        if path.name != "lock":
            remove(path)
