"""A repository whose suites are planned, and cells of it, for tests of plans."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

import upkeep
from conftest import copy_repository, make_smaller
from upkeep.building.build import build_dataset
from upkeep.catalog import Catalog
from upkeep.contract import (
    Attempt,
    Environment,
    Manifest,
    Usage,
)
from upkeep.execution.handle import Handle
from upkeep.execution.runtimes import Launch, Prepared
from upkeep.files import digest
from upkeep.integrity import write_sealed
from upkeep.jobs import Cell
from upkeep.layout import Layout
from upkeep.operations.plan.counts import counting
from upkeep.operations.plan.counts.tally import Tally
from upkeep.serving.counting.records import Assumed

ASSUMED = Assumed(reply=20, thinking=30)
PROBES = 80
DOCUMENTS = 10
"""Of `oaks_babi_mini`, made smaller."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a built dataset and the tokenizer of `tiny`; its weights are not there."""
    from upkeep.serving.make_model import tiny_llama

    root = copy_repository(tmp_path_factory.mktemp("plan"))
    make_smaller(root)
    card = root / "models" / "tiny" / "model.yaml"
    card.write_text(card.read_text().replace("max_tokens: 16", "max_tokens: 2"))  # what is generated is not the point
    catalog = Catalog(root)
    layout = Layout(catalog.results)
    for name in ("oaks_babi_mini", "prelude_mini"):  # prompts of the second have worked examples
        build_dataset(catalog, name, layout.dataset(name))
    weights = root / "tiny"
    tiny_llama(weights)
    shutil.copytree(weights, root / "tiny-whole")
    (weights / "model.safetensors").unlink()
    config = root / "config" / "config.yaml"
    config.write_text(config.read_text().replace("models: {}", "models: {tiny: tiny}"))
    return root


class LocalRuntime:
    """Starts what a container would run as a process beside the tests, with the methods of a repository."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.launches: list[Launch] = []

    def prepare(self, method: str | None, engine: str) -> Prepared:
        return Prepared(record=None)  # type: ignore[arg-type]

    def path_of(self, role: str, path: Path) -> str:
        return str(path)

    def start(self, prepared: Prepared, launch: Launch) -> Handle:
        self.launches.append(launch)
        process = subprocess.Popen(
            [sys.executable, *launch.arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment(self.root),
        )
        return Handle(process, launch.log, process.kill)

    def explain(self, status: int, resources: object, starved: bool | None = None) -> str:
        return f"exit status {status}"


def environment(root: Path) -> dict[str, str]:
    fixed = {"PYTHONPATH": str(Path(upkeep.__file__).parents[1]), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    return os.environ | fixed | {"UPKEEP_METHODS": str(root / "methods")}


@pytest.fixture
def runtime(root: Path, monkeypatch: pytest.MonkeyPatch) -> LocalRuntime:
    local = LocalRuntime(root)
    monkeypatch.setattr(counting, "detect", lambda _: local)
    return local


def cell(method: str, model: str = "tiny", dataset: str = "oaks_babi_mini") -> Cell:
    name, _, variant = method.partition("/")
    return Cell(dataset, name, variant or "default", model)


def suite(root: Path, name: str, *cells: Cell) -> Catalog:
    """A catalog of the repository with a suite of these cells."""
    choices = [{"datasets": [c.dataset], "methods": [f"{c.method}/{c.variant}"], "models": [c.model]} for c in cells]
    told = {"label": name, "summary": name, "papers": [], "cells": choices}
    (root / "config" / "suites" / f"{name}.yaml").write_text(yaml.safe_dump(told))
    return Catalog(root)


def add_model(root: Path, name: str, **fields: Any) -> None:
    told = {"label": name, "summary": name, "source": "hub", "location": "a/b", "revision": "1", "context_length": 4000}
    (root / "models" / name).mkdir(exist_ok=True)
    (root / "models" / name / "model.yaml").write_text(yaml.safe_dump(told | fields))


TALLY = Tally(
    records=100, counted=100, requests=100, prompt=1e6, computed=4e5, output=2e4, attended=5e9, read=2e8,
    together=10, own_tokens=True, bytes_per_token=4,
)  # fmt: skip


def publish(
    root: Path,
    which: Cell,
    seconds: int,
    usage: Usage,
    cached: int,
    more: Mapping[str, float] | None = None,
    *,
    killed: bool = False,
) -> None:
    """A manifest as a cell of two attempts leaves it, with an hour between them in which nobody worked.

    Args:
        more: what was measured besides.
        killed: whether the first attempt was.
    """
    half = seconds // 2
    spans = [("08:00:00", f"08:{half // 60:02}:{half % 60:02}"), ("12:00:00", f"12:{half // 60:02}:{half % 60:02}")]
    manifest = Manifest(
        cell=str(which),
        identity=digest("x"),
        identity_parts={},
        environment=Environment(
            runtime="process", isolated=False, image=None, digest=None, engine="transformers", engine_version="",
            packages={}, hardware={},
        ),
        seed=0,
        start="2026-01-01T08:00:00+00:00",
        end="2026-01-01T13:00:00+00:00",
        attempts=[
            Attempt(
                start=f"2026-01-01T{a}+00:00",
                end=f"2026-01-01T{b}+00:00",
                outcome="killed" if killed and n == 0 else "complete",
            )
            for n, (a, b) in enumerate(spans)
        ],
        probes=PROBES,
        trials=1,
        outcomes={},
        usage=usage,
        measured={
            "cached_prompt_tokens": cached,
            "computed_prompt_tokens": usage.prompt - cached,
            "latency_s": 1.0,
            **(more or {}),
        },
        files={},
    )  # fmt: skip
    folder = Layout(root / "results").cell(which)
    folder.mkdir(parents=True, exist_ok=True)
    write_sealed(folder / "manifest.json", manifest)


def text(renderable: Any) -> str:
    from rich.console import Console

    console = Console(width=250, record=True, file=open(os.devnull, "w"))  # noqa: PTH123, SIM115
    console.print(renderable, highlight=False)
    return console.export_text()
