"""What the assistant is asked to put a question into other formats: four options, or a pair of yes and no (2.2).

Wording as in `fact_steps`.
"""

from __future__ import annotations

from msgspec import Struct

from upkeep.building.assistant import Step

from .phrasing import numbered


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
{numbered(given.chunks)}

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
