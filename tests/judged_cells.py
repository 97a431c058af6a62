"""What tests of judges share: a judge behind a fake endpoint, and a repository that it judges."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from endpoint_fakes import MODEL, FakeEndpoint, be_quick, fake_endpoint, make_endpoint_repository
from host_fakes import ScriptedRuntime, write_toy
from upkeep.catalog import Catalog
from upkeep.execution.supervise import run_cell
from upkeep.grading.basis import Basis
from upkeep.grading.judged import judged
from upkeep.jobs import Cell
from upkeep.judging.suite import judge_suite

ECHO = Cell("toy", "echo", "a", "none")
PROBES = 30
"""Of the dataset `toy`, one of which has its question at each position."""
SUITE = """{label: l, summary: s, papers: [], judges: [there], seed: 5, trials: 1, cells: [
  {datasets: [toy], methods: [echo/a], models: [none]}]}
"""
JUDGES = """
strict:
  - rubric: &strict
      read: only
      verdicts: {"Y": right, "O": outdated, "N": wrong}
      system: Judge {gold}.
      user: "{question} | {gold} | {response}"
"""


def of_content(content: str) -> str:
    return "set:" + json.dumps({"choices.0.message.content": content})


def opinion(body: dict[str, Any]) -> str:
    """What the scripted judge thinks: the same of a response whenever it is asked."""
    asked = next(m["content"] for m in body["messages"] if m["role"] == "user")
    return "YON"[sum(asked.encode()) % 3]


def steady(number: int, body: dict[str, Any]) -> str:
    return of_content(opinion(body))


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    be_quick(monkeypatch)


@pytest.fixture
def server() -> Iterator[FakeEndpoint]:
    with fake_endpoint(steady) as server:
        yield server


CHANGED = """
as_it_is = append
def append(record):
    as_it_is(record | {more})
"""


def repository(root: Path, url: str, judges: str = JUDGES, more: str = "{}", *, quoted: bool = False) -> Catalog:
    """A suite of one cell whose responses the model `there` judges; `more` are fields of its predictions."""
    make_endpoint_repository(root, url)
    (root / "papers/toy/judges.yaml").write_text(judges)
    (root / "config/suites/mini.yaml").write_text(SUITE)
    (root / "src/upkeep/judging").mkdir(parents=True)
    dataset = root / "datasets/toy/dataset.yaml"
    text = dataset.read_text().replace("exact", "short_answer").replace("metrics: none", "metrics: answers")
    dataset.write_text(text.replace("}", ", judges: strict}"))
    catalog = Catalog(root)
    write_toy(catalog, quoted=quoted)
    run_cell(catalog, ECHO, runtime=ScriptedRuntime(extra=CHANGED.format(more=more)))
    return Catalog(root)


def judged_by(catalog: Catalog) -> tuple[pl.DataFrame, list[str]]:
    """The verdicts of the suite's one judge, and what the command tells."""
    lines = list(judge_suite(catalog, "mini", MODEL))
    manifest = Basis(catalog, "mini").cells[ECHO].manifest
    assert manifest is not None
    return judged(catalog, ECHO, MODEL, manifest).rows, lines
