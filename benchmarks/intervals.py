"""How often an interval holds the value that it is of: `python benchmarks/intervals.py [--studies 1000]`.

Each study draws questions from a population whose value is known, answers them, and works out the score as the suite
does. Of 95% intervals 93 to 97% are to hold the value. Prints a Markdown table; above and below say on which side of an
interval the value lay otherwise.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
import polars as pl
from populations import Kind, correlation, gain, macro_f1, tokens

from upkeep.grading.resampling import Draws, Floats
from upkeep.grading.statistics import COUNTS_SCHEMA, estimate, levelled

Generator = np.random.Generator
Intervals = tuple[Floats, Floats]
"""Lower and upper ends, one a study."""


def of_counts(hits: Floats, totals: Floats, strata: Floats | None = None) -> Intervals:
    """Intervals of ratios of counts, or of means over strata; (studies, questions) each."""
    studies, questions = hits.shape
    columns = {
        "subset": np.repeat(np.arange(studies), questions).astype(str),
        "metric": "rate",
        "at": None,
        "question_id": np.tile(np.arange(questions), studies).astype(str),
        "hits": hits.ravel(),
        "total": totals.ravel(),
        "n": totals.ravel(),
    }
    counts = pl.DataFrame(columns)
    if strata is not None:
        counts = levelled(counts.with_columns(stratum=strata.ravel()), "stratum")
    found = estimate(counts.select(pl.col(c).cast(t) for c, t in COUNTS_SCHEMA.items()))
    return found["low"].to_numpy(), found["high"].to_numpy()


def of_sums(rng: Generator, shape: tuple[int, int], kind: Kind) -> tuple[float, Intervals]:
    """Intervals of another function of sums over questions. Studies that have none are left out."""
    names, found = [f"{n:05}" for n in range(shape[1])], []
    for study in range(shape[0]):
        (cell,), truth = kind(rng, shape[1])
        one = cell.estimate(Draws(f"{study}", names), names)
        if one is not None and one.low is not None:
            found.append((one.low, one.high))
    low, high = np.array(found, dtype=np.float64).T
    return truth, (low, high)


def share(rng: Generator, shape: tuple[int, int], chance: float) -> tuple[float, Intervals]:
    """Each question is asked once."""
    return 100 * chance, of_counts((rng.random(shape) < chance).astype(float), np.ones(shape))


def pooled(rng: Generator, shape: tuple[int, int]) -> tuple[float, Intervals]:
    """A question is asked at 5 to 60 intervals, and is easy or hard at all of them."""
    totals = rng.integers(5, 61, shape)
    return 60.0, of_counts(rng.binomial(totals, rng.beta(3, 2, shape)).astype(float), totals.astype(float))


def mean(rng: Generator, shape: tuple[int, int]) -> tuple[float, Intervals]:
    """The same, each question as much as any other."""
    totals = rng.integers(5, 61, shape)
    return 60.0, of_counts(rng.binomial(totals, rng.beta(3, 2, shape)) / totals, np.ones(shape))


def of_families(rng: Generator, shape: tuple[int, int]) -> tuple[float, Intervals]:
    """ImprintBench's Avg.: the mean over five families of very unlike sizes, whose weights are taken as given."""
    family, chances = rng.choice(5, shape, p=FAMILIES), np.linspace(0.3, 0.9, 5)
    # Half of a family's questions are eight trials of one chance, which are right or wrong together.
    right = np.where(rng.random(shape) < 0.5, rng.random(shape) < chances[family], rng.binomial(8, chances[family]) / 8)
    sizes = np.stack([(family == one).sum(axis=1) for one in range(5)], axis=1)
    weight = 1 / np.take_along_axis(sizes, family, axis=1)
    return 100 * chances.mean(), of_counts(weight * right, weight, family)


def change_rate(rng: Generator, shape: tuple[int, int]) -> tuple[float, Intervals]:
    """OAKS': the mean of how often predictions change where the answer does (about 4 of 60 intervals) and where it does
    not, by questions that are more and less restless."""
    changes = rng.integers(1, 8, shape)
    stays, restless = 60 - changes, rng.beta(2, 4, shape)
    moved, moved_still = rng.binomial(changes, 0.3 + 0.6 * restless), rng.binomial(stays, restless)
    weights = [0.5 / total.sum(axis=1, keepdims=True) for total in (changes, stays)]
    hits = weights[0] * moved + weights[1] * moved_still
    return 100 * (0.5 + 1 / 3) / 2, of_counts(hits, weights[0] * changes + weights[1] * stays)


FAMILIES = (0.4, 0.3, 0.15, 0.1, 0.05)
"""Shares of the questions that are of each family."""
KINDS: dict[str, Callable[[Generator, tuple[int, int]], tuple[float, Intervals]]] = {
    "share, 50%": lambda rng, shape: share(rng, shape, 0.5),
    "share, 90%": lambda rng, shape: share(rng, shape, 0.9),
    "pooled share, clustered": pooled,
    "mean over questions": mean,
    "gain over a second cell": lambda rng, shape: of_sums(rng, shape, gain),
    "macro F1": lambda rng, shape: of_sums(rng, shape, macro_f1),
    "rank correlation": lambda rng, shape: of_sums(rng, shape, correlation),
    "mean over families": of_families,
    "mean tokens": lambda rng, shape: of_sums(rng, shape, tokens),
    "change rate": change_rate,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=1000)
    parser.add_argument("--questions", type=int, nargs="+", default=[30, 60, 300])
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    print("| score | questions | studies | value | within, % | above, % | below, % |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for number, (name, kind) in enumerate(KINDS.items()):
        for questions in asked.questions:
            truth, (low, high) = kind(
                np.random.default_rng([number, questions, asked.seed]), (asked.studies, questions)
            )
            above, below = 100 * np.mean(truth > high), 100 * np.mean(truth < low)
            within = 100 - above - below
            cells = f"{truth:.2f} | {within:.1f} | {above:.1f} | {below:.1f}"
            print(f"| {name} | {questions} | {len(low):,} | {cells} |")


if __name__ == "__main__":
    main()
