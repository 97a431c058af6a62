"""What a family of metrics is made of: all of the suite that `papers/<paper>/metrics.py` imports.

Such a file has `FAMILY = Family(measure)`, and a dataset uses it whose card says `metrics: <paper>`. `measure` is a
pure function from the verdicts of a cell (GRADED_SCHEMA) to counts (COUNTS_SCHEMA): for each score and question, how
many `hits` it has of how many `total`. What becomes of the counts, value and interval, is in
`upkeep.grading.statistics`; the ids of metrics and subsets are those of papers/FORMAT.md.

Metrics that set a second cell beside the first are `compared`, those that are no ratio of counts are `resampled`, and
those that are no function of sums either are `described`. Pairs of slices that are subsets of their own are `crossed`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import polars as pl

from upkeep.errors import UpkeepError
from upkeep.grading.resampling import Floats, Value
from upkeep.grading.statistics import COUNTS_SCHEMA, levelled

__all__ = [
    "COUNTS_SCHEMA",
    "GRADED_SCHEMA",
    "Compared",
    "Crossed",
    "Described",
    "Family",
    "Floats",
    "Placed",
    "Resampled",
    "Second",
    "UpkeepError",
    "as_counts",
    "levelled",
    "pass_at_k",
    "rates",
    "shares",
    "slices_of",
]

GRADED_SCHEMA = {
    "probe_id": pl.String,
    "question_id": pl.String,
    "trial": pl.Int32,
    "position": pl.Int32,
    "form": pl.String,
    "phase": pl.Int32,
    "right": pl.Boolean,
    "exact": pl.Boolean,
    "outdated": pl.Boolean,
    "answer": pl.String,
    "canonical": pl.String,
    "parse": pl.String,
    "verdict": pl.String,
    "failed": pl.Boolean,
    "has_evidence": pl.Boolean,
    "has_outdated": pl.Boolean,
    "accepted_answers": pl.Int32,
    "arrived_tokens": pl.Int64,
    "rank": pl.Int32,
    "prompt_tokens": pl.Int64,
    "completion_tokens": pl.Int64,
    "model_cutoff": pl.String,
}
"""What `measure` is given: one row for each probe and trial, whether it was answered or not, with these columns and one
`slice_<name>` for each slice of the dataset. They are as in `graded.VERDICTS` and `key.Key`; `model_cutoff` is the date
after which the cell's model knows nothing, as its card has it, null where that has none or there is no model.

Of numbers that the method measured there is one column `value_<name>` (Float64) for each name that any of the cell's
predictions has, null where a prediction has none of that name, failed or is missing. A cell without any has no such
columns; where a second cell stands beside it, its own are `second_value_<name>`."""

MAX_K = 60
"""Where the papers' figures of retrieval end (OAKS, Figure 5)."""
Measure = Callable[[pl.DataFrame, int], pl.DataFrame]
"""(verdicts of a cell, the most documents that any prediction retrieved) -> counts; without retrieval these are 0."""


@dataclass(frozen=True, slots=True)
class Second:
    """The cell that a metric sets beside another, of the same dataset and suite; what is not said is the other's own.

    Where it is the cell itself, or the cell has no model, there is none, and the metric has no score.
    """

    name: str
    """What a report calls it: `the closed book`."""
    method: str | None = None
    variant: str = "default"
    """Of `method`; without one, the variant is the cell's own."""
    untrained: bool = False
    """Whether its model is the one that all training of the cell's model began with."""


@dataclass(frozen=True, slots=True)
class Compared:
    """Ratios of counts that need two cells."""

    metrics: Sequence[str]
    second: Second
    measure: Measure
    """As `Family.measure`, but its verdicts have columns of the second cell, too, joined by probe and trial:
    `second_right`, and so on for each column that is the cell's own and not the dataset's."""


@dataclass(frozen=True, slots=True)
class Resampled:
    """Metrics that are no ratio of counts, but some other function of sums over questions: a difference, an F1.

    Their interval comes from resampling questions (`upkeep.grading.resampling`), that of means by formula (`ends`).
    """

    metrics: Sequence[str]
    sums: Callable[[pl.DataFrame], pl.DataFrame]
    """GRADED_SCHEMA -> `question_id` and columns of numbers; of the rows of a question the sum counts. It is given all
    questions and each slice at once, where a question has an id for each of these: what it says of a question has to
    follow from the rows of that id alone."""
    value: Value
    """The sums over all questions of each column -> each of `metrics`, NaN where it is not defined. It is given arrays,
    with a place for each resample."""
    second: Second | None = None
    """As in `Compared`, where two cells are needed."""
    values: Sequence[str] = ()
    """Names of the measured numbers that it is made of (`value_<name>`). Where no prediction has them, of the cell or
    of the second one, the metrics have no score."""
    unit: str = "percent"
    subset: str | None = None
    """The one subset that they are of, although they set its questions beside others: of documents from after a date,
    the share that is above a threshold which other documents set. `sums` is then given all questions, and leaves out
    those that have no say. Without one, they are of all questions and of each slice by itself."""
    interval: bool = True
    """Whether there is one: not of what tells itself how far numbers are apart, as a deviation over runs."""
    ends: tuple[float, float] | None = None
    """Of means over questions of what was measured, and of ratios of two such means, the ends that none lies beyond.
    Such numbers may be skewed, as tokens are: their interval knows of it (`upkeep.grading.resampling.of_mean`)."""


@dataclass(frozen=True, slots=True)
class Described:
    """Metrics that are no function of sums over questions, as quantiles of what a cell's predictions took.

    They tell themselves how far numbers are apart: they have no interval, and no claim is decided by them.
    """

    metrics: Sequence[str]
    value: Callable[[pl.DataFrame], Mapping[str, float]]
    """GRADED_SCHEMA, of all questions or of a slice -> each of `metrics` that is defined there."""
    unit: str


@dataclass(frozen=True, slots=True)
class Crossed:
    """Two slices of which each pair of values is a subset of its own, beside the values of each alone."""

    slice: str | None
    """The one whose value a score has as its subset; None for `all`, each value of `by` as a whole."""
    by: str
    into: Literal["subset", "dataset"] = "subset"
    """Where the value of `by` goes, as the paper's published numbers have it: to the other one, as in
    `single_hop+stable`; or to the end of the dataset's name, as in `evowiki_stable`."""
    optional: bool = False
    """Whether a dataset may lack a slice; then there are no such subsets."""


@dataclass(frozen=True, slots=True)
class Placed:
    """Where the scores of a subset stand that `measure` names itself, and that has settings besides those of its cell,
    as published numbers have them."""

    subset: str
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Family:
    """The metrics of a paper, or those of datasets whose paper has none of its own."""

    measure: Measure
    compared: Sequence[Compared] = ()
    resampled: Sequence[Resampled] = ()
    described: Sequence[Described] = ()
    crossed: Sequence[Crossed] = ()
    placed: Mapping[str, Placed] = field(default_factory=dict)
    """By the names that `measure` gives in the place of subsets."""
    settings: Sequence[Mapping[str, str]] = ()
    """Those of `placed`: the first are those of a dataset by itself, the others of one that is `part_of` another. So a
    table knows what a cell without scores would fill."""
    where: str = ""
    """The file that it was read from; the suite fills this in."""

    @property
    def of_two(self) -> Iterator[tuple[Second, Sequence[str]]]:
        """The second cells that it needs, each with the metrics that need it."""
        needed = [(one.second, one.metrics) for one in self.compared] + [(r.second, r.metrics) for r in self.resampled]
        for second, metrics in needed:
            if second is not None:
                yield second, metrics

    def of_values(self) -> Family:
        """The metrics of a method that measures in place of answering (`contract.MethodCard.measures`): those made of
        what it measured, and how many of its predictions failed."""
        of_values = [one for one in self.resampled if one.values]
        return replace(self, measure=_failures, compared=(), resampled=of_values, described=())


# ---------------------------------------------------------------- counting


def slices_of(graded: pl.DataFrame) -> list[str]:
    """The columns that hold slices."""
    return [name for name in graded.columns if name.startswith("slice_")]


def as_counts(*parts: pl.DataFrame) -> pl.DataFrame:
    """Frames with the columns of COUNTS_SCHEMA, among others, as one."""
    return pl.concat([part.select(pl.col(c).cast(t) for c, t in COUNTS_SCHEMA.items()) for part in parts])


def shares(graded: pl.DataFrame, **metrics: pl.Expr) -> pl.DataFrame:
    """The share of predictions for which something holds, over all questions and over each slice.

    Args:
        metrics: metric -> an expression over GRADED_SCHEMA, true where it holds.

    Returns:
        COUNTS_SCHEMA.
    """
    subsets = [pl.lit("all"), *(pl.col(name) for name in slices_of(graded))]
    members = pl.concat([graded.with_columns(subset=subset).drop_nulls("subset") for subset in subsets])
    counts = (
        members.group_by("subset", "question_id", maintain_order=True)
        .agg(**{metric: holds.sum() for metric, holds in metrics.items()}, n=pl.len())
        .unpivot(list(metrics), index=["subset", "question_id", "n"], variable_name="metric", value_name="hits")
    )
    return as_counts(counts.with_columns(total=pl.col("n"), at=None).sort("subset", "metric", "question_id"))


def rates(graded: pl.DataFrame) -> pl.DataFrame:
    """Share of predictions whose answer could be read (`parse_rate`) and that failed or are missing (`error_rate`).

    Returns:
        COUNTS_SCHEMA.
    """
    counts = (
        graded.group_by("question_id")
        .agg(parse_rate=(pl.col("parse") != "none").sum(), error_rate=pl.col("failed").sum(), total=pl.len())
        .with_columns(n=pl.col("total"))
        .unpivot(
            ["parse_rate", "error_rate"],
            index=["question_id", "total", "n"],
            variable_name="metric",
            value_name="hits",
        )
    )
    return as_counts(counts.with_columns(subset=pl.lit("all"), at=None).sort("metric", "question_id"))


def _failures(graded: pl.DataFrame, retrieved: int) -> pl.DataFrame:
    return rates(graded).filter(metric="error_rate")


def pass_at_k(graded: pl.DataFrame, retrieved: int) -> pl.DataFrame:
    """Share of predictions whose gold chunk is among the first k retrieved (`at`; OAKS, D.2), for each k up to the most
    documents that any prediction retrieved, MAX_K at most.

    The gold chunk is the one where the present answer began. Probes before anything is known have none and are left
    out; a prediction that failed has retrieved nothing and is a miss.

    Returns:
        COUNTS_SCHEMA.
    """
    asked, largest = graded.filter("has_evidence"), min(retrieved, MAX_K)
    totals = asked.group_by("question_id").agg(total=pl.len())
    found = asked.filter(pl.col("rank") <= largest).group_by("question_id", at=pl.col("rank")).agg(new=pl.len())
    counts = (
        totals.join(pl.DataFrame({"at": pl.int_range(1, largest + 1, dtype=pl.Int32, eager=True)}), how="cross")
        .join(found, on=["question_id", "at"], how="left")
        .sort("question_id", "at")
        .with_columns(hits=pl.col("new").fill_null(0).cum_sum().over("question_id"))
        .with_columns(n=pl.col("total"), subset=pl.lit("all"), metric=pl.lit("pass_at_k"))
    )
    return as_counts(counts)
