"""What a table says of each entry: how it stands to the published number, what would fill it, and what is our own."""

from __future__ import annotations

import csv
import io
import itertools
import random
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import ROOT
from test_tables import NO_SCORES, NOTHING_WAITS, OAKS, PAPER, SPECS, frame, place, score, table
from upkeep.catalog import Catalog
from upkeep.jobs import Cell
from upkeep.report import page, tables, waiting
from upkeep.report.comparing import compare
from upkeep.report.fields import as_printed
from upkeep.report.latex import latex_escape, to_latex
from upkeep.report.parts import MARKS, told
from upkeep.report.reference import read_reference
from upkeep.report.specs import Called, PaperSpec, TableSpec, Unfilled, read_paper
from upkeep.report.written import ELSEWHERE, to_csv, to_markdown, write_elsewhere

PAPERS = {path.parent.name: read_paper(path.parent) for path in sorted((ROOT / "papers").glob("*/tables.yaml"))}
SPECS_OF = {(paper, spec.id): spec for paper, specs in PAPERS.items() for spec in specs.tables}
TABLES = list(SPECS_OF)
HOSTILE = 'a&b_c%d#e{f}g$h~i^j\\k[l]*m<n>|o "p"\n\n– ’ 模型 \x07 ± \\\\[1em]'


def reference_of(paper: str, spec: TableSpec) -> pl.DataFrame:
    return read_reference(ROOT / "papers" / paper / "reference" / spec.file)


def as_scores(reference: pl.DataFrame, **fields: Any) -> pl.DataFrame:
    """Scores of our own that are the published numbers."""
    rows = []
    for n, row in enumerate(reference.iter_rows(named=True)):
        setting = ";".join(f"{pair['key']}={pair['value']}" for pair in row["setting"])
        value = float(row["value"])
        own = row | {"value": value, "low": value - 1, "high": value + 1, "setting": setting, "cell": f"d/m/v/{n}"}
        rows.append(score(**(own | fields)))
    return frame(*rows)


def only(spec: TableSpec, **fields: Any) -> TableSpec:
    return msgspec.structs.replace(spec, **fields)


def built_of(spec: TableSpec, scores: pl.DataFrame, name: str = "table_2", **more: Any) -> tables.Table:
    return tables.build(spec, PAPER, read_reference(OAKS / f"reference/{name}.csv"), scores, NOTHING_WAITS, **more)


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
    assert "36.2±1.0 / 35.8 ≈ | 90.0±2.0 / 38.5 ≠ | 36.2±1.0 / 37.3 † | – / 29.4 |" in markdown
    latex = r"36.2$\pm$1.0 / 35.8 $\approx$ & 90.0$\pm$2.0 / 38.5 $\neq$ & 36.2$\pm$1.0 / 37.3 \dag{} & -- / 29.4"
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
    return waiting.beyond(catalog, catalog.cells(catalog.suite("mini")), waiting.Printed.of(references))


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
        *(f"no method {name} in methods/" for name in ("hipporag2", "memagent", "a_mem")),
        *unfilled,
    }


@pytest.mark.parametrize(
    ("triple", "gap"),
    [
        (("oaks_babi", "long_context", "Nobody"), "no model is called Nobody in models/"),
        (("oaks_babi+oaks_novel", "long_context", "Qwen3-30B"), "no dataset oaks_babi+oaks_novel in datasets/"),
        (("oaks_babi", "sft+hipporag2", "Qwen3-30B"), "no method hipporag2 in methods/"),
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


def evolveqa(name: str, pending: pl.DataFrame, gaps: waiting.Gaps | None = None) -> tables.Table:
    whole, spec = PAPERS["evolveqa"], SPECS_OF["evolveqa", name]
    return tables.build(spec, whole, reference_of("evolveqa", spec), NO_SCORES, as_printed(pending, whole.called), gaps)


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


# ------------------------------------------------------------------ which settings count


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
    assert built.placed == set(range(150))
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
    found = page._of_paper(Catalog(ROOT), "oaks", called, scores)
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


# ------------------------------------------------------------------ LaTeX


def columns_of(form: str) -> int:
    return len(re.findall(r"[lcr]|p\{[^}]*\}", re.sub(r">\{[^}]*\}", "", form)))


def check_latex(text: str) -> None:
    """Environments and braces are balanced, specials escaped, all rows of a table as wide as it is."""
    lines = [line for line in text.splitlines() if not line.startswith("%")]
    body = "\n".join(lines)
    assert not re.search(r"\n[ \t]*\n", body), "a paragraph's end is an error in a caption"
    opened: list[str] = []
    for kind, name in re.findall(r"\\(begin|end)\{([a-z]+)\}", body):
        if kind == "begin":
            opened.append(name)
        else:
            assert opened.pop() == name
    assert not opened
    plain = re.sub(r"\\label\{[^}]*\}", "", body)
    plain = re.sub(r"\\\\|\\[&%$#_{}]", "", plain)
    depth = 0
    for character in plain:
        depth += (character == "{") - (character == "}")
        assert depth >= 0
    assert depth == 0
    assert plain.count("$") % 2 == 0
    outside = re.sub(r"\$[^$]*\$", "", plain)
    assert not re.search(r"[%#_^~]", outside), re.search(r".*[%#_^~].*", outside)
    known = {"begin", "end", "centering", "caption", "toprule", "midrule", "bottomrule", "multicolumn"}
    known |= {"cmidrule", "par", "footnotesize", "textwidth", "textbackslash", "textasciitilde", "textasciicircum"}
    known |= {"textless", "textgreater", "textbar", "ldots", "dag", "texttt", "textheight", "smallskip", "scriptsize"}
    known |= {"setlength", "tabcolsep", "raggedright", "arraybackslash", "ContinuedFloat", "clearpage"}
    assert set(re.findall(r"\\([a-zA-Z]+)", outside)) <= known
    assert all(character.isprintable() or character == "\n" for character in text)
    for form, inner in re.findall(r"\\begin\{tabular\}\{((?:[^{}]|\{[^{}]*\})*)\}\n(.*?)\\end\{tabular\}", body, re.S):
        width = columns_of(form)
        rows = [line for line in inner.splitlines() if line not in ("\\toprule", "\\midrule", "\\bottomrule")]
        assert rows
        for row in rows:
            content, end, rules = row.rpartition(r" \\")
            assert end and re.fullmatch(r"(\\cmidrule\(lr\)\{\d+-\d+\})*", rules), row
            cells = re.split(r"(?<!\\)&", content.replace(r"\\", ""))
            spans = [int(span[1]) if (span := re.match(r"\s*\\multicolumn\{(\d+)\}", cell)) else 1 for cell in cells]
            assert sum(spans) == width, row
            assert not re.match(r"\s*[\[*]", row), "after the end of a row these are its options"
            for first, last in re.findall(r"\{(\d+)-(\d+)\}", rules):
                assert 1 <= int(first) <= int(last) <= width


@pytest.mark.parametrize(("paper", "name"), TABLES)
def test_every_table_is_latex_whatever_things_are_called(paper: str, name: str) -> None:
    whole = PAPERS[paper]
    spec = next(spec for spec in whole.tables if spec.id == name)
    reference = reference_of(paper, spec)
    hostile = only(spec, caption=HOSTILE, notes=[*spec.notes, HOSTILE], title=f"{spec.title} {HOSTILE}")
    named: PaperSpec = msgspec.structs.replace(whole, names=whole.names | {"off": HOSTILE})
    own = as_scores(reference)
    odd = own.with_columns(model=pl.lit(HOSTILE), label=pl.lit("[1em]*" + HOSTILE))
    extra = [[{"key": "k_%", "value": HOSTILE}, *setting] for setting in own["setting"].to_list()]
    other = own.with_columns(pl.Series("setting", extra, dtype=own.schema["setting"]))
    mini = own.with_columns(stand_in=pl.lit("[x]"), trained=pl.lit(value=False))
    failed = odd.with_columns(lacks=pl.lit(""), reason=pl.lit(HOSTILE), command=pl.lit(HOSTILE), aside=False)
    pending = failed.select(list(waiting.PENDING_SCHEMA))
    for scores in (NO_SCORES, own, pl.concat([own, odd, other, mini])):
        built = tables.build(hostile, named, reference, scores, pending)
        check_latex(to_latex(built))
        for line in to_markdown(built).splitlines():
            if line.startswith("| "):
                assert len(re.findall(r"(?<!\\)\|", line)) in {
                    len(built.columns) + 1 + len(spec.stub) + n for n in (0, len(spec.facts), 1, 2)
                }
        rows = list(csv.DictReader(io.StringIO(to_csv(built))))
        assert len(rows) == len(built.rows) * len(built.columns)


def test_the_check_of_latex_finds_what_is_wrong() -> None:
    good = to_latex(table("table_2", frame(score(), score(model="Mine"))))
    check_latex(good)
    for old, new in (
        ("\\end{tabular}", ""),
        ("35.8", "35_8"),
        ("35.8", "35.8 & 1"),
        ("35.8", "35.8}"),
        ("35.8", "\\unknown{}"),
        ("Qwen3-4B", "[Qwen3-4B"),
        ("Qwen3-4B", "Qwen3\n\n4B"),
        ("\\multicolumn{8}", "\\multicolumn{7}"),
    ):
        assert old in good
        with pytest.raises(AssertionError):
            check_latex(good.replace(old, new, 1))


def test_special_characters_are_escaped() -> None:
    assert latex_escape("a_b & 50% \\ {x}") == r"a\_b \& 50\% \textbackslash{} \{x\}"
    assert latex_escape("[1em] *\n\nx") == "{[}1em{]} {*} x"
