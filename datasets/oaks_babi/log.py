"""The state log: what happened to each person, place and object (OAKS, Algorithm 1, lines 1 to 11)."""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from upkeep.building import synthetic
from upkeep.building.synthetic import Group


class Entry(NamedTuple):
    """A logged action: the number of the fact, from 0, and who did what to what."""

    fact: int
    subject: str
    object: str
    recipient: str | None


GET = "get"
"""The action that a transfer is to its recipient."""


class Log:
    """Entity -> action -> what happened to it, in order of the facts."""

    def __init__(self, sentences: Iterable[str]) -> None:
        self._state: dict[str, dict[str, list[Entry]]] = defaultdict(lambda: defaultdict(list))
        for number, sentence in enumerate(sentences):
            fact = synthetic.parse(sentence)
            entry = Entry(number, fact.subject, fact.object, fact.recipient)
            self._state[fact.subject][fact.group].append(entry)
            self._state[fact.object][fact.group].append(entry)
            if fact.recipient is not None:
                self._state[fact.recipient][GET].append(entry)
        movers = {entry.subject for actions in self._state.values() for entry in actions[Group.MOVE]}
        self.people = sorted(movers | {e.recipient for a in self._state.values() for e in a[GET] if e.recipient})
        self.places = sorted({e.object for person in self.people for e in self(person, Group.MOVE)})
        self.objects = sorted(self._state.keys() - {*self.people, *self.places})

    def __call__(self, entity: str, action: str) -> list[Entry]:
        """What is logged for an entity under an action."""
        return self._state[entity][action]

    def move_before(self, person: str, fact: int) -> Entry | None:
        """The move that brought a person to where they are when a fact happens."""
        moves = self(person, Group.MOVE)
        n = bisect_right(moves, fact, key=lambda entry: entry.fact)
        return moves[n - 1] if n else None

    def acquired(self, person: str, thing: str) -> list[Entry]:
        """When a person came to hold an object: by picking it up or being given it."""
        return merge(of(self(person, Group.ACQUIRE), thing), of(self(person, GET), thing))


def of(entries: Iterable[Entry], thing: str) -> list[Entry]:
    """Those about an object or a place."""
    return [entry for entry in entries if entry.object == thing]


def merge(*lists: Iterable[Entry]) -> list[Entry]:
    """All entries, in order of the facts."""
    return list(heapq.merge(*lists))
