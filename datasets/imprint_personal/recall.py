"""DirAcq and RefRes: what is true of a user is asked for, plainly or by a paraphrase (D.3)."""

from __future__ import annotations

from msgspec import Struct

from upkeep.building.assistant import Step

from .author import Author, Candidate, Draft, letter
from .frames import Frame, as_json
from .personas import Fact, Persona, best_turn, overlap

DIRECT = 0.8
"""Lexical overlap from which a message states a fact directly (D.3)."""


class Explicit(Struct, frozen=True):
    claim: str
    turn: str


def _explicit(given: Explicit) -> str:
    return f"""A fact about a user is paired with the message in which it first comes up. How does the message show
it?

Fact: {given.claim}
Message: {given.turn}

A: the user says it, or says it in nearly the same words, about themselves
B: the message is about the subject, without saying that it is so
C: it can only be inferred, from what the user does, how they write, or what they wrote
D: the message does not show it

Answer with one letter."""


EXPLICIT = Step("imprint_personal.explicitness", str, _explicit)


class Recall(Struct, frozen=True):
    frame: Frame
    family: str
    user: str


_CONTRACTS = {
    "dir_acq": "It names the attribute or its area plainly and asks what is true of the user.",
    "ref_res": "It refers to the attribute by a paraphrase, a description or a role, uses none of the surface forms, "
    "and asks what is true of the user.",
    "imp_rel": "It asks for what follows for a decision, not for the fact itself.",
    "comp_rel": "It asks for a decision that several facts have to be combined for.",
}


def _recall(given: Recall) -> str:
    return f"""Write one question about a user, out of the frame of a fact.

{as_json(given.frame)}

What the question must be: {_CONTRACTS[given.family]} It never asks what to recommend or to do. It does not contain
the value. It is one natural sentence that calls the user "{given.user}". The expected answer says the same as the
normalized claim, in a few words.

Give one JSON object: {{"question": "...", "expected_answer": "..."}}"""


RECALL = Step("imprint_personal.recall", Candidate, _recall)


class Contract(Struct, frozen=True):
    frame: Frame
    family: str
    question: str
    answer: str


class ContractVerdict(Struct, frozen=True):
    passes: bool
    answer_matches_fact: bool
    label: str = ""
    question_intent: str = ""
    reason: str = ""


def _contract(given: Contract) -> str:
    families = "\n".join(f"- {family}: {rule}" for family, rule in _CONTRACTS.items())
    return f"""Check a question that was written out of the frame of a fact about a user.

{as_json(given.frame)}

Families:
{families}

Wanted family: {given.family}
Question: {given.question}
Expected answer: {given.answer}

Does the question keep to what its family must be, and does the answer say what the fact says? Give one JSON object
with the keys passes (true or false), label (the family that it really is), question_intent, answer_matches_fact
(true or false), reason."""


CONTRACT = Step("imprint_personal.contract_audit", ContractVerdict, _contract)


def write(author: Author) -> list[Draft]:
    """What a user said about themselves gives DirAcq, and RefRes too; what has to be inferred gives RefRes."""
    turns = {(p.id, f.claim): best_turn(p, f) for p in author.personas for f in author.usable(p)}
    unclear = [key for key, turn in turns.items() if overlap(key[1], turn) < DIRECT]
    letters = author.helper.ask(EXPLICIT, [Explicit(key[1], turns[key]) for key in unclear])
    how = dict.fromkeys(turns, "A") | dict(zip(unclear, map(letter, letters), strict=True))
    plan: list[tuple[Persona, Fact, str]] = []
    for p in author.personas:
        facts = author.shuffled("recall", p, author.usable(p))
        direct = [fact for fact in facts if how[p.id, fact.claim] == "A"]
        inferred = [fact for fact in facts if how[p.id, fact.claim] in ("B", "C")]
        if hidden := len(facts) - len(direct) - len(inferred):
            author.left_out["facts, message does not show it"] += hidden
        plan += [(p, fact, "dir_acq") for fact in direct[: author.limit("dir_acq")]]
        plan += [(p, fact, "ref_res") for fact in (inferred + direct)[: author.limit("ref_res")]]
    replies = author.helper.ask(RECALL, [Recall(author.frame(p, f), fam, p.name) for p, f, fam in plan])
    drafts = author.drafted(plan, replies)
    verdicts = author.helper.ask(
        CONTRACT,
        [Contract(author.frame(d.persona, d.facts[0]), d.family, d.question, d.answers[0]) for d in drafts],
    )
    passed = [v is not None and v.passes and v.answer_matches_fact for v in verdicts]
    return author.without_user(author.kept(drafts, passed, "contract audit"))
