"""What a table says of each entry: how it stands to the published number, what would fill it, and what is our own."""

from __future__ import annotations

import csv
import io
from fractions import Fraction
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import ROOT
from table_papers import PAPERS, SPECS_OF, built_of, evolveqa, only, reference_of
from table_scores import NO_SCORES, PAPER, SPECS, frame, place, score, table
from upkeep.catalog import Catalog
from upkeep.jobs import Cell
from upkeep.report import tables, waiting
from upkeep.report.comparing import compare
from upkeep.report.fields import as_printed
from upkeep.report.latex import to_latex
from upkeep.report.parts import MARKS, told
from upkeep.report.specs import Unfilled
from upkeep.report.written import to_csv, to_markdown

# ------------------------------------------------------------------ the state of an entry


@given(
    printed=st.decimals(0, 100, places=2).map(str) | st.integers(0, 2000).map(str),
    low=st.integers(-300, 300),
    width=st.integers(0, 600),
)
def test_within_the_interval_is_what_the_rounded_number_leaves_room_for(printed: str, low: int, width: int) -> None:
    """By exact fractions: what rounds to the printed number, and our interval, have a number in common."""
    digits = len(printed.partition(".")[2])
    half = Fraction(1, 2 * 10**digits)
    ends = Fraction(printed) + Fraction(low, 100), Fraction(printed) + Fraction(low + width, 100)
    common = max(ends[0], Fraction(printed) - half) <= min(ends[1], Fraction(printed) + half)
    state, reason = compare(score(low=float(ends[0]), high=float(ends[1]), value=float(ends[0])), printed)
    assert (state, reason) == ("within the interval" if common else "differs", "")


@pytest.mark.parametrize(
    ("fields", "published", "state", "reason"),
    [
        ({"low": 35.0, "high": 36.0}, "35.8", "within the interval", ""),
        ({"low": 36.0, "high": 37.0}, "35.8", "differs", ""),
        ({"low": None, "high": None}, "35.8", "not comparable", "our own has no interval"),
        ({"low": None, "high": None, "cell": "", "value": 1224.0}, "1224", "within the interval", ""),
        ({"low": None, "high": None, "cell": "", "value": 1223.0}, "1224", "differs", ""),
        ({"low": None, "high": None, "cell": "", "value": 39.6}, "40", "within the interval", ""),
        ({"trained": False}, "35.8", "not comparable", "the model has random weights"),
        (
            {"dataset_id": "oaks_babi_mini"},
            "35.8",
            "not comparable",
            "on oaks_babi_mini, which stands for oaks_babi",
        ),
        (
            {"provenance": "rebuild"},
            "35.8",
            "not comparable",
            "on oaks_babi, which was built anew: the questions are not the paper's",
        ),
        ({"provenance": "own"}, "35.8", "not comparable", "on oaks_babi, which is no paper's"),
        ({}, "", "unpublished", ""),
    ],
)
def test_each_entry_has_one_state_and_its_reason(
    fields: dict[str, Any], published: str, state: str, reason: str
) -> None:
    assert compare(score(**fields), published) == (state, reason)


def test_an_untrained_model_of_a_papers_name_is_beside_its_number_and_not_compared() -> None:
    number = place(table("table_2", frame(score(trained=False))), "Qwen3-30B off", "OAKS-B | Base | All")
    assert (number.own, number.state, number.reason) == (36.24, "not comparable", "the model has random weights")
    both = frame(score(trained=False, value=1.0), score())
    built = table("table_2", both)
    assert place(built, "Qwen3-30B off", "OAKS-B | Base | All").own == 36.24, "what can be compared comes first"
    assert [row.numbers[0].own for row in built.ours] == [1.0]


def test_every_form_of_a_table_says_the_same() -> None:
    scores = frame(
        score(), score(subset="sparse", value=90.0, low=88.0, high=92.0), score(subset="moderate", trained=False)
    )
    built = table("table_2", scores)
    lines = {
        (line["model"], line["setting.thinking"], line["column"]): line
        for line in csv.DictReader(io.StringIO(to_csv(built)))
    }
    found = [lines["Qwen3-30B", "off", f"OAKS-B | Base | {bin}"] for bin in ("All", "Sprs.", "Mod.", "Freq.")]
    assert [line["state"] for line in found] == ["within the interval", "differs", "not comparable", "not run"]
    assert [line["difference"] for line in found] == ["0.44", "51.5", "-1.06", ""]
    assert found[2]["reason"] == "the model has random weights"
    markdown = to_markdown(built)
    assert "36.2±1.0 / 35.8 ≈ | 90.0±2.0 / 38.5 ≠ | 36.2±1.0 / 37.3 † | ○ / 29.4 |" in markdown
    latex = r"36.2$\pm$1.0 / 35.8 $\approx$ & 90.0$\pm$2.0 / 38.5 $\neq$ & 36.2$\pm$1.0 / 37.3 \dag{} & $\circ$ / 29.4"
    assert latex in to_latex(built)
    number = place(built, "Qwen3-30B off", "OAKS-B | Base | Sprs.")
    assert told(number, 1) == (
        "differs; difference +51.5; 95% interval 88.0 to 92.0; n = 78,000; oaks_babi/long_context/default/qwen3-30b"
    )
    assert len(set(MARKS.values())) == len(MARKS)


# ------------------------------------------------------------------ what would fill an empty one


@pytest.fixture(scope="module")
def gaps() -> tuple[pl.DataFrame, waiting.Gaps]:
    catalog = Catalog(ROOT)
    references = [reference_of("oaks", spec) for spec in PAPER.tables]
    cells = catalog.cells(catalog.suite("mini"))
    more, gaps = waiting.beyond(catalog, cells, waiting.Printed.of(references), PAPER.called)
    return as_printed(more, PAPER.called), gaps


def test_what_was_not_run_says_the_command_that_fills_it(gaps: tuple[pl.DataFrame, waiting.Gaps]) -> None:
    catalog = Catalog(ROOT)
    oaks = {str(cell) for cell in catalog.cells(catalog.suite("oaks"))}
    unfilled = {one.why for spec in PAPER.tables for one in spec.unfilled}
    seen = set()
    for spec in PAPER.tables:
        built = tables.build(spec, PAPER, reference_of("oaks", spec), NO_SCORES, *gaps)
        for row, number in ((r, number) for r in built.papers for number in r.numbers if number.published):
            assert number.state == ("no number" if number.reason in unfilled else "not run") and number.own is None
            assert bool(number.command) != (number.reason != "not run"), "either a command, or why there is none"
            if number.cell:
                cell = Cell.parse(number.cell)
                catalog.check(cell)
                assert number.command == ("./upkeep run oaks" if number.cell in oaks else f"./upkeep cell {cell}")
                assert catalog.spec(cell.model).label in row.key
            seen.add(number.command or number.reason)
    assert seen == {
        "./upkeep run oaks",
        "./upkeep dataset build oaks_babi",
        "./upkeep dataset build oaks_novel",
        "the mean of rows of which some have no number",
        "no variant of memagent has these settings",
        *unfilled,
    }


@pytest.mark.parametrize(
    ("triple", "gap"),
    [
        (("oaks_babi", "long_context", "Nobody"), "no model is called Nobody in models/"),
        (("oaks_babi+oaks_novel", "long_context", "Qwen3-30B"), "no dataset oaks_babi+oaks_novel in datasets/"),
        (("oaks_babi", "sft+mind_map", "Qwen3-30B"), "no method mind_map in methods/"),
        (("oaks_babi", "rag_dense", "Qwen3-30B"), "no variant of rag_dense has these settings"),
    ],
)
def test_what_cannot_be_run_says_what_is_missing(triple: tuple[str, str, str], gap: str) -> None:
    _, gaps = waiting.beyond(Catalog(ROOT), [], waiting.Printed(frozenset({triple})))
    assert gaps[triple] == waiting.Gap(gap)


def test_a_cell_of_no_suite_is_asked_for_by_itself_and_a_suites_own_by_the_suite() -> None:
    catalog = Catalog(ROOT)
    triple = ("evowiki_stable", "sft+closed_book", "Meta-Llama-3.1-8B-Instruct")
    more, _ = waiting.beyond(catalog, [], waiting.Printed(frozenset({triple})))
    mine = more.filter(pl.col("dataset") == "evowiki_stable")
    assert set(mine["command"]) and all(
        command == f"./upkeep cell {cell}" or command.startswith("./upkeep run ")
        for cell, command in mine.select("cell", "command").iter_rows()
    )
    cell = Cell("oaks_babi", "long_context", "default", "qwen3-30b")
    own = waiting.pending(catalog, [cell], NO_SCORES, {}, {}, {}, "oaks")
    assert own["command"].to_list() == ["./upkeep run oaks"]
    assert waiting.pending(catalog, [cell], NO_SCORES, {}, {}, {})["command"].to_list() == [f"./upkeep cell {cell}"]


def test_what_scores_alone_have_as_settings_waits_for_the_cell_that_has_such_scores() -> None:
    """Table 10: whether a question gives hints, no variant says, but which dataset it is of."""
    reference = reference_of("evolveqa", SPECS_OF["evolveqa", "table_10"])
    built = evolveqa("table_10", *waiting.beyond(Catalog(ROOT), [], waiting.Printed.of([reference])))
    asked = [(n, c) for row in built.papers for n, c in zip(row.numbers, built.columns, strict=True) if n.published]
    assert len(asked) == len(reference)
    for number, column in asked:
        assert (number.state, number.reason, number.command) == ("not run", "not run", "./upkeep run evolveqa")
        hinted = number.cell.startswith(f"evolveqa_{column.partition(' ')[0].lower()}_hints/")
        assert hinted != column.endswith("Neither"), (number.cell, column)


def test_what_the_paper_asked_over_the_large_corpus_waits_for_the_dataset_that_has_it() -> None:
    """Table 4 of EvoWiki: its suite runs BM25 over either corpus."""
    whole, spec = PAPERS["evowiki"], SPECS_OF["evowiki", "table_4"]
    reference = reference_of("evowiki", spec)
    pending, gaps = waiting.beyond(Catalog(ROOT), [], waiting.Printed.of([reference]), whole.called)
    built = tables.build(spec, whole, reference, NO_SCORES, as_printed(pending, whole.called), gaps)
    corpora = [
        (dict(zip(spec.rows, row.key, strict=True))["setting.corpus"], number)
        for row in built.papers
        for number in row.numbers
        if number.published and row.key[1] == "rag_bm25"
    ]
    assert len(corpora) == 2 * 2 * 7
    for corpus, number in corpora:
        dataset = {"golden": "evowiki", "large": "evowiki_large"}[corpus]
        assert number.cell.startswith(f"{dataset}/rag_bm25/k15/"), number
        assert (number.state, number.command) == ("not run", "./upkeep run evowiki")


def test_a_cell_that_failed_is_told_where_its_scores_would_be_and_nowhere_twice() -> None:
    catalog = Catalog(ROOT)
    for dataset, filled in (("evolveqa_aws", {"AWS | Neither"}), ("evolveqa_aws_hints", {"Context", "Date", "Both"})):
        cell = Cell(dataset, "closed_book", "default", "claude-3-haiku")
        pending = waiting.pending(catalog, [cell], NO_SCORES, {str(cell): "x"}, {}, {})
        table_2, table_10 = evolveqa("table_2", pending), evolveqa("table_10", pending)
        assert table_2.ours == []
        told = {c for row in table_10.papers for n, c in zip(row.numbers, table_10.columns, strict=True) if n.cell}
        assert {c.removeprefix("AWS | ") if dataset.endswith("_hints") else c for c in told} == filled


def test_what_a_paper_calls_otherwise_is_asked_for_by_our_own_names() -> None:
    """PRELUDE's No-Context is our closed book, with the examples that its prompt shows."""
    catalog, spec = Catalog(ROOT), PAPERS["prelude"]
    printed = waiting.Printed.of(reference_of("prelude", one) for one in spec.tables)
    more, gaps = waiting.beyond(catalog, [], printed, spec.called)
    assert gaps["prelude", "few_shot", "DeepSeek-R1"].reason != "no method few_shot in methods/"
    (row,) = (
        row
        for row in tables.build(
            SPECS_OF["prelude", "table_4"],
            spec,
            reference_of("prelude", SPECS_OF["prelude", "table_4"]),
            NO_SCORES,
            as_printed(more, spec.called),
            gaps,
        ).papers
        if row.stub[-1] == "DeepSeek-R1"
    )
    assert {(number.state, number.reason) for number in row.numbers} == {("not run", "not run")}
    assert {number.cell.split("/")[1] for number in row.numbers} == {"closed_book"}
    assert all(number.command for number in row.numbers)


def test_what_was_run_on_a_rebuild_alone_is_still_not_run_and_says_so() -> None:
    built = table("table_2", frame(score(provenance="rebuild")))
    number = place(built, "Qwen3-30B off", "OAKS-B | Base | All")
    assert (number.own, number.state, number.reason) == (None, "not run", "run on a rebuild of the paper's data alone")
    (row,) = built.ours
    assert row.data == "rebuild" and row.numbers[0].state == "not comparable" and "built anew" in row.reason


def test_counts_of_several_datasets_are_asked_for_of_each() -> None:
    joined = "oaks_babi+oaks_novel"
    _, gaps = waiting.beyond(Catalog(ROOT), [], waiting.Printed(frozenset({(joined, "", "")})))
    assert gaps[joined, "", ""].command == "./upkeep dataset build oaks_babi && ./upkeep dataset build oaks_novel"


def test_a_place_that_no_run_of_ours_fills_says_why() -> None:
    spec = only(SPECS["table_2"], unfilled=[Unfilled(match={"subset": "sparse"}, why="nobody knows")])
    built = built_of(spec, NO_SCORES)
    number = place(built, "Qwen3-30B off", "OAKS-B | Base | Sprs.")
    assert (number.state, number.reason, number.command) == ("no number", "nobody knows", "")
    assert place(built, "Qwen3-30B off", "OAKS-B | Base | All").reason == "not run"


def test_a_stand_ins_settings_are_its_own_wherever_they_are_told() -> None:
    """OAKS' mini retrieves 2 chunks where the paper's tables print 15; it stands in that place and says so."""
    scores = frame(score(method="rag_bm25", label="BM25", dataset_id="oaks_babi_mini", setting="k=2;thinking=off"))
    built = table("table_12", scores)
    (row,) = built.ours
    lines = [line for line in csv.DictReader(io.StringIO(to_csv(built))) if line["own"]]
    assert row.stub[0] == "BM25 (k=2) [mini]" and [line["setting.k"] for line in lines] == ["2"]
    assert lines[0]["reason"].endswith("k=2 stands for 15") and row.key[1] == "15"
