"""What tests of supervised cells share: a toy repository and what a cell leaves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from host_fakes import make_repository
from upkeep.catalog import Catalog
from upkeep.execution.status import read_all
from upkeep.jobs import Cell
from upkeep.layout import Layout

ECHO = Cell("toy", "echo", "a", "none")
RECORDS = 60
"""30 probes in 2 trials."""


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return make_repository(tmp_path, trials=2)


def predictions(catalog: Catalog, cell: Cell = ECHO) -> list[dict[str, object]]:
    path = Layout(catalog.results).cell(cell) / "predictions.jsonl"
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def status(catalog: Catalog) -> str:
    (one,) = read_all(catalog.results / "status")
    return one.state


def assert_nothing_published(catalog: Catalog) -> None:
    assert not list((catalog.results / "cells").rglob("*")) if (catalog.results / "cells").exists() else True
