"""What stands in a table's places, as text: our own number beside the published one, and how they compare."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from upkeep.report.card_fields import in_short
from upkeep.report.comparing import State, digits_of
from upkeep.report.rows import Number
from upkeep.report.tables import Table

MARKS: dict[State, str] = {
    "within the interval": "≈",
    "differs": "≠",
    "set alike": "≡",
    "set otherwise": "≢",
    "not comparable": "†",
    "not run": "○",
    "no number": "✗",
    "unpublished": "·",
}
"""What stands for the state of a place."""
LEGEND = (
    "own / published: ≈ the published number lies in our 95% interval, ≠ it does not, † they are not comparable; "
    "○ not run, ✗ no number of our own (see the notes), · no published number"
)
OURS = "Our own variants"
EXACT = 6
"""Digits of what is shown in full."""


def own_text(number: Number, digits: int) -> str:
    """Our own number with half its interval and its cell's failed predictions; or the mark that says there is none.

    A count has no decimals, whatever its table's other numbers have; what cards set has as many digits as are printed
    where that is the same, and else its own.
    """
    if number.own is None:
        return MARKS[number.state]
    if number.source:
        return in_short(number.own, digits_of(number.published) if number.state == "set alike" else EXACT)
    digits = 0 if number.whole else digits
    half = "" if number.half is None else f"±{number.half:.{digits}f}"
    return f"{number.own:.{digits}f}{half}" + (f" ({number.failed:,} failed)" if number.failed else "")


def difference_text(number: Number, digits: int) -> str:
    """Our own number less the published one, with its sign; empty where there are no two, or a card sets the same."""
    if number.difference is None or (number.source and not number.difference):
        return ""
    return f"{number.difference:+.{EXACT}g}" if number.source else f"{number.difference:+.{digits}f}"


def mark(number: Number) -> str:
    """How our own number stands to the published one; empty where there are no two."""
    return MARKS[number.state] if number.own is not None and number.published else ""


def pair_text(number: Number, digits: int, published_row: bool) -> str:
    """`own / published` and the mark; a row that the paper lacks has our own number alone."""
    own = own_text(number, digits)
    return f"{own} / {number.published or MARKS['unpublished']} {mark(number)}".rstrip() if published_row else own


def told(number: Number, digits: int) -> str:
    """All that is known of a place, as a sentence for a reader who asks."""
    parts = [f"{number.state}: {number.reason}" if number.reason not in ("", number.state) else str(number.state)]
    if difference := difference_text(number, digits):
        parts.append(f"difference {difference}")
    if number.low is not None and number.high is not None:
        parts.append(f"95% interval {number.low:.{digits}f} to {number.high:.{digits}f}")
    if number.n is not None:
        parts.append(f"n = {number.n:,}")
    parts += [text for text in (number.source, number.cell, number.command) if text]
    return "; ".join(parts)


@dataclass(frozen=True, slots=True)
class Part:
    """The paper's rows of a table, or our own, as texts."""

    left: list[str]
    """Headings of what says which row it is."""
    facts: list[str]
    """Headings of what is known about it."""
    right: list[str]
    """Headings after the numbers."""
    rows: list[list[str]]


def papers(table: Table) -> Part:
    """The rows that the paper has."""
    spec = table.spec
    rows = [
        [*row.stub, *row.facts, *(pair_text(number, spec.digits, published_row=True) for number in row.numbers)]
        for row in table.papers
    ]
    return Part([stub.heading for stub in spec.stub], [fact.heading for fact in spec.facts], [], rows)


def ours(table: Table) -> Part:
    """The rows that it has not, each with its settings, where any has one that no row of the paper's has, and why."""
    spec, settings = table.spec, any(row.setting for row in table.ours)
    rows = [
        [
            *row.stub,
            *([row.setting] * settings),
            *(pair_text(number, spec.digits, published_row=False) for number in row.numbers),
            row.reason,
        ]
        for row in table.ours
    ]
    return Part([*(stub.heading for stub in spec.stub), *(["Setting"] * settings)], [], ["Why"], rows)


def unfilled(table: Table) -> list[tuple[int, str, str]]:
    """(places, reason, command) of the paper's places that have no number of our own, the most first."""
    found = Counter(
        (number.reason, number.command) for row in table.papers for number in row.numbers if number.own is None
    )
    return [(count, reason, command) for (reason, command), count in found.most_common()]
