"""Tables, figures and the page: own and published numbers side by side, and why a place is empty."""

from __future__ import annotations

import csv
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from upkeep.catalog import Catalog, Cell
from upkeep.errors import UpkeepError
from upkeep.grading.score import SCORE_SCHEMA
from upkeep.grading.scores import score_suite
from upkeep.report import figures, page, tables

ROOT = Path(__file__).resolve().parents[1]
OAKS = ROOT / "papers" / "oaks"
PAPER = tables.read_paper(OAKS)
SPECS = {spec.id: spec for spec in PAPER.tables}
NO_SCORES = pl.DataFrame(schema=SCORE_SCHEMA)
NOTHING_WAITS = pl.DataFrame(schema=page.PENDING_SCHEMA)


def score(**fields: Any) -> dict[str, Any]:
    """A score of our own: by default what Table 2 has for Qwen3-30B, Base, OAKS-B, All."""
    row = {
        "table": "",
        "label": "Base",
        "model": "Qwen3-30B",
        "method": "long_context",
        "supervision": "",
        "setting": "thinking=off",
        "dataset": "oaks_babi",
        "subset": "all",
        "metric": "accuracy",
        "value": 36.24,
        "unit": "percent",
        "n": 78000,
        "questions": 1200,
        "se": 0.5,
        "low": 35.24,
        "high": 37.24,
        "cell": "oaks_babi/long_context/default/qwen3-30b",
        "trained": True,
    } | fields
    return {"dataset_id": row["dataset"], **row}


def frame(*rows: dict[str, Any]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=SCORE_SCHEMA)


def table(name: str, scores: pl.DataFrame = NO_SCORES, pending: pl.DataFrame = NOTHING_WAITS) -> tables.Table:
    return tables.build(SPECS[name], PAPER, tables.read_reference(OAKS / "reference" / f"{name}.csv"), scores, pending)


def place(built: tables.Table, stub: str, column: str) -> tables.Number:
    (row,) = [row for row in built.rows if " ".join(filter(None, row.stub)) == stub]
    return row.numbers[built.columns.index(column)]


# ------------------------------------------------------------------ published numbers


@pytest.mark.parametrize("name", SPECS)
def test_every_published_number_is_in_its_table_once(name: str) -> None:
    reference = tables.read_reference(OAKS / "reference" / f"{name}.csv")
    built = table(name)
    facts = {metric for fact in SPECS[name].facts for metric in [fact.match["metric"]]}
    numbers = reference.filter(~pl.col("metric").is_in(facts))
    placed = sorted(number.published for row in built.rows for number in row.numbers if number.published)
    assert placed == sorted(numbers["value"])
    known = {value for row in built.rows for value in row.facts}
    assert set(reference.filter(pl.col("metric").is_in(facts))["value"]) <= known
    markdown, latex = tables.to_markdown(built), tables.to_latex(built)
    for value in set(reference["value"]):
        assert re.search(rf"(?<![\d.]){re.escape(value)}(?![\d.])", markdown), value
        assert re.search(rf"(?<![\d.]){re.escape(value)}(?![\d.])", latex), value


def test_all_tables_and_figures_of_the_spine_are_there() -> None:
    assert list(SPECS) == [f"table_{n}" for n in (2, 3, 4, 5, 6, 7, 9, 12, 13, 15, 16)]
    assert [figure.id for figure in PAPER.figures] == ["figure_5", "figure_6", "figure_7"]


@pytest.mark.parametrize("name", SPECS)
def test_rows_stand_in_the_papers_order(name: str) -> None:
    reference = tables.read_reference(OAKS / "reference" / f"{name}.csv")
    built = table(name)
    if "model" in SPECS[name].rows:
        place = SPECS[name].rows.index("model")
        models = list(dict.fromkeys(reference["model"]))
        assert list(dict.fromkeys(row.key[place] for row in built.rows)) == models


def test_table_6_as_published_sums_to_100() -> None:
    built = table("table_6")
    for row in built.rows:
        assert sum(float(number.published) for number in row.numbers) == pytest.approx(100, abs=0.2)


def test_a_published_number_stands_at_its_row_and_column() -> None:
    assert place(table("table_2"), "Gemini 3 Pro on", "OAKS-N | RAG | Freq.").published == "70.6"
    assert place(table("table_5"), "Avg", "Answer stayed | Volatility").published == "32.1"
    assert place(table("table_4"), "MemAgent Qwen2.5-7B off", "Mod.").published == "33.6"


# ------------------------------------------------------------------ own numbers


def test_own_and_published_numbers_stand_side_by_side() -> None:
    number = place(table("table_2", frame(score())), "Qwen3-30B off", "OAKS-B | Base | All")
    assert (number.own, number.published, number.reason) == (36.24, "35.8", "")
    assert number.half == pytest.approx(1)
    assert "36.2 / 35.8" in tables.to_markdown(table("table_2", frame(score())))
    assert "36.2 / 35.8" in tables.to_latex(table("table_2", frame(score())))


def test_a_number_that_was_not_run_says_so() -> None:
    number = place(table("table_2"), "Qwen3-30B off", "OAKS-B | Base | All")
    assert (number.own, number.reason) == (None, "not run")
    assert "– / 35.8" in tables.to_markdown(table("table_2"))


def test_a_failed_cell_says_why() -> None:
    waiting = pl.DataFrame([score() | {"reason": "failed: no memory left"}], schema=page.PENDING_SCHEMA)
    built = table("table_2", pending=waiting)
    assert place(built, "Qwen3-30B off", "OAKS-B | Base | All").reason == "failed: no memory left"
    assert place(built, "Qwen3-30B off", "OAKS-B | RAG | All").reason == "not run"
    assert "✗ / 35.8" in tables.to_markdown(built)
    assert "failed: no memory left" in tables.to_markdown(built)


def test_a_failed_cell_of_a_model_that_the_paper_lacks_gets_a_row() -> None:
    waiting = pl.DataFrame([score(model="Mine") | {"reason": "failed: x"}], schema=page.PENDING_SCHEMA)
    assert place(table("table_2", pending=waiting), "Mine off", "OAKS-B | Base | All").reason == "failed: x"


def test_models_that_the_paper_lacks_come_last_and_without_published_numbers() -> None:
    built = table("table_2", frame(score(model="tiny", trained=False), score()))
    assert built.rows[-1].stub[0] == "tiny (untrained)"
    assert not built.rows[-1].published
    assert any("random weights" in note for note in built.notes)
    assert "| 36.2 |" in tables.to_markdown(built)


def test_stand_ins_are_never_beside_published_numbers() -> None:
    built = table("table_2", frame(score(dataset_id="oaks_babi_mini")))
    assert place(built, "Qwen3-30B off", "OAKS-B | Base | All").own is None
    (row,) = [row for row in built.rows if not row.published]
    assert row.stub[0] == "Qwen3-30B [mini]"
    assert row.numbers[0].own == 36.24
    assert row.numbers[0].published == ""
    assert any("not comparable" in note for note in built.notes)


def test_stand_ins_of_both_datasets_share_a_row() -> None:
    scores = frame(
        score(dataset_id="oaks_babi_mini"), score(dataset="oaks_novel", dataset_id="oaks_novel_mini", value=50.0)
    )
    (row,) = [row for row in table("table_2", scores).rows if not row.published]
    assert [number.own for number in row.numbers if number.own] == [36.24, 50.0]


def test_on_stand_ins_three_chunks_are_read_as_thirty() -> None:
    small = {"method": "rag_dense", "dataset_id": "oaks_babi_mini"}
    scores = frame(*(score(**small, setting=f"k={k};thinking=off", value=float(k)) for k in (1, 3, 30)))
    assert place(table("table_2", scores), "Qwen3-30B [mini] off", "OAKS-B | RAG | All").own == 3


def test_another_setting_is_another_experiment() -> None:
    scores = frame(
        score(setting="thinking=on"),
        score(setting="order=position;thinking=off"),
        score(method="rag_dense", setting="k=5;thinking=off"),
        score(method="sft+long_context", setting="adapter=lora;thinking=off"),
    )
    built = table("table_2", scores)
    assert all(number.own is None for row in built.rows if row.published for number in row.numbers)
    (row,) = [row for row in built.rows if not row.published]
    assert row.stub == ["Qwen3-30B", "on"]


def test_a_table_of_strategies_takes_other_models_but_no_other_strategies() -> None:
    scores = frame(
        score(model="tiny", trained=False),
        score(model="tiny", trained=False, method="rag_bm25", setting="k=30;thinking=off"),
        score(model="tiny", trained=False, method="rag_dense", setting="k=30;thinking=off", label="RAG"),
        score(model="tiny", trained=False, method="rag_dense", setting="k=5;thinking=off", label="RAG"),
    )
    rows = [row.stub for row in table("table_4", scores).rows if not row.published]
    assert rows == [["Base", "tiny (untrained)", "off"], ["RAG (k=30)", "tiny (untrained)", "off"]]


def test_the_mean_row_is_filled_when_all_of_its_rows_were_run() -> None:
    built = table("table_5")
    runs = [(row.key[0], row.key[1]) for row in built.rows if row.key[0]]
    scores = [
        score(model=model, setting=f"thinking={thinking}", subset="gt_stay", metric="lag_rate", value=float(i))
        for i, (model, thinking) in enumerate(runs)
    ]
    assert place(table("table_5", frame(*scores)), "Avg", "Answer stayed | Lag").own == pytest.approx(2.5)
    assert place(table("table_5", frame(*scores[1:])), "Avg", "Answer stayed | Lag").own is None


def test_dataset_shares_come_from_the_cards() -> None:
    own = {"model": "", "method": "", "setting": "", "label": "OAKS-B", "cell": "", "low": None, "high": None}
    scores = frame(
        score(**own, metric="question_count", value=1224.0), score(**own, metric="question_share", subset="sparse")
    )
    built = table("table_7", scores)
    assert place(built, "OAKS-B", "Questions").own == 1224
    assert place(built, "OAKS-B", "Sprs. (%)").published == "40"
    assert "1224 / 1224" in tables.to_markdown(built)


def test_the_tidy_file_has_a_line_for_each_place() -> None:
    built = table("table_2", frame(score()))
    lines = list(csv.DictReader(io.StringIO(tables.to_csv(built))))
    assert len(lines) == len(built.rows) * len(built.columns)
    (line,) = [line for line in lines if line["own"]]
    assert line["cell"] == "oaks_babi/long_context/default/qwen3-30b"
    assert (line["own"], line["low"], line["published"], line["column"]) == (
        "36.24",
        "35.24",
        "35.8",
        "OAKS-B | Base | All",
    )


def test_head_lines_span_all_columns() -> None:
    for name in SPECS:
        built = table(name)
        assert all(sum(span for _, span in line) == len(built.columns) for line in built.head)
    assert table("table_2").head[0] == [("OAKS-B", 8), ("OAKS-N", 8)]


def test_latex_is_balanced_and_escaped() -> None:
    built = table("table_7", frame(score(model="", method="", setting="", metric="question_count", label="a_b & 50%")))
    text = tables.to_latex(built)
    assert text.count("{") - text.count("\\{") == text.count("}") - text.count("\\}")
    assert text.count("\\begin{") == text.count("\\end{")
    body = [line for line in text.splitlines() if line.endswith("\\\\")]
    assert all(line.count("&") == 4 for line in body)
    assert tables.latex_escape("a_b & 50% \\ {x}") == r"a\_b \& 50\% \textbackslash{} \{x\}"


def test_a_misspelt_field_is_refused() -> None:
    spec = tables.TableSpec(
        id="x", title="x", caption="x", rows=["modle"], stub=[], columns=[{"All": {"subset": "all"}}]
    )
    with pytest.raises(UpkeepError, match="modle"):
        tables.build(spec, PAPER, tables.read_reference(OAKS / "reference" / "table_2.csv"), NO_SCORES, NOTHING_WAITS)


def test_published_numbers_with_other_columns_are_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    with pytest.raises(UpkeepError, match="other columns"):
        tables.read_reference(tmp_path / "t.csv")
    with pytest.raises(UpkeepError, match="no published numbers"):
        tables.read_reference(tmp_path / "absent.csv")


# ------------------------------------------------------------------ figures


def test_a_figure_has_a_line_for_each_method_and_model() -> None:
    spec = {figure.id: figure for figure in PAPER.figures}["figure_6"]
    sweep = [score(method="rag_dense", setting=f"k={k};thinking=off", value=float(k)) for k in (30, 5, 60)]
    window = [score(method="rolling_window", setting="window=30;thinking=off", model="tiny", trained=False)]
    (lines,) = figures.build(spec, frame(*sweep, *window)).panels
    assert [line.name for line in lines] == ["RAG, Qwen3-30B", "RW, tiny (untrained)"]
    assert lines[0].x == lines[0].y == [5, 30, 60]


def test_pass_at_k_is_drawn_from_the_deepest_run() -> None:
    spec = {figure.id: figure for figure in PAPER.figures}["figure_5"]
    rows = [
        score(method="rag_dense", metric="pass_at_k", setting=f"k={k};thinking=off;at={at}", value=float(k + at))
        for k in (5, 60)
        for at in (1, 2)
    ]
    panels = figures.build(spec, frame(*rows)).panels
    assert [(line.x, line.y) for line in panels[0]] == [([1, 2], [61, 62])]
    assert panels[1] == []


def test_figures_are_the_same_bytes_each_time_and_empty_panels_say_why() -> None:
    spec = {figure.id: figure for figure in PAPER.figures}["figure_7"]
    figure = figures.build(spec, NO_SCORES)
    first, second = figures.draw(figure), figures.draw(figure)
    assert first == second
    assert first[1].startswith(b"\x89PNG")
    assert "no run" in figures.EMPTY


# ------------------------------------------------------------------ the page


class Links(HTMLParser):
    """Collects what a page asks for, its links, ids and open elements."""

    VOID = frozenset({"meta", "br", "hr", "img", "link", "path", "use", "rect", "col"})

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in ("script", "img", "link", "iframe"):
            self.asked.append(tag)
        if tag == "a" and given.get("href"):
            self.links.append(given["href"] or "")
        if given.get("id"):
            self.ids.append(given["id"] or "")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "config.yaml").write_text("suite: mini\n")
    for name in ("methods", "datasets", "models", "papers"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "config" / "suites").mkdir()
    (tmp_path / "config" / "suites" / "mini.yaml").write_text(
        "{label: Mini <suite>, summary: s, papers: [oaks], cells: [{datasets: [oaks_babi], "
        "methods: ['null', gold], models: [none]}]}"
    )
    return Catalog(tmp_path)


def test_the_page_of_a_suite_without_results_is_whole_and_asks_for_nothing(catalog: Catalog) -> None:
    out = catalog.results / "report" / "index.html"
    page.render(catalog, score_suite(catalog, "mini"), out)
    text = out.read_text()
    parser = Links()
    parser.feed(text)
    assert parser.asked == []
    assert parser.open == []
    assert not re.search(r"(?:src|@import|url)\s*[=(]\s*[\"']?https?:", text)
    assert "Mini &lt;suite&gt;" in text
    for link in parser.links:
        if link.startswith("#"):
            assert link[1:] in parser.ids
        else:
            assert (out.parent / link).exists(), link
    assert {path.name for path in (catalog.results / "tables" / "oaks").iterdir()} == {
        f"{name}.{kind}" for name in SPECS for kind in ("md", "tex", "csv")
    }
    assert (catalog.results / "figures" / "oaks" / "figure_5.svg").is_file()


def test_the_page_is_the_same_bytes_each_time(catalog: Catalog) -> None:
    scores = score_suite(catalog, "mini")
    out = catalog.results / "report" / "index.html"
    page.render(catalog, scores, out)
    first = out.read_bytes()
    page.render(catalog, scores, out)
    assert out.read_bytes() == first


def status_of(state: str, message: str) -> bytes:
    told = {"name": "x", "done": 0, "total": 1, "started": "2026-01-01", "updated": "2026-01-01"}
    return json.dumps(told | {"state": state, "message": message}).encode()


def test_cells_without_scores_have_a_reason(catalog: Catalog) -> None:
    cells = catalog.cells(catalog.suite("mini"))
    waiting = page.pending(catalog, cells, NO_SCORES, {})
    assert waiting["reason"].to_list() == ["dataset not available"] * 2
    status = catalog.results / "status" / "cells" / f"{cells[0]}.json"
    status.parent.mkdir(parents=True)
    status.write_bytes(status_of("failed", "out of memory\n  remedy: more"))
    assert page.pending(catalog, cells, NO_SCORES, {})["reason"][0] == "failed: out of memory"


@pytest.mark.parametrize(
    ("kind", "name", "reason"),
    [
        ("trained", "oaks_babi/sft/lora/tiny", "failed: training tiny+sft.lora: out of memory"),
        ("datasets", "oaks_babi", "failed: its dataset: out of memory"),
    ],
)
def test_a_cell_whose_inputs_failed_says_which(catalog: Catalog, kind: str, name: str, reason: str) -> None:
    cell = Cell("oaks_babi", "memory_scaffold", "budget256_k5", "tiny+sft.lora")
    other = Cell("oaks_novel", "closed_book", "default", "tiny")
    status = catalog.results / "status" / kind / f"{name}.json"
    status.parent.mkdir(parents=True)
    status.write_bytes(status_of("running", ""))
    assert page.pending(catalog, [cell], NO_SCORES, {})["reason"].to_list() == ["dataset not available"]
    status.write_bytes(status_of("failed", "out of memory\n  remedy: more"))
    assert page.pending(catalog, [cell, other], NO_SCORES, {})["reason"].to_list() == [reason, "dataset not available"]


def test_controls_must_hold_on_every_slice() -> None:
    cells = [Cell("oaks_babi", "null", "default", "none"), Cell("oaks_babi", "gold", "default", "none")]
    own = {"model": "", "setting": "", "label": "c"}
    good = frame(score(**own, method="null", value=0.0), score(**own, method="gold", value=100.0))
    assert [control.passed for control in page.controls(cells, good)] == [True, True]
    bad = pl.concat([good, frame(score(**own, method="gold", subset="sparse", value=99.0))])
    assert [control.passed for control in page.controls(cells, bad)] == [True, False]
    assert [control.passed for control in page.controls(cells, NO_SCORES)] == [None, None]


def test_the_summary_has_methods_by_datasets() -> None:
    scores = frame(
        score(),
        score(dataset="oaks_novel", value=50.0, low=None, high=None),
        score(method="rag_dense", label="RAG", setting="k=30;thinking=off", value=40.0),
    )
    lines = page.summary(scores).splitlines()
    assert any(line.split() == ["Base", "Qwen3-30B", "36.2", "±", "1.0", "50.0"] for line in lines)
    assert any(line.split() == ["RAG", "k=30", "Qwen3-30B", "40.0", "±", "1.0", "–"] for line in lines)
    assert "no cell is complete" in page.summary(NO_SCORES)


@pytest.mark.parametrize(("value", "text"), [(4.21, "4.2 s"), (192.0, "3 min 12 s"), (18_420.0, "5 h 7 min")])
def test_durations_are_readable(value: float, text: str) -> None:
    assert page.duration(value) == text
