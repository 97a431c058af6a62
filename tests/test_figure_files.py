"""Files of figures: the same bytes each time, and drawn again only where something is another."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import polars as pl
import psutil
import pytest
from matplotlib.figure import Figure as Canvas

from figure_scores import FIGURES, SPECS, filling, spec
from table_scores import NO_SCORES, frame, score
from upkeep.grading.settings import as_rows
from upkeep.helpers import Helpers
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


def made(figure: figures.Figure, folder: Path, helpers: Helpers | None = None) -> Drawn:
    """A figure's files in a folder."""
    drawn = Drawn(folder, helpers)
    drawing.write(figure, drawn)
    drawn.keep()
    return drawn


def test_a_figure_and_that_of_our_own_runs_are_two_files_each(tmp_path: Path) -> None:
    both = [row for end in ("", "_mini") for row in filling(SPECS["figure_7"], end=end)]
    drawn, stems = made(figures.build(SPECS["figure_7"], frame(*both)), tmp_path), ("figure_7", "figure_7_own")
    files = {f"{stem}.{kind}" for stem in stems for kind in ("svg", "png")} | {"drawn.json"}
    assert {path.name for path in tmp_path.iterdir()} == files
    ids = [set(re.findall(r'id="([^"]+)"', drawn.svg(stem))) for stem in stems]
    clips = [{one for one in found if re.fullmatch(r"p[0-9a-f]{10}", one)} for found in ids]
    assert all(clips) and not clips[0] & clips[1], "two pictures on one page have no clip of one name"


def test_no_picture_is_left_of_runs_that_are_gone(tmp_path: Path) -> None:
    own = figures.build(SPECS["figure_6"], frame(*filling(SPECS["figure_6"], end="_mini")))
    made(own, tmp_path)
    assert own.panels == [[]] and list(tmp_path.glob("*_own.*"))
    made(figures.build(SPECS["figure_6"], NO_SCORES), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["drawn.json", "figure_6.png", "figure_6.svg"]


def test_papers_figures_of_one_number_have_no_clip_of_one_name(tmp_path: Path) -> None:
    figure = figures.build(SPECS["figure_6"], NO_SCORES)
    svgs = [made(figure, tmp_path / paper).svg("figure_6") for paper in ("oaks", "prelude")]
    clips = [set(re.findall(r"url\(#(\w+)\)", svg)) for svg in svgs]
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
        drawn = made(figure, tmp_path)
        assert drawn.svg("figure_6") == draw(spec, figure.panels, f"{tmp_path.name}/figure_6")[0]
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


OURS = [figures.build(SPECS[name], frame(*filling(SPECS[name], end="_mini"))) for name in ("figure_6", "figure_7")]


def in_a_folder(helpers: Helpers, folder: Path, meanwhile: Callable[[], object] = lambda: None) -> dict[str, bytes]:
    """Files of some figures, by helpers who are given them all before any is wanted."""
    drawn = Drawn(folder / "oaks", helpers)
    for figure in OURS:
        drawing.write(figure, drawn)
    helpers.end()
    meanwhile()
    drawn.keep()
    return {path.name: path.read_bytes() for path in drawn.folder.iterdir()}


def test_what_other_processes_draw_is_what_this_one_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    alone = in_a_folder(Helpers(0), tmp_path / "alone")
    assert len(alone) == 9

    with Helpers(4) as helpers:
        assert in_a_folder(helpers, tmp_path / "at_once") == alone
    with Helpers(4) as helpers:
        begun = [helpers.begin(drawing.draw, one.spec, one.panels, "a") for one in OURS]
        process = helpers.begin(os.getpid)
        helpers.end()
        while not process.is_done:
            time.sleep(0.01)
        assert process() != os.getpid()
        assert [one() for one in begun] == [drawing.draw(one.spec, one.panels, "a") for one in OURS]


def test_a_figure_whose_process_is_killed_is_drawn_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})

    def kill() -> None:
        while not (children := active_children()):
            time.sleep(0.01)
        (child,) = children
        child.kill()
        child.join()

    with Helpers(4) as helpers:
        killed = in_a_folder(helpers, tmp_path / "killed", kill)
    assert killed == in_a_folder(Helpers(0), tmp_path / "alone")


def test_who_draws_ends_with_the_process_that_it_draws_for_however_that_ends() -> None:
    program = """if True:
        import os, time
        from multiprocessing import active_children
        from upkeep.helpers import Helpers
        os.sched_getaffinity = lambda _: {0, 1}
        with Helpers(4) as helpers:
            drawn = helpers.begin(time.sleep, 600)
            while not active_children():
                pass
            time.sleep(0 if SOON else 4)
            print(helpers, flush=True)
            drawn()
    """
    for soon in ("True", "False"):  # while it starts, and while it draws
        call = [sys.executable, "-c", program.replace("SOON", soon)]
        with subprocess.Popen(call, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None and process.stdout.readline()
            children = psutil.Process(process.pid).children(recursive=True)
            process.kill()
        assert children and psutil.wait_procs(children, 60)[1] == []


def test_where_no_process_can_be_started_all_is_drawn_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})

    def none(*_: object, **__: object) -> None:
        raise OSError(38, "no semaphores")

    monkeypatch.setattr("upkeep.helpers.get_context", none)
    with Helpers(4) as helpers:
        assert len(in_a_folder(helpers, tmp_path)) == 9


def test_a_figure_that_cannot_be_drawn_is_an_error_and_nothing_is_kept(tmp_path: Path) -> None:
    with Helpers(4) as helpers, pytest.raises(ZeroDivisionError):
        drawn = Drawn(tmp_path, helpers)
        drawn.figure("figure_1", "made of", divmod, 1, 0)
        drawn.keep()
    assert not [*tmp_path.iterdir()]
