"""Training pairs out of the facts that the chunks tell (Table 10)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import Struct

from upkeep.building import leaks
from upkeep.building.assistant import Step
from upkeep.contract import Pair

from .author import Author, Candidate
from .frames import Frame, as_json
from .personas import Fact, Persona


class Distil(Struct, frozen=True):
    frame: Frame
    count: int
    user: str


def _distil(given: Distil) -> str:
    return f"""Write {given.count} pairs of a question about {given.user} and its answer, for training, all out of
this fact. The questions differ in wording, name the user and do not contain the answer. The answers are short
sentences.

{as_json(given.frame)}

Give one JSON list of objects: [{{"question": "...", "expected_answer": "..."}}]"""


DISTIL = Step("imprint_personal.supervision", list[Candidate], _distil)


def write(author: Author, per_chunk: int, asked: Iterable[str], told_in: Callable[[Persona, Fact], str]) -> list[Pair]:
    """Training pairs, as many a fact, out of those that each chunk tells first (Table 10); none that is asked.

    Args:
        told_in: the id of the last document that tells a fact.
    """
    plan: list[Distil] = []
    sources: list[str] = []
    for p in author.personas:
        for chunk in sorted(set(p.chunks)):
            facts = _held(author, p, chunk)
            each, more = divmod(per_chunk, len(facts) or 1)
            plan += [
                Distil(author.frame(p, fact), each + (n < more), p.name) for n, fact in enumerate(facts[:per_chunk])
            ]
            sources += [told_in(p, fact) for fact in facts[:per_chunk]]
    known = {leaks.key(question) for question in asked}
    pairs: dict[str, Pair] = {}
    replies = author.helper.ask(DISTIL, plan)
    for distil, document, reply in zip(plan, sources, replies, strict=True):
        for one in (reply or [])[: distil.count]:
            key = leaks.key(one.question)
            if key in known:
                author.left_out["pairs, asked in the evaluation"] += 1
            elif not key or not one.expected_answer.strip() or key in pairs:
                author.left_out["pairs, empty or given twice"] += 1
            else:
                pairs[key] = Pair(question=one.question.strip(), answer=one.expected_answer.strip(), document=document)
    return list(pairs.values())


def _held(author: Author, persona: Persona, chunk: int) -> list[Fact]:
    """The facts that a chunk tells first.

    One that is replaced later on is none of them: pairs bear no date, so they would teach both values alike.
    """
    return [fact for fact in author.usable(persona) if persona.chunks[fact.sessions[0]] == chunk]
