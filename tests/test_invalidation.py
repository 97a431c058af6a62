"""What a change invalidates: the table of docs/architecture.md, each line of which is tried here on six small cells.

`PYTHONPATH=. python tests/test_invalidation.py` writes the table into the page.
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

from conftest import CACHE, copy_repository, make_smaller
from identity_root import BEFORE, later_field
from scored_cells import manifest_of
from test_graded import Counted
from test_trained_models import CARD, METHOD
from upkeep.batches import batches
from upkeep.building.build import build_dataset
from upkeep.catalog import Catalog
from upkeep.execution.batch import run_batch
from upkeep.execution.fetch import fetch
from upkeep.execution.refresh import refresh
from upkeep.execution.supervise import run_cell
from upkeep.grading.judged import judged
from upkeep.grading.scores import Scores, read_scores, score_suite
from upkeep.identity import plan_dataset
from upkeep.inputs import verify_dataset
from upkeep.integrity import Stale
from upkeep.jobs import Cell
from upkeep.judging.suite import judge_suite
from upkeep.layout import Layout
from upkeep.new import new_paper
from upkeep.report.page import render

PAGE = Path(__file__).resolve().parents[1] / "docs" / "architecture.md"
PLACE = re.compile(r"(?<=<!-- made by tests/test_invalidation.py -->\n).*?(?=<!-- end -->)", re.S)

BABI, NOVEL = "oaks_babi_mini", "oaks_novel_mini"
CELLS = (
    Cell(BABI, "closed_book", "default", "tiny"),
    Cell(BABI, "rag_bm25", "k1", "tiny"),
    Cell(BABI, "gold", "default", "none"),
    Cell(NOVEL, "closed_book", "default", "tiny"),
    Cell(BABI, "closed_book", "default", "tiny-drawn"),
    Cell(BABI, "closed_book", "default", f"tiny+marker.plain@{NOVEL}"),
)
"""The first is judged by a model, the fifth draws its words, the sixth asks a trained model."""
JUDGED, TRAINED = 0, 5
NAMES = tuple(
    f"{cell.method} on {cell.dataset}{what}"
    for cell, what in zip(CELLS, (", judged", "", "", "", ", sampled", ", trained"), strict=True)
)
FAMILY, PROMPT = "datasets/oaks_babi/__init__.py", "papers/oaks/prompts/oaks_babi.yaml"
JUDGES = "papers/oaks/judges.yaml"

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


def rename(old: str, new: str, root: Path) -> None:
    source = root / "src" / "upkeep"
    (source / old).rename(source / new)
    names = [f"upkeep.{name.removesuffix('.py').replace('/', '.')}" for name in (old, new)]
    for file in source.rglob("*.py"):
        file.write_text(file.read_text().replace(*names))


MEND = """

import dataclasses

import polars as pl

_build = build


def build(context: Context) -> Built:
    found = _build(context)
    more = pl.col("answers").list.concat(pl.lit(["mended"]))
    return dataclasses.replace(found, gold=found.gold.with_columns(answers=more))
"""

ALL = (0, 1, 2, 3, 4, 5)
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
    trained: Sequence[int] = ()
    """Their model is trained again, and then asked."""
    built: Sequence[str] = ()
    """Datasets."""
    graded: Sequence[int] = ()
    scored: Sequence[int] | None = None
    """None: those that are graded."""
    judged: bool = False
    """Whether the judge judges again."""
    report: bool = True
    """Whether a run writes the report again."""


OF_CLOSED_BOOK = (0, 3, 4, 5)
ASKING = (0, 1, 3, 4, 5)
LINES = (
    Line("a comment in the runner", add("src/upkeep/cell/runner.py", WORD), report=False),
    Line("the name of a module of the runner", partial(rename, "cell/mistakes.py", "cell/errors.py"), report=False),
    Line("code of the runner", add("src/upkeep/cell/runner.py"), replayed=ALL),
    # Not of what a container says: this process, which hears it, knows no such field.
    Line("a contract's new field with a default", partial(later_field, before=BEFORE, records=CARDS), replayed=ALL),
    Line("one method", add("methods/closed_book/method.py"), replayed=OF_CLOSED_BOOK),
    Line("its requirements", add("methods/rag_bm25/requirements.lock", WORD), replayed=(1,)),
    Line("a method that trains", add("methods/marker/method.py"), trained=(TRAINED,)),
    Line("a comment in an engine", add("src/upkeep/serving/transformers_engine.py", WORD), report=False),
    Line("code of an engine", add("src/upkeep/serving/transformers_engine.py"), asked=ASKING, judged=True),
    Line(
        "how a model decodes",
        replace("models/tiny/model.yaml", "max_tokens: 16", "max_tokens: 15"),
        asked=(0, 1, 3, 5),
        judged=True,
    ),
    Line("how a preset decodes", replace("models/tiny/model.yaml", "max_tokens: 12", "max_tokens: 11"), asked=(4,)),
    Line(
        "more trials",
        replace("config/suites/small.yaml", "trials: 1", "trials: 2"),
        replayed=(0, 1, 2, 3, 5),
        asked=(4,),
        graded=(0, 1, 2, 3, 5),
        judged=True,
    ),
    Line("a new prompt", copy(PROMPT, "papers/oaks/prompts/more.yaml"), report=False),
    Line(
        "a prompt's text",
        replace(PROMPT, "You are given a text", "Here is a text"),
        asked=(1,),
        replayed=(0, 2, 4, 5),
    ),
    Line("a comment in a prompt", add(PROMPT, WORD), report=False),
    Line("a new dataset", copy("datasets/oaks_babi", "datasets/another"), report=False),
    Line("a builder's code", add(FAMILY), built=(BABI,), report=False),
    Line(
        "a mended gold answer",
        add(FAMILY, MEND),
        built=(BABI,),
        replayed=(2,),
        graded=(0, 1, 2, 4, 5),
        judged=True,
    ),
    Line("how answers are read, to the same end", add("src/upkeep/grading/reading.py"), graded=ALL, scored=()),
    Line(
        "a judge's question",
        replace(JUDGES, "Say whether a response is", "Tell whether a response is"),
        scored=(0, 1, 2, 4, 5),
        judged=True,
    ),
    Line("a metric of their paper", add("papers/oaks/metrics.py"), scored=ALL),
    Line("a metric of another paper", add("papers/evowiki/metrics.py"), report=False),
    Line("what metrics share", add("src/upkeep/grading/metrics.py"), scored=ALL),
    Line("a published number", replace("papers/small/reference/table_1.csv", "100.0", "99.0")),
    Line("the report", add("src/upkeep/report/page.py")),
    Line("pico's recipe", add("models/pico/recipe/lessons.py"), report=False),
)


def table() -> str:
    """The lines in Markdown."""
    head = ["changed", *NAMES, "built", "judged", "graded", "scored", "report"]
    rows = [head, ["---"] * len(head)]
    for line in LINES:
        found = {"replayed": line.replayed, "asked": line.asked, "trained": line.trained}
        states = [next((what for what, cells in found.items() if n in cells), "") for n in ALL]
        scored = line.graded if line.scored is None else line.scored
        counts = [number((JUDGED,) if line.judged else ()), number(line.graded), number(scored)]
        rows.append([line.what, *states, ", ".join(line.built), *counts, "written" if line.report else ""])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def number(cells: Sequence[int]) -> str:
    """How many of the cells."""
    return {0: "", 1: "1 cell", len(ALL): "all"}.get(len(cells), f"{len(cells)} cells")


RUBRIC = """
strict:
  - where: {question_type: [tracking]}
    rubric:
      read: only
      verdicts: {"YES": right, "NO": wrong}
      max_tokens: 4
      system: Say whether a response is right, YES or NO.
      user: "{question} {gold} {response}"
"""
DRAWN = {"label": "Tiny, sampled", "sampling": {"temperature": 1.0, "top_p": 1.0, "max_tokens": 12}}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository whose six cells have been run, judged and scored."""
    root = copy_repository(tmp_path_factory.mktemp("invalidation"))
    make_smaller(root)
    new_paper(root, "small")
    (root / "papers/small/suite.yaml").unlink()
    shutil.copytree(root / "methods/sft", root / "methods/marker")
    (root / "methods/marker/method.py").write_text(METHOD)
    (root / "methods/marker/method.yaml").write_text(yaml.safe_dump(CARD | {"asks": False, "variants": {"plain": {}}}))
    add(JUDGES, RUBRIC)(root)
    change(root / "datasets/oaks_babi/dataset.yaml", judges="strict")
    change(root / "models/tiny/model.yaml", presets={"drawn": DRAWN})
    choices = [
        {"datasets": [cell.dataset], "methods": [f"{cell.method}/{cell.variant}"], "models": [cell.model]}
        for cell in CELLS
    ]
    suite = {"label": "small", "summary": "s", "papers": ["small"], "trials": 1, "cells": choices}
    choices[JUDGED] |= {"judges": ["tiny"]}
    (root / "config/suites/small.yaml").write_text(yaml.safe_dump(suite))
    change(root / "config/config.yaml", suite="small", runtime="process", cache=str(CACHE))
    catalog = Catalog(root)
    for name in (BABI, NOVEL):
        build_dataset(catalog, name, Layout(catalog.results).dataset(name))
    fetch(catalog, "tiny")
    fetch(catalog, "tiny-drawn")
    for training in catalog.trainings_of(CELLS[TRAINED]):
        run_cell(catalog, training)
    for batch in batches(catalog, CELLS):
        run_batch(catalog, batch)
    told = list(judge_suite(catalog, "small", "tiny"))
    assert re.search(r"verdicts, [1-9]", told[0]), "it was asked"
    score_suite(catalog, "small")
    return root


def change(card: Path, **fields: object) -> None:
    card.write_text(yaml.safe_dump(yaml.safe_load(card.read_text()) | fields, sort_keys=False))


def report(root: Path, scores: Scores) -> dict[str, bytes]:
    """What a run's report says, and what it is written from: the scores, the paper, the code."""
    catalog, layout = Catalog(root), Layout(root / "results")
    render(catalog, scores)
    sources = [*(root / "src/upkeep/report").rglob("*.py"), *(root / "papers/small").rglob("*.*")]
    pages = layout.report("small").parent.rglob("*.*")
    written = [*pages, layout.scores_record("small"), *layout.tables("small").rglob("*.*"), *sources]
    written = [path for path in written if path.is_file() and "__pycache__" not in path.parts]
    return {str(path.relative_to(root)): path.read_bytes() for path in written}


def is_judged(catalog: Catalog) -> bool:
    """Whether the judge's verdicts are on what is there now."""
    cell = CELLS[JUDGED]
    manifest = manifest_of(Layout(catalog.results).cell(cell))
    try:
        return bool(judged(catalog, cell, "tiny", manifest))
    except Stale:
        return False


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
    before, said = answers(Catalog(root)), report(root, read_scores(Catalog(root), "small"))
    line.change(root)
    catalog = Catalog(root)
    built = [name for name in (BABI, NOVEL) if plan_dataset(catalog, name) != verify(catalog, name)]
    assert built == list(line.built)
    for name in built:
        build_dataset(catalog, name, Layout(catalog.results).dataset(name))
    found = refresh(catalog, "small")
    assert not found.failed
    assert numbers(found.replayed) == list(line.replayed)
    to_train = [cell for cell, why in found.left.items() if "to be trained" in why]
    assert numbers(found.left.keys() - to_train) == list(line.asked)
    assert numbers(to_train) == list(line.trained)
    assert answers(catalog) == before
    assert is_judged(Catalog(root)) is not line.judged
    counted = Counted(monkeypatch)
    scores = score_suite(Catalog(root), "small")
    scored = line.graded if line.scored is None else line.scored
    assert numbers(map(Cell.parse, counted.graded)) == list(line.graded)
    assert numbers(map(Cell.parse, counted.scored)) == list(scored)
    assert (report(root, scores) != said) is line.report


def verify(catalog: Catalog, name: str) -> str:
    return verify_dataset(Layout(catalog.results).dataset(name)).plan


def numbers(cells: Iterable[Cell]) -> list[int]:
    return sorted(CELLS.index(cell) for cell in cells)


def test_the_page_says_it() -> None:
    found = PLACE.search(PAGE.read_text())
    assert found is not None and found[0] == table()


if __name__ == "__main__":
    PAGE.write_text(PLACE.sub(lambda _: table(), PAGE.read_text()))
