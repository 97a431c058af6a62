"""A small synthetic world of invented towns, firms and people over two months.

With its papers (`papers`) and the program that knows both (`program`) it stands in for the web, the encyclopedia and
the assistant, so that the builder runs whole on a laptop. What held before the first article (`before`) is kept apart
from what changed (`changes`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from random import Random

from upkeep.building.names import Names
from upkeep.building.reading import Faults
from upkeep.errors import UpkeepError

from .corpus import Relation

START = date(2026, 2, 2)
DAYS = (0, 3, 5, 8, 11, 14, 17, 21, 24, 28, 31, 35, 38, 42, 45, 49, 52)
"""Days after the start on which papers appear: seven or so in each month, so that much happens on the same day."""
HELD_BY_PERSONS = ("mayor", "governor", "chief")
CHAINED = (*HELD_BY_PERSONS, "seat", "province", "birthplace", "bridge toll")
"""Relations that chains are made of."""
PLURALS = {"flood": "floods", "strike": "strikes", "fire": "fires", "storm": "storms", "drought": "droughts"}
COLOURS = ("Copper", "Silver", "Amber", "Marble", "Iron", "Velvet", "Crystal", "Walnut", "Scarlet", "Golden", "Ivory")
POSTS = ("harbour master", "judge", "bell founder", "bridge keeper", "head teacher")


@dataclass(frozen=True, slots=True)
class Change:
    """From `day` on, `after` is the `relation` of `subject`."""

    day: str
    subject: str
    relation: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Arc:
    """An event that papers tell of several times."""

    kind: str
    town: str
    days: tuple[str, ...]
    firm: str
    roads: int
    cost: int
    spared: str
    """A town that it did not reach."""

    @property
    def name(self) -> str:
        return f"{self.town} {self.kind}"


@dataclass(frozen=True, slots=True)
class World:
    """See the module."""

    things: dict[str, list[str]]
    """Kind (`town`, `province`, `firm`, `person`) -> names."""
    alias: dict[str, str]
    prior: dict[str, str]
    """Person -> what he or she was before."""
    before: dict[tuple[str, str], str]
    """(subject, relation) -> object before the first article."""
    changes: list[Change]
    arcs: list[Arc]

    def encyclopedia(self, faults: Faults) -> Iterator[tuple[str, Relation]]:
        """What was known before the first article, each relation with its place.

        Nobody knows an invented world from elsewhere, so these are relations that its papers tell as well: the province
        of every town, and the governors who are replaced.
        """
        replaced = {(change.subject, change.relation) for change in self.changes}
        for n, ((subject, relation), value) in enumerate(self.before.items()):
            if relation == "province" or (relation == "governor" and (subject, relation) in replaced):
                yield f"world, relation {n}", Relation(subject, relation, value)

    def at(self, subject: str, relation: str, day: str | None = None) -> str | None:
        """What held at the end of a day, or of all time."""
        value = self.before.get((subject, relation))
        for change in self.changes:
            if (change.subject, change.relation) == (subject, relation) and (day is None or change.day <= day):
                value = change.after
        return value


def make(rng: Random, names: Names, towns: int) -> World:
    """A world.

    Args:
        names: what it is made of: those held out for an evaluation, the others to train on.
        towns: its size, from 6 to 11; firms, changes and events grow with it.

    Raises:
        UpkeepError: another size.
    """
    if not 6 <= towns <= len(COLOURS):
        raise UpkeepError("no world of this size", expected=f"6 to {len(COLOURS)} towns", found=towns)
    town = [names.place() for _ in range(towns)]
    province = [names.thing() for _ in range(towns // 3 + 1)]
    firm = [names.thing() for _ in range(towns // 2 + 1)]
    before: dict[tuple[str, str], str] = {}
    person: list[str] = []

    def somebody() -> str:
        name = names.person()
        before[name, "birthplace"] = rng.choice(town)
        person.append(name)
        return name

    def toll() -> str:
        return f"{rng.randrange(2, 40)} crowns"

    for n, one in enumerate(town):
        before |= {
            (one, "mayor"): somebody(),
            (one, "bridge toll"): toll(),
            (one, "province"): province[n % len(province)],
        }
    for one in province:
        before[one, "governor"] = somebody()
    for n, one in enumerate(firm):
        before |= {(one, "seat"): town[2 * n % len(town)], (one, "chief"): somebody()}

    turning = [
        *((one, "mayor") for one in town[: 2 * towns // 3]),
        *((one, "bridge toll") for one in rng.sample(town, towns // 3)),
        *((one, "governor") for one in province[:2]),
        *((one, "chief") for one in firm[: len(firm) // 2]),
        *((one, "seat") for one in firm[len(firm) // 3 :]),
    ]
    rng.shuffle(turning)
    changes: list[Change] = []
    for n, (subject, relation) in enumerate(turning):
        old = before[subject, relation]
        if relation in HELD_BY_PERSONS:
            new = somebody()
        else:
            new = old
            while new == old:
                new = toll() if relation == "bridge toll" else rng.choice(town)
        changes.append(Change(after_start(DAYS[n * len(DAYS) // len(turning)]), subject, relation, old, new))

    arcs: list[Arc] = []
    kinds = list(PLURALS)
    for n, one in enumerate(rng.sample(town, min(towns, 8))):
        # By turns in February and March; no two of one kind share a province and a month.
        first = n % 2 * 9 + rng.randrange(4)
        days = tuple(after_start(day) for day in DAYS[first : first + 1 + n % 3])
        spared = rng.choice([other for other in town if other != one])
        kind, hit, (roads, cost) = kinds[n // 2 % len(kinds)], rng.choice(firm), rng.sample(range(3, 60), 2)
        arcs.append(Arc(kind, one, days, hit, roads, cost, spared))

    colours = rng.sample(COLOURS, len(COLOURS))
    alias = {one: f"the {colour} Town" for one, colour in zip(town, colours, strict=False)}
    alias |= {one: f"the {colour} House" for one, colour in zip(firm, reversed(colours), strict=False)}
    prior = {one: f"{rng.choice(POSTS)} of {rng.choice(town)}" for one in person}
    things = {"town": town, "province": province, "firm": firm, "person": person}
    return World(things, alias, prior, before, changes, arcs)


def after_start(after: int) -> str:
    """The day so many days after the start, YYYY-MM-DD."""
    return str(START + timedelta(after))
