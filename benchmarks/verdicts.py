"""How often a false finding is called *holds*: `python benchmarks/verdicts.py [--studies 1000]`.

Each study asks cells questions whose chances of a right answer are known, and judges two findings that are false by
nothing at all: that a value is above what it is, and that it is below. Each is to be called certain in at most 5% of
studies, of every kind of score and however many questions there are (of what is measured, from FEWEST_MEASURED on: with
fewer none is). Of scores that are no ratios of counts the table says how often it would be without the question that
was not asked; that is expected to be more than 5% of many. The last findings say that two methods are nearer than they
are, that one of two equal gains is the larger one, and that the largest of twelve is larger or smaller than it is. They
are expected in at most 5%, too; *seen alone* is there what it would be if a distance stood on one side of a check. Of
few questions that are as hard for all, and of the largest of many, that is expected to be more than 5%.

With `--clear` findings are true by a clear size, and the table says how often each is called *holds*: the question that
was not asked is expected to cost less than ten points of a hundred at 60 questions. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
import polars as pl
from intervals import Kind, area, compression, correlation, gain, log_ratio, macro_f1, shift, tokens

from upkeep.grading.resampling import HALVES, LEVEL, RESAMPLES, Draws, Floats
from upkeep.grading.statistics import levelled
from upkeep.report.deciding import rejected, weaker

Generator = np.random.Generator
Shape = tuple[int, int]
"""(questions, studies)."""
Cells = list[tuple[Floats, Floats]]
"""For each cell hits and totals, (questions, studies) each."""
GROUP = 100
"""Studies that share a dataset's draws of questions."""
MODELS = 12


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


def of_families(rng: Generator, shape: Shape) -> tuple[Cells, float]:
    """ImprintBench's Avg. of three families of unlike sizes, as `intervals.of_families`."""
    family, chances = rng.choice(3, shape, p=(0.5, 0.3, 0.2)), np.array([0.3, 0.6, 0.9])
    right = np.where(rng.random(shape) < 0.5, rng.random(shape) < chances[family], rng.binomial(8, chances[family]) / 8)
    sizes = np.stack([(family == one).sum(axis=0) for one in range(3)])
    weight = 1 / np.take_along_axis(sizes, family, axis=0)
    counts = pl.DataFrame(
        {
            "subset": np.tile(np.arange(shape[1]), shape[0]).astype(str),
            "metric": "mean",
            "hits": (weight * right).ravel(),
            "total": weight.ravel(),
            "stratum": family.ravel(),
        }
    )
    return [(levelled(counts, "stratum")["hits"].to_numpy().reshape(shape), weight)], float(chances.mean())


def change_rate(rng: Generator, shape: Shape) -> tuple[Cells, float]:
    """OAKS', as `intervals.change_rate`."""
    changes = rng.integers(1, 8, shape)
    stays, restless = 60 - changes, rng.beta(2, 4, shape)
    moved, moved_still = rng.binomial(changes, 0.3 + 0.6 * restless), rng.binomial(stays, restless)
    weights = [0.5 / total.sum(axis=0) for total in (changes, stays)]
    totals = weights[0] * changes + weights[1] * stays
    return [(weights[0] * moved + weights[1] * moved_still, totals)], (0.5 + 1 / 3) / 2


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
    "mean over families": (of_families, True),
    "change rate": (change_rate, True),
}
OTHERS: dict[str, Kind] = {
    "macro F1 of 70%": macro_f1,
    "macro F1 of 89%": lambda rng, questions: macro_f1(rng, questions, told=(0.9, 0.9)),
    "macro F1, one class rare": lambda rng, questions: macro_f1(rng, questions, 0.2, (0.5, 0.9)),
    "macro F1, two methods": lambda rng, questions: macro_f1(rng, questions, other=(0.6, 0.8)),
    "rank correlation of 0.28": correlation,
    "rank correlation of 0.57": lambda rng, questions: correlation(rng, questions, (0.1, 0.9)),
    "gain over a second cell": gain,
    "probability shift": shift,
    "log ratio of probabilities": log_ratio,
    "area under the curve": area,
    "compression ratio": compression,
    "mean tokens": tokens,
    "mean tokens, long tail": lambda rng, questions: tokens(rng, questions, 1.0),
    "mean tokens, two methods": lambda rng, questions: tokens(rng, questions, cells=2),
}
NEAR = {
    # how far two methods are apart, with the share of the questions that are as hard for both
    "two methods, 5 points apart, said to be nearer, as hard for both": (0.75, 0.70, 1.0),
    "two methods, 20 points apart, said to be nearer": (0.70, 0.50, 0.5),
}
AHEAD: dict[str, Callable[[Generator, Shape], Cells]] = {
    # of four cells the first is as far ahead of the second as the third is of the fourth
    "two gains of 5 points, as hard for all": lambda rng, shape: gains(rng, shape, (0.75, 0.70, 0.70, 0.65), 1.0),
    "two gains of 20 points": lambda rng, shape: gains(rng, shape, (0.80, 0.60, 0.60, 0.40), 0.5),
    "gains of 5 points on two types, as hard for all": lambda rng, shape: of_types(rng, shape, (0.5, 0.45), 1.0),
    "gains of 15 points on two types": lambda rng, shape: of_types(rng, shape, (0.5, 0.35), 0.5),
    "two falls on a third of the questions, as hard for all": lambda rng, shape: falls(rng, shape, 1.0),
    "two falls on a third of the questions": lambda rng, shape: falls(rng, shape, 0.5),
}
LARGEST = {
    # of twelve models the largest distance and the smallest, and whether a model's two cells are asked the same
    "largest of 12 losses, of 5 to 27 points, two datasets": (0.27, 0.05, False),
    "largest of 12 losses, of 27 points each, two datasets": (0.27, 0.27, False),
    "largest of 12 gains, of 0 to 11 points, the same questions": (0.11, 0.0, True),
}
CLEAR: dict[str, tuple[Kind, float]] = {
    # with what the finding says that the value, or the distance of two, is above
    "macro F1, two methods, 20 points apart": (lambda rng, n: macro_f1(rng, n, told=(0.8, 0.8), other=(0.6, 0.6)), 0),
    "gain over a second cell of 30 points, above 10": (gain, 10),
    "rank correlation of 0.57, above 0.2": (lambda rng, n: correlation(rng, n, (0.1, 0.9)), 0.2),
    "area under the curve of 0.76, above 0.56": (area, 0.56),
    "mean tokens, two methods, half as many again": (lambda rng, n: tokens(rng, n, cells=2, more=1.5), 0),
    "mean tokens of 213, above 140": (tokens, 140),
}


def gains(rng: Generator, shape: Shape, chances: Sequence[float], alike: float) -> Cells:
    """Of cells that are asked the same; this share of the questions is as hard for all."""
    shared, hardness = rng.random(shape) < alike, rng.random(shape)
    right = [np.where(shared, hardness, rng.random(shape)) < chance for chance in chances]
    return [(answers * 1.0, np.ones(shape)) for answers in right]


def of_types(rng: Generator, shape: Shape, chances: Sequence[float], alike: float) -> Cells:
    """Of two methods on so many questions of one type, and on as many of another."""
    cells, nothing = [gains(rng, shape, chances, alike) for _ in range(2)], np.zeros(shape)
    sides = [lambda numbers: np.concatenate([numbers, nothing]), lambda numbers: np.concatenate([nothing, numbers])]
    return [(side(hits), side(totals)) for side, both in zip(sides, cells, strict=True) for hits, totals in both]


def falls(rng: Generator, shape: Shape, alike: float) -> Cells:
    """Of two models the answers to all questions, and to that third of them that is harder; `shape` has the third."""
    size, studies = 3 * shape[0], shape[1]
    part = np.repeat(np.arange(size)[:, None] < shape[0], studies, axis=1)
    shared, hardness = rng.random(part.shape) < alike, rng.random(part.shape)
    found: Cells = []
    for chance in (0.7, 0.6):
        right = np.where(shared, hardness, rng.random(part.shape)) < np.where(part, chance - 0.2, chance)
        found += [(right * 1.0, np.ones(part.shape)), (right * part * 1.0, part * 1.0)]
    return found


def called(cells: Cells, truth: float, name: str, *, same: bool) -> list[int]:
    """Of a group of studies, those that call certain that the value is above the true one, and below."""
    first, *others = (values(cell, name if same else f"{name}.{number}") for number, cell in enumerate(cells))
    return both([(first, sum(others, np.full_like(first, truth)))])


def called_ahead(cells: Cells, name: str) -> list[int]:
    """Those that call certain that the first of two distances is the larger one, and that the second is; then the same
    if each were one side."""
    one, less, other, other_less = (values(cell, name) for cell in cells)
    return both([(one + other_less, other + less)]) + both([(one - less, other - other_less)])


def called_largest(rng: Generator, shape: Shape, of: tuple[float, float, bool], name: str) -> list[int]:
    """Those that call certain that the largest distance is above the true one, and below; then the same if the largest
    were one side."""
    largest, smallest, same = of
    ahead, behind = [0.6] * MODELS, [*(0.6 - np.linspace(smallest, largest, MODELS))]
    together = gains(rng, shape, ahead + behind, 0.5)
    first, second = together[:MODELS], together[MODELS:] if same else gains(rng, shape, behind, 0.5)
    names = name, name if same else f"{name}.second"
    models = [(values(one, names[0]), values(less, names[1])) for one, less in zip(first, second, strict=True)]
    alone = np.max([one - less for one, less in models], axis=0)
    return both([(one, less + largest) for one, less in models]) + both([(alone, np.full_like(alone, largest))])


def values(cell: tuple[Floats, Floats], name: str) -> Floats:
    """(RESAMPLES, studies): a cell's scores over the questions of a dataset."""
    names = [f"{n:05}" for n in range(len(cell[0]))]
    return Draws(name, names).ratios(names, *cell)


def both(cases: Sequence[tuple[Floats, Floats]]) -> list[int]:
    """Of the studies in two sides, those in which it is certain that some case has the left one above, and that all
    have it below."""
    studies = range(cases[0][0].shape[1])
    return [
        sum(certain([(one[:, n], other[:, n]) for one, other in cases], below=below) for n in studies)
        for below in (False, True)
    ]


def called_near(cells: Cells, apart: float, name: str) -> tuple[int, int]:
    """Of a group of studies, those that call certain that two cells are nearer than they are; and if the distance were
    one side."""
    one, other = (values(cell, name) for cell in cells)
    near, total = lambda a, b: (np.abs(one[a] - other[b]) < apart - 1e-9).sum(axis=0), np.zeros(2, dtype=int)
    for place, halves in enumerate((product(HALVES, repeat=2), zip(HALVES, HALVES, strict=True))):
        told = np.stack([near(a, b) for a, b in halves])
        for study in told.T:
            total[place] += rejected([RESAMPLES - weaker(study.tolist())], 1, RESAMPLES, LEVEL)
    return int(total[0]), int(total[1])


def certain(cases: Sequence[tuple[Floats, Floats]], *, below: bool = False) -> bool:
    """Whether it is, on resamples, that some score is above the other one of its case, or that all are below."""
    sign = -1 if below else 1
    against = [
        RESAMPLES - weaker([int((sign * one[a] > sign * other[b] + 1e-9).sum()) for a in HALVES for b in HALVES])
        for one, other in cases
    ]
    return rejected(against, len(cases) if below else 1, RESAMPLES, LEVEL)


def of_study(kind: Kind, rng: Generator, questions: int, name: str, *, said: float | None = None) -> Sequence[bool]:
    """Whether it is called certain that a value is above the true one, or above what is said, and that it is below;
    then the same without the question that was not asked."""
    cells, truth = kind(rng, questions)
    names = [f"{n:05}" for n in range(questions)]
    draws, found = Draws(name, names), list[bool]()
    for seen_alone in (False, True):
        fewest = 0 if seen_alone else cells[0].fewest
        estimates = [cell.estimate(draws, names, seen_alone=seen_alone) for cell in cells]
        resamples = [estimate.resamples for estimate in estimates if estimate is not None]
        if questions < fewest or len(resamples) < len(cells):
            found += [False, False]
            continue
        one, *others = resamples
        other = sum(others, np.full_like(one, truth if said is None else said))
        found += [certain([(one, other)]), certain([(one, other)], below=True)]
    return found


def false_findings(studies: int, sizes: Sequence[int], seed: int) -> None:
    print(
        "| finding | questions | studies | called above, % | called below, % | above, seen alone | below, seen alone |"
    )
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for number, (kind, (draw, same)) in enumerate(KINDS.items()):
        for questions in sizes:
            rng, found = np.random.default_rng([number, questions, seed]), np.zeros(2)
            groups = -(-studies // GROUP)
            for group in range(groups):
                cells, truth = draw(rng, (questions, GROUP))
                found += called(cells, truth, f"{seed} {kind} {group}", same=same)
            above, below = 100 * found / (groups * GROUP)
            print(f"| {kind} | {questions} | {groups * GROUP:,} | {above:.1f} | {below:.1f} |  |  |", flush=True)
    for number, (name, other) in enumerate(OTHERS.items()):
        for questions in sizes:
            rng, total = np.random.default_rng([100 + number, questions, seed]), np.zeros(4)
            for study in range(studies):
                total += of_study(other, rng, questions, f"{seed} {name} {study}")
            shown = " | ".join(f"{share:.1f}" for share in 100 * total / studies)
            print(f"| {name} | {questions} | {studies:,} | {shown} |", flush=True)
    for number, (name, (one, other_one, alike)) in enumerate(NEAR.items()):
        for questions in sizes:
            rng, groups, sure = (
                np.random.default_rng([300 + number, questions, seed]),
                -(-studies // GROUP),
                np.zeros(2),
            )
            for group in range(groups):
                cells, apart = two(rng, (questions, GROUP), one, other_one, alike)
                sure += called_near(cells, apart, f"{seed} {name} {group}")
            near, alone = 100 * sure / (groups * GROUP)
            print(f"| {name} | {questions} | {groups * GROUP:,} | {near:.1f} |  | {alone:.1f} |  |", flush=True)
    for number, name in enumerate((*AHEAD, *LARGEST)):
        for questions in sizes:
            rng, groups, total = (
                np.random.default_rng([400 + number, questions, seed]),
                -(-studies // GROUP),
                np.zeros(4),
            )
            for group in range(groups):
                shape, label = (questions, GROUP), f"{seed} {name} {group}"
                if name in AHEAD:
                    total += called_ahead(AHEAD[name](rng, shape), label)
                else:
                    total += called_largest(rng, shape, LARGEST[name], label)
            shown = " | ".join(f"{share:.1f}" for share in 100 * total / (groups * GROUP))
            print(f"| {name} | {questions} | {groups * GROUP:,} | {shown} |", flush=True)


def true_findings(studies: int, sizes: Sequence[int], seed: int) -> None:
    print("| finding | questions | studies | called *holds*, % | seen alone, % |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for number, (name, (kind, said)) in enumerate(CLEAR.items()):
        for questions in sizes:
            rng, total = np.random.default_rng([200 + number, questions, seed]), np.zeros(4)
            for study in range(studies):
                total += of_study(kind, rng, questions, f"{seed} {name} {study}", said=said)
            held, _, alone, _ = 100 * total / studies
            print(f"| {name} | {questions} | {studies:,} | {held:.1f} | {alone:.1f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=1000)
    parser.add_argument("--questions", type=int, nargs="+", default=[10, 20, 30, 60])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--clear", action="store_true", help="findings that are true")
    asked = parser.parse_args()
    (true_findings if asked.clear else false_findings)(asked.studies, asked.questions, asked.seed)


if __name__ == "__main__":
    main()
