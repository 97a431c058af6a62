"""Podman for real: what it isolates is tested with Docker's in `test_runtimes`; here, whole cells."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from conftest import CACHE, copy_repository
from endpoint_fakes import MODEL, be_quick, fake_endpoint, write_card
from test_door_cells import PROGRAM, bring
from upkeep.building.build import build_dataset
from upkeep.catalog import Catalog
from upkeep.contract import Manifest
from upkeep.execution.supervise import run_cell
from upkeep.images import docker
from upkeep.images.docker import CommandLine
from upkeep.jobs import Cell
from upkeep.layout import Layout

BABI = "oaks_babi_mini"


CELLS = (Cell(BABI, "gold", "default", "none"), Cell(BABI, "brought", "default", MODEL))


def reply(_: int, body: dict[str, Any]) -> str:
    """An answer that another question would not have got."""
    return f"## Answer: {zlib.crc32(json.dumps(body['messages']).encode())}"


def run(folder: Path, runtime: str, url: str) -> list[tuple[bytes, Manifest]]:
    """Predictions and manifests of CELLS: a control, and a program that asks a model through the door."""
    folder.mkdir()
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("UPKEEP_RUNTIME", runtime)
        environment.setenv("UPKEEP_CACHE", str(CACHE))
        root = copy_repository(folder)
        write_card(root, url)
        (root / "config/config.yaml").write_text(f"{{budget: {{{MODEL}: 1000}}}}")
        catalog = bring(Catalog(root), "brought", ["python", "program"], PROGRAM)
        build_dataset(catalog, BABI, Layout(catalog.results).dataset(BABI))
        found = []
        for cell in CELLS:
            run_cell(catalog, cell)
            published = Layout(catalog.results).cell(cell)
            manifest = msgspec.json.decode((published / "manifest.json").read_bytes(), type=Manifest)
            found.append(((published / "predictions.jsonl").read_bytes(), manifest))
        return found


@pytest.mark.podman
@pytest.mark.docker
def test_cells_answer_byte_for_byte_as_under_docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    be_quick(monkeypatch)
    with fake_endpoint(reply) as server:
        theirs, ours = (run(tmp_path / name, name, server.url) for name in ("docker", "podman"))
    for (expected, _), (found, manifest) in zip(theirs, ours, strict=True):
        assert found == expected and found.count(b"\n") > 100
        assert (manifest.environment.runtime, manifest.environment.isolated) == ("podman", True)
        assert (manifest.environment.digest or "").startswith("sha256:")
        assert manifest.outcomes["error"] == 0
    asked = ours[1][1]
    assert asked.usage.calls == asked.probes and len(server.bodies) == 2 * len(set(ours[1][0].splitlines()))


def test_podman_is_asked_for_no_limit_that_this_user_may_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda number: (1000, 4000))
    assert CommandLine("podman", "x").limits == ["--ulimit", "nofile=4000:4000", "--ulimit", "nproc=1000:1000"]
    monkeypatch.setattr("resource.getrlimit", lambda number: (-1, 500_000))
    assert f"nproc={docker.PODMAN_PROCESSES}:{docker.PODMAN_PROCESSES}" in CommandLine("podman", "x").limits
    assert CommandLine("docker", "x").limits == []


def test_podman_that_answers_and_runs_nothing_is_not_taken(tmp_path: Path) -> None:
    program = tmp_path / "podman"
    program.write_text('#!/bin/sh\n[ "$1" = version ] && exit 0\necho "Error: no control groups" >&2\nexit 126\n')
    program.chmod(0o755)
    assert CommandLine("podman", str(program)).answers() == "podman: Error: no control groups"
