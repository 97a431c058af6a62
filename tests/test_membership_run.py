"""Membership inference from a suite to Table 5: a small model is attacked, and the controls measure nothing."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from conftest import CACHE, copy_repository, keep_one_figure
from reported import report_of

MINI = "evolveqa_aws_membership_mini"
SUITE = f"""
label: attack
summary: Documents that a model may have been trained on.
papers: [evolveqa]
cells:
  - {{datasets: [{MINI}], methods: ["null", gold, min_k_prob], models: [pico]}}
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = copy_repository(tmp_path_factory.mktemp("attack"))
    (root / "config" / "suites" / "attack.yaml").write_text(SUITE)
    keep_one_figure(root, "evolveqa")
    told = {"UPKEEP_RUNTIME": "process", "UPKEEP_CACHE": str(CACHE), "PYTHONPATH": str(root / "src")}
    command = [sys.executable, "-m", "upkeep", "--root", str(root), "run", "attack"]
    done = subprocess.run(command, env=os.environ | told, capture_output=True, text=True, check=False, cwd=root)
    assert done.returncode == 0, done.stdout + done.stderr
    return root


def test_a_model_is_attacked_and_the_controls_measure_nothing(root: Path) -> None:
    cell = root / f"results/cells/{MINI}/min_k_prob/k20/pico/predictions.jsonl"
    lines = [json.loads(line) for line in cell.read_text().splitlines()]
    assert len(lines) == 150
    for line in lines:
        assert line["values"]["min_k_prob"] < 0 and line["values"]["tokens"] > 20
        assert (line["response"], line["error"]) == (None, None)
    scores = pl.read_parquet(root / "results/scores/attack/scores.parquet")
    named = scores.filter(pl.col("cell") != "").select("cell", "subset", "metric", "value")
    of = {(cell.split("/")[1], subset, metric): value for cell, subset, metric, value in named.iter_rows()}
    attack = {key[1:]: value for key, value in of.items() if key[0] == "min_k_prob"}
    assert attack.keys() == {
        ("before_cutoff", "mia_detection_rate"),
        ("after_cutoff", "mia_detection_rate"),
        ("all", "mia_auc"),
        ("all", "error_rate"),
    }
    assert attack["all", "error_rate"] == 0 and 0 < attack["all", "mia_auc"] < 1
    for subset in ("all", "before_cutoff", "after_cutoff", "held_out"):
        assert (of["gold", subset, "accuracy"], of["null", subset, "accuracy"]) == (100, 0)


def test_table_5_shows_it_beside_the_papers_rows_and_no_other_table_does(root: Path) -> None:
    tables = root / "results/tables/attack/evolveqa"
    with (tables / "table_5.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["part"], row["state"]) for row in rows] == [("paper", "not run")] * 6 + [("own", "not comparable")] * 2
    for row, column in zip(rows[6:], ("Before", "After"), strict=True):
        assert (row["model"], row["dataset"], row["data"], row["column"]) == ("pico", "evolveqa_aws", "mini", column)
        assert float(row["low"]) < float(row["own"]) < float(row["high"])
    named = [path.name for path in tables.glob("table_*.csv") if MINI in path.read_text()]
    assert named == ["table_5.csv"]


def test_the_claim_about_it_sees_the_stand_in(root: Path) -> None:
    page = report_of(root, "attack")
    assert re.search(r"pico, evolveqa_aws: \|[\d.]+ \N{MINUS SIGN} [\d.]+\| &lt;= 8\.5", page)
