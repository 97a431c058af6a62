"""How the answer to a question changes from fact to fact, by what is asked."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from upkeep.building.synthetic import Group

from .log import Entry, Log, merge


class Special(NamedTuple):
    """An answer that is no name and no number."""

    forms: tuple[str, ...]


UNKNOWN = Special(("Unknown",))
NOBODY = Special(("Nobody", "No one", "None", "Unknown"))
SAME = Special(("Same",))
UNKNOWN_OR_SAME = Special(("Unknown", "Same"))
Value = str | int | Special


class Change(NamedTuple):
    """From this fact on the answer is `value`, and the facts of `evidence` (ascending) tell so."""

    fact: int
    value: Value
    evidence: tuple[int, ...]


Timeline = Iterator[Change]
"""In order of the facts."""


def latest(entries: Iterable[Entry], value: Callable[[Entry], Value]) -> Timeline:
    """The value of the last entry."""
    for entry in entries:
        yield Change(entry.fact, value(entry), (entry.fact,))


def tally(entries: Iterable[Entry]) -> Timeline:
    """How many entries there have been."""
    seen: tuple[int, ...] = ()
    for entry in entries:
        seen += (entry.fact,)
        yield Change(entry.fact, len(seen), seen)


def firsts(entries: Iterable[Entry], key: Callable[[Entry], str | None]) -> list[Entry]:
    """The first entry of each key: what a count of different ones counts."""
    return list({key(entry): entry for entry in reversed(list(entries))}.values())[::-1]


def distinct(entries: Iterable[Entry], key: Callable[[Entry], str | None]) -> Timeline:
    """How many different keys there have been."""
    return tally(sorted(firsts(entries, key)))


def more(first: str, of_first: Iterable[Entry], second: str, of_second: Iterable[Entry]) -> Timeline:
    """Who or what has more entries; Same where both have as many."""
    seen: tuple[int, ...] = ()
    lead = 0
    for fact, sign in sorted([(e.fact, 1) for e in of_first] + [(e.fact, -1) for e in of_second]):
        seen += (fact,)
        lead += sign
        yield Change(fact, first if lead > 0 else second if lead < 0 else SAME, seen)


def subject_of(entry: Entry) -> str:
    """Who did it."""
    return entry.subject


def object_of(entry: Entry) -> str:
    """What it was done to; where to, for a move."""
    return entry.object


def where(log: Log, person: str, entries: Iterable[Entry]) -> Timeline:
    """Where a person was at each of the entries."""
    for entry in entries:
        move = log.move_before(person, entry.fact)
        evidence = (entry.fact,) if move is None else tuple(sorted({move.fact, entry.fact}))
        yield Change(entry.fact, UNKNOWN if move is None else move.object, evidence)


def moved_after(log: Log, person: str, entries: Sequence[Entry]) -> Timeline:
    """Where a person moved after the first of the entries."""
    if entries:
        for move in log(person, Group.MOVE):
            if move.fact > entries[0].fact:
                yield Change(move.fact, move.object, (entries[0].fact, move.fact))


def holder(log: Log, thing: str) -> Timeline:
    """Who has an object."""

    def value(entry: Entry) -> Value:
        if entry in dropped:
            return NOBODY
        return entry.recipient or entry.subject

    dropped = set(log(thing, Group.DISCARD))
    return latest(merge(log(thing, Group.ACQUIRE), log(thing, Group.TRANSFER), log(thing, Group.DISCARD)), value)


def held(log: Log, thing: str) -> Timeline:
    """How many different people have had an object."""
    entries = merge(log(thing, Group.ACQUIRE), log(thing, Group.TRANSFER))
    return distinct(entries, lambda entry: entry.recipient or entry.subject)


def straight(log: Log, start: str, end: str) -> Timeline:
    """Who was the last to go from one place to another without a third between."""
    changes = [
        Change(after.fact, after.subject, (before.fact, after.fact))
        for person in log.people
        for before, after in itertools.pairwise(log(person, Group.MOVE))
        if (before.object, after.object) == (start, end)
    ]
    return iter(sorted(changes, key=lambda change: change.fact))
