"""Short invented texts of which everything is known: what each sentence says, what holds in the end, what it names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random

from recipe.facts import Relation, tell
from recipe.renaming import Pools
from upkeep.contract import Document, Form, Probe

IDLE = (
    "Nobody was in a hurry that day.", "The kettle had been on for a while.", "It looked like rain again.",
    "A door stood open somewhere.", "There was not much else to report.", "Lunch was late, as so often.",
    "The clock on the wall had stopped.", "Most of the chairs were empty.", "The news came in the usual way.",
    "Somebody hummed an old tune.",
)  # fmt: skip
"""Sentences that tell nothing anybody would ask."""
STREAM = "s"
_OF = re.compile(r"(?:The|is the) (.+) of \{0\}")
_BETWEEN = re.compile(r"\{0\} (.+) \{1\}")


@dataclass(frozen=True, slots=True)
class Statement:
    relation: Relation
    subject: str
    value: str

    @property
    def line(self) -> str:
        """The sentence."""
        return self.relation.told.format(self.subject, self.value)

    @property
    def key(self) -> tuple[str, str]:
        """What a later statement would change."""
        return self.subject, self.relation.told

    @property
    def name(self) -> str:
        """The relation in the sentence's own words."""
        found = _OF.search(self.relation.told) or _BETWEEN.search(self.relation.told)
        assert found is not None, self.relation.told
        return found[1]

    @property
    def triple(self) -> list[str]:
        return [self.subject, self.name, self.value]

    @property
    def query(self) -> str:
        """The words to search for it."""
        return f"{self.subject} {self.name}"

    def probe(self, rng: Random, position: int, form: Form = "short") -> Probe:
        """The open question that it answers."""
        question = rng.choice(self.relation.asked).format(self.subject)
        id = f"{position} {question}"
        return Probe(
            id=id, question_id=id, stream=STREAM, position=position, question=question, options=None, form=form
        )

    def says(self, text: str) -> bool:
        return self.line in text


@dataclass(frozen=True, slots=True)
class Text:
    """Documents of one stream."""

    documents: Sequence[Document]
    told: Sequence[Sequence[Statement]]
    """What each of them says, in order."""

    @property
    def every(self) -> list[Statement]:
        return [statement for told in self.told for statement in told]

    @property
    def latest(self) -> list[Statement]:
        """What holds in the end."""
        return latest(self.every)

    def said_in(self, text: str) -> list[Statement]:
        """The statements that a text has, in its order."""
        found = sorted({text.find(s.line): s for s in self.every if s.says(text)}.items())
        return [statement for _, statement in found]


def latest(told: Iterable[Statement]) -> list[Statement]:
    """The last of each key, in the order in which they were told."""
    found: dict[tuple[str, str], Statement] = {}
    for statement in told:
        found.pop(statement.key, None)
        found[statement.key] = statement
    return list(found.values())


def named(told: Iterable[Statement]) -> list[str]:
    """Names and numbers, in the order of the sentences: what the extraction of entities asks for."""
    found: dict[str, None] = {}
    for s in told:
        said = [s.subject] + ([s.value] if "|" not in s.relation.values or s.value[0].isdigit() else [])
        found |= dict.fromkeys(sorted(said, key=s.line.find))
    return list(found)


def text(
    rng: Random, pools: Pools, documents: int, statements: int, idle: float = 0.0, *, changes: bool = True
) -> Text:
    """Invented documents.

    Args:
        statements: of one document, at most.
        idle: sentences that tell nothing, by statement.
        changes: whether a later statement may take the place of an earlier one.
    """
    sizes = [rng.randint(max(1, statements // 2), statements) for _ in range(documents)]
    told = [Statement(*one) for one in tell(rng, pools, sum(sizes))]
    while not changes and len({s.key for s in told}) < len(told):
        told = [Statement(*one) for one in tell(rng, pools, sum(sizes))]
    parts, at = [], 0
    for size in sizes:
        parts.append(told[at : at + size])
        at += size
    shown = []
    for position, part in enumerate(parts):
        lines = [statement.line for statement in part]
        for _ in range(sum(rng.random() < idle for _ in part)):
            lines.insert(rng.randint(0, len(lines)), rng.choice(IDLE))
        shown.append(
            Document(id=f"d{position}", stream=STREAM, position=position, timestamp=None, text=" ".join(lines))
        )
    return Text(shown, parts)
