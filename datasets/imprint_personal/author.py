"""What the families of questions about a user have in common: facts in frames, drafts, audits without the user (D.3).

Each step is asked for all personas at once, and only what survived one filter is shown to the next.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

from msgspec import Struct

from upkeep.building import leaks
from upkeep.building.assistant import Assistant, Step

from .frames import FRAME, FactGiven, Frame, affordances
from .personas import Fact, Persona

T = TypeVar("T")

OPTIONS = "ABCD"
PLAIN = "plain"
"""The subtype of a family that has none."""

# ---------------------------------------------------------------- steps


class Candidate(Struct, frozen=True):
    """An open question with its answer, as the assistant writes it."""

    question: str
    expected_answer: str


# ---- without the user


class Blind(Struct, frozen=True):
    question: str
    options: list[str] = []


def _blind(given: Blind) -> str:
    return f"""Answer this question about a user, shortly. Where you lack information, say so.

Question: {given.question}{_offered(given.options)}"""


BLIND = Step("imprint_personal.blind", str, _blind)


def _forced(given: Blind) -> str:
    return f"""Nothing is known of a user. Answer this question about them all the same: one concrete guess, in a
few words. Do not decline, and do not say that you do not know.

Question: {given.question}{_offered(given.options)}"""


FORCED = Step("imprint_personal.forced_commit", str, _forced)


class Judged(Struct, frozen=True):
    question: str
    expected: str
    response: str


def _judged(given: Judged) -> str:
    return f"""Compare an answer with the reference.

Question: {given.question}
Reference: {given.expected}
Answer: {given.response}

MATCH: the answer holds the reference's main claim and it is right; wording may differ, a part of it does not count.
NONMATCH: the answer is wrong, vague, about something else, or lacks the claim.
REFUSAL: the answer declines, or says that it does not know.

End with one of the three words."""


JUDGED = Step("imprint_personal.judge", str, _judged)


# ---- replies and texts

_LETTER = re.compile(r"(?<![A-Za-z])[A-D](?![A-Za-z])")


def letter(reply: str | None) -> str | None:
    """The one letter from A to D in a reply; None where there is none or are several."""
    found = set(_LETTER.findall(reply or ""))
    return found.pop() if len(found) == 1 else None


def verdict(reply: str | None) -> str | None:
    """The last of MATCH, NONMATCH and REFUSAL in a reply."""
    found = re.findall(r"\b(?:NONMATCH|MATCH|REFUSAL)\b", reply or "")
    return found[-1] if found else None


def lettered(options: Sequence[str]) -> str:
    """Options, one a line, each after its letter."""
    return "\n".join(f"{mark}. {option}" for mark, option in zip(OPTIONS, options, strict=True))


def _offered(options: Sequence[str]) -> str:
    return f"\n{lettered(options)}" if options else ""


def listed(facts: Sequence[str]) -> str:
    """Facts, one a line."""
    return "\n".join(f"- {fact}" for fact in facts)


# ---------------------------------------------------------------- drafts


@dataclass(frozen=True, slots=True, eq=False)
class Draft:
    """A question with its gold, before or after the audits. Each is itself only, whatever it says."""

    persona: Persona
    family: str
    question: str
    answers: tuple[str, ...]
    facts: tuple[Fact, ...]
    subtype: str = PLAIN
    outdated: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


@dataclass
class Author:
    """What the families share while their questions are written.

    Args:
        budget: questions of each family that a persona gets at most.
        candidates: candidates written for each question of the budget, since audits reject some.
        distractors: other facts beside the target of an ImpRel question.
    """

    helper: Assistant
    personas: Sequence[Persona]
    budget: Mapping[str, int]
    candidates: int
    distractors: int
    seed: int
    left_out: Counter[str] = field(default_factory=Counter)
    frames: dict[tuple[str, str], Frame] = field(default_factory=dict)
    """(persona, claim) -> frame."""

    # ------------------------------------------------------------ facts

    def make_frames(self) -> None:
        """Have a frame made of every fact, and of what it replaced."""
        given = {
            (p.id, fact.claim): FactGiven(fact.claim, fact.kind, fact.topic, p.name)
            for p in self.personas
            for fact in p.facts
        }
        for p in self.personas:
            for fact in p.facts:
                if fact.previous:
                    old = FactGiven(fact.previous, fact.kind, fact.topic, p.name)
                    given.setdefault((p.id, fact.previous), old)
        replies = self.helper.ask(FRAME, list(given.values()))
        for key, frame in zip(given, replies, strict=True):
            if frame is None or not frame.value.strip() or not frame.normalized_claim.strip():
                self.left_out["facts, no frame"] += 1
            else:
                self.frames[key] = frame

    def frame(self, persona: Persona, fact: Fact) -> Frame:
        """That of a usable fact."""
        return self.frames[persona.id, fact.claim]

    def usable(self, persona: Persona) -> list[Fact]:
        """The facts that hold at the end, that sessions tell, and that an assistant may know."""
        return [f for f in persona.facts if f.current and not f.hidden and (persona.id, f.claim) in self.frames]

    def rng(self, family: str, persona: Persona) -> Random:
        """Draws for a family's questions about a persona."""
        return Random(f"imprint_personal {self.seed} {family} {persona.id}")

    def limit(self, family: str) -> int:
        """Candidates of a family for a persona, at most."""
        return self.candidates * self.budget[family]

    def shuffled(self, family: str, persona: Persona, facts: Iterable[Fact]) -> list[Fact]:
        """The facts in an order drawn by `rng`."""
        found = list(facts)
        self.rng(family, persona).shuffle(found)
        return found

    def old(self, persona: Persona, fact: Fact) -> tuple[str, ...]:
        """What a question on the fact was answered with before it changed."""
        frame = self.frames.get((persona.id, fact.previous or ""))
        return (frame.value, frame.normalized_claim) if frame else ()

    # ------------------------------------------------------------ drafts and filters

    def drafted(
        self,
        plan: Sequence[tuple[Persona, Fact, str]],
        replies: Sequence[Candidate | None],
        subtype: str = PLAIN,
    ) -> list[Draft]:
        """Open questions out of candidates; those that tell their answer, or the old one, are left out."""
        drafts = []
        for (persona, fact, family), reply in zip(plan, replies, strict=True):
            if reply is None or not reply.question.strip() or not reply.expected_answer.strip():
                self.left_out[f"{family}, no candidate"] += 1
                continue
            answers = distinct([reply.expected_answer, self.frame(persona, fact).value])
            outdated = tuple(old for old in self.old(persona, fact) if leaks.key(old) not in map(leaks.key, answers))
            if leaks.tells(reply.question, [*answers, *outdated]):
                self.left_out[f"{family}, answer in question"] += 1
                continue
            if family == "ref_res" and leaks.tells(reply.question, self.frame(persona, fact).surface_forms):
                self.left_out["ref_res, surface form in question"] += 1
                continue
            drafts.append(Draft(persona, family, reply.question.strip(), answers, (fact,), subtype, outdated))
        return drafts

    def kept(self, drafts: Sequence[Draft], passed: Sequence[bool], audit: str) -> list[Draft]:
        """Those that passed an audit; the others are counted under its name."""
        for draft, good in zip(drafts, passed, strict=True):
            if not good:
                self.left_out[f"{draft.family}, {audit}"] += 1
        return [draft for draft, good in zip(drafts, passed, strict=True) if good]

    def without_user(self, drafts: list[Draft]) -> list[Draft]:
        """Those that neither a cautious nor a committed answer gets right without knowing the user."""
        for step, audit in ((BLIND, "answered blind"), (FORCED, "guessed")):
            replies = self.helper.ask(step, [Blind(d.question, list(d.options)) for d in drafts])
            drafts = self.kept(drafts, [not right for right in self.matches(drafts, replies)], audit)
        return drafts

    def matches(self, drafts: Sequence[Draft], replies: Sequence[str | None]) -> list[bool]:
        """Whether each reply gives the gold: by its letter, or by the judge of open answers (spec 9)."""
        open_ones = [n for n, d in enumerate(drafts) if not d.options and (replies[n] or "").strip()]
        verdicts = self.helper.ask(
            JUDGED,
            [Judged(drafts[n].question, drafts[n].answers[0], replies[n] or "") for n in open_ones],
        )
        matched = {n for n, reply in zip(open_ones, verdicts, strict=True) if verdict(reply) == "MATCH"}
        return [
            letter(reply) == draft.answers[0] if draft.options else n in matched
            for n, (draft, reply) in enumerate(zip(drafts, replies, strict=True))
        ]


def alternating(*sources: Iterable[T]) -> Iterator[T]:
    """The first of each source, then the second of each, and so on."""
    waiting = [iter(source) for source in sources]
    while waiting:
        still = []
        for source in waiting:
            for one in itertools.islice(source, 1):
                yield one
                still.append(source)
        waiting = still


def grouped(pool: Sequence[tuple[Fact, Frame]]) -> dict[str, list[tuple[Fact, Frame]]]:
    """Facts by the affordances that they share, in order of these."""
    names = sorted({name for _, frame in pool for name in affordances(frame)})
    return {name: [one for one in pool if name in affordances(one[1])] for name in names}


def distinct(texts: Sequence[str]) -> tuple[str, ...]:
    """Texts that say something, each once whatever its case or punctuation."""
    found: dict[str, str] = {}
    for text in texts:
        if key := leaks.key(text):
            found.setdefault(key, text.strip())
    return tuple(found.values())
