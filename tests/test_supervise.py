"""A cell is fed round by round, watched, bounded, continued, and refused where its output is not what it must be."""

from __future__ import annotations

import errno
import json
import os
import signal
import threading
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from host_fakes import TRAINED_FILES, ScriptedRuntime, make_repository, training, write_toy
from upkeep.catalog import Catalog
from upkeep.contract import MAX_LINE_BYTES, Document, Probe
from upkeep.errors import UpkeepError
from upkeep.execution import job as supervised
from upkeep.execution import rounds, watch
from upkeep.execution.fetch import fetch
from upkeep.execution.handle import Handle
from upkeep.execution.rounds import BuiltDataset, answering, tasks
from upkeep.execution.runtimes import Launch, Prepared
from upkeep.execution.status import read_all
from upkeep.execution.supervise import run_cell
from upkeep.execution.watch import Limits, Tail
from upkeep.files import locked
from upkeep.integrity import verify_folder
from upkeep.jobs import Cell, Training
from upkeep.layout import Layout
from upkeep.machine.lifeline import stoppable
from upkeep.published import standing

ECHO = Cell("toy", "echo", "a", "none")
RECORDS = 60
"""30 probes in 2 trials."""


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return make_repository(tmp_path, trials=2)


def predictions(catalog: Catalog, cell: Cell = ECHO) -> list[dict[str, object]]:
    path = Layout(catalog.results).cell(cell) / "predictions.jsonl"
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def told(catalog: Catalog, cell: Cell) -> dict[str, dict[str, object]]:
    """What the scripted container had when it answered each probe."""
    return {str(p["probe_id"]): json.loads(str(p["response"])) for p in predictions(catalog, cell)}


def status(catalog: Catalog) -> str:
    (one,) = read_all(catalog.results / "status")
    return one.state


def assert_nothing_published(catalog: Catalog) -> None:
    assert not list((catalog.results / "cells").rglob("*")) if (catalog.results / "cells").exists() else True


# ---------------------------------------------------------------- rounds


@st.composite
def corpora(draw: st.DrawFn) -> BuiltDataset:
    documents, probes = [], []
    for s in range(draw(st.integers(0, 5))):
        length = draw(st.integers(1, 6))
        documents += [
            Document(id=f"{s}.{t}", stream=f"s{s}", position=t, timestamp=None, text="") for t in range(length)
        ]
        for t in draw(st.lists(st.integers(0, length - 1), max_size=8).map(sorted)):
            probes.append(
                Probe(
                    id=f"p{len(probes)}",
                    question_id="q",
                    stream=f"s{s}",
                    position=t,
                    question="",
                    options=None,
                    form="short",
                )
            )
    return BuiltDataset(Path(), documents, probes)


@settings(max_examples=200, deadline=None)
@given(corpora(), st.integers(1, 8), st.integers(1, 4), st.integers(1, 3), st.randoms(use_true_random=False))
def test_rounds_ask_for_what_is_open_and_bring_the_same_documents_whatever_is_done(
    corpus: BuiltDataset, least: int, streams: int, trials: int, rng: object
) -> None:
    done = [rng.random() < 0.6 for _ in corpus.probes for _ in range(trials)]  # type: ignore[attr-defined]
    anew = tasks(corpus, trials, bytes(len(done)), min_streams=streams, min_probes=least)
    again = list(tasks(corpus, trials, done, min_streams=streams, min_probes=least))
    assert [task.round.documents for task in again] == [task.round.documents for task in anew]
    keys = [(probe.id, trial) for probe in corpus.probes for trial in range(trials)]
    asked: list[tuple[str, int]] = []
    heads: dict[str, int] = {}
    for task in again:
        for document in task.round.documents:
            assert document.position == heads.get(document.stream, -1) + 1, "documents come in order, each once"
            heads[document.stream] = document.position
        told = set(task.round.done)
        for probe in task.round.probes:
            assert heads[probe.stream] == probe.position, "exactly what has arrived is in the container"
            missing = [(probe.id, trial) for trial in range(trials) if (probe.id, trial) not in told]
            assert missing, "a probe of which every trial is there is not in the round"
            asked += missing
        assert told <= {(probe.id, trial) for probe in task.round.probes for trial in range(trials)}
        assert sorted(task.keys) == [n for n, key in enumerate(keys) if key[0] in {p.id for p in task.round.probes}]
    assert sorted(asked) == sorted(key for key, there in zip(keys, done, strict=True) if not there)


@settings(max_examples=100, deadline=None)
@given(corpora(), st.integers(1, 8), st.integers(1, 4))
def test_round_is_filled_while_there_are_streams_left(corpus: BuiltDataset, least: int, side: int) -> None:
    steps = answering(corpus, least, side)
    begun: set[str] = set()
    everything = {p.stream for p in corpus.probes}
    for step in steps:
        streams = {corpus.probes[p].stream for p in step.probes}
        begun |= streams
        assert len({(corpus.probes[p].stream, corpus.probes[p].position) for p in step.probes}) == len(streams)
        assert (len(step.probes) >= least and len(streams) >= side) or begun == everything
    assert sorted(p for step in steps for p in step.probes) == list(range(len(corpus.probes)))


@settings(max_examples=100, deadline=None)
@given(corpora(), st.integers(1, 8), st.integers(1, 4), st.integers(0, 5))
def test_many_documents_come_in_rounds_of_their_own_before_the_probes(
    corpus: BuiltDataset, least: int, most: int, characters: int
) -> None:
    """What is asked, in which order, and after which documents, is as without a bound."""
    texts = [msgspec.structs.replace(d, text="x" * (n % 4)) for n, d in enumerate(corpus.documents)]
    corpus = BuiltDataset(Path(), texts, corpus.probes)
    done = bytes(len(corpus.probes))
    whole = list(tasks(corpus, 1, done, min_probes=least))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rounds, "MAX_DOCUMENTS", most)
        patch.setattr(rounds, "MAX_CHARACTERS", characters)
        split = list(tasks(corpus, 1, done, min_probes=least))
    arrived: list[Document] = []
    asked = iter(whole)
    for task in split:
        documents = task.round.documents
        assert len(documents) <= most
        assert len(documents) <= 1 or sum(len(d.text) for d in documents) <= characters
        arrived += documents
        if not task.round.probes:
            assert documents, "a round brings something"
            assert task.keys == ()
            continue
        expected = next(asked)
        assert arrived == expected.round.documents
        assert (task.round.probes, task.keys) == (expected.round.probes, expected.keys)
        arrived = []
    assert next(asked, None) is None
    assert not arrived


def test_question_of_full_size_is_a_round_of_its_own() -> None:
    documents = [Document(id=f"{s}{t}", stream=s, position=t, timestamp=None, text="") for s in "ab" for t in range(3)]
    probes = [
        Probe(id=f"{s}{t}{q}", question_id="q", stream=s, position=t, question="", options=None, form="short")
        for s in "ab" for t in range(3) for q in range(100)
    ]  # fmt: skip
    steps = answering(BuiltDataset(Path(), documents, probes))
    assert [(len(s.documents), len(s.probes)) for s in steps] == [(1, 100)] * 6


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


# ---------------------------------------------------------------- before anything starts


def refused(catalog: Catalog, cell: Cell) -> UpkeepError:
    runtime = ScriptedRuntime()
    with pytest.raises(UpkeepError) as caught:
        run_cell(catalog, cell, runtime=runtime)
    assert runtime.starts == 0
    assert_nothing_published(catalog)
    return caught.value


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


# ---------------------------------------------------------------- a container that fails


def test_container_that_dies_is_continued_after_its_last_whole_line(catalog: Catalog) -> None:
    runtime = ScriptedRuntime("die", 23, once=True)
    manifest = run_cell(catalog, ECHO, runtime=runtime)
    assert runtime.starts == 2
    assert [(a.outcome, a.lines) for a in manifest.attempts] == [("failed", 23), ("complete", RECORDS)]
    assert "exit status 9\nsomething broke" in str(manifest.attempts[0].reason)
    assert len(predictions(catalog)) == RECORDS


def test_container_that_dies_without_progress_is_not_tried_again(catalog: Catalog) -> None:
    runtime = ScriptedRuntime("die", 0)
    with pytest.raises(UpkeepError, match=r"ended early, with 0 of 60 records done") as caught:
        run_cell(catalog, ECHO, runtime=runtime)
    assert runtime.starts == 1
    assert "something broke" in str(caught.value.found)
    assert "continues" in str(caught.value.remedy)
    assert_nothing_published(catalog)
    assert status(catalog) == "failed"


def test_next_command_continues_where_a_failed_one_stood(catalog: Catalog) -> None:
    with pytest.raises(UpkeepError):
        run_cell(catalog, ECHO, runtime=ScriptedRuntime("die", 40), retries=0)
    manifest = run_cell(catalog, ECHO, runtime=ScriptedRuntime("die", 10, once=True))
    assert [a.lines for a in manifest.attempts] == [40, 50, RECORDS]


WATCHED = """
log = open({log!r}, "a", buffering=1)
log.write("started\\n")
rounds = sys.stdin
ids = lambda line: json.dumps([d["id"] for d in json.loads(line)["documents"]])
sys.stdin = (log.write(ids(line) + "\\n") and line for line in rounds)
"""


@pytest.mark.parametrize("most", [1, 1000])
@pytest.mark.parametrize("at", [1, 23, 59])
def test_container_that_starts_again_is_fed_from_the_first_document_on_in_the_same_portions(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int, most: int
) -> None:
    monkeypatch.setattr(rounds, "MAX_DOCUMENTS", most)
    monkeypatch.setattr(rounds.tasks, "__defaults__", (None, 1, 4))  # a round is soon full
    log = tmp_path / "fed"
    watched = WATCHED.format(log=str(log))
    run_cell(catalog, ECHO, runtime=ScriptedRuntime(extra=watched))
    (whole,) = fed(log)
    assert len(whole) > 3
    log.unlink()
    manifest = run_cell(catalog, ECHO, force=True, runtime=ScriptedRuntime("die", at, extra=watched, once=True))
    assert [a.lines for a in manifest.attempts] == [at, RECORDS]
    first, second = fed(log)
    assert second == whole, "also what has all its predictions"
    assert first == whole[: len(first)]


def fed(log: Path) -> list[list[str]]:
    """What each container was given, a line a round."""
    return [part.splitlines() for part in log.read_text().split("started\n")[1:]]


PLANTING = """
given = [cell["output"], os.path.dirname(sys.argv[1])]
for folder in given:
    for parent, _, names in os.walk(folder):
        for name in names:
            text = open(os.path.join(parent, name)).read()
            if "planted" in text or "probe_id" in text:
                print("found", os.path.join(parent, name), flush=True)
                os._exit(7)
os.makedirs(os.path.join(cell["output"], ".hidden", "deep"))
for place in ("usage.json", "notes", ".hidden/notes", ".hidden/deep/predictions.jsonl"):
    open(os.path.join(cell["output"], place), "w").write("planted")
os.symlink(path, os.path.join(cell["output"], "link"))
USED = os.path.join(cell["output"], "usage.json")
"""


@pytest.mark.parametrize("how", ["the same supervisor", "another supervisor"])
def test_container_that_starts_again_finds_no_trace_of_the_one_before(catalog: Catalog, how: str) -> None:
    """What it could find, it could answer from; so its folders are as a first container's."""
    planting = {"extra": PLANTING, "after": "os.unlink(USED)"}
    first = ScriptedRuntime("die", 23, once=True, **planting)
    if how == "another supervisor":
        with pytest.raises(UpkeepError):
            run_cell(catalog, ECHO, runtime=first, retries=0)
        first = ScriptedRuntime(**planting)
    manifest = run_cell(catalog, ECHO, runtime=first)
    assert [(a.outcome, a.lines) for a in manifest.attempts] == [("failed", 23), ("complete", RECORDS)]


def test_line_for_what_an_earlier_container_has_answered_is_refused(catalog: Catalog) -> None:
    with pytest.raises(UpkeepError):
        run_cell(catalog, ECHO, runtime=ScriptedRuntime("die", 23), retries=0)
    other = "json.dumps(record | {'probe_id': 'a0@0', 'trial': 0, 'response': 'better', 'retrieved': []}).encode()"
    with pytest.raises(UpkeepError, match="a second line for probe 'a0@0', trial 0") as caught:
        run_cell(catalog, ECHO, runtime=ScriptedRuntime("raw", 0, raw=other + " + b'\\n'"))
    assert str(caught.value.where).endswith("predictions.jsonl:1")
    assert_nothing_published(catalog)
    run_cell(catalog, ECHO, runtime=ScriptedRuntime())
    assert not any(p["response"] == "better" for p in predictions(catalog))


def test_container_whose_model_answers_does_not_stand_still(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """As while documents are taken in, when no prediction comes for long."""
    slow = "time.sleep(1.2)"
    with pytest.raises(UpkeepError, match=r"nothing new for 0\.4 s"):
        run_cell(catalog, ECHO, runtime=ScriptedRuntime(extra=slow), limits=Limits(stall_s=0.4))
    monkeypatch.setattr(supervised.SupervisedJob, "progress", property(lambda _: int(10 * time.monotonic())))
    manifest = run_cell(catalog, ECHO, runtime=ScriptedRuntime(extra=slow), limits=Limits(stall_s=0.4))
    assert manifest.attempts[-1].outcome == "complete"


SPENT = """
spent = {"cpu_s": 1, "wall_s": 2, "peak_memory_mb": 3, "arrival": {"prompt": 50, "completion": 6, "calls": CALLS}}
json.dump(spent, open(os.path.join(cell["output"], "usage.json"), "w"))
"""


@pytest.mark.parametrize("calls", [0, 4])
def test_what_was_asked_as_documents_arrived_is_in_the_manifest_and_no_predictions(
    catalog: Catalog, calls: int
) -> None:
    manifest = run_cell(catalog, ECHO, runtime=ScriptedRuntime(after=SPENT.replace("CALLS", str(calls))))
    found = {name: value for name, value in manifest.measured.items() if name.startswith("arrival_")}
    assert found == ({"arrival_prompt": 50, "arrival_completion": 6, "arrival_calls": 4} if calls else {})
    assert manifest.usage.calls == RECORDS


def test_what_a_container_says_it_has_used_is_validated(catalog: Catalog) -> None:
    with pytest.raises(UpkeepError) as caught:
        run_cell(catalog, ECHO, runtime=ScriptedRuntime(after=SPENT.replace("CALLS", "-1")))
    assert "usage.json" in str(caught.value.where)
    assert_nothing_published(catalog)


def test_work_of_another_identity_is_not_continued(catalog: Catalog) -> None:
    with pytest.raises(UpkeepError):
        run_cell(catalog, ECHO, runtime=ScriptedRuntime("die", 40), retries=0)
    write_toy(catalog, "other text")
    manifest = run_cell(catalog, ECHO, runtime=ScriptedRuntime())
    assert [a.lines for a in manifest.attempts] == [RECORDS]
    assert all("other text" in str(p["response"]) for p in predictions(catalog))


def test_exit_code_zero_proves_nothing(catalog: Catalog) -> None:
    with pytest.raises(UpkeepError, match="ended early, with 0 of 60"):
        run_cell(catalog, ECHO, runtime=ScriptedRuntime(extra="sys.exit(0)"))
    assert_nothing_published(catalog)


def test_exit_code_after_the_last_record_is_on_record_and_no_failure(catalog: Catalog) -> None:
    manifest = run_cell(catalog, ECHO, runtime=ScriptedRuntime(after="sys.exit(4)"))
    assert "exit status 4" in str(manifest.attempts[0].reason)


def test_container_that_does_not_end_is_ended(catalog: Catalog) -> None:
    runtime = ScriptedRuntime(after="time.sleep(3600)")
    manifest = run_cell(catalog, ECHO, runtime=runtime, limits=Limits(exit_s=0.05))
    assert "did not end" in str(manifest.attempts[0].reason)


def test_container_that_stands_still_is_ended_and_continued(catalog: Catalog) -> None:
    runtime = ScriptedRuntime("hang", 12, once=True)
    manifest = run_cell(catalog, ECHO, runtime=runtime, limits=Limits(stall_s=0.5))
    assert "nothing new for 0.5 s" in str(manifest.attempts[0].reason)
    assert manifest.attempts[0].lines == 12


def test_container_that_takes_too_long_is_ended(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = ScriptedRuntime("hang", 12)
    monkeypatch.setattr(supervised, "MINUTE_S", 0.002)
    with pytest.raises(UpkeepError, match="not done in time") as caught:
        run_cell(catalog, ECHO, runtime=runtime)
    assert "240 minutes" in str(caught.value.expected)
    assert_nothing_published(catalog)


# ---------------------------------------------------------------- a container that lies

HOSTILE = {
    "invalid utf-8": ("raw.replace(b'stop', b'st\\xff')", "invalid UTF-8"),
    "not json": ("b'hello\\n'", "not JSON"),
    "nan": ("raw.replace(b'0.5', b'NaN')", "field `score`: not a number"),
    "wrong type": ("raw.replace(b'\"stop\"', b'3')", "field `finish_reason`: wrong type"),
    "duplicate": ("raw + raw", "a second line for probe"),
    "unknown probe": ('raw.replace(b\'"probe_id": "\', b\'"probe_id": "z\')', "unknown probe"),
    "later probe": (
        "json.dumps(record | {'probe_id': 'a0@5', 'retrieved': []}).encode() + b'\\n'",
        "a line for probe 'a0@5', trial 1",
    ),
    "unknown document": ("raw.replace(b'_c', b'_x', 1)", "field `retrieved[0].id`: unknown document"),
    "later document": ("raw.replace(b'_c0', b'_c3', 1)", "field `retrieved[0].id`: this document had not arrived"),
    "trial out of range": ("raw.replace(b'\"trial\": ', b'\"trial\": 9')", "no such trial"),
    "line too long": ("b' ' * (9 << 20)", "line too long"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_line_is_refused_with_file_and_line_and_nothing_is_published(catalog: Catalog, kind: str) -> None:
    raw, problem = HOSTILE[kind]
    runtime = ScriptedRuntime("raw", 7, raw=raw)
    with pytest.raises(UpkeepError) as caught:
        run_cell(catalog, ECHO, runtime=runtime)
    assert problem in caught.value.problem
    assert str(caught.value.where).endswith("predictions.jsonl:9" if kind == "duplicate" else "predictions.jsonl:8")
    assert caught.value.remedy
    assert runtime.starts == 1, "who lies is not asked again"
    assert_nothing_published(catalog)
    assert status(catalog) == "failed"


def test_a_line_that_is_too_long_is_refused_though_its_end_is_seen_at_once(tmp_path: Path) -> None:
    path = tmp_path / "predictions.jsonl"
    path.write_bytes(b"{}\n" + b" " * (MAX_LINE_BYTES // 2))
    tail = Tail(path, 2**30)
    assert tail.new() == [b"{}\n"]
    with path.open("ab") as file:
        file.write(b" " * (MAX_LINE_BYTES // 2) + b"{}\n")
    with pytest.raises(UpkeepError, match="line too long") as caught:
        tail.new()
    assert caught.value.where == f"{path}:2"


@pytest.mark.parametrize(
    ("fault", "problem"),
    [("fill", "the writable folder is too large"), ("shrink", "has shrunk"), ("long", "line too long")],
)
def test_bounds_of_the_output_are_enforced(catalog: Catalog, fault: str, problem: str) -> None:
    with pytest.raises(UpkeepError, match=problem):
        run_cell(catalog, ECHO, runtime=ScriptedRuntime(fault, 13), limits=Limits(stall_s=30))
    assert_nothing_published(catalog)


def test_output_that_becomes_a_link_is_refused_and_not_followed(catalog: Catalog) -> None:
    with pytest.raises(UpkeepError, match=r"the output was replaced(.|\n)*a symbolic link"):
        run_cell(catalog, ECHO, runtime=ScriptedRuntime("link", 13))
    assert_nothing_published(catalog)


def test_torn_line_after_the_last_record_is_refused(catalog: Catalog) -> None:
    with pytest.raises(UpkeepError, match="truncated last line"):
        run_cell(catalog, ECHO, runtime=ScriptedRuntime(after="os.write(out, b'{\"probe')"))
    assert_nothing_published(catalog)


def test_manifest_of_a_container_is_not_looked_at(catalog: Catalog) -> None:
    write = "open(os.path.join(cell['output'], 'manifest.json'), 'w').write('{}')"
    assert run_cell(catalog, ECHO, runtime=ScriptedRuntime(extra=write)).cell == str(ECHO)


@pytest.mark.parametrize("report", ["'{}'", "'x' * 2_000_000", "'{\"engine\": NaN}'"])
def test_report_about_the_machine_is_validated_too(catalog: Catalog, report: str) -> None:
    write = f"open(os.path.join(cell['output'], 'engine.json'), 'w').write({report})"
    with pytest.raises(UpkeepError) as caught:
        run_cell(catalog, ECHO, runtime=ScriptedRuntime(extra=write))
    assert "engine.json" in str(caught.value.where)


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


# ---------------------------------------------------------------- training


TRAINING = Training("toy", "trainer", "a", "none")


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
