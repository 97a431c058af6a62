"""The program that replies in the assistant's place: what a synthetic world and its papers know of themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from random import Random
from typing import Literal

from upkeep.building import leaks
from upkeep.building.assistant import Script

from . import steps, updates
from .corpus import written
from .papers import Paper, Told, asked_by, sentences
from .synthetic import CHAINED, DAYS, HELD_BY_PERSONS, PLURALS, World, after_start

UNKNOWN = "unknown"


def script(world: World, papers: Sequence[Paper]) -> Script:
    """For each step what it replies about the texts of these papers."""
    return _Replies(world, papers).by_step()


@dataclass(frozen=True, slots=True)
class _Truth:
    answer: str
    sentences: tuple[str, ...]
    """All that must be read to know it."""
    known: bool = False


class _Replies:
    """One answer for each step, from the request and from what the world knows of itself."""

    def __init__(self, world: World, papers: Sequence[Paper]) -> None:
        self._world = world
        self._rng = Random("script")
        self._truth: dict[str, _Truth] = {}
        """Questions that were written -> what is true."""
        self._told = {(written(paper.day), told.text): told for paper in papers for told in paper.told}
        self._sentences = {told.text for paper in papers for told in paper.told}
        self._events = {written(day): [arc for arc in world.arcs if day in arc.days] for day in map(after_start, DAYS)}

    def by_step(self) -> Script:
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
                other = written(after_start(self._rng.choice(DAYS)))
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
            self._learn(updates.forward(update, story.date), one.object, one.text)
            self._learn(updates.negation(update, story.date), "no", one.text)
            self._learn(updates.backward(update, story.date), one.object, one.text)
            if was:
                self._learn(updates.prior_identity(update), was.object, was.text)
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
        who, day = asked_by(last.relation), chain.date
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
        found += [steps.PairReply(updates.forward(update, story.date), update.after) for update in self.updates(story)]
        return found[: story.count]
