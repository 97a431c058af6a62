"""Programs and machines that the doctor examines, for tests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import ROOT
from upkeep.catalog import Catalog
from upkeep.images.docker import find_client
from upkeep.operations.doctor import examination
from upkeep.operations.doctor.findings import Check, Facts, Finding


@pytest.fixture
def catalog(repository: Path, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    shutil.copy(ROOT / "requirements.lock", repository)
    monkeypatch.setenv("UPKEEP_RUNTIME", "process")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return Catalog(repository)


@pytest.fixture
def clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that is the whole PATH."""
    folder = tmp_path / "clients"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    for name in ("UPKEEP_DOCKER", "UPKEEP_PODMAN", "UPKEEP_APPTAINER"):
        monkeypatch.delenv(name, raising=False)
    find_client.cache_clear()
    yield folder
    examination.release()
    find_client.cache_clear()


def program(clients: Path, name: str, script: str) -> None:
    path = clients / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def found(check: Check, catalog: Catalog, facts: Facts | None = None) -> dict[str, Finding]:
    return {f.name: f for f in check(catalog, "mini", facts if facts is not None else Facts())}
