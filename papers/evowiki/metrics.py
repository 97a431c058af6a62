"""The metrics of EvoWiki: pure functions from verdicts to counts per question (paper: 4.1 to 4.4)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from upkeep.grading.metrics import Crossed, Family, Floats, Resampled, Second, as_counts, pass_at_k, rates, shares


def measure(graded: pl.DataFrame, retrieved: int) -> pl.DataFrame:
    """Every score of one cell, as counts per question; the shares over all questions and over each slice.

    - `exact_match`: share of right answers (4.1), those that name an accepted label among other words; `accuracy`, as
      all papers' reports have it, is the same.
    - `exact_match_strict`: share of answers that are an accepted label and nothing besides. The paper does not define
      its exact match, so both are there; this one is never the larger.
    - `exact_match_or_outdated`: `exact_match` with outdated answers counted as right (captions of Tables 4 and 5).
    - `outdated_rate`: share of answers that were right before and are not now, the difference of these two.
    - `parse_rate`, `error_rate`, `pass_at_k`: as `upkeep.grading.metrics` has them.

    All are from 0 to 100 percent. The method `gold` has 100 in the first four and no outdated answer, `null` 0 in all.

    Args:
        graded: `upkeep.grading.metrics.GRADED_SCHEMA`.
        retrieved: the most documents that any prediction retrieved; 0 for a method without retrieval.

    Returns:
        `upkeep.grading.metrics.COUNTS_SCHEMA`.
    """
    right, outdated = pl.col("right"), pl.col("outdated")
    own = shares(
        graded,
        accuracy=right,
        exact_match=right,
        exact_match_strict=pl.col("exact"),
        exact_match_or_outdated=right | outdated,
        outdated_rate=outdated,
    )
    return as_counts(own, rates(graded), pass_at_k(graded, retrieved))


def both_right(graded: pl.DataFrame) -> pl.DataFrame:
    """Predictions that are right, in the cell and in the closed book."""
    return graded.select("question_id", own="right", closed="second_right", asked=1)


def gain(sums: Mapping[str, Floats]) -> Mapping[str, Floats]:
    """`exact_match_gain`: how many points the exact match is above that of the closed book (4.3 and 4.4).

    From -100 to 100. The methods `gold` and `null` have no model, hence no closed book and no gain.
    """
    return {"exact_match_gain": 100 * (sums["own"] - sums["closed"]) / sums["asked"]}


POPULARITY = ("popularity_0_1", "popularity_2", "popularity_3", "popularity_4", "popularity_5_6")
"""The groups of Figure 5, in order: the floor of log10 of a page's monthly views, the ends taken together."""


def by_popularity(graded: pl.DataFrame) -> pl.DataFrame:
    """For each group of popularity its predictions, and the right ones; where views are unknown, none."""
    group = pl.col("slice_popularity") if "slice_popularity" in graded.columns else pl.lit("")
    columns = {name: (group == name).fill_null(value=False) for name in POPULARITY}
    right = {f"{name}_right": of_it & pl.col("right") for name, of_it in columns.items()}
    return graded.select("question_id", **columns, **right)


def correlation(sums: Mapping[str, Floats]) -> Mapping[str, Floats]:
    """`popularity_correlation`: Spearman's between popularity and whether an answer is right (4.4, Figure 5).

    The paper prints no number and does not say how it groups views; ours are its five groups, so a question's rank is
    the mean rank of its group. With N predictions, p of them right, n of a group, r of these right, and m the group's
    distance from the mean rank, (N + 1) / 2,

        rho = sum(m r) / sqrt(sum(m^2 n) N p (1 - p))

    which is Pearson's of ranks, for those of right and wrong lie on a line. From -1 to 1. It is not defined where all
    answers are right (`gold`) or none is (`null`), nor where all questions are of one group or no views are known.
    """
    counts = np.stack([sums[name] for name in POPULARITY])
    right = np.stack([sums[f"{name}_right"] for name in POPULARITY])
    total = counts.sum(axis=0)
    share = right.sum(axis=0) / total
    distance = counts.cumsum(axis=0) - (counts - 1) / 2 - (total + 1) / 2
    spread = (distance**2 * counts).sum(axis=0) * total * share * (1 - share)
    rho = (distance * right).sum(axis=0) / np.sqrt(np.where(spread > 0, spread, np.nan))
    return {"popularity_correlation": np.clip(rho, -1, 1)}  # rounding may lead beyond


FIRST_TOKEN = "first_token_logprob"
"""What the method `answer_probability` measures: the natural logarithm of p, the probability of the first token of the
right answer after the closed book's prompt."""


def both_measured(graded: pl.DataFrame) -> pl.DataFrame:
    """Predictions of which p was measured after training and before, with the differences of p and of its logarithm.

    One that failed in either cell has no p and does not count; `error_rate` says how many those are.
    """
    after, before = pl.col(f"value_{FIRST_TOKEN}"), pl.col(f"second_value_{FIRST_TOKEN}")
    both = graded.filter(after.is_not_null() & before.is_not_null())
    return both.select("question_id", shift=after.exp() - before.exp(), log_ratio=after - before, measured=1)


def shift(sums: Mapping[str, Floats]) -> Mapping[str, Floats]:
    """`probability_shift`: the mean over questions of 100 (p after training - p before), from -100 to 100 (4.4).

    The paper gives no formula: it speaks of a simplified persuasion score of the first token of the golden answer. The
    methods `gold` and `null` measure nothing and have no shift, nor has a model that is not trained.
    """
    return {"probability_shift": 100 * sums["shift"] / sums["measured"]}


def log_ratio(sums: Mapping[str, Floats]) -> Mapping[str, Floats]:
    """`probability_log_ratio`: the mean over questions of ln(p after training / p before), in nats: what a shift from
    0.001 to 0.01 has in common with one from 0.1 to 1. Of any size; defined where `probability_shift` is."""
    return {"probability_log_ratio": sums["log_ratio"] / sums["measured"]}


# Of a trained model it is the closed book of the one that it was made of (prose of 4.3 and 4.4, Table 4).
CLOSED_BOOK = Second("the closed book", method="closed_book", untrained=True)
UNTRAINED = Second("the same before training", untrained=True)

FAMILY = Family(
    measure,
    resampled=[
        Resampled(["exact_match_gain"], both_right, gain, second=CLOSED_BOOK, unit="percent_points"),
        Resampled(["popularity_correlation"], by_popularity, correlation, unit="ratio"),
        Resampled(
            ["probability_shift"],
            both_measured,
            shift,
            second=UNTRAINED,
            values=[FIRST_TOKEN],
            unit="percent_points",
            ends=(-100, 100),
        ),
        Resampled(
            ["probability_log_ratio"],
            both_measured,
            log_ratio,
            second=UNTRAINED,
            values=[FIRST_TOKEN],
            unit="nats",
            ends=(-np.inf, np.inf),
        ),
    ],
    crossed=[
        Crossed("hops", by="level", into="dataset"),  # Tables 4 and 5
        Crossed(None, by="level", into="dataset"),  # Table 2, Figure 4
        Crossed("popularity", by="level", into="dataset", optional=True),  # Figure 5
    ],
)
