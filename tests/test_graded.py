"""Grading on the host: what is kept of a cell, and what makes it worked out anew."""

from __future__ import annotations

from collections.abc import Callable
from io import BufferedReader
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pytest

import scored_cells
from scored_cells import answered, manifest_of, suite_of, timeline, write_cell, write_dataset
from upkeep import integrity
from upkeep.catalog import Catalog
from upkeep.grading import graded, scorers
from upkeep.grading.key import Key, key_in, read_key
from upkeep.grading.score import Scored
from upkeep.grading.scores import read_scores, score_suite
from upkeep.jobs import Cell
from upkeep.layout import Layout

catalog = scored_cells.catalog
fresh = scored_cells.fresh
pytestmark = pytest.mark.usefixtures("fresh")

DATASETS = ("oaks_babi_mini", "oaks_novel")
CELLS = [Cell(name, "rag_dense", variant, "tiny") for name in DATASETS for variant in ("k5", "k30")]


@pytest.fixture
def done(catalog: Catalog) -> Catalog:
    """Two cells on each of two datasets, scored, in a repository with the code of grading."""
    catalog = suite_of(catalog, *CELLS)
    for name in DATASETS:
        write_dataset(catalog.results / "datasets" / name, {"q": timeline("xx")}, name=name)
    for cell in CELLS:
        write_cell(catalog.results / "cells" / str(cell), answered("q", "xz"), cell=cell)
    own = catalog.root / "papers/other/metrics.py"
    own.parent.mkdir()
    own.write_text((catalog.root / "papers/oaks/metrics.py").read_text())
    edit(catalog, f"datasets/{DATASETS[1]}/dataset.yaml", lambda text: text.replace("metrics: oaks", "metrics: other"))
    code = catalog.root / "src/upkeep/grading"
    code.mkdir(parents=True)
    for path in Path(graded.__file__).parent.glob("*.py"):
        (code / path.name).write_text(path.read_text())
    score_suite(Catalog(catalog.root), "s")
    return Catalog(catalog.root)


class Counted:
    """Which cells are graded, and which are scored, from now on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.graded: list[str] = []
        self.scored: list[str] = []
        grade_cell, score_cell = graded.grade_cell, scorers.score_cell

        def grades(*given: Any) -> graded.Graded:
            self.graded.append(str(given[2]))
            return grade_cell(*given)

        def scores_(*given: Any) -> Scored:
            self.scored.append(str(given[2]))
            return score_cell(*given)

        monkeypatch.setattr(graded, "grade_cell", grades)
        monkeypatch.setattr(scorers, "score_cell", scores_)


def edit(catalog: Catalog, name: str, change: Callable[[str], str]) -> None:
    path = catalog.root / name
    path.write_text(change(path.read_text()))


def mend_gold(catalog: Catalog) -> None:
    write_dataset(catalog.results / "datasets" / DATASETS[0], {"q": timeline("zz")}, name=DATASETS[0])


def rename_slice(catalog: Catalog) -> None:
    write_dataset(catalog.results / "datasets" / DATASETS[0], {"q": timeline("xx")}, {"q": "rare"}, name=DATASETS[0])


def code(name: str, more: str) -> Callable[[Catalog], None]:
    return lambda catalog: edit(catalog, f"src/upkeep/grading/{name}.py", lambda text: text + more)


OF_SECOND = [str(cell) for cell in CELLS if cell.dataset == DATASETS[1]]
OF_FIRST = [str(cell) for cell in CELLS if cell.dataset == DATASETS[0]]
ALL = [str(cell) for cell in CELLS]


@pytest.mark.parametrize(
    ("change", "graded_anew", "scored_anew"),
    [
        pytest.param(lambda _: None, [], [], id="nothing"),
        pytest.param(code("reading", "\nMENDED = 1\n"), ALL, [], id="how an answer is read, to the same end"),
        pytest.param(code("markers", "\nMENDED = 1\n"), ALL, [], id="where an answer begins, to the same end"),
        pytest.param(code("matching", "\nMENDED = 1\n"), ALL, ALL, id="when it is right"),
        pytest.param(code("reading", "\n# a word\n"), [], [], id="a comment where answers are read"),
        pytest.param(code("metrics", "\nMENDED = 1\n"), [], ALL, id="what metrics share"),
        pytest.param(
            lambda c: edit(c, "papers/oaks/metrics.py", lambda t: t + "\nMENDED = 1\n"), [], OF_FIRST, id="a metric"
        ),
        pytest.param(lambda c: edit(c, "papers/other/metrics.py", lambda t: t + "\n"), [], OF_SECOND, id="another's"),
        pytest.param(mend_gold, OF_FIRST, OF_FIRST, id="a gold answer"),
        pytest.param(rename_slice, [], OF_FIRST, id="a slice"),
        pytest.param(
            lambda c: edit(c, f"datasets/{DATASETS[0]}/dataset.yaml", lambda t: t.replace("short_answer", "contains")),
            OF_FIRST,
            OF_FIRST,
            id="the equivalence of a dataset",
        ),
        pytest.param(
            lambda c: edit(c, "methods/rag_dense/method.yaml", lambda t: t.replace("label: RAG", "label: R")),
            [],
            ALL,
            id="what a table calls a method",
        ),
        pytest.param(
            lambda c: edit(c, "methods/rag_dense/method.yaml", lambda t: t.replace("summary: s", "summary: t")),
            [],
            [],
            id="the summary of a method",
        ),
    ],
)
def test_a_change_grades_and_scores_what_it_touches_and_nothing_else(
    done: Catalog,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Catalog], None],
    graded_anew: list[str],
    scored_anew: list[str],
) -> None:
    change(done)
    counted = Counted(monkeypatch)
    again = score_suite(Catalog(done.root), "s")
    assert sorted(counted.graded) == sorted(graded_anew)
    assert sorted(counted.scored) == sorted(scored_anew)
    assert read_scores(Catalog(done.root), "s").table.equals(again.table)


def test_a_mended_reader_scores_the_cells_whose_answers_it_reads_otherwise(
    done: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_cell(done.results / "cells" / ALL[1], answered("q", "yy"), cell=CELLS[1])
    score_suite(Catalog(done.root), "s")
    code("reading", "\nMENDED = 1\n")(done)
    read = graded.read_answer
    monkeypatch.setattr(graded, "read_answer", lambda said, *given: read(said.replace("y", "x"), *given))
    counted = Counted(monkeypatch)
    table = score_suite(Catalog(done.root), "s").table
    assert (sorted(counted.graded), counted.scored) == (sorted(ALL), [ALL[1]])
    accuracy = table.filter(pl.col("metric") == "accuracy", pl.col("subset") == "all", pl.col("cell") == ALL[1])
    assert accuracy["value"].to_list() == [100.0]
    again = Counted(monkeypatch)
    score_suite(Catalog(done.root), "s")
    assert again.graded == again.scored == []


def test_scores_on_resamples_are_hashed_again_where_their_file_is_another_and_not_otherwise(
    done: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(integrity, "SETTLED_NS", -1)
    score_suite(Catalog(done.root), "s")
    of_cells = [f"{cell}.npy" for cell in ALL]
    hashed, hash_open = list[str](), integrity.hash_open
    kept = Layout(done.results).scores("s").parent / "resamples"

    def hashes(file: BufferedReader) -> str:
        path = Path(f"/proc/self/fd/{file.fileno()}").readlink()
        if path.suffix == ".npy":
            hashed.append(str(path.relative_to(kept)))
        return hash_open(file)

    monkeypatch.setattr(integrity, "hash_open", hashes)
    counted = Counted(monkeypatch)
    score_suite(Catalog(done.root), "s")
    assert (hashed, counted.scored) == ([], [])
    path = Layout(done.results).resamples("s", ALL[0])
    good = path.read_bytes()
    path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    score_suite(Catalog(done.root), "s")
    assert (set(hashed), counted.scored) == ({of_cells[0]}, [ALL[0]]), "no other, as found and as written"
    assert path.read_bytes() == good
    (done.root / "config/config.yaml").write_text("verify: true\n")
    hashed.clear()
    score_suite(Catalog(done.root), "s")
    assert sorted(hashed) == sorted(of_cells), "where the user wants all of it looked at"


def test_a_new_cell_leaves_the_others_as_they_are(done: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    write_cell(done.results / "cells" / ALL[1], answered("q", "xx"), cell=CELLS[1])
    counted = Counted(monkeypatch)
    table = score_suite(Catalog(done.root), "s").table
    assert counted.graded == counted.scored == [ALL[1]]
    accuracy = table.filter(pl.col("metric") == "accuracy", pl.col("subset") == "all")
    assert dict(accuracy.select("cell", "value").iter_rows()) == dict(zip(ALL, (50, 100, 50, 50), strict=True))


def test_what_is_kept_gives_the_scores_that_are_worked_out_anew(done: Catalog) -> None:
    kept = score_suite(done, "s").table
    for path in [*(done.results / "graded").rglob("*.*"), *(done.results / "scores").rglob("*.*")]:
        path.unlink()
    assert score_suite(Catalog(done.root), "s").table.equals(kept)


@pytest.mark.parametrize("name", ["verdicts.parquet", "graded.json"])
@pytest.mark.parametrize("damage", [lambda p: p.write_bytes(p.read_bytes()[:-9] + b"\x00" * 9), Path.unlink])
def test_damaged_verdicts_are_worked_out_anew(
    done: Catalog, monkeypatch: pytest.MonkeyPatch, name: str, damage: Callable[[Path], Any]
) -> None:
    path = Layout(done.results).verdicts(CELLS[0]).with_name(name)
    before = path.read_bytes()
    damage(path)
    counted = Counted(monkeypatch)
    graded.graded(Catalog(done.root), CELLS[0], manifest_of(Layout(done.results).cell(CELLS[0])), key(done))
    assert counted.graded == [ALL[0]]
    assert path.read_bytes() == before


def key(catalog: Catalog) -> Key:
    return read_key(catalog, DATASETS[0])


def test_verdicts_of_another_cell_are_not_taken_for_its_own(done: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = Layout(done.results)
    write_cell(layout.cell(CELLS[1]), answered("q", "xx"), cell=CELLS[1])
    score_suite(Catalog(done.root), "s")
    for name in ("verdicts.parquet", "graded.json"):
        one, other = (layout.verdicts(cell).with_name(name) for cell in CELLS[:2])
        one.write_bytes(other.read_bytes())
    counted = Counted(monkeypatch)
    found = graded.graded(Catalog(done.root), CELLS[0], manifest_of(layout.cell(CELLS[0])), key(done))
    assert counted.graded == [ALL[0]] and found.rows["right"].to_list() == [True, False]


def test_how_a_prediction_was_read_stands_beside_its_verdict(tmp_path: Path) -> None:
    write_dataset(tmp_path / "dataset", {"q": timeline("xxxxx")})
    lines = answered("q", "xxxx.")
    texts = ["I say: x", "so\n## Answer: **X**", "Final answer: x", "## Answer: y"]
    lines = [msgspec.structs.replace(one, response=text) for one, text in zip(lines, [*texts, None], strict=True)]
    write_cell(tmp_path / "cell", lines)
    answer_key = key_in(tmp_path / "dataset", "short_answer", "## Answer:")
    rows = graded.grade_cell(tmp_path / "cell", manifest_of(tmp_path / "cell"), scored_cells.CELL, answer_key).rows
    assert rows.select("answer", "canonical", "parse", "right").rows() == [
        ("I say: x", "i say x", "whole", False),
        ("X", "x", "marker", True),
        ("x", "x", "lenient", True),
        ("y", "y", "marker", False),
        (None, None, "none", False),
    ]
