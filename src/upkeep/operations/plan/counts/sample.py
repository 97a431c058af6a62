"""What of a dataset is counted, and how it stands for the rest.

A dataset of up to `WHOLE` predictions is counted whole, hence exactly, and one of up to `IN_PASSES` where probes are
asked in up to `PASSES` passes (`upkeep.execution.order`). Of a larger one some streams are taken, spread over their
sizes; of each stream `KNOTS` intervals, first and last among them, each after the interval before it, so that what is
reused from one to the next shows; of each interval its first probe, which pays for what is new, and a few others.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

WHOLE = 2000
"""Predictions of a dataset that is counted whole."""
IN_PASSES, PASSES = 10_000, 32
"""Those of one that is asked in so many passes, at most: a sample does not show what probes of a pass share, and each
pass takes in all documents."""
SAMPLED = 200
"""Predictions of a larger one that are counted, about."""
KNOTS = 10
"""Intervals of a sampled stream."""
OTHERS = 4
"""Probes of a sampled interval beside its first one."""


@dataclass(frozen=True, slots=True)
class Interval:
    """The probes of one stream at one position."""

    stream: str
    arrived: int
    """Tokens of the documents that have arrived, by the dataset's tokenizer."""
    keys: tuple[str, ...]
    """Ids of the probes in order."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What of a dataset is counted, and how it stands for the rest."""

    intervals: Sequence[Interval]
    """All of the dataset."""
    counted: dict[int, tuple[str, ...]]
    """Place of an interval -> its keys that are counted, its first one first."""
    asked: frozenset[str]
    """All keys that are sent: those, and some before them that fill the engine's cache."""

    @property
    def whole(self) -> bool:
        return len(self.counted) == len(self.intervals) and all(
            len(self.intervals[place].keys) == len(keys) for place, keys in self.counted.items()
        )

    @property
    def streams(self) -> set[str]:
        return {self.intervals[place].stream for place in self.counted}


def sample(intervals: Sequence[Interval], trials: int, held: bool | None = None, whole: int = WHOLE) -> Sample:
    """Choose what to count; see the module's text. Intervals are in order of stream, then position.

    Args:
        held: of a cell whose prompts go by their questions, whether an engine keeps the one that a question had before:
            then that comes before each probe that is counted, and else none does.
        whole: predictions of a dataset that is counted whole, at most.
    """
    every = {place: interval.keys for place, interval in enumerate(intervals)}
    if sum(len(keys) for keys in every.values()) * trials <= whole:
        return Sample(intervals, every, frozenset(key for keys in every.values() for key in keys))
    streams: dict[str, list[int]] = {}
    for place, interval in enumerate(intervals):
        streams.setdefault(interval.stream, []).append(place)
    by_size = sorted(streams.values(), key=lambda places: (intervals[places[-1]].arrived, places))
    middle = by_size[len(by_size) // 2]
    each = min(len(middle), KNOTS) * min(len(intervals[middle[-1]].keys), 1 + OTHERS)
    chosen = _spread(by_size, max(2, -(-SAMPLED // each)))
    counted: dict[int, tuple[str, ...]] = {}
    before: list[str] = []
    for places in chosen:
        for n in _spread(range(len(places)), KNOTS):
            first, *others = intervals[places[n]].keys
            counted[places[n]] = (first, *_spread(others, OTHERS))
            if n > 0:
                before += _before(intervals[places[n - 1]].keys, counted[places[n]], held)
    asked = itertools.chain(before, *counted.values())
    return Sample(intervals, dict(sorted(counted.items())), frozenset(asked))


def _before(earlier: Sequence[str], counted: Sequence[str], held: bool | None) -> list[str]:
    """What is sent of the interval before, so that the engine has kept what it will have kept."""
    if held is None:
        return [earlier[-1]]
    questions = {key.rpartition("@")[0] for key in counted} if held else set()
    return [key for key in earlier if key.rpartition("@")[0] in questions]


def _spread(items: Sequence[Any], n: int) -> list[Any]:
    """`n` of the items, the first and the last one among them, evenly between; all where there are fewer."""
    if len(items) <= n:
        return list(items)
    return [items[round(i * (len(items) - 1) / (n - 1))] for i in range(n)] if n > 1 else [items[-1]]
