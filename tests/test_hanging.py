"""An engine that stops answering without dying is noticed, named and ended: no cell waits for it without end."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from conftest import CACHE, ROOT, copy_repository, make_smaller
from host_fakes import RunnerRuntime, make_repository
from upkeep.batches import Batch
from upkeep.building.build import build_dataset
from upkeep.catalog import Catalog
from upkeep.cell import wire
from upkeep.contract import Sampling
from upkeep.errors import UpkeepError
from upkeep.execution import host_model
from upkeep.execution.batch import run_batch
from upkeep.execution.detection import detect
from upkeep.execution.fetch import fetch
from upkeep.execution.handle import Handle
from upkeep.execution.host_model import HostModel, Question
from upkeep.execution.runtimes import Launch, Prepared
from upkeep.execution.share import SharedEngines
from upkeep.execution.status import read_all
from upkeep.execution.supervise import run_cell
from upkeep.execution.watch import Limits
from upkeep.gateway.cells import Gateway
from upkeep.gateway.record import Replies
from upkeep.gateway.shared_connection import SharedConnections
from upkeep.gateway.upstream import SOCKET
from upkeep.gateway.watched import Patience
from upkeep.integrity import verify_folder
from upkeep.jobs import Cell
from upkeep.layout import Layout

DATASET = "oaks_babi_mini"
CELLS = (Cell(DATASET, "rag_bm25", "k2", "tiny"), Cell(DATASET, "closed_book", "default", "tiny"))
PROBES, HALF = 80, 40
HASTY = Limits(engine_s=5.0)

# ---------------------------------------------------------------- an engine of a few lines

FAKE = """
import json, os, socket, sys, threading, time
import msgspec
from upkeep.cell import wire
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
told = {"engine": "fake", "engine_version": "1", "packages": {}, "hardware": {}}
listener = socket.socket(socket.AF_UNIX)
place = json.load(open(sys.argv[1]))["socket"]
listener.bind(place + "_")
listener.listen()
os.rename(place + "_", place)  # the host connects as soon as the socket is there
print("listening", flush=True)
steps = 0
while True:
    connection, _ = listener.accept()
    wire.send(connection, wire.Ready("fake", "1", 100_000, told))
    try:
        while True:
            question = wire.receive(connection, wire.Question)
            answer = "Yes" if isinstance(question, wire.Decode) else 5
            if isinstance(question, wire.Step):
                steps += 1
                if steps == int(sys.argv[2]):
                    STEP
                answer = [wire.Finished(one.number, ids=[1, 2]) for one in question.requests]
            wire.send(connection, wire.Answer(msgspec.Raw(msgspec.msgpack.encode(answer)), 0))
    except EOFError:
        pass
"""
ASLEEP, BUSY, LONG = (
    "time.sleep(3600)",
    "while True: pass",
    "end = time.monotonic() + 3\n                    while time.monotonic() < end: pass",
)


def engine(step: str, at: int, description: Path) -> subprocess.Popen[bytes]:
    """An engine that answers, but does `step` before it answers its `at`-th step."""
    command = [sys.executable, "-c", FAKE.replace("STEP", step), str(description), str(at)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


@contextlib.contextmanager
def started(step: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """Such an engine, and the folder with its socket."""
    with tempfile.TemporaryDirectory(prefix="hang-") as name:
        description = Path(name) / "cell.json"
        description.write_text(json.dumps({"socket": f"{name}/{SOCKET}"}))
        with engine(step, 1, description) as process:
            assert process.stdout is not None and process.stdout.readline() == b"listening\n"
            yield process, Path(name)
            process.kill()


def ask(process: subprocess.Popen[bytes], folder: Path, record: Path, patience_s: float) -> object:
    """What a container hears that asks for a step."""

    def hung() -> UpkeepError:
        process.kill()
        return UpkeepError("the engine of 'fake' hung", where=record / "fake.log", kind="engine")

    replies = Replies(record, {"weights": "fake"}, "fake")
    gateway = Gateway("reader", replies, lambda given_up: folder, SharedConnections(Patience(patience_s, hung)))
    with gateway as place, socket.socket(socket.AF_UNIX) as container:
        container.connect(str(place / SOCKET))
        wire.receive(container, wire.Ready)
        wire.send(container, wire.Chat(0, [("user", ["Who?"])]))
        wire.receive(container, wire.Answer)
        wire.send(container, wire.Step([wire.Generate(0, 0, Sampling(max_tokens=3), 0)], []))
        answers: Any = wire.Answer | wire.Died
        return wire.receive(container, answers)


def test_an_engine_whose_step_never_returns_is_ended_and_the_container_is_told(tmp_path: Path) -> None:
    with started(ASLEEP) as (process, folder):
        told = ask(process, folder, tmp_path, 1.0)
        assert isinstance(told, wire.Died)
        assert "the engine of 'fake' hung" in told.reason and "fake.log" in told.reason
        assert process.wait(30) == -signal.SIGKILL


def test_an_engine_that_works_longer_than_patience_lasts_is_waited_for(tmp_path: Path) -> None:
    with started(LONG) as (process, folder):
        assert isinstance(ask(process, folder, tmp_path, 1.0), wire.Answer)
        assert process.poll() is None


def test_an_engine_that_was_stopped_before_it_was_asked_is_ended_too(tmp_path: Path) -> None:
    with started(ASLEEP) as (process, folder):
        process.send_signal(signal.SIGSTOP)  # the kernel goes on to take connections for it
        with pytest.raises(wire.Breach):  # what comes is no greeting
            ask(process, folder, tmp_path, 1.0)
        assert process.wait(30) == -signal.SIGKILL


def test_a_gateway_ends_though_its_engine_greets_nobody(tmp_path: Path) -> None:
    with started(ASLEEP) as (process, folder):
        process.send_signal(signal.SIGSTOP)
        replies = Replies(tmp_path, {"weights": "fake"}, "fake")
        connections = SharedConnections(Patience(3600.0, lambda: UpkeepError("nobody waits so long")))
        gateway = Gateway("reader", replies, lambda given_up: folder, connections)
        with gateway as place, socket.socket(socket.AF_UNIX) as container:
            container.connect(str(place / SOCKET))
            while not gateway.owed:
                time.sleep(0.01)
        assert process.poll() is None, "what another cell may need is left"


# ---------------------------------------------------------------- cells that it serves


class Fakes(RunnerRuntime):
    """Real containers; engines of a few lines, of which the first ones do `steps` before they answer their `at`-th
    one, and the others answer."""

    def __init__(self, *steps: str, at: int = 1) -> None:
        super().__init__()
        self.steps, self.step, self.processes = list(steps), at, list[subprocess.Popen[bytes]]()

    def start(self, prepared: Prepared, launch: Launch) -> Handle:
        if not launch.arguments:
            return super().start(prepared, launch)
        step, at = (self.steps.pop(0), self.step) if self.steps else ("pass", 0)
        self.processes.append(process := engine(step, at, launch.inputs["cell"] / "cell.json"))
        return Handle(process, launch.log, process.kill)


@pytest.fixture
def toy(tmp_path: Path) -> Catalog:
    """A repository with the cell `TOY`, whose model has weights that no engine of these tests reads."""
    catalog = make_repository(tmp_path)
    shutil.copytree(ROOT / "methods/closed_book", tmp_path / "methods/closed_book")
    for name, text in {
        "models/t/model.yaml": "{label: T, summary: s, source: path, location: weights, context_length: 100000}",
        "weights/config.json": "{}",
        "weights/model.safetensors": "none",
        "weights/tokenizer.json": "{}",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    catalog = Catalog(tmp_path)
    fetch(catalog, "t")
    return catalog


TOY = Cell("toy", "closed_book", "default", "t")


def test_a_cell_goes_on_with_a_new_engine_where_one_hangs(toy: Catalog) -> None:
    runtime = Fakes(ASLEEP)
    manifest = run_cell(toy, TOY, runtime=runtime, limits=Limits(engine_s=1.0))
    first, second = manifest.attempts
    assert "the engine of 't' hung" in str(first.reason) and second.outcome == "complete"
    hung, new = runtime.processes
    assert hung.returncode == -signal.SIGKILL and new.returncode is not None, "none is left"


def test_a_cell_whose_engines_all_hang_ends_with_their_name_and_log(toy: Catalog) -> None:
    runtime = Fakes(ASLEEP, ASLEEP, ASLEEP)
    with pytest.raises(UpkeepError, match="ended early") as caught:
        run_cell(toy, TOY, runtime=runtime, limits=Limits(engine_s=1.0))
    log = Layout(toy.results).log("engines", TOY)
    assert f"{log}: the engine of 't' hung: no reply and no sign of work for 1 s" in str(caught.value)
    assert caught.value.kind == "engine" and log.is_file()
    assert [process.returncode for process in runtime.processes] == [-signal.SIGKILL] * 3
    honest = Fakes()
    assert run_cell(toy, TOY, runtime=honest).attempts[-1].outcome == "complete"


def test_a_cell_that_stands_still_while_its_engine_works_without_end_names_the_engine_and_ends_it(
    toy: Catalog,
) -> None:
    runtime, log = Fakes(BUSY), toy.results / "engine.log"
    patient = Limits(engine_s=1.0)
    with SharedEngines("hanging", runtime, log, patient) as shared:
        with pytest.raises(UpkeepError, match="nothing new for 6 s") as caught:
            run_cell(toy, TOY, runtime=runtime, limits=replace(patient, stall_s=6.0), retries=0, shared=shared)
        assert f"the engine of 't' had not answered, and was ended; its log: {log}" in str(caught.value)
        assert caught.value.kind == "engine" and runtime.processes[0].returncode is not None
        assert run_cell(toy, TOY, runtime=runtime, shared=shared).attempts[-1].outcome == "complete"
        assert len(runtime.processes) == 2


def test_what_asks_a_model_outside_of_cells_ends_where_its_engine_hangs(
    toy: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As judges and builders of datasets do."""
    runtime = Fakes(ASLEEP, at=2)
    monkeypatch.setattr(host_model, "detect", lambda catalog: runtime)
    monkeypatch.setattr(host_model, "Limits", lambda: Limits(engine_s=1.0))
    asked = [[Question([{"role": "user", "parts": [text]}], Sampling(), text)] for text in ("one", "two")]
    with HostModel(toy, "t", "judged", "test") as model:
        assert model.ask(asked[0])[0].text == "Yes"
        with pytest.raises(UpkeepError, match="the engine of 't' hung") as caught:
            model.ask(asked[1])
        assert caught.value.kind == "engine"
        assert model.ask(asked[1])[0].text == "Yes", "a new one is started"


# ---------------------------------------------------------------- a real one


@pytest.fixture(scope="module")
def temporary() -> Iterator[Path]:
    """Where all temporary files of these cells lie; a short name, so that sockets have room in it."""
    with tempfile.TemporaryDirectory(prefix="hang-") as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", name)
        yield Path(name)


@pytest.fixture(scope="module")
def catalog(temporary: Path, tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    root = copy_repository(tmp_path_factory.mktemp("hanging"))
    make_smaller(root)
    config = root / "config/config.yaml"
    changed = {"runtime": "process", "cache": str(CACHE)}
    config.write_text(yaml.safe_dump(yaml.safe_load(config.read_text()) | changed))
    catalog = Catalog(root)
    build_dataset(catalog, DATASET, Layout(catalog.results).dataset(DATASET))
    fetch(catalog, "tiny")
    return catalog


def content(catalog: Catalog, cell: Cell) -> bytes:
    folder = Layout(catalog.results).cell(cell)
    verify_folder(folder)
    return (folder / "predictions.jsonl").read_bytes()


@pytest.fixture(scope="module")
def undisturbed(catalog: Catalog) -> dict[Cell, bytes]:
    """What the cells say; nothing of it is published, and no reply is known."""
    run_batch(catalog, Batch("hanging", CELLS))
    found = {cell: content(catalog, cell) for cell in CELLS}
    for folder in ("cells", "record"):
        shutil.rmtree(catalog.results / folder)
    return found


class Stopping:
    """A runtime whose first engine is stopped (SIGSTOP) in the middle of the first cell."""

    def __init__(self, catalog: Catalog) -> None:
        self._runtime, self.engines, self.stopped = detect(catalog), 0, list[psutil.Process]()
        self._path = Layout(catalog.results).work("cells", CELLS[0]) / "predictions.jsonl"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)

    def start(self, prepared: Prepared, launch: Launch) -> Handle:
        handle = self._runtime.start(prepared, launch)
        if launch.arguments:
            self.engines += 1
            if self.engines == 1:
                threading.Thread(target=self._stop, args=(handle,), daemon=True).start()
        return handle

    def _stop(self, handle: Handle) -> None:
        while not self._path.exists() or self._path.read_bytes().count(b"\n") < HALF:
            time.sleep(0.005)
        for process in psutil.Process(handle.pid).children(recursive=True):
            process.suspend()
            self.stopped.append(process)


def left(catalog: Catalog, temporary: Path) -> list[str]:
    """Processes, sockets and scratch folders that are still there."""
    found = [str(path) for path in temporary.iterdir()]
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid != os.getpid() and any(str(catalog.root) in word for word in process.cmdline()):
                found.append(f"process {process.pid} {process.cmdline()}")
    return found


def test_a_cell_whose_engine_hangs_ends_with_its_name_and_log_and_later_cells_have_a_new_one(
    catalog: Catalog, undisturbed: dict[Cell, bytes], temporary: Path
) -> None:
    runtime, batch = Stopping(catalog), Batch("hanging", CELLS)
    with pytest.raises(UpkeepError, match="1 of 2 cells of the batch failed") as caught:
        run_batch(catalog, batch, runtime=runtime, limits=HASTY, retries=0)
    log = Layout(catalog.results).log("engines", "hanging")
    assert f"{log}: the engine of 'tiny' hung: no reply and no sign of work for 5 s" in str(caught.value)
    assert log.is_file()
    (failed,) = [one for one in read_all(catalog.results / "status") if one.state == "failed"]
    assert failed.kind == "engine"
    assert content(catalog, CELLS[1]) == undisturbed[CELLS[1]]
    assert runtime.stopped and runtime.engines == 2
    assert left(catalog, temporary) == []
    again = run_batch(catalog, batch)
    assert {cell: content(catalog, cell) for cell in CELLS} == undisturbed
    assert [one.lines for one in again[CELLS[0]].attempts][-1] == PROBES
    assert again[CELLS[0]].attempts[0].lines >= HALF, "what was accepted is not asked again"
