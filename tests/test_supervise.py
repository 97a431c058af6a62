"""A cell is published complete by an honest container, once; locks, signals, and trainings."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path

import pytest

from host_fakes import ScriptedRuntime, make_repository, training, write_toy
from supervised_cells import ECHO, RECORDS, assert_nothing_published, catalog, predictions, status
from upkeep.catalog import Catalog
from upkeep.errors import UpkeepError
from upkeep.execution import rounds
from upkeep.execution.rounds import BuiltDataset
from upkeep.execution.supervise import run_cell
from upkeep.file_locks import locked
from upkeep.integrity import verify_folder
from upkeep.jobs import Cell, Training
from upkeep.layout import Layout
from upkeep.machine.lifeline import stoppable

__all__ = ["catalog"]


def told(catalog: Catalog, cell: Cell) -> dict[str, dict[str, object]]:
    """What the scripted container had when it answered each probe."""
    return {str(p["probe_id"]): json.loads(str(p["response"])) for p in predictions(catalog, cell)}


# ---------------------------------------------------------------- an honest container


def test_cell_is_published_complete_and_in_order(catalog: Catalog) -> None:
    manifest = run_cell(catalog, ECHO, runtime=ScriptedRuntime())
    ids = [(p["probe_id"], p["trial"]) for p in predictions(catalog)]
    expected = [p.id for p in BuiltDataset.read(Layout(catalog.results).dataset("toy")).probes]
    assert ids == [(probe, trial) for probe in expected for trial in (0, 1)]
    assert manifest == verify_folder(Layout(catalog.results).cell(ECHO))
    assert manifest.outcomes == {"answered": 60, "error": 0}
    assert manifest.usage.calls == RECORDS
    assert manifest.environment.hardware == {"cpu": "scripted"}
    assert [a.outcome for a in manifest.attempts] == ["complete"]
    assert not list((catalog.results / "work").rglob("predictions.jsonl"))
    assert status(catalog) == "done"


def test_method_sees_the_answer_key_only_where_its_card_says_so(catalog: Catalog) -> None:
    evidence: dict[str, object] = {"probe_id": "a1@2", "evidence": ["a_c2"], "context": []}
    for method, gold in (
        ("echo", None),
        ("guided", evidence | {"answers": [], "outdated": []}),
        ("keen", evidence | {"answers": ["answer 1"], "outdated": ["old"]}),
    ):
        cell = Cell("toy", method, "a", "none")
        run_cell(catalog, cell, runtime=ScriptedRuntime())
        assert told(catalog, cell)["a1@2"]["gold"] == gold


def test_published_cell_of_the_same_identity_is_reused(catalog: Catalog) -> None:
    first = run_cell(catalog, ECHO, runtime=ScriptedRuntime())
    runtime = ScriptedRuntime()
    assert run_cell(catalog, ECHO, runtime=runtime) == first
    assert runtime.starts == 0
    assert status(catalog) == "reused"


def test_reused_files_are_newer_than_their_inputs(catalog: Catalog) -> None:
    run_cell(catalog, ECHO, runtime=ScriptedRuntime())
    files = [p for p in Layout(catalog.results).cell(ECHO).iterdir() if p.is_file()]
    card = Layout(catalog.results).dataset("toy") / "card.json"
    for file in files:
        os.utime(file, ns=(1, 1))
    run_cell(catalog, ECHO, runtime=ScriptedRuntime())
    assert len(files) == 3
    assert all(file.stat().st_mtime_ns >= card.stat().st_mtime_ns for file in files)


@pytest.mark.parametrize("change", ["force", "code", "dataset", "tampered", "file missing"])
def test_anything_else_is_run_again(catalog: Catalog, change: str) -> None:
    run_cell(catalog, ECHO, runtime=ScriptedRuntime())
    folder = Layout(catalog.results).cell(ECHO)
    match change:
        case "code":
            (catalog.root / "methods/echo/method.py").write_text("# edited")
        case "dataset":
            write_toy(catalog, "other text")
        case "tampered":
            (folder / "predictions.jsonl").write_bytes(
                (folder / "predictions.jsonl").read_bytes().replace(b"text", b"TEXT")
            )
        case "file missing":
            (folder / "measured.parquet").unlink()
    runtime = ScriptedRuntime()
    run_cell(Catalog(catalog.root), ECHO, change == "force", runtime=runtime)
    assert runtime.starts == 1
    verify_folder(folder)


def test_two_runs_publish_the_same_bytes(catalog: Catalog) -> None:
    path = Layout(catalog.results).cell(ECHO) / "predictions.jsonl"
    run_cell(catalog, ECHO, runtime=ScriptedRuntime())
    first = path.read_bytes()
    run_cell(catalog, ECHO, force=True, runtime=ScriptedRuntime())
    assert path.read_bytes() == first


def test_container_may_be_slow_to_read_a_round_larger_than_a_pipe(tmp_path: Path) -> None:
    catalog = make_repository(tmp_path)
    write_toy(catalog, "x" * 90_000)
    run_cell(catalog, ECHO, runtime=ScriptedRuntime(extra="time.sleep(0.2)"))
    assert len(predictions(catalog)) == 30


@pytest.mark.parametrize("slow", ["", "time.sleep(0.2)"])
def test_rounds_without_probes_give_the_same_predictions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow: str
) -> None:
    """Each is larger than a pipe, so that the next one has to wait until it is read."""
    published = []
    for most in (1000, 1):
        monkeypatch.setattr(rounds, "MAX_DOCUMENTS", most)
        catalog = make_repository(tmp_path / str(most))
        write_toy(catalog, "x" * 90_000)
        run_cell(catalog, ECHO, runtime=ScriptedRuntime(extra=slow))
        published.append(predictions(catalog))
    assert published[0] == published[1]


def test_container_that_ends_between_rounds_without_probes_is_found_out(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "MAX_DOCUMENTS", 1)
    write_toy(catalog, "x" * 90_000)
    with pytest.raises(UpkeepError, match="ended early, with 0 of 60"):
        run_cell(catalog, ECHO, runtime=ScriptedRuntime(extra="sys.stdin.readline(); sys.exit(0)"))
    assert_nothing_published(catalog)


# ---------------------------------------------------------------- locks and signals


def test_second_process_on_the_same_cell_is_refused(catalog: Catalog) -> None:
    work = Layout(catalog.results).work("cells", ECHO)
    with locked(work), pytest.raises(UpkeepError, match="another process"):
        run_cell(catalog, ECHO, runtime=ScriptedRuntime())
    run_cell(catalog, ECHO, runtime=ScriptedRuntime())


def test_lock_file_that_is_left_over_blocks_nobody(catalog: Catalog) -> None:
    work = Layout(catalog.results).work("cells", ECHO)
    work.mkdir(parents=True)
    (work / "lock").touch()
    run_cell(catalog, ECHO, runtime=ScriptedRuntime())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signal_ends_the_container_and_keeps_what_is_done(catalog: Catalog, number: signal.Signals) -> None:
    runtime = ScriptedRuntime("hang", 20)
    work = Layout(catalog.results).work("cells", ECHO)

    def when_under_way() -> None:
        while not (work / "predictions.jsonl").exists() or (work / "predictions.jsonl").read_bytes().count(b"\n") < 20:
            threading.Event().wait(0.01)
        os.kill(os.getpid(), number)

    sender = threading.Thread(target=when_under_way)
    sender.start()
    with pytest.raises(KeyboardInterrupt):
        run_cell(catalog, ECHO, runtime=runtime)
    sender.join()
    assert status(catalog) == "stopped"
    assert_nothing_published(catalog)
    manifest = run_cell(catalog, ECHO, runtime=ScriptedRuntime())
    assert [(a.outcome, a.lines) for a in manifest.attempts] == [("killed", 20), ("complete", RECORDS)]


def test_handlers_of_signals_are_given_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with stoppable():
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before


TRAINING = Training("toy", "trainer", "a", "none")

# ---------------------------------------------------------------- training


def test_trained_model_is_published_without_what_runs_code(catalog: Catalog) -> None:
    files = {"config.json": "{}", "model.safetensors": "w", "training_args.bin": "pickle", "notes.py": "evil"}
    manifest = run_cell(catalog, TRAINING, runtime=training(files))
    folder = Layout(catalog.results).trained(TRAINING)
    assert set(manifest.files) == {"model/config.json", "model/model.safetensors"}
    assert {p.name for p in (folder / "model").iterdir()} == {"config.json", "model.safetensors"}
    assert verify_folder(folder) == manifest


@pytest.mark.parametrize(
    ("runtime", "problem"),
    [
        (training({"config.json": "{}"}), "left no model"),
        (training({"config.json": "{}", "model.safetensors": "w"}, code=3), "the training failed"),
        (training({"config.json": "{}"}, "os.symlink('/etc/passwd', model + '/model.safetensors')"), "neither file"),
    ],
)  # fmt: skip
def test_bad_training_publishes_nothing(catalog: Catalog, runtime: ScriptedRuntime, problem: str) -> None:
    with pytest.raises(UpkeepError, match=problem):
        run_cell(catalog, TRAINING, runtime=runtime)
    assert not Layout(catalog.results).trained(TRAINING).exists()
