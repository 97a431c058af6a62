"""Figures: what the paper draws, what of ours it lacks, and its own numbers beside ours; the same bytes each time."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pytest

from test_tables import NO_SCORES, OAKS, PAPER, frame, score
from upkeep.errors import UpkeepError
from upkeep.grading.settings import as_rows
from upkeep.report import drawing, figures
from upkeep.report.reference import read_reference
from upkeep.report.specs import FigureSpec

SPECS = {figure.id: figure for figure in PAPER.figures}


def built(name: str, *rows: dict[str, Any], published: bool = True) -> figures.Figure:
    files = SPECS[name].published if published else []
    return figures.build(SPECS[name], frame(*rows), [read_reference(OAKS / f"reference/{file}.csv") for file in files])


def spec(**fields: Any) -> FigureSpec:
    """A figure of one panel over all scores of OAKS-B."""
    common = {"id": "f", "title": "F", "caption": "c", "xlabel": "x", "ylabel": "y"}
    panels = [{"title": "p", "match": {"dataset": "oaks_babi"}}]
    return msgspec.convert(common | {"panels": panels} | fields, FigureSpec)


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


@pytest.mark.parametrize("name", SPECS)
def test_every_figure_of_the_paper_is_drawn_with_and_without_scores(name: str, tmp_path: Path) -> None:
    rows = [
        score(method=method, metric=metric, subset=subset, setting=setting, dataset=dataset, dataset_id=dataset + end)
        for dataset in ("oaks_babi", "oaks_novel")
        for end in ("", "_mini")
        for method in ("long_context", "rag_dense", "rolling_window", "")
        for metric in ("accuracy", "accuracy_in_tenth", "pass_at_k", "phase_miss", "questions_by_phases")
        for subset in ("all", "tracking", "bridge")
        for setting in ("thinking=off;at=3;k=30", "thinking=off;window=3", "thinking=off", "phases=4")
    ]
    for scores in (NO_SCORES, frame(*rows)):
        figure = figures.build(SPECS[name], scores)
        svgs = drawing.write(figure, tmp_path)
        assert all("<svg" in svg for svg in svgs[: 1 + any(figure.ours)])
        files = {path.name for path in tmp_path.iterdir()}
        stems = [name, f"{name}_own"] if any(figure.ours) else [name]
        assert files == {f"{stem}.{kind}" for stem in stems for kind in ("svg", "png")}
        ids = [set(re.findall(r'id="([^"]+)"', svg)) for svg in svgs]
        clips = [{one for one in found if re.fullmatch(r"p[0-9a-f]{10}", one)} for found in ids]
        assert not clips[0] & clips[1], "two pictures on one page have no clip of one name"
    drawing.write(figures.build(SPECS[name], NO_SCORES), tmp_path)
    assert not list(tmp_path.glob("*_own.*")), "no picture is left of runs that are gone"
