"""When a finding holds or fails for certain, from how often each of its cases does on resamples.

Let p be the share of resamples in which a case is not satisfied. It is the achieved level of the test whose null
hypothesis is that the case is false (the percentile bootstrap: B. Efron and R. J. Tibshirani, An Introduction to the
Bootstrap, 1993, section 13.3; counted as (b + 1) / (R + 1): A. C. Davison and D. V. Hinkley, Bootstrap Methods and
their Application, 1997, section 4.2), so a false case reaches p <= 0.05 in at most 5% of studies. With few questions
that takes two things more. Scores on resamples are spread as Student's t and not as the normal distribution
(`widened`). And rates near their ends are uncertain to one side, so p is the larger one of the two halves of the
resamples, in which rates are taken for lower and for higher (`weaker`; `resampling.Draws.ratios`). How often a false
case is called certain with 10 to 60 questions, by simulation: benchmarks/verdicts.py.

A check wants u of its k cases: all, or more than half. It *holds* where (k - u + 1) times the u-th smallest p is at
most 0.05, which is the test of the partial conjunction of u of k (Y. Benjamini and R. Heller, Screening for partial
conjunction hypotheses, Biometrics 64, 2008). For `all` this says that every case is satisfied in more than 95% of the
resamples. Counting the resamples in which the check as a whole is satisfied would not do for `most`: among many cases
that are even, some or other is nearly always on the right side. A claim holds where each of its checks does. If it is
false, one of them is, and that one passes in at most 5% of studies, so the claim does.

It *fails* by the same reckoning for the opposite: with p' the share of resamples in which a case is satisfied,
k - u + 1 cases that are not satisfied make the check false; the level is shared out among the checks of a claim. With
one case this is: satisfied in less than 5% of the resamples. Everything between is *undecided*.

What is uncertain here is which questions were asked. Other models, seeds or training runs are not spoken of.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import Literal

import numpy as np

from upkeep.grading.resampling import FEWEST, HALVES, Floats
from upkeep.grading.statistics import t_quantile

LEVEL = 0.05


def widened(values: Floats, questions: Sequence[int]) -> Floats:
    """Scores on resamples, further apart about their mean by as much as Student's t is wider than the normal
    distribution where each leaves LEVEL of itself on one side: of ten questions 11%, of sixty 2%.

    The percentile bootstrap is too narrow by that (T. C. Hesterberg, What teachers should know about the bootstrap, The
    American Statistician 69, 2015, "expanded percentile interval"; its other factor, of n - 1, is in `Draws`).

    Args:
        values: (scores, resamples), NaN where a score is not defined; each of HALVES has a mean of its own.
        questions: of each score; with fewer than FEWEST it is defined nowhere.
    """
    normal = NormalDist().inv_cdf(1 - LEVEL)
    factors = {n: t_quantile(n - 1, 1 - 2 * LEVEL) / normal for n in set(questions) if n >= FEWEST}
    factor = np.array([factors.get(n, 1.0) for n in questions]).reshape(-1, 1, 1)
    halves = values.reshape(len(values), len(HALVES), -1)
    known = np.isfinite(halves)
    with np.errstate(invalid="ignore"):
        mean = halves.sum(axis=2, keepdims=True, where=known) / known.sum(axis=2, keepdims=True)
        return np.asarray(mean + factor * (halves - mean)).reshape(values.shape)


def weaker(told: Sequence[int]) -> int:
    """In how many resamples something is so, if it were in both halves as seldom as in the one where it is more seldom.

    Args:
        told: in how many of each half.
    """
    return len(told) * min(told)


def rejected(against: Sequence[int], wanted: int, resamples: int, level: float) -> bool:
    """Whether so many cases are certain.

    Args:
        against: for each case, the resamples that speak against it.
        wanted: how many of them are to be certain.
        resamples: how many there are.
    """
    shares = sorted((count + 1) / (resamples + 1) for count in against)
    return (len(shares) - wanted + 1) * shares[wanted - 1] <= level


def decided(
    checks: Sequence[tuple[Sequence[int], Sequence[int], int]], resamples: int
) -> Literal["holds", "fails", "undecided"]:
    """What comes of a claim.

    Args:
        checks: of each check, for each case the resamples in which it is satisfied and those in which it is not (where
            it has no value it is neither), and how many cases are to be satisfied; at least one case.
        resamples: how many there are.
    """
    if all(rejected([resamples - n for n in yes], wanted, resamples, LEVEL) for yes, _, wanted in checks):
        return "holds"
    level = LEVEL / len(checks)
    if any(rejected([resamples - n for n in no], len(no) - wanted + 1, resamples, level) for _, no, wanted in checks):
        return "fails"
    return "undecided"
