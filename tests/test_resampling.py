"""Resampled intervals of scores."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping

import numpy as np
import polars as pl
import pytest
import scipy.stats

from conftest import ROOT
from metric_cells import EVOWIKI, PRELUDE, scores_of, verdicts
from upkeep.grading import answers, resampling
from upkeep.grading.measuring import measured
from upkeep.grading.metric_families import read_family
from upkeep.grading.metrics import Family
from upkeep.grading.resampling import DRAWS, FEWEST, HALVES, Draws
from upkeep.grading.statistics import estimate


def mean(sums: Mapping[str, resampling.Floats]) -> Mapping[str, resampling.Floats]:
    return {"mean": 100 * sums["hits"] / sums["total"]}


def resampled(parts: np.ndarray) -> resampling.Estimate:
    names = [f"{n:05}" for n in range(len(parts))]
    parts = parts.astype(float)
    return resampling.estimates(["hits", "total"], parts, mean, Draws("d", names), names, parts)["mean"]


# ------------------------------------------------------------------ resampling


def test_the_same_verdicts_give_the_same_interval() -> None:
    parts = np.column_stack([np.arange(50) % 3 == 0, np.ones(50)])
    first, second = resampled(parts), resampled(parts)
    assert first == second
    assert first.low is not None and first.high is not None and first.low < first.value < first.high


def test_resampling_agrees_with_the_formula_where_there_is_one() -> None:
    rng = np.random.default_rng(7)
    total = rng.integers(1, 9, 400)
    parts = np.column_stack([rng.binomial(total, rng.uniform(0.1, 0.9, 400)), total])
    own = resampled(parts)
    counts = pl.DataFrame(parts, schema=["hits", "total"]).with_columns(
        subset=pl.lit("all"), metric=pl.lit("m"), at=pl.lit(None, pl.Int32), n=pl.lit(1)
    )
    wanted = estimate(counts).row(0, named=True)
    assert own.value == pytest.approx(wanted["value"])
    assert own.se == pytest.approx(wanted["se"], rel=0.08)
    assert own.low == pytest.approx(wanted["low"], abs=wanted["se"] / 3)
    assert own.high == pytest.approx(wanted["high"], abs=wanted["se"] / 3)


def test_nineteen_of_twenty_intervals_hold_the_truth() -> None:
    """Questions of four predictions each that go together: the interval of single predictions would be too narrow."""
    rng, held, naive, trials, questions = np.random.default_rng(3), 0, 0, 300, 80
    for _ in range(trials):
        chance = rng.beta(0.6, 1.4, questions)  # mean 30 percent
        own = resampled(np.column_stack([rng.binomial(4, chance), np.full(questions, 4)]))
        assert own.low is not None and own.high is not None
        held += own.low <= 30 <= own.high
        naive += abs(own.value - 30) <= 1.96 * 100 * np.sqrt(0.3 * 0.7 / (4 * questions))
    assert 0.915 <= held / trials <= 0.975
    assert naive / trials < 0.85


def test_more_predictions_of_the_same_question_make_no_score_surer() -> None:
    rng = np.random.default_rng(1)
    once = np.column_stack([rng.integers(0, 2, 60), np.ones(60)])
    assert resampled(once * 10) == resampled(once)


def test_one_question_and_undefined_values_have_no_interval() -> None:
    assert resampled(np.array([[1.0, 2.0]])) == resampling.Estimate(50, None, None, None, np.empty(0))
    none = np.zeros((5, 2))
    assert resampling.estimates(["hits", "total"], none, mean, Draws("d", "abcde"), "abcde", none) == {}

    def at_times(sums: Mapping[str, resampling.Floats]) -> Mapping[str, resampling.Floats]:
        """Defined on the questions themselves, and not on every draw of them."""
        return {"mean": np.where(sums["total"] > 4.9, 7.0, np.nan)}

    ones, draws = np.ones((5, 1)), Draws("d", "abcde")
    (rare,) = resampling.estimates(["total"], ones, at_times, draws, "abcde", 0 * ones).values()
    assert (rare.value, rare.low, rare.high) == (7, 7, 7) and np.isnan(rare.resamples).any()
    (without,) = resampling.estimates(["total"], ones, at_times, draws, "abcde", ones, interval=False).values()
    assert (without.value, without.se) == (7, None) and np.isnan(without.resamples).all(), "nothing is decided by it"


def test_the_degrees_of_freedom_are_fewer_where_a_few_questions_decide() -> None:
    even, one, alike = [1.0, -1.0] * 5, [9.0, *[-1.0] * 9], [0.0] * 10
    # Kurtosis 1 and 73 / 9: 20 / (1 - 7 / 9) is more than there are; 20 / (73 / 9 - 7 / 9) = 2.7.
    assert [resampling.freedom(np.array(some)) for some in (even, one, alike)] == [9, 2, 9]


def test_how_much_a_question_moves_a_mean_is_how_far_it_is_from_it() -> None:
    names, numbers = [f"{n:05}" for n in range(50)], np.random.default_rng(0).lognormal(0, 1, 50)
    draws = Draws("d", names)
    values = draws.sums(names, numbers[:, None])[:, 0] / draws.times.sum(axis=1)
    assert np.corrcoef(draws.influences(names, values), numbers)[0, 1] > 0.9
    assert resampling.freedom(draws.influences(names, values)) < 49
    values[:5] = np.nan
    assert np.corrcoef(draws.influences(names, values), numbers)[0, 1] > 0.9


def test_draws_are_further_from_the_score_and_one_that_is_not_defined_moves_no_other() -> None:
    drawn = np.array([44.0, 50.0, math.nan, 60.0])
    assert resampling.widened(drawn, 1.5, 50) == pytest.approx([41, 50, math.nan, 65], nan_ok=True)


def test_the_question_that_was_not_asked_is_the_one_that_moves_a_score_furthest() -> None:
    whole, unseen = np.array([[6.0, 10.0]]), np.array([[1.0, 1.0], [0.0, 1.0], [0.0, 0.0], [9.0, 1.0], [0.0, -10.0]])
    lowest, highest = resampling.furthest(["hits", "total"], whole, mean, unseen, "mean")
    assert lowest.tolist() == [0, 1] and highest.tolist() == [9, 1], "one without which there is no score is neither"


def test_what_was_seen_in_all_questions_is_uncertain_all_the_same() -> None:
    names = [f"{n:05}" for n in range(20)]
    parts = np.ones((20, 2))
    unseen = np.array([[1.0, 1.0], [0.0, 1.0]])
    found = resampling.estimates(["hits", "total"], parts, mean, Draws("d", names), names, unseen)["mean"]
    lower, higher = (found.resamples[half] for half in HALVES)
    assert higher == pytest.approx(np.full(DRAWS, 100)) and 100 * 0.04 ** (1 / 20) > np.quantile(lower, 0.05) > 80


# ------------------------------------------------------------------ means of what was measured


def of_mean(hits: np.ndarray, total: np.ndarray | float = 1.0, *, ends: tuple[float, float]) -> resampling.Estimate:
    """Of the ratio of two sums, in percent."""
    names = [f"{n:05}" for n in range(len(hits))]
    parts = np.column_stack([hits, np.broadcast_to(total, len(hits))]).astype(float)
    found = resampling.estimates(["hits", "total"], parts, mean, Draws("d", names), names, parts, ends=ends)
    return found["mean"]


ANYWHERE = (-math.inf, math.inf)


@pytest.mark.parametrize("questions", [2, 5, 30, 300])
@pytest.mark.parametrize("spread", [0.3, 1.0, 3.0])
def test_the_interval_of_a_skewed_mean_is_halls(questions: int, spread: float) -> None:
    """Worked out anew, with SciPy's skewness, kurtosis and quantiles (ours are off by up to 0.1%)."""
    numbers = np.random.default_rng(questions).lognormal(0, spread, questions)
    own, n = of_mean(numbers, ends=ANYWHERE), questions
    excess = scipy.stats.kurtosis(numbers, fisher=False) - (n - 3) / (n - 1)
    t = scipy.stats.t.ppf(0.975, max(1, min(n - 1, int(2 * n / excess))))
    k = scipy.stats.skew(numbers) / math.sqrt(n)
    assert own.low is not None and own.high is not None
    for end, bound in ((own.low, t), (own.high, -t)):
        apart = (numbers.mean() - end / 100) / scipy.stats.sem(numbers)
        assert apart + k * (apart**2 / 3 + 1 / 6) + k**2 * apart**3 / 27 == pytest.approx(bound, rel=2e-3)
    assert own.se == pytest.approx(100 * scipy.stats.sem(numbers))


def test_the_interval_of_a_symmetric_mean_is_students() -> None:
    half = np.random.default_rng(2).uniform(0, 1, 50)
    numbers = np.concatenate([5 - half, 5 + half])
    own = of_mean(numbers, ends=ANYWHERE)
    wanted = scipy.stats.t.interval(0.95, 99, numbers.mean(), scipy.stats.sem(numbers))
    assert (own.low, own.high) == pytest.approx([100 * end for end in wanted], rel=1e-5)


def test_the_interval_of_what_is_turned_around_is_turned_around() -> None:
    numbers = np.random.default_rng(4).lognormal(0, 1, 40)
    one, other = of_mean(numbers, ends=ANYWHERE), of_mean(-numbers, ends=ANYWHERE)
    assert one.low is not None and one.high is not None
    assert (other.low, other.high) == pytest.approx((-one.high, -one.low))
    assert one.high - one.value > one.value - one.low, "a long answer that was not seen would move it up"


def test_the_standard_error_of_a_ratio_is_that_of_the_formula() -> None:
    rng = np.random.default_rng(5)
    total = rng.integers(1, 9, 60)
    hits = total * rng.lognormal(0, 1, 60) / 20
    counts = pl.DataFrame({"hits": hits, "total": total}).with_columns(
        subset=pl.lit("all"), metric=pl.lit("m"), at=pl.lit(None, pl.Int32), n=pl.lit(1)
    )
    assert of_mean(hits, total, ends=ANYWHERE).se == pytest.approx(estimate(counts)["se"][0], rel=1e-6)


@pytest.mark.parametrize("questions", [2, 3, 10, 30])
def test_no_interval_leaves_the_range_of_its_quantity_or_its_own_value(questions: int) -> None:
    rng = np.random.default_rng(questions)
    for hits in (rng.pareto(0.7, questions), rng.random(questions) ** 20, 1.0 * (np.arange(questions) == 0)):
        for total in (1.0, rng.integers(1, 1000, questions)):
            own = of_mean(hits, total, ends=(0, math.inf))
            assert own.low is not None and own.high is not None and 0 <= own.low < own.value < own.high < math.inf
        shares = of_mean(np.minimum(hits, 1), ends=(0, 100))
        assert shares.low is not None and shares.high is not None and 0 <= shares.low < shares.high <= 100


def test_questions_that_are_all_alike_have_an_interval_without_width() -> None:
    own = of_mean(np.full(12, 0.5), ends=(0, 100))
    assert (own.value, own.low, own.high) == pytest.approx((50, 50, 50), abs=1e-6)


def test_a_mean_that_lies_beyond_its_ends_is_refused_and_one_that_is_hardly_defined_has_no_interval() -> None:
    with pytest.raises(ValueError, match="a mean of 50 beyond its ends, 0 and 1"):
        of_mean(np.array([0.0, 1.0]), ends=(0, 1))

    def shown(sums: Mapping[str, resampling.Floats]) -> Mapping[str, resampling.Floats]:
        return {"m": sums["one"] / sums["other"].clip(min=0)}

    parts = np.array([[1.0, 1.0], [1.0, -0.99995]])
    (found,) = resampling.estimates(
        ["one", "other"], parts, shown, Draws("d", "ab"), "ab", parts, ends=ANYWHERE
    ).values()
    assert (found.se, found.low, found.high) == (None, None, None)


def test_intervals_of_thirty_skewed_numbers_hold_the_truth_more_often_than_quantiles_of_draws() -> None:
    rng, held, before, trials = np.random.default_rng(6), 0, 0, 400
    for _ in range(trials):
        numbers = rng.lognormal(0, 0.9, 30)
        truth = 100 * math.exp(0.9**2 / 2)
        own, drawn = of_mean(numbers, ends=(0, math.inf)), resampled(np.column_stack([numbers, np.ones(30)]))
        assert None not in (own.low, own.high, drawn.low, drawn.high)
        held += own.low <= truth <= own.high  # type: ignore[operator]
        before += drawn.low <= truth <= drawn.high  # type: ignore[operator]
    assert held > before and 0.92 <= held / trials <= 0.975


def test_all_means_of_what_was_measured_say_where_they_end() -> None:
    families = [read_family(path) for path in sorted((ROOT / "papers").glob("*/metrics.py"))]
    told = {metric: one.ends for family in families for one in family.resampled for metric in one.metrics if one.ends}
    assert told == {
        "context_tokens": (0, math.inf),
        "generation_tokens": (0, math.inf),
        "compression_ratio": (0, math.inf),
        "probability_shift": (-100, 100),
        "probability_log_ratio": ANYWHERE,
        "token_f1": (0, 100),
    }


def test_a_thousand_resamples_of_ten_thousand_questions_take_well_under_a_second() -> None:
    parts = np.column_stack([np.arange(10_000) % 3 == 0, np.ones(10_000)])
    resampled(parts[:10])
    begin = time.process_time()
    resampled(parts)
    assert time.process_time() - begin < 1


@pytest.mark.parametrize("measures", [EVOWIKI, PRELUDE, answers.FAMILY], ids=["evowiki", "prelude", "answers"])
def test_a_score_on_a_resample_is_the_score_of_the_questions_that_were_drawn(
    measures: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resampling, "widened", lambda values, factor, about: values)
    monkeypatch.setattr(resampling, "furthest", lambda names, whole, value, unseen, metric: (0.0, 0.0))
    rng = np.random.default_rng(0)
    rows = [
        {"question_id": f"q{n:02}", "right": bool(rng.random() < 0.6), "outdated": bool(rng.random() < 0.3)}
        | {"canonical": "read" if rng.random() < 0.9 else None, "trial": trial}
        for n in range(30)
        for trial in range(2)
    ]
    kinds = {
        "label": [("consistent", "contradict")[n // 2 % 2] for n in range(60)],
        "rarity": ["rare" if n < 8 else "common" for n in range(60)],
    }
    graded = verdicts(*rows, **kinds)
    draws = Draws("d", graded["question_id"])
    names = sorted(set(graded["question_id"]))
    times = draws.times = rng.integers(1, 4, draws.times.shape).astype(np.float32)  # whole ones, to draw so often
    found = measured(measures, graded, 0, {}, draws)
    undecided = {metric for one in measures.resampled if not one.interval for metric in one.metrics}
    for resample in (0, 7, 999):
        drawn = [
            graded.filter(pl.col("question_id") == name).with_columns(
                question_id=pl.format("{}-{}", "question_id", copy), probe_id=pl.format("{}-{}", "probe_id", copy)
            )
            for name, count in zip(names, times[resample % DRAWS], strict=True)
            for copy in map(pl.lit, range(int(count)))
        ]
        alone = scores_of(measures, pl.concat(drawn), {})
        values = {row[:3]: row[3:] for row in alone.select("subset", "metric", "at", "value", "n").rows()}
        resampled = {metric for one in measures.resampled for metric in one.metrics}
        unseen = 2 * float(draws.unseen[resample % DRAWS, 0])  # of two predictions, as every question is
        right = unseen * (resample >= DRAWS)
        checked = 0
        for at, row in enumerate(found.scores.select("subset", "metric", "at", "questions").rows()):
            value = found.resamples[at, resample]
            if row[3] < FEWEST or row[1] in undecided:
                assert math.isnan(value)
                continue
            expected, n = values.get(row[:3], (math.nan, 0))
            if row[1] not in resampled:
                expected = (expected * n + 100 * right) / (n + unseen)
            assert value == pytest.approx(expected, nan_ok=True), row
            checked += 1
        assert checked >= 3
