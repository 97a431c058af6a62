"""Scores on resamples of the questions: for intervals of what is no ratio of counts, and for claims.

The Bayesian bootstrap of D. B. Rubin, Annals of Statistics 9, 1981: in each of DRAWS draws a question, with all of its
predictions, counts as often as an exponential number of mean 1 says, and the value is worked out anew. Few questions
take more: one that was not seen.

Of a ratio of counts nothing is known of what was never seen. So a draw gets one question more, as large as the score's
own are on average, in the first of HALVES a wrong one, in the second a right one: the bounds of N. Gaffke, Three test
statistics for a nonparametric one-sided hypothesis on the mean of a nonnegative variable, Mathematical Methods of
Statistics 14, 2005. (That these hold for whatever lies between two ends is conjectured; for right and wrong it is
known.) Where x of n questions are right the first half is Beta(x, n - x + 1) and the second Beta(x + 1, n - x), whose
quantiles are the exact limits of a rate (C. J. Clopper and E. S. Pearson, Biometrika 26, 1934). A finding takes one
side from the first half and the other from the second of the same draw (`report.deciding`), so the question that was
not seen is one on which it is wrong. Where two cells are asked the same, and one alone is right x times and the other
alone y times, as many draws speak against the one as the exact test of Q. McNemar, Psychometrika 12, 1947, has it:
P(Binomial(x + y, 1/2) >= x).

Of another function of sums the question that was not seen is one of those that were, answered in whichever way moves
the score most: the first half has the one that lowers it most, the second the one that raises it most (`furthest`).
Where a score does not go by answers but by what was measured, as tokens are, the largest that was seen is no end: the
question counts twice, for twice as far is the mean of what lies beyond it in a tail of Pareto's with the exponent 2,
and tails of a finite variance are lighter. Even so it takes FEWEST_MEASURED questions to see such a tail at all.

Draws of these scores are widened besides, as Student's t is wider than the normal distribution, and for the variance of
a mean, (n + 1) / (n - 1) times that of the draws (`widened`). Their interval has no question added. It is from the a-th
to the (1 - a)-th quantile of the draws as they are, a = Phi(-sqrt((n + 1) / (n - 1)) t(0.975, d)): the expanded
percentile interval of T. C. Hesterberg, What teachers should know about the bootstrap, The American Statistician 69,
2015. Here d are the degrees of freedom of its variance: n - 1, and less where a few questions decide (`freedom`). That
of a mean of what was measured is by formula, for such numbers are skewed (`of_mean`).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from upkeep.grading.statistics import t_quantile

Floats = NDArray[np.float64]
Value = Callable[[Mapping[str, Floats]], Mapping[str, Floats]]
"""(sums over questions by name, an array each with a place for each resample) -> metric -> its value in each place."""

DRAWS = 500
HALVES = (slice(0, DRAWS), slice(DRAWS, 2 * DRAWS))
"""Of the resamples: in the first all scores are taken for lower than they were seen, in the second for higher, on the
same draws."""
RESAMPLES = 2 * DRAWS
LEVEL = 0.05
"""How often at most a false finding is to be called certain."""
SEED = 0
FEWEST = 10
"""Questions that a score needs at least to say anything about other questions."""
FEWEST_MEASURED = 20
"""The same of one that goes by what was measured, and not by answers."""
STEP = 1e-4
"""Of a question, by which sums are changed to see how much it moves a score."""
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Estimate:
    """One score."""

    value: float
    se: float | None
    low: float | None
    high: float | None
    """The last three are None for a single question, and where no interval is asked for."""
    resamples: Floats = field(compare=False, repr=False)
    """(RESAMPLES,), `widened`; NaN in all places where no interval is asked for."""


def estimates(
    names: list[str],
    parts: Floats,
    value: Value,
    draws: Draws,
    questions: Sequence[str],
    unseen: Floats,
    *,
    interval: bool = True,
    ends: tuple[float, float] | None = None,
) -> dict[str, Estimate]:
    """The scores that a function of sums over questions gives.

    Args:
        names: what the columns of `parts` are called.
        parts: (questions, columns), a row for each question.
        value: from sums to scores; where one is not defined (a division by zero) it is NaN there.
        draws: of these questions or more.
        questions: the id of each row.
        unseen: (questions, columns), what one that was not asked might add.
        interval: whether there is one. A score without is no estimate over questions: nothing is decided by it.
        ends: of means of what was measured, those that no such mean lies beyond; their interval is `of_mean`.

    Returns:
        By metric. A score that is not defined on the questions themselves is left out; draws on which it is not are
        left out of its interval.

    Raises:
        ValueError: the function does not give a number for each draw, or a mean that lies beyond the ends.
    """
    whole, drawn_sums = parts.sum(axis=0, keepdims=True), draws.sums(questions, parts)
    own, drawn = resampled(names, whole, value), resampled(names, drawn_sums, value)
    slopes = influences(names, parts, value) if ends is not None else {}
    found: dict[str, Estimate] = {}
    for metric, (number,) in own.items():
        if not np.isfinite(number):
            continue
        values, n = drawn[metric], len(parts)
        known = values[np.isfinite(values)]
        smooth = ends is None or np.isfinite(slopes[metric]).all()
        if not (interval and smooth) or n < 2 or len(known) < 2:
            found[metric] = Estimate(float(number), None, None, None, np.full(2 * len(values), np.nan))
            continue
        free, more = freedom(draws.influences(questions, values)), math.sqrt((n + 1) / (n - 1))
        halves = [
            resampled(names, drawn_sums + draws.unseen * row, value)[metric]
            for row in furthest(names, whole, value, unseen, metric)
        ]
        factor = more * t_quantile(free, 1 - 2 * LEVEL) / NormalDist().inv_cdf(1 - LEVEL)
        if ends is not None:
            se, low, high = of_mean(float(number), slopes[metric], ends)
        else:
            tail = NormalDist().cdf(-more * t_quantile(free))
            se, (low, high) = more * float(known.std(ddof=1)), np.quantile(known, [tail, 1 - tail]).tolist()
        found[metric] = Estimate(
            value=float(number),
            se=se,
            low=low,
            high=high,
            resamples=widened(np.concatenate(halves), factor, float(number)),
        )
    return found


def furthest(names: list[str], whole: Floats, value: Value, unseen: Floats, metric: str) -> tuple[Floats, Floats]:
    """Of the questions that one more might be, (questions, columns), the one that lowers a score most, and the one that
    raises it most."""
    kinds = np.unique(unseen, axis=0)
    moved = resampled(names, whole + kinds, value)[metric]
    known = np.isfinite(moved)
    return kinds[np.argmin(np.where(known, moved, np.inf))], kinds[np.argmax(np.where(known, moved, -np.inf))]


def influences(names: list[str], parts: Floats, value: Value) -> dict[str, Floats]:
    """By how much each question moves smooth scores: metric -> (questions,), the derivatives by how often it counts.

    That is the infinitesimal jackknife (L. A. Jaeckel, Bell Laboratories Memorandum MM 72-1215-11, 1972). Of a ratio
    of sums, with `hits` and `total` of a question, these are (hits - value * total) / sum(total).

    Args:
        names, parts, value: as of `estimates`.
    """
    whole = parts.sum(axis=0)
    more, less = (resampled(names, whole + step * parts, value) for step in (STEP, -STEP))
    with np.errstate(invalid="ignore"):
        return {metric: (more[metric] - less[metric]) / (2 * STEP) for metric in more}


def of_mean(value: float, influences: Floats, ends: tuple[float, float]) -> tuple[float, float, float]:
    """Standard error of a mean, or of a ratio of two, and a 95% interval that knows that it is skewed.

    With T = (mean - truth) / se, skewness g of the n questions and k = g / sqrt(n), what is distributed symmetrically
    up to terms of order 1 / n is

        T + k (T^2 / 3 + 1 / 6) + k^2 T^3 / 27

    (P. Hall, On the removal of skewness by transformation, Journal of the Royal Statistical Society B 54, 1992, with
    the coefficients of a mean). It rises with T, and the interval holds what takes it between -t and t, Student's
    quantile at the degrees of freedom of the variance (`freedom`). Of symmetric numbers, k = 0, that is value -+ t se.
    Where a few questions are far above the others both ends lie higher, the upper one by more.

    Args:
        value: the mean.
        influences: (questions,), by how much each moves it, two at least; `se` is that of a ratio in `statistics`.
        ends: of the quantity. The interval is cut to them.

    Raises:
        ValueError: the mean lies beyond the ends.
    """
    if not ends[0] - ROUNDING <= value <= ends[1] + ROUNDING:
        raise ValueError(f"a mean of {value:g} beyond its ends, {ends[0]:g} and {ends[1]:g}")
    n, squares = len(influences), float((influences**2).sum())
    se, k = math.sqrt(n / (n - 1) * squares), float((influences**3).sum()) / squares**1.5 if squares else 0.0
    t = t_quantile(freedom(influences))
    low, high = (value - se * _skewed(bound, k) for bound in (t, -t))
    return se, max(low, ends[0]), min(high, ends[1])


def _skewed(symmetric: float, k: float) -> float:
    """The T whose transformation it is: 3 / k * (root - 1), written so that it is right for k = 0 as well."""
    root = math.cbrt(1 + k * (symmetric - k / 6))
    return 3 * (symmetric - k / 6) / (root**2 + root + 1)


def freedom(influences: Floats) -> int:
    """Degrees of freedom of the variance of a mean of so many numbers, rounded down.

    2 n / (K - (n - 3) / (n - 1)) of n numbers of kurtosis K, and n - 1 at most, which it is for normal ones: a
    chi-square of so many has the relative variance that their variance has (F. E. Satterthwaite, An approximate
    distribution of estimates of variance components, Biometrics Bulletin 2, 1946; of any numbers: H. Cramér,
    Mathematical Methods of Statistics, 1946, chapter 27).

    Args:
        influences: by how much each question moves a score.
    """
    n, squares = len(influences), float((influences**2).sum())
    kurtosis = n * float((influences**4).sum()) / squares**2 if squares else 1.0
    more = kurtosis - (n - 3) / (n - 1)
    return max(1, min(n - 1, int(2 * n / more))) if more > 0 else n - 1


def widened(values: Floats, factor: float, about: float) -> Floats:
    """Numbers so many times as far from one of them."""
    return about + factor * (values - about)


def resampled(names: list[str], sums: Floats, value: Value) -> dict[str, Floats]:
    """The scores that a function gives of sums: metric -> a number for each row of them, NaN where not defined.

    Args:
        names: what the columns of `sums` are called.
        sums: (resamples, columns).

    Raises:
        ValueError: the function does not give a number for each row.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        given = value({name: sums[:, place] for place, name in enumerate(names)})
    found = {metric: np.asarray(numbers, dtype=np.float64) for metric, numbers in given.items()}
    if wrong := [metric for metric, numbers in found.items() if numbers.shape != (len(sums),)]:
        raise ValueError(f"{wrong[0]}: {found[wrong[0]].shape} in place of a number for each of {len(sums)} resamples")
    return found


class Draws:
    """How often each question of a dataset counts in each of DRAWS draws.

    All cells of a dataset share them, so two cells that answer alike are alike in every draw, and the draws of
    different datasets are independent. They are the same whenever dataset and questions are.

    Args:
        dataset: its id.
        questions: the ids of its questions; one that stands there often counts once.
    """

    def __init__(self, dataset: str, questions: Iterable[str]) -> None:
        self._dataset, self._others = dataset, dict[frozenset[str], Draws]()
        self._places = {name: place for place, name in enumerate(sorted(set(questions)))}
        seed = int.from_bytes(hashlib.sha256(dataset.encode()).digest()[:8])
        rng = np.random.default_rng([SEED, seed, len(self._places)])
        self.times = rng.standard_exponential((DRAWS, len(self._places)), dtype=np.float32)
        """(DRAWS, questions), these in order of their ids."""
        self.unseen: Floats = rng.exponential(size=(DRAWS, 1))
        """How often the question counts that was not asked."""

    def knows(self, questions: Iterable[str]) -> NDArray[np.bool_]:
        """Whether each is a question of the dataset."""
        return np.fromiter((name in self._places for name in questions), dtype=np.bool_)

    def of(self, units: Iterable[str]) -> Draws:
        """Draws of what a metric counts by. Where that is something else than questions (all that is asked of an item),
        these units are what is drawn: in the same way in all cells that have the same ones.
        """
        wanted = frozenset(units)
        if wanted <= self._places.keys():
            return self
        if wanted not in self._others:
            self._others[wanted] = Draws(self._dataset, wanted)
        return self._others[wanted]

    def sums(self, questions: Iterable[str], parts: Floats) -> Floats:
        """Column sums over each draw.

        Args:
            questions: the id of each row.
            parts: (questions, columns); what a question that has no row adds is 0.

        Returns:
            (DRAWS, columns).
        """
        places = self._of(questions)
        total = np.zeros((DRAWS, parts.shape[1]))
        for first in range(0, len(places), 4096):  # numbers of 8 bytes of all questions would be large
            some = slice(first, first + 4096)
            total += self.times[:, places[some]].astype(np.float64) @ parts[some]
        return total

    def influences(self, questions: Iterable[str], values: Floats) -> Floats:
        """By how much each question moves a score: how its value on the draws goes with how often the question counts
        (B. Efron, Estimation and accuracy after model selection, JASA 109, 2014, section 3). Where the score is a mean
        these are its residuals, and so they are where a value has steps, which leaving out a question does not show.

        Args:
            questions: of the score.
            values: (DRAWS,); a NaN says nothing.
        """
        apart = np.nan_to_num(values - np.nanmean(values))
        return np.asarray(apart @ self.times[:, self._of(questions)] / DRAWS)

    def ratios(self, questions: Iterable[str], hits: Floats, total: Floats) -> Floats:
        """Scores that are ratios of counts, on each resample.

        Args:
            questions: the id of each row.
            hits, total: (questions, scores); 0 of both where a question has no say in a score.

        Returns:
            (RESAMPLES, scores), shares; NaN where no question has a say.
        """
        questions = list(questions)
        sums, totals = self.sums(questions, hits), self.sums(questions, total)
        with np.errstate(divide="ignore", invalid="ignore"):
            unseen = self.unseen * total.sum(axis=0) / (total > 0).sum(axis=0)
            return np.asarray(np.concatenate([sums, sums + unseen]) / np.tile(totals + unseen, (2, 1)))

    def _of(self, questions: Iterable[str]) -> NDArray[np.int64]:
        return np.fromiter((self._places[name] for name in questions), dtype=np.int64)
