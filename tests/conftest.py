"""Shared by all tests: a small copy of the repository to work in, and honest reasons for what cannot run here."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# What the caller configured is not what the tests are about, but for the cache: wheels and environments are shared.
# Workers of one run start after this one and find the cache under its other name.
for name in ("CONFIG", "SUITE", "RUNTIME", "RESULTS", "ROOT"):
    os.environ.pop(f"UPKEEP_{name}", None)
if (cache := os.environ.pop("UPKEEP_CACHE", None)) is not None:
    os.environ["UPKEEP_TEST_CACHE"] = cache
CACHE = Path(os.environ.get("UPKEEP_TEST_CACHE", ROOT / "results" / "cache"))


def docker_reason() -> str | None:
    """Why container tests cannot run here; None where they can."""
    docker = shutil.which("docker")
    if docker is None:
        return "no container engine: docker is not installed"
    try:
        answer = subprocess.run(
            [docker, "info", "--format", "{{.ServerVersion}}"], capture_output=True, text=True, timeout=20
        )
    except subprocess.TimeoutExpired:
        return "no container engine: docker does not answer"
    return None if answer.returncode == 0 else "no container engine: docker is installed, its engine does not run"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if any(item.get_closest_marker("docker") for item in items) and (reason := docker_reason()):
        for item in items:
            if item.get_closest_marker("docker"):
                item.add_marker(pytest.mark.skip(reason=reason))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was not run is said aloud, with the reason."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons: dict[str, int] = {}
    for report in skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reasons[reason] = reasons.get(reason, 0) + 1
    for reason, count in reasons.items():
        terminalreporter.write_line(f"NOT RUN: {count} tests: {reason}", yellow=True)


def copy_repository(folder: Path) -> Path:
    """A copy of what users edit (cards, methods, containers, library)."""
    copy = folder / "upkeep"
    copy.mkdir()
    for name in ("config", "containers", "datasets", "methods", "models", "papers", "profiles", "rules", "src"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "Snakefile", copy)
    return copy


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository to be changed by a test."""
    return copy_repository(tmp_path)
