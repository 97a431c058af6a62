"""What the assistant is asked to do for evolveQA (2, Figures 5 to 9; B.3): inputs, replies and our wording of the
rules.

Steps that the paper names without a prompt have short ones of the same style. Every reply is one JSON object.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec import Struct

from upkeep.building.assistant import Step

Verdict = Literal["yes", "no"]


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _numbered(texts: Sequence[str]) -> str:
    return "\n".join(f"[{n}] {text}" for n, text in enumerate(texts, 1))


def _yes_no(key: str) -> str:
    return f'Reply with JSON and nothing else: {{"{key}": "yes"}} or {{"{key}": "no"}}.'


class Topic(Struct, frozen=True):
    """Entity, concept and attribute: what a question is about."""

    entity: str
    concept: str
    attribute: str

    def __str__(self) -> str:
        return f"Entity: {self.entity}\nConcept: {self.concept}\nAttribute: {self.attribute}"


class Dated(Struct, frozen=True):
    """A text with its date, YYYY-MM-DD."""

    date: str
    text: str


# ---------------------------------------------------------------- concepts and entities


class Page(Struct, frozen=True):
    text: str
    most: int
    """Concepts at most (k)."""


class Concept(Struct, frozen=True):
    normalized_title: str
    salient_entity: str


def _concepts(given: Page) -> str:
    return f"""You analyse documents with care. Find the topics that the document below exists for: at most
{given.most}. Leave out background and minor details, and do not repeat a topic in other words. Fewer than
{given.most}, or none, is fine.

For each topic give
- normalized_title: a short general title of what is introduced or stressed, without names of people, organisations or
  products, without dates and numbers;
- salient_entity: the subject of the topic, by its full official name, no abbreviation.
Both must be grounded in the document.

Example document: "The Port Authority of Ravel has raised the mooring fee for ferries to 90 crowns from May on."
Example reply: {{"1": {{"normalized_title": "Increase of a usage fee", "salient_entity": "Port Authority of Ravel"}}}}

Reply with JSON of this form and nothing else; {{}} if there is no such topic.

Document:
{given.text}"""


CONCEPTS = Step("concepts", dict[str, Concept], _concepts)


class Two(Struct, frozen=True):
    first: str
    second: str


def _same_entity(given: Two) -> str:
    return f"""Are these two names of one and the same thing (spelling, abbreviation, with or without its maker's name)?
A part, an edition or a relative of a thing is another thing.

First: {given.first}
Second: {given.second}

{_yes_no("same")}"""


class Same(Struct, frozen=True):
    same: Verdict


SAME_ENTITY = Step("same_entity", Same, _same_entity)


class One(Struct, frozen=True):
    text: str


class Virus(Struct, frozen=True):
    virus: Verdict


def _virus(given: One) -> str:
    return f"""Is this the name of a virus, or of a disease that a virus causes?
Places, organisations, bacteria, people and events are not.

Name: {given.text}

{_yes_no("virus")}"""


VIRUS = Step("virus", Virus, _virus)


# ---------------------------------------------------------------- concept clusters


class Texts(Struct, frozen=True):
    texts: tuple[str, ...]


def _coherent(given: Texts) -> str:
    return f"""All texts below come from one domain. Do they all share one precise high-level concept?
To come from the same domain is not enough: the release of a feature and a reduction of a price are two concepts.

{_numbered(given.texts)}

{_yes_no("same")}"""


COHERENT = Step("coherent", Same, _coherent)


class Title(Struct, frozen=True):
    title: str


def _label(given: Texts) -> str:
    return f"""Give one concise title that fits all texts below.

{_numbered(given.texts)}

Reply with JSON and nothing else: {{"title": "..."}}."""


LABEL = Step("label", Title, _label)


class Merge(Struct, frozen=True):
    merge: Verdict


def _merge(given: Two) -> str:
    return f"""Do these two labels name the same concept, so that they should be one?

Label 1: {given.first}
Label 2: {given.second}

{_yes_no("merge")}"""


MERGE = Step("merge", Merge, _merge)


class Member(Struct, frozen=True):
    concept: str
    label: str


class Fits(Struct, frozen=True):
    fits: Verdict


def _fits(given: Member) -> str:
    return f"""A group of topics has a label. Does the topic belong under it?

Label: {given.label}
Topic: {given.concept}

{_yes_no("fits")}"""


FITS = Step("fits", Fits, _fits)


class Loose(Struct, frozen=True):
    concept: str
    labels: tuple[str, ...]


class Place(Struct, frozen=True):
    label: int


def _place(given: Loose) -> str:
    return f"""Under which of the labels does the topic belong? It may be none.

Topic: {given.concept}
Labels:
{_numbered(given.labels)}

Reply with JSON and nothing else: {{"label": NUMBER}}, with 0 for none."""


PLACE = Step("place", Place, _place)


# ---------------------------------------------------------------- attributes and questions


class Passages(Struct, frozen=True):
    entity: str
    concept: str
    texts: tuple[str, ...]


class Attribute(Struct, frozen=True):
    attribute: str


def _attribute(given: Passages) -> str:
    return f"""The passages below are about one entity and one concept. Name the single property or detail that all of
them speak of, as a short noun phrase without dates and values. It must be something that could change over time.

Entity: {given.entity}
Concept: {given.concept}
Passages:
{_numbered(given.texts)}

Reply with JSON and nothing else: {{"attribute": "..."}}; an empty text if they share none."""


ATTRIBUTE = Step("attribute", Attribute, _attribute)


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
    first = _json(Change("yes", given.reasoning))
    return [("user", _change(given.evidence)), ("assistant", first), ("user", follow_up)]


QUESTION = Step("question", Asked, _question)


class Listing(Struct, frozen=True):
    list: Verdict


def _listing(given: One) -> str:
    return f"""Does this question ask for a list, so that a right answer needs everything there is on the subject
("In which regions is it available?", "What was changed?")?

Question: {given.text}

{_yes_no("list")}"""


LISTING = Step("list_question", Listing, _listing)


def _same_question(given: Two) -> str:
    return f"""Do these two questions ask for the same piece of knowledge?

First: {given.first}
Second: {given.second}

{_yes_no("same")}"""


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

{_yes_no("relevant")}"""


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

{_yes_no("changed")}"""


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
{_numbered(given.older)}

Reply with JSON and nothing else: {{"outdated": [numbers of the wrong ones]}}; an empty list if there is none."""


STALE = Step("stale", Stale, _stale)


# ---------------------------------------------------------------- formats


class Sheet(Struct, frozen=True):
    question: str
    answer: str
    chunks: tuple[str, ...]
    """At most four: of answers that were right before, then of related knowledge."""


class Choice(Struct, frozen=True):
    question: str
    options: dict[str, str] = {}
    correct: str = ""
    used_chunks_for_distractors: dict[str, int] = {}
    additional_distractor: str = ""


def _choice(given: Sheet) -> str:
    return f"""Make a multiple-choice question with four options out of what is given below.

- It tests the same knowledge as the question, which may be reworded but keeps its intent. It is specific, concise,
  has one reading and names no date, month or year.
- One option is right: the answer as it is given.
- The other three are plausible, clearly wrong, and each taken from one of the numbered chunks. Prefer the first
  chunks. For each note the number of its chunk.
- If the answer is a number, give one more wrong one in additional_distractor: larger than the answer, of the same unit.

Question: {given.question}
Answer: {given.answer}
Chunks:
{_numbered(given.chunks)}

Reply with JSON and nothing else: {{"question": "...", "options": {{"A": "...", "B": "...", "C": "...", "D": "..."}},
"correct": LETTER, "used_chunks_for_distractors": {{LETTER: CHUNK}}, "additional_distractor": "..." or ""}}.
If the rules cannot be met: {{"question": ""}}."""


CHOICE = Step("choice", Choice, _choice)


class Answered(Struct, frozen=True):
    question: str
    answer: str


class Pair(Struct, frozen=True):
    yes_question: str
    no_question: str
    evidence: str = ""


def _pair(given: Answered) -> str:
    return f"""Make two yes/no questions out of a question and its answer.

- yes_question: the answer is put into the question, so that yes is right.
- no_question: the same with a plausible alternative that is not true, so that no is right. Either ask directly, or
  state it and ask whether this is correct.
- Both test the same knowledge as the question, are specific, concise, have one reading and name no date, month or year.

Question: {given.question}
Answer: {given.answer}

Reply with JSON and nothing else: {{"yes_question": "...", "no_question": "...", "evidence": "why they are grounded"}}.
If it cannot be done, leave both empty and say why in evidence."""


PAIR = Step("pair", Pair, _pair)


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
