"""Reads what others wrote (containers above all) and refuses it with file, line, field, what was expected and found.

A container's output is hostile: the file may be a link, a pipe, endless, in no encoding, or change while it is read.
So files are opened without following links, only regular ones are read (`files.open_regular`), no line is held in
memory beyond `MAX_LINE_BYTES`, and every line is decoded strictly into its record.
"""

from __future__ import annotations

import json
import os
import pickle
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from io import BufferedReader
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Generic, NamedTuple, NoReturn, Protocol, TypeVar

import msgspec

from upkeep.contract import MAX_LINE_BYTES, Prediction, Record, Retrieved
from upkeep.errors import UpkeepError
from upkeep.files import MEND, open_regular

R = TypeVar("R", bound=Record)
S = TypeVar("S", bound=msgspec.Struct)
R_contra = TypeVar("R_contra", bound=Record, contravariant=True)

PARALLEL_BYTES = 64 * 1024 * 1024
"""Files from this size on are read by several processes."""

AGAIN = "run the cell again; it continues after the last whole line"


class Fault(NamedTuple):
    """What is wrong with a line, before it is known which file and line it is."""

    problem: str
    expected: object = None
    found: object = None
    remedy: str | None = None

    def error(self, where: object) -> UpkeepError:
        return UpkeepError(
            self.problem,
            where=where,
            expected=self.expected,
            found=self.found,
            remedy=self.remedy or MEND,
            kind="output",
        )


class Refused(Exception):
    """A line that does not belong into its file."""

    def __init__(self, problem: str, *, expected: object = None, found: object = None, remedy: str | None = None):
        self.fault = Fault(problem, expected, found, remedy)
        super().__init__(problem)


# ---------------------------------------------------------------- what a file must hold


class Scope(Protocol[R_contra]):
    """Which records a file must hold, each exactly once. They are numbered from 0 to `size` - 1, the order of
    publication; the number is called a key."""

    @property
    def size(self) -> int: ...

    def key(self, record: R_contra) -> int:
        """The number of a record. Raises Refused where it does not belong here or contradicts the dataset."""
        ...

    def name(self, key: int) -> str:
        """A record's name in messages."""
        ...


@dataclass(frozen=True)
class Answers:
    """The predictions of a cell: one for each probe and trial.

    Args:
        probes: probe ids in their order.
        trials: answers to each probe.
        documents: ids in the dataset's order (stream, position); None where they are unknown, so that retrieved ids
            go unchecked.
        first, end: for each probe, the half-open range of the documents that had arrived in its stream.
    """

    probes: Sequence[str]
    trials: int = 1
    documents: Sequence[str] | None = None
    first: Sequence[int] = ()
    end: Sequence[int] = ()
    _places: dict[str, int] = field(init=False, repr=False)
    _documents: dict[str, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_places", {probe: i for i, probe in enumerate(self.probes)})
        object.__setattr__(self, "_documents", {document: i for i, document in enumerate(self.documents or ())})

    def __reduce__(self) -> tuple[type[Answers], tuple[object, ...]]:
        return Answers, (self.probes, self.trials, self.documents, self.first, self.end)

    @property
    def size(self) -> int:
        return len(self.probes) * self.trials

    def name(self, key: int) -> str:
        probe, trial = divmod(key, self.trials)
        return f"probe {self.probes[probe]!r}, trial {trial}"

    def key(self, record: Prediction) -> int:
        probe = self._places.get(record.probe_id)
        if probe is None:
            raise Refused(
                "field `probe_id`: unknown probe",
                expected="a probe of the dataset that the cell was asked",
                found=excerpt(record.probe_id),
            )
        if record.trial >= self.trials:
            raise Refused(
                "field `trial`: no such trial", expected=f"0 to {self.trials - 1}", found=excerpt(record.trial)
            )
        if record.retrieved:
            self._check_retrieved(probe, record.retrieved)
        return probe * self.trials + record.trial

    def _check_retrieved(self, probe: int, retrieved: list[Retrieved]) -> None:
        place: Callable[[str, int], int] = self._documents.get if self.documents is not None else _nowhere
        first, end = (self.first[probe], self.end[probe]) if self.documents is not None else (-1, 0)
        # The loop that decides how fast a file is read.
        for rank, one in enumerate(retrieved, 1):
            if one.rank != rank or not first <= place(one.id, -1) < end:
                self._refuse_retrieved(rank, one)

    def _refuse_retrieved(self, rank: int, one: Retrieved) -> NoReturn:
        field = f"field `retrieved[{rank - 1}]"
        if one.rank != rank:
            raise Refused(f"{field}.rank`: ranks must count up from 1", expected=rank, found=one.rank)
        known = one.id in self._documents
        raise Refused(
            f"{field}.id`: " + ("this document had not arrived in the probe's stream" if known else "unknown document"),
            expected="a document of the probe's stream up to its position",
            found=excerpt(one.id),
        )


def _nowhere(_: str, default: int) -> int:
    """The place of a document where documents are unknown."""
    return default


# ---------------------------------------------------------------- one line


def excerpt(value: object) -> str:
    """A value for a message: its beginning, with everything that is not printable escaped."""
    text = ascii(value[:100] if isinstance(value, str | bytes) else value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def decode(line: bytes, decoder: msgspec.json.Decoder[S]) -> S:
    """Decode one line strictly.

    Raises:
        Refused: not UTF-8, not JSON, NaN or infinite numbers, or a field is missing, unknown, there twice, of a wrong
            type or value.
    """
    try:
        record = decoder.decode(line)
    except msgspec.ValidationError as error:
        raise _mismatch(str(error), line) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _malformed(error, line) from None
    # What our own encoder could have written has no key twice. Anything else is looked at closely.
    if _ENCODER.encode(record) != line.rstrip(b"\n"):
        _require_single_keys(line)
    return record


_ENCODER = msgspec.json.Encoder()


def _require_single_keys(line: bytes) -> None:
    """Refuse an object with a key twice: readers differ in which value they take."""
    try:
        json.loads(line, object_pairs_hook=_single)
    except (ValueError, RecursionError) as error:  # too deep, or a number too long, for other readers than ours
        problem = f"not plain JSON: {_brief(str(error))}"
        raise Refused(problem, expected="one JSON object a line", found=excerpt(line[:40])) from None


def _single(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise Refused(f"field `{excerpt(twice)[1:-1]}` is there twice", expected="every field once")
    return found


def _mismatch(message: str, line: bytes) -> Refused:
    """Turn msgspec's "Expected `int`, got `str` - at `$.trial`" into field, expected and found."""
    problem, _, place = message.rpartition(" - at `") if " - at `" in message else (message, "", "")
    place = place.rstrip("`").removeprefix("$").removeprefix(".")
    if odd := re.match(r"Object (missing required|contains unknown) field `(.*)`$", problem, re.DOTALL):
        kind = "missing" if odd[1].startswith("missing") else "unknown"
        name = f"{place}.{odd[2]}" if place else odd[2]
        return Refused(f"field `{excerpt(name)[1:-1]}` is {kind}", expected="the fields of the schema, no other")
    expected, _, found = problem.partition(", got ")
    return Refused(
        f"field `{place}`: wrong {'type' if found else 'value'}" if place else "not an object",
        expected=_brief(expected.removeprefix("Expected ")),
        found=found or _value(line, place),
    )


def _brief(text: str) -> str:
    """A decoder's words, in which the line may be quoted."""
    text = text if len(text) <= 160 else f"{text[:157]}..."
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _value(line: bytes, place: str) -> str:
    """What stands at a place such as `retrieved[0].rank`, as it is written."""
    raw = msgspec.Raw(line)
    try:
        for key, index in re.findall(r"([^.\[\]]+)|\[(\d+)\]", place):
            if key:
                raw = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])[key]
            else:
                raw = msgspec.json.decode(raw, type=list[msgspec.Raw])[int(index)]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, LookupError):
        pass  # further on the line is no JSON, or the place has no name; then the innermost readable part is shown
    return excerpt(bytes(raw).strip())[1:]


def _malformed(error: Exception, line: bytes) -> Refused:
    try:
        line.decode()
    except UnicodeDecodeError as wrong:
        return Refused(
            f"{_owner(line[: wrong.start])}invalid UTF-8 at byte {wrong.start}",
            expected="UTF-8",
            found=excerpt(line[wrong.start : wrong.start + 8]),
        )
    if not line.strip():
        return Refused("empty line", expected="one JSON object a line")
    at = int(number[1]) if (number := re.search(r"\(byte (\d+)\)", str(error))) else len(line)
    # The byte reported for -Infinity is the one after the sign.
    if not_finite := re.match(rb"-?(?:NaN|Infinity|nan|inf)", line[at - (line[at - 1 : at] == b"-") :]):
        return Refused(f"{_owner(line[:at])}not a number", expected="a finite number", found=not_finite[0].decode())
    problem = f"{_owner(line[:at])}not JSON: {_brief(str(error))}"
    return Refused(problem, expected="one JSON object a line", found=excerpt(line[at : at + 40]))


def _owner(before: bytes) -> str:
    """The field whose value begins in what precedes a fault, for messages."""
    names = re.findall(rb'"([A-Za-z_]+)"\s*:', before)
    return f"field `{names[-1].decode()}`: " if names else ""


# ---------------------------------------------------------------- files


def read_lines(file: BufferedReader, end: int | None = None) -> Iterator[bytes]:
    """Whole lines from the file's present place up to byte `end`, with their newline.

    Raises:
        Refused: a line is longer than `MAX_LINE_BYTES` (no more than that of it is read), or the last one is torn.
    """
    place = file.tell()
    while end is None or place < end:
        line = file.readline(MAX_LINE_BYTES + 1)
        if not line:
            return
        if not line.endswith(b"\n"):
            raise overlong() if len(line) > MAX_LINE_BYTES else torn(line)
        place += len(line)
        yield line


def overlong() -> Refused:
    return Refused("line too long", expected=f"at most {MAX_LINE_BYTES:,} bytes", found="more")


def torn(line: bytes) -> Refused:
    return Refused("truncated last line", expected="a newline at its end", found=excerpt(line[-40:]), remedy=AGAIN)


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


def _scan_packed(path: Path, record: type[Any], packed: bytes, start: int, end: int) -> _Part:
    return _scan(path, record, pickle.loads(packed), start, end)


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


def duplicate(scope: Scope[Any], key: int, earlier: str) -> Fault:
    problem = f"a second line for {scope.name(key)}"
    return Fault(problem, "each exactly once", f"the first one is {earlier}")


def _line_number(path: Path, offset: int) -> int:
    with open_regular(path) as file:
        return 1 + sum(block.count(b"\n") for block in _blocks(file, offset))


def _blocks(file: BufferedReader, size: int) -> Iterator[bytes]:
    while size > 0 and (block := file.read(min(size, 1 << 20))):
        size -= len(block)
        yield block


def read_predictions(path: Path, expected: Sequence[str], trials: int = 1) -> list[Prediction]:
    """All predictions of a file, checked and complete, in the order of `expected` (probe ids), trials together.

    Raises:
        UpkeepError: as `check_file`, or a prediction is missing.
    """
    index = check_file(path, Prediction, Answers(expected, trials))
    index.require_complete()
    decoder = msgspec.json.Decoder(Prediction)
    return [decoder.decode(line) for line in index.lines_in_order()]
