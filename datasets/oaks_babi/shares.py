"""Which candidates are asked: types, bins and phases in the paper's shares, as nearly as there are candidates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random

import numpy as np
import numpy.typing as npt

from upkeep.errors import UpkeepError

from .candidates import Candidate

TYPES = {"tracking": 0.07, "counting": 0.28, "bridge": 0.30, "comparison": 0.35}
"""Share of each question type (Table 9)."""
BINS = {"sparse": 0.40, "moderate": 0.35, "frequent": 0.25}
"""Share of each bin. Table 7 prints 40, 25, 35; the paper's Table 2 fits 40, 35, 25 only."""
BINS_PRINTED = {"sparse": 0.40, "moderate": 0.25, "frequent": 0.35}
PHASES, TRACKING_PHASES = 4.7, 8.8
"""Mean phases of a question, and of a tracking question (B.1.2, 6.3)."""

Counts = npt.NDArray[np.int_]
Shares = npt.NDArray[np.float64]


def draw(pools: Sequence[Sequence[Candidate]], questions: int, rng: Random) -> list[list[Candidate]]:
    """Draw questions so that their types have the shares of Table 9, their bins those of Table 7, and their phases the
    paper's mean, as nearly as the candidates allow; as many from each stream.

    The paper does not say how its 1,224 questions were drawn; this draw is ours.

    Args:
        pools: the candidates of each stream.

    Raises:
        UpkeepError: there are fewer candidates of a type than its share asks for.
    """
    owed = np.zeros((len(TYPES), len(BINS)))
    drawn: list[list[Candidate]] = []
    for n, pool in enumerate(pools):
        keys = {candidate.text: rng.random() for candidate in pool}
        cells = [[[c for c in pool if (c.type, c.bin) == (t, b)] for b in BINS] for t in TYPES]
        room = np.array([[len(cell) for cell in row] for row in cells])
        per_stream = (n + 1) * questions // len(pools) - n * questions // len(pools)
        owed += _fit(room, per_stream)
        by_type = _round(owed.sum(axis=1), room.sum(axis=1), per_stream)
        counts = np.array([_round(*row) for row in zip(owed, room, by_type, strict=True)])
        owed -= counts
        drawn.append(_tilted(cells, counts, keys))
    return drawn


def _fit(room: Counts, questions: int) -> Shares:
    """(types, bins): how many questions of each, in fractions: as the candidates have them, fitted to both shares by
    iterative proportional fitting. Types are met exactly, bins as far as there are candidates."""
    rows, columns = questions * np.array([*TYPES.values()]), questions * np.array([*BINS.values()])
    for kind, wanted, there in zip(TYPES, rows, room.sum(axis=1), strict=True):
        if there < wanted:
            raise UpkeepError(
                f"too few {kind} questions in a stream",
                expected=f"{wanted:.1f}",
                found=int(there),
                remedy="ask for fewer `questions`, or for more `facts`, `people`, `places` or `objects`",
            )
    table = room.astype(float)
    for _ in range(200):
        for axis, wanted in ((0, columns), (1, rows)):
            sums = table.sum(axis=axis)
            scale = np.divide(wanted, sums, out=np.zeros_like(sums), where=sums > 0)
            table = np.minimum(room, table * np.expand_dims(scale, axis))
    return table


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

    tracking = nearest(slice(0, 1), TRACKING_PHASES * int(counts[0].sum()))
    return tracking + nearest(slice(1, None), PHASES * int(counts.sum()) - sum(c.phases for c in tracking))


def distances(drawn: Sequence[Candidate]) -> dict[str, float]:
    """How far the drawn shares are from the paper's: half the sum of absolute differences, in percentage points."""

    def distance(shares: Mapping[str, float], of: Callable[[Candidate], str]) -> float:
        found = [of(candidate) for candidate in drawn]
        gaps = [abs(found.count(name) / len(found) - share) for name, share in shares.items()]
        return round(100 * sum(gaps) / 2, 3)

    return {
        "distance_types_table_9": distance(TYPES, lambda c: c.type),
        "distance_bins_40_35_25": distance(BINS, lambda c: c.bin),
        "distance_bins_table_7_as_printed": distance(BINS_PRINTED, lambda c: c.bin),
    }
