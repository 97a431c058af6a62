"""Whole cells through real images and environments: what the suite promises about them.

What a runtime could do differently is tried under Docker, where its engine answers, and as a plain process; the rest in
one of the two.
"""

from __future__ import annotations

import functools
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import polars as pl
import pytest
import yaml

from conftest import CACHE, copy_repository, docker_reason, make_smaller, put_dataset, shorten_memories, spec_of
from host_fakes import answer_of
from upkeep import inputs
from upkeep.batches import Batch
from upkeep.building.assembling import Built
from upkeep.building.build import build_dataset
from upkeep.building.store import write
from upkeep.catalog import Catalog
from upkeep.contract import Manifest, Prediction
from upkeep.errors import UpkeepError
from upkeep.execution.batch import run_batch
from upkeep.execution.detection import detect
from upkeep.execution.fetch import fetch
from upkeep.execution.handle import Handle
from upkeep.execution.runtimes import Launch, Prepared
from upkeep.execution.supervise import run_cell
from upkeep.grading.graded import graded
from upkeep.grading.key import read_key
from upkeep.grading.metric_families import family_of
from upkeep.grading.resampling import Draws
from upkeep.grading.score import identify, score_cell
from upkeep.identity import plan_dataset
from upkeep.inputs import verify_dataset
from upkeep.integrity import verify_folder
from upkeep.jobs import Cell, Training
from upkeep.layout import Layout

BABI = "oaks_babi_mini"
PROBES, HALF = 80, 3
"""Of it, made smaller; documents of the first half of a stream."""
SHARING = [("rag_bm25", "k2"), ("rag_rolling_window", "k1w1")]
RUNTIMES = [pytest.param("docker", marks=pytest.mark.docker), "process"]


@pytest.fixture(scope="module")
def repository_in(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Catalog]:
    """A repository for each runtime, made when it is first asked for: with both small datasets and the models."""

    @functools.cache
    def made(runtime: str) -> Catalog:
        root = copy_repository(tmp_path_factory.mktemp(runtime))
        make_smaller(root)
        shorten_memories(root)
        config = root / "config/config.yaml"
        config.write_text(
            yaml.safe_dump(yaml.safe_load(config.read_text()) | {"runtime": runtime, "cache": str(CACHE)})
        )
        catalog = Catalog(root)
        for name in (BABI, "oaks_novel_mini"):
            build_dataset(catalog, name, Layout(catalog.results).dataset(name))
        for model in ("tiny", "tiny-vllm", "minilm"):
            fetch(catalog, model)
        return catalog

    return made


@pytest.fixture(params=RUNTIMES)
def catalog(request: pytest.FixtureRequest, repository_in: Callable[[str], Catalog]) -> Catalog:
    """In each runtime."""
    return repository_in(request.param)


@pytest.fixture(scope="module")
def one(repository_in: Callable[[str], Catalog]) -> Catalog:
    """In one runtime: Docker where its engine answers."""
    return repository_in("process" if docker_reason() else "docker")


def fresh(catalog: Catalog) -> Catalog:
    """The same repository, where models are asked everything again."""
    return Catalog(catalog.root, None, {"fresh": "true"})


def predictions(catalog: Catalog, cell: Cell) -> list[Prediction]:
    lines = (Layout(catalog.results).cell(cell) / "predictions.jsonl").read_bytes().splitlines()
    return [msgspec.json.decode(line, type=Prediction) for line in lines]


def content(catalog: Catalog, cell: Cell) -> bytes:
    return (Layout(catalog.results).cell(cell) / "predictions.jsonl").read_bytes()


def scores(catalog: Catalog, cell: Cell) -> pl.DataFrame:
    layout, family = Layout(catalog.results), family_of(catalog, cell.dataset)
    manifest = verify_folder(layout.cell(cell))
    key = read_key(catalog, cell.dataset).after(manifest.cutoff)
    known_as = identify(catalog, cell, inputs.dataset(catalog, cell.dataset))
    draws = Draws(cell.dataset, key.probes["question_id"])
    return score_cell(graded(catalog, cell, manifest, key), manifest, cell, known_as, key, family, draws).rows


@pytest.mark.parametrize("dataset", [BABI, "oaks_novel_mini"])
@pytest.mark.parametrize(("control", "accuracy"), [("null", 0.0), ("gold", 100.0)])
def test_the_controls_score_0_and_100_on_every_slice(
    catalog: Catalog, dataset: str, control: str, accuracy: float
) -> None:
    cell = Cell(dataset, control, "default", "none")
    run_cell(catalog, cell)
    accuracies = scores(catalog, cell).filter(pl.col("metric") == "accuracy")
    assert accuracies["subset"].n_unique() >= 4
    assert accuracies["value"].unique().to_list() == [accuracy]


def test_two_runs_give_the_same_bytes(repository_in: Callable[[str], Catalog]) -> None:
    # In Docker: of a batch and alone, below.
    catalog, cell = repository_in("process"), Cell(BABI, "rag_bm25", "k2", "tiny")
    first = run_cell(catalog, cell)
    before = content(catalog, cell)
    second = run_cell(catalog, cell, ask="everything")
    assert second.measured["other_answers"] == 0 and second.measured["new_replies"] > PROBES / 2
    assert content(catalog, cell) == before
    assert first.identity == second.identity and first.start != second.start


def test_a_complete_cell_is_reused(one: Catalog) -> None:
    cell = Cell(BABI, "closed_book", "default", "tiny")
    first = run_cell(one, cell)
    assert run_cell(one, cell) == first


def test_the_manifest_says_what_ran(catalog: Catalog) -> None:
    cell = Cell(BABI, "closed_book", "default", "tiny")
    run_cell(catalog, cell)
    folder = Layout(catalog.results).cell(cell)
    manifest = msgspec.json.decode((folder / "manifest.json").read_bytes(), type=Manifest)
    environment = manifest.environment
    assert environment.runtime == catalog.config.runtime
    assert environment.isolated == (environment.runtime == "docker")
    assert environment.digest is not None and environment.digest.startswith("sha256:")
    assert environment.engine == "transformers" and not environment.packages.keys() & {"torch", "transformers"}
    assert environment.hardware["cores"] >= 1
    reader = environment.served["reader"]
    assert reader.engine == "transformers" and reader.packages["torch"].startswith("2.13.0")
    assert reader.engine_version == environment.engine_version == reader.packages["transformers"]
    assert reader.digest is not None and reader.digest != environment.digest
    assert (Layout(catalog.results).record / reader.record / "engine.json").is_file()
    assert manifest.probes == manifest.outcomes["answered"] + manifest.outcomes["error"]
    assert manifest.usage.completion > 0


@pytest.mark.vllm
def test_vllm_answers_as_transformers_does_and_the_same_alone_as_in_a_batch(
    one: Catalog, repository_in: Callable[[str], Catalog]
) -> None:
    # vLLM takes most of a minute to start: once for a batch, once for its second cell alone, as a process.
    first, on_vllm = cells = [Cell(BABI, method, "default", "tiny-vllm") for method in ("closed_book", "long_context")]
    together = run_batch(fresh(one), Batch("on_vllm", tuple(cells)))
    told = content(one, on_vllm)
    assert {m.environment.engine for m in together.values()} == {"vllm"}
    assert Layout(one.results).log("engines", "on_vllm").is_file()
    assert not Layout(one.results).log("engines", first).exists(), "none has an engine of its own"
    as_process = repository_in("process")
    alone = run_cell(as_process, on_vllm, ask="everything")
    assert content(as_process, on_vllm) == told and alone.start != together[on_vllm].start
    assert alone.usage == together[on_vllm].usage and alone.measured["new_replies"] > PROBES / 2
    assert alone.environment.engine == "vllm" and alone.measured["cached_prompt_tokens"] > 0
    on_transformers = Cell(BABI, "long_context", "default", "tiny")
    run_cell(one, on_transformers)
    both = list(zip(predictions(one, on_vllm), predictions(one, on_transformers), strict=True))
    assert all(a.usage.prompt == b.usage.prompt for a, b in both)
    # Different kernels round differently; a random model's next tokens are close to each other.
    assert sum(a.response == b.response for a, b in both) >= 0.95 * len(both)


def test_a_memory_is_the_same_whether_or_not_later_documents_exist(one: Catalog) -> None:
    shorter = "oaks_babi_first_half"
    copy_first_half(Layout(one.results), BABI, shorter, one)
    cell, half = (Cell(dataset, "memory_scaffold", "budget256", "tiny") for dataset in (BABI, shorter))
    calls = {job: m.measured["arrival_calls"] for job, m in run_batch(fresh(one), Batch("m", (cell, half))).items()}
    assert 0 < calls[half] < calls[cell]
    early = [p for p in predictions(one, cell) if int(p.probe_id.rpartition("@")[2]) < HALF]
    assert predictions(one, half) == early


def test_cells_of_a_batch_share_one_engine_and_answer_the_same_bytes(one: Catalog) -> None:
    # As a plain process: `benchmarks/shared.py`, which test_benchmarks.py runs.
    cells = [Cell(BABI, method, variant, "tiny") for method, variant in SHARING]
    batch = Batch("together", tuple(cells))
    layout = Layout(one.results)
    alone = {job: run_cell(one, job) for job in cells}
    files = {cell: content(one, cell) for cell in cells}
    shutil.rmtree(layout.results / "cells")
    together = run_batch(fresh(one), batch)
    assert {cell: content(one, cell) for cell in cells} == files
    assert {job: m.usage for job, m in together.items()} == {job: m.usage for job, m in alone.items()}
    assert all(m.measured["new_replies"] > PROBES / 2 for m in together.values())
    assert {m.environment.engine for m in together.values()} == {alone[cells[0]].environment.engine}
    assert (layout.log("engines", "together")).is_file()
    assert run_batch(one, batch) == together  # nothing is run again


def test_what_fails_in_a_batch_leaves_the_rest(catalog: Catalog) -> None:
    broken = break_method(catalog, "rolling_window")
    good = Cell(BABI, "closed_book", "default", "tiny")
    run_cell(catalog, good)
    shutil.rmtree(Layout(catalog.results).cell(good))  # what it says is known: no engine starts for it
    with pytest.raises(UpkeepError, match=r"1 of 2 cells of the batch failed(.|\n)*somebody broke it"):
        run_batch(Catalog(catalog.root), Batch("broken", (Cell(BABI, broken, "w1", "tiny"), good)))
    assert (Layout(catalog.results).cell(good) / "manifest.json").is_file()


def break_method(catalog: Catalog, method: str) -> str:
    """A copy of a method that ends as soon as it is loaded."""
    shutil.copytree(catalog.root / "methods" / method, catalog.root / "methods" / "broken", dirs_exist_ok=True)
    (catalog.root / "methods" / "broken" / "method.py").write_text("raise SystemExit('somebody broke it')")
    return "broken"


def copy_first_half(layout: Layout, dataset: str, name: str, catalog: Catalog) -> None:
    """The dataset as it was when half of the documents of each stream had arrived."""
    put_dataset(catalog.root, name, spec_of(dataset), catalog.family_of(dataset))
    catalog.__dict__.pop("families", None)
    source = layout.dataset(dataset)
    documents = pl.read_parquet(source / "documents.parquet").filter(pl.col("position") < HALF)
    probes = pl.read_parquet(source / "probes.parquet").filter(pl.col("position") < HALF)
    gold = pl.read_parquet(source / "gold.parquet").join(probes, on="probe_id", how="semi", maintain_order="left")
    whole = verify_dataset(source)
    built = Built(documents, probes, gold, [], whole.tokenizer, whole.chunk_tokens, whole.source, {})
    layout.dataset(name).mkdir(parents=True, exist_ok=True)
    write(layout.dataset(name), built, name, catalog.dataset(name), plan_dataset(catalog, name))


PEEKING = '''
import asyncio
import gc
import os
import sys
from pathlib import Path

from upkeep.cell import LLM, Answer, Context, Document, Method, Probe, Seen


def latest(stream):
    held = [o for held in gc.get_objects() if type(held) in (list, tuple) for o in held if isinstance(o, Document)]
    return max(d.position for d in held if d.stream == stream), held[-3:]


def waiting():
    # Whether there is anything of a later round: in the pipe, or read from it already.
    os.set_blocking(0, False)
    try:
        return len(sys.stdin.buffer.peek(1))
    finally:
        os.set_blocking(0, True)


class Peeking(Method):
    """Looks for documents wherever it can reach, and answers with the latest that it found."""

    def __init__(self, parameters, tools) -> None:
        super().__init__(parameters, tools)
        self.ahead, self.asked = 0, 0

    async def arrive(self, stream, documents, llm) -> None:
        self.ahead += latest(stream)[0] - documents[-1].position + waiting()

    async def answer(self, probe: Probe, seen: Seen, llm: LLM) -> Answer:
        self.asked += 1
        if self.asked > int(os.environ.get("UPKEEP_TEST_WAITS_AFTER", sys.maxsize)):
            await asyncio.sleep(3600)
        if not probe.question_id.endswith("q0"):
            return Answer(None)
        found, held = latest(probe.stream)
        # Where a container has its files; a plain process can read all that its user can.
        places = ["/cell", "/output", "/model", "/tmp", "/methods"] if Path("/cell/cell.json").exists() else []
        files = [f for place in places for f in Path(place).rglob("*") if f.suffix in (".parquet", ".arrow")]
        await self.read(probe, llm, Context(recent=held))
        return Answer(f"## Answer: {found} {waiting()} {len(files)} {self.ahead}")
'''


class Striking:
    """A runtime that kills the first container of a cell when a quarter of its predictions are there.

    The method waits for it after a half, so that a quick one has not ended by then.
    """

    def __init__(self, catalog: Catalog, cell: Cell) -> None:
        self._runtime, self._started = detect(catalog), 0
        self._path, self._enough = Layout(catalog.results).work("cells", cell) / "predictions.jsonl", PROBES // 4

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)

    def start(self, prepared: Prepared, launch: Launch) -> Handle:
        if launch.arguments or self._started:
            return self._runtime.start(prepared, launch)
        self._started += 1
        waiting = {**launch.env, "UPKEEP_TEST_WAITS_AFTER": str(PROBES // 2)}
        handle = self._runtime.start(prepared, replace(launch, env=waiting))
        threading.Thread(target=self._strike, args=(handle,)).start()
        return handle

    def _strike(self, handle: Handle) -> None:
        while handle.poll() is None and (
            not self._path.exists() or self._path.read_bytes().count(b"\n") < self._enough
        ):
            time.sleep(0.005)
        handle.kill()


def test_a_method_that_peeks_finds_nothing_that_has_not_arrived(catalog: Catalog) -> None:
    shutil.copytree(catalog.root / "methods/long_context", catalog.root / "methods/peeking", dirs_exist_ok=True)
    (catalog.root / "methods" / "peeking" / "method.py").write_text(PEEKING)
    catalog = Catalog(catalog.root)
    cell = Cell(BABI, "peeking", "default", "tiny")
    for runtime in (None, Striking(catalog, cell)):
        # The second one is killed on its way, and fed from the first document on.
        manifest = run_cell(catalog, cell, force=True, runtime=runtime)
        assert len(manifest.attempts) == (1 if runtime is None else 2)
        peeked = [p for p in predictions(catalog, cell) if answer_of(p) is not None or p.error is not None]
        assert len(peeked) == 2 * 5  # one question of each stream, at each interval
        for prediction in peeked:
            position = prediction.probe_id.rpartition("@")[2]
            assert answer_of(prediction) is not None, prediction.error
            # It finds what has arrived (so it does look), no later document, and no file of the dataset's.
            found, ahead = answer_of(prediction).rsplit(" ", 1)
            assert found == f"{position} 0 0"
            # What a container that starts again gets in advance are rounds that are answered already.
            assert runtime is not None or ahead == "0"


def test_a_trained_model_is_one_more_model_and_knows_what_its_base_did_not(one: Catalog) -> None:
    run_cell(one, Training(BABI, "sft", "lora_tiny", "tiny"))
    base = Cell(BABI, "closed_book", "default", "tiny")
    trained = Cell(BABI, "closed_book", "default", "tiny+sft.lora_tiny")
    read = Cell(BABI, "rag_bm25", "k1", "tiny+sft.lora_tiny")
    run_batch(one, Batch("trained", (base, trained, read)))
    whole = (pl.col("metric") == "accuracy") & (pl.col("subset") == "all")
    accuracy = {cell: scores(one, cell).filter(whole)["value"].item() for cell in (base, trained)}
    assert accuracy[trained] > accuracy[base]
