"""How often a false finding is called *holds*: `python benchmarks/verdicts.py [--studies 1000]`.

Each study asks cells questions whose chances of a right answer are known, and judges two findings that are false by
nothing at all: that a value is above what it is, and that it is below. Each is to be called certain in at most 5% of
studies. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np

from upkeep.grading.resampling import HALVES, LEVEL, RESAMPLES, Draws, Floats
from upkeep.report.deciding import rejected, weaker

Generator = np.random.Generator
Shape = tuple[int, int]
"""(questions, studies)."""
Cells = list[tuple[Floats, Floats]]
"""For each cell hits and totals, (questions, studies) each."""
GROUP = 100
"""Studies that share a dataset's draws of questions."""


def rate(rng: Generator, shape: Shape, chance: float) -> tuple[Cells, float]:
    """Of one method; each question is asked once."""
    return [((rng.random(shape) < chance) * 1.0, np.ones(shape))], chance


def clustered(rng: Generator, shape: Shape, easy: float, hard: float) -> tuple[Cells, float]:
    """The same, of questions that are asked at 5 to 60 intervals and are easy or hard at all of them."""
    totals = rng.integers(5, 61, shape)
    hits = rng.binomial(totals, rng.beta(easy, hard, shape))
    return [(hits * 1.0, totals * 1.0)], easy / (easy + hard)


def two(rng: Generator, shape: Shape, one: float, other: float, alike: float = 0.5) -> tuple[Cells, float]:
    """Of two methods the difference; this share of the questions is as hard for both."""
    shared, hardness = rng.random(shape) < alike, rng.random(shape)
    right = [np.where(shared, hardness, rng.random(shape)) < chance for chance in (one, other)]
    return [(answers * 1.0, np.ones(shape)) for answers in right], one - other


KINDS: dict[str, tuple[Callable[[Generator, Shape], tuple[Cells, float]], bool]] = {
    # with whether both cells are asked the same questions
    "rate of 50%": (lambda rng, shape: rate(rng, shape, 0.5), True),
    "rate of 90%": (lambda rng, shape: rate(rng, shape, 0.9), True),
    "rate of 95%": (lambda rng, shape: rate(rng, shape, 0.95), True),
    "pooled rate of 60%, clustered": (lambda rng, shape: clustered(rng, shape, 3, 2), True),
    "pooled rate of 90%, clustered": (lambda rng, shape: clustered(rng, shape, 1.8, 0.2), True),
    "two methods, 60% each": (lambda rng, shape: two(rng, shape, 0.6, 0.6), True),
    "two methods, 90% and 60%": (lambda rng, shape: two(rng, shape, 0.9, 0.6), True),
    "two datasets, 60% each": (lambda rng, shape: two(rng, shape, 0.6, 0.6, alike=0), False),
    "two datasets, 95% and 50%": (lambda rng, shape: two(rng, shape, 0.95, 0.5, alike=0), False),
    "two methods, 90% and 89%, as hard for both": (lambda rng, shape: two(rng, shape, 0.9, 0.89, alike=1), True),
}


def called(cells: Cells, truth: float, name: str, *, same: bool) -> tuple[int, int]:
    """Of a group of studies, those that call certain that the value is above the true one, and below."""
    names = [f"{n:05}" for n in range(len(cells[0][0]))]
    first, *others = (
        Draws(name if same else f"{name}.{number}", names).ratios(names, hits, totals)
        for number, (hits, totals) in enumerate(cells)
    )
    other = sum(others, np.full_like(first, truth))
    found = [0, 0]
    for above in (True, False):
        told = [
            (first[one] > second if above else first[one] < second).sum(axis=0)
            for one in HALVES
            for second in (other[half] + (1e-9 if above else -1e-9) for half in HALVES)
        ]
        for study in zip(*told, strict=True):
            found[not above] += rejected([RESAMPLES - weaker([int(n) for n in study])], 1, RESAMPLES, LEVEL)
    return found[0], found[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=1000)
    parser.add_argument("--questions", type=int, nargs="+", default=[10, 20, 30, 60])
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    groups = -(-asked.studies // GROUP)
    print("| finding | questions | studies | called above, % | called below, % |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for number, (kind, (draw, same)) in enumerate(KINDS.items()):
        for questions in asked.questions:
            rng, found = np.random.default_rng([number, questions, asked.seed]), np.zeros(2)
            for group in range(groups):
                cells, truth = draw(rng, (questions, GROUP))
                found += called(cells, truth, f"{asked.seed} {kind} {group}", same=same)
            studies = groups * GROUP
            above, below = 100 * found / studies
            print(f"| {kind} | {questions} | {studies:,} | {above:.1f} | {below:.1f} |", flush=True)


if __name__ == "__main__":
    main()
