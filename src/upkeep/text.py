"""Text of others, made fit for a terminal."""

from __future__ import annotations

import re

_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?)")
"""Colours, movements of the cursor, and what sets a terminal's title."""


def printable(text: str) -> str:
    """Text that does nothing to a terminal: escape sequences are left out, other control characters are replaced.

    A carriage return, with which progress bars draw over themselves, begins a new line.
    """
    text = _ESCAPE.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)


def one_line(text: str, limit: int | None = None) -> str:
    """Text of others in one line, of so many characters at most."""
    line = " ".join(printable(text if limit is None else text[: 4 * limit]).split())
    return line if limit is None or len(line) <= limit else f"{line[: limit - 1]}…"


def short(message: str, limit: int = 400) -> str:
    """An error in one line: its first line, and the last one of what was found (of an exception: the exception)."""
    lines = [
        line.strip().replace("\t", " ")
        for line in message.splitlines()
        if line.strip() and not line.startswith("  remedy:")
    ]
    if not lines:
        return "no reason given"
    line = lines[0] if len(lines) == 1 else f"{lines[0]} ({lines[-1]})"
    return line if len(line) <= limit else line[: limit - 1] + "…"


def duration(seconds: float) -> str:
    """`4.2 s`, `3 min 12 s`, `5 h 7 min`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60:,} h {minutes % 60} min"
