"""How often findings of the papers are called *holds*, true ones and false ones: `python benchmarks/findings.py`.

True: what the paper prints is the chance of a right answer in each of its runs. False by nothing at all: the same,
moved as little as it takes to leave the nearest case of a check satisfied by nothing; of a finding with several checks
the one counts that is called so most often. Each question is asked once; half of those of a dataset's subset are as
hard for all runs, and a subset of superseded answers is a third of the questions. All of a check's sides are sums of
scores, as its query shows. False ones are expected in at most 5% of studies. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from upkeep.grading.resampling import HALVES, LEVEL, RESAMPLES, Draws, Floats
from upkeep.report.claims import Check, Claim, printed, read_claims
from upkeep.report.deciding import rejected, weaker
from upkeep.report.view import View

PAPERS = Path(__file__).resolve().parents[1] / "papers"
FINDINGS = {
    "evolveqa": ["evolveqa-c4", "evolveqa-c16", "evolveqa-c18"],
    "oaks": ["oaks-c6", "oaks-c8", "oaks-c9", "oaks-c16"],
    "imprintbench": ["imprint-c2", "imprint-c15"],
    "prelude": ["prelude-c10"],
    "evowiki": ["evowiki-c3"],
}
GROUP = 50
"""Studies that share a dataset's draws of questions."""
ALIKE = 0.5
PART = "_superseding"
WHOLE = 3
"""How many times as many questions as such a part has are all."""
RUN = ("model", "method", "supervision", "setting", "dataset", "metric")


class Sides:
    """A check whose sides are sums of scores.

    Args:
        where: whose it is, for messages.

    Raises:
        ValueError: they are not.
    """

    def __init__(self, check: Check, where: str, numbers: pl.DataFrame) -> None:
        with View(numbers) as view:
            other = 100 * np.random.default_rng(0).random(len(numbers))
            times = np.column_stack([view.values, view.values[:, None] + np.eye(len(numbers)), other])
            first, *moved, drawn = (np.array([*found.values()]) for found in view.sides_of(check.query, where, times))
        weights = np.stack(moved, axis=-1) - first[..., None]
        weights[abs(weights) < 1e-9] = 0
        used = weights.any(axis=(0, 1))
        self.check, self.numbers, self.values = check, numbers.filter(pl.Series(used)), view.values[used]
        self._weights = weights[..., used]
        """(cases, 2, rows)."""
        self._rest = first - self._weights @ self.values
        if not np.allclose(np.stack(self._both(other[used]), axis=-1), drawn):
            raise ValueError(f"{where}: a side that is no sum of scores")

    def margins(self, values: Floats) -> Floats:
        """By how much each case is satisfied: (cases, ...) of values (rows, ...)."""
        return self._margin(*self._both(values))

    def false(self) -> Floats:
        """The values, moved as little as makes the check false by nothing."""
        margins = self.margins(self.values)
        case = margins.argmax() if self.check.quantifier == "some" else margins.argmin()
        away = self._weights[case, 0] - self._weights[case, 1]
        apart = np.subtract(*self._both(self.values))[case]
        up = np.sign(apart) if self.check.within is not None else -1 if self.check.op.startswith(">") else 1
        return np.asarray(self.values + up * margins[case] * away / (away @ away))

    def certain(self, resamples: Floats) -> NDArray[np.bool_]:
        """In which studies the check is certain: (studies,) of values (rows, RESAMPLES, studies)."""
        one, other = self._both(resamples)
        told = np.array(
            [self._satisfied(self._margin(one[:, a], other[:, b])).sum(axis=1) for a, b in product(HALVES, repeat=2)]
        )
        cases, studies = told.shape[1:]
        wanted = self.check.wanted(cases)
        against = [[RESAMPLES - weaker(told[:, case, n].tolist()) for case in range(cases)] for n in range(studies)]
        return np.array([rejected(counts, wanted, RESAMPLES, LEVEL) for counts in against])

    def _both(self, values: Floats) -> tuple[Floats, Floats]:
        found = np.tensordot(self._weights, values, axes=1)
        found += self._rest.reshape(self._rest.shape + (1,) * (values.ndim - 1))
        return found[:, 0], found[:, 1]

    def _margin(self, one: Floats, other: Floats) -> Floats:
        apart = one - other if self.check.within is None else abs(one - other) - self.check.within
        return apart if self.check.op.startswith(">") else -apart

    def _satisfied(self, margins: Floats) -> NDArray[np.bool_]:
        return np.asarray(margins > 1e-9 if "=" not in self.check.op else margins > -1e-9)


def resampled(numbers: pl.DataFrame, values: Floats, rng: np.random.Generator, size: int, name: str) -> Floats:
    """(rows, RESAMPLES, GROUP): scores of studies in which these are the chances (percent) of a right answer.

    Args:
        size: questions of a dataset's subset.
    """
    places = {(*run, subset): n for n, (*run, subset) in enumerate(_keys(numbers))}
    asked: dict[str, tuple[NDArray[np.bool_], Floats]] = {}
    own: dict[tuple[str, ...], Floats] = {}
    found = np.empty((len(numbers), RESAMPLES, GROUP))
    for row, (*run, subset) in enumerate(_keys(numbers)):
        whole = subset.removesuffix(PART)
        of_parts = (*run, whole + PART) in places
        shape, key = (WHOLE * size if of_parts else size, GROUP), f"{name} {run[4]} {whole}"
        shared, hardness = asked.setdefault(key, (rng.random(shape) < ALIKE, rng.random(shape)))
        luck = own.setdefault((*run, whole), np.where(shared, hardness, rng.random(shape)))
        chance, total = np.full(shape, values[row]), np.ones(shape)
        if of_parts:
            part = values[places[(*run, whole + PART)]]
            chance[:size], chance[size:] = part, (WHOLE * values[places[(*run, whole)]] - part) / (WHOLE - 1)
            total[size:] = subset == whole
        names = [f"{n:05}" for n in range(shape[0])]
        found[row] = 100 * Draws(key, names).ratios(names, (luck < chance / 100) * total, total)
    return found


def _keys(numbers: pl.DataFrame) -> list[tuple[str, ...]]:
    return [tuple(map(str, row)) for row in numbers.select(*RUN, "subset").iter_rows()]


def called(claim: Claim, folder: Path, size: int, studies: int, seed: int) -> list[float]:
    """Share of studies (percent) in which a finding is called *holds*: as published, and false by nothing."""
    sides = [Sides(check, claim.id, printed(folder, check.tables)) for check in claim.checks]
    together = pl.concat([one.numbers for one in sides]).unique(maintain_order=True)
    rows = {key: n for n, key in enumerate(_keys(together))}
    rows_of = [[rows[key] for key in _keys(one.numbers)] for one in sides]
    versions = [truth := together["value"].cast(pl.Float64).to_numpy()]
    for one, own in zip(sides, rows_of, strict=True):
        versions.append(truth.copy())
        versions[-1][own] = one.false()
    shares = []
    for version, values in enumerate(versions):
        held, rng = 0, np.random.default_rng([size, seed, version])
        for group in range(-(-studies // GROUP)):
            drawn = resampled(together, values, rng, size, f"{seed} {claim.id} {version} {group}")
            held += np.all([one.certain(drawn[own]) for one, own in zip(sides, rows_of, strict=True)], axis=0).sum()
        shares.append(100 * held / (GROUP * -(-studies // GROUP)))
    return [shares[0], max(shares[1:])]


def main(asked: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=200)
    parser.add_argument("--questions", type=int, nargs="+", default=[10, 20, 60, 600])
    parser.add_argument("--findings", nargs="+", default=[name for names in FINDINGS.values() for name in names])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(asked)
    print("| finding | questions | studies | true: called *holds*, % | false by nothing: called *holds*, % |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for paper, names in FINDINGS.items():
        folder = PAPERS / paper
        for claim in read_claims(folder):
            for size in options.questions if claim.id in names and claim.id in options.findings else ():
                true, false = called(claim, folder, size, options.studies, options.seed)
                studies = GROUP * -(-options.studies // GROUP)
                print(f"| {claim.id} | {size} | {studies} | {true:.1f} | {false:.1f} |", flush=True)


if __name__ == "__main__":
    main()
