"""Cells that are complete and not of a suite, on datasets of its papers: its tables have them, its counts do not."""

from __future__ import annotations

import csv
import json
import re
import shlex
from pathlib import Path

import polars as pl
import pytest

import metric_cells
import scored_cells
from conftest import copy_repository
from metric_cells import CLOSED, RAG
from reported import report_of
from test_run import upkeep
from upkeep.catalog import Catalog
from upkeep.contract import Manifest
from upkeep.grading.scores import Scores, read_scores, score_suite
from upkeep.integrity import read_sealed
from upkeep.jobs import Cell
from upkeep.report.waiting import pending

SUITE = """
label: Tried
summary: s
papers: [tried]
trials: 2
cells:
  - {datasets: [town], methods: ["null"], models: [none]}
"""
TABLES = """
label: Tried
citation: "Nobody. Tried."
tables:
  - id: table_1
    title: Table 1
    caption: c
    where: {metric: accuracy, subset: all}
    rows: [method]
    stub: [{field: label, heading: Method}]
    columns: [{Town: {dataset: town}, Village: {dataset: village}}]
  - {id: table_2, title: Table 2, caption: c, where: {metric: question_count}, rows: [dataset],
     stub: [{field: label, heading: Dataset}], columns: [{Questions: {}}]}
"""
HEAD = "table,label,model,method,supervision,setting,dataset,subset,metric,value,unit\n"
TABLE_1 = "".join(
    f"table_1,{method},,{method},,,{dataset},all,accuracy,{value},percent\n"
    for method, value in (("null", "0.0"), ("gold", "100.0"))
    for dataset in ("town", "village")
)
TABLE_2 = "table_2,Village,,,,,village,all,question_count,6,count\n"


catalog, fresh, gains = scored_cells.catalog, scored_cells.fresh, metric_cells.gains


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A paper with two datasets, and its suite with one cell of the four that its table prints, which has been run."""
    root = copy_repository(tmp_path_factory.mktemp("beside"))
    for words in ("paper tried", "dataset town", "dataset village"):
        assert upkeep(root, "new", *words.split()).returncode == 0
    for name in ("town", "village"):
        card = root / f"datasets/{name}/dataset.yaml"
        text = card.read_text().replace("paper: none", "paper: tried").replace("provenance: own", "provenance: release")
        card.write_text(text)
    folder = root / "papers/tried"
    (folder / "claims/accuracy.yaml").write_text("[]\n")
    for name, written in {"suite.yaml": SUITE, "tables.yaml": TABLES}.items():
        (folder / name).write_text(written)
    for name, written in {"table_1": TABLE_1, "table_2": TABLE_2}.items():
        (folder / "reference" / f"{name}.csv").write_text(HEAD + written)
    ran = upkeep(root, "run", "tried")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return root


def entry(root: Path, method: str, column: str, table: str = "table_1") -> dict[str, str]:
    """A number of a table's row of the paper's, as the report tells it."""
    with (root / f"results/tables/tried/tried/{table}.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["column"] == column and row["published"]]
    (found,) = (row for row in rows if method.lower() in " ".join(row.values()).lower())
    return found


def scores_of(root: Path, suite: str) -> Scores:
    return read_scores(Catalog(root, None, {"suite": suite}), suite)


def follow(root: Path, command: str) -> None:
    """Run what the report prints, word for word."""
    for one in command.split(" && "):
        words = shlex.split(one)
        assert words[0] == "./upkeep"
        done = upkeep(root, *words[1:])
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_printed_command_fills_the_entry_that_it_stands_in(root: Path) -> None:
    assert entry(root, "null", "Town")["own"] == "0"
    for column in ("Town", "Village"):  # the second one's dataset is not built, either
        before = entry(root, "gold", column)
        assert (before["own"], before["state"]) == ("", "not run")
        assert before["command"] == f"./upkeep cell {column.lower()}/gold/default/none --suite tried"
        follow(root, before["command"])
        assert upkeep(root, "report", "tried").returncode == 0
        after = entry(root, "gold", column)
        assert (after["own"], after["state"]) == ("100", "within the interval")
        path = root / "results/cells" / before["cell"] / "manifest.json"
        assert read_sealed(path, Manifest, "").trials == 2, "as often as its paper has cells asked"
    count = entry(root, "village", "Questions", "table_2")
    assert (count["own"], count["state"]) == ("6", "within the interval"), "its dataset is there now"


def test_the_suites_own_counts_are_about_its_own_cells(root: Path) -> None:
    follow(root, "./upkeep cell town/gold/default/none --suite tried")
    told = upkeep(root, "run", "tried")
    assert told.returncode == 0 and "suite tried: 1 cells" in told.stdout
    assert "null/default/none" in told.stdout and "gold/" not in told.stdout, "the summary"
    scored = upkeep(root, "score", "tried")
    assert re.search(r"scores of 1 cells and [12] beside the suite's$", scored.stdout.strip())
    status = json.loads(upkeep(root, "status", "tried", "--json").stdout)
    assert sum(status["counts"].values()) == 1 and [job["name"] for job in status["jobs"]] == ["town/null/default/none"]
    page = report_of(root, "tried")
    assert re.search(r"<dt>Cells complete</dt><dd>1 <small>of 1</small>", page)
    assert re.search(r"Also in tables and findings, complete and not of this suite: .*town/gold/default/none", page)


def test_the_next_run_takes_a_cell_that_was_run_by_hand_and_leaves_a_stale_one(root: Path) -> None:
    """However often it was asked: whose seed and trials it had is no reason to leave it."""
    assert upkeep(root, "cell", "town/gold/default/none").returncode == 0
    assert upkeep(root, "run", "tried").returncode == 0
    scores = scores_of(root, "tried")
    rows = scores.table.filter(pl.col("cell") == "town/gold/default/none", pl.col("metric") == "accuracy")
    rows = rows.filter(pl.col("subset") == "all")
    assert set(rows["n"]) == {10} and entry(root, "gold", "Town")["own"] == "100", "asked once"
    method = root / "methods/gold/method.py"
    before = method.read_text()
    method.write_text(before + "\n# another\n")
    try:
        assert upkeep(root, "run", "tried").returncode == 0
        stale = entry(root, "gold", "Town")
        assert (stale["own"], stale["command"]) == ("", "./upkeep cell town/gold/default/none --suite tried")
        follow(root, stale["command"])
        assert upkeep(root, "report", "tried").returncode == 0
        assert entry(root, "gold", "Town")["own"] == "100"
    finally:
        method.write_text(before)


def test_a_damaged_cell_beside_a_suite_is_not_used_and_says_nothing(root: Path) -> None:
    follow(root, "./upkeep cell town/gold/default/none --suite tried")
    assert upkeep(root, "report", "tried").returncode == 0
    path = root / "results/cells/town/gold/default/none/predictions.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"answer", b"Answer", 1) + b" ")
    try:
        told = upkeep(root, "score", "tried")
        assert told.returncode == 0 and "refused" not in told.stderr
        scores = scores_of(root, "tried")
        assert scores.refused == {} and "town/gold/default/none" not in set(scores.table["cell"])
    finally:
        path.write_bytes(whole)


def test_a_suite_of_no_paper_has_its_own_cells_alone(root: Path) -> None:
    follow(root, "./upkeep cell town/gold/default/none --suite tried")
    (root / "config/suites/other.yaml").write_text(SUITE.replace("papers: [tried]", "papers: []"))
    assert upkeep(root, "score", "other").returncode == 0
    assert set(scores_of(root, "other").table["cell"]) == {"", "town/null/default/none"}


def test_what_is_wanted_beside_a_cell_and_of_no_suite_is_asked_for_by_itself(gains: Catalog) -> None:
    def commands(*cells: Cell) -> set[str]:
        catalog = scored_cells.suite_of(gains, *cells)
        scores = score_suite(catalog, "s")
        wanted = scores.basis.wanted(scores.lacking)
        found = pending(catalog, cells, scores.table, {}, scores.lacking, {}, "s", wanted=wanted)
        return set(found.filter(pl.col("lacks") == "exact_match_gain")["command"])

    assert commands(RAG) == {f"./upkeep cell {CLOSED} --suite s"}
    assert commands(RAG, CLOSED) == set()
    metric_cells.publish(gains, CLOSED, "xz", trials=2)
    assert commands(RAG, CLOSED) == {"./upkeep run s"}, "it is the suite's own, and asked otherwise"
