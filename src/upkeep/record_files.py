"""Files of records that others wrote, checked whole: every line, and each record of a scope exactly once.

The file may be a link, a pipe, endless, or change while it is read. So it is opened without following links, only
regular ones are read (`files.open_regular`), and what is refused is said with file and line.
"""

from __future__ import annotations

import os
import pickle
from array import array
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from io import BufferedReader
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from upkeep.contract import MAX_LINE_BYTES, Prediction, Record
from upkeep.errors import UpkeepError
from upkeep.files import open_regular
from upkeep.lines import AGAIN, Fault, Refused, decode, read_lines
from upkeep.scope import Answers, Scope

R = TypeVar("R", bound=Record)
PARALLEL_BYTES = 64 * 1024 * 1024
"""Files from this size on are read by several processes."""


@dataclass(frozen=True)
class Index(Generic[R]):
    """Where in a checked file each record of its scope is."""

    path: Path
    scope: Scope[R]
    offsets: array[int]
    """Byte at which the line of a key begins; -1 where the file has none."""
    lines: int

    @property
    def missing(self) -> list[int]:
        """The keys that the file lacks."""
        if self.lines == self.scope.size:
            return []
        return [key for key, offset in enumerate(self.offsets) if offset < 0]

    def require_complete(self) -> None:
        """Raises UpkeepError where a record is missing."""
        if missing := self.missing:
            first = "; ".join(self.scope.name(key) for key in missing[:3])
            raise UpkeepError(
                f"{len(missing):,} of {self.scope.size:,} records are missing",
                where=f"{self.path}:{self.lines + 1}",
                expected="each exactly once",
                found=f"none for {first}{'; ...' if len(missing) > 3 else ''}",
                remedy=AGAIN,
                kind="output",
            )

    def lines_in_order(self) -> Iterator[bytes]:
        """The lines in the order of their keys."""
        with open_regular(self.path) as file:
            place = 0
            for offset in self.offsets:
                if offset >= 0:
                    if offset != place:
                        file.seek(offset)
                    line = file.readline(MAX_LINE_BYTES + 1)
                    place = offset + len(line)
                    yield line


def check_file(path: Path, record: type[R], scope: Scope[R], max_bytes: int | None = None) -> Index[R]:
    """Read a file of records as a hostile one, every line of it, in memory independent of the lines' length.

    Large files are read by as many processes as there are processors. Whether anything is missing is for the caller
    to ask of the index.

    Raises:
        UpkeepError: with file, line, field, expected, found and remedy, for the first line that is torn, too long, not
            UTF-8, not JSON, not as the schema has it, not in `scope`, or there twice.
    """
    with open_regular(path, max_bytes) as file:
        size = os.fstat(file.fileno()).st_size
    workers = len(os.sched_getaffinity(0)) if size >= PARALLEL_BYTES else 1
    (start, end), *others = _ranges(path, max_bytes, workers)
    if not others:
        return _merge(path, scope, [_scan(path, record, scope, start, end)])
    # Started afresh, not forked: the caller may have threads. One range is left for this process.
    with ProcessPoolExecutor(len(others), mp_context=get_context("spawn")) as pool:
        packed = pickle.dumps(scope)
        futures = [pool.submit(_scan_packed, path, record, packed, *other) for other in others]
        return _merge(path, scope, [_scan(path, record, scope, start, end), *(f.result() for f in futures)])


def read_predictions(path: Path, expected: Sequence[str], trials: int = 1) -> list[Prediction]:
    """All predictions of a file, checked and complete, in the order of `expected` (probe ids), trials together.

    Raises:
        UpkeepError: as `check_file`, or a prediction is missing.
    """
    index = check_file(path, Prediction, Answers(expected, trials))
    index.require_complete()
    decoder = msgspec.json.Decoder(Prediction)
    return [decoder.decode(line) for line in index.lines_in_order()]


def duplicate(scope: Scope[Any], key: int, earlier: str) -> Fault:
    problem = f"a second line for {scope.name(key)}"
    return Fault(problem, "each exactly once", f"the first one is {earlier}")


class _Part(NamedTuple):
    """What one process found in its range of a file."""

    keys: array[int]
    starts: array[int]
    fault: Fault | None
    """Of the line after the last of `keys`."""


def _scan(path: Path, record: type[Any], scope: Scope[Any], start: int, end: int) -> _Part:
    decoder = msgspec.json.Decoder(record)
    keys, starts, place = array("q"), array("q"), start
    try:
        with open_regular(path) as file:
            file.seek(start)
            for line in read_lines(file, end):
                keys.append(scope.key(decode(line, decoder)))
                starts.append(place)
                place += len(line)
    except Refused as refused:
        return _Part(keys, starts, refused.fault)
    return _Part(keys, starts, None)


def _scan_packed(path: Path, record: type[Any], packed: bytes, start: int, end: int) -> _Part:
    return _scan(path, record, pickle.loads(packed), start, end)


def _ranges(path: Path, max_bytes: int | None, parts: int) -> list[tuple[int, int]]:
    """A file cut into about equal ranges of whole lines."""
    with open_regular(path, max_bytes) as file:
        size = os.fstat(file.fileno()).st_size
        cuts = [0]
        for part in range(1, parts):
            file.seek(max(cuts[-1], size * part // parts))
            # A line longer than allowed is not searched for its end: the range before it meets and refuses it.
            if file.readline(MAX_LINE_BYTES + 1).endswith(b"\n"):
                cuts.append(file.tell())
        return list(zip(cuts, [*cuts[1:], size], strict=True))


def _merge(path: Path, scope: Scope[R], parts: Iterable[_Part]) -> Index[R]:
    offsets, lines = array("q", [-1]) * scope.size, 0
    for part in parts:
        for key, start in zip(part.keys, part.starts, strict=True):
            lines += 1
            if offsets[key] >= 0:
                raise duplicate(scope, key, f"line {_line_number(path, offsets[key])}").error(f"{path}:{lines}")
            offsets[key] = start
        if part.fault is not None:
            raise part.fault.error(f"{path}:{lines + 1}")
    return Index(path, scope, offsets, lines)


def _line_number(path: Path, offset: int) -> int:
    with open_regular(path) as file:
        return 1 + sum(block.count(b"\n") for block in _blocks(file, offset))


def _blocks(file: BufferedReader, size: int) -> Iterator[bytes]:
    while size > 0 and (block := file.read(min(size, 1 << 20))):
        size -= len(block)
        yield block
