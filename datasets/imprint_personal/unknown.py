"""BoundAbs: what an assistant cannot or must not know of its user (D.3)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from msgspec import Struct

from upkeep.building import leaks
from upkeep.building.assistant import Step

from .author import Author, Draft
from .personas import Fact, Persona

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
_HIDDEN = ("forget", "sensitive", "untold")


class Unknown(Struct, frozen=True):
    claim: str
    user: str


class Asked(Struct, frozen=True):
    question: str


def _unknown(given: Unknown) -> str:
    return f"""The assistant of {given.user} does not know this about them:

{given.claim}

Write one short, natural question about {given.user} that needs it. An assistant without it has to say that it does
not know. Do not give the fact away. Give one JSON object: {{"question": "..."}}"""


UNKNOWN = Step("imprint_personal.bound_abs", Asked, _unknown)


def write(author: Author) -> list[Draft]:
    """What an assistant must not know; not filtered (D.3).

    First what a user wanted forgotten, what is private and what no session tells; then what is true of other users
    about things that are not known of this one.
    """
    plan: list[tuple[Persona, Fact, str]] = []
    for p in author.personas:
        rng = author.rng("bound_abs", p)
        own = sorted((fact for fact in p.facts if fact.hidden), key=lambda fact: _HIDDEN.index(fact.hidden))
        plan += [(p, fact, fact.hidden) for fact in own[: author.budget["bound_abs"]]]
        foreign = list(_foreign(author, p))
        rng.shuffle(foreign)
        plan += [(p, fact, "foreign") for fact in foreign[: max(0, author.budget["bound_abs"] - len(own))]]
    replies = author.helper.ask(UNKNOWN, [Unknown(fact.claim, p.name) for p, fact, _ in plan])
    drafts: list[Draft] = []
    for (p, fact, _), reply in zip(plan, replies, strict=True):
        if reply is None or not reply.question.strip():
            author.left_out["bound_abs, no candidate"] += 1
        elif leaks.tells(reply.question, ABSTENTIONS):
            author.left_out["bound_abs, answer in question"] += 1
        else:
            told = () if fact.hidden in ("untold", "") else (fact,)
            drafts.append(Draft(p, "bound_abs", reply.question.strip(), ABSTENTIONS, told))
    return drafts


def _foreign(author: Author, persona: Persona) -> Iterator[Fact]:
    """Facts of other users of the same source, with this user's name, one an attribute that is new to this one."""
    known = {leaks.key(frame.attribute) for (id, _), frame in author.frames.items() if id == persona.id}
    for other in author.personas:
        if other.source == persona.source and other.id != persona.id:
            for fact in author.usable(other):
                attribute = leaks.key(author.frame(other, fact).attribute)
                if attribute not in known:
                    known.add(attribute)
                    yield replace(fact, claim=fact.claim.replace(other.name, persona.name), sessions=())
