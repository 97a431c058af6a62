"""What a change invalidates: the table of docs/architecture.md, each line of which is tried here on four small cells.

`python tests/test_invalidation.py` writes the table into the page.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import yaml

from conftest import CACHE, copy_repository
from test_graded import Counted
from test_identity import BEFORE, later_field
from upkeep.building.build import build_dataset
from upkeep.catalog import Catalog
from upkeep.execution.fetch import fetch
from upkeep.execution.refresh import refresh
from upkeep.execution.supervise import run_cell
from upkeep.grading.scores import score_suite
from upkeep.identity import plan_dataset
from upkeep.inputs import verify_dataset
from upkeep.jobs import Cell
from upkeep.layout import Layout

PAGE = Path(__file__).resolve().parents[1] / "docs" / "architecture.md"
PLACE = re.compile(r"(?<=<!-- made by tests/test_invalidation.py -->\n).*?(?=<!-- end -->)", re.S)

BABI, NOVEL = "oaks_babi_mini", "oaks_novel_mini"
CELLS = (
    Cell(BABI, "closed_book", "default", "tiny"),
    Cell(BABI, "rag_bm25", "k1", "tiny"),
    Cell(BABI, "gold", "default", "none"),
    Cell(NOVEL, "closed_book", "default", "tiny"),
)
NAMES = tuple(f"{cell.method} on {cell.dataset}" for cell in CELLS)
FAMILY, PROMPT = "datasets/oaks_babi/__init__.py", "papers/oaks/prompts/oaks_babi.yaml"

Change = Callable[[Path], object]


def add(path: str, text: str = "\n\nUNUSED = 1\n") -> Change:
    def change(root: Path) -> None:
        with (root / path).open("a") as file:
            file.write(text)

    return change


def replace(path: str, old: str, new: str) -> Change:
    def change(root: Path) -> None:
        text = (root / path).read_text()
        assert old in text, path
        (root / path).write_text(text.replace(old, new, 1))

    return change


def copy(path: str, other: str) -> Change:
    def change(root: Path) -> None:
        place = root / path
        (shutil.copytree if place.is_dir() else shutil.copyfile)(place, root / other)

    return change


MEND = """

import dataclasses

import polars as pl

_build = build


def build(context: Context) -> Built:
    found = _build(context)
    more = pl.col("answers").list.concat(pl.lit(["mended"]))
    return dataclasses.replace(found, gold=found.gold.with_columns(answers=more))
"""

ALL = (0, 1, 2, 3)
CARDS = ("DatasetSpec", "ModelSpec", "EngineSettings")
WORD = "\n# a word\n"


@dataclass(frozen=True)
class Line:
    """What a change leaves to be done, by numbers of CELLS."""

    what: str
    change: Change
    replayed: Sequence[int] = ()
    """They run again, and the record answers all that they ask: to the same bytes."""
    asked: Sequence[int] = ()
    """They ask a model."""
    built: Sequence[str] = ()
    """Datasets."""
    graded: Sequence[int] = ()
    scored: Sequence[int] | None = None
    """None: those that are graded."""


LINES = (
    Line("a comment in the runner", add("src/upkeep/cell/runner.py", WORD), replayed=ALL),
    Line("code of the runner", add("src/upkeep/cell/runner.py"), replayed=ALL),
    # Not of what a container says: this process, which hears it, knows no such field.
    Line("a contract's new field with a default", partial(later_field, before=BEFORE, records=CARDS), replayed=ALL),
    Line("one method", add("methods/closed_book/method.py"), replayed=(0, 3)),
    Line("its requirements", add("methods/rag_bm25/requirements.lock", WORD), replayed=(1,)),
    Line("a comment in an engine", add("src/upkeep/serving/transformers_engine.py", WORD)),
    Line("code of an engine", add("src/upkeep/serving/transformers_engine.py"), asked=(0, 1, 3)),
    Line("how a model decodes", replace("models/tiny/model.yaml", "max_tokens: 16", "max_tokens: 15"), asked=(0, 1, 3)),
    Line(
        "more trials, greedy", replace("config/suites/small.yaml", "trials: 1", "trials: 2"), replayed=ALL, graded=ALL
    ),
    Line("a new prompt", copy(PROMPT, "papers/oaks/prompts/more.yaml")),
    Line("a prompt's text", replace(PROMPT, "You are given a text", "Here is a text"), asked=(1,), replayed=(0, 2)),
    Line("a comment in a prompt", add(PROMPT, WORD)),
    Line("a new dataset", copy("datasets/oaks_babi", "datasets/another")),
    Line("a builder's code", add(FAMILY), built=(BABI,)),
    Line(
        "a mended gold answer",
        add(FAMILY, MEND),
        built=(BABI,),
        replayed=(2,),
        graded=(0, 1, 2),
    ),
    Line("how answers are read", add("src/upkeep/grading/reading.py"), graded=ALL),
    Line("a metric of their paper", add("papers/oaks/metrics.py"), scored=ALL),
    Line("a metric of another paper", add("papers/evowiki/metrics.py")),
    Line("what metrics share", add("src/upkeep/grading/metrics.py"), scored=ALL),
    Line("the report", add("src/upkeep/report/page.py")),
    Line("pico's recipe", add("models/pico/recipe/lessons.py")),
)


def table() -> str:
    """The lines in Markdown."""
    head = ["changed", *NAMES, "built", "graded", "scored"]
    rows = [head, ["---"] * len(head)]
    for line in LINES:
        states = ["asked" if n in line.asked else "replayed" if n in line.replayed else "" for n in ALL]
        scored = line.graded if line.scored is None else line.scored
        rows.append([line.what, *states, ", ".join(line.built), number(line.graded), number(scored)])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def number(cells: Sequence[int]) -> str:
    """How many of the cells."""
    return {0: "", 1: "1 cell", len(ALL): "all"}.get(len(cells), f"{len(cells)} cells")


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository whose four cells have been run and scored."""
    root = copy_repository(tmp_path_factory.mktemp("invalidation"))
    choices = [
        {"datasets": [cell.dataset], "methods": [f"{cell.method}/{cell.variant}"], "models": [cell.model]}
        for cell in CELLS
    ]
    suite = {"label": "small", "summary": "s", "papers": [], "trials": 1, "cells": choices}
    (root / "config/suites/small.yaml").write_text(yaml.safe_dump(suite))
    path = root / "config/config.yaml"
    settings = yaml.safe_load(path.read_text()) | {"suite": "small", "runtime": "process", "cache": str(CACHE)}
    path.write_text(yaml.safe_dump(settings))
    catalog = Catalog(root)
    for name in (BABI, NOVEL):
        build_dataset(catalog, name, Layout(catalog.results).dataset(name))
    fetch(catalog, "tiny")
    for cell in CELLS:
        run_cell(catalog, cell)
    score_suite(catalog, "small")
    return root


def answers(catalog: Catalog, trial: int = 0) -> list[list[bytes]]:
    """The lines of each cell's first trial."""
    mark = b'"trial":%d,' % trial
    files = [Layout(catalog.results).cell(cell) / "predictions.jsonl" for cell in CELLS]
    return [[line for line in file.read_bytes().splitlines() if mark in line] for file in files]


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.what)
def test_a_change_invalidates_what_the_page_says_and_nothing_else(
    done: Path, tmp_path: Path, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(done, root := tmp_path / "upkeep", symlinks=True)
    before = answers(Catalog(root))
    line.change(root)
    catalog = Catalog(root)
    built = [name for name in (BABI, NOVEL) if plan_dataset(catalog, name) != verify(catalog, name)]
    assert built == list(line.built)
    for name in built:
        build_dataset(catalog, name, Layout(catalog.results).dataset(name))
    found = refresh(catalog, "small")
    assert not found.failed
    assert numbers(found.replayed) == list(line.replayed)
    assert numbers(found.left) == list(line.asked)
    assert answers(catalog) == before
    counted = Counted(monkeypatch)
    score_suite(Catalog(root), "small")
    scored = line.graded if line.scored is None else line.scored
    assert numbers(map(Cell.parse, counted.graded)) == list(line.graded)
    assert numbers(map(Cell.parse, counted.scored)) == list(scored)


def verify(catalog: Catalog, name: str) -> str:
    return verify_dataset(Layout(catalog.results).dataset(name)).plan


def numbers(cells: Iterable[Cell]) -> list[int]:
    return sorted(CELLS.index(cell) for cell in cells)


def test_the_page_says_it() -> None:
    found = PLACE.search(PAGE.read_text())
    assert found is not None and found[0] == table()


if __name__ == "__main__":
    PAGE.write_text(PLACE.sub(lambda _: table(), PAGE.read_text()))
