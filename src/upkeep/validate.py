"""Reads what others wrote (containers above all) and refuses it with file, line, field, what was expected and found.

A container's output is hostile: the file may be a link, a pipe, endless, in no encoding, or change while it is read.
So files are opened without following links, only regular ones are read, no line is held in memory beyond
`MAX_LINE_BYTES`, and every line is decoded strictly into its record.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import pickle
import re
import stat
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from io import BufferedReader, FileIO
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Generic, NamedTuple, NoReturn, Protocol, TypeVar

import msgspec

from upkeep.contract import (
    BOUNDARY,
    MAX_LINE_BYTES,
    CellDescription,
    DatasetCard,
    Manifest,
    Memory,
    Pair,
    Prediction,
    Record,
    Retrieved,
    Round,
)
from upkeep.errors import UpkeepError
from upkeep.files import digest

R = TypeVar("R", bound=Record)
R_contra = TypeVar("R_contra", bound=Record, contravariant=True)

PARALLEL_BYTES = 64 * 1024 * 1024
"""Files from this size on are read by several processes."""

AGAIN = "run the cell again; it continues after the last whole line"
MEND = "mend what wrote this, then run it again"


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


@dataclass(frozen=True)
class Memories:
    """The memories of a method: one after each document. `heads` are the (stream, position) in their order."""

    heads: Sequence[tuple[str, int]]
    _places: dict[tuple[str, int], int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_places", {head: i for i, head in enumerate(self.heads)})

    @property
    def size(self) -> int:
        return len(self.heads)

    def name(self, key: int) -> str:
        stream, position = self.heads[key]
        return f"stream {stream!r}, position {position}"

    def key(self, record: Memory) -> int:
        place = self._places.get((record.stream, record.position))
        if place is None:
            raise Refused(
                "fields `stream`, `position`: no such document",
                expected="a document of the dataset",
                found=f"{excerpt(record.stream)}, {record.position}",
            )
        return place


# ---------------------------------------------------------------- one line


def excerpt(value: object) -> str:
    """A value for a message: its beginning, with everything that is not printable escaped."""
    text = ascii(value[:100] if isinstance(value, str | bytes) else value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def decode(line: bytes, decoder: msgspec.json.Decoder[R]) -> R:
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
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass  # further on the line is no JSON; then the innermost readable part is shown
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


def open_regular(path: Path, max_bytes: int | None = None) -> BufferedReader:
    """Open a file for reading, and only a regular one: no link is followed and no pipe waited for.

    Raises:
        UpkeepError: it is missing, a link, a pipe, a device or a folder, unreadable, or larger than `max_bytes`.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise _unreadable(path, _obstacle(path, error)) from None
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        raise _unreadable(path, kind_of_file(found.st_mode))
    if max_bytes is not None and found.st_size > max_bytes:
        os.close(descriptor)
        raise UpkeepError(
            "file too large",
            where=path,
            expected=f"at most {max_bytes:,} bytes",
            found=f"{found.st_size:,} bytes",
            remedy="see what the method writes, or raise `resources.disk_gb` in its method.yaml",
            kind="output",
        )
    return BufferedReader(FileIO(descriptor), 1 << 20)


def _unreadable(path: Path, found: str) -> UpkeepError:
    return UpkeepError("cannot be read", where=path, expected="a regular file", found=found, remedy=MEND, kind="output")


def _obstacle(path: Path, error: OSError) -> str:
    """Why a file cannot be opened."""
    if error.errno == errno.EAGAIN:
        return "a lease on it, so that it opens for nobody else"
    try:
        mode = path.lstat().st_mode
    except OSError:
        mode = stat.S_IFREG
    return os.strerror(error.errno or 0) if stat.S_ISREG(mode) else kind_of_file(mode)


def kind_of_file(mode: int) -> str:
    """What a file is by its mode, in words."""
    kinds = {
        stat.S_IFREG: "another file",
        stat.S_IFLNK: "a symbolic link",
        stat.S_IFIFO: "a pipe",
        stat.S_IFDIR: "a folder",
        stat.S_IFSOCK: "a socket",
    }
    return kinds.get(stat.S_IFMT(mode), "a device")


def hash_file(path: Path) -> str:
    """SHA-256 of a regular file."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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


# ---------------------------------------------------------------- whole things, for `upkeep validate`


def read_record(path: Path, record: type[R]) -> R:
    """Decode a JSON file of one record.

    Raises:
        UpkeepError: missing, no regular file, not UTF-8, not JSON, or not as the schema has it.
    """
    with open_regular(path) as file:
        content = file.read()
    try:
        return decode(content, msgspec.json.Decoder(record))
    except Refused as refused:
        raise refused.fault._replace(remedy="make it anew with the command that wrote it").error(path) from None


def verify_folder(folder: Path) -> Manifest:
    """The manifest of a published folder, after checking that it and the files agree.

    Raises:
        UpkeepError: the manifest is not as its schema has it, or a file is missing, changed or not named in it.
    """
    manifest = read_record(folder / "manifest.json", Manifest)
    if manifest.seal != (expected := seal(manifest)):
        raise UpkeepError(
            "the manifest is not the one that was published",
            where=folder / "manifest.json",
            expected=f"seal {expected}",
            found=manifest.seal,
            remedy="make it again with --force",
        )
    _verify_hashes(folder, manifest.files)
    there = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if not p.is_dir() or p.is_symlink()}
    if extra := there - manifest.files.keys() - {"manifest.json"}:
        raise UpkeepError(
            "a file that the manifest does not name",
            where=folder,
            expected=", ".join(sorted(manifest.files)),
            found=", ".join(sorted(extra)[:5]),
            remedy="remove it, or run the cell again with --force",
        )
    return manifest


def seal(manifest: Manifest) -> str:
    """Hash of all that a manifest says, however it is written down."""
    try:
        return digest(msgspec.to_builtins(msgspec.structs.replace(manifest, seal=None)))
    except RecursionError:
        return "none: it is nested too deep"


def _verify_hashes(folder: Path, files: Mapping[str, str]) -> None:
    for name, expected in files.items():
        if ".." in Path(name).parts or Path(name).is_absolute():
            raise UpkeepError("a file outside the folder", where=folder / "manifest.json", found=excerpt(name))
        if (found := hash_file(folder / name)) != expected:
            raise UpkeepError(
                "the file is not the one that was hashed",
                where=folder / name,
                expected=f"sha256 {expected}",
                found=f"sha256 {found}",
                remedy="make it again with --force",
            )


def validate_path(path: Path, results: Path | None = None) -> str:
    """Check predictions, a manifest, a cell, a dataset or a card, whichever the path is, and say what it is.

    Args:
        results: where the built datasets lie; by default the folder that holds `cells/`, found from the path itself.

    Raises:
        UpkeepError: for the first thing that is wrong.
    """
    path = path.absolute()
    if path.is_dir():
        for name, check in _FOLDERS.items():
            if (path / name).exists():
                return check(path / name, results)
        raise UpkeepError(
            "nothing that can be checked in this folder", where=path, expected=f"one of {', '.join(_FOLDERS)}"
        )
    if known := _FOLDERS.get(path.name) or _NAMES.get(path.name):
        return known(path, results)
    if path.suffix in {".yaml", ".yml"}:
        return _check_yaml(path)
    if path.suffix == ".jsonl":
        return _check_predictions(path, results)
    raise UpkeepError(
        "do not know how to check this",
        where=path,
        expected="predictions (.jsonl), manifest.json, card.json, cell.json, a YAML card, or a folder with one of them",
    )


def _check_predictions(path: Path, results: Path | None) -> str:
    manifest = path.with_name("manifest.json")
    if manifest.is_file():
        return _check_cell(manifest, results)
    return _check_lines(path, Prediction, "predictions") + "; which probes there must be is unknown (no manifest.json)"


def _check_cell(path: Path, results: Path | None) -> str:
    """A published folder: hashes, and for a cell every prediction, against its dataset where that is built."""
    folder, manifest = path.parent, verify_folder(path.parent)
    if "predictions.jsonl" not in manifest.files:
        return f"{manifest.cell}: {len(manifest.files)} files as in the manifest"
    dataset = (results or folder.parents[4]) / "datasets" / manifest.cell.split("/")[0]
    predictions = folder / "predictions.jsonl"
    if not (dataset / "probes.parquet").is_file():
        text = _check_lines(predictions, Prediction, "predictions")
        return f"{manifest.cell}: {text}; completeness unchecked, for the dataset is not built ({dataset})"
    from upkeep.host.feed import Corpus

    _verify_hashes(dataset, read_record(dataset / "card.json", DatasetCard).files)
    index = check_file(predictions, Prediction, Corpus.read(dataset).answers(manifest.trials))
    index.require_complete()
    if (found := sum(manifest.outcomes.values())) != index.lines or manifest.probes * manifest.trials != index.lines:
        raise UpkeepError(
            "the manifest's counts are not those of the predictions", where=path, expected=index.lines, found=found
        )
    return f"{manifest.cell}: {index.lines:,} predictions, complete, as in the manifest"


def _check_lines(path: Path, record: type[R], what: str) -> str:
    count, seen = 0, set()
    decoder = msgspec.json.Decoder(record)
    with open_regular(path) as file:
        try:
            for line in read_lines(file):
                value = decode(line, decoder)
                match value:
                    case Prediction():
                        key: object = (value.probe_id, value.trial)
                    case Memory():
                        key = (value.stream, value.position)
                    case _:
                        key = count
                if key in seen:
                    raise Refused(f"a second line for {key}", expected="each exactly once")
                seen.add(key)
                count += 1
        except Refused as refused:
            raise refused.fault.error(f"{path}:{count + 1}") from None
    return f"{count:,} {what}"


def _check_dataset(path: Path, _: Path | None) -> str:
    from upkeep.datasets.store import validate

    card = validate(path.parent)
    return f"{card.dataset}: {card.documents:,} documents, {card.probes:,} probes, files as in the card"


def _check_yaml(path: Path) -> str:
    from upkeep.catalog import read_yaml

    names = {"method.yaml": "method", "dataset.yaml": "dataset", "suite.yaml": "suite", "config.yaml": "config"}
    kind = names.get(path.name) or {"models": "model", "suites": "suite"}.get(path.parent.name)
    if kind is None:
        raise UpkeepError(
            "do not know how to check this",
            where=path,
            expected=f"{', '.join(names)}, models/*.yaml or config/suites/*.yaml",
        )
    read_yaml(path, BOUNDARY[kind])  # type: ignore[type-var]
    return f"{path.name}: a valid {kind}"


def _check_record(record: type[Record], path: Path, _: Path | None) -> str:
    read_record(path, record)
    return f"{path.name}: a valid {record.__name__}"


def _check_jsonl(record: type[Record], what: str, path: Path, _: Path | None) -> str:
    return _check_lines(path, record, what)


_FOLDERS: dict[str, Callable[[Path, Path | None], str]] = {
    "manifest.json": _check_cell,
    "card.json": _check_dataset,
    "predictions.jsonl": _check_predictions,
    "method.yaml": lambda path, _: _check_yaml(path),
    "dataset.yaml": lambda path, _: _check_yaml(path),
    "suite.yaml": lambda path, _: _check_yaml(path),
}
_NAMES: dict[str, Callable[[Path, Path | None], str]] = {
    "cell.json": partial(_check_record, CellDescription),
    "memory.jsonl": partial(_check_jsonl, Memory, "memories"),
    "pairs.jsonl": partial(_check_jsonl, Pair, "pairs"),
    "rounds.jsonl": partial(_check_jsonl, Round, "rounds"),
}
