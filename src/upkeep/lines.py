"""Lines that others wrote (containers above all), each read in bounded memory and decoded strictly into its record.

A container's output is hostile: it may be endless, in no encoding, or torn. What is refused is said with field, what
was expected and found.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from io import BufferedReader
from typing import NamedTuple, TypeVar

import msgspec

from upkeep.contract import MAX_LINE_BYTES
from upkeep.errors import UpkeepError
from upkeep.files import MEND

S = TypeVar("S", bound=msgspec.Struct)
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


def excerpt(value: object) -> str:
    """A value for a message: its beginning, with everything that is not printable escaped."""
    text = ascii(value[:100] if isinstance(value, str | bytes) else value)
    text = text[1:] if isinstance(value, bytes) else text
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
    written, line = _ENCODER.encode(record), line.rstrip(b"\n")
    if line != written and line != msgspec.json.format(written, indent=2):
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
    return excerpt(bytes(raw).strip())


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
