"""The families of questions about a user, with their audits (ImprintBench, D.3).

Each step is asked for all personas at once, and only what survived one filter is shown to the next.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import TypeVar

from upkeep.building import leaks
from upkeep.building.assistant import Assistant
from upkeep.contract import Pair

from . import steps
from .releases import Fact, Persona, overlap
from .steps import AFFORDANCES, OPTIONS, Frame

T = TypeVar("T")

FAMILIES = ("dir_acq", "ref_res", "temp_upd", "imp_rel", "comp_rel", "bound_abs")
ABSTENTIONS = (
    "I don't know",
    "I do not know",
    "not enough information",
    "insufficient information",
    "no information about",
    "no record of",
    "not in my reference",
    "not mentioned",
    "not covered",
    "cannot find",
)
"""What counts as abstaining (spec 9); the paper's list ends in "etc."."""
DIRECT = 0.8
"""Lexical overlap from which a message states a fact directly (D.3)."""
PLAIN = "plain"
"""The subtype of a family that has none."""


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
    """Writes the questions.

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

    def write(self) -> list[Draft]:
        """Every family's questions: by persona, then family, at most the budget of each; none asked twice."""
        self._make_frames()
        drafts = self.recall() + self.updates() + self.implicit() + self.compositions() + self.unknown()
        kept: dict[tuple[str, str], list[Draft]] = {}
        asked: set[tuple[str, str]] = set()
        for draft in drafts:
            mine = kept.setdefault((draft.persona.id, draft.family), [])
            text = leaks.key(f"{draft.question} {' '.join(draft.options)}")
            if len(mine) == self.budget[draft.family]:
                self.left_out[f"{draft.family}, over budget"] += 1
            elif (draft.persona.id, text) in asked:
                self.left_out[f"{draft.family}, asked twice"] += 1
            else:
                asked.add((draft.persona.id, text))
                mine.append(draft)
        return [d for p in self.personas for family in FAMILIES for d in kept.get((p.id, family), [])]

    # ------------------------------------------------------------ facts

    def _make_frames(self) -> None:
        given = {
            (p.id, fact.claim): steps.FactGiven(fact.claim, fact.kind, fact.topic, p.name)
            for p in self.personas
            for fact in p.facts
        }
        for p in self.personas:
            for fact in p.facts:
                if fact.previous:
                    old = steps.FactGiven(fact.previous, fact.kind, fact.topic, p.name)
                    given.setdefault((p.id, fact.previous), old)
        replies = self.helper.ask(steps.FRAME, list(given.values()))
        for key, frame in zip(given, replies, strict=True):
            if frame is None or not frame.value.strip() or not frame.normalized_claim.strip():
                self.left_out["facts, no frame"] += 1
            else:
                self.frames[key] = frame

    def _frame(self, persona: Persona, fact: Fact) -> Frame:
        return self.frames[persona.id, fact.claim]

    def usable(self, persona: Persona) -> list[Fact]:
        """The facts that hold at the end, that sessions tell, and that an assistant may know."""
        return [f for f in persona.facts if f.current and not f.hidden and (persona.id, f.claim) in self.frames]

    def _rng(self, family: str, persona: Persona) -> Random:
        return Random(f"imprint_personal {self.seed} {family} {persona.id}")

    def _limit(self, family: str) -> int:
        return self.candidates * self.budget[family]

    def _shuffled(self, family: str, persona: Persona, facts: Iterable[Fact]) -> list[Fact]:
        found = list(facts)
        self._rng(family, persona).shuffle(found)
        return found

    def _old(self, persona: Persona, fact: Fact) -> tuple[str, ...]:
        """What a question on the fact was answered with before it changed."""
        frame = self.frames.get((persona.id, fact.previous or ""))
        return (frame.value, frame.normalized_claim) if frame else ()

    # ------------------------------------------------------------ DirAcq and RefRes

    def recall(self) -> list[Draft]:
        """What a user said about themselves gives DirAcq, and RefRes too; what has to be inferred gives RefRes."""
        turns = {(p.id, f.claim): best_turn(p, f) for p in self.personas for f in self.usable(p)}
        unclear = [key for key, turn in turns.items() if overlap(key[1], turn) < DIRECT]
        letters = self.helper.ask(steps.EXPLICIT, [steps.Explicit(key[1], turns[key]) for key in unclear])
        how = dict.fromkeys(turns, "A") | dict(zip(unclear, map(steps.letter, letters), strict=True))
        plan: list[tuple[Persona, Fact, str]] = []
        for p in self.personas:
            facts = self._shuffled("recall", p, self.usable(p))
            direct = [fact for fact in facts if how[p.id, fact.claim] == "A"]
            inferred = [fact for fact in facts if how[p.id, fact.claim] in ("B", "C")]
            if hidden := len(facts) - len(direct) - len(inferred):
                self.left_out["facts, message does not show it"] += hidden
            plan += [(p, fact, "dir_acq") for fact in direct[: self._limit("dir_acq")]]
            plan += [(p, fact, "ref_res") for fact in (inferred + direct)[: self._limit("ref_res")]]
        replies = self.helper.ask(steps.RECALL, [steps.Recall(self._frame(p, f), fam, p.name) for p, f, fam in plan])
        drafts = self._drafted(plan, replies)
        verdicts = self.helper.ask(
            steps.CONTRACT,
            [steps.Contract(self._frame(d.persona, d.facts[0]), d.family, d.question, d.answers[0]) for d in drafts],
        )
        passed = [v is not None and v.passes and v.answer_matches_fact for v in verdicts]
        return self._without_user(self._kept(drafts, passed, "contract audit"))

    def _drafted(
        self,
        plan: Sequence[tuple[Persona, Fact, str]],
        replies: Sequence[steps.Candidate | None],
        subtype: str = PLAIN,
    ) -> list[Draft]:
        """Open questions out of candidates; those that tell their answer, or the old one, are left out."""
        drafts = []
        for (persona, fact, family), reply in zip(plan, replies, strict=True):
            if reply is None or not reply.question.strip() or not reply.expected_answer.strip():
                self.left_out[f"{family}, no candidate"] += 1
                continue
            answers = _distinct([reply.expected_answer, self._frame(persona, fact).value])
            outdated = tuple(old for old in self._old(persona, fact) if leaks.key(old) not in map(leaks.key, answers))
            if leaks.tells(reply.question, [*answers, *outdated]):
                self.left_out[f"{family}, answer in question"] += 1
                continue
            if family == "ref_res" and leaks.tells(reply.question, self._frame(persona, fact).surface_forms):
                self.left_out["ref_res, surface form in question"] += 1
                continue
            drafts.append(Draft(persona, family, reply.question.strip(), answers, (fact,), subtype, outdated))
        return drafts

    # ------------------------------------------------------------ TempUpd

    def updates(self) -> list[Draft]:
        """NEW-INFO asks for what was not known before, CHANGED-INFO for what replaced something else."""
        new: list[tuple[Persona, Fact, str]] = []
        changed: list[tuple[Persona, Fact, str]] = []
        for p in self.personas:
            facts = self._shuffled("temp_upd", p, self.usable(p))
            fresh = [(p, fact, "temp_upd") for fact in facts if not fact.previous]
            after = [(p, fact, "temp_upd") for fact in facts if (p.id, fact.previous) in self.frames]
            mixed = list(_alternating(after, fresh))[: self._limit("temp_upd")]
            new += [one for one in mixed if not one[1].previous]
            changed += [one for one in mixed if one[1].previous]
        asked = [steps.NewInfo(f.claim, f.kind, f.topic, p.name) for p, f, _ in new]
        replies = self.helper.ask(steps.NEW_INFO, asked)
        drafts = self._drafted(new, replies, subtype="new_info")
        differing = [steps.Changed(f.previous or "", f.claim, f.topic, p.name) for p, f, _ in changed]
        replies = self.helper.ask(steps.CHANGED, differing)
        later = self._drafted(changed, replies, subtype="changed_info")
        alike = self._kept(later, [bool(d.outdated) for d in later], "old and new alike")
        survived = self._without_user(alike + drafts)
        both = [[d for d in survived if d.subtype == kind] for kind in ("changed_info", "new_info")]
        return list(_alternating(*both))

    # ------------------------------------------------------------ ImpRel

    def implicit(self) -> list[Draft]:
        """A decision that one fact settles without being named, among facts of the same user that could confuse."""
        plan: list[tuple[Persona, Fact, steps.Apply]] = []
        for p in self.personas:
            facts = self._shuffled("imp_rel", p, self.usable(p))
            pool = [(fact, self._frame(p, fact)) for fact in facts]
            given = [
                (p, fact, self._application(p, frame, affordance, pool))
                for affordance, (fact, frame) in _by_affordance(pool)
            ]
            plan += given[: self._limit("imp_rel")]
        drafts: list[Draft] = []
        contexts: dict[Draft, list[str]] = {}
        written = self.helper.ask(steps.APPLY, [apply for _, _, apply in plan])
        for (p, fact, apply), reply in zip(plan, written, strict=True):
            if reply is None or not reply.question.strip() or not reply.gold_answer.strip():
                self.left_out["imp_rel, no candidate"] += 1
            elif leaks.tells(reply.question, [reply.gold_answer, apply.target.value, *apply.banned]):
                self.left_out["imp_rel, answer or fact in question"] += 1
            else:
                answers = (reply.gold_answer.strip(),)
                subtype = apply.affordance if apply.affordance in AFFORDANCES else "other"
                draft = Draft(p, "imp_rel", reply.question.strip(), answers, (fact,), subtype)
                drafts.append(draft)
                claims = [frame.normalized_claim for frame in (apply.target, *apply.distractors)]
                contexts[draft] = sorted(claims)
        drafts = self._without_user(drafts)
        replies = self.helper.ask(steps.FROM_FACTS, [steps.FromFacts(contexts[d], d.question) for d in drafts])
        drafts = self._kept(drafts, self._matches(drafts, replies), "fact-list oracle")
        facts_of = {d: [self._frame(d.persona, d.facts[0]).normalized_claim] for d in drafts}
        audits = self.helper.ask(
            steps.APPLICATION, [steps.Application(facts_of[d], d.question, d.answers[0]) for d in drafts]
        )
        passed = [v is not None and v.passes and not v.answer_is_fact for v in audits]
        drafts = self._kept(drafts, passed, "application audit")
        universal = self.helper.ask(steps.UNIVERSAL, [steps.Universal(d.question, d.answers[0]) for d in drafts])
        passed = [v is not None and v.universal.strip().upper() == "NO" for v in universal]
        return self._kept(drafts, passed, "universality audit")

    def _application(
        self, persona: Persona, target: Frame, affordance: str, pool: Sequence[tuple[Fact, Frame]]
    ) -> steps.Apply:
        def confusable(frame: Frame) -> int:
            return (
                (affordance in map(_slug, frame.task_affordances))
                + (frame.constraint_dimension == target.constraint_dimension)
                + bool(set(frame.domains) & set(target.domains))
            )

        others = sorted((f for _, f in pool if f is not target), key=lambda f: (-confusable(f), f.normalized_claim))
        chosen = others[: self.distractors]
        banned = _distinct([form for frame in (target, *chosen) for form in (frame.value, *frame.surface_forms)])
        return steps.Apply(target, chosen, affordance, list(banned), persona.name)

    # ------------------------------------------------------------ CompRel

    def compositions(self) -> list[Draft]:
        """A choice among four options, of which one meets two or three facts."""
        plan: list[tuple[Persona, tuple[Fact, ...], steps.Compose]] = []
        for p in self.personas:
            pool = [(fact, self._frame(p, fact)) for fact in self._shuffled("comp_rel", p, self.usable(p))]
            for affordance, chosen in itertools.islice(_tuples(pool), self._limit("comp_rel")):
                frames = [frame for _, frame in chosen]
                banned = _distinct([form for frame in frames for form in frame.surface_forms])
                compose = steps.Compose(frames, affordance, steps.STEM.format(user=p.name), list(banned))
                plan.append((p, tuple(fact for fact, _ in chosen), compose))
        drafts: list[Draft] = []
        matrices: dict[Draft, dict[str, list[bool]]] = {}
        replies = self.helper.ask(steps.COMPOSE, [compose for _, _, compose in plan])
        for (p, facts, compose), reply in zip(plan, replies, strict=True):
            if reply is None or not _well_formed(reply, len(facts)):
                self.left_out["comp_rel, no candidate of the truth table"] += 1
                continue
            # Writers put the right option first more often than not, so the letters are drawn anew.
            order = list(OPTIONS)
            Random(f"{self.seed} {p.id} {sorted(reply.options.values())}").shuffle(order)
            gold = OPTIONS[order.index(reply.gold_option.strip())]
            options = tuple(reply.options[mark].strip() for mark in order)
            draft = Draft(p, "comp_rel", compose.stem, (gold,), facts, f"comp_rel_{len(facts)}", options=options)
            drafts.append(draft)
            matrices[draft] = {mark: list(reply.satisfaction[was]) for mark, was in zip(OPTIONS, order, strict=True)}
        drafts = self._without_user(drafts)
        given = {d: steps.Choose(self._claims(d), d.question, list(d.options)) for d in drafts}
        letters = self.helper.ask(steps.CHOOSE, [given[d] for d in drafts])
        sure = [steps.letter(reply) == d.answers[0] for d, reply in zip(drafts, letters, strict=True)]
        drafts = self._kept(drafts, sure, "fact-list oracle")
        letters = self.helper.ask(steps.APPEAL, [steps.Appeal(d.question, list(d.options)) for d in drafts])
        fair = [steps.letter(reply) != d.answers[0] for d, reply in zip(drafts, letters, strict=True)]
        drafts = self._kept(drafts, fair, "option-bias audit")
        verdicts = self.helper.ask(steps.MATRIX, [given[d] for d in drafts])
        passed = [
            v is not None and v.satisfaction == matrices[d] and steps.SEVERAL in v.label.lower()
            for d, v in zip(drafts, verdicts, strict=True)
        ]
        return self._kept(drafts, passed, "matrix and family audit")

    def _claims(self, draft: Draft) -> list[str]:
        return [self._frame(draft.persona, fact).normalized_claim for fact in draft.facts]

    # ------------------------------------------------------------ BoundAbs

    def unknown(self) -> list[Draft]:
        """What an assistant must not know; not filtered (D.3).

        First what a user wanted forgotten, what is private and what no session tells; then what is true of other users
        about things that are not known of this one.
        """
        plan: list[tuple[Persona, Fact, str]] = []
        for p in self.personas:
            rng = self._rng("bound_abs", p)
            own = sorted((fact for fact in p.facts if fact.hidden), key=lambda fact: _HIDDEN.index(fact.hidden))
            plan += [(p, fact, fact.hidden) for fact in own[: self.budget["bound_abs"]]]
            foreign = list(self._foreign(p))
            rng.shuffle(foreign)
            plan += [(p, fact, "foreign") for fact in foreign[: max(0, self.budget["bound_abs"] - len(own))]]
        replies = self.helper.ask(steps.UNKNOWN, [steps.Unknown(fact.claim, p.name) for p, fact, _ in plan])
        drafts: list[Draft] = []
        for (p, fact, _), reply in zip(plan, replies, strict=True):
            if reply is None or not reply.question.strip():
                self.left_out["bound_abs, no candidate"] += 1
            elif leaks.tells(reply.question, ABSTENTIONS):
                self.left_out["bound_abs, answer in question"] += 1
            else:
                told = () if fact.hidden in ("untold", "") else (fact,)
                drafts.append(Draft(p, "bound_abs", reply.question.strip(), ABSTENTIONS, told))
        return drafts

    def _foreign(self, persona: Persona) -> Iterator[Fact]:
        """Facts of other users of the same source, with this user's name, one an attribute that is new to this one."""
        known = {leaks.key(frame.attribute) for (id, _), frame in self.frames.items() if id == persona.id}
        for other in self.personas:
            if other.source == persona.source and other.id != persona.id:
                for fact in self.usable(other):
                    attribute = leaks.key(self._frame(other, fact).attribute)
                    if attribute not in known:
                        known.add(attribute)
                        yield replace(fact, claim=fact.claim.replace(other.name, persona.name), sessions=())

    # ------------------------------------------------------------ filters

    def _kept(self, drafts: Sequence[Draft], passed: Sequence[bool], audit: str) -> list[Draft]:
        for draft, good in zip(drafts, passed, strict=True):
            if not good:
                self.left_out[f"{draft.family}, {audit}"] += 1
        return [draft for draft, good in zip(drafts, passed, strict=True) if good]

    def _without_user(self, drafts: list[Draft]) -> list[Draft]:
        """Those that neither a cautious nor a committed answer gets right without knowing the user."""
        for step, audit in ((steps.BLIND, "answered blind"), (steps.FORCED, "guessed")):
            replies = self.helper.ask(step, [steps.Blind(d.question, list(d.options)) for d in drafts])
            drafts = self._kept(drafts, [not right for right in self._matches(drafts, replies)], audit)
        return drafts

    def _matches(self, drafts: Sequence[Draft], replies: Sequence[str | None]) -> list[bool]:
        """Whether each reply gives the gold: by its letter, or by the judge of open answers (spec 9)."""
        open_ones = [n for n, d in enumerate(drafts) if not d.options and (replies[n] or "").strip()]
        verdicts = self.helper.ask(
            steps.JUDGED,
            [steps.Judged(drafts[n].question, drafts[n].answers[0], replies[n] or "") for n in open_ones],
        )
        matched = {n for n, reply in zip(open_ones, verdicts, strict=True) if steps.verdict(reply) == "MATCH"}
        return [
            steps.letter(reply) == draft.answers[0] if draft.options else n in matched
            for n, (draft, reply) in enumerate(zip(drafts, replies, strict=True))
        ]

    # ------------------------------------------------------------ supervision

    def supervision(self, per_chunk: int, asked: Iterable[str]) -> list[Pair]:
        """Training pairs, as many a fact, out of those that each chunk tells first (Table 10); none that is asked."""
        plan: list[steps.Distil] = []
        for p in self.personas:
            for chunk in sorted(set(p.chunks)):
                facts = self._held(p, chunk)
                each, more = divmod(per_chunk, len(facts) or 1)
                plan += [
                    steps.Distil(self._frame(p, fact), each + (n < more), p.name)
                    for n, fact in enumerate(facts[:per_chunk])
                ]
        known = {leaks.key(question) for question in asked}
        pairs: dict[str, Pair] = {}
        replies = self.helper.ask(steps.DISTIL, plan)
        for distil, reply in zip(plan, replies, strict=True):
            for one in (reply or [])[: distil.count]:
                key = leaks.key(one.question)
                if key in known:
                    self.left_out["pairs, asked in the evaluation"] += 1
                elif not key or not one.expected_answer.strip() or key in pairs:
                    self.left_out["pairs, empty or given twice"] += 1
                else:
                    pairs[key] = Pair(question=one.question.strip(), answer=one.expected_answer.strip())
        return list(pairs.values())

    def _held(self, persona: Persona, chunk: int) -> list[Fact]:
        """The facts that a chunk tells first.

        One that is replaced later on is none of them: pairs bear no date, so they would teach both values alike.
        """
        return [fact for fact in self.usable(persona) if persona.chunks[fact.sessions[0]] == chunk]


_HIDDEN = ("forget", "sensitive", "untold")


def best_turn(persona: Persona, fact: Fact, sessions: Sequence[int] | None = None) -> str:
    """The user's message that shares most words with a fact, the first of several.

    Args:
        sessions: to look in; all that tell the fact where it is not given.
    """
    places = fact.sessions if sessions is None else sessions
    turns = [turn.content for at in places for turn in persona.sessions[at].turns if turn.role == "user"]
    return max(turns, key=lambda turn: overlap(fact.claim, turn), default="")


def _by_affordance(pool: Sequence[tuple[Fact, Frame]]) -> Iterator[tuple[str, tuple[Fact, Frame]]]:
    """Each fact with each affordance that it shares with another fact, the affordances in turn."""
    groups = _groups(pool)
    return _alternating(*([(name, one) for one in group] for name, group in groups.items() if len(group) > 1))


def _groups(pool: Sequence[tuple[Fact, Frame]]) -> dict[str, list[tuple[Fact, Frame]]]:
    names = sorted({_slug(name) for _, frame in pool for name in frame.task_affordances})
    return {name: [one for one in pool if name in map(_slug, one[1].task_affordances)] for name in names}


def _tuples(pool: Sequence[tuple[Fact, Frame]]) -> Iterator[tuple[str, tuple[tuple[Fact, Frame], ...]]]:
    """Two or three facts of one affordance with distinct dimensions and attributes; sizes and affordances in turn."""

    def of(
        name: str, group: Sequence[tuple[Fact, Frame]], size: int
    ) -> Iterator[tuple[str, tuple[tuple[Fact, Frame], ...]]]:
        for chosen in itertools.combinations(group, size):
            frames = [frame for _, frame in chosen]
            if (
                len({frame.constraint_dimension for frame in frames})
                == len({frame.attribute for frame in frames})
                == size
            ):
                yield name, chosen

    return _alternating(*(of(name, group, size) for name, group in _groups(pool).items() for size in (2, 3)))


def _alternating(*sources: Iterable[T]) -> Iterator[T]:
    """The first of each source, then the second of each, and so on."""
    waiting = [iter(source) for source in sources]
    while waiting:
        still = []
        for source in waiting:
            for one in itertools.islice(source, 1):
                yield one
                still.append(source)
        waiting = still


def _well_formed(reply: steps.Composed, facts: int) -> bool:
    """Whether the four options make the truth table, with the gold one the only that meets all."""
    gold = reply.gold_option.strip()
    marks = sorted(OPTIONS)
    return (
        sorted(reply.options) == marks
        and sorted(reply.satisfaction) == marks
        and len({leaks.key(option) for option in reply.options.values()}) == len(marks)
        and all(leaks.key(option) for option in reply.options.values())
        and sorted(map(list, reply.satisfaction.values())) == sorted(steps.truth_table(facts))
        and gold in marks
        and all(reply.satisfaction[gold])
    )


def _distinct(texts: Sequence[str]) -> tuple[str, ...]:
    """Texts that say something, each once whatever its case or punctuation."""
    found: dict[str, str] = {}
    for text in texts:
        if key := leaks.key(text):
            found.setdefault(key, text.strip())
    return tuple(found.values())


def _slug(name: str) -> str:
    return leaks.key(name).replace(" ", "_")
