"""Dense retrieval of two papers: which cells fill the rows that they print of it, and which do not."""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Sequence
from typing import Any

import polars as pl
import pytest

from conftest import ROOT
from test_paper_tables import PAPERS, is_there, lines_of, made_up, of_paper, product_of
from upkeep.catalog import Catalog
from upkeep.grading.score import SCORE_SCHEMA
from upkeep.jobs import Cell
from upkeep.report import figures
from upkeep.report.fields import as_printed

CATALOG = Catalog(ROOT)
READER = {"evowiki": "llama-3.1-8b-evowiki", "prelude": "gpt-4o-prelude"}
OF_BOOK = "shots=5;context=book;k={};chunk_tokens={};retriever={};order={}"
BY_SETTING = {
    "evowiki": {
        "corpus=golden;k=15;chunk_tokens=256": "evowiki/rag_dense/k15_contriever",
        "corpus=large;k=15;chunk_tokens=256": "evowiki_large/rag_dense/k15_contriever",
    },
    "prelude": {
        OF_BOOK.format(40, 500, "Qwen3-Embedding-8B", "relevance"): "prelude/rag_dense/k40_qwen3-8b",
        OF_BOOK.format(40, 500, "Qwen3-Embedding-8B", "book"): "prelude/rag_dense/k40_qwen3-8b_arrival",
        OF_BOOK.format(20, 1000, "Qwen3-Embedding-8B", "relevance"): "prelude_long_chunks/rag_dense/k20_qwen3-8b",
        OF_BOOK.format(40, 500, "BGE-M3", "relevance"): "prelude/rag_dense/k40_bge-m3",
        OF_BOOK.format(20, 1000, "BGE-M3", "relevance"): "prelude_long_chunks/rag_dense/k20_bge-m3",
    },
}
"""The setting of a published line -> the cell of its reader that fills it."""
BESIDE = ("infbench_mc", "detectiveqa", "narrativeqa", "nocha_public")
BY_DATASET = {
    "prelude": {
        "criterion=beyond_summarization;retriever=Qwen3-Embedding-8B;unit=chunks;max_context=10K": {
            *(f"{name}/rag_dense/k20_qwen3-8b/{READER['prelude']}" for name in BESIDE),
            "",  # of PRELUDE the sample is not named
        }
    }
}
"""The same where each dataset has a cell of its own."""


def of_suite(paper: str, *models: str) -> list[Cell]:
    cells = CATALOG.cells(CATALOG.suite(paper))
    return [cell for cell in cells if cell.method == "rag_dense" and cell.model in models]


def beside(cell: Cell) -> Cell:
    """The same with the method's own embedder, or with another number of chunks where it has no variant of that."""
    plain = cell.variant.partition("_")[0]
    return dataclasses.replace(cell, variant=plain if plain in CATALOG.method("rag_dense").variants else "k30")


@pytest.mark.parametrize("paper", READER)
def test_rows_of_dense_retrieval_are_filled_by_the_papers_embedder_chunks_and_order_alone(paper: str) -> None:
    cells = of_suite(paper, READER[paper])
    given = dict.fromkeys([*map(beside, cells), *cells])
    scores = pl.DataFrame([row for cell in given for row in made_up(cell, paper)], schema=SCORE_SCHEMA)
    found: dict[str, set[str]] = {}
    for spec in PAPERS[paper].tables:
        built = of_paper(paper, spec.id, scores)
        lines = lines_of(ROOT / "papers" / paper / "reference" / built.spec.file)
        own = [line for line in lines if line["method"] == "rag_dense" and line["model"] == _label(READER[paper])]
        matches = [functools.reduce(operator.or_, parts, spec.where) for parts in product_of(spec)]
        for row in built.rows:
            key = dict(zip(spec.rows, row.key, strict=True))
            for match, number in zip(matches, row.numbers, strict=True):
                for line in own:
                    if number.published and is_there(line, match) and is_there(line, key):
                        found.setdefault(line["setting"], set()).add(number.cell)
    wanted = {setting: {f"{cell}/{READER[paper]}"} for setting, cell in BY_SETTING[paper].items()}
    wanted |= BY_DATASET.get(paper, {})
    assert {setting: found[setting] for setting in wanted} == wanted
    others = {cell for setting, filled in found.items() if setting not in wanted for cell in filled}
    assert not others & {str(cell) for cell in given}


def _label(model: str) -> str:
    return CATALOG.spec(model).label


def as_drawn(cell: Cell) -> list[dict[str, Any]]:
    """Made-up scores of a cell; of the human study's dataset those that the slice of the whole has."""
    study = {"dataset": "prelude_human_study", "dataset_id": "prelude_human_study", "subset": "all"}
    if cell.dataset != study["dataset"]:
        return made_up(cell, CATALOG.dataset(cell.dataset).paper)
    rows = made_up(dataclasses.replace(cell, dataset="prelude"), "prelude")
    return [row | study for row in rows if row["subset"] == "human_study"]


QWEN2 = ("qwen2.5-7b-prelude", "qwen2.5-32b", "qwen2.5-72b")
QWEN3 = ("qwen3-8b-prelude", "qwen3-32b-thinking", "qwen3-235b-thinking")


@pytest.mark.parametrize(
    ("paper", "figure", "models", "places"),
    [
        ("evowiki", "figure_3", [READER["evowiki"]], [1, 5, 10, 15, 20, 30]),
        ("prelude", "figure_3a", [READER["prelude"]], [10, 20, 40, 80, 160]),
        ("prelude", "figure_3b", (*QWEN2, *QWEN3), [0, 1, 2, 3, 4, 5]),
    ],
)
def test_a_sweep_is_drawn_from_the_suites_cells(
    paper: str, figure: str, models: Sequence[str], places: list[int]
) -> None:
    (spec,) = (spec for spec in PAPERS[paper].figures if spec.id == figure)
    rows = [row for cell in of_suite(paper, *models) for row in as_drawn(cell)]
    scores = as_printed(pl.DataFrame(rows, schema=SCORE_SCHEMA), PAPERS[paper].called)
    drawn = figures.build(spec, scores).panels
    assert drawn and all(traces and all(trace.x == places for trace in traces) for traces in drawn)
