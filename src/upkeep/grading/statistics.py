"""Values with standard error and 95% interval, clustered by question.

The answers to one question at 65 intervals are no 65 independent observations, so the question is the unit. Every
score is written as a ratio, value = sum(hits) / sum(total) over questions: a pooled rate has counts for both, a mean
over questions has the question's own mean as `hits` and 1 as `total`. The variance is the linearised one of a ratio
of cluster totals (W. G. Cochran, Sampling Techniques, 3rd ed. 1977, section 2.11, without the finite-population
term; with all totals 1 it is the familiar sd / sqrt(Q)):

    se^2 = Q / (Q - 1) * sum_q (hits_q - value * total_q)^2 / (sum_q total_q)^2

The interval is value +- t(0.975, Q - 1) * se, cut to 0..100.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import polars as pl

KEYS = ("subset", "metric", "at")
"""What tells one score of a cell from another. `at` is the k of pass@k, null elsewhere."""

COUNTS_SCHEMA = {
    "subset": pl.String,
    "metric": pl.String,
    "at": pl.Int32,
    "question_id": pl.String,
    "hits": pl.Float64,
    "total": pl.Float64,
    "n": pl.Int64,
}
"""One row a question and score: `hits` out of `total`, from `n` predictions."""


FEW = 2
"""Questions of a stratum that say nothing of its variance: two are alike by chance too often."""


def t_quantile(df: int, level: float = 0.95) -> float:
    """Two-sided quantile of Student's t.

    Exact for one and two degrees of freedom; beyond, the expansion of Abramowitz and Stegun, 26.7.5, which is off by
    0.12% at three degrees of freedom and less than 0.005% from six on.
    """
    p = (1 + level) / 2
    if df == 1:
        return math.tan(math.pi * (p - 0.5))
    if df == 2:
        return (2 * p - 1) * math.sqrt(0.5 / (p * (1 - p)))
    x = NormalDist().inv_cdf(p)
    g1 = (x**3 + x) / 4
    g2 = (5 * x**5 + 16 * x**3 + 3 * x) / 96
    g3 = (3 * x**7 + 19 * x**5 + 17 * x**3 - 15 * x) / 384
    g4 = (79 * x**9 + 776 * x**7 + 1482 * x**5 - 1920 * x**3 - 945 * x) / 92160
    return x + g1 / df + g2 / df**2 + g3 / df**3 + g4 / df**4


def levelled(counts: pl.DataFrame, stratum: str) -> pl.DataFrame:
    """Counts of a mean over strata of given weights: what sets strata apart is no uncertainty of it.

    The hits of each stratum are moved to the level of all, and their distance from it is scaled by
    sqrt(c / (c - 1) * (Q - 1) / Q) of its c questions, so `estimate` and resamples have the variance of a stratified
    mean (W. G. Cochran, Sampling Techniques, 3rd ed. 1977, sections 5.4 and 5A.9). It is scaled by t(d) / t(Q - 1)
    besides, for small strata leave that variance no more than the d degrees of freedom of F. E. Satterthwaite, An
    approximate distribution of estimates of variance components, Biometrics Bulletin 2, 1946 (rounded down). A stratum
    of FEW questions cannot tell its variance: they stay as they are, and vary as all do (strata collapsed into one:
    Cochran, section 5A.12). No value changes.

    Args:
        counts: `subset`, `metric`, `hits`, `total`, a row a question, and the column `stratum`.
    """
    of = ["subset", "metric"]
    own, few, c, n = [*of, stratum], pl.col("_c") <= FEW, pl.col("_c"), pl.col("_n")
    ratio = pl.col("hits").sum() / pl.col("total").sum()
    others = pl.when(few).then(n - 1).otherwise(c - 1)
    placed = (
        counts.with_columns(_c=pl.len().cast(pl.Int64).over(own), _n=pl.len().cast(pl.Int64).over(of))
        .with_columns(_rate=pl.when(few).then(ratio.over(of)).otherwise(ratio.over(own)), _level=ratio.over(*of, few))
        .with_columns(_away=pl.col("hits") - pl.col("_rate") * pl.col("total"))
        .with_columns(_v=pl.col("_away").pow(2).sum().over(own) * (others + 1) / others)
        .with_columns(_d=(pl.col("_v") / c).sum().over(of).pow(2) / (pl.col("_v").pow(2) / (c * others)).sum().over(of))
        .with_columns(_d=pl.when(pl.col("_d").is_finite()).then(pl.col("_d").floor().clip(1)).otherwise(n - 1))
    )
    quantiles = {float(d): t_quantile(int(d)) for d in {*placed["_d"].to_list(), *(placed["_n"] - 1).to_list()} if d}
    wide, usual = (
        of_it.cast(pl.Float64).replace_strict(quantiles, default=1.0, return_dtype=pl.Float64)
        for of_it in (pl.col("_d"), n - 1)
    )
    scale = (c / (c - 1) * (n - 1) / n).sqrt() * wide / usual
    moved = pl.col("_level") * pl.col("total") + scale * pl.col("_away")
    return placed.with_columns(hits=pl.when(few).then("hits").otherwise(moved)).select(counts.columns)


def estimate(questions: pl.DataFrame) -> pl.DataFrame:
    """Value (percent), standard error and interval of each score.

    Args:
        questions: COUNTS_SCHEMA. Questions with `total` 0 have no say in a score; a score without any has no row.

    Returns:
        KEYS, value, n (predictions), questions, se, low, high (percent; the last three null for a single question).
    """
    taking_part = questions.filter(pl.col("total") > 0)
    value = pl.col("hits").sum() / pl.col("total").sum()
    scores = (
        taking_part.with_columns(_value=value.over(KEYS))
        .with_columns(_residual=pl.col("hits") - pl.col("_value") * pl.col("total"))
        .group_by(KEYS, maintain_order=True)
        .agg(
            value=pl.col("_value").first() * 100,
            n=pl.col("n").sum(),
            questions=pl.len().cast(pl.Int64),
            se=100 * pl.col("_residual").pow(2).sum().sqrt() / pl.col("total").sum(),
        )
    )
    quantiles = {q: t_quantile(q - 1) for q in scores["questions"].unique() if q > 1}
    return (
        scores.with_columns(
            se=pl.col("se") * (pl.col("questions") / (pl.col("questions") - 1)).sqrt(),
            _t=pl.col("questions").replace_strict(quantiles, default=None, return_dtype=pl.Float64),
        )
        .with_columns(se=pl.when(pl.col("questions") > 1).then("se"))
        .with_columns(
            low=(pl.col("value") - pl.col("_t") * pl.col("se")).clip(0, 100),
            high=(pl.col("value") + pl.col("_t") * pl.col("se")).clip(0, 100),
        )
        .drop("_t")
    )
