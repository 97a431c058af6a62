"""Verdicts to scores: the metrics of a family on one cell, each with value and interval."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

import numpy as np
import polars as pl

from upkeep.errors import UpkeepError
from upkeep.grading.graded import VALUE
from upkeep.grading.metric_families import checked, told
from upkeep.grading.metrics import Described, Family, Resampled, Second, slices_of
from upkeep.grading.resampling import FEWEST, FEWEST_MEASURED, RESAMPLES, Draws, Floats, estimates, resampled
from upkeep.grading.settings import Pairs
from upkeep.grading.statistics import COUNTS_SCHEMA, KEYS, estimate

OF_PROBE = ("probe_id", "trial")
"""What verdicts of two cells are joined by."""
SCORED = {
    "subset": pl.String,
    "metric": pl.String,
    "at": pl.Int32,
    "value": pl.Float64,
    "n": pl.Int64,
    "questions": pl.Int64,
    "se": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "unit": pl.String,
}
"""What the metrics of a cell come to; as in `score.SCORE_SCHEMA`, with `at` the k of a metric at k."""


CELLS = ("", "second_")
"""What the columns of verdicts begin with, of a cell and of the one beside it."""
ANSWERED = (
    {"right": True, "exact": True, "outdated": False},
    {"right": False, "exact": False, "outdated": True},
    {"right": False, "exact": False, "outdated": False},
)
"""How a question can be answered, in columns of verdicts."""
SOME = 1000
"""Questions of which one more changes nothing that is seen."""
PLACE = 6
"""Digits of a subset's place among others."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the scores of a pair of values are found."""

    subset: str
    dataset: str = ""
    """What is added to the dataset's name."""
    setting: Pairs = ()


def crossed(family: Family, graded: pl.DataFrame) -> tuple[pl.DataFrame, dict[str, Place]]:
    """Verdicts with one more slice for each two that a family crosses, and where the scores of its values belong.

    Raises:
        UpkeepError: the dataset lacks a slice, or a pair of values has the name of another subset.
    """
    places = {name: Place(one.subset, setting=tuple(one.settings.items())) for name, one in family.placed.items()}
    taken = {*places} | {value for name in slices_of(graded) for value in graded[name].unique()}
    for pair in family.crossed:
        both = [name for name in (pair.slice, pair.by) if name is not None]
        if lost := [name for name in both if f"slice_{name}" not in graded.columns]:
            if pair.optional:
                continue
            raise UpkeepError(
                f"metrics cross a slice {lost[0]!r} that the dataset does not have",
                where=family.where,
                expected=f"one of {', '.join(name.removeprefix('slice_') for name in slices_of(graded))}",
            )
        columns = [pl.lit("all") if pair.slice is None else pl.col(f"slice_{pair.slice}"), pl.col(f"slice_{pair.by}")]
        values = graded.select(value=columns[0], by=columns[1])
        for value, by in sorted(values.drop_nulls().unique().iter_rows()):
            if (name := f"{value}+{by}") in taken:
                raise UpkeepError("one name for two subsets", where=family.where, found=f"{name!r} of {pair}")
            taken.add(name)
            places[name] = Place(name) if pair.into == "subset" else Place(value, dataset=f"_{by}")
        graded = graded.with_columns(pl.format("{}+{}", *columns).alias(f"slice_{pair.slice or 'all'}+{pair.by}"))
    return graded, places


@dataclass(frozen=True, slots=True)
class Measured:
    """Every score of a cell."""

    scores: pl.DataFrame
    """SCORED."""
    resamples: Floats
    """(scores, RESAMPLES): each score on each resample of the dataset's questions, as `resampling.Draws` has them; NaN
    where it is not defined, and for all of a score that rests on fewer than FEWEST questions or is `described`."""

    def only(self, names: Collection[tuple[Any, ...]]) -> Measured:
        """Some of the scores, by KEYS."""
        chosen = [name in names for name in self.scores.select(KEYS).rows()]
        return Measured(self.scores.filter(pl.Series(chosen, dtype=pl.Boolean)), self.resamples[chosen])


def measured(
    family: Family, graded: pl.DataFrame, retrieved: int, seconds: Mapping[Second, pl.DataFrame], draws: Draws
) -> Measured:
    """Every score of a cell.

    Args:
        graded: its verdicts (`metrics.GRADED_SCHEMA`).
        retrieved: the most documents that any of its predictions retrieved.
        seconds: verdicts of the cells that metrics set beside it (`graded.VERDICTS`). A metric whose second cell is not
            among them has no score.
        draws: of the questions of its dataset.

    Raises:
        UpkeepError: a metric fails, or gives something else than it should; with file and line. Or a second cell has
            other probes.
    """
    joined = {second: beside(graded, rows) for second, rows in seconds.items()}
    works = [(family.measure, graded)]
    works += [(one.measure, joined[one.second]) for one in family.compared if one.second in joined]
    together = pl.concat(_called(family, function, COUNTS_SCHEMA, rows, retrieved) for function, rows in works)
    once = pl.col("question_id").n_unique() == pl.len()
    _refuse_twice(family, together.group_by(KEYS).agg(once=once).filter(~pl.col("once")))
    ratios = estimate(together).with_columns(unit=pl.lit("percent"))
    parts, values = [ratios], [_ratios(together, ratios, draws)]
    for one in family.resampled:
        rows = graded if one.second is None else joined.get(one.second)
        if rows is not None and _has_values(one, rows):
            found, drawn = _resampled(family, one, rows, draws)
            parts.append(found)
            values.append(drawn)
    for described in family.described:
        parts.append(_described(family, described, graded))
        values.append(np.full((len(parts[-1]), RESAMPLES), np.nan))
    scores = pl.concat([part.select(pl.col(name).cast(kind) for name, kind in SCORED.items()) for part in parts])
    _refuse_twice(family, scores.filter(pl.struct(KEYS).is_duplicated()))
    resamples = np.concatenate(values)
    resamples[scores["questions"].to_numpy() < FEWEST] = np.nan
    return Measured(scores, resamples)


def numbers(family: Family, graded: pl.DataFrame, retrieved: int) -> dict[tuple[Any, ...], float]:
    """The scores of a cell by KEYS, without intervals and without those that need a second cell.

    Raises:
        UpkeepError: as `measured`.
    """
    counts = _called(family, family.measure, COUNTS_SCHEMA, graded, retrieved)
    sums = counts.group_by(KEYS).agg(pl.col("hits", "total").sum())
    found = {(subset, metric, at): hits / total if total else np.nan for subset, metric, at, hits, total in sums.rows()}
    for one in family.resampled:
        if one.second is not None or not _has_values(one, graded):
            continue
        subsets = list(_subsets(graded, one.subset))
        names, apart = _parts(family, one, _together(subsets), len(subsets))
        for (subset, _), parts in zip(subsets, apart, strict=True):
            with told("a metric fails", family.where, one.value):
                values = resampled(names, parts.numbers.sum(axis=0, keepdims=True), one.value)
            found |= {(subset, metric, None): float(value[0]) for metric, value in values.items()}
    for described in family.described:
        rows = _described(family, described, graded).select(*KEYS, "value").rows()
        found |= {(subset, metric, at): value for subset, metric, at, value in rows}
    return found


def _ratios(counts: pl.DataFrame, scores: pl.DataFrame, draws: Draws) -> Floats:
    """Ratios of counts (percent) on each resample: (scores, RESAMPLES)."""
    keys, questions = scores.select(KEYS), counts.select("question_id").unique().sort("question_id")
    placed = counts.join(keys.with_row_index("score"), on=KEYS, nulls_equal=True).join(
        questions.with_row_index("question"), on="question_id"
    )
    places = placed["question"].to_numpy(), placed["score"].to_numpy()
    hits, total = np.zeros((2, len(questions), len(scores)))
    hits[places], total[places] = placed["hits"].to_numpy(), placed["total"].to_numpy()
    names = questions["question_id"].to_numpy()
    others = (total[~draws.knows(names)] > 0).any(axis=0)  # scores that are counted by something else than questions
    found = np.empty((RESAMPLES, len(scores)))
    for columns in (others, ~others):
        rows = (total[:, columns] > 0).any(axis=1)
        units = draws.of(names[rows])
        found[:, columns] = units.ratios(names[rows], hits[np.ix_(rows, columns)], total[np.ix_(rows, columns)])
    return 100 * found.T


def _refuse_twice(family: Family, twice: pl.DataFrame) -> None:
    """A score that two functions of a family give, or one for a question twice, would be added up, or shown twice."""
    if not twice.is_empty():
        first = min(", ".join(str(value) for value in row if value is not None) for row in twice.select(KEYS).rows())
        raise UpkeepError("metrics give a score twice", where=family.where, expected="each once", found=first)


def beside(graded: pl.DataFrame, second: pl.DataFrame) -> pl.DataFrame:
    """Verdicts with those of a second cell, joined by probe and trial, as columns `second_<name>`.

    Raises:
        UpkeepError: the two were not asked the same probes as often.
    """
    lost = graded.join(second, on=OF_PROBE, how="anti")
    if not lost.is_empty() or len(graded) != len(second):
        raise UpkeepError(
            "a second cell of other probes or trials",
            expected=f"{len(graded)} predictions for the same",
            found=f"{len(second)} predictions" + (f", none for {lost.row(0)[0]}" if len(lost) else ""),
            remedy="run both again",
        )
    named = second.rename({name: f"second_{name}" for name in second.columns if name not in OF_PROBE})
    return graded.join(named, on=OF_PROBE, how="left", maintain_order="left")


def _has_values(wanted: Resampled, graded: pl.DataFrame) -> bool:
    """Whether there are the measured numbers that a metric is made of."""
    named = [f"{VALUE}{name}" for name in wanted.values]
    if wanted.second is not None:
        named += [f"second_{name}" for name in named]
    return set(named) <= set(graded.columns)


def _called(family: Family, function: Callable[..., object], schema: Mapping[str, Any], *given: object) -> pl.DataFrame:
    with told("a metric fails", family.where, function):
        found = function(*given)
    return checked(found, schema, family, function)


def _resampled(family: Family, wanted: Resampled, graded: pl.DataFrame, draws: Draws) -> tuple[pl.DataFrame, Floats]:
    """Scores (SCORED) that are no ratios of counts, and their values on each resample."""
    rows, values = [], []
    subsets = list(_subsets(graded, wanted.subset))
    together = _together(subsets)
    names, apart = _parts(family, wanted, together, len(subsets))
    others = _unseen(family, wanted, together, names, apart)
    for (subset, members), parts, (unseen, fewest) in zip(subsets, apart, others, strict=True):
        with told("a metric fails", family.where, wanted.value):
            found = estimates(
                names,
                parts.numbers,
                wanted.value,
                draws.of(parts.questions),
                parts.questions,
                unseen,
                interval=wanted.interval,
                ends=wanted.ends,
            )
        _refuse_unnamed(family, wanted.metrics, found)
        counted = int(_of_itself(members, wanted.subset)["question_id"].is_in(parts.questions).sum())
        for metric, one in found.items():
            spread = {"se": one.se, "low": one.low, "high": one.high}
            rows.append(
                {"subset": subset, "metric": metric, "at": None, "value": one.value, "unit": wanted.unit, **spread}
                | {"n": counted, "questions": len(parts.questions)}
            )
            values.append(one.resamples if len(parts.questions) >= fewest else np.full(RESAMPLES, np.nan))
    return pl.DataFrame(rows, schema=SCORED), np.array(values).reshape(len(rows), RESAMPLES)


def _unseen(
    family: Family, wanted: Resampled, together: pl.DataFrame, names: Sequence[str], apart: Sequence[_Sums]
) -> Iterator[tuple[Floats, int]]:
    """For each subset, what a question may add that was not asked (`resampling`), and how many it takes to say anything
    of others.

    It is one of those that were asked, SOME of them at most, and answered rightly, as before, or otherwise, in either
    cell. Where none of that is another sum, the metric goes by what was measured: the questions themselves, twice.
    """
    found, alike = [apart], True
    for answered in product(ANSWERED, repeat=1 if wanted.second is None else 2):
        otherwise = together
        for cell, columns in zip(CELLS, answered, strict=False):
            given = {f"{cell}{name}": pl.lit(value) for name, value in columns.items()}
            given[f"{cell}canonical"] = pl.col(f"{cell}canonical").fill_null("")
            otherwise = otherwise.with_columns(**{name: given[name] for name in given if name in together.columns})
        others, parts = _parts(family, wanted, otherwise, len(apart))
        alike &= others == names
        found.append([one.named(others, names) for one in parts])
    for of_subset in zip(*found, strict=True):
        asked, *otherwise_asked = (one.first(SOME) for one in of_subset)
        rows = np.concatenate([asked.numbers, *(one.numbers for one in otherwise_asked)])
        as_measured = alike and all(one.is_as(asked) for one in otherwise_asked)
        yield (2 * rows, FEWEST_MEASURED) if as_measured else (rows, FEWEST)


def _described(family: Family, wanted: Described, graded: pl.DataFrame) -> pl.DataFrame:
    """Scores (SCORED) that are worked out of the verdicts themselves."""
    rows = []
    for subset, members in _subsets(graded):
        with told("a metric fails", family.where, wanted.value):
            found = {metric: float(value) for metric, value in wanted.value(members).items()}
        _refuse_unnamed(family, wanted.metrics, found)
        common = {"subset": subset, "unit": wanted.unit, "n": len(members)}
        common |= {"questions": members["question_id"].n_unique()}
        rows += [common | {"metric": metric, "value": value} for metric, value in found.items()]
    return pl.DataFrame(rows, schema=SCORED)


def _refuse_unnamed(family: Family, named: Collection[str], found: Collection[str]) -> None:
    if unknown := set(found) - set(named):
        raise UpkeepError(
            f"a metric that is not named: {', '.join(sorted(unknown))}",
            where=family.where,
            expected=", ".join(named),
            remedy="name it in `metrics`",
        )


def _together(subsets: Sequence[tuple[str, pl.DataFrame]]) -> pl.DataFrame:
    """The verdicts of all subsets, their questions named by the place of their subset as well: what a metric sums up by
    question it sums up for all of them at once."""
    named = (pl.format(f"{place:0{PLACE}} {{}}", "question_id") for place in range(len(subsets)))
    return pl.concat([rows.with_columns(question_id=name) for (_, rows), name in zip(subsets, named, strict=True)])


@dataclass(frozen=True, slots=True)
class _Sums:
    """What a metric sums up of each question of a subset."""

    questions: list[str]
    """In order of their ids."""
    numbers: Floats
    """(questions, columns), a column after the other in memory."""

    def first(self, count: int) -> _Sums:
        """Of so many questions."""
        return _Sums(self.questions[:count], self.numbers[:count])

    def named(self, names: Sequence[str], wanted: Sequence[str]) -> _Sums:
        """The same with these columns; what it lacks is 0."""
        if names == wanted:
            return self
        found = np.zeros((len(self.questions), len(wanted)))
        for place, name in enumerate(wanted):
            if name in names:
                found[:, place] = self.numbers[:, names.index(name)]
        return _Sums(self.questions, found)

    def is_as(self, other: _Sums) -> bool:
        """Whether they say the same of the same questions."""
        return self.questions == other.questions and np.array_equal(self.numbers, other.numbers, equal_nan=True)


def _parts(family: Family, wanted: Resampled, together: pl.DataFrame, count: int) -> tuple[list[str], list[_Sums]]:
    """What a metric sums up in so many subsets (`_together`): the columns' names, and the sums for each subset."""
    with told("a metric fails", family.where, wanted.sums):
        given = wanted.sums(together)
    names = [name for name in getattr(given, "columns", ()) if name != "question_id"]
    schema = {"question_id": pl.String} | dict.fromkeys(names, pl.Float64)
    sums = checked(given, schema, family, wanted.sums).group_by("question_id").sum().sort("question_id")
    place, name = pl.col("question_id").str.head(PLACE), pl.col("question_id").str.slice(PLACE + 1)
    placed = sums.select(place=place.cast(pl.Int64), name=name)
    questions, numbers = placed["name"].to_list(), sums.select(names).to_numpy().reshape(len(sums), len(names))
    ends = np.searchsorted(placed["place"].to_numpy(), range(count + 1))
    parts = (slice(first, end) for first, end in pairwise(ends.tolist()))
    return names, [_Sums(questions[part], np.array(numbers[part], order="F")) for part in parts]


def _of_itself(graded: pl.DataFrame, subset: str | None) -> pl.DataFrame:
    """Of the verdicts that a metric of one subset is given, those of that subset, and not those that set its threshold;
    all of them where it is of all, or of each slice by itself."""
    here = [name for name in slices_of(graded) if subset is not None and (graded[name] == subset).any()]
    return graded.filter(pl.col(here[0]) == subset) if here else graded


def _subsets(graded: pl.DataFrame, only: str | None = None) -> Iterator[tuple[str, pl.DataFrame]]:
    """All verdicts, then those of each value of each slice; of a metric of one subset, all under that one's name."""
    yield only or "all", graded
    if only is not None:
        return
    for column in slices_of(graded):
        for (value,), members in sorted(graded.drop_nulls(column).partition_by(column, as_dict=True).items()):
            yield str(value), members
