"""Figures as SVG and PNG, byte for byte the same from the same scores."""

from __future__ import annotations

import io
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, cast

from upkeep.report.drawn import Drawn
from upkeep.report.figures import Figure, Trace
from upkeep.report.specs import FigureSpec

EMPTY = "no run of this kind\nin this suite"

_COLOURS = ("#3366aa", "#cc5533", "#3a8a5c", "#8855aa", "#997700", "#4d4d4d")
_MARKERS = "osD^v<>P*X"
_HATCHES = ("", "//", "..", "xx", "\\\\", "++")
_GROUP = 0.8
"""Width of all bars or boxes at one place, where places are 1 apart."""
_MANY, _LONG = 6, 28
"""More names than these, or longer ones, stand below a panel and not in it, one to a line where they are long."""
_LINE, _LETTER = 0.15, 0.075
"""Height of a line of names, and width of a letter below a panel, in inches."""
_ROOM = 44
"""As many letters stand below a panel side by side; longer names of its places are written upwards."""


def own(figure: Figure) -> str:
    """The name of what is drawn of our own runs beside a paper's figure."""
    return f"{figure.spec.id}_own"


def write(figure: Figure, drawn: Drawn) -> None:
    """Have `<id>.svg` and `<id>.png` drawn, and `<id>_own` of what the paper's figure lacks, where there is any."""
    for stem, spec, panels, wanted in (
        (figure.spec.id, figure.spec, figure.panels, True),
        (own(figure), figure.own_spec, figure.ours, any(figure.ours)),
    ):
        if wanted:
            given = spec, panels, f"{drawn.folder.name}/{stem}"
            drawn.figure(stem, given, draw, *given)
        else:
            drawn.none(stem)


def draw(spec: FigureSpec, panels: Sequence[Sequence[Trace]], salt: str = "") -> tuple[str, bytes]:
    """A figure as (SVG text, PNG bytes). An empty panel says why it is empty.

    Args:
        salt: makes the ids within the SVG other than those of another figure on the same page.
    """
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    style = {
        "svg.hashsalt": salt or spec.id,
        "svg.fonttype": "path",
        "font.family": "DejaVu Sans",
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "hatch.linewidth": 0.5,
    }
    with mpl.rc_context(cast(Any, style)):
        below = max((_lines_below(traces) for traces in panels), default=0)
        height = 3.3 + _LINE * below + _LETTER * _upwards(spec)
        canvas = Canvas(figsize=(4.4 * len(spec.panels) + 0.2, height), layout="constrained")
        FigureCanvasAgg(canvas)
        for place, (panel, traces) in enumerate(zip(spec.panels, panels, strict=True), 1):
            axes = canvas.add_subplot(1, len(spec.panels), place)
            axes.set_title(panel.title, fontsize=10, fontweight="bold", loc="left")
            _axes(axes, spec)
            if not traces:
                axes.set_ylim(spec.bottom, spec.top or (spec.bottom or 0) + 1)
                axes.set_xticks([])
                axes.text(0.5, 0.5, EMPTY, transform=axes.transAxes, ha="center", va="center", color="#777777")
                continue
            draw_kind = {"lines": _lines, "scatter": _scatter, "bars": _bars, "histogram": _bars, "box": _boxes}
            draw_kind[spec.kind](axes, spec, [trace for trace in traces if not trace.level])
            _levels(axes, [trace for trace in traces if trace.level])
            if spec.log and spec.places:
                axes.set_yscale("log")
                axes.set_ylim(None, spec.top)
            else:
                axes.set_ylim(spec.bottom, spec.top)  # as high as what is drawn, where there is no top
            _names(axes, spec, traces)
        svg, png = io.StringIO(), io.BytesIO()
        canvas.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
        canvas.set_layout_engine("none")  # everything has its place; finding it takes as long as drawing
        canvas.savefig(png, format="png", dpi=150, metadata={"Software": None})
    return svg.getvalue(), png.getvalue()


def _longest(traces: Sequence[Trace]) -> int:
    return max((len(trace.name) for trace in traces), default=0)


def _lines_below(traces: Sequence[Trace]) -> int:
    """Lines that names take below a panel."""
    if len(traces) <= _MANY and _longest(traces) <= _LONG:
        return 0
    return len(traces) if _longest(traces) > _LONG else math.ceil(len(traces) / 2)


def _names(axes: Any, spec: FigureSpec, traces: Sequence[Trace]) -> None:
    """What is what: in the panel where there is room, else under the names of its places and its axis."""
    from matplotlib.transforms import ScaledTranslation

    style: dict[str, Any] = {"frameon": False, "fontsize": 7.5}
    if _lines_below(traces):
        inches = 0.42 + _LETTER * _upwards(spec)
        lower = axes.transAxes + ScaledTranslation(0, -inches, axes.figure.dpi_scale_trans)
        style |= {"loc": "upper center", "bbox_to_anchor": (0.5, 0), "bbox_transform": lower}
        style |= {"ncols": 1 if _longest(traces) > _LONG else 2}
    axes.legend(**style)


def _upwards(spec: FigureSpec) -> int:
    """Letters of the longest name of a place, where they are written upwards."""
    longest = max(map(len, spec.places.values()), default=0)
    return longest if longest * len(spec.places) > _ROOM else 0


def _axes(axes: Any, spec: FigureSpec) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_xlabel(spec.xlabel)
    axes.set_ylabel(spec.ylabel)
    if spec.places:
        axes.set_xlim(-0.6, len(spec.places) - 0.4)
        axes.set_xticks(range(len(spec.places)), list(spec.places.values()))
        if _upwards(spec):
            axes.tick_params(axis="x", labelrotation=90)
    elif spec.log:
        axes.set_xscale("log")
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(axis="y", color="#cccccc", linewidth=0.5)
    axes.set_axisbelow(True)


def _colour(trace: Trace) -> str:
    return _COLOURS[trace.series % len(_COLOURS)]


def _errors(trace: Trace) -> list[list[float]]:
    """How far intervals reach below and above; not a number, which draws no bar, where there is none."""
    reach = [
        (y - low, high - y) if low < high else (math.nan, math.nan)
        for y, low, high in zip(trace.y, trace.low, trace.high, strict=True)
    ]
    return [[below for below, _ in reach], [above for _, above in reach]]


def _published(axes: Any, traces: Sequence[Trace], shift: dict[str, float] | None = None) -> None:
    """The paper's own numbers, as hollow diamonds."""
    for number, trace in enumerate(trace for trace in traces if trace.published):
        axes.plot(
            [x + (shift or {}).get(trace.name, 0) for x in trace.x],
            trace.y,
            linestyle="none",
            marker="D",
            markersize=6,
            markerfacecolor="none",
            markeredgecolor="#222222",
            label="published" if number == 0 else "_published",
            zorder=5,
        )


def _levels(axes: Any, traces: Sequence[Trace]) -> None:
    for trace in traces:
        name = f"{trace.name}, published" if trace.published else trace.name
        colour = "#222222" if trace.published else _colour(trace)
        axes.axhline(trace.y[0], linestyle=":" if trace.published else "--", linewidth=1, color=colour, label=name)


def _lines(axes: Any, spec: FigureSpec, traces: Sequence[Trace]) -> None:
    for number, trace in enumerate(trace for trace in traces if not trace.published):
        axes.plot(
            trace.x,
            trace.y,
            marker=_MARKERS[number % len(_MARKERS)],
            markersize=3.5,
            markevery=max(1, len(trace.x) // 10),
            linewidth=1.3,
            color=_colour(trace),
            label=trace.name,
        )
        if spec.spread == "band":
            axes.fill_between(trace.x, trace.low, trace.high, color=_colour(trace), alpha=0.12, linewidth=0)
        else:
            axes.errorbar(trace.x, trace.y, _errors(trace), fmt="none", ecolor=_colour(trace), elinewidth=1, capsize=2)
    _published(axes, traces)


def _scatter(axes: Any, spec: FigureSpec, traces: Sequence[Trace]) -> None:
    for number, trace in enumerate(trace for trace in traces if not trace.published):
        axes.errorbar(
            trace.x,
            trace.y,
            _errors(trace),
            fmt=_MARKERS[number % len(_MARKERS)],
            markersize=5,
            color=_colour(trace),
            elinewidth=1,
            capsize=2,
            label=trace.name,
        )
    _published(axes, traces)


def _slots(traces: Sequence[Trace]) -> dict[str, float]:
    """How far from its place the bar or box of each name stands; a published one stands with ours of its name."""
    names = list(dict.fromkeys(trace.name for trace in traces))
    return {name: (number + 0.5) * _GROUP / len(names) - _GROUP / 2 for number, name in enumerate(names)}


def _hatched(traces: Sequence[Trace]) -> Iterator[tuple[Trace, str]]:
    """What is our own, with a hatch that tells those of one colour apart: runs of one series, and series beyond the
    colours that there are."""
    seen: Counter[str] = Counter()
    for trace in traces:
        if not trace.published:
            yield trace, _HATCHES[seen[_colour(trace)] % len(_HATCHES)]
            seen[_colour(trace)] += 1


def _bars(axes: Any, spec: FigureSpec, traces: Sequence[Trace]) -> None:
    slots = _slots(traces)
    for trace, hatch in _hatched(traces):
        at = [x + slots[trace.name] for x in trace.x]
        axes.bar(
            at,
            trace.y,
            _GROUP / len(slots),
            color=_colour(trace),
            hatch=hatch,
            edgecolor="white",
            linewidth=0.5,
            label=trace.name,
        )
        if spec.kind == "bars":
            axes.errorbar(at, trace.y, _errors(trace), fmt="none", ecolor="#333333", elinewidth=0.9, capsize=2)
    _published(axes, traces, slots)


def _boxes(axes: Any, spec: FigureSpec, traces: Sequence[Trace]) -> None:
    slots = _slots(traces)
    for trace, hatch in _hatched(traces):
        boxes = [
            {"med": middle, "q1": lower, "q3": upper, "whislo": low, "whishi": high}
            for middle, (lower, upper), low, high in zip(trace.y, trace.edges, trace.low, trace.high, strict=True)
        ]
        axes.bxp(
            boxes,
            positions=[x + slots[trace.name] for x in trace.x],
            widths=0.9 * _GROUP / len(slots),
            showfliers=False,
            patch_artist=True,
            manage_ticks=False,
            boxprops={"facecolor": _colour(trace), "alpha": 0.5, "hatch": hatch},
            medianprops={"color": "#111111"},
            label=trace.name,
        )
