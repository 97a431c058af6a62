"""A dataset whose rules changed has a new version: results of the old one say so, and are in no number."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from conftest import ROOT, copy_repository
from host_fakes import make_repository
from reported import report_of
from test_asked_by import CELL, SUITE
from test_run import upkeep
from upkeep.catalog import Catalog
from upkeep.contract import DatasetCard, DatasetSpec
from upkeep.grading.scores import score_suite
from upkeep.integrity import Damaged, Stale, read_sealed
from upkeep.layout import Layout
from upkeep.operations import contents
from upkeep.published import read_published

WHY = "questions name the year"


def command(root: Path, *arguments: str) -> str:
    ran = upkeep(root, *arguments)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def raise_version(root: Path) -> None:
    with (root / "datasets/town/dataset.yaml").open("a") as file:
        file.write(f"\nchanges: [{WHY}]\n")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = copy_repository(tmp_path)
    command(root, "new", "dataset", "town")
    (root / "config/suites/mine.yaml").write_text(SUITE)
    command(root, "dataset", "build", "town")
    return root


def test_a_cell_of_an_older_version_says_so_and_is_in_no_number(root: Path) -> None:
    mine = {"suite": "mine"}
    command(root, "cell", str(CELL), "--suite", "mine")
    assert str(CELL) in set(score_suite(Catalog(root, chosen=mine), "mine").table["cell"])
    raise_version(root)
    with pytest.raises(Stale, match="the dataset 'town' is of version 1 of 2") as refused:
        read_published(Catalog(root, chosen=mine), CELL)
    assert refused.value.remedy == "./upkeep dataset build town"
    assert f"version: 2, {WHY}" in command(root, "dataset", "build", "town")
    scores = score_suite(Catalog(root, chosen=mine), "mine")
    assert str(CELL) not in set(scores.table["cell"])
    told = "stale: of version 1 of town, which is at version 2; run it again"
    assert scores.refused == {str(CELL): told}
    command(root, "report", "mine")
    page = report_of(root, "mine")
    assert told in page and "<b>No cell is complete.</b>" in page
    command(root, "cell", str(CELL), "--suite", "mine")
    assert read_published(Catalog(root, chosen=mine), CELL).identity_parts["dataset_version"] == "2"
    command(root, "report", "mine")
    page = report_of(root, "mine")
    assert told not in page and '<td class="stub">town</td><td class="r">2</td>' in page


def test_a_version_is_one_content(root: Path) -> None:
    table, shipped = root / "datasets/contents.csv", contents.read(ROOT / "datasets/contents.csv")
    assert "town: version 1" in command(root, "dataset", "record", "town")
    assert command(root, "dataset", "record", "town") == "", "nothing new"
    first = contents.read(table)
    assert first.keys() - shipped.keys() == {("town", 1)} and shipped.items() < first.items()
    assert f"content: sha256 {first['town', 1]}" in command(root, "dataset", "describe", "town")
    questions = root / "datasets/town/questions.jsonl"
    questions.write_text("".join(questions.read_text().splitlines(keepends=True)[:-1]))
    command(root, "dataset", "build", "town")
    refused = upkeep(root, "dataset", "record", "town")
    assert refused.returncode and "town holds something else than its version 1 did" in refused.stderr
    assert "which makes it version 2" in refused.stderr and contents.read(table) == first
    raise_version(root)
    refused = upkeep(root, "dataset", "record", "town")
    assert refused.returncode and "town is built in another version" in refused.stderr
    command(root, "dataset", "build", "town")
    command(root, "dataset", "record", "town")
    second = contents.read(table)
    assert second.keys() - first.keys() == {("town", 2)} and first.items() < second.items()


def test_each_change_makes_a_version() -> None:
    given = {"label": "l", "summary": "s", "paper": "p", "source": "s", "licence": "l", "prompt": "p"}
    of = partial(DatasetSpec, **given, equivalence="e", metrics="m")
    assert (of().version, of(changes=[WHY]).version) == (1, 2)


def test_a_card_from_before_there_were_versions_is_whole_and_of_the_first(tmp_path: Path) -> None:
    path = Layout(make_repository(tmp_path).results).dataset("toy") / "card.json"
    card = read_sealed(path, DatasetCard, "")
    old = json.loads(path.read_text())
    assert old.pop("dataset_version") == 1
    path.write_text(json.dumps(old))
    assert read_sealed(path, DatasetCard, "") == card
    path.write_text(json.dumps(old | {"dataset_version": 2}))
    with pytest.raises(Damaged):
        read_sealed(path, DatasetCard, "")
