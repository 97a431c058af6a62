"""A small world of invented towns, firms and people, its newspapers over two months, and who answers for it.

The world stands in for the web, the encyclopedia and the assistant, so that the builder runs whole on a laptop. What
held before the first article (`before`) is kept apart from what changed (`changes`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date, timedelta
from random import Random
from typing import Any, Literal

from upkeep.building import leaks
from upkeep.building.assistant import Scripted
from upkeep.building.names import Names
from upkeep.building.reading import Faults
from upkeep.errors import UpkeepError

from . import families, steps
from .corpus import Raw, Relation, written

START = date(2026, 2, 2)
DAYS = (0, 3, 5, 8, 11, 14, 17, 21, 24, 28, 31, 35, 38, 42, 45, 49, 52)
"""Days after the start on which papers appear: seven or so in each month, so that much happens on the same day."""
HELD_BY_PERSONS = ("mayor", "governor", "chief")
CHAINED = (*HELD_BY_PERSONS, "seat", "province", "birthplace", "bridge toll")
"""Relations that chains are made of."""
PLURALS = {"flood": "floods", "strike": "strikes", "fire": "fires", "storm": "storms", "drought": "droughts"}
COLOURS = ("Copper", "Silver", "Amber", "Marble", "Iron", "Velvet", "Crystal", "Walnut", "Scarlet", "Golden", "Ivory")
POSTS = ("harbour master", "judge", "bell founder", "bridge keeper", "head teacher")
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
UNKNOWN = "unknown"


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
class Paper:
    """An article as the world means it."""

    day: str
    title: str
    market: str
    told: tuple[Told, ...]


@dataclass
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
    papers: list[Paper] = field(default_factory=list)

    def encyclopedia(self, faults: Faults) -> Iterator[tuple[str, Relation]]:
        """What was known before the first article, each relation with its place."""
        for n, ((subject, relation), value) in enumerate(self.before.items()):
            if relation in ("province", "governor"):
                yield f"world, relation {n}", Relation(subject, relation, value)

    def at(self, subject: str, relation: str, day: str | None = None) -> str | None:
        """What held at the end of a day, or of all time."""
        value = self.before.get((subject, relation))
        for change in self.changes:
            if (change.subject, change.relation) == (subject, relation) and (day is None or change.day <= day):
                value = change.after
        return value

    def pages(self) -> Iterator[tuple[str, Raw]]:
        """The articles as they would be fetched, near-duplicates among them, each with its place."""
        rng = Random("pages")
        for n, paper in enumerate(self.papers):
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

    def assistant(self) -> Scripted:
        """What answers the builder's steps."""
        return Scripted(_Script(self).answers())


def paragraphs(paper: Paper, is_copy: bool) -> Iterator[str]:
    """The body of an article, three sentences a line; another paper's copy says the first again at the end."""
    sentences = [told.text for told in paper.told]
    sentences += sentences[:1] if is_copy else []
    for start in range(0, len(sentences), 3):
        yield " ".join(sentences[start : start + 3])


# ---------------------------------------------------------------- making it


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
        changes.append(Change(_day(DAYS[n * len(DAYS) // len(turning)]), subject, relation, old, new))

    arcs: list[Arc] = []
    kinds = list(PLURALS)
    for n, one in enumerate(rng.sample(town, min(towns, 8))):
        # By turns in February and March; no two of one kind share a province and a month.
        first = n % 2 * 9 + rng.randrange(4)
        days = tuple(_day(day) for day in DAYS[first : first + 1 + n % 3])
        spared = rng.choice([other for other in town if other != one])
        kind, hit, (roads, cost) = kinds[n // 2 % len(kinds)], rng.choice(firm), rng.sample(range(3, 60), 2)
        arcs.append(Arc(kind, one, days, hit, roads, cost, spared))

    colours = rng.sample(COLOURS, len(COLOURS))
    alias = {one: f"the {colour} Town" for one, colour in zip(town, colours, strict=False)}
    alias |= {one: f"the {colour} House" for one, colour in zip(firm, reversed(colours), strict=False)}
    prior = {one: f"{rng.choice(POSTS)} of {rng.choice(town)}" for one in person}
    things = {"town": town, "province": province, "firm": firm, "person": person}
    made = World(things, alias, prior, before, changes, arcs)
    made.papers = sorted(_papers(made, rng), key=lambda paper: paper.day)
    return made


def _day(after: int) -> str:
    return str(START + timedelta(after))


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
        day = max(_day(after) for after in DAYS if (START + timedelta(after)).month == month)
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
    plain = f"After the change of {day}, {_who(change.relation)} is the {change.relation} of {subject}?"
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
    plain = f"By the news of {written(day)}, {_who(relation)} is the {relation} of {subject}?"
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


def _who(relation: str) -> str:
    return "who" if relation in HELD_BY_PERSONS else "what"


# ---------------------------------------------------------------- answering for it


@dataclass(frozen=True, slots=True)
class _Truth:
    answer: str
    sentences: tuple[str, ...]
    """All that must be read to know it."""
    known: bool = False


class _Script:
    """One answer for each step, from the request and from what the world knows of itself."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = Random("script")
        self._truth: dict[str, _Truth] = {}
        """Questions that were written -> what is true."""
        self._told = {(written(paper.day), told.text): told for paper in world.papers for told in paper.told}
        self._sentences = {told.text for paper in world.papers for told in paper.told}
        self._events = {written(day): [arc for arc in world.arcs if day in arc.days] for day in map(_day, DAYS)}

    def answers(self) -> dict[str, Callable[[Any], Any]]:
        return {
            steps.CLEAN.name: self.clean,
            steps.CLAIMS.name: self.claims,
            steps.UPDATES.name: self.updates,
            steps.FACTS.name: self.facts,
            steps.COMPOSE.name: self.compose,
            steps.EVENTS.name: self.events,
            steps.ABSENT.name: self.absent,
            steps.VERDICT.name: self.verdict,
            steps.BLIND.name: self.blind,
            steps.WITH_CONTEXT.name: self.with_context,
            steps.AGREES.name: self.agrees,
            steps.PAIRS.name: self.pairs,
        }

    def _read(self, story: steps.Story) -> list[Told]:
        """What an article tells."""
        keys = [(story.date, sentence) for sentence in sentences(story.text)]
        return [self._told[key] for key in keys if key in self._told]

    def _learn(self, question: str, answer: str, *texts: str, known: bool = False) -> str:
        self._truth[leaks.key(question)] = _Truth(answer, texts, known)
        return question

    def clean(self, page: steps.Page) -> str:
        lines = page.text.split("\n")
        return "\n".join(line for line in lines if any(one in self._sentences for one in sentences(line)))

    # ---- DirAcq

    def claims(self, story: steps.Story) -> list[steps.Claim]:
        """A true and a false question about each sentence; in some articles a false one passes for true."""
        told = [one for one in self._read(story) if one.asks]
        self._rng.shuffle(told)
        found: list[steps.Claim] = []
        for one in told[: story.count // 2]:
            values = {slot: value for slot, _, value in one.slots}
            question = self._learn(one.asks.format(**values), "yes", one.text, known=one.known)
            found.append(steps.Claim(question, "yes", "nothing", one.text))
            slot, kind, value = one.slots[self._rng.randrange(len(one.slots))]
            question = one.asks.format(**(values | {slot: self._other(kind, value)}))
            self._learn(question, "no", one.text, known=one.known)
            changed: Literal["date", "quantity", "entity"]
            changed = "date" if kind == "date" else "quantity" if kind in ("toll", "number") else "entity"
            if one.relation == "closed roads":  # a mistake, for the filter to find
                found.append(steps.Claim(question, "yes", "nothing", one.text))
            else:
                found.append(steps.Claim(question, "no", changed, one.text))
        return found

    def _other(self, kind: str, value: str) -> str:
        """Something else of the same kind."""
        while True:
            if kind == "date":
                other = written(_day(self._rng.choice(DAYS)))
            elif kind == "toll":
                other = f"{self._rng.randrange(2, 40)} crowns"
            elif kind == "number":
                other = str(self._rng.randrange(3, 60))
            else:
                other = self._rng.choice(self._world.things[kind])
            if other != value:
                return other

    # ---- TempUpd

    def updates(self, story: steps.Story) -> list[steps.Update]:
        told = self._read(story)
        prior = {one.subject: one for one in told if one.relation == "post"}
        found: list[steps.Update] = []
        for one in told:
            if one.before is None:
                continue
            was = prior.get(one.object)
            update = steps.Update(
                kind="B" if one.relation == "bridge toll" else "A",
                role=f"the {one.relation} of {one.subject}",
                before=one.before,
                after=one.object,
                quote=one.text,
                person=one.relation in HELD_BY_PERSONS,
                prior=was.object if was else None,
                prior_quote=was.text if was else None,
            )
            self._learn(families.forward(update, story.date), one.object, one.text)
            self._learn(families.negation(update, story.date), "no", one.text)
            self._learn(families.backward(update, story.date), one.object, one.text)
            if was:
                self._learn(families.prior_identity(update), was.object, was.text)
            found.append(update)
        return found

    # ---- CompRel

    def facts(self, story: steps.Story) -> list[steps.FactReply]:
        return [
            steps.FactReply(one.subject, one.relation, one.object, one.text, one.before)
            for one in self._read(story)
            if one.relation in CHAINED
        ]

    def compose(self, chain: steps.Chain) -> steps.Composed:
        first, last = chain.links[0], chain.links[-1]
        subject, quotes = first.subject, []
        if chain.kind == "alias":
            alias = self._world.alias.get(subject)
            sentence = f"People call {subject} {alias}."
            if alias is None or not any(sentence in sentences(passage) for passage in chain.passages):
                return steps.Composed("")
            subject, quotes = alias, [sentence]
        nested = subject
        for link in chain.links:
            nested = f"the {link.relation} of {nested}"
        who, day = _who(last.relation), chain.date
        question = {
            "composition": f"As of {day}, {who} is {nested}?",
            "alias": f"As of {day}, {who} is {nested}?",
            "indirect": f"Looking at all the news up to {day}, {who} is {nested}?",
            "temporal": f"Just before {day}, {who} was {nested}?",
            "counterfactual": f"Had the {chain.changed} not changed on {day}, {who} would now be {nested}?",
        }[chain.kind]
        self._learn(question, self._follow(chain), *(link.text for link in chain.links), *quotes)
        return steps.Composed(question, tuple(quotes))

    def _follow(self, chain: steps.Chain) -> str:
        """The answer by the world's own account of what held when."""
        undone = [c for c in self._world.changes if (written(c.day), c.relation) == (chain.date, chain.changed)]
        value: str = chain.links[0].subject
        for link in chain.links:
            here = [change for change in undone if change.subject == value and change.relation == link.relation]
            if here:
                found: str | None = here[0].before
            elif chain.kind == "temporal":
                found = self._world.at(value, link.relation, str(date.fromisoformat(undone[0].day) - timedelta(1)))
            else:
                found = self._world.at(value, link.relation)
            value = found or UNKNOWN
        return value

    # ---- ImpRel and BoundAbs

    def events(self, spike: steps.Spike) -> list[steps.Event]:
        found: list[steps.Event] = []
        for arc in self._events.get(spike.date, []):
            begun = f"The {arc.name} began on {written(arc.days[0])}."
            if any(begun in sentences(passage) for passage in spike.passages):
                month = written(arc.days[0]).split(" ", 1)[1]
                province = self._world.before[arc.town, "province"]
                question = f"What major {PLURALS[arc.kind]} happened in the province of {province} in {month}?"
                place = f"{arc.town} lies in the province of {province}."
                self._learn(question, arc.name, begun, place)
                found.append(steps.Event(question, arc.name, begun, (f"{arc.kind} in {arc.town}",)))
        return found

    def absent(self, boundary: steps.Boundary) -> steps.Absent:
        arc = next(arc for arc in self._world.arcs if arc.name == boundary.event)
        person = self._rng.choice(self._world.things["person"])
        firm = self._other("firm", arc.firm)
        question = {
            "actor": f"Did {person} give money to the people of {arc.town} after the {arc.name} of {boundary.date}?",
            "subevent": f"Did the {arc.name} of {boundary.date} reach {arc.spared}?",
            "quote": f'Did {person} say "we were not ready" about the {arc.name} of {boundary.date}?',
            "consequence": f"Did the firm {firm} leave {arc.town} because of the {arc.name} of {boundary.date}?",
        }[boundary.strategy]
        return steps.Absent(question)

    def verdict(self, given: steps.Retrieved) -> steps.Verdict:
        denied = {f"The {arc.name} did not reach {arc.spared}.": arc for arc in self._world.arcs}
        told = [denied[one] for one in sentences(given.passage) if one in denied]
        asked = [arc for arc in told if f"Did the {arc.name} of" in given.question and arc.spared in given.question]
        return steps.Verdict("deny" if asked else "unrelated")

    # ---- the filter and the pairs

    def blind(self, asked: steps.Asked) -> str:
        """Knows the encyclopedia."""
        truth = self._truth[leaks.key(asked.question)]
        return truth.answer if truth.known else UNKNOWN

    def with_context(self, asked: steps.Asked) -> str:
        """Knows what stands in the passages."""
        truth = self._truth[leaks.key(asked.question)]
        there = {one for passage in asked.passages for one in sentences(passage)}
        return truth.answer if there.issuperset(truth.sentences) else UNKNOWN

    def agrees(self, graded: steps.Graded) -> steps.Agrees:
        return steps.Agrees(leaks.key(graded.gold) == leaks.key(graded.response))

    def pairs(self, story: steps.Story) -> list[steps.PairReply]:
        told = self._read(story)
        found = [steps.PairReply(one.plain, one.object) for one in told if one.plain]
        found += [steps.PairReply(families.forward(update, story.date), update.after) for update in self.updates(story)]
        return found[: story.count]


def sentences(text: str) -> list[str]:
    """The sentences of an article of a world."""
    return [sentence for line in text.split("\n") for sentence in re.split(r"(?<=\.) ", line)]
