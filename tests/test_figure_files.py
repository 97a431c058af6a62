"""Files of figures: the same bytes each time, and drawn again only where something is another."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from matplotlib.figure import Figure as Canvas

from figure_scores import FIGURES, SPECS, filling, spec
from table_scores import NO_SCORES, frame, score
from upkeep.grading.settings import as_rows
from upkeep.report import drawing, figures
from upkeep.report.drawn import Drawn
from upkeep.report.specs import FigureSpec


def many(kind: str, **options: Any) -> tuple[FigureSpec, pl.DataFrame]:
    """A figure of a kind, and scores that fill it."""
    named = kind in ("bars", "box")
    quantiles = ["q1", "q2", "q3", "q4", "q5"] if kind == "box" else []
    series = [
        {"name": f"s{n}", "match": {"label": f"s{n}"}, "x": "subset" if named else "setting.k", "quantiles": quantiles}
        for n in range(3)
    ]
    rows = [
        score(label=f"s{n}", model=model, metric=metric, value=value, low=value - 3, high=value + 3)
        | ({"subset": "abc"[k], "setting": []} if named else {"setting": as_rows((("k", str(k + 1)),))})
        for n in range(3)
        for model in ("M <&> 1", "Ä ±2")
        for k in range(3)
        for value, metric in [(20.0 + 7 * n + k + 4 * i, q) for i, q in enumerate(quantiles or ["accuracy"])]
    ]
    places = {"a": "A", "b": "B", "c": "C"} if named else {}
    return spec(kind=kind, places=places, series=series, **options), frame(*rows)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        *((kind, {}) for kind in ("lines", "bars", "scatter", "box", "histogram")),
        ("lines", {"spread": "bars"}),
        ("scatter", {"log": True}),
        ("bars", {"log": True, "top": None}),
    ],
)
def test_every_kind_is_drawn_to_the_same_bytes_each_time(kind: str, options: dict[str, Any]) -> None:
    shown, scores = many(kind, **options)
    figure = figures.build(shown, scores)
    assert len(figure.panels[0]) == 6
    first, second = drawing.draw(shown, figure.panels), drawing.draw(shown, figure.panels)
    assert first == second
    again = figures.build(shown, scores.sample(fraction=1, shuffle=True, seed=1))
    assert sorted(t.name for t in again.panels[0]) == sorted(t.name for t in figure.panels[0])
    assert first[1].startswith(b"\x89PNG") and first[0].count("<svg") == 1
    assert drawing.draw(shown, [[]])[0] != first[0] and "no run" in drawing.EMPTY


@pytest.mark.parametrize("runs", [1, 3])
def test_no_two_bars_look_the_same_where_there_are_more_series_than_colours(runs: int) -> None:
    traces = [figures.Trace(f"{n} {run}", n, [0], [1], [1], [1]) for n in range(36 // runs) for run in range(runs)]
    looks = [(drawing._colour(trace), hatch) for trace, hatch in drawing._hatched(traces)]
    assert len(set(looks)) == len(looks) == 36


def test_a_figure_without_a_top_is_as_high_as_its_numbers() -> None:
    shown = spec(kind="histogram", top=None, series=[{"name": "s", "match": {}, "x": "setting.k"}])
    pictures = [
        drawing.draw(shown, figures.build(shown, frame(*rows)).panels)[1]
        for rows in [
            [score(setting=f"k={k}", value=value) for k, value in enumerate(v)] for v in ((5.0, 50.0), (50.0, 50.0))
        ]
    ]
    assert pictures[0] != pictures[1]


def test_what_has_no_interval_has_no_error_bar() -> None:
    series = [{"name": "s", "match": {}, "x": "subset"}]
    shown = spec(kind="bars", places={"a": "A", "b": "B"}, series=series)
    rows = [score(subset="a", low=30.0, high=40.0), score(subset="b", low=None, high=None)]
    ((trace,),) = figures.build(shown, frame(*rows)).panels
    below, above = drawing._errors(trace)
    assert [below[0], above[0]] == pytest.approx([6.24, 3.76]) and math.isnan(below[1]) and math.isnan(above[1])
    assert "nan" not in drawing.draw(shown, [[trace]])[0].lower()


@pytest.mark.parametrize(("paper", "name"), FIGURES)
@pytest.mark.filterwarnings("error::UserWarning")
def test_panels_of_every_figure_keep_their_room_beside_what_is_written(
    paper: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most is written of runs on a stand-in. The picture is laid out and not drawn, which takes longer."""
    spec, panels = FIGURES[paper, name], []

    def lay_out(canvas: Canvas, *_: object, format: str, **__: object) -> None:
        if format == "svg":
            canvas.draw_without_rendering()
            panels.extend((axes, canvas.get_figheight(), canvas.get_figwidth()) for axes in canvas.axes)

    monkeypatch.setattr(Canvas, "savefig", lay_out)
    ours = figures.build(spec, frame(*filling(spec, end="_mini")))
    drawing.draw(ours.own_spec, ours.ours)
    assert len(panels) == len(spec.panels)
    for axes, height, width in panels:
        room = axes.get_position()
        assert room.height * height > 1.5 and room.width * width > 2.5, "inches"
        if spec.log and spec.places:
            assert (axes.get_xscale(), axes.get_yscale()) == ("linear", "log")
        else:
            assert spec.bottom in (None, axes.get_ylim()[0]) and axes.get_yscale() == "linear"
            assert axes.get_xscale() == ("log" if spec.log else "linear")


def test_a_figure_and_that_of_our_own_runs_are_two_files_each(tmp_path: Path) -> None:
    both = [row for end in ("", "_mini") for row in filling(SPECS["figure_7"], end=end)]
    svgs = drawing.write(figures.build(SPECS["figure_7"], frame(*both)), Drawn(tmp_path))
    stems = ("figure_7", "figure_7_own")
    assert {path.name for path in tmp_path.iterdir()} == {f"{stem}.{kind}" for stem in stems for kind in ("svg", "png")}
    ids = [set(re.findall(r'id="([^"]+)"', svg)) for svg in svgs]
    clips = [{one for one in found if re.fullmatch(r"p[0-9a-f]{10}", one)} for found in ids]
    assert all(clips) and not clips[0] & clips[1], "two pictures on one page have no clip of one name"


def test_no_picture_is_left_of_runs_that_are_gone(tmp_path: Path) -> None:
    own = figures.build(SPECS["figure_6"], frame(*filling(SPECS["figure_6"], end="_mini")))
    assert own.panels == [[]] and drawing.write(own, Drawn(tmp_path))[1] and list(tmp_path.glob("*_own.*"))
    assert drawing.write(figures.build(SPECS["figure_6"], NO_SCORES), Drawn(tmp_path))[1] == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["figure_6.png", "figure_6.svg"]


def test_papers_figures_of_one_number_have_no_clip_of_one_name(tmp_path: Path) -> None:
    figure = figures.build(SPECS["figure_6"], NO_SCORES)
    clips = [
        set(re.findall(r"url\(#(\w+)\)", drawing.write(figure, Drawn(tmp_path / paper))[0]))
        for paper in ("oaks", "prelude")
    ]
    assert clips[0] and not clips[0] & clips[1]


def test_a_figure_is_drawn_again_only_if_its_data_its_code_or_its_files_are_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, calls, draw = SPECS["figure_6"], [], drawing.draw
    monkeypatch.setattr(drawing, "draw", lambda *given: (calls.append(given), draw(*given))[1])
    figure = figures.build(spec, frame(*filling(spec)))
    other = figures.build(spec, frame(*filling(spec)[1:]))

    def drawings(figure: figures.Figure) -> int:
        calls.clear()
        drawn = Drawn(tmp_path)
        svg, _ = drawing.write(figure, drawn)
        drawn.keep()
        assert (
            svg == (tmp_path / "figure_6.svg").read_text() == draw(spec, figure.panels, f"{tmp_path.name}/figure_6")[0]
        )
        return len(calls)

    assert [drawings(figure), drawings(figure), drawings(other), drawings(figure)] == [1, 0, 1, 1]
    for name in ("figure_6.svg", "figure_6.png", "drawn.json"):
        content = (tmp_path / name).read_bytes()
        for damaged in (content[:-9] + b"x" + content[-8:], b"", None):
            (tmp_path / name).unlink() if damaged is None else (tmp_path / name).write_bytes(damaged)
            assert (drawings(figure), drawings(figure)) == (1, 0), (name, damaged is None)
            assert (tmp_path / name).read_bytes() == content
    monkeypatch.setattr("upkeep.report.drawn.version", lambda _: "another")
    assert drawings(figure) == 1
