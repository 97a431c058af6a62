"""What an endpoint has cost, and that it costs no more than its budget.

Before a request is sent, the most that it can cost is written down as reserved; afterwards, what it did cost. Both are
lines of one file, appended and brought to disk under a lock, so several jobs on several nodes share one budget. A
reservation without an end, as a killed process leaves it, counts for good: nobody knows whether that request was
answered and charged.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, BinaryIO, Literal

import msgspec
from msgspec import Meta, Struct

from upkeep.errors import UpkeepError

EPSILON = 1e-9
"""US dollars: sums of floats are compared with this tolerance."""


class Entry(Struct, frozen=True, forbid_unknown_fields=True):
    """A line of the ledger."""

    id: str
    """The request's attempt."""
    event: Literal["reserved", "settled"]
    usd: Annotated[float, Meta(ge=0)]
    """The most that it can cost; what it cost."""
    at: float
    """Seconds since 1970."""
    by: str
    """Node and process."""


_DECODER = msgspec.json.Decoder(Entry)


@dataclass(frozen=True, slots=True)
class Spent:
    """US dollars."""

    settled: float
    reserved: float
    """By requests in flight, and by those whose process was killed."""

    @property
    def total(self) -> float:
        return self.settled + self.reserved


class _Book:
    """The sums over a ledger's lines, as far as they have been read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.settled = 0.0
        self.open: dict[str, Entry] = {}
        self._place = 0
        self._lines = 0

    def catch_up(self, file: BinaryIO) -> int:
        """Read the lines that are new; where the last whole one ends.

        Raises:
            UpkeepError: a line is none, or some are gone.
        """
        file.seek(self._place)
        data = file.read()
        whole = data.rfind(b"\n") + 1
        for line in data[:whole].splitlines():
            self._lines += 1
            self._add(line)
        if not data and file.seek(0, os.SEEK_END) < self._place:
            raise self._damaged("lines that were there are gone")
        self._place += whole
        return self._place

    def _add(self, line: bytes) -> None:
        try:
            entry = _DECODER.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise self._damaged(str(error)) from None
        if entry.event == "reserved" and entry.id not in self.open:
            self.open[entry.id] = entry
        elif entry.event == "settled" and self.open.pop(entry.id, None) is not None:
            self.settled += entry.usd
        else:
            raise self._damaged(f"{entry.id!r} is {entry.event} out of order")

    def _damaged(self, found: str) -> UpkeepError:
        return UpkeepError(
            "the ledger is damaged, so nobody knows what is left of the budget",
            where=f"{self.path}:{self._lines}",
            found=found,
            remedy="mend the line; or move the file away and lower the budget by what the provider has charged",
            kind="budget",
        )

    @property
    def spent(self) -> Spent:
        return Spent(self.settled, sum(entry.usd for entry in self.open.values()))


def read(path: Path) -> Spent:
    """What a ledger says; nothing where there is none.

    Raises:
        UpkeepError: it is damaged.
    """
    book = _Book(path)
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        book.catch_up(file)
    return book.spent


class Ledger:
    """One model's ledger, to be written to. May be used by several threads.

    Args:
        model: for messages.
        budget: US dollars, over all runs.
        patience_s: after so long, a reservation without an end is taken for a killed process's.
    """

    def __init__(self, path: Path, model: str, budget: float, patience_s: float) -> None:
        self.path, self.model, self.budget, self.patience_s = path, model, budget, patience_s
        self._book = _Book(path)
        self._lock = threading.Lock()
        self._by = f"{platform.node()}:{os.getpid()}"

    def reserve(self, usd: float) -> str | None:
        """Set an amount aside before a request is sent.

        Returns:
            The reservation, for `settle`; None where the budget may have room when requests that are now in flight
            have ended.

        Raises:
            UpkeepError: the budget has no room for it, or the ledger cannot be read or written.
        """
        with self._opened() as file:
            book, moment = self._book, time.time()
            live = sum(e.usd for e in book.open.values() if moment - e.at < self.patience_s)
            total = book.spent.total
            if total + usd > self.budget + EPSILON:
                if total - live + usd <= self.budget + EPSILON:
                    return None
                raise self._exhausted(book.spent, usd)
            number = os.urandom(8).hex()
            self._append(file, Entry(number, "reserved", usd, moment, self._by))
            return number

    def settle(self, number: str, usd: float) -> None:
        """Write down what a request cost.

        Raises:
            UpkeepError: the ledger cannot be read or written. The reservation counts on.
        """
        with self._opened() as file:
            self._append(file, Entry(number, "settled", usd, time.time(), self._by))

    @contextlib.contextmanager
    def _opened(self) -> Iterator[BinaryIO]:
        """The file, locked and read to its end; opened anew, so that a network file system shows other nodes' lines."""
        try:
            with self._lock:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                with self.path.open("a+b") as file:
                    fcntl.flock(file, fcntl.LOCK_EX)
                    # A torn last line was being written by a process that was killed before it could send anything.
                    file.truncate(self._book.catch_up(file))
                    yield file
        except OSError as error:
            raise UpkeepError(
                f"the ledger cannot be written: {error.strerror or error}",
                where=self.path,
                remedy="make room, or see to the file system's locks; nothing is sent meanwhile",
                kind="machine",
            ) from None

    def _append(self, file: BinaryIO, entry: Entry) -> None:
        file.write(msgspec.json.encode(entry) + b"\n")
        file.flush()
        os.fsync(file.fileno())

    def _exhausted(self, spent: Spent, usd: float) -> UpkeepError:
        return UpkeepError(
            f"the next request to the model {self.model!r} could pass its budget, so it was not sent",
            where=self.path,
            expected=f"${self.budget:,.4f} at most, over all runs of these results",
            found=f"${spent.settled:,.4f} spent, ${spent.reserved:,.4f} reserved by requests in flight or killed; "
            f"the next one may cost ${usd:,.4f}",
            remedy=f"raise `budget: {{{self.model}: ...}}` in your configuration; the same command continues",
            kind="budget",
        )
