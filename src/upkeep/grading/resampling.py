"""Values with standard error and 95% interval by resampling questions, for scores that are no ratio of counts.

The bootstrap of B. Efron and R. J. Tibshirani, An Introduction to the Bootstrap, 1993, sections 6 and 13.3: questions
are drawn with replacement, each with all of its predictions, as often as there are; the value is worked out anew from
each of RESAMPLES such draws. The standard error is the standard deviation of these values. The interval reaches from
their a-th to their (1 - a)-th quantile, where a = Phi(-sqrt(Q / (Q - 1)) t(0.975, Q - 1)) of Q questions: nearly 2.5%
for many, and less for few, for which these quantiles are too narrow (the expanded percentile interval: T. C.
Hesterberg, What teachers should know about the bootstrap, The American Statistician 69, 2015). The draws depend on the
number of questions alone.

What is said of several scores together, as in a claim, needs resamples that all of them share: `Draws`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from upkeep.grading.statistics import t_quantile

Floats = NDArray[np.float64]
Value = Callable[[Mapping[str, Floats]], Mapping[str, Floats]]
"""(sums over questions by name, an array each with a place for each resample) -> metric -> its value in each place."""

RESAMPLES = 1000
HALVES = (slice(0, RESAMPLES // 2), slice(RESAMPLES // 2, RESAMPLES))
"""Of the resamples of `Draws`: in the first all rates are taken for lower than they were seen, in the second for higher
(`Draws.ratios`)."""
SEED = 0
FEWEST = 10
"""Questions that a score needs at least to say anything about other questions: among fewer, all may well fall the same
way by chance (of five that are even, in one case of 16), and no resample would show it."""
_MOST = 1 << 20
"""Numbers that are drawn at once: few enough to stay in a processor's cache."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """One score."""

    value: float
    se: float | None
    low: float | None
    high: float | None
    """The last three are None for a single question, and where no interval is asked for."""


def resampled_sums(parts: Floats) -> Floats:
    """Column sums over resamples of the rows.

    Args:
        parts: (questions, columns).

    Returns:
        (RESAMPLES, columns).
    """
    rng, questions = np.random.default_rng(SEED), len(parts)
    sums = np.empty((RESAMPLES, parts.shape[1]))
    step = max(1, _MOST // questions)
    for first in range(0, RESAMPLES, step):
        count = min(step, RESAMPLES - first)
        drawn = rng.integers(questions, size=(count, questions)) + questions * np.arange(count)[:, None]
        times = np.bincount(drawn.ravel(), minlength=count * questions).reshape(count, questions)
        sums[first : first + count] = times.astype(np.float64) @ parts
    return sums


def estimates(names: list[str], parts: Floats, value: Value, *, interval: bool = True) -> dict[str, Estimate]:
    """The scores that a function of sums over questions gives.

    Args:
        names: what the columns of `parts` are called.
        parts: (questions, columns), a row for each question.
        value: from sums to scores; where one is not defined (a division by zero) it is NaN there.
        interval: whether to resample.

    Returns:
        By metric. A score that is not defined on the questions themselves is left out; resamples on which it is not are
        left out of its interval.

    Raises:
        ValueError: the function does not give a number for each resample.
    """
    own = resampled(names, parts.sum(axis=0, keepdims=True), value)
    draws = resampled(names, resampled_sums(parts), value) if interval and len(parts) > 1 else {}
    found: dict[str, Estimate] = {}
    questions = len(parts)
    tail = NormalDist().cdf(-math.sqrt(questions / (questions - 1)) * t_quantile(questions - 1)) if draws else 0.0
    for metric, (number,) in own.items():
        if not np.isfinite(number):
            continue
        spread = draws[metric][np.isfinite(draws[metric])] if draws else np.empty(0)
        if len(spread) < 2:
            found[metric] = Estimate(float(number), None, None, None)
            continue
        low, high = np.quantile(spread, [tail, 1 - tail])
        found[metric] = Estimate(float(number), float(spread.std(ddof=1)), float(low), float(high))
    return found


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
    """How often each question of a dataset is drawn in each of RESAMPLES resamples.

    All cells of a dataset share them, so two cells that answer alike are alike in every resample, and the draws of
    different datasets are independent. One question fewer is drawn than there are: so the variance over resamples is
    the unbiased one of a mean of questions (J. N. K. Rao and C. F. J. Wu, Resampling inference with complex survey
    data, JASA 83, 1988, section 2). They are the same whenever dataset and questions are.

    Args:
        dataset: its id.
        questions: the ids of its questions; one that stands there often counts once.
    """

    def __init__(self, dataset: str, questions: Iterable[str]) -> None:
        self._dataset, self._others = dataset, dict[frozenset[str], Draws]()
        self._places = {name: place for place, name in enumerate(sorted(set(questions)))}
        count = len(self._places)
        seed = int.from_bytes(hashlib.sha256(dataset.encode()).digest()[:8])
        rng = np.random.default_rng([SEED, seed, count])
        self._times = np.empty((RESAMPLES, count), dtype=np.uint8)
        step = max(1, _MOST // max(1, count))
        for first in range(0, RESAMPLES, step):
            rows = min(step, RESAMPLES - first)
            drawn = rng.integers(count, size=(rows, max(0, count - 1))) + count * np.arange(rows)[:, None]
            self._times[first : first + rows] = np.bincount(drawn.ravel(), minlength=rows * count).reshape(rows, count)
        self.unseen: Floats = rng.exponential(size=(RESAMPLES, 2))
        """How often a question is added that is right, and one that is wrong (`ratios`): in half of the resamples the
        one, in the other half the other."""
        for half, one in zip(HALVES, (0, 1), strict=True):
            self.unseen[half, one] = 0

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
        """Column sums over each resample.

        Args:
            questions: the id of each row.
            parts: (questions, columns); what a question that has no row adds is 0.

        Returns:
            (RESAMPLES, columns).
        """
        places = np.fromiter((self._places[name] for name in questions), dtype=np.int64)
        total = np.zeros((RESAMPLES, parts.shape[1]))
        for first in range(0, len(places), 4096):  # numbers of 8 bytes of all questions would be large
            some = slice(first, first + 4096)
            total += self._times[:, places[some]].astype(np.float64) @ parts[some]
        return total

    def ratios(self, questions: Iterable[str], hits: Floats, total: Floats) -> Floats:
        """Scores that are ratios of counts, on each resample.

        What was always seen, or never, is so in every resample, however few the questions: of twenty that are right
        with a chance of 95% each, all are in one case of three. So each resample gets one question more, as large as
        the score's own are on average: a wrong one in the first of HALVES, a right one in the second, with weights of
        mean 1 (exponential, as all weights are in D. B. Rubin, The Bayesian bootstrap, Annals of Statistics 9, 1981).
        Of x that are right of n the first half is then about Beta(x, n - x + 1) and the second Beta(x + 1, n - x),
        whose quantiles are the exact limits of a rate below and above (C. J. Clopper and E. S. Pearson, The use of
        confidence or fiducial limits illustrated in the case of the binomial, Biometrika 26, 1934). All cells get the
        same, so what cells compare by question has the sign that it would have without.

        Args:
            questions: the id of each row.
            hits, total: (questions, scores); 0 of both where a question has no say in a score.

        Returns:
            (RESAMPLES, scores), shares; NaN where none of a score's questions was drawn.
        """
        questions = list(questions)
        sums, totals = self.sums(questions, hits), self.sums(questions, total)
        with np.errstate(divide="ignore", invalid="ignore"):
            size = total.sum(axis=0) / (total > 0).sum(axis=0)
            right, wrong = (self.unseen[:, [n]] * size for n in (0, 1))
            return np.where(totals > 0, (sums + right) / (totals + right + wrong), np.nan)
