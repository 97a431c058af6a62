"""A small world where people move about and acquire, discard and hand on objects (OAKS, B.1.2).

What happens is told in sentences, one fact each, and read back from them: nothing else passes from here to the
questions, so a question's answer is always in the text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from upkeep.errors import UpkeepError


class Group(StrEnum):
    """The canonical verb groups."""

    MOVE = "move"
    ACQUIRE = "acquire"
    DISCARD = "discard"
    TRANSFER = "transfer"


VERBS: dict[Group, tuple[str, ...]] = {
    Group.MOVE: ("went", "moved", "journeyed", "travelled"),
    Group.ACQUIRE: ("picked up", "took", "grabbed", "got"),
    Group.DISCARD: ("dropped", "discarded", "left", "put down"),
    Group.TRANSFER: ("gave", "handed", "passed"),
}

_SHAPES = {
    Group.MOVE: "{subject} {verb} to the {object}.",
    Group.ACQUIRE: "{subject} {verb} the {object}.",
    Group.DISCARD: "{subject} {verb} the {object}.",
    Group.TRANSFER: "{subject} {verb} the {object} to {recipient}.",
}

_PATTERNS = [
    (
        group,
        re.compile(
            re.escape(shape)
            .replace(r"\ ", " ")
            .replace(r"\{verb\}", f"(?P<verb>{'|'.join(VERBS[group])})")
            .replace(r"\{subject\}", r"(?P<subject>\w+)")
            .replace(r"\{object\}", r"(?P<object>\w+)")
            .replace(r"\{recipient\}", r"(?P<recipient>\w+)")
        ),
    )
    for group, shape in _SHAPES.items()
]


@dataclass(frozen=True, slots=True)
class Fact:
    """Who did what; `object` is a place for a move, `recipient` is None but for a transfer."""

    group: Group
    subject: str
    object: str
    recipient: str | None = None

    def sentence(self, verb: str) -> str:
        """The fact told with one of its group's verbs."""
        return _SHAPES[self.group].format(subject=self.subject, verb=verb, object=self.object, recipient=self.recipient)


def parse(sentence: str) -> Fact:
    """Read a fact from its sentence (ParseSentence and Normalize of Algorithm 1).

    Raises:
        UpkeepError: the sentence has none of the shapes of a fact.
    """
    for group, pattern in _PATTERNS:
        if match := pattern.fullmatch(sentence):
            found = match.groupdict()
            return Fact(group, found["subject"], found["object"], found.get("recipient"))
    raise UpkeepError("not a fact", expected=" or ".join(_SHAPES.values()), found=repr(sentence))


@dataclass(frozen=True, slots=True)
class Cast:
    """The names of one world: people, places and objects."""

    people: tuple[str, ...]
    places: tuple[str, ...]
    objects: tuple[str, ...]


_SYLLABLE = (
    "b br d dr f fl g gl h j k kl l m n p pr r s sk t tr v z",
    "a e i o u",
    "b ck d g l ll m n nd p r rk sk st t v x z",
)
_ENDINGS = {
    "people": ("an", "el", "io", "ork", "una", "ev"),
    "places": ("orium", "ary", "erie", "hold", "ance"),
    "objects": ("le", "et", "ix", "um", "ok"),
}
"""Endings differ by kind, so that a reader can tell a place from a thing."""


def cast(rng: Random, people: int, places: int, objects: int, taken: set[str]) -> Cast:
    """Invent names that stand for nothing real, none of them in `taken` (lower case); they are added to it."""

    def invent(kind: str) -> str:
        while True:
            name = "".join(rng.choice(sounds.split()) for sounds in _SYLLABLE) + rng.choice(_ENDINGS[kind])
            if name not in taken:
                taken.add(name)
                return name if kind == "objects" else name.capitalize()

    return Cast(
        tuple(invent("people") for _ in range(people)),
        tuple(invent("places") for _ in range(places)),
        tuple(invent("objects") for _ in range(objects)),
    )


_WEIGHTS = {Group.MOVE: 4.0, Group.ACQUIRE: 5.0, Group.DISCARD: 1.6, Group.TRANSFER: 4.0}
"""How likely a person does what they can do now; moves come out at about half of all facts."""


def simulate(world: Cast, facts: int, rng: Random) -> list[Fact]:
    """Let the world run for a number of facts.

    People act only once they have moved, so where they act is known; they take what lies where they are and give to
    whom they meet. Where objects lie at first is told by nobody, as in bAbI.
    """
    at: dict[str, str] = {}
    lies = {thing: rng.choice(world.places) for thing in world.objects}
    held: dict[str, str] = {}
    told: list[Fact] = []
    while len(told) < facts:
        who = rng.choice(world.people)
        can = {Group.MOVE: [Fact(Group.MOVE, who, place) for place in world.places if place != at.get(who)]}
        if who in at:
            mine = [thing for thing, holder in held.items() if holder == who]
            met = [other for other in world.people if other != who and at.get(other) == at[who]]
            can[Group.ACQUIRE] = [Fact(Group.ACQUIRE, who, thing) for thing, place in lies.items() if place == at[who]]
            can[Group.DISCARD] = [Fact(Group.DISCARD, who, thing) for thing in mine]
            can[Group.TRANSFER] = [Fact(Group.TRANSFER, who, thing, other) for thing in mine for other in met]
        groups = [group for group, choices in can.items() if choices]
        fact = rng.choice(can[rng.choices(groups, [_WEIGHTS[group] for group in groups])[0]])
        match fact.group:
            case Group.MOVE:
                at[who] = fact.object
            case Group.ACQUIRE:
                held[fact.object] = who
                del lies[fact.object]
            case Group.DISCARD:
                lies[fact.object] = at[who]
                del held[fact.object]
            case Group.TRANSFER:
                assert fact.recipient is not None
                held[fact.object] = fact.recipient
        told.append(fact)
    return told


def tell(facts: Sequence[Fact], rng: Random) -> list[str]:
    """The facts as sentences, with verbs drawn from their groups."""
    return [fact.sentence(rng.choice(VERBS[fact.group])) for fact in facts]
