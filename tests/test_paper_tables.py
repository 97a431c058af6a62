"""Tables of every paper that lays any out: published numbers in, published tables out; our scores in their places."""

from __future__ import annotations

import csv
import dataclasses
import functools
import itertools
import operator
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from conftest import ROOT
from table_scores import NO_SCORES, NOTHING_WAITS, frame, score
from upkeep.catalog import Catalog
from upkeep.errors import UpkeepError
from upkeep.grading.score import identify
from upkeep.grading.settings import as_rows, printed
from upkeep.jobs import Cell
from upkeep.report import specs, tables
from upkeep.report.fields import as_printed
from upkeep.report.latex import to_latex
from upkeep.report.rows import Row
from upkeep.report.specs import Called, TableSpec, read_paper
from upkeep.report.waiting import PENDING_SCHEMA
from upkeep.report.written import to_markdown

PAPERS = {path.parent.name: read_paper(path.parent) for path in sorted((ROOT / "papers").glob("*/tables.yaml"))}
FILES = [
    (paper, path.name) for paper in PAPERS for path in sorted((ROOT / "papers" / paper / "reference").glob("*.csv"))
]
TABLES = [(paper, spec.id) for paper in PAPERS for spec in PAPERS[paper].tables]


def of_paper(
    paper: str, name: str, scores: pl.DataFrame = NO_SCORES, pending: pl.DataFrame = NOTHING_WAITS
) -> tables.Table:
    """A table of a paper as the report builds it."""
    folder, spec = ROOT / "papers" / paper, PAPERS[paper]
    own, waiting = (as_printed(given, spec.called) for given in (scores, pending))
    return next(built for built in tables.build_all(folder, own, waiting) if built.spec.id == name)


def lines_of(path: Path) -> list[dict[str, str]]:
    """The lines of a file of published numbers, read without the suite, with a field for each setting."""
    with path.open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    return [
        line | {f"setting.{pair.split('=')[0]}": pair.partition("=")[2] for pair in line["setting"].split(";") if pair}
        for line in lines
    ]


def is_there(line: dict[str, str], match: specs.Match) -> bool:
    return all(line.get(n, "") in ([v] if isinstance(v, str) else v) for n, v in match.items())


@pytest.mark.parametrize(("paper", "file"), FILES)
def test_published_numbers_in_published_tables_out(paper: str, file: str) -> None:
    """Each number stands in one place alone, that of its row and its column; and no other number stands anywhere."""
    lines = lines_of(ROOT / "papers" / paper / "reference" / file)
    found: list[list[str]] = [[] for _ in lines]
    for spec in (spec for spec in PAPERS[paper].tables if spec.file == file):
        built, placed = of_paper(paper, spec.id), 0
        matches = [functools.reduce(operator.or_, parts, spec.where) for parts in product_of(spec)]
        for row in built.rows:
            key = dict(zip(spec.rows, row.key, strict=True))
            for match, number in zip(matches, row.numbers, strict=True):
                here = [n for n, line in enumerate(lines) if is_there(line, match) and is_there(line, key)]
                assert [lines[n]["value"] for n in here] == ([number.published] if number.published else []), key
                for n in here:
                    found[n].append(spec.id)
                placed += len(here)
            assert row.published and row.stub[0] + row.stub[-1], row
        for n, line in enumerate(lines):
            found[n] += [spec.id for fact in spec.facts if is_there(line, fact.match)]
        facts = {value for row in built.rows for value in row.facts}
        assert {line["value"] for line in lines for fact in spec.facts if is_there(line, fact.match)} <= facts
        assert placed and len({row.key for row in built.rows}) == len(built.rows)
        for text in (to_markdown(built), to_latex(built)):
            for value in {number.published for row in built.rows for number in row.numbers} - {""}:
                assert re.search(rf"(?<![\d.]){re.escape(value)}(?![\d.])", text), value
    assert [line for line, places in zip(lines, found, strict=True) if len(places) != 1] == []


def product_of(spec: TableSpec) -> list[tuple[specs.Match, ...]]:
    return list(itertools.product(*(axis.values() for axis in spec.columns)))


@pytest.mark.parametrize(("paper", "name"), TABLES)
def test_rows_stand_in_the_papers_order(paper: str, name: str) -> None:
    built = of_paper(paper, name)
    lines = lines_of(ROOT / "papers" / paper / "reference" / built.spec.file)
    keys = [tuple(line.get(field, "") for field in built.spec.rows) for line in lines]
    rows = [row.key for row in built.rows]
    assert rows == [key for key in dict.fromkeys(keys) if key in rows]


# ------------------------------------------------------------------ what our scores are called


def made_up(cell: Cell, paper: str) -> list[dict[str, Any]]:
    """Scores of a cell for whatever its paper prints of its dataset, each with another value."""
    identity = identify(Catalog(ROOT), cell, None)
    lines = [line for path in (ROOT / "papers" / paper / "reference").glob("*.csv") for line in lines_of(path)]
    kinds = {(line["dataset"], line["subset"], line["metric"]) for line in lines}
    own = dataclasses.asdict(identity) | {
        "setting": as_rows(identity.setting),
        "cell": str(cell),
        "low": None,
        "high": None,
        "provenance": "release",
        "questions": 600,
    }
    return [
        own
        | {"table": "", "dataset": dataset, "subset": subset, "metric": metric, "value": float(n), "unit": "percent"}
        for n, (dataset, subset, metric) in enumerate(sorted(kinds))
        if dataset == identity.dataset or dataset.startswith(f"{identity.dataset}_")
    ]


@pytest.mark.parametrize(
    ("paper", "own", "table", "stub", "column"),
    [
        ("evowiki", "sft+closed_book;adapter=lora;thinking=off", "table_4", "SFT + Closed-book", "Stable | Multi-hop"),
        ("evowiki", "rag_bm25;k=15;thinking=off", "table_4", "BM25", "Evolved | Single-hop"),
        (
            "evowiki",
            "rag_dense;k=15;retriever=Contriever;thinking=off",
            "table_4",
            "Contriever",
            "Evolved | Single-hop",
        ),
        (
            "evowiki",
            "sft+rag_dense;adapter=lora;k=15;retriever=Contriever;thinking=off",
            "table_4",
            "SFT + Contriever",
            "Uncharted | Multi-hop",
        ),
        (
            "evowiki",
            "sft+closed_book;adapter=lora;thinking=off",
            "prose_gains",
            "SFT + Closed-book minus Closed-book",
            "Evolved",
        ),
        ("prelude", "closed_book;thinking=on", "table_4", "DeepSeek-R1", "Macro F1 | Public"),
        (
            "prelude",
            "rag_dense;k=40;retriever=Qwen3-Embedding-8B;thinking=on",
            "table_4",
            "+ RAG top-40",
            "All | F1 contradict",
        ),
        ("prelude", "closed_book;thinking=on", "table_5", "No-Context", "Accuracy | ±"),
        ("prelude", "closed_book;thinking=on", "table_9", "Rebecca", "DeepSeek-R1 | No context"),
        (
            "prelude",
            "rag_dense;k=40;retriever=Qwen3-Embedding-8B;thinking=on",
            "table_9",
            "Rebecca",
            "DeepSeek-R1 | RAG",
        ),
    ],
)
def test_a_score_stands_where_the_paper_prints_its_like(
    paper: str, own: str, table: str, stub: str, column: str
) -> None:
    """What is called otherwise here and there finds its place; another model, retriever or way to think does not."""
    method, _, setting = own.partition(";")
    model = {"evowiki": "Meta-Llama-3.1-8B-Instruct", "prelude": "DeepSeek-R1"}[paper]
    spec = next(spec for spec in PAPERS[paper].tables if spec.id == table)
    match = dict(zip([" | ".join(path) for path in _headings(spec)], product_of(spec), strict=True))[column]
    where = {name: value for part in (spec.where, *match) for name, value in part.items() if isinstance(value, str)}
    asked = {name: where[name] for name in ("dataset", "subset", "metric") if name in where}
    asked = {"dataset": "prelude", "subset": "rebecca"} | asked
    if asked["dataset"] == "prelude" and asked["subset"] == "human_study":
        asked |= {"dataset": "prelude_human_study", "subset": "all"}  # as its own dataset calls it

    def cells(**changed: str) -> list[str]:
        own = {"dataset_id": paper} | asked | {"method": method, "model": model, "setting": setting, "cell": "mine"}
        row = score(**own | changed)
        return [
            stub + column
            for row in of_paper(paper, table, frame(row | {"stand_in": ""})).rows
            for column, number in zip(built_columns, row.numbers, strict=True)
            if (stub := next(text for field, text in zip(spec.stub, row.stub, strict=True) if field.field == "label"))
            and number.cell
            and number.published
        ]

    built_columns = of_paper(paper, table).columns
    assert cells() == [stub + column]
    assert cells(model="Mine") == []
    assert cells(setting=setting.replace("thinking=on", "thinking=off") + ";window=3") == []
    assert cells(setting=setting.replace("thinking=on", "thinking=?").replace("thinking=off", "thinking=on")) == []
    if "retriever" in setting:
        assert cells(setting=";".join(part for part in setting.split(";") if "retriever" not in part)) == []
        assert cells(setting=setting.replace("k=", "k=1")) == []


def _headings(spec: TableSpec) -> list[list[str]]:
    return [
        [line.strip() for heading in path for line in heading.split("|")]
        for path in itertools.product(*(axis for axis in spec.columns))
    ]


CHUNKS = [
    (paper, dataset, called.instead.get("setting.corpus"), called.instead["setting.chunk_tokens"])
    for paper in PAPERS
    for called in PAPERS[paper].called
    if "setting.chunk_tokens" in called.instead
    for where in [called.where.get("dataset_id", [])]
    for dataset in ([where] if isinstance(where, str) else where)
]


@pytest.mark.parametrize(("paper", "dataset", "corpus", "tokens"), CHUNKS)
def test_chunks_and_corpus_are_said_to_be_as_the_dataset_has_them(
    paper: str, dataset: str, corpus: str | None, tokens: str
) -> None:
    spec = Catalog(ROOT).dataset(dataset)
    assert str(spec.options["chunk_tokens"]) == tokens
    assert (spec.options.get("distractors") or 0) == (370_000 if corpus == "large" else 0)
    if spec.stands_for:
        tokens = PAPERS[paper].stand_in["setting.chunk_tokens"][tokens]
    printed = [lines_of(path) for path in (ROOT / "papers" / paper / "reference").glob("*.csv")]
    assert tokens in {line.get("setting.chunk_tokens") for lines in printed for line in lines}


@pytest.mark.parametrize("method", ["rag_bm25", "rag_dense"])
def test_what_is_asked_over_the_large_corpus_stands_in_its_own_rows(method: str) -> None:
    """The same questions over either corpus, each in its row of Table 4; what reads no corpus is in neither."""
    retriever = ";retriever=Contriever" if method == "rag_dense" else ""
    own = {"model": "Meta-Llama-3.1-8B-Instruct", "dataset": "evowiki_stable", "subset": "single_hop"}
    own |= {"metric": "exact_match", "method": method, "setting": f"k=15{retriever};thinking=off"}
    own |= {"provenance": "release", "stand_in": ""}
    scores = frame(
        score(**own, dataset_id="evowiki", value=1.0, cell="golden"),
        score(**own, dataset_id="evowiki_large", value=2.0, cell="large"),
        score(**own | {"method": "closed_book", "setting": "thinking=off"}, dataset_id="evowiki_large", value=3.0),
    )
    built = of_paper("evowiki", "table_4", scores)
    filled = {
        (row.key[1], row.key[3], row.key[4], row.key[5]): number.own
        for row in built.rows
        for number in row.numbers
        if number.published and number.own is not None
    }
    assert filled == {(method, "golden", "15", "256"): 1.0, (method, "large", "15", "256"): 2.0}


def test_what_scores_are_called_is_applied_in_turn_and_touches_nothing_else() -> None:
    called = [
        Called(
            where={"method": ["a", "b"], "setting.k": "3"}, instead={"method": "c", "setting.k": "", "setting.n": "1"}
        ),
        Called(where={"method": "c"}, instead={"dataset": "d"}),
    ]
    rows = frame(
        score(method="a", setting="x=1;k=3;y=2"), score(method="b", setting="k=4"), score(method="c", setting="")
    )
    found = as_printed(rows, called)
    assert found.drop("method", "setting", "dataset").equals(rows.drop("method", "setting", "dataset"))
    assert found["method"].to_list() == ["c", "b", "c"] and found["dataset"].to_list() == ["d", "oaks_babi", "d"]
    assert [printed(setting) for setting in found["setting"]] == ["x=1, y=2, n=1", "k=4", ""]
    assert found.schema == rows.schema and as_printed(rows, []).equals(rows)
    assert as_printed(NO_SCORES, called).is_empty()
    with pytest.raises(UpkeepError, match="unknown field 'methd'"):
        as_printed(rows, [Called(where={"methd": "a"}, instead={})])


def test_what_no_run_fills_says_why_and_what_one_does_is_still_shown() -> None:
    built = of_paper("prelude", "table_5")
    humans = next(row for row in built.rows if row.stub[-1] == "Humans")
    assert {number.reason for number in humans.numbers} == {"Three readers' answers, which no run of a model gives."}
    first = built.rows[0]
    assert {number.reason for number in first.numbers if number.published} == {"not run"}
    unprinted = [number for number in first.numbers if not number.published]
    assert unprinted and {number.state for number in unprinted} == {"unpublished"}
    assert "✗ / 81.7" in to_markdown(built) and "○ / 53.8" in to_markdown(built)
    own = {"dataset": "evowiki_stable", "subset": "single_hop", "metric": "human_fluency", "method": "", "setting": ""}
    number = of_paper("evowiki", "table_3", frame(score(**own))).rows[0].numbers[0]
    assert (number.own, number.reason) == (36.24, "")


def test_counts_have_no_decimals_beside_means_that_have_some() -> None:
    own = {"dataset": "evowiki_stable", "method": "", "setting": "", "model": "", "cell": "", "low": None, "high": None}
    counted = score(**own, metric="questions", unit="count", value=3819.0)
    built = of_paper("evowiki", "table_2", frame(counted, score(**own, metric="popularity_mean", value=7.0)))
    assert "| 3819 / 3819 ≈ | ○ / 5411.98 | 7.00 / 16305.96 ≠ |" in to_markdown(built)


def test_a_stand_in_says_its_own_settings_and_is_read_by_the_papers() -> None:
    own = {"method": "rag_bm25", "label": "RAG (BM25)", "model": "pico", "metric": "exact_match", "subset": "multi_hop"}
    mini = {"dataset": "evowiki_stable", "dataset_id": "evowiki_mini", "stand_in": "mini"}
    scores = frame(*(score(**own | mini, setting=f"k={k};thinking=off", value=float(k)) for k in (1, 3, 15)))
    rows = {row.stub[1]: row for row in of_paper("evowiki", "table_4", scores).ours}
    assert list(rows) == [f"RAG (BM25) (k={k}, corpus=golden, chunk_tokens=128)" for k in (1, 3, 15)]
    own = rows["RAG (BM25) (k=3, corpus=golden, chunk_tokens=128)"]
    assert own.stub[0] == "pico [mini]" and [number.own for number in own.numbers if number.own] == [3.0]
    others = [" k " in row.reason.replace("setting.", " ") for row in rows.values()]
    assert others == [True, False, True], "1 and 15 short chunks stand for no number of chunks that the paper has"


def test_a_cell_waits_in_each_row_that_subsets_tell_apart() -> None:
    own = score(method="closed_book", model="DeepSeek-R1", setting="thinking=on", dataset="prelude")
    waiting = pl.DataFrame([own | {"lacks": "", "reason": "failed: x"}], schema=PENDING_SCHEMA)
    built = of_paper("prelude", "table_9", pending=waiting)
    reasons = {c: {row.numbers[n].reason for row in built.rows} for n, c in enumerate(built.columns)}
    assert reasons.pop("DeepSeek-R1 | No context") == {"failed: x"}
    assert set().union(*reasons.values()) == {"not run"} and len(built.rows) == 13


def test_what_retrieves_with_another_embedder_than_oaks_stands_beside_none_of_its_numbers() -> None:
    """On a stand-in, which is read without a GPU, it is in the one row of its model."""
    small = "retriever=all-MiniLM-L6-v2;thinking=on"
    own = {"model": "Gemini 3 Pro", "dataset": "oaks_novel", "method": "rag_dense", "label": "RAG", "value": 50.0}
    column = "OAKS-N | RAG | All"

    def numbers(rows: list[Row]) -> list[float]:
        at = of_paper("oaks", "table_2").columns.index(column)
        return [number for row in rows if (number := row.numbers[at].own) is not None]

    papers = of_paper("oaks", "table_2", frame(score(**own, setting="k=30;thinking=on")))
    assert (numbers(papers.papers), numbers(papers.ours)) == ([50.0], [])
    other = of_paper("oaks", "table_2", frame(score(**own, setting=f"k=30;{small}")))
    assert (numbers(other.papers), numbers(other.ours)) == ([], [50.0])
    assert other.ours[0].reason == "no row of the paper's has retriever=all-MiniLM-L6-v2"

    base = own | {"method": "long_context", "label": "Base", "setting": "thinking=on"}
    mini = [score(**row, dataset_id="oaks_novel_mini") for row in (base, own | {"setting": f"k=3;{small}"})]
    (row,) = of_paper("oaks", "table_2", frame(*mini)).ours
    assert numbers([row]) == [50.0] and "retriever" not in row.reason


def test_a_score_is_a_variant_in_the_table_that_has_most_of_its_settings() -> None:
    """evolveQA's open answers are scored for Table 2, and once more as what Table 10 compares hints with."""
    asked = {"model": "Mine", "method": "closed_book", "dataset": "evolveqa_aws", "subset": "open_ended"}
    both = ["context=off;date=off", "context=on;date=off"]
    settings = ["", *both, "shots=3", *(f"{hints};judge=someone" for hints in both)]
    scores = frame(*(score(**asked, cell=f"evolveqa_aws/closed_book/default/{s}", setting=s) for s in settings))

    def rows(name: str) -> list[tuple[str, int]]:
        found = of_paper("evolveqa", name, scores).ours
        return [(row.setting, sum(number.own is not None for number in row.numbers)) for row in found]

    variant = ("shots=3", 1)
    assert rows("table_2") == rows("table_7") == rows("table_9") == [("", 1), variant]
    assert rows("table_10") == [("", 2), ("judge=someone", 2)], "the run without hints, and the one with some"
