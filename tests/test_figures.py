"""Figures: what the paper draws, what of ours it lacks, and its own numbers beside ours; the same bytes each time."""

from __future__ import annotations

import math
import re
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pytest
from matplotlib.figure import Figure as Canvas

from conftest import ROOT
from test_paper_tables import PAPERS, is_there, lines_of
from test_tables import NO_SCORES, OAKS, PAPER, frame, score
from upkeep.errors import UpkeepError
from upkeep.grading.settings import as_rows
from upkeep.report import drawing, figures
from upkeep.report.claims import read_claims
from upkeep.report.drawn import Drawn
from upkeep.report.fields import check
from upkeep.report.reference import read_reference
from upkeep.report.specs import FigureSpec, Panel, Series, several

SPECS = {figure.id: figure for figure in PAPER.figures}
FIGURES = {(paper, figure.id): figure for paper, read in PAPERS.items() for figure in read.figures}


def built(name: str, *rows: dict[str, Any], published: bool = True) -> figures.Figure:
    files = SPECS[name].published if published else []
    return figures.build(SPECS[name], frame(*rows), [read_reference(OAKS / f"reference/{file}.csv") for file in files])


def spec(**fields: Any) -> FigureSpec:
    """A figure of one panel over all scores of OAKS-B."""
    common = {"id": "f", "title": "F", "caption": "c", "xlabel": "x", "ylabel": "y"}
    panels = [{"title": "p", "match": {"dataset": "oaks_babi"}}]
    return msgspec.convert(common | {"panels": panels} | fields, FigureSpec)


def reference_of(paper: str, file: str) -> Path:
    return ROOT / "papers" / paper / "reference" / f"{file}.csv"


def asked(panel: Panel, series: Series) -> dict[str, list[str]]:
    """What a series of a panel asks for, field by field; empty where the two have a field in which they do not meet."""
    names = {**panel.match, **series.match}
    allowed = {n: [set(several(match[n])) for match in (panel.match, series.match) if n in match] for n in names}
    meeting = {name: sorted(set.intersection(*values)) for name, values in allowed.items()}
    return meeting if all(meeting.values()) else {}


def drawn(spec: FigureSpec, panel: Panel, *, own: bool) -> list[int]:
    """The places of the series that a panel has, of the paper's or of our own alone."""
    return [n for n, series in enumerate(spec.series) if asked(panel, series) and series.own == own]


def filling(spec: FigureSpec, end: str = "", **changed: Any) -> list[dict[str, Any]]:
    """A score for each series of each panel; where there is another one on the axis, that too."""
    rows = []
    for panel, series in product(spec.panels, spec.series):
        values = {name: allowed[0] for name, allowed in asked(panel, series).items()}
        if not values:
            continue
        values |= {"model": spec.models[0]} if spec.models else {}
        if series.x:
            values[series.x] = next(iter(spec.places), "3")
        if series.largest:
            values[series.largest] = "60"
        values |= changed
        settings = [name for name in values if name.startswith("setting.")]
        plain = {name: value for name, value in values.items() if name not in settings} | {
            "setting": ";".join(f"{name.removeprefix('setting.')}={values[name]}" for name in settings if values[name]),
            "cell": f"{panel.title}/{series.name}",
            "dataset_id": values["dataset"] + end,
        }
        at = [series.at] if series.at else []
        rows += [score(**plain | other) for other in [{"metric": name} for name in series.quantiles] or [{}, *at]]
    return rows


def stands(line: dict[str, str], spec: FigureSpec, panel: Panel, series: Series) -> bool:
    """Whether a published line has a place in a series of a panel."""
    wanted, place = asked(panel, series), line.get(series.x, "")
    models = list(spec.places) if series.x == "model" else spec.models
    others = {name for name in line if name.startswith("setting.")} - {*wanted, series.x, "setting.thinking"}
    there = series.level or (not series.at and (place in spec.places if spec.places else place.isdigit()))
    return there and not others and is_there(line, wanted) and (not models or line["model"] in models)


# ------------------------------------------------------------------ what is drawn


def test_a_figure_has_a_line_for_each_method_and_those_of_other_models_apart() -> None:
    sweep = [score(method="rag_dense", setting=f"k={k};thinking=off", value=float(k)) for k in (30, 5, 60)]
    window = [score(method="rolling_window", setting="window=30;thinking=off", model="tiny", trained=False)]
    figure = built("figure_6", *sweep, *window, published=False)
    ((papers,), (ours,)) = figure.panels, figure.ours
    assert [trace.name for trace in papers] == ["RAG, Qwen3-30B"]
    assert papers[0].x == papers[0].y == [5, 30, 60]
    assert [trace.name for trace in ours] == ["RW, tiny (untrained)"]


@pytest.mark.parametrize(
    ("other", "name"),
    [
        ({"model": "Mine"}, "RAG, Mine"),
        ({"trained": False}, "RAG, Qwen3-30B (untrained)"),
        ({"dataset_id": "oaks_babi_mini"}, "RAG, Qwen3-30B [mini]"),
        ({"setting": "k=5;order=position;thinking=off"}, "RAG, Qwen3-30B, order=position"),
        ({"setting": "k=5;retriever=all-MiniLM-L6-v2;thinking=off"}, "RAG, Qwen3-30B, retriever=all-MiniLM-L6-v2"),
    ],
)
def test_no_run_that_the_paper_lacks_is_drawn_with_its_runs_nor_lost(other: dict[str, Any], name: str) -> None:
    own = {"method": "rag_dense", "setting": "k=5;thinking=off", "value": 1.0}
    figure = built("figure_6", score(**own), score(**(own | other | {"value": 99.0})), published=False)
    assert [(trace.name, trace.y) for trace in figure.panels[0]] == [("RAG, Qwen3-30B", [1.0])]
    assert [(trace.name, trace.y) for trace in figure.ours[0]] == [(name, [99.0])]


def test_pass_at_k_is_drawn_from_the_deepest_run_and_of_the_papers_retriever() -> None:
    rows = [
        score(method=method, metric="pass_at_k", setting=f"k={k};thinking=off;at={at}", value=float(k + at))
        for method in ("rag_dense", "rag_bm25")
        for k in (5, 60)
        for at in (1, 2)
    ]
    figure = built("figure_5", *rows)
    assert [(trace.name, trace.x, trace.y) for trace in figure.panels[0]] == [("dense, Qwen3-30B", [1, 2], [61, 62])]
    assert [(trace.name, trace.y) for trace in figure.ours[0]] == [("BM25, Qwen3-30B", [61, 62])]
    assert figure.panels[1] == figure.ours[1] == []


def test_published_numbers_are_drawn_beside_ours_where_the_paper_prints_any() -> None:
    own = score(subset="bridge", value=20.0, low=15.0, high=25.0)
    (traces,) = built("figure_2", own).panels
    (ours,), (papers,) = ([t for t in traces if t.published is which] for which in (False, True))
    assert (ours.name, ours.x, ours.y, ours.low, ours.high) == ("Accuracy, Qwen3-30B", [2], [20], [15], [25])
    table_3 = read_reference(OAKS / "reference/table_3.csv").filter(pl.col("model") == "Qwen3-30B")
    off = {row["subset"]: float(row["value"]) for row in table_3.iter_rows(named=True) if "off" in str(row["setting"])}
    assert papers.name == ours.name, "they stand at the same bar"
    assert papers.y == [off[kind] for kind in ("tracking", "counting", "bridge", "comparison")]
    assert [t.published for t in built("figure_7").panels[0]] == [True, True]
    assert {t.x[0] for t in built("figure_7").panels[0]} == {30}


def test_questions_are_drawn_by_how_often_their_answer_changes() -> None:
    own = {"model": "", "method": "", "cell": "", "label": "OAKS-B", "metric": "questions_by_phases"}
    rows = [score(**own, setting=f"phases={n}", value=100.0 / n, low=None, high=None) for n in (20, 3, 2)]
    ((trace,), _) = built("figure_4", *rows).panels
    assert (trace.name, trace.x, trace.y) == ("questions", [2, 3, 20], [50, 100 / 3, 5])


def test_a_place_may_be_another_score_of_the_same_cell() -> None:
    series = [{"name": "all", "match": {"metric": "accuracy"}, "at": {"metric": "tokens"}}]
    rows = [score(cell=f"a/b/c/{n}", model=n, metric=m, value=v) for n, m, v in (
        ("x", "accuracy", 10.0), ("x", "tokens", 4000.0), ("y", "accuracy", 20.0), ("z", "tokens", 1.0)
    )]  # fmt: skip
    (traces,) = figures.build(spec(kind="scatter", series=series), frame(*rows)).panels
    assert [(trace.name, trace.x, trace.y) for trace in traces] == [("all, x", [4000], [10])]


def test_a_level_has_no_place_on_the_horizontal_axis() -> None:
    series = [
        {"name": "RAG", "match": {"method": "rag_dense"}, "x": "setting.k"},
        {"name": "none", "match": {"method": "closed_book"}, "level": True},
    ]
    rows = [score(method="rag_dense", setting=f"k={k}") for k in (1, 5)] + [score(method="closed_book", value=3.0)]
    shown = spec(series=series)
    (traces,) = figures.build(shown, frame(*rows)).panels
    assert [(trace.name, trace.x, trace.level) for trace in traces] == [
        ("RAG, Qwen3-30B", [1, 5], False),
        ("none, Qwen3-30B", [0], True),
    ]
    assert drawing.draw(shown, [traces]) != drawing.draw(shown, [traces[:1]])


def test_a_box_is_five_scores_of_a_cell() -> None:
    names = ["q05", "q25", "q50", "q75", "q95"]
    series = [{"name": "tokens", "match": {}, "x": "subset", "quantiles": names}]
    rows = [
        score(metric=m, subset=s, value=float(n)) for s in ("a", "b") for n, m in enumerate(names) if s + m != "bq50"
    ]
    figure = figures.build(spec(kind="box", places={"a": "A", "b": "B"}, series=series), frame(*rows))
    ((trace,),) = figure.panels
    assert (trace.x, trace.low, trace.edges, trace.y, trace.high) == ([0], [0], [(1, 3)], [2], [4])


def test_where_models_are_the_places_ours_come_after_the_papers() -> None:
    by_model = spec(kind="bars", places={"A": "a", "B": "b"}, series=[{"name": "s", "match": {}, "x": "model"}])
    rows = [
        score(model="B", value=2.0),
        score(model="Mine", value=3.0),
        score(model="A", value=1.0),
        score(model="A", value=4.0, dataset_id="oaks_babi_mini"),
        score(model="tiny", value=5.0, trained=False),
        score(model="A", value=6.0, setting="k=5;thinking=off"),
    ]
    figure = figures.build(by_model, frame(*rows))
    assert [(trace.name, trace.x, trace.y) for trace in figure.panels[0]] == [("s", [0, 1], [1, 2])]
    assert {(trace.name, *trace.x, *trace.y) for trace in figure.ours[0]} == {
        ("s", 2, 3),
        ("s [mini]", 0, 4),
        ("s, untrained", 3, 5),
        ("s, k=5", 0, 6),
    }
    assert figure.spec.places == {"A": "a", "B": "b"}
    assert list(figure.own_spec.places.items()) == [("A", "a"), ("B", "b"), ("Mine", "Mine"), ("tiny", "tiny")]


def test_a_series_has_in_a_panel_what_both_ask_for() -> None:
    panels = [{"title": d, "match": {"dataset": d, "method": ["long_context", "rag_dense"]}} for d in ("a", "b")]
    series = [
        {"name": "in both", "match": {"method": "long_context"}, "level": True},
        {"name": "in one", "match": {"method": ["rag_dense", "rag_bm25"], "dataset": ["b", "c"]}, "level": True},
        {"name": "in none", "match": {"dataset": "c"}, "level": True},
    ]
    rows = [score(dataset=d, method=m) for d in "abc" for m in ("long_context", "rag_dense", "rag_bm25")]
    figure = figures.build(spec(panels=panels, series=series), frame(*rows))
    assert [[trace.series for trace in traces] for traces in figure.panels] == [[0], [0, 1]]


@pytest.mark.parametrize(
    "wrong",
    [
        {"series": [{"name": "s", "match": {}}]},
        {"series": [{"name": "s", "match": {}, "x": "subset", "at": {"metric": "tokens"}}]},
        {"series": [{"name": "s", "match": {}, "x": "subset", "level": True}]},
        {"kind": "bars", "series": [{"name": "s", "match": {}, "x": "subset"}]},
        {"kind": "box", "places": {"a": "A"}, "series": [{"name": "s", "match": {}, "x": "subset"}]},
    ],
)
def test_a_figure_that_does_not_say_where_things_stand_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UpkeepError) as caught:
        figures.build(spec(**wrong), NO_SCORES)
    assert caught.value.where == "tables.yaml, f"


@pytest.mark.parametrize(("paper", "name"), FIGURES)
def test_every_series_is_filled_by_its_like_and_by_nothing_else(paper: str, name: str) -> None:
    """What runs of the paper's models on its release give is the paper's; on a stand-in, or of another model, ours."""
    spec = FIGURES[paper, name]

    def series_of(panels: list[list[figures.Trace]]) -> list[list[int]]:
        return [[trace.series for trace in traces] for traces in panels]

    papers, own = ([drawn(spec, panel, own=which) for panel in spec.panels] for which in (False, True))
    every = [sorted(one + other) for one, other in zip(papers, own, strict=True)]
    assert all(papers) and {n for places in every for n in places} == set(range(len(spec.series)))
    figure = figures.build(spec, frame(*filling(spec)))
    assert series_of(figure.panels) == papers and series_of(figure.ours) == own
    others = [{"end": "_mini"}]
    if spec.models or any(series.x == "model" for series in spec.series):
        others.append({"model": "Mine"})
    for other in others:
        figure = figures.build(spec, frame(*filling(spec, **other)))
        assert not any(figure.panels) and series_of(figure.ours) == every


@pytest.mark.parametrize(("paper", "name"), [key for key, spec in FIGURES.items() if spec.published])
def test_published_numbers_are_drawn_as_printed_and_each_at_a_place_of_its_own(paper: str, name: str) -> None:
    """Those that the files have, read without the suite; and no file is named in vain."""
    spec, useful = FIGURES[paper, name], set()
    lines = [(file, line) for file in spec.published for line in lines_of(reference_of(paper, file))]
    figure = figures.build(spec, NO_SCORES, [read_reference(reference_of(paper, file)) for file in spec.published])
    for panel, traces in zip(spec.panels, figure.panels, strict=True):
        assert all(trace.published for trace in traces)
        for n in drawn(spec, panel, own=False):
            here = [(file, line) for file, line in lines if stands(line, spec, panel, spec.series[n])]
            values = [y for trace in traces if trace.series == n for y in trace.y]
            assert sorted(values) == sorted(float(line["value"]) for _, line in here)
            useful |= {file for file, _ in here}
    assert useful == set(spec.published) and not any(figure.ours)


@pytest.mark.parametrize(("paper", "name"), FIGURES)
def test_figures_name_fields_metrics_and_models_that_exist(paper: str, name: str) -> None:
    spec, folder = FIGURES[paper, name], ROOT / "papers" / paper
    printed = [line for path in folder.glob("reference/*.csv") for line in lines_of(path)]
    matches = [part.match for part in (*spec.panels, *spec.series)] + [series.at or {} for series in spec.series]
    check({name for match in matches for name in match} | {series.x for series in spec.series if series.x}, name)
    metrics = {metric for match in matches for metric in several(match.get("metric", []))}
    described = set(re.findall(r"`(\w+)`", (ROOT / "papers/FORMAT.md").read_text(encoding="utf-8")))
    assert metrics <= described | {line["metric"] for line in printed}
    models = [*spec.models, *(spec.places if any(series.x == "model" for series in spec.series) else [])]
    claimed = {model for claim in read_claims(folder) for model in claim.needs.models}
    assert set(models) <= claimed | {line["model"] for line in printed}
    files = {f"{file}.csv" for file in spec.published}
    assert files <= {path.name for path in folder.glob("reference/*.csv")}


# ------------------------------------------------------------------ files


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
