"""Means over strata: what sets strata apart is no uncertainty, and no value changes."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from upkeep.grading.metrics import as_counts, levelled
from upkeep.grading.statistics import estimate, t_quantile


def counts(strata: list[list[float]]) -> pl.DataFrame:
    rows = [(str(h), x, 1 / len(xs)) for h, xs in enumerate(strata) for x in xs]
    frame = pl.DataFrame(rows, schema=["stratum", "right", "total"], orient="row")
    named = {"subset": pl.lit("all"), "metric": pl.lit("m"), "at": None, "n": 1}
    named |= {"question_id": pl.int_range(pl.len()).cast(pl.String), "hits": pl.col("right") * pl.col("total")}
    return frame.with_columns(**named)


def test_the_interval_is_that_of_a_stratified_mean_with_satterthwaites_degrees_of_freedom() -> None:
    strata = [[0.0, 1.0, 0.0, 0.0, 1.0], [1.0, 1.0, 0.0], [1.0, 0.5, 1.0, 1.0]]
    (found,) = estimate(as_counts(levelled(counts(strata), "stratum"))).iter_rows(named=True)
    parts = [float(np.var(xs, ddof=1)) / len(xs) / 9 for xs in strata]
    df = int(sum(parts) ** 2 / sum(v**2 / (len(xs) - 1) for v, xs in zip(parts, strata, strict=True)))
    mean = float(np.mean([np.mean(xs) for xs in strata]))
    assert found["value"] == pytest.approx(100 * mean)
    assert found["value"] - found["low"] == pytest.approx(100 * t_quantile(df) * sum(parts) ** 0.5)


def test_strata_that_differ_but_never_vary_are_certain_and_a_lone_question_changes_no_value() -> None:
    apart = estimate(as_counts(levelled(counts([[0.0] * 4, [1.0] * 4]), "stratum")))
    assert apart["value"][0] == pytest.approx(50) and apart["se"][0] == pytest.approx(0, abs=1e-9)
    alone = counts([[0.0, 1.0, 1.0], [1.0], [0.0]])
    before, after = estimate(as_counts(alone)), estimate(as_counts(levelled(alone, "stratum")))
    assert after["value"][0] == pytest.approx(before["value"][0]) and after["se"][0] > 0


def test_two_questions_that_are_alike_do_not_make_their_stratum_certain() -> None:
    few = estimate(as_counts(levelled(counts([[1.0, 1.0], [0.0, 1.0, 0.0, 1.0]]), "stratum")))
    # Of 6 questions that weigh 2 together the two are 1/8 from 0.75, the others' level 1/16; and the others' own mean
    # has (1/3) / 4, of which a quarter counts. Five degrees of freedom, as there are (5.6).
    assert few["value"][0] == pytest.approx(75)
    assert few["se"][0] == pytest.approx(100 * (6 / 5 * (2 / 8**2 + 4 / 16**2) / 2**2 + 1 / 3 / 4 / 4) ** 0.5)
