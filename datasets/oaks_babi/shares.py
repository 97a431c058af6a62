"""Which candidates are asked: types, bins and phases in the paper's shares, as nearly as there are candidates, and the
templates of a type alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

from upkeep.errors import UpkeepError

from .candidates import Candidate
from .templates import TEMPLATES

TYPES = {"tracking": 0.07, "counting": 0.28, "bridge": 0.30, "comparison": 0.35}
"""Share of each question type (Table 9)."""
BINS = {"sparse": 0.40, "moderate": 0.35, "frequent": 0.25}
"""Share of each bin. Table 7 prints 40, 25, 35; the paper's Table 2 fits 40, 35, 25 only."""
BINS_PRINTED = {"sparse": 0.40, "moderate": 0.25, "frequent": 0.35}
PHASES, TRACKING_PHASES = 4.7, 8.8
"""Mean phases of a question, and of a tracking question (B.1.2, 6.3)."""

Counts = npt.NDArray[np.int_]
Shares = npt.NDArray[np.float64]
_OF = {kind: [n for n, template in enumerate(TEMPLATES) if template.type == kind] for kind in TYPES}
"""The templates of each type, by their places."""


def draw(pools: Sequence[Sequence[Candidate]], questions: int, rng: Random) -> list[list[Candidate]]:
    """Draw questions so that their types have the shares of Table 9, their bins those of Table 7, and their phases the
    paper's mean, as nearly as the candidates allow; as many from each stream, and of each template of a type.

    The paper does not say how its 1,224 questions were drawn; this draw is ours.

    Args:
        pools: the candidates of each stream.

    Raises:
        UpkeepError: there are fewer candidates of a type than its share asks for.
    """
    owed, left = np.zeros(len(TEMPLATES)), np.zeros(len(BINS))
    drawn: list[list[Candidate]] = []
    for n, pool in enumerate(pools):
        keys = {candidate.text: rng.random() for candidate in pool}
        cells = [[[c for c in pool if (c.template, c.bin) == (t, b)] for b in BINS] for t in range(len(TEMPLATES))]
        room = np.array([[len(cell) for cell in row] for row in cells])
        per_stream = (n + 1) * questions // len(pools) - n * questions // len(pools)
        fitted = _fit(room, per_stream)
        owed += fitted.sum(axis=1)
        kinds = list(_OF.values())
        by_type = _round(
            np.array([owed[rows].sum() for rows in kinds]), np.array([room[rows].sum() for rows in kinds]), per_stream
        )
        counts = np.zeros_like(room)
        for rows, of_type in zip(kinds, by_type, strict=True):
            for row, number in zip(rows, _round(owed[rows], room[rows].sum(axis=1), of_type), strict=True):
                # What a template leaves of a bin, the next one makes up for.
                wanted = left + fitted[row] * (number / max(fitted[row].sum(), 1e-9))
                counts[row] = _round(wanted, room[row], number)
                left = wanted - counts[row]
        owed -= counts.sum(axis=1)
        drawn.append(_tilted(cells, counts, keys))
    return drawn


def _fit(room: Counts, questions: int) -> Shares:
    """(templates, bins): how many questions of each, in fractions: all templates of a type alike, fitted to the shares
    of types and bins by iterative proportional fitting. Types are met exactly, bins as far as there are candidates,
    and templates as far as the bins allow."""
    table = np.zeros(room.shape)
    wanted = {kind: questions * share for kind, share in TYPES.items()}
    for kind, rows in _OF.items():
        there = room[rows].sum(axis=1)
        if there.sum() < wanted[kind]:
            raise UpkeepError(
                f"too few {kind} questions in a stream",
                expected=f"{wanted[kind]:.1f}",
                found=int(there.sum()),
                remedy="ask for fewer `questions`, or for more `facts`, `people`, `places` or `objects`",
            )
        table[rows] = room[rows] * (_level(there, wanted[kind]) / np.maximum(there, 1))[:, None]
    every = list(range(len(TEMPLATES)))
    groups = [(np.ix_(every, [n]), share * questions) for n, share in enumerate(BINS.values())]
    groups += [(np.ix_(_OF[kind], range(len(BINS))), total) for kind, total in wanted.items()]
    for _ in range(200):
        for cells, total in groups:
            table[cells] = np.minimum(room[cells], table[cells] * (total / max(table[cells].sum(), 1e-9)))
    return table


def _level(room: Counts, total: float) -> Shares:
    """Equal parts that sum to `total`; where there is less room than a part, all of it, and the others have more."""
    parts = np.zeros(len(room))
    for filled, n in enumerate(np.argsort(room, kind="stable")):
        parts[n] = min(room[n], (total - parts.sum()) / (len(room) - filled))
    return parts


def _round(owed: Shares, room: Counts, total: int) -> Counts:
    """Whole numbers near `owed`, none above `room`, that sum to `total`."""
    counts = np.clip(np.floor(owed), 0, room).astype(int)
    while (short := total - int(counts.sum())) != 0:
        step = 1 if short > 0 else -1
        possible = counts < room if short > 0 else counts > 0
        counts[int(np.where(possible, step * (owed - counts), -np.inf).argmax())] += step
    return counts


def _tilted(cells: list[list[list[Candidate]]], counts: Counts, keys: Mapping[str, float]) -> list[Candidate]:
    """Draw from each cell at random, leaning towards many or few phases as far as the paper's means ask for.

    Weighted sampling without replacement by exponential keys (Efraimidis and Spirakis 2006), weight exp(lean * phases).
    """

    def pick(kinds: slice, lean: float) -> list[Candidate]:
        return [
            candidate
            for row, numbers in zip(cells[kinds], counts[kinds], strict=True)
            for cell, number in zip(row, numbers, strict=True)
            for candidate in sorted(cell, key=lambda c: np.log(-np.log(keys[c.text])) - lean * c.phases)[:number]
        ]

    def nearest(kinds: slice, phases: float) -> list[Candidate]:
        """A pick whose phases sum to nearly `phases`."""
        low, high = -3.0, 3.0
        for _ in range(12):
            middle = (low + high) / 2
            few = sum(candidate.phases for candidate in pick(kinds, middle)) < phases
            low, high = (middle, high) if few else (low, middle)
        return pick(kinds, (low + high) / 2)

    others = len(_OF["tracking"])  # which are the first
    tracking = nearest(slice(others), TRACKING_PHASES * int(counts[:others].sum()))
    return tracking + nearest(slice(others, None), PHASES * int(counts.sum()) - sum(c.phases for c in tracking))


def distances(drawn: Sequence[Candidate]) -> dict[str, float]:
    """How far the drawn shares are from the paper's: half the sum of absolute differences, in percentage points."""

    def distance(shares: Mapping[Any, float], of: Callable[[Candidate], Any]) -> float:
        found = [of(candidate) for candidate in drawn]
        gaps = [abs(found.count(name) / len(found) - share) for name, share in shares.items()]
        return round(100 * sum(gaps) / 2, 3)

    return {
        "distance_types_table_9": distance(TYPES, lambda c: c.type),
        "distance_bins_40_35_25": distance(BINS, lambda c: c.bin),
        "distance_bins_table_7_as_printed": distance(BINS_PRINTED, lambda c: c.bin),
        "distance_templates_alike": distance(
            {n: TYPES[kind] / len(rows) for kind, rows in _OF.items() for n in rows}, lambda c: c.template
        ),
    }
