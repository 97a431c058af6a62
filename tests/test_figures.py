"""Figures: what the paper draws, what of ours it lacks, and its own numbers beside ours."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from conftest import ROOT
from figure_scores import FIGURES, SPECS, asked, filling, spec
from table_scores import NO_SCORES, OAKS, frame, score
from test_paper_tables import is_there, lines_of
from upkeep.errors import UpkeepError
from upkeep.report import drawing, figures
from upkeep.report.claims import read_claims
from upkeep.report.fields import check
from upkeep.report.reference import read_reference
from upkeep.report.specs import FigureSpec, Panel, Series, read_paper, several


def built(name: str, *rows: dict[str, Any], published: bool = True) -> figures.Figure:
    files = SPECS[name].published if published else []
    return figures.build(SPECS[name], frame(*rows), [read_reference(OAKS / f"reference/{file}.csv") for file in files])


def reference_of(paper: str, file: str) -> Path:
    return ROOT / "papers" / paper / "reference" / f"{file}.csv"


def drawn(spec: FigureSpec, panel: Panel, *, own: bool) -> list[int]:
    """The places of the series that a panel has, of the paper's or of our own alone."""
    return [n for n, series in enumerate(spec.series) if asked(panel, series) and series.own == own]


def stands(line: dict[str, str], spec: FigureSpec, panel: Panel, series: Series) -> bool:
    """Whether a published line has a place in a series of a panel."""
    wanted, place = asked(panel, series), line.get(series.x, "")
    models = list(spec.places) if series.x == "model" else spec.models
    others = {name for name in line if name.startswith("setting.")} - {*wanted, series.x, "setting.thinking"}
    there = series.level or (not series.at and (place in spec.places if spec.places else place.isdigit()))
    return there and not others and is_there(line, wanted) and (not models or line["model"] in models)


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
    assert caught.value.where == "figures.yaml, f"


def test_figures_among_the_tables_are_refused_with_where_they_belong(tmp_path: Path) -> None:
    for name in ("tables.yaml", "figures.yaml"):
        (tmp_path / name).write_text((OAKS / name).read_text())
    assert read_paper(tmp_path) == read_paper(OAKS) and read_paper(OAKS).figures
    (tmp_path / "figures.yaml").unlink()
    assert read_paper(tmp_path).figures == []
    with (tmp_path / "tables.yaml").open("a") as file:
        file.write("figures: [{id: f, title: F, caption: c, xlabel: x, ylabel: y, panels: [], series: []}]\n")
    with pytest.raises(UpkeepError, match="figures among the tables") as caught:
        read_paper(tmp_path)
    assert str(tmp_path / "figures.yaml") in str(caught.value.remedy)


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
