"""A small suite and the states of its jobs, for tests of `./upkeep status` and `./upkeep logs`."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from conftest import ROOT
from host_fakes import make_repository
from upkeep.catalog import Catalog
from upkeep.execution.status import Status
from upkeep.jobs import Cell
from upkeep.layout import Layout
from upkeep.machine.clock import now
from upkeep.operations.status.queue import Queue
from upkeep.operations.status.states import JobView, Survey
from upkeep.operations.status.survey import survey
from upkeep.operations.status.terminal import Shown

ECHO = Cell("toy", "echo", "a", "none")
NO_QUEUE = Queue(there=False)
SUITE = "{label: l, summary: s, papers: [], cells: [{datasets: [toy], methods: [echo, guided], models: [none]}]}"


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    """Cells echo/{a,b} and guided/{a,b,c}."""
    make_repository(tmp_path)
    (tmp_path / "config/suites/mini.yaml").write_text(SUITE)
    return Catalog(tmp_path)


def look(catalog: Catalog, queue: Queue = NO_QUEUE) -> Survey:
    return survey(catalog, "mini", queue)


def view(found: Survey, cell: object = ECHO, of: str = "cells") -> JobView:
    (one,) = [job for job in found.jobs if job.name == str(cell) and job.of == of]
    return one


def drawn(found: Survey, each: bool = False) -> str:
    console = Console(width=300, color_system=None, force_terminal=False)
    with console.capture() as text:
        console.print(Shown(found, each=each))
    return text.get()


def write(catalog: Catalog, cell: Cell = ECHO, **fields: object) -> Path:
    """A status as a job of this process would leave it, but for some fields."""
    status = Status(
        name=str(cell), state="running", done=0, total=100, started=now(), updated=now(), pid=os.getpid(),
        node=platform.node(),
    )  # fmt: skip
    path = Layout(catalog.results).status("cells", cell)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(status, **fields)))
    return path


def upkeep(catalog: Catalog, *arguments: str, cwd: Path = Path("/")) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "upkeep", "--root", str(catalog.root), *arguments]
    return subprocess.run(
        command, cwd=cwd, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True, timeout=120
    )
