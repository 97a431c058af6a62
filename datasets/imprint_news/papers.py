"""What the papers of a synthetic world write: sentences that each tell one thing, articles of these, fetched pages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from random import Random

from .corpus import Raw, written
from .synthetic import CHAINED, DAYS, HELD_BY_PERSONS, START, Arc, Change, World, after_start

JUNK_ABOVE = (
    "Home | News | Sport | Weather",
    "Menu   Search   Log in",
    "ADVERTISEMENT",
    "Accept all cookies",
    "Share this page by letter",
)
JUNK_BELOW = (
    "Read more: ten gardens to visit this summer",
    "Sign up for our weekly letter",
    "All rights reserved",
    "Most read today",
    "Comments are closed",
)


@dataclass(frozen=True, slots=True)
class Told:
    """A sentence, and what it says."""

    text: str
    subject: str
    relation: str
    object: str
    asks: str = ""
    """A yes/no question about it, with a slot for each element that can be exchanged; empty for none."""
    slots: tuple[tuple[str, str, str], ...] = ()
    """(slot, kind of thing, value)."""
    plain: str = ""
    """A question to which `object` is the answer."""
    before: str | None = None
    known: bool = False
    """Whether the encyclopedia has it."""


@dataclass(frozen=True, slots=True)
class Paper:
    """An article as the world means it."""

    day: str
    title: str
    market: str
    told: tuple[Told, ...]


def press(world: World, rng: Random) -> list[Paper]:
    """All articles on a world, in order of time."""
    return sorted(_papers(world, rng), key=lambda paper: paper.day)


def pages(papers: Sequence[Paper]) -> Iterator[tuple[str, Raw]]:
    """The articles as they would be fetched, near-duplicates among them, each with its place."""
    rng = Random("pages")
    for n, paper in enumerate(papers):
        for is_copy in (False, True) if n % 5 == 2 else (False,):
            lines = list(paragraphs(paper, is_copy))
            above, below = rng.sample(JUNK_ABOVE, 2), rng.sample(JUNK_BELOW, 2)
            yield (
                f"world, article {n}",
                Raw(
                    id=f"a{n:03d}{'b' if is_copy else ''}",
                    title=paper.title,
                    date=str(date.fromisoformat(paper.day) + timedelta(is_copy)),
                    text="\n".join([*above, *lines, *below]),
                    market=paper.market,
                    spike=paper.day,
                ),
            )


def paragraphs(paper: Paper, is_copy: bool) -> Iterator[str]:
    """The body of an article, three sentences a line; another paper's copy says the first again at the end."""
    sentences = [told.text for told in paper.told]
    sentences += sentences[:1] if is_copy else []
    for start in range(0, len(sentences), 3):
        yield " ".join(sentences[start : start + 3])


def _papers(world: World, rng: Random) -> Iterator[Paper]:
    for n, change in enumerate(world.changes):
        subject, after = change.subject, change.after
        told = [_changed(change)]
        if change.relation in HELD_BY_PERSONS:
            told += [_state(world, after, "birthplace", change.day), _prior(after, world.prior[after], change.day)]
        elif change.relation == "seat":
            told += [_state(world, after, "mayor", change.day)]
        told += _background(world, subject, change, rng)
        yield Paper(change.day, f"News of {subject}", f"m{n:02d}", tuple(told[:5]))
    for n, arc in enumerate(world.arcs):
        for part, day in enumerate(arc.days):
            yield Paper(day, f"The {arc.name}", f"e{n:02d}", tuple(_chapter(world, arc, part, day)))
    for month in (2, 3):
        day = max(after_start(after) for after in DAYS if (START + timedelta(after)).month == month)
        yield Paper(day, "What everybody should know", "", tuple(_round_up(world, day, month, rng)))


def _background(world: World, subject: str, change: Change, rng: Random) -> list[Told]:
    """What a paper tells besides about a town, a province or a firm: what holds on that day."""
    relations = [r for r in CHAINED if (subject, r) in world.before and r != change.relation]
    told = [_state(world, subject, relation, change.day) for relation in relations]
    if subject in world.alias:
        told.append(_called(subject, world.alias[subject], change.day))
    if change.relation == "governor":
        capital = rng.choice([town for town in world.things["town"] if world.before[town, "province"] == subject])
        told += [_state(world, capital, "province", change.day), _state(world, capital, "mayor", change.day)]
    rng.shuffle(told)
    return told


def _round_up(world: World, day: str, month: int, rng: Random) -> Iterator[Told]:
    """A long article about how things stand."""
    for n, town in enumerate(world.things["town"]):
        if n % 2 == month % 2:
            yield _state(world, town, rng.choice(["mayor", "bridge toll"]), day)
            yield _state(world, town, "province", day)
    for n, firm in enumerate(world.things["firm"]):
        if n % 2 == month % 2:
            yield _state(world, firm, "seat", day)
            yield _called(firm, world.alias[firm], day)


# ---------------------------------------------------------------- sentences


def _changed(change: Change) -> Told:
    day = written(change.day)
    subject, old, new = change.subject, change.before, change.after
    dated = ("day", "date", day)
    if change.relation in HELD_BY_PERSONS:
        office = f"{change.relation} of {subject}"
        text, asks = f"On {day}, {new} replaced {old} as {office}.", f"Did {{new}} become {office} on {{day}}?"
        slots = (("new", "person", new), dated)
    elif change.relation == "seat":
        text = f"On {day}, the firm {subject} moved its seat from {old} to {new}."
        asks, slots = f"Did the firm {subject} move its seat to {{new}} on {{day}}?", (("new", "town", new), dated)
    else:
        text = f"On {day}, the bridge toll of {subject} changed from {old} to {new}."
        asks, slots = f"Did the bridge toll of {subject} change to {{new}} on {{day}}?", (("new", "toll", new), dated)
    plain = f"After the change of {day}, {asked_by(change.relation)} is the {change.relation} of {subject}?"
    return Told(text, subject, change.relation, new, asks, slots, plain, old)


def _state(world: World, subject: str, relation: str, day: str) -> Told:
    value = world.at(subject, relation, day) or ""
    on = f"As of {written(day)}, "
    kind = {"birthplace": "town", "seat": "town", "province": "province", "bridge toll": "toll"}.get(relation, "person")
    text, asks = {
        "birthplace": (f"{subject} was born in {value}.", f"was {subject} born in {{value}}?"),
        "seat": (
            f"The firm {subject} has its seat in {value}.",
            f"does the firm {subject} have its seat in {{value}}?",
        ),
        "province": (
            f"{subject} lies in the province of {value}.",
            f"does {subject} lie in the province of {{value}}?",
        ),
        "bridge toll": (f"The bridge toll of {subject} is {value}.", f"is the bridge toll of {subject} {{value}}?"),
    }.get(relation, (f"{value} is the {relation} of {subject}.", f"is {{value}} the {relation} of {subject}?"))
    plain = f"By the news of {written(day)}, {asked_by(relation)} is the {relation} of {subject}?"
    known = relation == "province"
    return Told(text, subject, relation, value, on + asks, (("value", kind, value),), plain, known=known)


def _prior(person: str, post: str, day: str) -> Told:
    asks = f"Before {written(day)}, was {{person}} the {post}?"
    plain = f"By the news of {written(day)}, what was {person} before?"
    text = f"Before that, {person} was the {post}."
    return Told(text, person, "post", post, asks, (("person", "person", person),), plain)


def _called(subject: str, alias: str, day: str) -> Told:
    asks = f"As of {written(day)}, do people call {{value}} {alias}?"
    kind = "town" if alias.endswith("Town") else "firm"
    plain = f"By the news of {written(day)}, what do people call {subject}?"
    return Told(f"People call {subject} {alias}.", subject, "name", alias, asks, (("value", kind, subject),), plain)


def _chapter(world: World, arc: Arc, part: int, day: str) -> list[Told]:
    """What the part-th article about an event tells: how it began, what it did, how it ended."""
    on, name = written(day), arc.name
    began = Told(
        f"The {name} began on {written(arc.days[0])}.",
        name,
        "start",
        written(arc.days[0]),
        "Did the {town} " + arc.kind + " begin on {day}?",
        (("town", "town", arc.town), ("day", "date", written(arc.days[0]))),
        f"When did the {name} begin?",
    )
    closed = Told(
        f"The {name} closed {arc.roads} roads by {on}.",
        name,
        "closed roads",
        str(arc.roads),
        f"Had the {name} closed {{n}} roads by {on}?",
        (("n", "number", str(arc.roads)),),
        f"How many roads had the {name} closed by {on}?",
    )
    stopped = Told(
        f"The {name} stopped the work of the firm {arc.firm}.",
        name,
        "firm",
        arc.firm,
        f"As of {on}, had the {name} stopped the work of the firm {{firm}}?",
        (("firm", "firm", arc.firm),),
        f"As of {on}, the work of which firm had the {name} stopped?",
    )
    ended = Told(
        f"The {name} ended on {on}.",
        name,
        "end",
        on,
        "Did the {town} " + arc.kind + " end on {day}?",
        (("town", "town", arc.town), ("day", "date", on)),
        f"When did the {name} end?",
    )
    cost = Told(
        f"The {name} cost {arc.cost} crowns.",
        name,
        "cost",
        f"{arc.cost} crowns",
        f"As of {on}, had the {name} cost {{n}} crowns?",
        (("n", "number", str(arc.cost)),),
        f"What did the {name} cost?",
    )
    spared = Told(f"The {name} did not reach {arc.spared}.", name, "spared", arc.spared)
    province, mayor, toll = (_state(world, arc.town, one, day) for one in ("province", "mayor", "bridge toll"))
    chapters = ([closed, province, mayor], [stopped, province, toll, spared], [ended, cost, mayor])
    return [began, *chapters[part]]


def asked_by(relation: str) -> str:
    """The word that asks for the object of a relation."""
    return "who" if relation in HELD_BY_PERSONS else "what"


def sentences(text: str) -> list[str]:
    """The sentences of an article."""
    return [sentence for line in text.split("\n") for sentence in re.split(r"(?<=\.) ", line)]
