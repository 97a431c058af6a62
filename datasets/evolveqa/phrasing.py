"""What the steps share: yes or no, numbered lists, and what several of them are given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

Verdict = Literal["yes", "no"]


def numbered(texts: Sequence[str]) -> str:
    """Texts, one a line, each after its number from 1."""
    return "\n".join(f"[{n}] {text}" for n, text in enumerate(texts, 1))


def yes_no(key: str) -> str:
    """The demand for a verdict in JSON, under a key."""
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


class One(Struct, frozen=True):
    """A text to be judged by itself."""

    text: str


class Two(Struct, frozen=True):
    """Two texts to be compared."""

    first: str
    second: str


class Same(Struct, frozen=True):
    """Whether texts agree in what was asked."""

    same: Verdict
