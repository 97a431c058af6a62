"""What the host has accepted of a container's output, in files of its own that no container has."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import time
from collections.abc import Iterable, Iterator
from io import BufferedReader
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from upkeep.contract import MAX_LINE_BYTES, Record
from upkeep.errors import UpkeepError
from upkeep.files import open_regular, remove, storing
from upkeep.lines import Refused, decode
from upkeep.record_files import check_file, duplicate
from upkeep.scope import Scope

R = TypeVar("R", bound=Record)

SYNC_S = 10.0
"""What a machine that loses its power may take of the accepted records."""
SUM_BYTES = 8
"""Of a line's sum."""


class Collected(Generic[R]):
    """The records that the host has accepted, in a file of its own in which each line is whole and checked.

    Beside it lies a file of sums, one a line, so that what is damaged between two attempts is asked for again and does
    not come into a result.

    Args:
        path: the file; what is there is gone on with.
        key: of the sums, the same in all attempts, in hexadecimal digits.
    """

    def __init__(self, path: Path, record: type[R], scope: Scope[R], key: str) -> None:
        self.path, self.scope = path, scope
        self.sums = path.with_suffix(".sums")
        self.decoder = msgspec.json.Decoder(record)
        self._key = bytes.fromhex(key)
        self._drop_what_was_not_accepted()
        with contextlib.ExitStack() as opened:
            with storing(path):
                self._file = opened.enter_context(path.open("ab", buffering=0))
                self._sums = opened.enter_context(self.sums.open("ab", buffering=0))
            index = check_file(path, record, scope)
            self._opened = opened.pop_all()
        self._synced = time.monotonic()
        self.done = bytearray(offset >= 0 for offset in index.offsets)
        self.count = index.lines
        self._asked = bytearray(scope.size)

    def __enter__(self) -> Collected[R]:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    @property
    def complete(self) -> bool:
        return self.count == self.scope.size

    def ask(self, keys: Iterable[int]) -> None:
        """Accept these records from now on."""
        for key in keys:
            self._asked[key] = 1

    def add(self, lines: Iterable[bytes], first: int, where: Path) -> int:
        """Check lines and keep them, those before a refused one too; how many.

        Args:
            first: number of the first of them in the container's file.
            where: that file, for messages.

        Raises:
            UpkeepError: a line is refused.
        """
        kept = []
        try:
            for line in lines:
                key = self._accept(line)
                self.done[key] = 1
                kept.append(line)
        except Refused as refused:
            raise refused.fault.error(f"{where}:{first + len(kept)}") from None
        finally:
            self._store(kept)
            self.count += len(kept)
        return len(kept)

    def _store(self, lines: list[bytes]) -> None:
        """Append lines, their sums first; on disk for good is all but the last seconds."""
        with storing(self.path):
            for file, content in ((self._sums, b"".join(map(self._sum, lines))), (self._file, b"".join(lines))):
                rest = memoryview(content)
                while rest:
                    rest = rest[file.write(rest) :]
            if time.monotonic() - self._synced > SYNC_S:
                os.fdatasync(self._sums.fileno())
                os.fdatasync(self._file.fileno())
                self._synced = time.monotonic()

    def _accept(self, line: bytes) -> int:
        key = self.scope.key(decode(line, self.decoder))
        if self.done[key]:
            fault = duplicate(self.scope, key, "there already")
            raise Refused(fault.problem, expected=fault.expected, found=fault.found)
        if not self._asked[key]:
            raise Refused(f"a line for {self.scope.name(key)}", expected="what has been asked", found="not asked yet")
        return key

    def _sum(self, line: bytes) -> bytes:
        return hashlib.blake2b(line, digest_size=SUM_BYTES, key=self._key).digest()

    def _drop_what_was_not_accepted(self) -> None:
        """Cut the file before the first line that is torn, as a killed host leaves it, or is not what was accepted."""
        lines = size = end = 0
        try:
            with open_regular(self.path) as file, open_regular(self.sums) as sums:
                size = os.fstat(file.fileno()).st_size
                for line in _whole_lines(file):
                    if sums.read(SUM_BYTES) != self._sum(line):
                        print(f"upkeep: {self.path}:{lines + 1}: not what was accepted; asked again", file=sys.stderr)
                        break
                    lines, end = lines + 1, end + len(line)
        except UpkeepError:
            # Nothing was accepted yet, or nobody can tell what was.
            remove(self.path)
            remove(self.sums)
            return
        with storing(self.path):
            if end < size:
                os.truncate(self.path, end)
            os.truncate(self.sums, lines * SUM_BYTES)


def _whole_lines(file: BufferedReader) -> Iterator[bytes]:
    while (line := file.readline(MAX_LINE_BYTES + 1)).endswith(b"\n"):
        yield line
