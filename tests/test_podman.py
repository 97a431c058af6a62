"""Podman for real: what it isolates is tested with Docker's in `test_runtimes`; here, whole cells."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from conftest import CACHE, copy_repository
from upkeep.building.build import build_dataset
from upkeep.catalog import Catalog
from upkeep.contract import Manifest
from upkeep.execution.supervise import run_cell
from upkeep.images import docker
from upkeep.images.docker import Client
from upkeep.jobs import Cell
from upkeep.layout import Layout

BABI = "oaks_babi_mini"


def run(folder: Path, runtime: str, name: str) -> tuple[bytes, Manifest]:
    """Predictions and manifest of a cell."""
    folder.mkdir()
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("UPKEEP_RUNTIME", runtime)
        environment.setenv("UPKEEP_CACHE", str(CACHE))
        catalog = Catalog(copy_repository(folder))
        build_dataset(catalog, BABI, Layout(catalog.results).dataset(BABI))
        run_cell(catalog, cell := Cell(*name.split("/")))
    published = Layout(catalog.results).cell(cell)
    manifest = msgspec.json.decode((published / "manifest.json").read_bytes(), type=Manifest)
    return (published / "predictions.jsonl").read_bytes(), manifest


@pytest.mark.podman
@pytest.mark.docker
def test_a_cell_answers_byte_for_byte_as_under_docker(tmp_path: Path) -> None:
    theirs, ours = (run(tmp_path / name, name, f"{BABI}/gold/default/none") for name in ("docker", "podman"))
    assert ours[0] == theirs[0] and ours[0].count(b"\n") > 100
    assert (ours[1].environment.runtime, ours[1].environment.isolated) == ("podman", True)
    assert (ours[1].environment.digest or "").startswith("sha256:")


def test_podman_is_asked_for_no_limit_that_this_user_may_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda number: (1000, 4000))
    assert Client("podman", "x").limits == ["--ulimit", "nofile=4000:4000", "--ulimit", "nproc=1000:1000"]
    monkeypatch.setattr("resource.getrlimit", lambda number: (-1, 500_000))
    assert f"nproc={docker.PODMAN_PROCESSES}:{docker.PODMAN_PROCESSES}" in Client("podman", "x").limits
    assert Client("docker", "x").limits == []


def test_podman_that_answers_and_runs_nothing_is_not_taken(tmp_path: Path) -> None:
    program = tmp_path / "podman"
    program.write_text('#!/bin/sh\n[ "$1" = version ] && exit 0\necho "Error: no control groups" >&2\nexit 126\n')
    program.chmod(0o755)
    assert Client("podman", str(program)).answers() == "podman: Error: no control groups"
