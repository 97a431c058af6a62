"""The papers' findings on our own scores: with uncertainty, and with what is not yet run (papers/FORMAT.md, "Claims").

A check sees the runs that its tables print: our scores whose model, method, dataset, subset, metric and settings are
those of a published row, and the supervision where that is printed (as `selecting` has it for tables). Of a figure,
of which the paper prints no numbers, these are the runs of the models that it draws. Runs besides (a model that the
paper does not have) have a verdict of their own. How a verdict comes about is in `deciding`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import polars as pl

from upkeep.grading.resampling import DRAWS, HALVES, RESAMPLES, Floats
from upkeep.grading.settings import option
from upkeep.report.claims import Case, Check, Claim, Needs, Verdict, printed, published, read_claims
from upkeep.report.deciding import decided, weaker
from upkeep.report.fields import JUDGE, as_judged
from upkeep.report.view import COLUMNS, View, same

KEY = ("model", "method", "dataset", "subset", "metric")
RUN = ("model", "method", "supervision", "setting", "dataset")
"""What tells one run from another in a published table."""
NAMED = ("metric", "dataset", "subset", "method")
"""Of what a query says which scores it is about."""
PEOPLE = "human"
"""The method of scores that people reached: they are the published ones."""
NO_MODELS = frozenset({"any", "open", "closed"})
Resamples = Callable[[str], Floats]
"""A cell -> its scores on resamples: (its rows in order, RESAMPLES)."""
Drawn = Mapping[str, Sequence[str]]
"""A figure -> the models that the paper draws in it, by their printed names; none where it draws any."""
EMPTY: Drawn = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Judged:
    """What our scores say of a claim."""

    release: Verdict
    """On the paper's own data: the only one that speaks of the paper."""
    rebuild: Verdict
    stand_in: Verdict
    """Untrained models included: it shows that the checks run."""
    others: Mapping[str, Verdict]
    """Of `release` and `rebuild`, what runs say that no table prints, where they say anything."""


@dataclass(frozen=True, slots=True)
class Finding:
    claim: Claim
    published: Verdict
    own: Judged


def findings(
    folder: Path, scores: pl.DataFrame, resamples: Resamples, by: str = "", drawn: Drawn = EMPTY
) -> list[Finding]:
    """Every claim of a paper's folder, on its published numbers and on our scores (arguments as of `judge`)."""
    claims = read_claims(folder)
    known, own = published(folder, claims), judge(folder, claims, scores, resamples, by, drawn)
    return [Finding(claim, known[claim.id], own[claim.id]) for claim in claims]


def judge(
    folder: Path,
    claims: Iterable[Claim],
    scores: pl.DataFrame,
    resamples: Resamples,
    by: str = "",
    drawn: Drawn = EMPTY,
) -> dict[str, Judged]:
    """Every claim of a paper on scores of our own, by claim id.

    Args:
        folder: the paper's.
        scores: `grading.score.SCORE_SCHEMA`.
        by: the model that judged the responses behind the published numbers; of our scores that a judge decides those
            count that it decided, on stand-ins those by the answer key's words. Where the tables of a check name
            judges, theirs count.
        drawn: of a figure without published numbers, whose runs its checks see.
    """
    scores = scores.with_columns(place=pl.int_range(pl.len()).over("cell"))
    trained = scores.filter("trained")
    release, rebuild = (
        _Source(folder, trained.filter(pl.col("provenance") == provenance), resamples, by, drawn)
        for provenance in ("release", "rebuild")
    )
    stand_in = _Source(None, scores.filter(pl.col("provenance") == "stand_in"), resamples, by)
    judged = {}
    for claim in claims:
        others = {"release": release.of_others(claim), "rebuild": rebuild.of_others(claim)}
        judged[claim.id] = Judged(
            release=release.verdict(claim),
            rebuild=rebuild.verdict(claim),
            stand_in=stand_in.verdict(claim),
            others={name: verdict for name, verdict in others.items() if verdict is not None},
        )
    return judged


def runs_of(folder: Path, scores: pl.DataFrame, tables: tuple[str, ...], by: str = "") -> pl.DataFrame:
    """Those of our scores that checks about some of a paper's tables see; arguments as of `judge`."""
    return _Source(folder, scores, lambda _: np.empty((0, RESAMPLES)), by).of(tables)[1].scores


@dataclass(frozen=True)
class _Ran:
    """Scores of ours, and what was run for them."""

    scores: pl.DataFrame

    @functools.cached_property
    def asked(self) -> set[tuple[str, str]]:
        """(dataset, method), of a method on a trained model either."""
        runs = self.scores.select("dataset", "method").unique().iter_rows()
        return {(dataset, part) for dataset, method in runs for part in method.split("+")}

    @functools.cached_property
    def settings(self) -> list[dict[str, str]]:
        return [_options(setting) for setting in self.scores["setting"].unique()]

    @functools.cached_property
    def models(self) -> set[str]:
        return {*self.scores["model"].unique()}


class _Source:
    """Scores of one provenance.

    Args:
        folder: the paper's whose printed runs count; None where all runs do.
    """

    def __init__(
        self, folder: Path | None, scores: pl.DataFrame, resamples: Resamples, by: str, drawn: Drawn = EMPTY
    ) -> None:
        self._folder, self._all, self._resamples, self._drawn_by = folder, scores, resamples, drawn
        self._judged = as_judged(scores, by)
        self._seen: dict[tuple[str, ...], tuple[pl.DataFrame, _Ran, _Ran]] = {}
        self._views: dict[object, View] = {}

    def verdict(self, claim: Claim) -> Verdict:
        found, missing, borrowed = [], [], False
        for check in claim.checks:
            numbers, mine, _ = self.of(check.tables)
            people = numbers.filter(pl.col("method") == PEOPLE, PEOPLE in _named(check))
            of = ("printed", self._folder and check.tables, people.is_empty())
            found.append(self._cases(claim, check, _with_people(mine.scores, people), of))
            if numbers.is_empty() or not found[-1]:
                missing += _lacking(claim.needs, mine, models=self._folder is not None, people=not people.is_empty())
            else:
                missing += _not_run(claim, check, numbers, mine.scores)
            borrowed |= not people.is_empty() and bool(found[-1])
        short = [
            check for check, cases in zip(claim.checks, found, strict=True) if _is_short(check, cases, self._folder)
        ]
        return _verdict(claim, found, list(dict.fromkeys(missing)), bool(short), borrowed)

    def of_others(self, claim: Claim) -> Verdict | None:
        """What runs say that are in none of the tables; None where a check has no case of them."""
        found, missing = [], []
        for check in claim.checks:
            _, _, rest = self.of(check.tables)
            found.append(self._cases(claim, check, rest.scores, ("others", check.tables)))
            if not found[-1]:
                return None
            missing += _lacking(claim.needs, rest, models=False, people=True)
        return _verdict(claim, found, list(dict.fromkeys(missing)), short=False, borrowed=False)

    def of(self, tables: tuple[str, ...]) -> tuple[pl.DataFrame, _Ran, _Ran]:
        """Published numbers, scores of ours of the runs that they print, and our others. Without numbers these are the
        models' that the figure draws; where it draws any, or without a paper, all of ours are the former."""
        if (asked := tables if self._folder else ()) not in self._seen:
            numbers = printed(self._folder, asked) if self._folder else self._all.clear()
            judges = numbers.select(option(JUDGE)).to_series().unique().to_list()
            scores = self._all if any(judges) else self._judged
            if numbers.is_empty():
                models = [model for table in asked for model in self._drawn_by.get(table, ())]
                is_of = pl.col("model").is_in(models) if models else pl.lit(value=True)
            else:
                known = _by_key(numbers)
                are_printed = [any(_is_printed(run, one) for one in known.get(key, ())) for key, run in _runs(scores)]
                is_of = pl.lit(pl.Series(are_printed, dtype=pl.Boolean))
            self._seen[asked] = numbers, _Ran(scores.filter(is_of)), _Ran(scores.filter(~is_of))
        return self._seen[asked]

    def _cases(self, claim: Claim, check: Check, scores: pl.DataFrame, of: object) -> dict[str, _Counted]:
        """The cases of a check, each with the resamples in which it is satisfied and in which it is not.

        Args:
            of: what scores these are: the same ones are made a view once.
        """
        if scores.is_empty():
            return {}
        if of not in self._views:
            self._views[of] = View(scores.select(COLUMNS))
        sides = self._views[of].sides(check.query, claim.id)
        if not sides:
            return {}
        used = _used(self._views[of], claim, check, scores)
        found = {name: _Counted(Case(name, *both, check.satisfied(*both), 0.0)) for name, both in sides.items()}
        with View(used.select(COLUMNS)) as view:
            drawn = list(view.sides_of(check.query, claim.id, self._drawn(used)))
        for halves in zip(*(drawn[half] for half in HALVES), strict=True):
            for taken, (one, other) in enumerate(product(halves, repeat=2)):
                for name in found.keys() & one.keys() & other.keys():
                    found[name].add(taken, check.satisfied(one[name][0], other[name][1]))
        return found

    def _drawn(self, scores: pl.DataFrame) -> Floats:
        """(rows, RESAMPLES); a number that no questions were drawn for is the same in each."""
        values = np.repeat(scores["value"].to_numpy()[:, None], RESAMPLES, axis=1)
        for (cell,), rows in scores.with_row_index("row").partition_by("cell", as_dict=True).items():
            if cell:
                values[rows["row"].to_numpy()] = self._resamples(str(cell))[rows["place"].to_numpy()]
        return values


@dataclass(slots=True)
class _Counted:
    """A case, and how many draws speak for and against it, each side taken for lower and for higher: with lhs and rhs
    both from the first of HALVES, lhs from the first and rhs from the second, the reverse, both from the second."""

    case: Case
    held: list[int] = field(default_factory=lambda: [0] * 4)
    not_held: list[int] = field(default_factory=lambda: [0] * 4)

    def add(self, taken: int, holds: bool) -> None:
        (self.held if holds else self.not_held)[taken] += 1


def _verdict(
    claim: Claim,
    found: list[dict[str, _Counted]],
    missing: list[str],
    short: bool,
    borrowed: bool,
) -> Verdict:
    cases = [
        [Case(c.name, c.lhs, c.rhs, c.holds, min(one.held) / DRAWS) for one in check.values() for c in (one.case,)]
        for check in found
    ]
    if not missing and not all(found):
        missing = ["scores that its queries ask for: no run of ours has them"]
    if not any(found):
        return Verdict("undecidable" if claim.undecidable else "not_run", cases, missing=missing)
    counts = [
        (
            [weaker(one.held) for one in each.values()],
            [weaker(one.not_held) for one in each.values()],
            check.wanted(len(each)),
        )
        for check, each in zip(claim.checks, found, strict=True)
        if each
    ]
    by_now = decided(counts, RESAMPLES)
    if claim.undecidable:
        return Verdict("undecidable", cases, by_now, missing, borrowed)
    if missing or short or not all(found):
        return Verdict("partial", cases, by_now, missing, borrowed)
    return Verdict(by_now, cases, borrowed=borrowed)


def _is_short(check: Check, cases: Mapping[str, _Counted], folder: Path | None) -> bool:
    """Whether a check speaks of more cases than there are; on stand-ins nothing says how many there should be."""
    return folder is not None and len(cases) < check.rows


# ---------------------------------------------------------------- which runs a check is about


_Run = tuple[str, dict[str, str]]
"""What tells runs of one key apart: supervision and settings."""


def _runs(scores: pl.DataFrame) -> Iterator[tuple[tuple[object, ...], _Run]]:
    """Of each row its key, and what tells its run from others of that key."""
    for *key, supervision, setting in scores.select(*KEY, "supervision", "setting").iter_rows():
        yield tuple(key), (supervision, _options(setting))


def _by_key(scores: pl.DataFrame) -> dict[tuple[object, ...], list[_Run]]:
    found: dict[tuple[object, ...], list[_Run]] = {}
    for key, run in _runs(scores):
        found.setdefault(key, []).append(run)
    return found


def _options(setting: Iterable[Mapping[str, str]]) -> dict[str, str]:
    return {pair["key"]: pair["value"] for pair in setting}


def _is_printed(own: _Run, printed: _Run) -> bool:
    """Whether a run of ours is a printed one: of the same settings, and of its supervision where one is printed."""
    return printed[0] in ("", own[0]) and printed[1] == own[1]


def _with_people(scores: pl.DataFrame, people: pl.DataFrame) -> pl.DataFrame:
    """Our scores with the published ones of people, who are not asked again; without any of ours, none."""
    if scores.is_empty() or people.is_empty():
        return scores
    borrowed = people.select(pl.col(name).cast(scores.schema[name]) for name in COLUMNS).with_columns(cell=pl.lit(""))
    return pl.concat([scores, borrowed], how="diagonal")


def _not_run(claim: Claim, check: Check, numbers: pl.DataFrame, scores: pl.DataFrame) -> list[str]:
    """The printed runs that a check rests on and we have none of, as `METHOD on DATASET (SETTINGS): MODELS`."""
    ours = _by_key(scores.with_columns(subset=pl.lit(""), metric=pl.lit("")))
    lacking: dict[str, list[str]] = {}
    for model, method, supervision, setting, dataset in _rests_on(claim, check, numbers):
        run, own = (supervision, _options(setting)), ours.get((model, method, dataset, "", ""), ())
        if method == PEOPLE or any(_is_printed(one, run) for one in own):
            continue
        told = ", ".join(f"{pair['key']}={pair['value']}" for pair in setting)
        name = f"{method or 'scores'} on {dataset}" + (f" ({told})" if told else "")
        lacking.setdefault(name, []).append(model)
    return [f"{name}: {', '.join(filter(None, models))}".removesuffix(": ") for name, models in lacking.items()]


def _rests_on(claim: Claim, check: Check, numbers: pl.DataFrame) -> Iterator[tuple[Any, ...]]:
    """The published runs whose numbers a check uses: with other numbers in their place, or without them, it says
    something else."""
    runs = numbers.select(RUN).unique(maintain_order=True)
    of_row = (
        numbers.select(RUN)
        .with_row_index()
        .join(runs.with_row_index("run"), on=list(RUN), maintain_order="left", nulls_equal=True)["run"]
        .to_numpy()
    )
    with View(numbers) as view:
        expected = view.sides(check.query, claim.id)
        values = np.repeat(view.values[:, None], 3 * len(runs), axis=1)
        for kind, other in enumerate(_others(len(numbers))):
            for run in range(len(runs)):
                values[of_row == run, 3 * run + kind] = other[of_row == run]
        found = list(view.sides_of(check.query, claim.id, values))
    for run, row in enumerate(runs.iter_rows()):
        if not all(same(one, expected) for one in found[3 * run : 3 * run + 3]):
            yield row


def _others(rows: int) -> list[Floats]:
    """Values that no score has: each another one, far above and far below; and none at all."""
    noise = 1e6 * (1 + np.random.default_rng(0).random(rows))
    return [noise, -noise, np.full(rows, np.inf)]


def _used(view: View, claim: Claim, check: Check, scores: pl.DataFrame) -> pl.DataFrame:
    """Fewer scores of which a check says the same: those of the metrics and so on that its query names, where it is
    seen to use no others."""
    named = {name: scores[name].is_in(list(_named(check))).to_numpy() for name in NAMED}
    kept = np.ones(len(scores), dtype=bool)
    for names in (NAMED, *((name,) for name in NAMED)):  # all at once, which is right as a rule, and then each
        fewer = kept
        for name in names:
            if (both := fewer & named[name]).any():
                fewer = both
        if fewer.sum() == kept.sum():
            continue
        values = np.repeat(view.values[:, None], 4, axis=1)
        for time, other in enumerate(_others(len(scores)), 1):
            values[~fewer, time] = other[~fewer]
        expected, *found = view.sides_of(check.query, claim.id, values)
        if all(same(one, expected) for one in found):
            kept = fewer
    return scores.filter(pl.Series(kept))


def _named(check: Check) -> set[str]:
    """The texts in a query."""
    return set(re.findall(r"'((?:[^']|'')*)'", check.query))


def _lacking(needs: Needs, ran: _Ran, *, models: bool, people: bool) -> list[str]:
    """What a claim needs that was not run."""
    lacking = [
        f"{method} on {dataset}"
        for dataset in needs.datasets
        for method in needs.methods
        if (dataset, method) not in ran.asked and not (people and method == PEOPLE)
    ]
    if not needs.methods and ran.scores.is_empty():
        lacking = [f"scores on {dataset}" for dataset in needs.datasets]
    for wanted in needs.settings:
        if not any(wanted.items() <= one.items() for one in ran.settings):
            lacking.append(f"a run with {', '.join(f'{key}={value}' for key, value in wanted.items())}")
    if models:
        lacking += [f"the model {name}" for name in needs.models if name not in NO_MODELS and name not in ran.models]
    return lacking
