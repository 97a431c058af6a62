"""All that can be added is added as files of folders, with no edit of the suite, and run from end to end: a method, a
dataset with a builder of its own, a paper with a prompt, two tables, a metric and a claim, a model, a suite."""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest

from added_folders import FILES
from conftest import copy_repository
from reported import report_of
from test_run import upkeep
from upkeep.catalog import Catalog
from upkeep.grading.scores import Scores, read_scores
from upkeep.report import verdicts
from upkeep.report.fields import as_printed
from upkeep.report.specs import read_paper

VALIDATED = (
    "datasets/moves/dataset.yaml",
    "methods/yesterday/method.yaml",
    "models/pico-warm/model.yaml",
    "papers/moves",
    "config/suites/towns.yaml",
)


def digest(files: Iterable[Path]) -> str:
    """Of names and contents; what Python compiles aside."""
    total = hashlib.sha256()
    for file in sorted(files):
        if file.is_file() and "__pycache__" not in file.parts:
            total.update(f"{file}\0{hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()


@dataclass(frozen=True)
class Ran:
    """A repository with what was added, after the run, and what that printed."""

    root: Path
    printed: str


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    root = copy_repository(tmp_path_factory.mktemp("folders"))
    there = [path for path in root.rglob("*") if path.is_file()]
    before, code = digest(there), digest((root / "src").rglob("*"))
    for name, text in FILES.items():
        path = root / name
        assert not path.exists(), name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.lstrip("\n"))
    for name in VALIDATED:
        told = upkeep(root, "validate", str(root / name))
        assert told.returncode == 0, told.stdout + told.stderr
    done = upkeep(root, "run", "towns")
    assert done.returncode == 0, done.stdout + done.stderr
    assert digest(there) == before, "nothing that was there has been touched"
    assert digest((root / "src").rglob("*")) == code, "and nothing was put among the code"
    return Ran(root, done.stdout)


def scores_of(ran: Ran) -> Scores:
    return read_scores(Catalog(ran.root, chosen={"suite": "towns"}), "towns")


def test_all_of_it_is_run_and_told(ran: Ran) -> None:
    assert "null/default/none" in ran.printed and "gold/default/none" in ran.printed
    for cell in CELLS:
        assert re.search(rf"{cell.partition('/')[2]} +2 +\d+\.\d", ran.printed), ran.printed
    scores = scores_of(ran)
    assert not scores.refused and not scores.lacking


def test_a_cell_by_itself_is_that_of_the_suite_that_is_named(ran: Ran) -> None:
    file = ran.root / "results/cells" / CELLS[1] / "predictions.jsonl"
    before = file.read_bytes()
    done = upkeep(ran.root, "cell", CELLS[1], "--suite", "towns")
    assert done.returncode == 0, done.stderr
    assert file.read_bytes() == before, "of both trials, and not of the configured suite's one"


CELLS = ("moves/closed_book/default/pico-warm", "moves/yesterday/day/pico-warm")


# ---------------------------------------------------------------- by hand


def world(root: Path) -> dict[tuple[str, int], list[str]]:
    """Where each person was, read out of the documents: (person, day) -> the places so far, the latest last."""
    documents = pl.read_parquet(root / "results/datasets/moves/documents.parquet").sort("stream", "position")
    found: dict[tuple[str, int], list[str]] = {}
    for _, days in documents.group_by("stream"):
        where: dict[str, list[str]] = {}
        for day, text in days.select("position", "text").iter_rows():
            for person, place in re.findall(r"(\w+) went to the (\w+)\.", text):
                where.setdefault(person, []).append(place)
            found |= {(person, day): list(places) for person, places in where.items()}
    return found


def test_the_dataset_is_what_its_own_builder_makes(ran: Ran) -> None:
    folder = ran.root / "results/datasets/moves"
    card = json.loads((folder / "card.json").read_text())
    assert card["statistics"]["people"] == 18 == card["questions"] and card["probes"] == 54
    where = world(ran.root)
    rows = pl.read_parquet(folder / "probes.parquet").join(pl.read_parquet(folder / "gold.parquet"), on="probe_id")
    assert len(rows) == 54 == len(where)
    for row in rows.iter_rows(named=True):
        (person,) = re.findall(r"Where is (\w+) now", row["question"])
        *old, now = where[person, row["position"]]
        assert row["answers"] == [now] and set(row["outdated"]) == {*old} - {now}
        assert row["slice_habit"] == ("stays" if int(row["question_id"][-1]) % 2 else "moves")


@dataclass
class Tally:
    """Of the answers of a cell and a subset."""

    asked: int = 0
    right: int = 0
    outdated: int = 0


def by_hand(root: Path, cell: str) -> dict[str, Tally]:
    """What a cell's predictions say, counted from the raw lines."""
    where, folder = world(root), root / "results"
    asked = pl.read_parquet(folder / "datasets/moves/probes.parquet").rows_by_key("probe_id", named=True, unique=True)
    found = {name: Tally() for name in ("all", "moves", "stays")}
    for line in (folder / "cells" / cell / "predictions.jsonl").read_text().splitlines():
        prediction = json.loads(line)
        probe = asked[prediction["probe_id"]]
        (person,) = re.findall(r"Where is (\w+) now", probe["question"])
        *old, now = where[person, probe["position"]]
        answer = prediction["response"].rpartition("## Answer:")[2].strip().lower()
        for name in ("all", "stays" if int(probe["question_id"][-1]) % 2 else "moves"):
            found[name].asked += 1
            found[name].right += answer == now.lower()
            found[name].outdated += answer in {place.lower() for place in old if place != now}
    return found


@pytest.mark.parametrize("cell", CELLS)
def test_the_new_metrics_are_what_the_predictions_give_by_hand(ran: Ran, cell: str) -> None:
    scores = scores_of(ran).table.filter(cell=cell)
    own = {(m, s): v for m, s, v in scores.select("metric", "subset", "value").iter_rows() if m.endswith(("cy", "re"))}
    expected = {}
    for name, tally in by_hand(ran.root, cell).items():
        assert tally.asked == 108 / (1 if name == "all" else 2), "each probe in two trials"
        expected["accuracy", name] = 100 * tally.right / tally.asked
        if known := tally.right + tally.outdated:
            expected["lag_share", name] = 100 * tally.outdated / known
    assert own == pytest.approx(expected)


def test_trials_of_the_new_model_are_drawn(ran: Ran) -> None:
    lines = (ran.root / "results/cells" / CELLS[1] / "predictions.jsonl").read_text().splitlines()
    said = {(p["probe_id"], p["trial"]): p["response"] for p in map(json.loads, lines)}
    assert any(said[probe, 0] != said[probe, 1] for probe, _ in said)


# ---------------------------------------------------------------- what is made of it


def test_both_tables_have_published_numbers_and_our_own(ran: Ran) -> None:
    def of(table: str) -> dict[str, dict[str, str]]:
        rows = csv.DictReader((ran.root / f"results/tables/towns/moves/{table}.csv").read_text().splitlines())
        return {row["column"]: row for row in rows if row["part"] == "paper" and row["published"]}

    alone, read = (by_hand(ran.root, cell) for cell in CELLS)
    first, second = of("table_1"), of("table_2")
    expected = {
        "Closed book": (8.5, 100 * alone["all"].right / alone["all"].asked, CELLS[0]),
        "Yesterday's paper": (40.5, 100 * read["all"].right / read["all"].asked, CELLS[1]),
        "Who moves": (87.5, 100 * read["moves"].outdated / (read["moves"].outdated + read["moves"].right), CELLS[1]),
        "Who stays": (0.0, 0.0, CELLS[1]),
        "People": (18.0, 18.0, ""),
    }
    found = first | second
    assert {name: (float(row["published"]), float(row["own"]), row["cell"]) for name, row in found.items()} == {
        name: (published, pytest.approx(own, rel=1e-5), cell) for name, (published, own, cell) in expected.items()
    }
    assert {row["state"] for row in found.values()} <= {"within the interval", "differs"}
    page = report_of(ran.root, "towns")
    assert "How often an answer is right." in page and "How many answers lag, by habit." in page


def test_the_claims_verdict_is_that_of_the_numbers(ran: Ran) -> None:
    scores = scores_of(ran)
    spec = read_paper(ran.root / "papers/moves")
    shown = as_printed(scores.table, spec.called)
    (found,) = verdicts.findings(ran.root / "papers/moves", shown, scores.resamples)
    alone, read = (by_hand(ran.root, cell)["all"] for cell in CELLS)
    ((case,),) = found.own.release.cases
    assert (case.lhs, case.rhs) == pytest.approx((100 * read.right / read.asked, 100 * alone.right / alone.asked))
    assert (found.published.outcome, found.own.release.outcome) == ("holds", "holds")
    page = report_of(ran.root, "towns")
    row = page[page.index("Who reads yesterday") :].split("</tr>")[0]
    assert re.findall(r'class="tag[^"]*"[^>]*>([^<]+)<', row) == ["holds", "holds", "not run", "not run"]
