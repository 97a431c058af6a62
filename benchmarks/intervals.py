"""How often an interval holds the value that it is of: `python benchmarks/intervals.py [--studies 1000]`.

Each study draws questions from a population whose value is known, answers them, and works out the score as the suite
does. Of 95% intervals 93 to 97% are to hold the value. Prints a Markdown table; above and below say on which side of an
interval the value lay otherwise.
"""

from __future__ import annotations

import argparse
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from upkeep.grading.resampling import Draws, Floats, Value, estimates
from upkeep.grading.statistics import COUNTS_SCHEMA, estimate, levelled

PAPERS = Path(__file__).resolve().parents[1] / "papers"
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


def of_sums(columns: dict[str, Floats], value: Value) -> Intervals:
    """Intervals of another function of sums over questions; (studies, questions) each. Studies that have none are left
    out: ten items may all be of one class."""
    parts = np.stack(list(columns.values()), axis=-1).astype(np.float64)
    names = [f"{n:05}" for n in range(parts.shape[1])]
    found = [estimates(list(columns), one, value, Draws(f"{study}", names), names) for study, one in enumerate(parts)]
    ends = [(one.low, one.high) for study in found for one in study.values() if one.low is not None]
    low, high = np.array(ends, dtype=np.float64).T
    return low, high


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


def difference(rng: Generator, shape: tuple[int, int]) -> tuple[float, Intervals]:
    """EvoWiki's gain over the closed book, which is right where the question is easy."""
    easy = rng.random(shape)
    columns = {"own": easy < 0.7, "closed": (easy < 0.5) & (rng.random(shape) < 0.8), "asked": np.ones(shape)}
    return 30.0, of_sums(columns, runpy.run_path(str(PAPERS / "evowiki/metrics.py"))["gain"])


def macro_f1(rng: Generator, shape: tuple[int, int]) -> tuple[float, Intervals]:
    """PRELUDE's: four items of ten are consistent, and 60% of these and 80% of the others are told."""
    value = runpy.run_path(str(PAPERS / "prelude/metrics.py"))["f1"]
    consistent = rng.random(shape) < 0.4
    right = rng.random(shape) < np.where(consistent, 0.6, 0.8)

    def parts(consistent: Any, right: Any, count: Any) -> dict[str, Any]:
        told = {"0 asked": count, "0 right": right}
        for name, of_it in (("consistent", consistent), ("contradict", ~consistent)):
            told |= {f"0 {name} items": of_it, f"0 {name} said": of_it == right, f"0 {name} right": of_it & right}
        return told

    kinds = [(True, True, 0.24), (True, False, 0.16), (False, True, 0.48), (False, False, 0.12)]
    whole: dict[str, float] = {}
    for one, other, weight in kinds:
        for name, told in parts(np.bool_(one), np.bool_(other), 1).items():
            whole[name] = whole.get(name, 0) + weight * told
    truth = value({name: np.array([total]) for name, total in whole.items()})["macro_f1"][0]
    columns = parts(consistent, right, np.ones(shape))
    return float(truth), of_sums(columns, lambda sums: {"macro_f1": value(sums)["macro_f1"]})


def correlation(rng: Generator, shape: tuple[int, int]) -> tuple[float, Intervals]:
    """EvoWiki's between popularity and right answers: five groups of one size, right in 30% to 70%."""
    found = runpy.run_path(str(PAPERS / "evowiki/metrics.py"))
    names, chances, large = found["POPULARITY"], np.linspace(0.3, 0.7, 5), 1e9
    group = rng.integers(5, size=shape)
    right = rng.random(shape) < chances[group]
    columns = {name: (group == place).astype(float) for place, name in enumerate(names)}
    columns |= {f"{name}_right": (group == place) & right for place, name in enumerate(names)}
    whole = {name: np.array([large]) for name in names}
    whole |= {f"{name}_right": np.array([large * chance]) for name, chance in zip(names, chances, strict=True)}
    return float(found["correlation"](whole)["popularity_correlation"][0]), of_sums(columns, found["correlation"])


def of_families(rng: Generator, shape: tuple[int, int]) -> tuple[float, Intervals]:
    """ImprintBench's Avg.: the mean over five families of very unlike sizes, whose weights are taken as given."""
    family, chances = rng.choice(5, shape, p=FAMILIES), np.linspace(0.3, 0.9, 5)
    # Half of a family's questions are eight trials of one chance, which are right or wrong together.
    right = np.where(rng.random(shape) < 0.5, rng.random(shape) < chances[family], rng.binomial(8, chances[family]) / 8)
    sizes = np.stack([(family == one).sum(axis=1) for one in range(5)], axis=1)
    weight = 1 / np.take_along_axis(sizes, family, axis=1)
    return 100 * chances.mean(), of_counts(weight * right, weight, family)


def tokens(rng: Generator, shape: tuple[int, int]) -> tuple[float, Intervals]:
    """ImprintBench's mean tokens of an answer, log-normal by question, some answers longer than others by as much; one
    in ten predictions failed."""
    answers = rng.binomial(8, 0.9, shape)
    spent = rng.lognormal(5, 0.6, shape) * rng.lognormal(0, 0.6, (8, *shape))
    generated = np.where(np.arange(8)[:, None, None] < answers, spent, 0).sum(axis=0)
    columns = {"answers": answers, "context": answers, "generated": generated}
    mean_tokens = runpy.run_path(str(PAPERS / "imprintbench/metrics.py"))["mean_tokens"]
    value: Value = lambda sums: {"generation_tokens": mean_tokens(sums)["generation_tokens"]}  # noqa: E731
    return float(np.exp(5 + 0.6**2)), of_sums(columns, value)


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
    "gain over a second cell": difference,
    "macro F1": macro_f1,
    "rank correlation": correlation,
    "mean over families": of_families,
    "mean tokens": tokens,
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
