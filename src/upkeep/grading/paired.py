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

from collections.abc import Sequence

import polars as pl

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


def side_by_side(first: pl.DataFrame, second: pl.DataFrame) -> pl.DataFrame:
    """The probes that both cells were asked, in the first one's order.

    Args:
        first, second: verdicts (`graded.VERDICTS`) with `question_id`.

    Returns:
        probe_id, question_id, first, second: the share of trials that are right, 0 to 1.
    """
    shares = [
        rows.group_by("probe_id", maintain_order=True).agg(
            pl.col("question_id").first(), pl.col("right").cast(pl.Float64).mean().alias(name)
        )
        for name, rows in (("first", first), ("second", second))
    ]
    return shares[0].join(shares[1].drop("question_id"), on="probe_id", maintain_order="left")


def compared(probes: pl.DataFrame) -> Paired:
    """The difference between two cells.

    Args:
        probes: `side_by_side`, of one probe at least.
    """
    moved = pl.col("second") - pl.col("first")
    by_question = probes.group_by("question_id", maintain_order=True).agg(hits=moved.sum(), total=pl.len())
    count, size = len(by_question), len(probes)
    value = float(by_question["hits"].sum()) / size
    se = low = high = p = None
    if count > 1:
        away = float((by_question["hits"] - value * by_question["total"]).pow(2).sum())
        se = (count / (count - 1) * away) ** 0.5 / size
        half = t_quantile(count - 1) * se
        low, high, p = 100 * (value - half), 100 * (value + half), _chance(value, se, count - 1)
    return Paired(
        probes=size,
        questions=count,
        first=100 * float(probes["first"].mean()),  # type: ignore[arg-type]
        second=100 * float(probes["second"].mean()),  # type: ignore[arg-type]
        difference=100 * value,
        se=None if se is None else 100 * se,
        low=low,
        high=high,
        p=p,
        gained=probes.select((moved > 0).sum()).item(),
        lost=probes.select((moved < 0).sum()).item(),
    )


def _chance(value: float, se: float, df: int) -> float | None:
    """How often chance alone would give a difference as large."""
    from scipy.stats import t  # slow to load

    if abs(value) < 1e-12:
        return 1.0
    return float(2 * t.sf(abs(value) / se, df)) if se > 1e-12 else None


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
