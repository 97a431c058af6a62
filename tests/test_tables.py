"""Tables: own and published numbers side by side, and why a place is empty."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import polars as pl
import pytest

from table_scores import NO_SCORES, NOTHING_WAITS, OAKS, PAPER, SPECS, frame, place, score, table
from upkeep.errors import UpkeepError
from upkeep.grading.settings import has_others, option
from upkeep.report import tables
from upkeep.report.latex import to_latex
from upkeep.report.reference import read_reference
from upkeep.report.specs import TableSpec
from upkeep.report.waiting import PENDING_SCHEMA
from upkeep.report.written import to_csv, to_markdown

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
    assert "○ / 35.8" in to_markdown(table("table_2"))


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
    assert set(built.placed) == {0, 1, 2}, "the table has no column for what a trained model does"


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
