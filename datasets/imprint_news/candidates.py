"""A candidate question, whichever family it is of (ImprintBench, D.1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from .corpus import Corpus

T = TypeVar("T")

YES_NO = ("yes", "no")


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A question that may come to be asked."""

    family: str
    stratum: str
    """What shares a number of questions with it: a label, an axis, a number of hops."""
    question: str
    answers: tuple[str, ...]
    article: int
    """The one against whose budget it counts."""
    evidence: tuple[int, ...]
    """Positions of the documents that it was made from."""
    facts: tuple[str, ...] = ()
    """What it rests on besides: facts of the encyclopedia."""
    outdated: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    """The permitted labels; empty for an open question."""
    slices: Mapping[str, str] = field(default_factory=dict)

    def passages(self, corpus: Corpus) -> tuple[str, ...]:
        """All that it was made from."""
        return (*corpus.passages(self.evidence), *self.facts)


def each(replies: Sequence[Sequence[T] | None]) -> Iterator[tuple[int, T]]:
    """(place of the request, one thing of its reply); a request without a readable reply has none."""
    for n, reply in enumerate(replies):
        for one in reply or ():
            yield n, one
