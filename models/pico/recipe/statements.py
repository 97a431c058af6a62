"""Texts of which it is known what each sentence says and which sentences tell the answer to a question, for methods to
run over; here those that are invented."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import TypeVar

from recipe.facts import Relation, tell
from recipe.lessons import refusal_of
from recipe.renaming import Pools
from upkeep.cell.prompts import Prompt
from upkeep.contract import Document, Form, Probe, PromptCard

IDLE = (
    "Nobody was in a hurry that day.", "The kettle had been on for a while.", "It looked like rain again.",
    "A door stood open somewhere.", "There was not much else to report.", "Lunch was late, as so often.",
    "The clock on the wall had stopped.", "Most of the chairs were empty.", "The news came in the usual way.",
    "Somebody hummed an old tune.",
)  # fmt: skip
"""Sentences that tell nothing anybody would ask."""
STREAM = "s"
OPEN = ("evowiki", "imprint_news", "imprint_code", "imprint_personal", "evolveqa")
"""Prompts of open questions about what documents tell."""
_OF = re.compile(r"(?:The|is the) (.+) of \{0\}")
_BETWEEN = re.compile(r"\{0\} (.+) \{1\}")


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence, and what it says."""

    line: str
    names: tuple[str, ...]
    """Names and numbers in it, in order."""
    triple: tuple[str, ...]
    """Subject, relation and object, in its own words."""
    key: tuple[str, ...]
    """What a later sentence shares that takes its place."""

    def says(self, text: str) -> bool:
        """Whether a text has it."""
        return self.line in text


@dataclass(frozen=True, slots=True)
class Statement(Sentence):
    """An invented one."""

    relation: Relation

    @property
    def subject(self) -> str:
        return self.triple[0]

    @property
    def name(self) -> str:
        """The relation in the sentence's own words."""
        return self.triple[1]

    @property
    def value(self) -> str:
        return self.triple[2]

    def probe(self, rng: Random, position: int, form: Form = "short") -> Probe:
        """The open question that it answers."""
        question = rng.choice(self.relation.asked).format(self.subject)
        id = f"{position} {question}"
        return Probe(
            id=id, question_id=id, stream=STREAM, position=position, question=question, options=None, form=form
        )


def stated(relation: Relation, subject: str, value: str) -> Statement:
    """The sentence of one fact."""
    found = _OF.search(relation.told) or _BETWEEN.search(relation.told)
    assert found is not None, relation.told
    line = relation.told.format(subject, value)
    said = [subject] + ([value] if "|" not in relation.values or value[0].isdigit() else [])
    names = tuple(sorted(said, key=line.find))
    return Statement(line, names, (subject, found[1], value), (subject, found[1]), relation)


@dataclass(frozen=True, slots=True)
class Question:
    """A question about a text."""

    probe: Probe
    told_by: Sequence[Sentence]
    """What tells the answer, all of it together."""
    words: Sequence[str]
    """What to search for."""
    answer: str
    reply: str
    """Where what tells it is shown."""
    refusal: str
    """Where it is not; empty where a question cannot be left open."""

    def told_in(self, text: str) -> bool:
        """Whether a text tells the answer."""
        return all(sentence.says(text) for sentence in self.told_by)

    @property
    def keys(self) -> frozenset[tuple[str, ...]]:
        """What sentences share that have to do with it."""
        return frozenset(sentence.key for sentence in self.told_by)


@dataclass(frozen=True, slots=True)
class Text:
    """Documents of one stream, and questions when all have arrived."""

    documents: Sequence[Document]
    told: Sequence[Sequence[Sentence]]
    """What each of them says, in order."""
    prompt: str
    """With which its questions are asked."""
    questions: Sequence[Question]
    of: str = ""
    """Whose text it is, said after a skill."""

    @property
    def every(self) -> list[Sentence]:
        return [sentence for told in self.told for sentence in told]

    def said_in(self, text: str) -> list[Sentence]:
        """The sentences that a text has, in its order."""
        found = sorted({text.find(s.line): s for s in self.every if s.says(text)}.items())
        return [sentence for _, sentence in found]


_Told = TypeVar("_Told", bound=Sentence)


def latest(told: Iterable[_Told]) -> list[_Told]:
    """The last of each key, in the order in which they were told."""
    found: dict[tuple[str, ...], _Told] = {}
    for sentence in told:
        found.pop(sentence.key, None)
        found[sentence.key] = sentence
    return list(found.values())


def named(told: Iterable[Sentence]) -> list[str]:
    """Names and numbers, in the order of the sentences: what the extraction of entities asks for."""
    return list(dict.fromkeys(name for sentence in told for name in sentence.names))


def statements(rng: Random, pools: Pools, documents: int, most: int, *, changes: bool = True) -> list[list[Statement]]:
    """What some invented documents say.

    Args:
        most: statements of one document, at most.
        changes: whether a later statement may take the place of an earlier one.
    """
    sizes = [rng.randint(max(1, most // 2), most) for _ in range(documents)]
    told = [stated(*one) for one in tell(rng, pools, sum(sizes))]
    while not changes and len({s.key for s in told}) < len(told):
        told = [stated(*one) for one in tell(rng, pools, sum(sizes))]
    rest = iter(told)
    return [list(islice(rest, size)) for size in sizes]


def invented(
    rng: Random,
    prompts: Mapping[str, PromptCard],
    told: Sequence[Sequence[Statement]],
    idle: float,
    questions: int,
) -> Text:
    """The documents that say what they are to say.

    Args:
        idle: sentences that tell nothing, by statement.
    """
    documents = []
    for position, part in enumerate(told):
        lines = [statement.line for statement in part]
        for _ in range(sum(rng.random() < idle for _ in part)):
            lines.insert(rng.randint(0, len(lines)), rng.choice(IDLE))
        documents.append(
            Document(id=f"d{position}", stream=STREAM, position=position, timestamp=None, text=" ".join(lines))
        )
    name = rng.choice(OPEN)
    prompt = Prompt(prompts[name])
    wanted = latest(statement for part in told for statement in part)
    asked = [
        Question(
            probe=one.probe(rng, len(documents) - 1),
            told_by=[one],
            words=[one.subject, one.name],
            answer=one.value,
            reply=prompt.target(one.value),
            refusal=prompt.target(refusal_of(name)),
        )
        for one in rng.sample(wanted, min(questions, len(wanted)))
    ]
    return Text(documents, told, name, asked)
