"""What the assistant is asked about facts: whether they changed, questions, and answers at each date (2.2, 4.1).

Wording as in `fact_steps`.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from upkeep.building.assistant import Step

from .phrasing import Dated, One, Same, Topic, Two, Verdict, numbered, yes_no


class Evidence(Struct, frozen=True):
    about: Topic
    passages: tuple[Dated, ...]
    """In order of time."""


class Change(Struct, frozen=True):
    evolving_knowledge: Verdict
    reasoning: str = ""


def _change(given: Evidence) -> str:
    passages = "\n".join(f"[{passage.date}] {passage.text}" for passage in given.passages)
    return f"""You judge how knowledge changes. The dated passages below are in order of time. Say whether a later one
supersedes a fact of an earlier one, about exactly this entity, concept and attribute together and nothing else.

A fact is superseded when a later passage makes it wrong or obsolete: a value is updated, a method or process
replaced, an official name changed, a statement corrected or contradicted.
Nothing is superseded when something is only added (one more item of a growing list), when a feature becomes available
that was not there before, or when what is new agrees with what was known.

{given.about}
Passages:
{passages}

Reply with JSON and nothing else. If a fact is superseded: {{"evolving_knowledge": "yes", "reasoning": "what was known
before, and what is known now"}}. If not: {{"evolving_knowledge": "no"}}."""


CHANGE = Step("change", Change, _change)


class Changed(Struct, frozen=True):
    evidence: Evidence
    reasoning: str
    """The reply to the first turn."""


class Asked(Struct, frozen=True):
    question: str
    reasoning: str = ""


def _question(given: Changed) -> list[tuple[str, str]]:
    follow_up = """Now write one question about one fact that was superseded. Several passages would answer it
differently, and only the newest answers it rightly.

- It is grounded in the entity, the concept and the attribute, precise, with one meaning and one answer.
- It names no month, year or period, and does not hold its answer.
- It is not trivial (wording, style) and never asks for a list or for all of something.
Good targets: a number, limit or size; a recommended process; an official name; a status or level.

Reply with JSON and nothing else: {"question": "...", "reasoning": "old answer, new answer, why the new one supersedes
it"}. If no such question can be asked, leave the question empty and say why."""
    first = msgspec.json.encode(Change("yes", given.reasoning)).decode()
    return [("user", _change(given.evidence)), ("assistant", first), ("user", follow_up)]


QUESTION = Step("question", Asked, _question)


class Listing(Struct, frozen=True):
    list: Verdict


def _listing(given: One) -> str:
    return f"""Does this question ask for a list, so that a right answer needs everything there is on the subject
("In which regions is it available?", "What was changed?")?

Question: {given.text}

{yes_no("list")}"""


LISTING = Step("list_question", Listing, _listing)


def _same_question(given: Two) -> str:
    return f"""Do these two questions ask for the same piece of knowledge?

First: {given.first}
Second: {given.second}

{yes_no("same")}"""


SAME_QUESTION = Step("same_question", Same, _same_question)


# ---------------------------------------------------------------- gold answers


class Source(Struct, frozen=True):
    question: str
    document: Dated


class Relevant(Struct, frozen=True):
    relevant: Verdict


def _relevant(given: Source) -> str:
    return f"""Is the document directly about what the question asks, and does it hold enough to answer it?

Document ({given.document.date}):
{given.document.text}

Question: {given.question}

{yes_no("relevant")}"""


RELEVANT = Step("relevant", Relevant, _relevant)


class Extracted(Struct, frozen=True):
    answer: str


def _extract(given: Source) -> str:
    return f"""Answer the question from the document alone, in as few words as it takes (a value, a name, a short
phrase), in the document's own words. Add nothing that is not there.

Document ({given.document.date}):
{given.document.text}

Question: {given.question}

Reply with JSON and nothing else: {{"answer": "..."}}; an empty text if the document does not answer it."""


EXTRACT = Step("extract", Extracted, _extract)


class Found(Struct, frozen=True):
    """An answer from one document."""

    id: int
    date: str
    answer: str
    context: str
    """Words of the document around it."""


class Answers(Struct, frozen=True):
    question: str
    answers: tuple[Found, ...]
    """Newest first."""


class Evolves(Struct, frozen=True):
    changed: Verdict


def _history(given: Answers) -> str:
    return "\n".join(f"[{a.id}] {a.date}: {a.answer}\n    from: {a.context}" for a in given.answers)


def _evolves(given: Answers) -> str:
    return f"""Below are answers to a question from documents of several dates, newest first. Did the knowledge itself
change from one to another? Other words, more detail or another unit for the same fact are no change.

Question: {given.question}
Answers:
{_history(given)}

{yes_no("changed")}"""


EVOLVES = Step("evolves", Evolves, _evolves)


class Final(Struct, frozen=True):
    final_answer: str
    answer_ids: list[int]


def _final(given: Answers) -> str:
    return f"""Merge the dated answers below, newest first, into the one answer to the question that is right now.

- Where a newer answer corrects or replaces an older one, the newer holds and the older is dropped.
- Keep an older answer where it completes the newer ones and nothing contradicts it.
- Add nothing that is not in the answers. Be concise: where a value or a name answers, give that alone.

Question: {given.question}
Answers:
{_history(given)}

Reply with JSON and nothing else: {{"final_answer": "...", "answer_ids": [ids of all answers used]}}."""


FINAL = Step("final", Final, _final)


class Older(Struct, frozen=True):
    question: str
    answer: str
    older: tuple[str, ...]


class Stale(Struct, frozen=True):
    outdated: list[int]


def _stale(given: Older) -> str:
    return f"""The answer to the question is the one given. Which of the earlier answers are wrong by it? One that is
still true, as a part of it or beside it, or that says the same in other words, is not wrong.

Question: {given.question}
Answer: {given.answer}
Earlier answers:
{numbered(given.older)}

Reply with JSON and nothing else: {{"outdated": [numbers of the wrong ones]}}; an empty list if there is none."""


STALE = Step("stale", Stale, _stale)


# ---------------------------------------------------------------- control set


class Calm(Struct, frozen=True):
    document: Dated
    entity: str
    concept: str


class Static(Struct, frozen=True):
    question: str
    answer: str = ""
    attribute: str = ""


def _static(given: Calm) -> str:
    return f"""Write one question about a fact in the document that does not change over time, with its answer.

- The fact is about the entity and the concept below, is stated in the document and will still be true years later: no
  prices, limits, versions, counts so far, availability or status.
- The question is precise, has one meaning and one answer, is not trivial, asks for no list, names no month, year or
  period, and can be understood without the document. It does not hold its answer.
- The answer is as short as can be, in the document's own words.
- attribute: the property that is asked for, as a short noun phrase.

Entity: {given.entity}
Concept: {given.concept}
Document ({given.document.date}):
{given.document.text}

Reply with JSON and nothing else: {{"question": "...", "answer": "...", "attribute": "..."}}; {{"question": ""}} if
the document has no such fact."""


STATIC = Step("static", Static, _static)
