"""Shows whether a file is still what the suite wrote: fingerprints of files, seals of the records that hold them.

Whatever a step reads that another step has made is read through here. A file is known by size and SHA-256, which stand
in a record beside it (a card, a manifest); the record carries a hash of itself, its seal. So damage shows wherever it
is done, unless file, fingerprint and seal are all forged to fit.
"""

from __future__ import annotations

import functools
import os
import platform
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import msgspec

from upkeep.contract import Fingerprint, Manifest, Sealed, Sha256
from upkeep.errors import UpkeepError
from upkeep.fields import hashed
from upkeep.files import digest, hash_open, open_regular, refusal, write_atomically
from upkeep.lines import Refused, decode, excerpt

R = TypeVar("R", bound=msgspec.Struct)
S = TypeVar("S", bound=Sealed)
T = TypeVar("T")
P = ParamSpec("P")
C = TypeVar("C", bound="_HasHashes")

MAX_RECORD_BYTES = 64 * 2**20
"""No record of the suite's own is larger."""
REMEMBERED_BYTES = 8 * 2**20
"""Files from this size on are hashed once for all processes of a machine."""
SETTLED_NS = 2 * 10**9
"""A file that was changed within this time may change again without another time of change."""


class Damaged(UpkeepError):
    """A file or record is not what was written."""


class Stale(UpkeepError):
    """Something is whole, but was made of something else than what is there now: it is made again."""


class Missing(UpkeepError):
    """There is no such thing; it has not been made."""


# ---------------------------------------------------------------- hashes that are known


class _Known(Sealed, frozen=True, kw_only=True):
    """`<cache>/hashes/<machine>/...json`: the hash of a large file in one state."""

    path: str
    state: list[int]
    sha256: Sha256


class _KnownUnder(Sealed, frozen=True, kw_only=True):
    """The same of many files under one folder, by path."""

    folder: str
    files: dict[str, tuple[list[int], Sha256]]


class Hashes:
    """Hashes of files, computed once for each state of a file: size, times of modification and change, inode.

    Args:
        folder: where those of large files, and of many small ones (`keep`), are kept for other processes of this
            machine; with None every file is hashed whenever it is asked for.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = None if folder is None else folder / (platform.node() or "unnamed")
        self._known: dict[Path, tuple[list[int], str]] = {}
        self.verified: dict[tuple[object, ...], Any] | None = None
        """What was verified since `at_once` began, by what asked for it."""

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """While many jobs are looked at for one purpose, what they share is verified for the first of them alone."""
        outer, self.verified = self.verified, {} if self.verified is None else self.verified
        try:
            yield
        finally:
            self.verified = outer

    def of(self, path: Path, *, links: bool = False) -> str:
        """SHA-256 of a regular file.

        Raises:
            UpkeepError: as `files.open_regular`.
        """
        path = path.absolute()
        with open_regular(path, links=links) as file:
            return hash_open(file) if self._folder is None else self._of(path, file)

    def _of(self, path: Path, file: BufferedReader) -> str:
        found = os.fstat(file.fileno())
        state = _state(found)
        if (known := self._known.get(path)) is not None and known[0] == state:
            return known[1]
        settled = _settled(found)
        large = found.st_size >= REMEMBERED_BYTES
        sha = self._recall(path, state) if large else None
        if sha is None:
            sha = hash_open(file)
            if large and settled:
                self._keep(path, state, sha)
        if settled:
            self._known[path] = state, sha
        return sha

    def keep(self, folder: Path, files: Mapping[Path, Fingerprint]) -> None:
        """Keep what the files under a folder are, all in one file, for a process that begins with `recall`. One that
        has just been written is not kept."""
        if self._folder is None:
            return
        kept = {}
        for path, what in files.items():
            try:
                found = path.lstat()
            except OSError:
                continue  # it is gone: there is nothing to know again
            if stat.S_ISREG(found.st_mode) and found.st_size == what.size and _settled(found):
                kept[str(path.absolute())] = _state(found), what.sha256
        write_sealed(self._place(folder.absolute()), _KnownUnder(folder=str(folder.absolute()), files=kept))

    def recall(self, folder: Path) -> None:
        """Know again what `keep` kept of a folder."""
        if self._folder is None:
            return
        try:
            known = read_sealed(self._place(folder.absolute()), _KnownUnder, "")
        except UpkeepError:
            return  # none, or a damaged one, which is written again
        if known.folder == str(folder.absolute()):
            self._known |= {Path(path): what for path, what in known.files.items()}

    def _place(self, path: Path) -> Path:
        assert self._folder is not None
        return self._folder / f"{digest(str(path))[:32]}.json"

    def _recall(self, path: Path, state: list[int]) -> str | None:
        try:
            known = read_sealed(self._place(path), _Known, "")
        except UpkeepError:
            return None  # none, or a damaged one, which is written again
        return known.sha256 if (known.path, known.state) == (str(path), state) else None

    def _keep(self, path: Path, state: list[int], sha: str) -> None:
        write_sealed(self._place(path), _Known(path=str(path), state=state, sha256=sha))


def _state(found: os.stat_result) -> list[int]:
    return [found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]


def _settled(found: os.stat_result) -> bool:
    return time.time_ns() - max(found.st_mtime_ns, found.st_ctime_ns) > SETTLED_NS


NOTHING_KNOWN = Hashes(None)


class _HasHashes(Protocol):
    hashes: Hashes


def verified_once(function: Callable[Concatenate[C, P], T]) -> Callable[Concatenate[C, P], T]:
    """Of a function that verifies something: within `Hashes.at_once` it does so once for its arguments."""

    @functools.wraps(function)
    def found(catalog: C, /, *args: P.args, **more: P.kwargs) -> T:
        if (verified := catalog.hashes.verified) is None:
            return function(catalog, *args, **more)
        key = (function, args, *more.items())
        if key not in verified:
            verified[key] = function(catalog, *args, **more)
        result: T = verified[key]
        return result

    return found


def fingerprint(path: Path, hashes: Hashes = NOTHING_KNOWN, *, links: bool = False) -> Fingerprint:
    """What a file is now."""
    return Fingerprint(size=path.stat().st_size, sha256=hashes.of(path, links=links))


# ---------------------------------------------------------------- records


def seal(record: Sealed) -> str:
    """Hash of all that a record says, however it is written down."""
    try:
        return digest(hashed(msgspec.structs.replace(record, seal=None)))
    except RecursionError:
        return "none: it is nested too deep"


def sealed(record: S) -> S:
    """The record with its seal, as it is when it is read again (a whole number becomes a float where the field is one).

    Raises:
        msgspec.ValidationError: a value is beyond what the record holds.
    """
    record = _decoder(type(record)).decode(msgspec.json.encode(record))
    return msgspec.structs.replace(record, seal=seal(record))


def write_sealed(path: Path, record: S, *, durable: bool = False) -> S:
    """Seal a record and write it as JSON, in one step; returns it with its seal."""
    record = sealed(record)
    content = msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n"
    write_atomically(path, content, durable=durable)
    return record


def _decoder(record: type[R]) -> msgspec.json.Decoder[R]:
    """The decoder of a kind of record. Threads that are the first to use one at the same time would crash the process:
    msgspec works out what a record's fields are when it is first asked for."""
    with _FIRST:
        if (known := _decoders.get(record)) is None:
            known = _decoders[record] = msgspec.json.Decoder(record)
    return known


_FIRST = threading.Lock()
_decoders: dict[type, msgspec.json.Decoder[Any]] = {}


def read_record(path: Path, record: type[R], remedy: str = "make it anew with the command that wrote it") -> R:
    """Decode a JSON file of one record.

    Args:
        remedy: how to make it again.

    Raises:
        Missing: it is not there.
        Damaged: not a regular file, too large, not UTF-8, not JSON, or not as the schema has it.
    """
    if not os.path.lexists(path):
        raise Missing("file not found", where=path, expected=f"a {record.__name__} as in schema/", remedy=remedy)
    try:
        with open_regular(path, MAX_RECORD_BYTES) as file:
            return decode(file.read(), _decoder(record))
    except Refused as refused:
        raise damaged(refused.fault.error(path), remedy) from None
    except UpkeepError as error:
        raise damaged(error, remedy) from None


def read_sealed(path: Path, record: type[S], remedy: str) -> S:
    """As `read_record`, for a record that must be the one that was written.

    Raises:
        Missing, Damaged: as `read_record`; or its seal is another one.
    """
    found = read_record(path, record, remedy)
    if found.seal != (expected := seal(found)):
        raise Damaged(
            "not the record that was written", where=path, expected=f"seal {expected}", found=found.seal, remedy=remedy
        )
    return found


def damaged(error: UpkeepError, remedy: str) -> UpkeepError:
    """What is wrong with a file of the suite's own, with the way to make it again. Of a file system that fails, nothing
    is known about the file."""
    if error.kind == "machine":
        return error
    return Damaged(error.problem, where=error.where, expected=error.expected, found=error.found, remedy=remedy)


# ---------------------------------------------------------------- folders


AGAIN = "./upkeep run makes it again, and so does ./upkeep cell or model train with --force"
"""What to do about a published folder that is damaged."""


def verify_files(
    folder: Path,
    files: Mapping[str, Fingerprint],
    remedy: str,
    hashes: Hashes = NOTHING_KNOWN,
    *,
    links: bool = False,
) -> None:
    """Check that a folder holds these files as they were written.

    Args:
        remedy: how to make them again.
        links: files may be symbolic links.

    Raises:
        Damaged: one is not there, no regular file, or another one.
    """
    for name, wanted in files.items():
        path = folder / name
        if ".." in name.split("/") or name.startswith("/"):
            raise Damaged("a file outside the folder", where=folder, found=excerpt(name), remedy=remedy)
        try:
            there = path.stat() if links else path.lstat()
        except FileNotFoundError:
            raise Damaged("file not found", where=path, expected=f"sha256 {wanted.sha256}", remedy=remedy) from None
        except OSError as error:
            unreadable = Damaged("cannot be read", where=path, found=error.strerror, remedy=remedy)
            raise refusal(error, path) or unreadable from None
        try:
            # Of another size, a regular file is another one; anything else is refused when it is opened.
            same = there.st_size == wanted.size or not stat.S_ISREG(there.st_mode)
            found = hashes.of(path, links=links) if same else None
        except UpkeepError as error:
            raise damaged(error, remedy) from None
        if found != wanted.sha256:
            raise Damaged(
                "not the file that was written",
                where=path,
                expected=f"sha256 {wanted.sha256}, {wanted.size:,} bytes",
                found=(f"sha256 {found}, " if found else "") + f"{there.st_size:,} bytes",
                remedy=remedy,
            )


def verify_names(folder: Path, there: Iterable[str], files: Mapping[str, Fingerprint], remedy: str) -> None:
    """Check that a folder holds no other files than these.

    Args:
        there: the files under the folder that count, as `files` names them.

    Raises:
        Damaged: there is one more.
    """
    if extra := set(there) - files.keys():
        raise Damaged(
            "a file that nothing names",
            where=folder,
            expected=", ".join(sorted(files)),
            found=", ".join(sorted(map(excerpt, extra))[:5]),
            remedy=f"remove it, or {remedy}",
        )


def verify_folder(folder: Path, hashes: Hashes = NOTHING_KNOWN) -> Manifest:
    """The manifest of a published folder, after checking that it and the files agree.

    Raises:
        Missing: there is none.
        Damaged: it is not the one that was written, or a file is missing, changed or not named in it.
    """
    remedy = AGAIN
    manifest = read_sealed(folder / "manifest.json", Manifest, remedy)
    verify_files(folder, manifest.files, remedy, hashes)
    verify_names(folder, (name for name in _names(folder) if name != "manifest.json"), manifest.files, remedy)
    return manifest


def _names(folder: Path, above: str = "") -> Iterator[str]:
    """All files under a folder, and links, which are not followed."""
    with os.scandir(folder) as found:
        for one in found:
            if one.is_dir(follow_symlinks=False):
                yield from _names(folder / one.name, f"{above}{one.name}/")
            else:
                yield above + one.name
