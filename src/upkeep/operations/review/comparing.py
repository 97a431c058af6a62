"""What is not as a release recorded it: each number, each answer, and what decided them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec
import polars as pl

from upkeep.catalog import Catalog
from upkeep.contract import Manifest, Record
from upkeep.grading.score import printed_as
from upkeep.grading.scores import Scores, scores_now
from upkeep.grading.settings import as_text
from upkeep.integrity import Damaged
from upkeep.jobs import Cell
from upkeep.operations.review.release import (
    CODE,
    KEY,
    MARK,
    NUMBERS,
    RecordedCell,
    Release,
    decided,
    lying,
    marks_of,
    numbers_of,
    recorded,
)
from upkeep.published import folder_of, predictions, standing
from upkeep.report.edits import edited
from upkeep.report.fields import by_words

CLOSE = 1e-6
"""Relative: two sums of the same numbers, added in another order."""
ONE_IN = 20
"""Numbers of a model that was trained anew, of which one may lie apart."""
NAMED = 3
"""Answers of a cell that are named; more are counted."""
Kind = Literal["changed", "missing", "decided", "answers", "number", "file"]


class Difference(Record, frozen=True, kw_only=True):
    """One thing that is not as it was recorded."""

    kind: Kind
    what: str
    """The cell, number or file."""
    recorded: str
    found: str
    fails: bool
    """Whether it must be as it was: else it may differ on this machine, by so much."""


class Compared(Record, frozen=True, kw_only=True):
    """A cell beside what was recorded of it."""

    cell: str
    predictions: int
    same_answers: bool
    must_be_same: bool
    recorded: float | None
    """Its accuracy, in percent; null where it has none."""
    found: float | None


class Review(Record, frozen=True, kw_only=True):
    """A suite beside what was recorded of it."""

    suite: str
    cells: list[Compared]
    numbers: int
    """That were compared."""
    differences: list[Difference]

    @property
    def failures(self) -> list[Difference]:
        return [one for one in self.differences if one.fails]


def changed_since(catalog: Catalog, release: Release, answers: pl.DataFrame) -> list[Difference]:
    """Cells that lie there and are not what was written: a run makes them anew, so this is looked at before it."""
    found = []
    for name in release.cells:
        cell = Cell.parse(name)
        if isinstance(problem := standing(catalog, cell).problem, Damaged):
            others = _others(answers, name, marks_of(lying(folder_of(catalog, cell))))
            told = f"{problem.problem}{': ' if others else ''}{_named(others)}"
            where = str(problem.where or "")
            found.append(
                Difference(
                    kind="changed", what=name, recorded="as it was published", found=f"{told} ({where})", fails=True
                )
            )
    return found


def with_first(changed: list[Difference], review: Review) -> Review:
    """A review that tells first what was changed before it began."""
    known = {one.what for one in changed}
    rest = [one for one in review.differences if one.kind != "missing" or one.what not in known]
    return msgspec.structs.replace(review, differences=[*changed, *rest])


def compare(catalog: Catalog, release: Release, scores: pl.DataFrame, answers: pl.DataFrame) -> Review:
    """Set what is published now beside what was recorded.

    Args:
        scores, answers: as `release.read` gives them.
    """
    now = scores_now(catalog, release.suite)
    manifests = {str(cell): found.manifest for cell, found in now.basis.cells.items()}
    differences = [_file(edit.file, edit.how) for edit in edited(catalog, release.suite)]
    accuracies = _accuracies(scores, now)
    cells, free, trained = [], set[str](), set[str]()
    for name, was in release.cells.items():
        manifest = manifests.get(name)
        if manifest is None:
            differences.append(_missing(catalog, name, manifests))
            continue
        marks = marks_of(predictions(catalog, Cell.parse(name)))
        found = recorded(manifest, marks)
        must = _must_be_same(was, found)
        if not must:
            free.add(name)
        if _trained_here(name, "weights", must) and was.decided.get("weights") != decided(manifest).get("weights"):
            trained.add(name)
        differences += _decided(name, was, manifest, must)
        if found.answers != was.answers:
            differences.append(_answers(name, was, found, _others(answers, name, marks), must))
        values = accuracies.get(name, (None, None))
        cells.append(
            Compared(
                cell=name,
                predictions=found.predictions,
                same_answers=found.answers == was.answers,
                must_be_same=must,
                recorded=values[0],
                found=values[1],
            )
        )
    more = [name for name in manifests if name not in release.cells]
    differences += [_beyond(name) for name in more]
    there = {one.cell for one in cells}
    numbers = list(_numbers(scores, now, there, free, trained))
    return Review(
        suite=release.suite,
        cells=cells,
        numbers=scores.filter(pl.col("cell").is_in(there)).height,
        differences=[*differences, *numbers],
    )


def _must_be_same(was: RecordedCell, found: RecordedCell) -> bool:
    """Whether a cell's answers must be the same bytes: no model was asked, or one in the same packages on a processor
    of the same kind, without GPUs."""
    same = found.processor is not None and found.processor == was.processor
    return found.packages == was.packages and (not was.packages or same)


def _decided(name: str, was: RecordedCell, manifest: Manifest, must: bool) -> Iterator[Difference]:
    """What decided a cell's answers, where that is another: the suite's own code may be a later one, if what it answers
    is the same; weights that were trained here are those of this processor."""
    now = decided(manifest)
    for what in dict.fromkeys([*was.decided, *now]):
        if was.decided.get(what) != now.get(what):
            here = _trained_here(name, what, must)
            told = (one.get(what, "none") for one in (was.decided, now))
            fails = what != CODE and not here
            yield Difference(kind="decided", what=f"{name}: {what}", recorded=next(told), found=next(told), fails=fails)


def _trained_here(name: str, what: str, must: bool) -> bool:
    """Whether what decides a cell is a model that is trained where it runs, and so another on another processor. Its
    part of an identity holds the weights of embedder and writers, too, which are thereby not told apart from it."""
    return what == "weights" and "+" in name and not must


def _answers(name: str, was: RecordedCell, found: RecordedCell, others: list[str], must: bool) -> Difference:
    return Difference(
        kind="answers",
        what=name,
        recorded=f"{was.predictions:,} answers",
        found=f"{found.predictions:,}, of which {len(others):,} are others: {_named(others)}",
        fails=must,
    )


def _others(answers: pl.DataFrame, name: str, marks: pl.DataFrame) -> list[str]:
    """The predictions of a cell that are another, more, or gone."""
    was = answers.filter(pl.col("cell") == name).drop("cell")
    both = was.join(marks.select("probe_id", "trial", now=MARK), on=["probe_id", "trial"], how="full", coalesce=True)
    rows = both.filter(pl.col("mark").ne_missing(pl.col("now"))).select("probe_id", "trial").sort("probe_id", "trial")
    return [f"{probe}, trial {trial}" for probe, trial in rows.rows()]


def _named(others: list[str]) -> str:
    more = f" and {len(others) - NAMED:,} more" if len(others) > NAMED else ""
    return "; ".join(others[:NAMED]) + more


def _missing(catalog: Catalog, name: str, manifests: dict[str, Manifest | None]) -> Difference:
    if name not in manifests:
        why = "the suite has no such cell"
    else:
        problem = standing(catalog, Cell.parse(name)).problem
        why = "it was not run" if problem is None else f"{problem.problem}; {problem.found or ''}".rstrip("; ")
    return Difference(kind="missing", what=name, recorded="complete", found=why, fails=True)


def _beyond(name: str) -> Difference:
    return Difference(kind="missing", what=name, recorded="no such cell", found="a cell of the suite", fails=True)


def _file(name: str, how: str) -> Difference:
    return Difference(kind="file", what=name, recorded="as it was shipped", found=how, fails=True)


def _accuracies(scores: pl.DataFrame, now: Scores) -> dict[str, tuple[float | None, float | None]]:
    """Cell -> accuracy on all of its dataset by the answer key's words, recorded and found."""
    whole = by_words(now.own).filter(pl.col("metric") == "accuracy", pl.col("subset") == "all")
    plain = whole.filter(pl.col("dataset") == _whole(now)).unique("cell", keep="first", maintain_order=True)
    both = as_text(plain).join(scores, on=list(KEY), how="left", suffix="_was")
    return {cell: (was, found) for cell, was, found in both.select("cell", "value_was", "value").rows()}


def _whole(now: Scores) -> pl.Expr:
    """The name that scores on all of a cell's dataset have: parts of it have others (`measuring.Place`)."""
    names = {str(cell): printed_as(now.basis.catalog, cell.dataset) for cell in now.basis.cells}
    return pl.col("cell").replace_strict(names, return_dtype=pl.String)


def _numbers(
    scores: pl.DataFrame, now: Scores, there: set[str], free: set[str], trained: set[str]
) -> Iterator[Difference]:
    """Numbers that are another, those of whole datasets first.

    Args:
        there: the cells that are compared.
        free: those whose answers may differ here: a number of theirs must lie within the recorded interval; one that
            was recorded without an interval (the spread of trials, what rests on few questions) must only be there.
        trained: those of another model than was recorded, for it was trained here: each of the two is one draw, and
            their intervals must have something in common, but for a few of a cell's numbers (`_may_be_apart`).
    """
    mine = numbers_of(now).filter(pl.col("cell").is_in(there))
    was = scores.filter(pl.col("cell").is_in(there)).with_columns(was=pl.lit(value=True))
    both = was.join(mine.with_columns(now=pl.lit(value=True)), on=list(KEY), how="full", coalesce=True, suffix="_now")
    first = ((pl.col("metric") != "accuracy").cast(pl.Int8) * 2 + (pl.col("subset") != "all").cast(pl.Int8)).alias(
        "first"
    )
    both = both.with_columns(whole=pl.col("dataset") == _whole(now))
    apart = _may_be_apart(both, trained)
    for row in both.sort(first, *KEY, maintain_order=True).iter_rows(named=True):
        told = [_told(row, "", row["was"]), _told(row, "_now", row["now"])]
        if row["was"] and row["now"] and all(_close(row[name], row[f"{name}_now"]) for name in NUMBERS):
            continue
        of_two = row["low"] is not None and row["low_now"] is not None and row["cell"] in trained
        may = row["cell"] in free and (_may_be(row, of_two=of_two) or (of_two and row["cell"] in apart))
        yield Difference(kind="number", what=_name(row), recorded=told[0], found=told[1], fails=not may)


def _may_be_apart(both: pl.DataFrame, trained: set[str]) -> set[str]:
    """Cells of models that were trained anew where a few intervals may have nothing in common with the recorded ones.
    An interval tells what other questions would have given, and not what another training would; so one in twenty of a
    cell's numbers may lie apart, by no more than half the wider of its two intervals, and not the cell's accuracy."""
    ends = ["low", "high", "low_now", "high_now"]
    of_two = both.filter(pl.col("cell").is_in(trained)).drop_nulls(ends)
    of_two = of_two.filter(pl.all_horizontal(pl.col(ends).is_finite()))
    between = pl.max_horizontal("low", "low_now") - pl.min_horizontal("high", "high_now")
    wider = pl.max_horizontal(pl.col("high") - pl.col("low"), pl.col("high_now") - pl.col("low_now"))
    first = pl.col("whole") & (pl.col("metric") == "accuracy") & (pl.col("subset") == "all")
    few = (between > CLOSE).sum() <= pl.len() // ONE_IN
    near = ((between <= CLOSE) | (between <= wider / 2) & ~first).all()
    return set(of_two.group_by("cell").agg(may=few & near).filter("may")["cell"])


def _may_be(row: Mapping[str, Any], *, of_two: bool) -> bool:
    """Whether a number may be what it is where answers may differ.

    Args:
        of_two: whether it is of another model, and has an interval of its own.
    """
    low, high, value = row["low"], row["high"], row["value_now"]
    if low is None or not _is_number(value):
        return _is_number(row["value"]) == _is_number(value)
    own = (row["low_now"], row["high_now"]) if of_two else (value, value)
    return bool(low - CLOSE <= own[1] and own[0] <= high + CLOSE)


def _is_number(value: float | None) -> bool:
    return value is not None and not math.isnan(value)


def _name(row: Mapping[str, Any]) -> str:
    """What a number is called."""
    subset = "" if row["subset"] == "all" else f" of {row['subset']}"
    dataset = "" if row["whole"] else f" on {row['dataset']}"
    return f"{row['cell']}: {row['metric']}{subset}{dataset}{' with ' if row['setting'] else ''}{row['setting']}"


def _close(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return math.isclose(one, other, rel_tol=CLOSE, abs_tol=CLOSE) or (math.isnan(one) and math.isnan(other))


def _told(row: dict[str, object], end: str, there: object) -> str:
    if not there:
        return "no such number"
    value, low, high = (row[f"{name}{end}"] for name in NUMBERS)
    if value is None:
        return "none"
    interval = "" if low is None else f" [{low:.4g}, {high:.4g}]"
    return f"{value:.6g}{interval}"
