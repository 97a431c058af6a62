"""Published figures from scores, as SVG and PNG, byte for byte the same from the same scores."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import polars as pl

from upkeep.files import write_atomically
from upkeep.report.tables import STAND_IN, FigureSpec, Match, Series, model_name, option


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a panel: points in order of x."""

    name: str
    series: int
    """Place of its series in the spec: gives the line its colour."""
    x: list[float]
    y: list[float]
    low: list[float]
    high: list[float]
    """95% interval; equal to y for a single question."""


@dataclass(frozen=True, slots=True)
class Figure:
    spec: FigureSpec
    panels: list[list[Line]]
    """Lines of each panel of the spec."""


EMPTY = "no run of this kind\nin this suite"

_COLOURS = ("#3366aa", "#cc5533", "#3a8a5c", "#8855aa", "#997700")
_MARKERS = "osD^v<>P*X"


def build(spec: FigureSpec, scores: pl.DataFrame) -> Figure:
    """Collect the lines of a figure: one for each series, model and set of data."""
    panels = []
    for panel in spec.panels:
        lines: list[Line] = []
        for place, series in enumerate(spec.series):
            lines += _lines(_points(scores, panel.match | series.match, series), series, place)
        panels.append(lines)
    return Figure(spec, panels)


def _points(scores: pl.DataFrame, match: Match, series: Series) -> pl.DataFrame:
    """data, model, trained, thinking, x, value, low, high, largest: the numbers of one series."""

    def field(name: str) -> pl.Expr:
        return option(name.removeprefix("setting.")) if name.startswith("setting.") else pl.col(name)

    return (
        scores.filter(*(field(name) == value for name, value in match.items()))
        .select(
            "model",
            "trained",
            "value",
            low=pl.coalesce("low", "value"),
            high=pl.coalesce("high", "value"),
            data=STAND_IN,
            thinking=option("thinking"),
            x=field(series.x).cast(pl.Float64, strict=False),
            largest=field(series.largest).cast(pl.Float64, strict=False) if series.largest else pl.lit(0.0),
        )
        .drop_nulls(["x", "largest"])
    )


def _lines(points: pl.DataFrame, series: Series, place: int) -> list[Line]:
    lines = []
    for key, group in points.group_by("data", "model", "thinking", "trained", maintain_order=True):
        data, model, thinking, trained = key
        best = group.filter(pl.col("largest") == pl.col("largest").max()).unique("x", keep="first").sort("x")
        name = f"{series.name}, {model_name(str(model), trained=bool(trained))}"
        name += (", thinking" if thinking == "on" else "") + (f" [{data}]" if data else "")
        columns = [best[c].to_list() for c in ("x", "value", "low", "high")]
        lines.append(Line(name, place, *columns))
    return lines


def draw(figure: Figure) -> tuple[str, bytes]:
    """The figure as (SVG text, PNG bytes). An empty panel says why it is empty."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas
    from matplotlib.ticker import MaxNLocator

    spec = figure.spec
    style = {
        "svg.hashsalt": spec.id,
        "svg.fonttype": "path",
        "font.family": "DejaVu Sans",
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    with mpl.rc_context(cast(Any, style)):
        canvas = Canvas(figsize=(4.4 * len(spec.panels) + 0.2, 3.3), layout="constrained")
        FigureCanvasAgg(canvas)
        for place, (panel, lines) in enumerate(zip(spec.panels, figure.panels, strict=True), 1):
            axes = canvas.add_subplot(1, len(spec.panels), place)
            axes.set_title(panel.title, fontsize=10, fontweight="bold", loc="left")
            axes.set_xlabel(spec.xlabel)
            axes.set_ylabel(spec.ylabel)
            axes.set_ylim(0, 100)
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            axes.grid(axis="y", color="#cccccc", linewidth=0.5)
            axes.set_axisbelow(True)
            if not lines:
                axes.set_xticks([])
                axes.text(0.5, 0.5, EMPTY, transform=axes.transAxes, ha="center", va="center", color="#777777")
                continue
            for number, line in enumerate(lines):
                colour = _COLOURS[line.series % len(_COLOURS)]
                marker = _MARKERS[number % len(_MARKERS)]
                every = max(1, len(line.x) // 10)
                axes.plot(
                    line.x,
                    line.y,
                    marker=marker,
                    markersize=3.5,
                    markevery=every,
                    linewidth=1.3,
                    color=colour,
                    label=line.name,
                )
                axes.fill_between(line.x, line.low, line.high, color=colour, alpha=0.12, linewidth=0)
            axes.legend(frameon=False, fontsize=7.5)
        svg, png = io.StringIO(), io.BytesIO()
        canvas.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
        canvas.savefig(png, format="png", dpi=150, metadata={"Software": None})
    return svg.getvalue(), png.getvalue()


def write(figures: Sequence[Figure], folder: Path) -> dict[str, str]:
    """Write `<id>.svg` and `<id>.png` of each figure; returns the SVG texts by id."""
    texts = {}
    for figure in figures:
        svg, png = draw(figure)
        write_atomically(folder / f"{figure.spec.id}.svg", svg.encode())
        write_atomically(folder / f"{figure.spec.id}.png", png)
        texts[figure.spec.id] = svg
    return texts
