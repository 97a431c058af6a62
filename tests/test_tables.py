"""Tables and the page: own and published numbers side by side, and why a place is empty."""

from __future__ import annotations

import csv
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pytest

from upkeep.catalog import Catalog
from upkeep.contract import DatasetCard
from upkeep.errors import UpkeepError
from upkeep.grading.score import SCORE_SCHEMA
from upkeep.grading.scores import score_suite
from upkeep.grading.settings import as_rows, has_others, option, pairs
from upkeep.jobs import Cell
from upkeep.report import page, tables
from upkeep.report.latex import to_latex
from upkeep.report.reference import read_reference
from upkeep.report.specs import FigureSpec, PaperSpec, TableSpec, read_paper
from upkeep.report.waiting import PENDING_SCHEMA, pending
from upkeep.report.written import to_csv, to_markdown

ROOT = Path(__file__).resolve().parents[1]
OAKS = ROOT / "papers" / "oaks"
PAPER = read_paper(OAKS)
SPECS = {spec.id: spec for spec in PAPER.tables}
NO_SCORES = pl.DataFrame(schema=SCORE_SCHEMA)
NOTHING_WAITS = pl.DataFrame(schema=PENDING_SCHEMA)


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
    row["setting"] = as_rows(pairs(row["setting"]))
    row = {"dataset_id": row["dataset"], **row}
    which = row["dataset_id"].removeprefix(row["dataset"]).strip("_")
    return {"provenance": "stand_in" if which else "release", "stand_in": which, **row}


def frame(*rows: dict[str, Any]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=SCORE_SCHEMA)


def table(name: str, scores: pl.DataFrame = NO_SCORES, waiting: pl.DataFrame = NOTHING_WAITS) -> tables.Table:
    return tables.build(SPECS[name], PAPER, read_reference(OAKS / "reference" / f"{name}.csv"), scores, waiting)


def place(built: tables.Table, stub: str, column: str) -> tables.Number:
    """A number of the only row that is called so: one of the paper's, or else of our own."""
    papers, ours = ([r for r in rows if " ".join(filter(None, r.stub)) == stub] for rows in (built.papers, built.ours))
    (row,) = papers or ours
    return row.numbers[built.columns.index(column)]


# ------------------------------------------------------------------ published numbers


def test_all_tables_and_figures_of_the_spine_are_there() -> None:
    assert list(SPECS) == [*(f"table_{n}" for n in (1, 2, 3, 4, 5, 6, 7, 9, 11, 12, 13, 14, 15, 16)), "prose"]
    assert [figure.id for figure in PAPER.figures] == [f"figure_{n}" for n in (2, 3, 4, 5, 6, 7)]


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
    assert "36.2±1.0 / 35.8 ≈" in to_markdown(table("table_2", frame(score())))
    assert r"36.2$\pm$1.0 / 35.8 $\approx$" in to_latex(table("table_2", frame(score())))


def test_a_number_that_was_not_run_says_so() -> None:
    number = place(table("table_2"), "Qwen3-30B off", "OAKS-B | Base | All")
    assert (number.own, number.reason) == (None, "not run")
    assert "– / 35.8" in to_markdown(table("table_2"))


def test_a_failed_cell_says_why() -> None:
    waiting = pl.DataFrame([score() | {"lacks": "", "reason": "failed: no memory left"}], schema=PENDING_SCHEMA)
    built = table("table_2", waiting=waiting)
    assert place(built, "Qwen3-30B off", "OAKS-B | Base | All").reason == "failed: no memory left"
    assert place(built, "Qwen3-30B off", "OAKS-B | RAG | All").reason == "not run"
    assert "✗ / 35.8" in to_markdown(built)
    assert "failed: no memory left" in to_markdown(built)


def test_a_failed_cell_of_a_model_that_the_paper_lacks_gets_a_row() -> None:
    waiting = pl.DataFrame([score(model="Mine") | {"lacks": "", "reason": "failed: x"}], schema=PENDING_SCHEMA)
    assert place(table("table_2", waiting=waiting), "Mine off", "OAKS-B | Base | All").reason == "failed: x"


def test_models_that_the_paper_lacks_come_last_and_without_published_numbers() -> None:
    built = table("table_2", frame(score(model="tiny", trained=False), score()))
    assert built.rows[-1].stub[0] == "tiny (untrained)"
    assert not built.rows[-1].published
    assert any("random weights" in note for note in built.notes)
    assert "| 36.2±1.0 |" in to_markdown(built)


def test_stand_ins_are_never_beside_published_numbers() -> None:
    built = table("table_2", frame(score(dataset_id="oaks_babi_mini")))
    assert place(built, "Qwen3-30B off", "OAKS-B | Base | All").own is None
    (row,) = [row for row in built.rows if not row.published]
    assert row.stub[0] == "Qwen3-30B [mini]"
    assert row.numbers[0].own == 36.24
    assert row.numbers[0].published == ""
    assert any("not comparable" in note for note in built.notes)


def test_rebuilds_are_never_beside_published_numbers_and_keep_their_settings() -> None:
    rows = [score(provenance="rebuild"), score(provenance="rebuild", method="rag_dense", setting="k=30;thinking=off")]
    built = table("table_2", frame(*rows, score(dataset_id="oaks_babi_mini", value=1.0)))
    assert place(built, "Qwen3-30B off", "OAKS-B | Base | All").own is None
    for column in ("OAKS-B | Base | All", "OAKS-B | RAG | All"):
        assert place(built, "Qwen3-30B [rebuild] off", column).own == 36.24
        assert place(built, "Qwen3-30B [rebuild] off", column).published == ""
    assert place(built, "Qwen3-30B [mini] off", "OAKS-B | Base | All").own == 1
    assert any("built anew" in note for note in built.notes)


def test_stand_ins_of_both_datasets_share_a_row() -> None:
    scores = frame(
        score(dataset_id="oaks_babi_mini"), score(dataset="oaks_novel", dataset_id="oaks_novel_mini", value=50.0)
    )
    (row,) = [row for row in table("table_2", scores).rows if not row.published]
    assert [number.own for number in row.numbers if number.own] == [36.24, 50.0]


def test_on_stand_ins_three_chunks_are_read_as_thirty() -> None:
    small = {"method": "rag_dense", "dataset_id": "oaks_babi_mini"}
    scores = frame(*(score(**small, setting=f"k={k};thinking=off", value=float(k)) for k in (1, 3, 30)))
    built = table("table_2", scores)
    column = built.columns.index("OAKS-B | RAG | All")
    found = {row.setting: row.numbers[column].own for row in built.ours}
    assert found == {"": 3, "k=1": 1, "k=30": 30}, "what three stands for is the paper's; others say what they are"
    assert {row.stub[0] for row in built.ours} == {"Qwen3-30B [mini]"}


def test_another_setting_is_another_experiment_below_the_papers_rows() -> None:
    scores = frame(
        score(setting="thinking=on"),
        score(setting="order=position;thinking=off"),
        score(method="rag_dense", setting="k=5;thinking=off"),
        score(method="sft+long_context", setting="adapter=lora;thinking=off"),
    )
    built = table("table_2", scores)
    assert all(number.own is None for row in built.papers for number in row.numbers)
    found = [(row.stub, row.setting, row.reason) for row in built.ours]
    assert found == [
        (["Qwen3-30B", "on"], "", "not in the paper's table: this combination"),
        (["Qwen3-30B", "off"], "order=position", "no row of the paper's has order=position"),
        (["Qwen3-30B", "off"], "k=5", "no row of the paper's has k=5"),
    ]
    assert built.placed == {0, 1, 2}, "the table has no column for what a trained model does"


def test_a_table_of_strategies_shows_other_strategies_below() -> None:
    scores = frame(
        score(model="tiny", trained=False),
        score(model="tiny", trained=False, method="rag_bm25", setting="k=30;thinking=off", label="BM25"),
        score(model="Qwen2.5-7B", method="rag_dense", setting="k=30;thinking=off", label="RAG"),
        score(model="Qwen2.5-7B", method="rag_dense", setting="k=5;thinking=off", label="RAG"),
    )
    built = table("table_4", scores)
    assert place(built, "RAG (30) Qwen2.5-7B off", "All").own == 36.24
    assert [row.stub for row in built.ours] == [
        ["Base", "tiny (untrained)", "off"],
        ["BM25 (k=30)", "tiny (untrained)", "off"],
        ["RAG (k=5)", "Qwen2.5-7B", "off"],
    ]
    assert [row.reason for row in built.ours][1:] == [
        "the model has random weights; not in the paper's table: method rag_bm25, model tiny",
        "not in the paper's table: k 5",
    ]


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
    assert "1224 / 1224" in to_markdown(built)


def test_the_tidy_file_has_a_line_for_each_place() -> None:
    built = table("table_2", frame(score()))
    lines = list(csv.DictReader(io.StringIO(to_csv(built))))
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


def test_a_misspelt_field_is_refused() -> None:
    spec = TableSpec(id="x", title="x", caption="x", rows=["modle"], stub=[], columns=[{"All": {"subset": "all"}}])
    with pytest.raises(UpkeepError, match="modle"):
        tables.build(spec, PAPER, read_reference(OAKS / "reference" / "table_2.csv"), NO_SCORES, NOTHING_WAITS)


def test_published_numbers_with_other_columns_are_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    with pytest.raises(UpkeepError, match="other columns"):
        read_reference(tmp_path / "t.csv")
    with pytest.raises(UpkeepError, match="no published numbers"):
        read_reference(tmp_path / "absent.csv")


def test_a_setting_that_is_none_is_refused_with_its_line(tmp_path: Path) -> None:
    text = (OAKS / "reference/table_2.csv").read_text()
    for wrong, why in (("thinking", "no key=value"), ("=off", "no key=value"), ("thinking=off;thinking=on", "twice")):
        (tmp_path / "t.csv").write_text(text.replace("thinking=off", wrong, 1))
        with pytest.raises(UpkeepError, match=why) as caught:
            read_reference(tmp_path / "t.csv")
        assert caught.value.where == f"{tmp_path}/t.csv:3" and caught.value.found == wrong


def test_settings_are_read_by_key_and_not_from_a_text() -> None:
    settings = ["k=30;thinking=off", "ak=1;k=3", "", "note=k=9", "k="]
    rows = frame(*(score(setting=setting) for setting in settings))
    assert rows.select(k=option("k"))["k"].to_list() == ["30", "3", "", "", ""]
    assert rows.select(note=option("note"))["note"].to_list() == ["", "", "", "k=9", ""]
    assert rows.select(others=has_others(["k"]))["others"].to_list() == [True, True, False, True, False]
    assert NO_SCORES.select(option("k"), others=has_others(["k"])).is_empty()


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
    for words in ("<th>Release</th><th>Rebuild</th><th>Stand-in</th>", "release, to be run:", ">not run<", "at 95%"):
        assert words in text
    for link in parser.links:
        if link.startswith("#"):
            assert link[1:] in parser.ids
        else:
            assert (out.parent / link).exists(), link
    assert {path.name for path in (catalog.results / "tables" / "oaks").iterdir()} == {
        "other_scores.csv",
        *(f"{name}.{kind}" for name in SPECS for kind in ("md", "tex", "csv")),
    }
    assert (catalog.results / "figures" / "oaks" / "figure_5.svg").is_file()


def test_each_table_says_in_whose_words_models_were_asked(catalog: Catalog) -> None:
    def told(catalog: Catalog) -> dict[Path, str]:
        out = catalog.results / "report" / "index.html"
        page.render(catalog, score_suite(catalog, "mini"), out)
        files = [out, *(catalog.results / "tables" / "oaks").glob("*.[mt]*")]
        return {file: file.read_text() for file in files}

    ours = told(catalog)
    assert len(ours) == 1 + 2 * len(SPECS)
    assert all(text.count("words of this suite") == 1 and "their place word for word" in text for text in ours.values())
    assert not any("Here those of" in text for text in ours.values())
    (catalog.root / "config" / "config.yaml").write_text("suite: mini\nprompts: {oaks_novel: paper.txt, prelude: x}\n")
    theirs = told(Catalog(catalog.root))
    assert theirs.keys() == ours.keys()
    assert all(re.search(r"Here those of \S+oaks\S+ are \S+paper.txt\S+\.", text) for text in theirs.values())
    assert not any("prelude" in text for text in theirs.values())


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
    waiting = pending(catalog, cells, NO_SCORES, {}, {}, {})
    assert waiting["reason"].to_list() == ["dataset not available"] * 2
    status = catalog.results / "status" / "cells" / f"{cells[0]}.json"
    status.parent.mkdir(parents=True)
    status.write_bytes(status_of("failed", "out of memory\n  remedy: more"))
    assert pending(catalog, cells, NO_SCORES, {}, {}, {})["reason"][0] == "failed: out of memory"


@pytest.mark.parametrize(
    ("kind", "name", "reason"),
    [
        ("trained", "oaks_babi/sft/lora/tiny", "failed: training oaks_babi/sft/lora/tiny: out of memory"),
        ("datasets", "oaks_babi", "failed: its dataset: out of memory"),
    ],
)
def test_a_cell_whose_inputs_failed_says_which(catalog: Catalog, kind: str, name: str, reason: str) -> None:
    cell = Cell("oaks_babi", "memory_scaffold", "budget256_k5", "tiny+sft.lora")
    other = Cell("oaks_novel", "closed_book", "default", "tiny")
    status = catalog.results / "status" / kind / f"{name}.json"
    status.parent.mkdir(parents=True)
    status.write_bytes(status_of("running", ""))
    assert pending(catalog, [cell], NO_SCORES, {}, {}, {})["reason"].to_list() == ["dataset not available"]
    status.write_bytes(status_of("failed", "out of memory\n  remedy: more"))
    found = pending(catalog, [cell, other], NO_SCORES, {}, {}, {})
    assert found["reason"].to_list() == [reason, "dataset not available"] and set(found["lacks"]) == {""}


def test_a_score_without_its_second_cell_says_which_that_is(catalog: Catalog) -> None:
    cell = Cell("oaks_babi", "long_context", "default", "pico")
    why = "the closed book (oaks_babi/closed_book/default/pico): not run"
    waiting = pending(catalog, [cell], frame(score(cell=str(cell))), {}, {str(cell): {"gain": why}}, {})
    assert waiting.select("lacks", "reason").rows() == [("gain", why)]
    columns = [{"Own": {"metric": "accuracy"}, "Gain": {"metric": "gain"}}]
    spec = msgspec.structs.replace(SPECS["table_3"], columns=columns)
    (row,) = [
        row
        for row in tables.build(spec, PAPER, read_reference(OAKS / "reference/table_3.csv"), NO_SCORES, waiting).rows
        if not row.published
    ]
    assert [number.reason for number in row.numbers] == ["not run", why]


def test_what_waits_is_found_by_each_name_that_its_scores_would_have(catalog: Catalog) -> None:
    cell = Cell("evowiki_mini", "closed_book", "default", "pico")
    counts = dict.fromkeys(("chunk_tokens", "streams", "documents", "probes", "questions"), 1)
    texts = dict.fromkeys(("dataset", "label", "source", "licence", "tokenizer"), "")
    slices = {"level": {"evolved": 1, "stable": 1}, "hops": {"single_hop": 2}}
    built = DatasetCard(**counts, **texts, slices=slices, statistics={}, stands_for=None, content={}, files={})
    found = pending(catalog, [cell], NO_SCORES, {}, {}, {"evowiki_mini": built})
    assert found["dataset"].to_list() == ["evowiki", "evowiki_evolved", "evowiki_stable"]
    assert set(found["stand_in"]) == {"mini"} and len(set(found["reason"])) == 1
    assert pending(catalog, [cell], NO_SCORES, {}, {}, {})["dataset"].to_list() == ["evowiki"]


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
    assert page.summary(NO_SCORES) == "no scores"


@pytest.mark.parametrize(("value", "text"), [(4.21, "4.2 s"), (192.0, "3 min 12 s"), (18_420.0, "5 h 7 min")])
def test_durations_are_readable(value: float, text: str) -> None:
    assert page.duration(value) == text


def test_every_key_of_a_papers_tables_is_explained() -> None:
    page = (OAKS.parent / "FORMAT.md").read_text()
    layout = page[page.index("## Layout") :]
    parts = re.split(r"\n\| key of (?:the file|a table|a figure) \| meaning \|\n", layout)[1:]
    for part, record in zip(parts, (PaperSpec, TableSpec, FigureSpec), strict=True):
        rows = re.findall(r"^\| (`.*?`) \|", part.partition("\n\n")[0], re.M)
        named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
        assert named == set(record.__struct_fields__), record.__name__


@pytest.mark.parametrize(("paper", "name"), [("imprintbench", "table_5"), ("evowiki", "table_3")])
def test_where_rows_are_metrics_a_score_of_another_is_no_variant_of_them(paper: str, name: str) -> None:
    folder = OAKS.parent / paper
    whole = read_paper(folder)
    spec = next(spec for spec in whole.tables if spec.id == name)
    reference = read_reference(folder / "reference" / spec.file)
    first = {key: value for key, value in reference.row(0, named=True).items() if key in SCORE_SCHEMA}
    same = score(**first | {"value": 1.0, "setting": "", "stand_in": "mini", "cell": "a/b/c/d"})
    built = [
        tables.build(spec, whole, reference, frame(same | {"metric": metric}), NOTHING_WAITS)
        for metric in (first["metric"], "another_metric")
    ]
    assert [(len(one.ours), len(one.placed)) for one in built] == [(1, 1), (0, 0)]
