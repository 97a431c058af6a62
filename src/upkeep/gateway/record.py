"""The record of replies: what an engine or an endpoint answered to a request, kept by the content of both, and never
asked again.

`<record>/<engine>/` holds the replies of one engine: `engine.json` says which one (`EngineRecord`), and each process
that adds replies appends to a log of its own there, so that no two writers meet, on a shared file system either. A log
is a run of entries:

    mark (4 bytes), length of the value (u32), time (u64, ns), check (16 bytes), key (32 bytes), value (MessagePack)

The check is over the engine and all of the entry, so a flipped bit, a torn end or an entry of another engine is never
taken for a reply: it is passed over, and the model is asked again. Beside each log lies an index of it, which may be
thrown away. Of two replies to one request the later one counts. Nothing expires by itself.
"""

from __future__ import annotations

import hashlib
import os
import platform
import secrets
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np

from upkeep.contract import Sealed, Sha256
from upkeep.errors import UpkeepError
from upkeep.files import digest, open_regular, storing
from upkeep.integrity import Damaged, Missing, read_sealed, write_sealed

Asking = Literal["unknown", "everything", "nothing"]
"""What a model is asked: what is not in the record, everything, or nothing."""

MARK = b"\xf1upk"
KEY_BYTES = 32
MAX_VALUE_BYTES = 256 * 2**20
"""As the longest frame of an engine."""
SYNC_S = 5.0
"""How often what was added is brought to disk, so that a machine that loses its power loses no more than that."""
OPEN_LOGS = 128
"""Logs that are held open for reading."""

_HEAD = struct.Struct("<4sIQ16s32s")
_INDEX = struct.Struct("<QQQQII")
_ROW = np.dtype([("high", "<u8"), ("low", "<u8"), ("time", "<u8"), ("at", "<u8"), ("size", "<u4"), ("log", "<u4")])
"""Of the index: the first 16 bytes of the key, when the entry was written, and where it lies."""
_HALVES = struct.Struct("<QQ")
_FACTS = "put back the file; or run a cell of that engine, which writes it anew; or remove its folder"


class NotRecorded(UpkeepError):
    """A request that only the model itself could answer."""

    def __init__(self, model: str, job: object) -> None:
        super().__init__(
            f"it asks the model {model!r} something that is not in the record",
            where=job,
            remedy="run it where the model is: `./upkeep run`, or this cell alone",
            kind="engine",
        )


class EngineRecord(Sealed, frozen=True, kw_only=True):
    """`engine.json`: which engine the replies beside it are of."""

    engine: Sha256
    """Hash of `parts`; the folder has its name."""
    model: str
    """The name that the model was last asked by; it is no part of what the engine is."""
    parts: dict[str, str]
    """What determines its replies (`engines.engine_parts`)."""
    ready: dict[str, Any]
    """What it said of itself when it was ready: name, version, context length, machine."""


def key_of(kind: str, *content: bytes) -> bytes:
    """What a reply is kept by: the kind of request and all that it says."""
    total = hashlib.blake2b(digest_size=KEY_BYTES)
    for part in (kind.encode(), *content):
        total.update(len(part).to_bytes(8, "little"))
        total.update(part)
    return total.digest()


class Replies:
    """The replies of one engine. For one process.

    Args:
        record: folder of all engines' replies.
        parts: which engine it is; what determines its replies.
        model: the name that the model is asked by.
    """

    def __init__(self, record: Path, parts: dict[str, str], model: str) -> None:
        self.engine, self.parts, self.model = digest(parts), parts, model
        self.folder = record / self.engine
        self._salt = bytes.fromhex(self.engine)
        self._logs: list[Path] = []
        self._sizes: dict[Path, int] = {}
        self._files: dict[int, int] = {}
        self._rows = np.empty(0, _ROW)
        self._high = self._rows["high"]
        self._writer: _Writer | None = None
        self._lock = threading.RLock()
        self.refresh()

    # ------------------------------------------------------------ the engine

    def ready(self) -> dict[str, Any] | None:
        """What the engine said of itself when it was last loaded; None where nobody can tell: then it is loaded."""
        try:
            return _which(self.folder / "engine.json").ready
        except (Missing, Damaged):
            return None

    def say_ready(self, ready: dict[str, Any]) -> None:
        """Keep what the engine says of itself."""
        found = EngineRecord(engine=self.engine, model=self.model, parts=self.parts, ready=ready)
        write_sealed(self.folder / "engine.json", found, durable=True)

    # ------------------------------------------------------------ replies

    def get(self, key: bytes) -> bytes | None:
        """The value kept for a key; None where there is none that is whole."""
        with self._lock:
            return self._get(key)

    def _get(self, key: bytes) -> bytes | None:
        if self._writer is not None and (value := self._writer.get(key)) is not None:
            return value
        high, low = _HALVES.unpack_from(key)
        place, best = int(np.searchsorted(self._high, np.uint64(high))), (-1, b"")
        while place < len(self._rows) and self._high[place] == high:
            _, of_low, stamp, at, size, log = self._rows[place].item()
            if of_low == low and stamp > best[0] and (value := self._read(log, at, size, key)) is not None:
                best = stamp, value
            place += 1
        return best[1] if best[0] >= 0 else None

    def put(self, key: bytes, value: bytes, stamp: int | None = None, *, durable: bool = False) -> None:
        """Keep a reply, in place of an earlier one to the same request.

        Args:
            stamp: when it was given (ns since 1970); by default now.
            durable: bring it to disk at once.

        Raises:
            UpkeepError: there is no room for it; the log ends with the entry before.
        """
        with self._lock:
            if self._writer is None:
                self._writer = _Writer(self.folder, self._salt)
            self._writer.append(key, value, time.time_ns() if stamp is None else stamp, durable)

    def close(self) -> None:
        """Bring everything to disk and let go of the files."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        for descriptor in self._files.values():
            os.close(descriptor)
        self._files.clear()
        self.refresh()

    def refresh(self) -> None:
        """Take in what others have added."""
        with self._lock:
            self._refresh()

    def _refresh(self) -> None:
        own = self._writer.path if self._writer is not None else None
        logs = sorted(path for path in self.folder.glob("*.log") if path != own)
        sizes = {path: path.stat().st_size for path in logs}
        if sizes == self._sizes:
            return
        for descriptor in self._files.values():
            os.close(descriptor)
        self._files.clear()
        found = [_rows_of(path, number, self._salt) for number, path in enumerate(logs)]
        rows = np.concatenate(found) if found else np.empty(0, _ROW)
        self._rows = rows[np.argsort(rows["high"], kind="stable")]
        self._high = np.ascontiguousarray(self._rows["high"])
        self._logs, self._sizes = logs, sizes

    def __len__(self) -> int:
        """Entries, with those that a later one has taken the place of."""
        return len(self._rows) + (len(self._writer.places) if self._writer is not None else 0)

    def entries(self) -> Iterator[tuple[int, bytes, bytes]]:
        """Time, key and value of every whole entry, log by log."""
        for path in self._logs:
            for _, stamp, key, value in _scan(path, self._salt, 0):
                yield stamp, key, value

    def _read(self, log: int, at: int, size: int, key: bytes) -> bytes | None:
        if (descriptor := self._files.get(log)) is None:
            if len(self._files) >= OPEN_LOGS:
                os.close(self._files.pop(next(iter(self._files))))
            try:
                descriptor = self._files[log] = os.open(self._logs[log], os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            except OSError:
                return None
        data = os.pread(descriptor, _HEAD.size + size, at)
        found = _entry(data, self._salt)
        return data[_HEAD.size :] if found is not None and found[1] == key else None


class _Writer:
    """A log of this process's own, and its index."""

    def __init__(self, folder: Path, salt: bytes) -> None:
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
        node = "".join(c if c.isalnum() else "-" for c in platform.node() or "unnamed")[:40]
        self.path = folder / f"{stamp}-{node}-{os.getpid()}-{secrets.token_hex(4)}.log"
        self._salt, self._end, self._synced = salt, 0, time.monotonic()
        self.places: dict[bytes, tuple[int, int]] = {}
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        with storing(self.path):
            folder.mkdir(parents=True, exist_ok=True)
            self._log = os.open(self.path, flags, 0o644)
            self._index = os.open(self.path.with_suffix(".index"), flags, 0o644)

    def append(self, key: bytes, value: bytes, stamp: int, durable: bool) -> None:
        check = _check(self._salt, stamp, key, value)
        entry = _HEAD.pack(MARK, len(value), stamp, check, key) + value
        with storing(self.path):
            try:
                _write(self._log, entry)
                _write(self._index, _row(key, stamp, self._end, len(value)))
                self.places[key] = self._end, len(value)
            except BaseException:
                os.ftruncate(self._log, self._end)  # whatever comes next begins where an entry begins
                raise
            self._end += len(entry)
            if durable or time.monotonic() - self._synced > SYNC_S:
                os.fsync(self._log)
                self._synced = time.monotonic()

    def get(self, key: bytes) -> bytes | None:
        if (place := self.places.get(key)) is None:
            return None
        at, size = place
        data = os.pread(self._log, _HEAD.size + size, at)
        return data[_HEAD.size :] if _entry(data, self._salt) is not None else None

    def close(self) -> None:
        with storing(self.path):
            os.fsync(self._log)
        os.close(self._log)
        os.close(self._index)


def _write(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _row(key: bytes, stamp: int, at: int, size: int) -> bytes:
    return _INDEX.pack(*_HALVES.unpack_from(key), stamp, at, size, 0)


def _check(salt: bytes, stamp: int, key: bytes, value: bytes) -> bytes:
    total = hashlib.blake2b(key=salt, digest_size=16)
    total.update(stamp.to_bytes(8, "little"))
    total.update(key)
    total.update(value)
    return total.digest()


def _entry(data: bytes, salt: bytes) -> tuple[int, bytes] | None:
    """Time and key of the entry that `data` is; None where it is none."""
    if len(data) < _HEAD.size:
        return None
    mark, size, stamp, check, key = _HEAD.unpack_from(data)
    value = memoryview(data)[_HEAD.size :]
    if mark != MARK or size != len(value) or _check(salt, stamp, key, value) != check:  # type: ignore[arg-type]
        return None
    return stamp, key


# ---------------------------------------------------------------- the index


def _rows_of(path: Path, number: int, salt: bytes) -> np.ndarray[Any, np.dtype[Any]]:
    """The index rows of a log: those beside it, as far as they go, and those of what comes after them.

    A row that is wrong leads to no entry with its key, so it costs a question and never gives a wrong reply.
    """
    try:
        with open_regular(path.with_suffix(".index")) as file:
            data = file.read()
    except UpkeepError:
        data = b""  # none, or none that can be read
    rows = np.frombuffer(data[: len(data) - len(data) % _ROW.itemsize], _ROW).copy()
    size = path.stat().st_size
    ends = rows["at"] + np.uint64(_HEAD.size) + rows["size"]
    # Rows follow each other without a gap. Where one does not, it or the one before is wrong: the log itself is read.
    begins = np.concatenate([[0], ends[:-1]]) if len(rows) else ends
    wrong = np.flatnonzero((rows["at"] != begins) | (ends > size))
    rows = rows[: max(0, wrong[0] - 1)] if len(wrong) else rows
    covered = int(ends[len(rows) - 1]) if len(rows) else 0
    if covered < size:
        more = [_row(key, stamp, at, len(value)) for at, stamp, key, value in _scan(path, salt, covered)]
        rows = np.concatenate([rows, np.frombuffer(b"".join(more), _ROW)])
    rows["log"] = number
    return rows


def _scan(path: Path, salt: bytes, start: int) -> Iterator[tuple[int, int, bytes, bytes]]:
    """Place, time, key and value of each whole entry of a log; what is damaged is passed over.

    Raises:
        UpkeepError: the log is no regular file.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        at = start
        while at + _HEAD.size <= size:
            file.seek(at)
            head = file.read(_HEAD.size)
            length = int.from_bytes(head[4:8], "little")
            if head[:4] == MARK and length <= MAX_VALUE_BYTES and at + _HEAD.size + length <= size:
                value = file.read(length)
                found = _entry(head + value, salt)
                if found is not None:
                    yield at, *found, value
                    at += _HEAD.size + length
                    continue
            following = _next_mark(file.fileno(), at + 1, size)
            if following is None:
                return
            at = following


def _next_mark(descriptor: int, start: int, size: int) -> int | None:
    """Where an entry may begin, from a place on."""
    block = 1 << 20
    while start < size:
        data = os.pread(descriptor, block, start)
        if (found := data.find(MARK)) >= 0:
            return start + found
        if len(data) < block:
            return None
        start += len(data) - len(MARK) + 1
    return None


# ---------------------------------------------------------------- all engines


def engines(record: Path) -> list[EngineRecord]:
    """The engines that a record holds replies of.

    Raises:
        Damaged: one does not say which it is.
    """
    return [_which(path) for path in sorted(record.glob("*/engine.json"))]


def _which(path: Path) -> EngineRecord:
    found = read_sealed(path, EngineRecord, _FACTS)
    if found.engine != path.parent.name or digest(found.parts) != found.engine:
        raise Damaged(
            "the record of another engine", where=path, expected=path.parent.name, found=found.engine, remedy=_FACTS
        )
    return found
