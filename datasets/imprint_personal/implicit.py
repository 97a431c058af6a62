"""ImpRel: a decision that one fact about a user settles without being named (D.3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from upkeep.building import leaks
from upkeep.building.assistant import Step

from .author import Author, Draft, alternating, distinct, grouped, listed
from .frames import AFFORDANCES, Frame, affordances, all_as_json, as_json
from .personas import Fact, Persona


class Apply(Struct, frozen=True):
    target: Frame
    distractors: list[Frame]
    affordance: str
    banned: list[str]
    user: str


class Applied(Struct, frozen=True):
    question: str
    gold_answer: str
    scenario: str = ""
    decision: str = ""
    explanation: str = ""


def _apply(given: Apply) -> str:
    return f"""Write a question in which one fact about a user matters without being mentioned.

The fact that decides it:
{as_json(given.target)}

Facts about the same user that do not matter here:
{all_as_json(given.distractors)}

Task: {given.affordance}
Not to be used in the question: {", ".join(given.banned)}

Invent a realistic situation in which an assistant should act otherwise because of the fact. Ask one natural
question on what to suggest, choose, plan, avoid or keep in mind for "{given.user}". The question gives away
nothing about the user (no trait, health, pastime, timetable, identity or taste) and does not begin with a remark
that points to what is known of them. The gold answer is the recommendation in a few words, not the fact.

Give one JSON object with the keys scenario, decision, question, gold_answer, explanation."""


APPLY = Step("imprint_personal.imp_rel", Applied, _apply)


class FromFacts(Struct, frozen=True):
    facts: list[str]
    question: str


def _from_facts(given: FromFacts) -> str:
    return f"""What is known of a user:
{listed(given.facts)}

Question: {given.question}

Answer in a few words, from these facts. Where they do not decide it, answer "I don't know"."""


FROM_FACTS = Step("imprint_personal.imp_rel_oracle", str, _from_facts)


class Application(Struct, frozen=True):
    facts: list[str]
    question: str
    answer: str


class ApplicationVerdict(Struct, frozen=True):
    passes: bool
    answer_is_fact: bool
    label: str = ""
    question_intent: str = ""
    reason: str = ""


def _application(given: Application) -> str:
    return f"""Check a question in which a fact about a user is to be applied.

Fact:
{listed(given.facts)}
Question: {given.question}
Gold answer: {given.answer}

It passes where the question is about what to suggest, choose, plan, avoid or keep in mind, not about what is true
of the user; where the gold answer is something to do or a judgement of fit, not the fact in other words; and where
exactly this one fact is enough. Give one JSON object with the keys passes (true or false), label, question_intent,
answer_is_fact (true or false), reason."""


APPLICATION = Step("imprint_personal.imp_rel_application_audit", ApplicationVerdict, _application)


class Universal(Struct, frozen=True):
    question: str
    answer: str


class UniversalVerdict(Struct, frozen=True):
    universal: str
    reason: str = ""


def _universal(given: Universal) -> str:
    return f"""A question should need knowledge of one particular user.

Question: {given.question}
Gold answer: {given.answer}

Would an assistant that knows nothing of the user give most people this same advice, as good practice or common
sense? Give one JSON object: {{"universal": "YES" or "NO", "reason": "..."}}"""


UNIVERSAL = Step("imprint_personal.imp_rel_universality_audit", UniversalVerdict, _universal)


def write(author: Author) -> list[Draft]:
    """A decision that one fact settles without being named, among facts of the same user that could confuse."""
    plan: list[tuple[Persona, Fact, Apply]] = []
    for p in author.personas:
        facts = author.shuffled("imp_rel", p, author.usable(p))
        pool = [(fact, author.frame(p, fact)) for fact in facts]
        given = [
            (p, fact, _situation(author, p, frame, affordance, pool))
            for affordance, (fact, frame) in _by_affordance(pool)
        ]
        plan += given[: author.limit("imp_rel")]
    drafts: list[Draft] = []
    contexts: dict[Draft, list[str]] = {}
    written = author.helper.ask(APPLY, [apply for _, _, apply in plan])
    for (p, fact, apply), reply in zip(plan, written, strict=True):
        if reply is None or not reply.question.strip() or not reply.gold_answer.strip():
            author.left_out["imp_rel, no candidate"] += 1
        elif leaks.tells(reply.question, [reply.gold_answer, apply.target.value, *apply.banned]):
            author.left_out["imp_rel, answer or fact in question"] += 1
        else:
            answers = (reply.gold_answer.strip(),)
            subtype = apply.affordance if apply.affordance in AFFORDANCES else "other"
            draft = Draft(p, "imp_rel", reply.question.strip(), answers, (fact,), subtype)
            drafts.append(draft)
            claims = [frame.normalized_claim for frame in (apply.target, *apply.distractors)]
            contexts[draft] = sorted(claims)
    drafts = author.without_user(drafts)
    replies = author.helper.ask(FROM_FACTS, [FromFacts(contexts[d], d.question) for d in drafts])
    drafts = author.kept(drafts, author.matches(drafts, replies), "fact-list oracle")
    facts_of = {d: [author.frame(d.persona, d.facts[0]).normalized_claim] for d in drafts}
    audits = author.helper.ask(APPLICATION, [Application(facts_of[d], d.question, d.answers[0]) for d in drafts])
    passed = [v is not None and v.passes and not v.answer_is_fact for v in audits]
    drafts = author.kept(drafts, passed, "application audit")
    universal = author.helper.ask(UNIVERSAL, [Universal(d.question, d.answers[0]) for d in drafts])
    passed = [v is not None and v.universal.strip().upper() == "NO" for v in universal]
    return author.kept(drafts, passed, "universality audit")


def _situation(
    author: Author, persona: Persona, target: Frame, affordance: str, pool: Sequence[tuple[Fact, Frame]]
) -> Apply:
    def confusable(frame: Frame) -> int:
        return (
            (affordance in affordances(frame))
            + (frame.constraint_dimension == target.constraint_dimension)
            + bool(set(frame.domains) & set(target.domains))
        )

    others = sorted((f for _, f in pool if f is not target), key=lambda f: (-confusable(f), f.normalized_claim))
    chosen = others[: author.distractors]
    banned = distinct([form for frame in (target, *chosen) for form in (frame.value, *frame.surface_forms)])
    return Apply(target, chosen, affordance, list(banned), persona.name)


def _by_affordance(pool: Sequence[tuple[Fact, Frame]]) -> Iterator[tuple[str, tuple[Fact, Frame]]]:
    """Each fact with each affordance that it shares with another fact, the affordances in turn."""
    groups = grouped(pool)
    return alternating(*([(name, one) for one in group] for name, group in groups.items() if len(group) > 1))
