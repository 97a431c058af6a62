"""A cell that another suite has asked, by its seed and as often as it says: what is said of it, and what helps."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from conftest import copy_repository
from test_run import upkeep
from upkeep.catalog import Catalog
from upkeep.identity import plan_training
from upkeep.inputs import trained
from upkeep.integrity import Missing, Stale
from upkeep.jobs import Cell, Training
from upkeep.published import read_published

SUITE = """
label: Mine
summary: s
papers: []
seed: 7
trials: 3
cells:
  - {datasets: [town], methods: ["null"], models: [none]}
"""
CELL = Cell("town", "null", "default", "none")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = copy_repository(tmp_path)
    assert upkeep(root, "new", "dataset", "town").returncode == 0
    (root / "config/suites/mine.yaml").write_text(SUITE)
    ran = upkeep(root, "dataset", "build", "town")
    assert ran.returncode == 0, ran.stderr
    ran = upkeep(root, "cell", str(CELL))
    assert ran.returncode == 0, ran.stderr
    return root


def test_the_remedy_for_another_suites_cell_is_one_that_helps(root: Path) -> None:
    mine = {"suite": "mine"}
    with pytest.raises(Stale, match="asked by another suite than 'mine', with another seed and trials") as refused:
        read_published(Catalog(root, chosen=mine), CELL)
    remedy = str(refused.value.remedy)
    assert remedy == f"./upkeep cell {CELL} --suite mine"
    ran = upkeep(root, *shlex.split(remedy)[1:])
    assert ran.returncode == 0, ran.stderr
    assert read_published(Catalog(root, chosen=mine), CELL).trials == 3
    # Now it is the other suite's turn, whose command needs no suite.
    with pytest.raises(Stale) as refused:
        read_published(Catalog(root), CELL)
    assert refused.value.remedy == f"./upkeep cell {CELL}"


def test_a_training_is_made_by_the_seed_of_the_suite_that_its_command_names(root: Path) -> None:
    """And what misses the model names that suite, too."""
    training = Training("town", "sft", "lora_tiny", "pico")
    plans = {name: plan_training(Catalog(root, chosen={"suite": name}), training) for name in ("mini", "mine")}
    assert plans["mini"] != plans["mine"]
    for suite, more in (("mine", " --suite mine"), ("mini", "")):
        with pytest.raises(Missing, match="the trained model is not there") as refused:
            trained(Catalog(root, chosen={"suite": suite}), training)
        assert refused.value.remedy == f"./upkeep model train {training}{more}"
    for command in (["model", "train", str(training)], ["cell", "town/closed_book/default/pico"]):
        told = upkeep(root, *command, "--suite", "nobodys")
        assert told.returncode == 1 and "unknown suite 'nobodys'" in told.stderr and not told.stdout


def test_a_cell_is_shown_as_it_was_asked_and_not_called_stale_for_its_suite(root: Path) -> None:
    assert upkeep(root, "cell", str(CELL), "--suite", "mine").returncode == 0
    shown = upkeep(root, "show", str(CELL))
    assert shown.returncode == 0, shown.stderr
    assert "note:" not in shown.stdout and "stale" not in shown.stdout
