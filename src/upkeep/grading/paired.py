"""Two cells set beside each other probe by probe: by how much they differ, and whether that is chance.

What is compared is the share of a probe's trials that are right, in both cells, so that a cell with eight trials stands
beside one with a single one. The answers to one question at many positions are no independent observations, so the
question is the unit, as it is of every score (`statistics`): of the mean difference d over all probes, with d_q the sum
of a question's differences and n_q its probes,

    se^2 = Q / (Q - 1) * sum_q (d_q - d * n_q)^2 / (sum_q n_q)^2

The interval is d +- t(0.975, Q - 1) * se, and p the two-sided tail of Student's t beyond d / se. Where every question
has equally many probes this is the paired t-test of the questions' means.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from upkeep.contract import Record
from upkeep.grading.statistics import t_quantile


class Paired(Record, frozen=True, kw_only=True):
    """A difference between two cells, in percentage points: the second less the first."""

    probes: int
    """Which both were asked."""
    questions: int
    first: float
    """Percent right, of these probes."""
    second: float
    difference: float
    se: float | None
    """Standard error; with interval and p null for a single question."""
    low: float | None
    high: float | None
    p: float | None
    """Null, too, where every question differs by exactly as much: then nothing says what chance would do."""
    gained: int
    """Probes that the second has right more often than the first."""
    lost: int


def shares(verdicts: pl.DataFrame) -> pl.DataFrame:
    """What is compared of a cell: probe_id, question_id, and the `share` of the probe's trials that are right, 0 to 1.

    Args:
        verdicts: `graded.VERDICTS` with `question_id`.
    """
    share = pl.col("right").cast(pl.Float64).mean().alias("share")
    return verdicts.group_by("probe_id", maintain_order=True).agg(pl.col("question_id").first(), share)


def side_by_side(first: pl.DataFrame, second: pl.DataFrame) -> pl.DataFrame:
    """The probes that both cells were asked, in the first one's order.

    Args:
        first, second: verdicts, as `shares` takes them.

    Returns:
        probe_id, question_id, first, second: the share of trials that are right, 0 to 1.
    """
    one, other = (shares(rows).rename({"share": name}) for rows, name in ((first, "first"), (second, "second")))
    return one.join(other.drop("question_id"), on="probe_id", maintain_order="left")


def compared(probes: pl.DataFrame) -> Paired:
    """The difference between two cells.

    Args:
        probes: `side_by_side`, of one probe at least.
    """
    questions = probes["question_id"].rank("dense").to_numpy() - 1
    return paired(questions, probes["first"].to_numpy(), probes["second"].to_numpy())


def each_pair(cells: Mapping[str, pl.DataFrame]) -> Iterator[tuple[str, str, Paired]]:
    """Every two cells in either order, where they share a probe.

    Args:
        cells: `shares` of each, on one dataset.
    """
    if len(cells) < 2:
        return
    known = pl.concat(cells.values()).unique("probe_id", maintain_order=True).select("probe_id", "question_id")
    questions = known["question_id"].rank("dense").to_numpy() - 1
    on_all = {
        name: known.join(own, on="probe_id", how="left", maintain_order="left")["share"].to_numpy()
        for name, own in cells.items()
    }
    asked = {name: ~np.isnan(values) for name, values in on_all.items()}
    for one, other in itertools.permutations(cells, 2):
        both = asked[one] & asked[other]
        if both.any():
            yield one, other, paired(questions[both], on_all[one][both], on_all[other][both])


def paired(questions: NDArray[np.integer], first: NDArray[np.float64], second: NDArray[np.float64]) -> Paired:
    """The difference between two cells, of one probe at least.

    Args:
        questions: of each probe the number of its question.
        first, second: of each probe the share of trials that are right, 0 to 1.
    """
    moved, size = second - first, len(questions)
    total = np.bincount(questions)
    hits, total = np.bincount(questions, moved)[total > 0], total[total > 0]
    count, value = len(total), float(hits.sum()) / size
    se = low = high = p = None
    if count > 1:
        away = float(((hits - value * total) ** 2).sum())
        se = (count / (count - 1) * away) ** 0.5 / size
        half = t_quantile(count - 1) * se
        low, high, p = 100 * (value - half), 100 * (value + half), _chance(value, se, count - 1)
    return Paired(
        probes=size,
        questions=count,
        first=100 * float(first.mean()),
        second=100 * float(second.mean()),
        difference=100 * value,
        se=None if se is None else 100 * se,
        low=low,
        high=high,
        p=p,
        gained=int((moved > 0).sum()),
        lost=int((moved < 0).sum()),
    )


def sentences(found: Paired, p_holm: float | None = None) -> Iterator[str]:
    """What is told of a difference, where the first cell is called A and the second B.

    Args:
        p_holm: p for as many comparisons as it is one of; None where it is the only one.
    """
    asked = f"{found.probes:,} probes of {found.questions:,} questions"
    yield f"{asked}: {found.first:.1f} -> {found.second:.1f} % right, {found.difference:+.1f} points"
    if found.low is None or found.high is None:
        yield "no interval: all of them are of one question"
    else:
        chance = "no p: every question differs by as much" if found.p is None else f"p {p_text(found.p)}"
        chance += f", p (Holm) {p_text(p_holm)}" if p_holm is not None else ""
        yield f"95% interval {found.low:+.1f} to {found.high:+.1f}, paired, clustered by question; {chance}"
    yield f"better in B: {found.gained:,} probes; better in A: {found.lost:,}"


def p_text(p: float | None) -> str:
    """A p-value as it is printed; of one that there is not, a dash."""
    return "-" if p is None else "< 0.0001" if p < 1e-4 else f"{p:.4f}" if p < 0.01 else f"{p:.3f}"


def _chance(value: float, se: float, df: int) -> float | None:
    """How often chance alone would give a difference as large."""
    from scipy.special import stdtr  # slow to load; scipy.stats is slower by far

    if abs(value) < 1e-12:
        return 1.0
    return float(2 * stdtr(df, -abs(value) / se)) if se > 1e-12 else None


def holm(chances: Sequence[float | None]) -> list[float | None]:
    """p-values for as many comparisons as there are (S. Holm, A simple sequentially rejective multiple test procedure,
    Scandinavian Journal of Statistics 6, 1979); what has none stays without."""
    known = sorted((p, place) for place, p in enumerate(chances) if p is not None)
    found: list[float | None] = [None] * len(chances)
    least = 0.0
    for rank, (p, place) in enumerate(known):
        least = max(least, min(1.0, p * (len(known) - rank)))
        found[place] = least
    return found
