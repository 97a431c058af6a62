"""What is refused before a container starts, and what ends one that cannot be watched."""

from __future__ import annotations

import errno
import os
import signal

import pytest

from host_fakes import TRAINED_FILES, ScriptedRuntime, training, write_toy
from supervised_cells import ECHO, RECORDS, assert_nothing_published, catalog
from upkeep.catalog import Catalog
from upkeep.errors import UpkeepError
from upkeep.execution import watch
from upkeep.execution.fetch import fetch
from upkeep.execution.handle import Handle
from upkeep.execution.runtimes import Launch, Prepared
from upkeep.execution.status import read_all
from upkeep.execution.supervise import run_cell
from upkeep.integrity import verify_folder
from upkeep.jobs import Cell, Training
from upkeep.layout import Layout
from upkeep.published import standing

__all__ = ["catalog"]


def refused(catalog: Catalog, cell: Cell) -> UpkeepError:
    runtime = ScriptedRuntime()
    with pytest.raises(UpkeepError) as caught:
        run_cell(catalog, cell, runtime=runtime)
    assert runtime.starts == 0
    assert_nothing_published(catalog)
    return caught.value


# ---------------------------------------------------------------- before anything starts


def test_dataset_with_a_wrong_hash_stops_with_both_hashes(catalog: Catalog) -> None:
    path = Layout(catalog.results).dataset("toy") / "probes.parquet"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    error = refused(catalog, ECHO)
    assert error.where == path
    assert str(error.expected).startswith("sha256 ")
    assert str(error.found).startswith("sha256 ")
    assert error.expected != error.found
    assert error.remedy == "./upkeep dataset build toy"


def test_dataset_that_is_not_built_is_named(catalog: Catalog) -> None:
    (Layout(catalog.results).dataset("toy") / "card.json").unlink()
    assert refused(catalog, ECHO).remedy == "./upkeep dataset build toy"


def test_dataset_that_was_built_otherwise_is_refused(catalog: Catalog) -> None:
    (catalog.root / "src/upkeep/building/store.py").write_text("# edited")
    error = refused(Catalog(catalog.root), ECHO)
    assert "built from other options, code or inputs" in str(error)
    assert error.remedy == "./upkeep dataset build toy"
    write_toy(Catalog(catalog.root))
    run_cell(Catalog(catalog.root), ECHO, runtime=ScriptedRuntime())


def test_model_of_another_training_is_refused(catalog: Catalog) -> None:
    catalog = add_model(catalog, gpus=0)
    add_weights(catalog)
    card = catalog.root / "methods/trainer/method.yaml"
    card.write_text(card.read_text().replace("model: false", "model: true"))
    catalog = Catalog(catalog.root)
    trained, cell = Training("toy", "trainer", "a", "m"), Cell("toy", "echo", "a", "m+trainer.a")
    run_cell(catalog, trained, runtime=training(TRAINED_FILES))
    (catalog.root / "methods/trainer/method.py").write_text("# edited")
    catalog = Catalog(catalog.root)
    error = refused(catalog, cell)
    assert "the trained model was made of something else" in str(error)
    assert error.remedy == "./upkeep model train toy/trainer/a/m"
    run_cell(catalog, trained, runtime=training(TRAINED_FILES))
    assert run_cell(catalog, cell, runtime=ScriptedRuntime()).usage.calls == RECORDS


def test_unknown_method_and_variant_are_named_with_what_there_is(catalog: Catalog) -> None:
    assert "did you mean echo" in str(refused(catalog, Cell("toy", "ecko", "a", "none")))
    assert "has no variant 'z'" in str(refused(catalog, Cell("toy", "echo", "z", "none")))


MODEL = "{{label: M, summary: s, source: path, location: weights, context_length: 100, gpus: {gpus}}}"


def add_model(catalog: Catalog, gpus: int) -> Catalog:
    root = catalog.root
    (root / "models/m").mkdir(parents=True)
    (root / "models/m/model.yaml").write_text(MODEL.format(gpus=gpus))
    card = root / "methods/echo/method.yaml"
    card.write_text(card.read_text().replace("model: false", "model: true"))
    return Catalog(root)


def add_weights(catalog: Catalog) -> None:
    weights = catalog.root / "weights"
    weights.mkdir()
    (weights / "config.json").write_text("{}")
    fetch(catalog, "m")


def test_model_without_weights_is_refused_before_anything_starts(catalog: Catalog) -> None:
    catalog = add_model(catalog, gpus=0)
    error = refused(catalog, Cell("toy", "echo", "a", "m"))
    assert "no weights of the model 'm'" in str(error)
    assert error.remedy == "./upkeep model fetch m"


@pytest.mark.parametrize("file", ["config.json", "more.json"])
def test_weights_that_are_not_what_was_taken_in_publish_nothing_even_by_force(catalog: Catalog, file: str) -> None:
    catalog = add_model(catalog, gpus=0)
    add_weights(catalog)
    cell = Cell("toy", "echo", "a", "m")
    manifest = run_cell(catalog, cell, runtime=ScriptedRuntime())
    (catalog.root / "weights" / file).write_text("[]")
    runtime = ScriptedRuntime()
    with pytest.raises(UpkeepError, match=r"not the file that was written|a file that nothing names"):
        run_cell(Catalog(catalog.root), cell, force=True, runtime=runtime)
    assert runtime.starts == 0
    assert verify_folder(Layout(catalog.results).cell(cell)) == manifest
    assert standing(Catalog(catalog.root), cell).manifest is None


def test_a_model_over_several_nodes_is_refused_with_the_way_to_run_it(catalog: Catalog) -> None:
    catalog = add_model(catalog, gpus=8)
    add_weights(catalog)
    card = catalog.root / "models/m/model.yaml"
    card.write_text(card.read_text().replace("gpus: 8", "gpus: 8, nodes: 2"))
    error = refused(Catalog(catalog.root), Cell("toy", "echo", "a", "m"))
    assert "wants 2 nodes" in str(error) and "endpoint" in str(error.remedy)


def test_missing_gpu_is_refused_before_anything_starts(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = add_model(catalog, gpus=2)
    add_weights(catalog)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    error = refused(catalog, Cell("toy", "echo", "a", "m"))
    assert "needs 2 GPUs" in str(error)
    assert error.found == 1
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,3")
    assert run_cell(catalog, Cell("toy", "echo", "a", "m"), runtime=ScriptedRuntime()).usage.calls == RECORDS


def test_the_engines_container_gets_what_the_model_needs_and_the_methods_what_the_method_needs(
    catalog: Catalog,
) -> None:
    catalog = add_model(catalog, gpus=0)
    add_weights(catalog)
    card = catalog.root / "models/m/model.yaml"
    card.write_text(card.read_text().replace("{label", "{resources: {memory_gb: 6, pids: 1024}, label"))
    runtime = ScriptedRuntime()
    run_cell(Catalog(catalog.root), Cell("toy", "echo", "a", "m"), runtime=runtime)
    given = [
        [(one.resources.memory_gb, one.resources.pids) for one in kind] for kind in (runtime.launches, runtime.engines)
    ]
    assert given == [[(4, 512)], [(6, 1024)]]


def test_unexpected_error_leaves_no_job_running(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise OSError("disk full")

    runtime = ScriptedRuntime()
    monkeypatch.setattr(runtime, "start", broken)
    with pytest.raises(OSError, match="disk full"):
        run_cell(catalog, ECHO, runtime=runtime)
    (one,) = read_all(catalog.results / "status")
    assert (one.state, one.message) == ("failed", "OSError: disk full")
    monkeypatch.undo()
    attempts = run_cell(catalog, ECHO, runtime=runtime).attempts
    assert [(a.outcome, a.reason) for a in attempts] == [("failed", "OSError: disk full"), ("complete", None)]


def test_container_whose_output_cannot_be_watched_is_ended(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Handle] = []

    class Kept(ScriptedRuntime):
        def start(self, prepared: Prepared, launch: Launch) -> Handle:
            started.append(super().start(prepared, launch))
            return started[-1]

    def broken(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(watch, "Tail", broken)
    with pytest.raises(UpkeepError, match=os.strerror(errno.EIO)):
        run_cell(catalog, ECHO, runtime=Kept())
    assert [handle.process.returncode for handle in started] == [-signal.SIGKILL]
