"""The one exception for everything a user can put right, and the kinds of reasons why a job fails."""

from __future__ import annotations

import difflib
import re
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, get_args

Kind = Literal[
    "input",
    "machine",
    "image",
    "engine",
    "method",
    "output",
    "memory",
    "time",
    "disk",
    "endpoint",
    "budget",
    "interrupted",
    "other",
]
"""Why a job has not ended well, in one word:

- `input`: what it was given is missing, stale or wrong: a dataset, weights, a trained model, a card, the configuration;
- `machine`: the machine lacks something, or refuses it: a GPU, a container engine, a file that cannot be written;
- `image`: the image or the environment could not be made, or does not start;
- `engine`: the model's engine did not start, died or hung;
- `method`: the container ended early, or stood still;
- `output`: what the container wrote was refused;
- `memory`, `time`, `disk`: it asked for more than its cards give it;
- `endpoint`: the model's endpoint does not answer as it should;
- `budget`: going on could cost more than the budget;
- `interrupted`: ended from outside; the same command continues;
- `other`: none of these: most likely a mistake of the suite itself.
"""

KINDS: tuple[Kind, ...] = get_args(Kind)


class UpkeepError(Exception):
    """Something is wrong that the user can mend: says where, what was expected, what was found, what to do next.

    The command line prints it without a traceback (`exit_status`).
    """

    def __init__(
        self,
        problem: str,
        *,
        where: object = None,
        expected: object = None,
        found: object = None,
        remedy: str | None = None,
        kind: Kind = "input",
    ) -> None:
        self.problem, self.where, self.expected, self.found, self.remedy = problem, where, expected, found, remedy
        self.kind: Kind = kind
        lines = [problem if where is None else f"{where}: {problem}"]
        if expected is not None:
            lines.append(f"  expected: {expected}")
        if found is not None:
            lines.append(f"  found:    {found}")
        if remedy is not None:
            lines.append(f"  remedy:   {remedy}")
        super().__init__("\n".join(lines))

    def at(self, where: object) -> UpkeepError:
        """The same, found there."""
        return UpkeepError(
            self.problem, where=where, expected=self.expected, found=self.found, remedy=self.remedy, kind=self.kind
        )


class Usage(UpkeepError):
    """The command line is none: a word is missing, or two do not go together. Nothing was done."""


LISTED = ("dataset", "method", "model", "paper", "prompt", "suite")
"""What `./upkeep list` shows, under these names and an s."""
FEW = 10
"""Names that an error tells one by one; of more it says where they are listed."""


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """The names most like one that nothing has, at most three; of what is of one family with it (`qwen3-...`), also
    those that are less like it."""
    known = list(known)
    family = [one for one in known if one.startswith(f"{name.partition('-')[0]}-")]
    close = difflib.get_close_matches(name, known, n=3) + difflib.get_close_matches(name, family, n=3, cutoff=0.4)
    return list(dict.fromkeys(close))[:3]


def unknown(kind: str, name: str, known: Iterable[str], found: str) -> UpkeepError:
    """A name that nothing has, with the names nearest to it."""
    known = sorted(known)
    close = nearest(name, known)
    listing = f"`./upkeep list {kind}s` shows them all" if kind in LISTED else ""
    many = len(known) > FEW and listing
    return UpkeepError(
        f"unknown {kind} {name!r}",
        expected=f"one of {len(known)} names; {listing}" if many else f"one of {', '.join(known)}",
        found=found,
        remedy=f"did you mean {' or '.join(close)}?" if close else listing or "choose one of these",
    )


def kind_of(error: BaseException) -> Kind:
    """The kind of any exception that ended a job."""
    match error:
        case UpkeepError():
            return error.kind
        case KeyboardInterrupt():
            return "interrupted"
        case MemoryError():
            return "memory"
        case OSError():
            return "machine"
        case _:
            return "other"


def raised_in(log: str, place: str) -> str | None:
    """What a log tells of Python code that ended by an exception, as `FILE:LINE: EXCEPTION`; None where it does not end
    so, or none of the code is a user's.

    Args:
        place: the folder of a user's code, as it ends the path of a file.
    """
    frames = re.findall(rf'File "[^"\n]*?({re.escape(place)}/[^"\n]+)", line (\d+)', log)
    last = log.rstrip().rpartition("\n")[2]
    if none := re.search(rf"({re.escape(place)}/method\.py): expected one subclass of Method, found (\d+)$", last):
        return f"{none[1]}: expected one `class X(Method)` (from upkeep.cell import Method), found {none[2]}"
    if not frames or not re.match(r"[A-Za-z_][\w.]*(Error|Exception|Exit|Warning)\b", last):
        return None
    told = f"{frames[-1][0]}:{frames[-1][1]}: {last}"
    if last.startswith("ModuleNotFoundError: "):
        lock = f"`./upkeep image lock {place.rpartition('/')[2]}`"
        told += f"; a package is named in {place}/requirements.in and locked: {lock}"
    return told


def raised_at(error: BaseException, start: Path) -> str | None:
    """The last line of a user's own code on the way to an error, as `FILE:LINE`; None where none is on it.

    Args:
        start: the file, or the folder of all of it.
    """
    if isinstance(error, SyntaxError) and error.filename is not None:
        return f"{error.filename}:{error.lineno}"
    frames = [(Path(frame.filename), frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    start = start.resolve()
    own = [f"{path}:{line}" for path, line in frames if start in ((real := path.resolve()), *real.parents)]
    return own[-1] if own else None
