"""Claims about cells that are asked side by side: they answer as they do one after the other, each is given what is its
own, whatever becomes of the others."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from conftest import copy_repository
from host_fakes import RunnerRuntime, ScriptedRuntime
from supervised_cells import catalog, predictions
from test_order import DATASET, QUESTIONS, assume
from upkeep import sweeps as sweeps_module
from upkeep.batches import Batch
from upkeep.building.build import build_dataset
from upkeep.catalog import Catalog
from upkeep.contract import Manifest
from upkeep.errors import UpkeepError
from upkeep.execution import batch as batch_module
from upkeep.execution import cell_job
from upkeep.execution import order as order_module
from upkeep.execution.batch import run_batch
from upkeep.execution.fetch import fetch
from upkeep.execution.handle import Handle
from upkeep.execution.order import Order, order
from upkeep.execution.rounds import BuiltDataset
from upkeep.execution.runtimes import Launch, Prepared
from upkeep.execution.status import read_all
from upkeep.execution.watch import Watch
from upkeep.jobs import Cell
from upkeep.layout import Layout
from upkeep.machine.slurm import TimeIsUp
from upkeep.needs import needs_of
from upkeep.sweeps import sweeps

__all__ = ["catalog"]

SWEEP = tuple(Cell(DATASET, "rag_bm25", variant, "tiny") for variant in ("k1", "k2", "k5"))
ECHOES = tuple(Cell("toy", "echo", variant, "none") for variant in ("a", "b"))


# ---------------------------------------------------------------- which cells


def test_a_sweep_is_what_differs_in_the_number_of_ranked_documents_alone_and_runs_on_an_engine_that_keeps_prompts() -> (
    None
):
    catalog = Catalog(copy := Path(__file__).parents[1])
    assert copy.is_dir()

    def cell(variant: str, method: str = "rag_bm25", dataset: str = "evowiki_mini", model: str = "tiny-vllm") -> Cell:
        return Cell(dataset, method, variant, model)

    asked = [
        *(cell("k10"), cell("k3"), cell("default", "long_context"), cell("k1")),
        *(
            cell("k3", dataset="oaks_babi_mini"),
            cell("k3", "rag_dense"),
            cell("k3", model="tiny"),
            cell("k1", model="tiny"),
        ),
    ]
    found = sweeps(catalog, asked)
    assert found[0] == (cell("k1"), cell("k3"), cell("k10"))
    assert [len(some) for some in found] == [3, 1, 1, 1, 1, 1]
    assert sorted(map(str, (one for some in found for one in some))) == sorted(map(str, asked))


def test_a_job_asks_for_the_memory_of_all_containers_of_a_sweep() -> None:
    catalog = Catalog(Path(__file__).parents[1])
    cells = [Cell("evowiki_mini", "rag_bm25", variant, "tiny-vllm") for variant in ("k1", "k3", "k10")]
    one, all_three = needs_of(catalog, cells[:1]), needs_of(catalog, cells)
    own = catalog.method("rag_bm25").resources.memory_gb
    assert all_three.mem_mb - one.mem_mb == 1024 * 2 * own
    apart = [Cell("evowiki_mini", "rag_bm25", variant, "tiny") for variant in ("k1", "k3", "k10")]
    assert needs_of(catalog, apart).mem_mb == needs_of(catalog, apart[:1]).mem_mb


# ---------------------------------------------------------------- what it computes


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with one short stream and a plan for which passes cost nothing."""
    root = copy_repository(tmp_path_factory.mktemp("sweep"))
    card = root / "datasets/oaks_babi/dataset.yaml"
    family = yaml.safe_load(card.read_text())
    family["variants"]["stream"]["options"] |= {"chunks": 8, "chunk_tokens": 100, "questions": QUESTIONS, "facts": 12}
    card.write_text(yaml.safe_dump(family | {"published": {}}))
    found = assume(root, pass_s=0, cpu_gflops=1e-3)
    build_dataset(found, DATASET, Layout(found.results).dataset(DATASET))
    fetch(found, "tiny")
    return root


class Starts(RunnerRuntime):
    """Notes which cell each container is of, and calls something before each start."""

    def __init__(self, before: Callable[[int], None] = lambda _: None) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.before = before
        self.engine: Handle | None = None

    def start(self, prepared: Prepared, launch: Launch) -> Handle:
        if launch.arguments:
            self.engine = super().start(prepared, launch)
            return self.engine
        self.before(len(self.cells))
        self.cells.append(next(cell.variant for cell in SWEEP if f"-{cell.variant}-" in launch.name))
        return super().start(prepared, launch)


class Runs:
    """Runs of the sweep, each from nothing unless it goes on from another."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.patch = root, monkeypatch
        monkeypatch.setattr(order_module, "REST_TOKENS", 16)  # its questions are short, as its documents are

    def __call__(
        self, name: str, runtime: RunnerRuntime, *, side_by_side: bool = True
    ) -> tuple[dict[Cell, Manifest], list[bytes]]:
        self.patch.setattr(sweeps_module, "KEEP_NONE", ("endpoint",) if side_by_side else ("transformers", "endpoint"))
        self.patch.setenv("UPKEEP_RESULTS", str(self.root / "results" / name))
        found = Catalog(self.root)
        if not Layout(found.results).dataset(DATASET).exists():
            build_dataset(found, DATASET, Layout(found.results).dataset(DATASET))
            fetch(found, "tiny")
        manifests = run_batch(found, Batch("b", SWEEP), runtime=runtime)
        return manifests, [(Layout(found.results).cell(cell) / "predictions.jsonl").read_bytes() for cell in SWEEP]


@pytest.fixture
def runs(stream: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Runs:
    return Runs(copied(stream, tmp_path), monkeypatch)


def copied(stream: Path, to: Path) -> Path:
    """The repository without anything that was made in it."""
    shutil.copytree(stream, to / "root", ignore=shutil.ignore_patterns("results"))
    return to / "root"


@dataclass(frozen=True)
class Whole:
    """The sweep side by side, which nothing came in the way of."""

    results: Path
    starts: Starts
    manifests: dict[Cell, Manifest]
    predictions: list[bytes]


@pytest.fixture(scope="module")
def whole(stream: Path, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    root, starts = copied(stream, tmp_path_factory.mktemp("whole")), Starts()
    with pytest.MonkeyPatch.context() as patch:
        found = Runs(root, patch)("whole", starts)
    return Whole(root / "results" / "whole", starts, *found)


def test_cells_side_by_side_give_the_same_bytes_and_ask_their_engine_the_same(whole: Whole, runs: Runs) -> None:
    apart, alone = runs("apart", first := Starts(), side_by_side=False)
    assert whole.predictions == alone
    variants = [cell.variant for cell in SWEEP]
    assert first.cells == sorted(first.cells, key=variants.index) and set(first.cells) == {*variants}
    assert whole.starts.cells == variants * QUESTIONS
    new = [[found[cell].measured["new_replies"] for cell in SWEEP] for found in (apart, whole.manifests)]
    assert new[0] == new[1]


def test_an_engine_that_dies_is_loaded_again_for_all_and_no_answer_changes(whole: Whole, runs: Runs) -> None:
    """Those that wait when it dies find out when it is their turn."""

    def kill(starts: int) -> None:
        if starts == 4:
            assert runtime.engine is not None
            runtime.engine.process.kill()

    runtime = Starts(kill)
    manifests, found = runs("killed", runtime)
    assert found == whole.predictions
    assert len(runtime.cells) > len(SWEEP) * QUESTIONS and len(manifests) == len(SWEEP)


@pytest.mark.parametrize("turns", [1, 25])
def test_what_is_interrupted_within_a_round_goes_on_with_the_same_bytes(
    whole: Whole, runs: Runs, monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    turn, left = Watch._turn, [turns]

    def interrupted(self: Watch) -> None:
        left[0] -= self._job.progress > 0  # something was answered
        if left[0] == 0:
            raise TimeIsUp
        turn(self)

    with monkeypatch.context() as patch:
        patch.setattr(Watch, "_turn", interrupted)
        with pytest.raises(TimeIsUp):
            runs("interrupted", Starts())
    running = [one for one in psutil.Process().children(recursive=True) if one.status() != psutil.STATUS_ZOMBIE]
    assert not [one for one in running if "upkeep.cell" in " ".join(one.cmdline())]
    _, found = runs("interrupted", Starts())
    assert found == whole.predictions


def test_what_was_published_before_is_reused_and_the_others_are_asked_as_what_is_left(whole: Whole, runs: Runs) -> None:
    shutil.copytree(whole.results, results := runs.root / "results" / "some")
    shutil.rmtree(Layout(results).cell(SWEEP[2]))
    manifests, found = runs("some", again := Starts())
    assert found == whole.predictions and set(again.cells) == {SWEEP[2].variant}
    assert len(manifests) == len(SWEEP)


def test_a_sweep_is_asked_side_by_side_in_the_groups_of_its_largest_where_that_takes_less_time(
    stream: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU with room for some questions beside the weights."""
    root = tmp_path / "root"
    shutil.copytree(stream, root)
    card = root / "models/tiny/model.yaml"
    card.write_text(card.read_text().replace("engine: transformers", "engine: vllm\ngpus: 1"))
    small = {"small": {"tflops": 1e-6, "bandwidth_gb_s": 1e9, "memory_gb": 0.0031, "source": "x"}}

    monkeypatch.setattr(order_module, "REST_TOKENS", 16)

    def orders(pass_s: float) -> list[Order]:
        figures: dict[str, Any] = {"gpus": small, "default": "small", "memory_share": 1.0, "pass_s": pass_s}
        found = assume(root, **figures)
        corpus = BuiltDataset.read(Layout(found.results).dataset(DATASET))
        return [order(found, cell, corpus, 1, SWEEP) for cell in SWEEP]

    first, *others = orders(0)
    assert first.sweep and first.held and first.passes > 1 and others == [first] * 2
    assert not any(found.sweep for found in orders(1e9)), "a pass of a container each costs more than it saves"


# ---------------------------------------------------------------- one at a time, whatever happens


def by_question(_catalog: Catalog, _cell: Cell, corpus: BuiltDataset, _trials: int, sweep: Any = ()) -> Order:
    numbers = [int(probe.question_id[1:]) for probe in corpus.probes]
    return Order(numbers, held=True, together=1, sweep=len(sweep) > 1)


@pytest.fixture
def side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cell_job, "order", by_question)
    monkeypatch.setattr(batch_module, "sweeps", lambda _, cells: [tuple(cells)])


def answers(catalog: Catalog) -> list[list[dict[str, object]]]:
    return [[{**p, "measured": None} for p in predictions(catalog, cell)] for cell in ECHOES]


@pytest.fixture
def expected(catalog: Catalog) -> Iterator[list[list[dict[str, object]]]]:
    """What the cells answer one after the other; none of it is there any more."""
    run_batch(catalog, Batch("b", ECHOES), runtime=ScriptedRuntime())
    found = answers(catalog)
    for cell in ECHOES:
        shutil.rmtree(Layout(catalog.results).cell(cell))
    yield found


TELLS = """
append_ = append
def append(record):
    with open(LOG, "a") as log: log.write(str(cell["parameters"]["n"]))
    append_(record)
"""


def test_cells_side_by_side_are_asked_round_by_round_in_turns(
    catalog: Catalog, expected: list[list[dict[str, object]]], side_by_side: None, tmp_path: Path
) -> None:
    """The scripted container refuses a probe before its documents have come."""
    runtime = ScriptedRuntime(extra=TELLS.replace("LOG", repr(str(tmp_path / "log"))))
    found = run_batch(catalog, Batch("b", ECHOES), runtime=runtime)
    assert answers(catalog) == expected
    assert runtime.starts == sum(len(one.attempts) for one in found.values()) == 2 * 3
    turns = "".join(cell for cell, _ in itertools.groupby((tmp_path / "log").read_text()))
    assert len(turns) > 20 and turns == "12" * (len(turns) // 2)


@pytest.mark.parametrize("at", [1, 7, 25])
def test_a_cell_whose_container_dies_begins_its_pass_again_and_the_others_wait(
    catalog: Catalog, expected: list[list[dict[str, object]]], side_by_side: None, at: int
) -> None:
    found = run_batch(catalog, Batch("b", ECHOES), runtime=ScriptedRuntime("die", at, once=True), retries=2)
    assert answers(catalog) == expected
    assert [len(one.attempts) for one in found.values()] == [4, 3]


def test_a_cell_that_fails_for_good_does_not_keep_the_others_from_running(
    catalog: Catalog, expected: list[list[dict[str, object]]], side_by_side: None
) -> None:
    class FirstDies(ScriptedRuntime):
        def start(self, prepared: Prepared, launch: Launch) -> Handle:
            self.fault = "die" if "echo-a" in launch.name else "none"
            return super().start(prepared, launch)

    with pytest.raises(UpkeepError, match="1 of 2 cells of the batch failed"):
        run_batch(catalog, Batch("b", ECHOES), runtime=FirstDies(at=0), retries=1)
    assert [{**p, "measured": None} for p in predictions(catalog, ECHOES[1])] == expected[1]
    assert not Layout(catalog.results).cell(ECHOES[0]).exists()


@pytest.mark.parametrize("number", [0, 1, 3])
def test_a_batch_that_is_interrupted_ends_all_its_containers_and_goes_on_where_it_was(
    catalog: Catalog, expected: list[list[dict[str, object]]], side_by_side: None, number: int
) -> None:
    class Ends(ScriptedRuntime):
        def start(self, prepared: Prepared, launch: Launch) -> Handle:
            if self.starts == number:
                raise KeyboardInterrupt
            return super().start(prepared, launch)

    runtime = Ends()
    with pytest.raises(KeyboardInterrupt):
        run_batch(catalog, Batch("b", ECHOES), runtime=runtime)
    running = [one for one in psutil.Process().children(recursive=True) if one.status() != psutil.STATUS_ZOMBIE]
    assert not [one for one in running if "predictions.jsonl" in " ".join(one.cmdline())]
    assert {one.state for one in read_all(catalog.results / "status")} <= {"stopped", "done"}
    run_batch(catalog, Batch("b", ECHOES), runtime=ScriptedRuntime())
    assert answers(catalog) == expected


def test_time_that_a_cell_waits_for_the_others_is_none_of_its_own(
    catalog: Catalog, expected: list[list[dict[str, object]]], side_by_side: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes some three seconds, and may take five; both together take six."""
    monkeypatch.setattr("upkeep.execution.job.MINUTE_S", 5 / catalog.method("echo").resources.minutes)
    slow = "append_ = append\ndef append(record): time.sleep(0.045); append_(record)"
    run_batch(catalog, Batch("b", ECHOES), runtime=ScriptedRuntime(extra=slow))
    assert answers(catalog) == expected
