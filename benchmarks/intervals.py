"""How often an interval holds the value that it is of: `python benchmarks/intervals.py [--studies 1000]`.

Each study draws questions from a population whose value is known, answers them, and works out the score as the suite
does. Of 95% intervals 93 to 97% are to hold the value. Prints a Markdown table; above and below say on which side of an
interval the value lay otherwise.
"""

from __future__ import annotations

import argparse
import runpy
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import exp, sqrt
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from upkeep.grading.resampling import FEWEST, FEWEST_MEASURED, Draws, Estimate, Floats, Value, estimates
from upkeep.grading.statistics import COUNTS_SCHEMA, estimate, levelled

PAPERS = Path(__file__).resolve().parents[1] / "papers"
EVOLVEQA, EVOWIKI, IMPRINTBENCH, PRELUDE = (
    runpy.run_path(str(PAPERS / paper / "metrics.py")) for paper in ("evolveqa", "evowiki", "imprintbench", "prelude")
)
Generator = np.random.Generator
Columns = dict[str, NDArray[Any]]
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


# ---------------------------------------------------------------- scores that are no ratios of counts


@dataclass(frozen=True, slots=True)
class Cell:
    """What a metric sums up of one cell."""

    columns: Columns
    """(questions,) each."""
    unseen: list[Columns]
    """What a question might add that was not asked (`upkeep.grading.measuring`)."""
    value: Value
    fewest: int
    """Questions that it takes to decide anything."""
    ends: tuple[float, float] | None = None
    """Of a mean of what was measured."""

    def estimate(self, draws: Draws, names: list[str], *, seen_alone: bool = False) -> Estimate | None:
        """The score; None where it is not defined: ten items may all be of one class."""
        parts, *more = (np.stack(list(one.values()), axis=-1).astype(float) for one in (self.columns, *self.unseen))
        unseen = 0 * parts if seen_alone else np.concatenate(more)
        given = list(self.columns), parts, self.value, draws, names, unseen
        (found,) = estimates(*given, ends=self.ends).values() or (None,)
        return found


Study = tuple[list[Cell], float]
"""A cell, or two that were asked the same, and what is true of the one, or of how far it is ahead of the other."""
Kind = Callable[[Generator, int], Study]


def answered(columns: Callable[..., Columns], value: Value, *right: Floats) -> Cell:
    """Of a score that goes by answers: `columns` of which are right, in the cell and in the one beside it."""
    all_or_none = [np.full(len(right[0]), fill) for fill in (True, False)]
    ways: Iterable[tuple[Any, ...]] = ((one,) for one in all_or_none)
    if len(right) == 2:
        ways = ((one, other) for one in all_or_none for other in all_or_none)
    return Cell(columns(*right), [columns(*right), *(columns(*way) for way in ways)], value, FEWEST)


def measured(columns: Columns, value: Value, ends: tuple[float, float] | None = None) -> Cell:
    """Of a score that goes by what was measured; a mean of it lies between `ends`."""
    return Cell(columns, [{name: 2 * one for name, one in columns.items()}], value, FEWEST_MEASURED, ends)


def macro_f1(
    rng: Generator,
    questions: int,
    share: float = 0.4,
    told: tuple[float, float] = (0.6, 0.8),
    other: tuple[float, float] | None = None,
) -> Study:
    """PRELUDE's: this share of the items is consistent, and so many of these and of the others are told, and so many by
    another method."""
    consistent, found, truths = rng.random(questions) < share, [], [0.0]
    value: Value = lambda sums: {"macro_f1": PRELUDE["f1"](sums)["macro_f1"]}  # noqa: E731
    kinds = np.array([True, True, False, False]), np.array([True, False, True, False])
    for one, rest in filter(None, (told, other)):
        right = rng.random(questions) < np.where(consistent, one, rest)
        weights = [share * one, share * (1 - one), (1 - share) * rest, (1 - share) * (1 - rest)]
        whole = {name: np.array([np.dot(part, weights)]) for name, part in _confusion(*kinds).items()}
        truths.append(float(value(whole)["macro_f1"][0]))
        found.append(answered(lambda answers: _confusion(consistent, answers), value, right))
    return found, truths[1] - sum(truths[2:])


def _confusion(consistent: NDArray[Any], right: NDArray[Any]) -> Columns:
    told = {"0 asked": np.ones(len(right)), "0 right": right}
    for name, of_it in (("consistent", consistent), ("contradict", ~consistent)):
        told |= {f"0 {name} items": of_it, f"0 {name} said": of_it == right, f"0 {name} right": of_it & right}
    return told


def correlation(rng: Generator, questions: int, ends: tuple[float, float] = (0.3, 0.7)) -> Study:
    """EvoWiki's between popularity and right answers: five groups of one size, right in so many of the first, and of
    the last."""
    names, chances, large = EVOWIKI["POPULARITY"], np.linspace(*ends, 5), 1e9
    group = rng.integers(5, size=questions)

    def columns(right: NDArray[Any]) -> Columns:
        found = {name: group == place for place, name in enumerate(names)}
        return found | {f"{name}_right": (group == place) & right for place, name in enumerate(names)}

    whole = {name: np.array([large]) for name in names}
    whole |= {f"{name}_right": np.array([large * chance]) for name, chance in zip(names, chances, strict=True)}
    value = EVOWIKI["correlation"]
    right = rng.random(questions) < chances[group]
    return [answered(columns, value, right)], float(value(whole)["popularity_correlation"][0])


def gain(rng: Generator, questions: int) -> Study:
    """EvoWiki's over the closed book, which is right where the question is easy."""
    easy = rng.random(questions)
    own, closed = easy < 0.7, (easy < 0.5) & (rng.random(questions) < 0.8)
    columns = lambda own, closed: {"own": own, "closed": closed, "asked": np.ones(questions)}  # noqa: E731
    return [answered(columns, EVOWIKI["gain"], own, closed)], 30.0


def tokens(rng: Generator, questions: int, spread: float = 0.6, cells: int = 1, more: float = 1.0) -> Study:
    """ImprintBench's mean tokens of an answer, log-normal by question, some answers longer than others; one in ten
    predictions failed. Of two cells the first spends so many times as much on the same questions."""
    value: Value = lambda sums: {"tokens": IMPRINTBENCH["mean_tokens"](sums)["generation_tokens"]}  # noqa: E731
    long, found, mean = rng.lognormal(5, spread, questions), [], exp(5 + spread**2 / 2 + 0.6**2 / 2)
    for cell in range(cells):
        answers = rng.binomial(8, 0.9, questions)
        spent = (1 if cell else more) * long * rng.lognormal(0, 0.6, (8, questions))
        generated = np.where(np.arange(8)[:, None] < answers, spent, 0).sum(axis=0)
        found.append(measured({"answers": answers, "context": answers, "generated": generated}, value, (0, np.inf)))
    return found, mean if cells == 1 else (more - 1) * mean


def compression(rng: Generator, questions: int) -> Study:
    """ImprintBench's ratio: corpora of three sizes over contexts that are log-normal."""
    columns = {"corpus": 1e5 * rng.integers(1, 4, questions), "shown": rng.lognormal(6, 0.7, questions)}
    return [measured(columns, IMPRINTBENCH["compression"], (0, np.inf))], 2e5 / exp(6 + 0.7**2 / 2)


def shift(rng: Generator, questions: int) -> Study:
    """EvoWiki's of probabilities, which most tokens have little of before and after training."""
    moved = rng.beta(0.5, 2, questions) - rng.beta(0.5, 3, questions)
    columns = {"shift": moved, "measured": np.ones(questions)}
    return [measured(columns, EVOWIKI["shift"], (-100, 100))], 100 * (0.5 / 2.5 - 0.5 / 3.5)


def log_ratio(rng: Generator, questions: int) -> Study:
    """EvoWiki's of probabilities, with long tails on both sides and a longer one above."""
    columns = {
        "log_ratio": rng.standard_t(5, questions) + rng.exponential(1, questions),
        "measured": np.ones(questions),
    }
    return [measured(columns, EVOWIKI["log_ratio"], (-np.inf, np.inf))], 1.0


def area(rng: Generator, questions: int) -> Study:
    """evolveQA's under the curve: documents from before the cut-off score a deviation higher."""
    before, after = EVOLVEQA["BEFORE"], EVOLVEQA["AFTER"]
    is_before = rng.random(questions) < 0.5
    place = (rng.normal(size=questions) + is_before).argsort().argsort()
    columns = {
        f"{name} {at + 1}": (place == at) & mask
        for name, mask in ((before, is_before), (after, ~is_before))
        for at in range(questions)
    }
    return [measured(columns, EVOLVEQA["area"])], NormalDist().cdf(1 / sqrt(2))


# ---------------------------------------------------------------- studies


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
    "probability shift": lambda rng, shape: of_sums(rng, shape, shift),
    "log ratio of probabilities": lambda rng, shape: of_sums(rng, shape, log_ratio),
    "compression ratio": lambda rng, shape: of_sums(rng, shape, compression),
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
