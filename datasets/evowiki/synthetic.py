"""A small synthetic world, a register that changes twice: people with employer, home, mentor, hobby; companies; towns.

The builder that reads Wikidata makes `evowiki_mini` of it. What was so at each time is kept apart, so that a model can
be taught the state before the cut-off (`known`) and then be asked for the present one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

import polars as pl
from msgspec import Struct

from upkeep.building.names import Names
from upkeep.contract import Pair

from . import questions
from .facts import ENTITIES, FACTS, RELATIONS, Snapshot, Written


class Sizes(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """How large the world is; every thing has a page."""

    people: int = 28
    """Who are there from the start."""
    newcomers: int = 10
    """Who come after the cut-off."""
    places: int = 7
    """Towns, and as many companies; one of each is new after the cut-off."""
    moves: float = 0.22
    """Share of the facts that change from each time to the next."""


HOBBIES = (
    "chess", "fishing", "dancing", "painting", "sailing", "cooking", "singing", "hunting", "riding", "swimming",
    "climbing", "gardening",
)  # fmt: skip
TOPICS = ("law", "history", "science", "music", "medicine", "trade", "art", "farming", "building", "writing")


@dataclass(frozen=True, slots=True)
class Relation:
    """A relation of the world. {0} is the subject, {1} the object."""

    label: str
    objects: str
    """What they are: people, towns, companies, hobbies, topics."""
    told: str
    """The sentence of a page."""
    asked: str
    """A question in other words than the template's, for training pairs."""
    count: int = 1
    """Objects at a time."""

    @property
    def person(self) -> bool:
        return self.objects == "people"


RELATIONS_OF: Mapping[str, Mapping[str, Relation]] = {
    "people": {
        "employer": Relation("employer", "companies", "{0} works for {1}.", "For which company does {0} work?"),
        "home": Relation("home town", "towns", "{0} lives in {1}.", "In which town does {0} live?"),
        "mentor": Relation("mentor", "people", "{0} learns from {1}.", "From whom does {0} learn?"),
        "hobby": Relation("hobby", "hobbies", "{0} likes {1}.", "What does {0} like?", 2),
        "field": Relation("field of study", "topics", "{0} reads books about {1}.", "About what does {0} read books?"),
    },
    "companies": {
        "director": Relation("director", "people", "{0} is led by {1}.", "By whom is {0} led?"),
        "seat": Relation("seat", "towns", "{0} has its house in {1}.", "In which town does {0} have its house?"),
    },
    "towns": {
        "judge": Relation("judge", "people", "{0} has a court under {1}.", "Under whom does {0} have a court?"),
        "river": Relation("river", "rivers", "{0} lies on the river {1}.", "On which river does {0} lie?"),
    },
}
"""Kind of the subject -> relation -> what it is."""
_AND = " and "
ALL = {name: relation for group in RELATIONS_OF.values() for name, relation in group.items()}

State = Mapping[tuple[str, str], Sequence[str]]
"""(subject, relation) -> objects, at one time."""


@dataclass(frozen=True, slots=True)
class World:
    """Who and what there is, and the state at each of the three times."""

    kinds: Mapping[str, str]
    """Name -> people, companies or towns."""
    views: Mapping[str, int]
    states: Sequence[State]


def make(rng: Random, names: Names, sizes: Sizes) -> World:
    """A world; names are drawn from `names`, all else from `rng`."""
    people = [names.person() for _ in range(sizes.people)]
    late = [names.person() for _ in range(sizes.newcomers)]
    towns = [names.place() for _ in range(sizes.places)]
    companies = [names.thing() for _ in range(sizes.places)]
    rivers = [names.thing() for _ in range(2 * sizes.places)]
    old = {"people": people, "towns": towns[:-1], "companies": companies[:-1]}
    new = {"people": late, "towns": towns[-1:], "companies": companies[-1:]}
    kinds = {name: kind for kind in old for name in [*old[kind], *new[kind]]}
    choices = {**old, "hobbies": list(HOBBIES), "topics": list(TOPICS), "rivers": rivers}

    def draw(subject: str, relation: Relation, past: Iterable[Sequence[str]]) -> Sequence[str]:
        never = {subject, *itertools.chain.from_iterable(past)}
        return rng.sample([name for name in choices[relation.objects] if name not in never], relation.count)

    def settle(things: Mapping[str, Sequence[str]], state: State) -> State:
        fresh = {
            (name, id): draw(name, relation, ())
            for kind, group in things.items()
            for name in group
            for id, relation in RELATIONS_OF[kind].items()
        }
        return {**state, **fresh}

    def move(state: State, before: Sequence[State]) -> State:
        """Nothing goes back to what it was."""
        return {
            (name, id): draw(name, ALL[id], [past[name, id] for past in (*before, state)])
            if rng.random() < sizes.moves and id != "river"
            else objects
            for (name, id), objects in state.items()
        }

    init = settle(old, {})
    cutoff = move(init, [])
    choices |= {kind: [*old[kind], *new[kind]] for kind in old}
    current = settle(new, move(cutoff, [init]))
    views = {name: int(10 ** rng.uniform(0.5, 5.7)) for name in kinds}
    return World(kinds, views, [init, cutoff, current])


def sentences(world: World, state: State, name: str) -> list[str]:
    """What a page tells of its subject."""
    return [
        relation.told.format(name, _AND.join(state[name, id]))
        for id, relation in RELATIONS_OF[world.kinds[name]].items()
        if (name, id) in state
    ]


def snapshot(world: World, state: State, date: str) -> Snapshot:
    """The world at one time, as a fact base with pages."""
    present = sorted({name for name, _ in state})
    facts = sorted(
        (f"{name}|{id}|{nth}", name, id, one)
        for (name, id), objects in state.items()
        for nth, one in enumerate(objects)
    )
    entities = [(name, name, name, world.kinds[name] == "people", world.views[name]) for name in present]
    labels = [(id, relation.label, relation.person) for id, relation in ALL.items()]
    return Snapshot(
        date,
        pl.DataFrame(facts, schema=FACTS, orient="row"),
        pl.DataFrame(entities, schema=ENTITIES, orient="row"),
        pl.DataFrame(labels, schema=RELATIONS, orient="row"),
        Written({name: " ".join(sentences(world, state, name)) for name in present}),
    )


def _world(sizes: Sizes, seed: int) -> World:
    rng = Random(f"evowiki {seed}")
    return make(rng, Names(rng, held_out=True), sizes)


def snapshots(sizes: Sizes, dates: Sequence[str], seed: int) -> list[Snapshot]:
    """The mini dataset's world at its three times; its names are held out."""
    world = _world(sizes, seed)
    return [snapshot(world, state, date) for state, date in zip(world.states, dates, strict=True)]


def known(state: State) -> list[Pair]:
    """(question, answer) of every fact of a time, as the template asks: what a model of that time would know."""
    return [
        Pair(question=questions.template(name, [(ALL[id].label, ALL[id].person)]), answer=_AND.join(objects))
        for (name, id), objects in state.items()
    ]
