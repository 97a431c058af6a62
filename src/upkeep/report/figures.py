"""Published figures from specs over scores: what of ours the paper's figure has, and apart from it what it has not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import msgspec
import polars as pl

from upkeep.errors import UpkeepError
from upkeep.grading.settings import printed
from upkeep.report.comparing import incomparable
from upkeep.report.fields import PREFIX, agrees, holds
from upkeep.report.rows import model_name
from upkeep.report.selecting import Values, values_of
from upkeep.report.specs import FigureSpec, Match, Panel, Series, several


@dataclass(frozen=True, slots=True)
class Trace:
    """One line of a panel, or one kind of bar, box or point: places in order of x."""

    name: str
    series: int
    """Place of its series in the spec: gives it its colour."""
    x: list[float]
    y: list[float]
    """Of a box the middle line."""
    low: list[float]
    high: list[float]
    """95% interval, equal to y where there is none; of a box the ends of its whiskers."""
    edges: list[tuple[float, float]] = field(default_factory=list)
    """Of a box its lower and upper edge."""
    published: bool = False
    """Whether these are the paper's own numbers."""
    level: bool = False
    """Whether y is one for all x."""


@dataclass(frozen=True, slots=True)
class Figure:
    spec: FigureSpec
    panels: list[list[Trace]]
    """Of each panel of the spec what the paper draws, as we ran it, and its own numbers where it prints any."""
    ours: list[list[Trace]]
    """Of each panel the runs that the paper's figure lacks: other models and settings, rebuilds, stand-ins."""
    own_spec: FigureSpec
    """The spec by which these are drawn: where models are the places, it has those that the paper lacks as well."""

    @property
    def filled(self) -> bool:
        """Whether any number of ours is in the paper's part."""
        return any(not trace.published for traces in self.panels for trace in traces)


@dataclass(frozen=True, slots=True)
class _Run:
    """What tells one trace of a series from another."""

    model: str
    """Empty where models are the places."""
    known: bool
    """Whether the paper's figure has the model."""
    trained: bool
    thinking: bool
    setting: str
    """Settings that neither the spec nor the axis says."""
    data: str


def build(spec: FigureSpec, scores: pl.DataFrame, published: Iterable[pl.DataFrame] = ()) -> Figure:
    """Collect what a figure shows.

    Args:
        scores: `score.SCORE_SCHEMA`, as the paper calls them (`fields.as_printed`).
        published: the tables of published numbers that the spec names (`read_reference`).

    Raises:
        UpkeepError: the spec does not say where on the horizontal axis something stands.
    """
    _check(spec)
    references = [
        _shown(
            spec,
            frame.with_columns(
                pl.col("value").cast(pl.Float64),
                provenance=pl.lit("release"),
                stand_in=pl.lit(""),
                trained=pl.lit(value=True),
                cell=pl.lit(""),
                low=pl.lit(None, pl.Float64),
                high=pl.lit(None, pl.Float64),
            ),
        )
        for frame in published
    ]
    own = _shown(spec, scores)
    own_spec = _with_all_models(spec, own)
    papers: list[list[Trace]] = []
    ours: list[list[Trace]] = []
    for panel in spec.panels:
        papers.append([])
        ours.append([])
        for place, series in enumerate(spec.series):
            for run, rows in _runs(own, spec, panel, series).items():
                trace = _trace(rows, run, own_spec, series, place)
                (papers if _is_papers(run, rows, series) else ours)[-1].append(trace)
            for reference in references:
                for run, rows in _runs(reference, spec, panel, series).items():
                    if _is_papers(run, rows, series):
                        papers[-1].append(_trace(rows, run, spec, series, place, published=True))
    return Figure(spec, [_filled(traces) for traces in papers], [_filled(traces) for traces in ours], own_spec)


def _check(spec: FigureSpec) -> None:
    for series in spec.series:
        if [bool(series.x), bool(series.at), series.level].count(True) != 1:
            raise UpkeepError(
                f"series {series.name!r} does not say its place on the horizontal axis",
                where=f"figures.yaml, {spec.id}",
                expected="one of `x`, a field; `at`, another score; `level`, none",
            )
        if (spec.kind == "box" and not series.level) != (len(series.quantiles) == 5):
            raise UpkeepError(
                f"series {series.name!r} has {len(series.quantiles)} quantiles",
                where=f"figures.yaml, {spec.id}",
                expected="the five metrics of a box, and none of anything else",
            )
    if spec.kind in ("bars", "box") and not spec.places:
        raise UpkeepError(
            f"{spec.kind} without places",
            where=f"figures.yaml, {spec.id}",
            expected="`places`: value: what it is called",
        )


def _shown(spec: FigureSpec, frame: pl.DataFrame) -> list[Values]:
    """The rows of a frame that have, of each field that all panels and series name, what one of them asks for."""
    asked: list[Match] = []
    for panel, series in product(spec.panels, spec.series):
        match = _match(panel, series)
        asked += [match, match | (series.at or {})]
        if series.quantiles:
            asked.append({**match, "metric": series.quantiles})
    named = set.intersection(*(set(match) for match in asked))
    return values_of(frame.filter(holds({n: [v for match in asked for v in several(match[n])] for n in named})))


def _with_all_models(spec: FigureSpec, scores: Iterable[Values]) -> FigureSpec:
    """The spec, where models are the places with those of our own after the paper's."""
    places = dict(spec.places)
    for panel, series in product(spec.panels, spec.series):
        if series.x == "model":
            for values in _matching(scores, _match(panel, series)):
                places.setdefault(values["model"], values["model"])
    return msgspec.structs.replace(spec, places=places)


def _is_papers(run: _Run, rows: list[Values], series: Series) -> bool:
    return run.known and not series.own and not run.setting and not any(incomparable(row) for row in rows)


def _match(panel: Panel, series: Series) -> Match:
    """What a series of a panel has to have: of a field that both name, one of the values that both allow."""
    both = panel.match.keys() & series.match.keys()
    common: Match = {n: [v for v in several(series.match[n]) if v in several(panel.match[n])] for n in both}
    return panel.match | series.match | common


def _runs(rows: Iterable[Values], spec: FigureSpec, panel: Panel, series: Series) -> dict[_Run, list[Values]]:
    """The numbers of a series in a panel by run."""
    match = _match(panel, series)
    listed = list(spec.places) if series.x == "model" else spec.models
    if series.quantiles:
        match["metric"] = series.quantiles
    said = {*match, series.x, series.largest or "", f"{PREFIX}thinking"}
    found: dict[_Run, list[Values]] = {}
    for values in _matching(rows, match):
        others = (pair for pair in values["setting"] if f"{PREFIX}{pair['key']}" not in said)
        run = _Run(
            model="" if series.x == "model" else values["model"],
            known=not listed or values["model"] in listed,
            trained=bool(values["trained"]),
            thinking=values.get(f"{PREFIX}thinking") == "on",
            setting=printed(others),
            data=values["data"],
        )
        found.setdefault(run, []).append(values)
    if series.at is not None:
        places = {_cell(values): values["value"] for values in _matching(rows, match | series.at)}
        for each in found.values():
            each[:] = [values | {"at": places[_cell(values)]} for values in each if _cell(values) in places]
    return found


def _matching(rows: Iterable[Values], match: Match) -> list[Values]:
    return [values for values in rows if agrees(values, match)]


def _cell(values: Values) -> tuple[str, ...]:
    """What two scores of one cell have in common."""
    names = ("cell", "label", "model", "method", "supervision", "dataset", "data")
    return (*(values[name] for name in names), printed(p for p in values["setting"] if p["key"] != "at"))


def _trace(
    rows: list[Values],
    run: _Run,
    spec: FigureSpec,
    series: Series,
    place: int,
    *,
    published: bool = False,
) -> Trace:
    if series.largest:
        sizes = [_number(values.get(series.largest)) for values in rows]
        most = max((size for size in sizes if size is not None), default=None)
        rows = [values for values, size in zip(rows, sizes, strict=True) if most is not None and size == most]
    points: dict[float, dict[str, Values]] = {}
    for values in rows:
        x = 0.0 if series.level else values["at"] if series.at is not None else _place(values.get(series.x), spec)
        if x is not None:
            points.setdefault(x, {}).setdefault(values["metric"], values)
    if series.quantiles:
        points = {x: found for x, found in points.items() if len(found) == len(series.quantiles)}
    xs = sorted(points)
    who = model_name(run.model, trained=run.trained) if run.model else "untrained" * (not run.trained)
    name = ", ".join(filter(None, [series.name, who]))
    name += ", thinking" * run.thinking + (f", {run.setting}" if run.setting else "")
    name += f" [{run.data}]" if run.data else ""
    if series.quantiles:
        boxes = [[points[x][metric]["value"] for metric in series.quantiles] for x in xs]
        low, lower, middle, upper, high = ([box[n] for box in boxes] for n in range(5))
        return Trace(name, place, xs, middle, low, high, list(zip(lower, upper, strict=True)), published)
    chosen = [next(iter(points[x].values())) for x in xs]
    low, high = ([row["value"] if row[end] is None else row[end] for row in chosen] for end in ("low", "high"))
    y = [row["value"] for row in chosen]
    return Trace(name, place, xs, y, low, high, published=published, level=series.level)


def _place(value: Any, spec: FigureSpec) -> float | None:
    """Where a value stands on the horizontal axis; None where it does not."""
    if spec.places:
        return float(list(spec.places).index(value)) if value in spec.places else None
    return _number(value)


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _filled(traces: Iterable[Trace]) -> list[Trace]:
    return [trace for trace in traces if trace.x]
