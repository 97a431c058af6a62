"""Reading what others have written: line by line, in little memory, and with a name for whatever is wrong with it.

A fault is *skipped* (the item is left out and counted in the card) or *refused* (the build stops), as `faults` of
`dataset.yaml` says for its kind; where it says nothing, it is refused.
"""

from __future__ import annotations

import bz2
import email.utils
import gzip
import lzma
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import date, datetime
from pathlib import Path
from typing import IO, Any, TypeVar, cast

import msgspec

from upkeep.contract import FaultKind, FaultPolicy
from upkeep.errors import UpkeepError
from upkeep.lines import excerpt

T = TypeVar("T")

SHOWN = 3
"""Faults of a kind that the card names."""
MAX_LINE_BYTES = 32 * 2**20
"""Of one line of an input; a longer one is a broken record, and is passed over without being held in memory."""

_EXPECTED: Mapping[FaultKind, str] = {
    "broken_record": "a record of the documented form",
    "encoding": "UTF-8",
    "missing_date": "a date",
    "bad_date": "a date as 2024-05-08, 8 May 2024 or May 8, 2024, with or without a time",
    "duplicate_id": "every id once",
    "empty_text": "some text",
    "too_long": "a text within the limit",
    "unread_reply": "a reply of the demanded form",
}


class Faults:
    """What is wrong with a dataset's inputs: counted by kind, with the first few places of each.

    Args:
        policy: what is done about each kind; `refuse` where it says nothing.
        decided_in: the file with the policy, for messages.
    """

    def __init__(self, policy: Mapping[FaultKind, FaultPolicy], decided_in: Path) -> None:
        self._policy, self._decided_in = policy, decided_in
        self.counts: Counter[FaultKind] = Counter()
        self.places: dict[FaultKind, list[str]] = {}

    def __call__(self, kind: FaultKind, where: str, problem: str, found: object = None) -> None:
        """Take note of an item that is left out.

        Args:
            where: the file, and the line or item in it (from 1).

        Raises:
            UpkeepError: this kind is refused.
        """
        if self._policy.get(kind, "refuse") == "refuse":
            raise UpkeepError(
                problem,
                where=where,
                expected=_EXPECTED[kind],
                found=excerpt(found) if isinstance(found, bytes) else found,
                remedy=f"mend it, or set `faults: {{{kind}: skip}}` in {self._decided_in} to leave such items out",
            )
        self.counts[kind] += 1
        places = self.places.setdefault(kind, [])
        if len(places) < SHOWN:
            places.append(f"{where}: {problem}")

    def notes(self) -> list[str]:
        """For the card: what was left out, kind by kind."""
        return [
            f"{count} left out ({kind}), the first at: {'; '.join(self.places[kind])}"
            for kind, count in sorted(self.counts.items())
        ]


# ---------------------------------------------------------------- files


def open_packed(path: Path) -> IO[bytes]:
    """A file's bytes, unpacked on the way where its name ends in .gz, .bz2 or .xz.

    Raises:
        UpkeepError: there is no such file, or it cannot be opened.
    """
    openers: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
    try:
        return cast("IO[bytes]", openers.get(path.suffix, open)(path, "rb"))
    except FileNotFoundError:
        raise UpkeepError(
            "file not found",
            where=path,
            expected="a file that the dataset is built from",
            remedy="put it there, or mend its name under `options:` of dataset.yaml or `data:` of your configuration",
        ) from None
    except OSError as error:
        raise UpkeepError(f"cannot be opened: {error.strerror}", where=path) from None


def text(path: Path, faults: Faults) -> str | None:
    """A whole text file; None where it is not UTF-8 and such files are skipped.

    Raises:
        UpkeepError: there is no such file, or it is packed and damaged.
    """
    with whole(path), open_packed(path) as file:
        return decoded(file.read(), str(path), faults)


def decoded(raw: bytes, where: str, faults: Faults) -> str | None:
    """Bytes as text; None where they are not UTF-8 and such items are skipped."""
    try:
        return raw.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        faults("encoding", f"{where}, byte {error.start}", "not UTF-8", raw[error.start : error.start + 8])
        return None


def lines(path: Path, faults: Faults) -> Iterator[tuple[int, bytes]]:
    """(number from 1, bytes) of each line that is not blank. A line of any length takes little memory.

    Raises:
        UpkeepError: there is no such file, or it is packed and damaged.
    """
    number = 0
    with whole(path), open_packed(path) as file:
        while line := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(line) > MAX_LINE_BYTES and not line.endswith(b"\n"):
                while (line := file.readline(2**16)) and not line.endswith(b"\n"):
                    pass
                faults("broken_record", f"{path}, line {number}", f"a line of more than {MAX_LINE_BYTES} bytes")
            elif stripped := line.strip():
                yield number, stripped


def records(path: Path, kind: type[T], faults: Faults) -> Iterator[tuple[str, T]]:
    """(place, record) of each line of a file of JSON lines, or of a JSON array with an element a line.

    Args:
        kind: a msgspec type; fields that it does not name are passed over without being built.
    """
    decoder = msgspec.json.Decoder(kind)
    for number, line in lines(path, faults):
        body = line.removeprefix(b"\xef\xbb\xbf").rstrip(b",").strip() if number == 1 else line.rstrip(b",")
        if body in (b"[", b"]", b""):
            continue
        where = f"{path}, line {number}"
        try:
            yield where, decoder.decode(body)
        except UnicodeDecodeError as error:
            faults("encoding", where, "not UTF-8", body[error.start : error.start + 8])
        except (msgspec.MsgspecError, RecursionError) as error:
            faults("broken_record", where, f"not a record: {error}", body[:80])


class whole(AbstractContextManager[None]):
    """Names a packed file that ends early or is damaged; what follows the damage cannot be read, so it is refused."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        # Where the data and not the machine is at fault, an OSError of gzip's or bz2's has no number.
        unpacking = isinstance(error, EOFError | lzma.LZMAError | zlib.error)
        if unpacking or (isinstance(error, OSError) and error.errno is None):
            raise UpkeepError(f"damaged: {error}", where=self._path, remedy="get the file again") from error


# ---------------------------------------------------------------- values

_ISO = re.compile(r"\d{4}-\d{2}-\d{2}(?:[T ].*)?\Z")
_WRITTEN = ("%d %B %Y", "%B %d, %Y", "%d %b %Y", "%b %d, %Y", "%B %d %Y", "%b %d %Y", "%d-%b-%Y")


def iso_date(value: str | None, where: str, faults: Faults) -> str | None:
    """A date as `YYYY-MM-DD`; None where it is missing or unreadable and such items are skipped.

    ISO 8601, the date of an e-mail or feed (RFC 2822) and dates with the month as an English word are read;
    `05/08/2024` is refused, for it means two days.
    """
    stripped = (value or "").strip()
    if not stripped:
        faults("missing_date", where, "no date")
        return None
    if (found := _date(stripped)) is None:
        faults("bad_date", where, "not a date, or not a clear one", stripped)
        return None
    return found.isoformat()


def _date(value: str) -> date | None:
    if _ISO.match(value):
        try:
            date.fromisoformat(value[:10])
            return datetime.fromisoformat(value).date()
        except ValueError:
            return None
    for form in _WRITTEN:
        try:
            return datetime.strptime(value, form).date()
        except ValueError:
            continue
    try:
        return email.utils.parsedate_to_datetime(value).date()
    except (ValueError, OverflowError):
        return None


class Distinct:
    """Tells ids that were seen before.

    Args:
        what: they are ids of, for messages.
    """

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._seen: set[str] = set()

    def __call__(self, id: str, where: str) -> bool:
        """Whether `id` is new; one that is not is a fault."""
        if id in self._seen:
            self._faults("duplicate_id", where, "id given before", id)
            return False
        self._seen.add(id)
        return True


def usable(body: str, where: str, faults: Faults, most: int | None = None) -> bool:
    """Whether a text is there and not too long.

    Args:
        most: characters; None for no limit.
    """
    if not body.strip():
        faults("empty_text", where, "no text")
        return False
    if most is not None and len(body) > most:
        faults("too_long", where, f"a text of more than {most} characters", len(body))
        return False
    return True
