"""When a finding is certain: how seldom a false one is called so, and how many resamples decide."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from upkeep.grading.resampling import DRAWS, HALVES, RESAMPLES, Draws, Floats
from upkeep.report.deciding import decided, rejected, weaker


def taken(one: Floats, other: Floats) -> list[int]:
    """In how many draws one is above the other, each taken for lower and for higher."""
    return [int((one[a] > other[b] + 1e-9).sum()) for a in HALVES for b in HALVES]


def binomial_limit(trials: int, share: float) -> float:
    """Successes that so many trials of this chance exceed in less than one case of a thousand (one-sided, exact)."""
    tail, count = 1.0, 0
    while tail > 1e-3:
        tail -= math.comb(trials, count) * share**count * (1 - share) ** (trials - count)
        count += 1
    return count


def study_of(
    rng: np.random.Generator, truths: Sequence[tuple[float, float]], questions: int
) -> tuple[NDArray[Any], ...]:
    """For each case the resamples in which one method is ahead of the other, and in which it is not; the methods are
    right with these chances, on questions of unlike difficulty that both share."""
    draws = Draws(f"d{rng.integers(1 << 40)}", [f"{n:05}" for n in range(questions)])
    hardness = rng.random(questions)
    held = []
    for one, other in truths:
        right = [(0.5 * rng.random(questions) + 0.5 * hardness < chance) * 1.0 for chance in (one, other)]
        names = [f"{n:05}" for n in range(questions)]
        values = draws.ratios(names, np.column_stack(right), np.ones((questions, 2))).T
        held.append(taken(*values))
    return np.array([weaker(one) for one in held]), np.array([weaker([DRAWS - n for n in one]) for one in held])


@pytest.mark.parametrize("questions", [12, 60])
@pytest.mark.parametrize(
    ("truths", "wanted"),
    [
        ([(0.5, 0.5)], 1),
        ([(0.5, 0.5)] * 4, 4),
        ([(0.9, 0.1)] * 3 + [(0.5, 0.5)], 4),
        ([(0.9, 0.1)] * 4 + [(0.5, 0.5)] * 4, 5),
        ([(0.5, 0.5)] * 7, 4),
        ([(0.5, 0.5)] * 12, 1),
    ],
)
def test_a_false_finding_is_called_holds_in_at_most_one_study_of_twenty(
    questions: int, truths: list[tuple[float, float]], wanted: int
) -> None:
    rng, studies = np.random.default_rng(0), 400
    called = [decided([(*study_of(rng, truths, questions), wanted)], RESAMPLES) for _ in range(studies)]
    assert called.count("holds") <= binomial_limit(studies, 0.05)
    if len(truths) == 1:
        assert called.count("undecided") > 0.7 * studies


@pytest.mark.parametrize("questions", [12, 30, 100])
@pytest.mark.parametrize("chance", [0.02, 0.1, 0.5, 0.9, 0.98])
def test_a_rate_is_called_beyond_its_true_value_in_at_most_one_study_of_twenty(questions: int, chance: float) -> None:
    rng, studies = np.random.default_rng(0), 400
    names = [f"{n:05}" for n in range(questions)]
    called = {">": 0, "<": 0}
    for study in range(studies):
        right = (rng.random((questions, 1)) < chance) * 1.0
        (values,) = Draws(f"d{study}", names).ratios(names, right, np.ones((questions, 1))).T
        bound = np.full(RESAMPLES, chance)
        for op, told in ((">", taken(values, bound)), ("<", taken(bound, values))):
            called[op] += rejected([RESAMPLES - weaker(told)], 1, RESAMPLES, 0.05)
    assert max(called.values()) <= binomial_limit(studies, 0.05), called


def test_a_true_finding_is_called_fails_in_at_most_one_study_of_twenty_and_holds_if_it_is_clear() -> None:
    rng, studies = np.random.default_rng(0), 400
    barely = [decided([(*study_of(rng, [(0.505, 0.5)] * 6, 60), 6)], RESAMPLES) for _ in range(studies)]
    assert barely.count("fails") <= binomial_limit(studies, 0.05)
    clearly = [decided([(*study_of(rng, [(0.8, 0.4)] * 6, 60), 6)], RESAMPLES) for _ in range(50)]
    assert clearly.count("holds") == 50


def test_how_many_resamples_decide_one_case() -> None:
    for held, wanted in (
        (1000, "holds"),
        (951, "holds"),
        (950, "undecided"),
        (50, "undecided"),
        (49, "fails"),
        (0, "fails"),
    ):
        assert decided([([held], [1000 - held], 1)], 1000) == wanted
    assert decided([([0], [0], 1)], 1000) == "undecided", "no value in any resample"
    assert decided([([1000], [0], 1), ([500], [500], 1)], 1000) == "undecided"
    assert decided([([1000], [0], 1), ([0], [1000], 1)], 1000) == "fails"


def test_more_than_half_is_certain_by_the_test_of_the_partial_conjunction() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        k = int(rng.integers(1, 9))
        against, wanted = rng.integers(0, 60, k), int(rng.integers(1, k + 1))
        shares = sorted((against + 1) / 1001)
        # Bonferroni's over every choice of k - wanted + 1 cases: each has one that is certain.
        expected = max(min(shares[i] for i in group) * len(group) for group in groups(k, k - wanted + 1)) <= 0.05
        assert rejected(against.tolist(), wanted, 1000, 0.05) == expected


def groups(k: int, size: int) -> list[list[int]]:
    return [[i for i in range(k) if code >> i & 1] for code in range(1 << k) if code.bit_count() == size]


# ---------------------------------------------------------------- few questions


@pytest.mark.parametrize(("one", "other"), [(1, 0), (4, 0), (5, 0), (9, 0), (3, 3), (7, 1), (8, 2), (20, 10)])
@pytest.mark.parametrize("alike", [0, 30])
def test_what_speaks_against_a_cell_that_is_ahead_is_the_level_of_mcnemars_exact_test(
    one: int, other: int, alike: int
) -> None:
    """Questions that one alone has right, that the other alone has, and that both have (of five that differ one way, as
    by chance in one case of 32)."""
    names = [f"{n:03}" for n in range(one + other + 2 * alike)]
    right = np.array([[1, 0]] * one + [[0, 1]] * other + [[1, 1]] * alike + [[0, 0]] * alike, dtype=float)
    drawn = [Draws(f"d{study}", names).ratios(names, right, np.ones(right.shape)).T for study in range(10)]
    against = [1 - weaker(taken(*values)) / RESAMPLES for values in drawn]
    n = one + other
    level = sum(math.comb(n, count) for count in range(one, n + 1)) / 2**n
    assert np.mean(against) == pytest.approx(level, abs=3 * math.sqrt(level / 10 / DRAWS))


def test_what_was_always_seen_is_uncertain_below_and_what_was_never_seen_above() -> None:
    names = [f"{n}" for n in range(20)]
    hits = np.column_stack([np.ones(20), np.zeros(20)])
    always, never = Draws("d", names).ratios(names, hits, np.ones((20, 2))).T
    lower, higher = HALVES
    assert (always[higher] == 1).all() and (never[lower] == 0).all()
    # The exact limits at 95%: 0.05 ** (1 / 20) and what is left of it.
    assert np.quantile(always[lower], 0.05) == pytest.approx(0.05 ** (1 / 20), abs=0.02)
    assert np.quantile(never[higher], 0.95) == pytest.approx(1 - 0.05 ** (1 / 20), abs=0.02)


def test_a_way_to_take_its_sides_that_is_against_it_keeps_a_finding_from_being_certain() -> None:
    assert weaker([500, 500]) == RESAMPLES and weaker([500, 470, 490, 500]) == 940 and weaker([0, 500]) == 0
