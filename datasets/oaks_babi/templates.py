"""The 29 question templates (OAKS, Table 8)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from upkeep.building.synthetic import Group

from .log import GET, Log, of
from .timelines import (
    UNKNOWN,
    UNKNOWN_OR_SAME,
    Timeline,
    Value,
    distinct,
    firsts,
    held,
    holder,
    latest,
    more,
    moved_after,
    object_of,
    straight,
    subject_of,
    tally,
    where,
)


@dataclass(frozen=True, slots=True)
class Template:
    """A question template: its words are ours, its meaning that of Table 8."""

    type: str
    text: str
    slots: str
    """What fills {0}, {1}, ...: a letter each, p(erson), l(ocation) or o(bject)."""
    timeline: Callable[..., Timeline]
    """(log, *entities) -> how the answer changes."""
    either_way: bool = False
    """Whether the two slots of the same kind can be swapped without asking another question."""

    def fillings(self, log: Log) -> Iterator[tuple[str, ...]]:
        """All ways to fill the slots with different entities; one of both where they can be swapped."""
        kinds = {"p": log.people, "l": log.places, "o": log.objects}
        for names in itertools.product(*(kinds[slot] for slot in self.slots)):
            if len(set(names)) == len(names) and not (self.either_way and names[-2] > names[-1]):
                yield names


TEMPLATES = (
    Template("tracking", "Where is {0} now?", "p", lambda s, a: latest(s(a, Group.MOVE), object_of)),
    Template("tracking", "Who is holding the {0} now?", "o", holder),
    Template(
        "tracking",
        "Who was the last to give the {0} to somebody else?",
        "o",
        lambda s, o: latest(s(o, Group.TRANSFER), subject_of),
    ),
    Template(
        "counting",
        "How many times has {0} moved to the {1}?",
        "pl",
        lambda s, a, p: tally(of(s(a, Group.MOVE), p)),
    ),
    Template("counting", "How many times has {0} moved, to any place?", "p", lambda s, a: tally(s(a, Group.MOVE))),
    Template(
        "counting",
        "How many different people have been to the {0}?",
        "l",
        lambda s, p: distinct(s(p, Group.MOVE), subject_of),
    ),
    Template(
        "counting",
        "How many times has {0} picked up the {1}?",
        "po",
        lambda s, a, o: tally(of(s(a, Group.ACQUIRE), o)),
    ),
    Template(
        "counting",
        "How many different objects has {0} picked up?",
        "p",
        lambda s, a: distinct(s(a, Group.ACQUIRE), object_of),
    ),
    Template(
        "counting",
        "How many times has {0} dropped the {1}?",
        "po",
        lambda s, a, o: tally(of(s(a, Group.DISCARD), o)),
    ),
    Template(
        "counting",
        "How many different objects has {0} dropped?",
        "p",
        lambda s, a: distinct(s(a, Group.DISCARD), object_of),
    ),
    Template("counting", "How many times has anyone picked up the {0}?", "o", lambda s, o: tally(s(o, Group.ACQUIRE))),
    Template("counting", "How many different people have held the {0}?", "o", held),
    Template("counting", "How many times has anyone dropped the {0}?", "o", lambda s, o: tally(s(o, Group.DISCARD))),
    Template(
        "counting",
        "How many different people have dropped the {0}?",
        "o",
        lambda s, o: distinct(s(o, Group.DISCARD), subject_of),
    ),
    Template("counting", "How many times has {0} been given something, by anyone?", "p", lambda s, a: tally(s(a, GET))),
    Template(
        "counting",
        "How many different people have given {0} something?",
        "p",
        lambda s, a: distinct(s(a, GET), subject_of),
    ),
    Template(
        "counting",
        "How many times has {0} given an object to {1}?",
        "pp",
        lambda s, a, b: tally(entry for entry in s(b, GET) if entry.subject == a),
    ),
    Template("bridge", "Who was the last to go straight from the {0} to the {1}?", "ll", straight),
    Template(
        "bridge",
        "Where was {0} when {1} last moved to the {2}?",
        "ppl",
        lambda s, a, b, p: where(s, a, of(s(b, Group.MOVE), p)),
    ),
    Template(
        "bridge",
        "What is the latest place that {0} moved to at any time after picking up or being given the {1}?",
        "po",
        lambda s, a, o: moved_after(s, a, s.acquired(a, o)),
    ),
    Template(
        "bridge",
        "What is the latest place that {0} moved to at any time after dropping the {1}?",
        "po",
        lambda s, a, o: moved_after(s, a, of(s(a, Group.DISCARD), o)),
    ),
    Template(
        "bridge",
        "Where did {0} last pick up the {1} or get it from somebody?",
        "po",
        lambda s, a, o: where(s, a, s.acquired(a, o)),
    ),
    Template(
        "bridge",
        "Where did {0} last drop the {1}?",
        "po",
        lambda s, a, o: where(s, a, of(s(a, Group.DISCARD), o)),
    ),
    Template(
        "comparison",
        "Who has visited more different places, {0} or {1}?",
        "pp",
        lambda s, a, b: more(a, firsts(s(a, Group.MOVE), object_of), b, firsts(s(b, Group.MOVE), object_of)),
        either_way=True,
    ),
    Template(
        "comparison",
        "Which place has {0} visited more often, the {1} or the {2}?",
        "pll",
        lambda s, a, p, q: more(p, of(s(a, Group.MOVE), p), q, of(s(a, Group.MOVE), q)),
        either_way=True,
    ),
    Template(
        "comparison",
        "Who has picked up more different objects, {0} or {1}?",
        "pp",
        lambda s, a, b: more(a, firsts(s(a, Group.ACQUIRE), object_of), b, firsts(s(b, Group.ACQUIRE), object_of)),
        either_way=True,
    ),
    Template(
        "comparison",
        "Who has dropped more different objects, {0} or {1}?",
        "pp",
        lambda s, a, b: more(a, firsts(s(a, Group.DISCARD), object_of), b, firsts(s(b, Group.DISCARD), object_of)),
        either_way=True,
    ),
    Template(
        "comparison",
        "Who has picked up objects more often, {0} or {1}?",
        "pp",
        lambda s, a, b: more(a, s(a, Group.ACQUIRE), b, s(b, Group.ACQUIRE)),
        either_way=True,
    ),
    Template(
        "comparison",
        "Who has dropped objects more often, {0} or {1}?",
        "pp",
        lambda s, a, b: more(a, s(a, Group.DISCARD), b, s(b, Group.DISCARD)),
        either_way=True,
    ),
)
"""Table 8: 3 tracking, 14 counting, 6 bridge, 6 comparison. To pick up is to take what lies there; the paper's
"acquire" is that or to be given it (Algorithm 1, line 9), so we ask for both by name."""

BEFORE: dict[str, Value] = {"tracking": UNKNOWN, "counting": 0, "bridge": UNKNOWN, "comparison": UNKNOWN_OR_SAME}
"""The answer before any fact that the question is about (B.2.1)."""
