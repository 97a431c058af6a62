"""Which settings make another experiment of a score, and that none is lost."""

from __future__ import annotations

import csv
import io
import itertools
import random
from pathlib import Path

import msgspec
import pytest

from conftest import ROOT
from table_papers import built_of, only
from table_scores import NO_SCORES, NOTHING_WAITS, OAKS, PAPER, SPECS, frame, place, score, table
from upkeep.catalog import Catalog
from upkeep.report import papers, tables, waiting
from upkeep.report.fields import as_printed
from upkeep.report.reference import read_reference
from upkeep.report.specs import Called
from upkeep.report.written import ELSEWHERE, write_elsewhere


def test_a_setting_that_a_paper_calls_away_is_no_other_experiment() -> None:
    scores = frame(score(setting="seed=7;thinking=off"))
    spec, called = SPECS["table_2"], [Called(where={}, instead={"setting.seed": ""})]
    assert place(built_of(spec, as_printed(scores, called)), "Qwen3-30B off", "OAKS-B | Base | All").own == 36.24
    (row,) = built_of(spec, scores).ours
    assert (row.setting, row.numbers[0].own) == ("seed=7", 36.24)


def test_another_judge_than_the_papers_is_not_compared() -> None:
    paper = msgspec.structs.replace(PAPER, judge="people")
    ask = [score(setting=f"judge={judge};thinking=off", value=v) for judge, v in (("people", 1.0), ("a model", 2.0))]
    reference = read_reference(OAKS / "reference/table_2.csv")
    built = tables.build(SPECS["table_2"], paper, reference, frame(*ask), NOTHING_WAITS)
    assert place(built, "Qwen3-30B off", "OAKS-B | Base | All").own == 1.0
    (row,) = built.ours
    assert (row.setting, row.numbers[0].own, row.numbers[0].state) == ("judge=a model", 2.0, "not comparable")
    assert "judge=a model" in row.numbers[0].reason


def test_two_cells_that_a_table_cannot_tell_apart_are_both_shown() -> None:
    scores = frame(*(score(cell=f"oaks_babi/m/v/{n}", value=float(n)) for n in (1, 2, 3)))
    built = table("table_2", scores)
    assert place(built, "Qwen3-30B off", "OAKS-B | Base | All").own == 1
    assert [row.numbers[0].own for row in built.ours] == [2, 3]
    assert all("names and settings of another row" in row.reason for row in built.ours)


def test_a_score_that_two_columns_could_take_is_in_neither_and_not_lost(tmp_path: Path) -> None:
    columns = [{"5": {"setting.k": "5"}, "10": {"setting.k": "10"}}]
    spec = only(
        SPECS["table_2"], columns=columns, where={"dataset": "oaks_babi", "subset": "all", "metric": "accuracy"}
    )
    scores = frame(*(score(setting=f"k={k};thinking=off", value=float(k)) for k in (5, 7)))
    built = built_of(spec, scores)
    assert [number.own for row in built.rows for number in row.numbers if number.own] == [5]
    assert write_elsewhere(scores, built.placed, tmp_path) == 1
    (line,) = csv.DictReader(io.StringIO((tmp_path / ELSEWHERE).read_text()))
    assert (line["value"], line["setting"], line["method"]) == ("7.0", "k=7, thinking=off", "long_context")


@pytest.mark.parametrize("seed", range(5))
def test_no_score_of_a_table_of_strategies_vanishes(seed: int) -> None:
    """Whatever is run on OAKS-B: its accuracy is in Table 4 once, the paper's rows or our own."""
    rng = random.Random(seed)
    methods = ["long_context", "rag_dense", "rag_bm25", "rolling_window", "sft+closed_book", "mine"]
    extras = ["", ";order=position", ";adapter=lora", ";scope=per_library;trained_on=x"]
    kinds = list(
        itertools.product(methods, ["", "k=5;", "k=30;", "window=30;"], ["on", "off"], extras, ["", "_mini", "_x"])
    )
    rows = [
        score(
            method=method,
            label=method,
            model=rng.choice(["Qwen2.5-7B", "Mine"]),
            setting=f"{size}thinking={thinking}{extra}",
            dataset_id=f"oaks_babi{end}",
            trained=rng.random() < 0.7,
            subset=rng.choice(["all", "sparse", "moderate", "frequent"]),
            cell=f"{n}/{method}/v/m",
            value=float(n + 1),
        )
        for n, (method, size, thinking, extra, end) in enumerate(rng.sample(kinds, 150))
    ]
    built = table("table_4", frame(*rows))
    shown = sorted(number.own for row in built.rows for number in row.numbers if number.own is not None)
    assert shown == [float(n + 1) for n in range(150)]
    assert set(built.placed) == set(range(150))
    assert all(row.reason for row in built.ours) and not any(row.reason for row in built.papers)
    for own in (number.own for row in built.papers for number in row.numbers):
        if own is not None:
            row = rows[int(own) - 1]
            assert row["stand_in"] == "" and {pair["key"] for pair in row["setting"]} <= {"k", "window", "thinking"}


def test_a_table_by_dataset_has_the_papers_datasets_alone() -> None:
    own = {"model": "", "method": "", "setting": "", "label": "x", "cell": "", "metric": "question_count"}
    names = ("oaks_babi", "oaks_babi_mini", "oaks_novel_changes", "evowiki_mini")
    scores = frame(*(score(**own, dataset=name.removesuffix("_mini"), dataset_id=name) for name in names))
    called = waiting.Printed(frozenset({("oaks_babi", "", "")}))
    found = papers.of_paper(Catalog(ROOT), "oaks", called, scores)
    assert found["dataset_id"].to_list() == ["oaks_babi", "oaks_babi_mini", "oaks_novel_changes"]
    assert [row.reason for row in table("table_7", found).ours] == [
        "not in the paper's table: dataset oaks_novel_changes",
        "on oaks_babi_mini, which stands for oaks_babi",
    ]


def test_why_a_row_is_our_own_is_said_in_its_own_settings() -> None:
    """And not in what these are read as on a stand-in."""
    small = {"dataset_id": "oaks_babi_mini", "method": "rag_dense", "label": "RAG", "model": "pico"}
    (row,) = table("table_4", frame(score(**small, setting="k=5;thinking=off"))).ours
    assert row.reason == "on oaks_babi_mini, which stands for oaks_babi; not in the paper's table: k 5, model pico"
    (null,) = table("table_4", frame(score(method="null", label="Null", model="", setting=""))).ours
    assert null.reason == "not in the paper's table: method null"


def test_what_has_no_model_is_named_once() -> None:
    control = score(method="null", label="Null (control)", model="", setting="")
    (row,) = table("table_4", frame(control)).ours
    assert row.stub == ["Null (control)", "–", ""]
    (mean,) = (row for row in table("table_5", NO_SCORES).papers if "average" in row.key)
    assert mean.stub == ["Avg", ""], "where no column has labels, the model's has"
