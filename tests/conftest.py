"""Shared by all tests: a small copy of the repository to work in, and honest reasons for what cannot run here."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from upkeep.host.images import Client

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


def podman_reason() -> str | None:
    """Why Podman's tests cannot run here; None where they can."""
    podman = shutil.which("podman")
    if podman is None:
        return "podman is not installed"
    return Client("podman", podman).answers()


def apptainer_reason() -> str | None:
    """Why Apptainer's tests cannot run here; None where they can."""
    if shutil.which("apptainer") is None:
        return "apptainer is not installed"
    # Root tries it as a user of its own, see `ordinary_user`.
    identity = {"user": 65534, "group": 65534, "extra_groups": []} if not os.getuid() else {}
    with tempfile.TemporaryDirectory() as home:
        Path(home).chmod(0o777)
        answer = subprocess.run(
            ["apptainer", "version"],
            capture_output=True,
            text=True,
            cwd="/",
            env=os.environ | {"HOME": home},
            **identity,
        )
        if answer.returncode:
            return f"apptainer does not run as an ordinary user: {answer.stderr.strip()[-200:]}"
    answer = subprocess.run(["unshare", "--user", "--net", "true"], capture_output=True, text=True, **identity)
    return None if answer.returncode == 0 else f"no user namespaces for ordinary users: {answer.stderr.strip()}"


def fuse_reason() -> str | None:
    """Why no file system can be mounted here; None where one can."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "no FUSE: /dev/fuse cannot be opened"
    return None if shutil.which("fusermount3") else "no FUSE: fusermount3 is not installed"


def other_python_reason() -> str | None:
    """Why nothing can be run under another Python; None where it can."""
    root = os.environ.get("UPKEEP_OTHER_ROOT")
    if root is None:
        return "no other Python: UPKEEP_OTHER_ROOT names no root file system with one"
    return None if os.getuid() == 0 and Path(root, "opt/upkeep/bin").is_dir() else f"no other Python at {root}"


NEEDED = {
    "other_python": other_python_reason,
    "fuse": fuse_reason,
    "docker": docker_reason,
    "podman": podman_reason,
    "apptainer": apptainer_reason,
}
"""Marks of tests that need a real engine, and what says why there is none."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for name, reason_of in NEEDED.items():
        marked = [item for item in items if item.get_closest_marker(name)]
        if marked and (reason := reason_of()):
            for item in marked:
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
