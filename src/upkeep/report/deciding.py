"""When a finding holds or fails for certain, from how often each of its cases does on resamples.

Let p be the share of resamples in which a case is not satisfied. It is the achieved level of the test whose null
hypothesis is that the case is false (the percentile bootstrap: B. Efron and R. J. Tibshirani, An Introduction to the
Bootstrap, 1993, section 13.3; counted as (b + 1) / (R + 1): A. C. Davison and D. V. Hinkley, Bootstrap Methods and
their Application, 1997, section 4.2), so a false case reaches p <= 0.05 in at most 5% of studies. With few questions
that takes more: one question is added on which the case is wrong, as `grading.resampling` has it. For that each side
is taken for lower and for higher than it was seen, and p is the largest of these four (`weaker`). Where the left side
is to be above, and sides rise with their scores, that is the one with the left side lower, the right one higher. Scores
that are subtracted on one side are both lower or both higher there, so a difference is better written on two sides (and
what is to be near another, with `within`: two methods that answered alike are no nearer than a question more leaves
them). How often a false case is called certain with 10 to 60 questions, by simulation: benchmarks/verdicts.py.

Verdicts and the intervals of the report are made of the same questions, and differ in three things. A 95% interval
leaves 2.5% on either side, a verdict 5% on the side that is against the finding. Intervals have no question added
(those of ratios are by formula: `statistics`), so with few questions verdicts are the more careful ones. And an
interval is of one score: two that overlap may differ for certain, for a verdict compares answers to the same question.

A check wants u of its k cases: all, most or some. It *holds* where (k - u + 1) times the u-th smallest p is at most
0.05, which is the test of the partial conjunction of u of k (Y. Benjamini and R. Heller, Screening for partial
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
from typing import Literal

from upkeep.grading.resampling import DRAWS, LEVEL, RESAMPLES


def weaker(told: Sequence[int]) -> int:
    """In how many resamples something is so, if it were in all as seldom as where it is most seldom.

    Args:
        told: in how many of DRAWS, for each way to take the sides.
    """
    return RESAMPLES // DRAWS * min(told)


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
