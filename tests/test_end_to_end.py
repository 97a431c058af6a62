"""Whole cells through real images and environments: what the suite promises about them.

Each test runs under Docker where its engine answers, and as a plain process.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import polars as pl
import pytest

from conftest import CACHE, copy_repository
from upkeep.batches import Batch
from upkeep.catalog import ArtifactCell, Catalog, Cell
from upkeep.contract import Manifest, Memory, Prediction
from upkeep.datasets import build_dataset
from upkeep.datasets.store import Built, write
from upkeep.errors import UpkeepError
from upkeep.host.batch import run_batch
from upkeep.host.supervise import run_cell
from upkeep.identity import plan_dataset
from upkeep.inputs import verify_dataset
from upkeep.integrity import verify_folder
from upkeep.paths import Layout
from upkeep.scoring.equivalence import equivalence
from upkeep.scoring.score import identify, read_key, score_cell
from upkeep.weights import fetch

BABI = "oaks_babi_mini"
SHARING = [("closed_book", "default"), ("rag_bm25", "k1"), ("rag_rolling_window", "k1w1")]
RUNTIMES = [pytest.param("docker", marks=pytest.mark.docker), "process"]


@pytest.fixture(scope="module", params=RUNTIMES)
def catalog(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalog]:
    """A repository of its own with both small datasets and the model made on the spot."""
    root = copy_repository(tmp_path_factory.mktemp(request.param))
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("UPKEEP_RUNTIME", request.param)
        environment.setenv("UPKEEP_CACHE", str(CACHE))
        catalog = Catalog(root)
        for name in (BABI, "oaks_novel_mini"):
            build_dataset(catalog, name, Layout(catalog.results).dataset(name))
        for model in ("tiny", "tiny-vllm", "minilm"):
            fetch(catalog, model)
        yield catalog


def predictions(catalog: Catalog, cell: Cell) -> list[Prediction]:
    lines = (Layout(catalog.results).cell(cell) / "predictions.jsonl").read_bytes().splitlines()
    return [msgspec.json.decode(line, type=Prediction) for line in lines]


def content(catalog: Catalog, cell: Cell) -> bytes:
    return (Layout(catalog.results).cell(cell) / "predictions.jsonl").read_bytes()


def scores(catalog: Catalog, cell: Cell) -> pl.DataFrame:
    layout, spec = Layout(catalog.results), catalog.dataset(cell.dataset)
    key = read_key(layout.dataset(cell.dataset), equivalence(spec.equivalence))
    folder = layout.cell(cell)
    return score_cell(folder, verify_folder(folder), cell, identify(catalog, cell), key, spec)


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


def test_two_runs_give_the_same_bytes(catalog: Catalog) -> None:
    cell = Cell(BABI, "rag_bm25", "k2", "tiny")
    first = run_cell(catalog, cell)
    before = content(catalog, cell)
    second = run_cell(catalog, cell, ask="everything")
    assert second.measured["other_answers"] == 0 and second.measured["new_replies"] > 100
    assert content(catalog, cell) == before
    assert first.identity == second.identity and first.start != second.start


def test_a_complete_cell_is_reused(catalog: Catalog) -> None:
    cell = Cell(BABI, "closed_book", "default", "tiny")
    first = run_cell(catalog, cell)
    assert run_cell(catalog, cell) == first


def test_the_manifest_says_what_ran(catalog: Catalog) -> None:
    cell = Cell(BABI, "closed_book", "default", "tiny")
    run_cell(catalog, cell)
    folder = Layout(catalog.results).cell(cell)
    manifest = msgspec.json.decode((folder / "manifest.json").read_bytes(), type=Manifest)
    environment = manifest.environment
    assert environment.runtime == catalog.config.runtime
    assert environment.isolated == (environment.runtime == "docker")
    assert environment.digest is not None and environment.digest.startswith("sha256:")
    assert environment.engine == "transformers" and environment.packages["torch"].startswith("2.13.0")
    assert environment.hardware["cores"] >= 1
    assert manifest.probes == manifest.outcomes["answered"] + manifest.outcomes["unparsed"] + manifest.outcomes["error"]
    assert manifest.usage.completion > 0


@pytest.mark.vllm
def test_vllm_answers_as_transformers_does_and_the_same_twice(catalog: Catalog) -> None:
    on_vllm, on_transformers = (Cell(BABI, "long_context", "default", model) for model in ("tiny-vllm", "tiny"))
    manifest = run_cell(catalog, on_vllm)
    first = content(catalog, on_vllm)
    run_cell(catalog, on_vllm, ask="everything")
    assert content(catalog, on_vllm) == first
    assert manifest.environment.engine == "vllm" and manifest.measured["cached_prompt_tokens"] > 0
    run_cell(catalog, on_transformers)
    both = list(zip(predictions(catalog, on_vllm), predictions(catalog, on_transformers), strict=True))
    assert all(a.usage.prompt == b.usage.prompt for a, b in both)
    # Different kernels round differently; a random model's next tokens are close to each other.
    assert sum(a.response == b.response for a, b in both) >= 0.95 * len(both)


def test_a_memory_is_the_same_whether_or_not_later_documents_exist(catalog: Catalog) -> None:
    artifact = ArtifactCell(BABI, "memory_scaffold", "budget256", "tiny")
    run_cell(catalog, artifact)
    layout = Layout(catalog.results)
    whole = memories(layout.memory(artifact))
    shorter = "oaks_babi_first_half"
    copy_first_half(layout, BABI, shorter, catalog)
    run_cell(catalog, half := ArtifactCell(shorter, "memory_scaffold", "budget256", "tiny"), ask="everything")
    assert memories(layout.memory(half)) == {key: text for key, text in whole.items() if key[1] < 5}


@pytest.mark.parametrize("model", ["tiny", pytest.param("tiny-vllm", marks=pytest.mark.vllm)])
def test_cells_of_a_batch_share_one_engine_and_answer_the_same_bytes(catalog: Catalog, model: str) -> None:
    # vLLM takes half a minute to start.
    cells = [Cell(BABI, method, variant, model) for method, variant in SHARING[: 3 if model == "tiny" else 2]]
    batch = Batch("together", tuple(cells))
    layout = Layout(catalog.results)
    alone = {job: run_cell(catalog, job, ask="everything") for job in cells}
    files = {cell: content(catalog, cell) for cell in cells}
    shutil.rmtree(layout.results / "cells")
    together = run_batch(Catalog(catalog.root, None, {"fresh": "true"}), batch)
    assert {cell: content(catalog, cell) for cell in cells} == files
    assert {job: m.usage for job, m in together.items()} == {job: m.usage for job, m in alone.items()}
    assert {m.environment.engine for m in together.values()} == {alone[cells[0]].environment.engine}
    assert (layout.log("engines", "together")).is_file()
    assert run_batch(catalog, batch) == together  # nothing is run again


def test_what_fails_in_a_batch_leaves_the_rest(catalog: Catalog) -> None:
    broken = break_method(catalog, "rolling_window")
    good = Cell(BABI, "closed_book", "default", "tiny")
    with pytest.raises(UpkeepError, match=r"1 of 2 jobs of the batch failed(.|\n)*somebody broke it"):
        run_batch(Catalog(catalog.root), Batch("broken", (Cell(BABI, broken, "w1", "tiny"), good)))
    assert (Layout(catalog.results).cell(good) / "manifest.json").is_file()


def break_method(catalog: Catalog, method: str) -> str:
    """A copy of a method that ends as soon as it is loaded."""
    for folder in ("methods", "containers"):
        shutil.copytree(catalog.root / folder / method, catalog.root / folder / "broken", dirs_exist_ok=True)
    dockerfile = catalog.root / "containers" / "broken" / "Dockerfile"
    dockerfile.write_text(dockerfile.read_text().replace(method, "broken"))
    (catalog.root / "methods" / "broken" / "method.py").write_text("raise SystemExit('somebody broke it')")
    return "broken"


def memories(folder: Path) -> dict[tuple[str, int], str]:
    lines = (folder / "memory.jsonl").read_bytes().splitlines()
    return {(m.stream, m.position): m.text for m in (msgspec.json.decode(line, type=Memory) for line in lines)}


def copy_first_half(layout: Layout, dataset: str, name: str, catalog: Catalog) -> None:
    """The dataset as it was when the fifth document of each stream had arrived."""
    card = catalog.root / "datasets" / name
    card.mkdir(exist_ok=True)
    shutil.copy(catalog.root / "datasets" / dataset / "dataset.yaml", card)
    catalog.__dict__.pop("datasets", None)
    source = layout.dataset(dataset)
    documents = pl.read_parquet(source / "documents.parquet").filter(pl.col("position") < 5)
    probes = pl.read_parquet(source / "probes.parquet").filter(pl.col("position") < 5)
    gold = pl.read_parquet(source / "gold.parquet").join(probes, on="probe_id", how="semi", maintain_order="left")
    whole = verify_dataset(source)
    built = Built(documents, probes, gold, [], whole.tokenizer, whole.chunk_tokens, whole.source, {})
    layout.dataset(name).mkdir(parents=True, exist_ok=True)
    write(layout.dataset(name), built, name, catalog.dataset(name), plan_dataset(catalog, name))


PEEKING = '''
import gc
from pathlib import Path

from upkeep.cell import LLM, Answer, Context, Document, Method, Probe, Seen


class Peeking(Method):
    """Looks for documents wherever it can reach, and answers with the latest that it found."""

    async def answer(self, probe: Probe, seen: Seen, llm: LLM) -> Answer:
        if not probe.question_id.endswith("q0"):
            return Answer(None)
        found = [o for held in gc.get_objects() if type(held) in (list, tuple) for o in held if isinstance(o, Document)]
        latest = max(d.position for d in found if d.stream == probe.stream)
        # Where a container has its files; a plain process can read all that its user can.
        places = ["/cell", "/output", "/model", "/tmp", "/methods"] if Path("/cell/cell.json").exists() else []
        files = [f for place in places for f in Path(place).rglob("*") if f.suffix in (".parquet", ".arrow")]
        await self.read(probe, llm, Context(recent=found[-3:]))
        return Answer(f"## Answer: {latest} {len(files)}")
'''


def test_a_method_that_peeks_finds_nothing_that_has_not_arrived(catalog: Catalog) -> None:
    for folder in ("methods", "containers"):
        source = catalog.root / folder / "long_context"
        shutil.copytree(source, catalog.root / folder / "peeking", dirs_exist_ok=True)
    dockerfile = catalog.root / "containers" / "peeking" / "Dockerfile"
    dockerfile.write_text(dockerfile.read_text().replace("long_context", "peeking"))
    (catalog.root / "methods" / "peeking" / "method.py").write_text(PEEKING)
    catalog = Catalog(catalog.root)
    cell = Cell(BABI, "peeking", "default", "tiny")
    run_cell(catalog, cell)
    peeked = [p for p in predictions(catalog, cell) if p.answer is not None or p.error is not None]
    assert len(peeked) == 4 * 10  # one question of each stream, at each interval
    for prediction in peeked:
        position = prediction.probe_id.rpartition("@")[2]
        # It finds what has arrived (so it does look), no later document, and no file of the dataset's.
        assert (prediction.answer, prediction.error) == (f"{position} 0", None)


def test_a_trained_model_is_one_more_model_and_knows_what_its_base_did_not(catalog: Catalog) -> None:
    training = ArtifactCell(BABI, "sft", "lora_tiny", "tiny")
    run_cell(catalog, training)
    base = Cell(BABI, "closed_book", "default", "tiny")
    trained = Cell(BABI, "closed_book", "default", "tiny+sft.lora_tiny")
    read = Cell(BABI, "rag_bm25", "k1", "tiny+sft.lora_tiny")
    for cell in (base, trained, read):
        run_cell(catalog, cell)
    whole = (pl.col("metric") == "accuracy") & (pl.col("subset") == "all")
    accuracy = {cell: scores(catalog, cell).filter(whole)["value"].item() for cell in (base, trained)}
    assert accuracy[trained] > accuracy[base]
