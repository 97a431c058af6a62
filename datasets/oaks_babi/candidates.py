"""All questions about a stream, with the answer at each chunk (OAKS, Algorithm 1, lines 12 to 25)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random

from upkeep.building import assembling

from .forms import forms
from .log import Log
from .templates import BEFORE, TEMPLATES
from .timelines import Change, Value

SPARSE, MODERATE, MOST = 3, 5, 20
"""Most phases of a sparse, a moderate and any question (B.1.1)."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A filled template with the answer at each chunk."""

    stream: int
    template: int
    """Its place in `TEMPLATES`."""
    type: str
    text: str
    answers: list[list[str]]
    evidence: list[list[int]]
    phases: int

    @property
    def bin(self) -> str:
        """Its bin by number of phases."""
        return assembling.bin_of(self.phases, SPARSE, MODERATE)


def chunk_timeline(
    changes: Iterable[Change], before: Value, chunk_of: Sequence[int], chunks: int
) -> tuple[list[Value], list[list[int]]]:
    """The answer after the last fact of each chunk, and the chunks of the facts that tell so.

    A phase keeps the evidence that it began with: that is enough, and its last chunk is where the phase began.

    Args:
        chunk_of: the chunk of each fact, ascending.
    """
    values, evidence = [before] * chunks, [[] for _ in range(chunks)]  # type: list[Value], list[list[int]]
    pending = iter(changes)
    change = next(pending, None)
    for chunk in range(chunks):
        value, shown = (values[chunk - 1], evidence[chunk - 1]) if chunk else (before, [])
        last: Change | None = None
        while change is not None and chunk_of[change.fact] <= chunk:
            last, change = change, next(pending, None)
        if last is not None and last.value != value:
            value, shown = last.value, sorted({chunk_of[fact] for fact in last.evidence})
        values[chunk], evidence[chunk] = value, shown
    return values, evidence


def of_stream(stream: int, facts: Sequence[str], chunk_of: Sequence[int], chunks: int, rng: Random) -> list[Candidate]:
    """All questions about a stream whose answer changes, 2 to 20 phases each (Algorithm 1, lines 12 to 25).

    Args:
        facts: their sentences, in order.
        chunk_of: the chunk of each fact.
        rng: decides which of two things that are compared is named first.
    """
    log = Log(facts)
    found: list[Candidate] = []
    for n, template in enumerate(TEMPLATES):
        for names in template.fillings(log):
            before = BEFORE[template.type]
            values, evidence = chunk_timeline(template.timeline(log, *names), before, chunk_of, chunks)
            phases = 1 + sum(a != b for a, b in itertools.pairwise(values))
            if 2 <= phases <= MOST:
                swap = template.either_way and rng.random() < 0.5
                text = template.text.format(*((*names[:-2], names[-1], names[-2]) if swap else names))
                answers = [forms(value) for value in values]
                found.append(Candidate(stream, n, template.type, text, answers, evidence, phases))
    return found
