"""Which embedder is beside a model, what its job asks for, how scores with another than the paper's are told apart."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import polars as pl
import pytest
import yaml

import upkeep
from conftest import ROOT, copy_repository
from endpoint_fakes import MODEL, FakeEndpoint, be_quick, fake_endpoint, make_endpoint_repository
from host_fakes import RunnerRuntime, write_toy
from upkeep.batches import batches
from upkeep.catalog import Catalog
from upkeep.errors import UpkeepError
from upkeep.execution.fetch import fetch
from upkeep.execution.supervise import run_cell
from upkeep.files import digest
from upkeep.gateway.engines import embedder_parts
from upkeep.grading.score import identify
from upkeep.identity import describe, plan_identity
from upkeep.jobs import Cell, Training
from upkeep.needs import gpus_of
from upkeep.report.fields import as_printed
from upkeep.report.specs import read_paper
from upkeep.workflow import Workflow

SMALL, LARGE = "minilm", "qwen3-embedding-0.6b"
GEMINI = "gemini-2.5-flash-thinking"
CLUSTER = {"gpu_partition": "many", "partition": "few"}


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return Catalog(ROOT)


def dense(dataset: str, model: str, method: str = "rag_dense/k30") -> Cell:
    return Cell(dataset, *method.split("/"), model)


# ---------------------------------------------------------------- which


@pytest.mark.parametrize(
    ("dataset", "model", "embedder"),
    [
        ("oaks_babi", "pico", SMALL),
        ("oaks_novel", "pico+sft.lora_tiny", SMALL),
        ("oaks_babi", "qwen3-30b", LARGE),
        ("oaks_babi_mini", "qwen3-30b", LARGE),
        ("oaks_babi", GEMINI, LARGE),  # a rebuild
        ("oaks_novel", GEMINI, LARGE),  # a release
        ("oaks_novel", "gpt-4o-mini", LARGE),
        ("oaks_babi_mini", GEMINI, SMALL),  # stand-ins
        ("oaks_babi_stream", GEMINI, SMALL),
        ("oaks_novel_changes", GEMINI, SMALL),  # of no paper
    ],
)
def test_a_papers_own_dataset_is_read_with_its_embedder_and_no_other_needs_a_gpu(
    catalog: Catalog, dataset: str, model: str, embedder: str
) -> None:
    cell = dense(dataset, model)
    assert catalog.asked(cell)["embedder"] == embedder
    assert describe(catalog, cell, 1).embedder_spec == catalog.model(embedder)
    assert catalog.engine(embedder) in catalog.engines(cell)


def test_every_cell_of_oaks_that_retrieves_by_vectors_has_the_papers_embedder(catalog: Catalog) -> None:
    asked = [catalog.asked(cell) for cell in catalog.cells(catalog.suite("oaks"))]
    assert {roles["embedder"] for roles in asked if "embedder" in roles} == {LARGE}
    behind = [roles for roles in asked if "embedder" in roles and roles["reader"].startswith("gemini")]
    assert len(behind) == 6


def test_a_laptop_runs_mini_with_any_model_behind_an_endpoint(catalog: Catalog) -> None:
    for model in (GEMINI, "gpt-4o-mini", "o3-mini"):
        own = Catalog(ROOT, None, {"model": model})
        cells = own.cells(own.suite("mini"))
        assert any("embedder" in own.asked(cell) for cell in cells)
        assert {gpus_of(own, cell) for cell in cells} == {0}


def test_another_model_behind_an_endpoint_reads_oaks_with_the_papers_embedder_too() -> None:
    own = Catalog(ROOT, None, {"model": "gpt-4o-mini"})
    asked = [own.asked(cell) for cell in own.cells(own.suite("oaks"))]
    assert {roles["embedder"] for roles in asked if "embedder" in roles} == {LARGE}


def test_a_variant_that_names_one_embedder_has_it_wherever_its_model_is(tmp_path: Path) -> None:
    root = copy_repository(tmp_path)
    card = root / "methods/rag_dense/method.yaml"
    text = card.read_text()
    card.write_text(text.replace("  k30: {k: 30}", "  k30: {k: 30}\n  small: {k: 30, embedder: minilm}"))
    catalog = Catalog(root)
    for model in ("pico", GEMINI, "qwen3-30b"):
        cell = dense("oaks_novel", model, "rag_dense/small")
        assert catalog.asked(cell)["embedder"] == SMALL
        assert ("retriever", "all-MiniLM-L6-v2") in identify(catalog, cell, None).setting
    assert gpus_of(catalog, dense("oaks_novel", GEMINI, "rag_dense/small")) == 0


def test_another_embedder_is_another_cell_under_the_same_path(tmp_path: Path) -> None:
    root = copy_repository(tmp_path)
    cell = dense("oaks_babi", GEMINI)
    before = plan_identity(Catalog(root), cell)
    card = root / "methods/rag_dense/method.yaml"
    card.write_text(card.read_text().replace(f"embedder_gpu: {LARGE}", "embedder_gpu: bge-m3"))
    assert plan_identity(Catalog(root), cell) != before
    assert plan_identity(Catalog(root), dense("oaks_babi_mini", GEMINI)) == plan_identity(
        Catalog(ROOT), dense("oaks_babi_mini", GEMINI)
    )


# ---------------------------------------------------------------- what a job asks for


def slurm(suite: str, model: str | None = None) -> Workflow:
    given = {"suite": suite, "cluster": CLUSTER} | ({"model": model} if model else {})
    with mock.patch.dict(os.environ):  # which it sets for the jobs of its Snakemake
        return Workflow(str(ROOT), given)


def test_only_the_cells_that_retrieve_hold_a_gpu_beside_a_model_behind_an_endpoint() -> None:
    made, seen = slurm("oaks"), set()
    for batch in made.batches:
        if not batch.model.startswith("gemini"):
            continue
        embeds = {"embedder" in made.catalog.asked(cell) for cell in batch.cells}
        assert len(embeds) == 1, f"{batch.name} holds a GPU for cells that ask no embedder"
        asked = made.resources_of_batch(batch)
        wanted = (1, 1, 1, "many") if embeds == {True} else (0, 0, 1, "few")
        assert tuple(asked[name] for name in ("gpu", "gpu_jobs", "nodes", "slurm_partition")) == wanted
        assert asked["gpu_model"] is None
        seen |= embeds
    assert seen == {True, False}
    assert not [batch for batch in made.batches if batch.name.count(".1gpu.") and "gemini" not in batch.name]


def test_a_job_has_room_for_the_embedder_beside_the_cell(catalog: Catalog) -> None:
    cell = dense("oaks_novel", GEMINI)
    of_method, of_model = catalog.method("rag_dense").resources, catalog.spec(GEMINI).resources
    assert of_model is not None and catalog.model(LARGE).resources is None
    needs = slurm("oaks").needs([cell])
    largest = max(of_method.memory_gb, of_model.memory_gb)
    assert needs.mem_mb == 1024 * (largest + 2 * of_method.memory_gb)
    assert needs.threads == max(of_method.cpus, of_model.cpus)


def test_beside_a_model_on_gpus_the_embedder_asks_for_no_further_ones(catalog: Catalog) -> None:
    made = slurm("oaks")
    for model in ("qwen3-30b", "qwen3-235b"):
        assert made.needs([dense("oaks_babi", model)]).gpus == catalog.spec(model).gpus
    assert made.needs([dense("oaks_babi", "pico")]).gpus == 0
    assert made.needs([Cell("oaks_babi", "gold", "default", "none")]).gpus == 0
    training = Training("oaks_babi_mini", "sft", "lora", "qwen3-4b")
    assert made.needs([training]).gpus == catalog.spec("qwen3-4b").gpus


def test_the_kind_of_gpu_and_the_cpus_that_an_embedder_needs_are_asked_for(tmp_path: Path) -> None:
    root = copy_repository(tmp_path)
    card = root / f"models/{LARGE}/model.yaml"
    own = {"cpus": 7, "memory_gb": 33, "gpu_type": "h100", "constraint": "fast"}
    card.write_text(yaml.safe_dump(yaml.safe_load(card.read_text()) | {"resources": own}))
    with mock.patch.dict(os.environ):
        made = Workflow(str(root), {"suite": "oaks", "cluster": CLUSTER})
    (batch,) = [b for b in made.batches if b.model == GEMINI and b.cells[0].method == "rag_dense"]
    asked = made.resources_of_batch(batch)
    assert (asked["gpu_model"], asked["constraint"], made.needs(batch.cells).threads) == ("h100", "fast", 7)
    assert int(str(asked["mem_mb"])) >= 1024 * 33


def test_batches_of_mini_are_the_same_whatever_its_model_is(catalog: Catalog) -> None:
    own = Catalog(ROOT, None, {"model": GEMINI})
    for batch in batches(own, own.cells(own.suite("mini"))):
        assert "gpu" not in batch.name


# ---------------------------------------------------------------- how scores are told apart


def test_scores_with_another_embedder_than_the_papers_say_so(catalog: Catalog) -> None:
    for method in ("rag_dense/k30", "rag_hybrid/k3", "rag_rolling_window/k15w15"):
        told = {m: dict(identify(catalog, dense("oaks_babi", m, method), None).setting) for m in ("pico", "qwen3-30b")}
        assert told["pico"]["retriever"] == "all-MiniLM-L6-v2" and "retriever" not in told["qwen3-30b"]
        assert "retriever" not in dict(identify(catalog, dense("oaks_babi", GEMINI, method), None).setting)
    assert "retriever" not in dict(identify(catalog, dense("oaks_babi", "pico", "rag_bm25/k30"), None).setting)


def test_no_paper_calls_a_score_of_the_small_embedder_on_its_own_dataset_as_its_own() -> None:
    setting = [{"key": "retriever", "value": "all-MiniLM-L6-v2"}, {"key": "k", "value": "30"}]
    names = ["oaks_babi", "oaks_novel", "oaks_babi_mini", "oaks_babi_stream", "oaks_novel_mini"]
    rows = [{"method": "rag_dense", "dataset_id": name, "setting": setting} for name in names]
    found = as_printed(pl.DataFrame(rows), read_paper(ROOT / "papers/oaks").called)
    kept = [any(pair["key"] == "retriever" for pair in row) for row in found["setting"].to_list()]
    assert kept == [True, True, False, False, False], "on stand-ins it is no experiment of its own"


# ---------------------------------------------------------------- one that is run


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeEndpoint]:
    be_quick(monkeypatch)
    with fake_endpoint() as server:
        yield server


def make(tmp_path: Path, server: FakeEndpoint, provenance: str, gpus: int = 0) -> tuple[Catalog, Cell]:
    """A repository in which `rag_dense` has the embedders `small` and `large`, the same weights read otherwise.

    Args:
        gpus: what the card of `large` asks for.
    """
    root = copy_repository(tmp_path)
    make_endpoint_repository(root, server.url)
    shutil.copytree(ROOT / "src", root / "src", dirs_exist_ok=True)
    (root / "papers/toy/prompts/oaks_babi.yaml").unlink()
    card = yaml.safe_load((root / f"models/{SMALL}/model.yaml").read_text())
    for name, more in (("small", {}), ("large", {"context_length": 128, "gpus": gpus})):
        (root / "models" / name).mkdir()
        (root / f"models/{name}/model.yaml").write_text(yaml.safe_dump(card | {"label": name.title()} | more))
    method = root / "methods/rag_dense/method.yaml"
    method.write_text(method.read_text().replace(f": {SMALL}", ": small").replace(f": {LARGE}", ": large"))
    dataset = root / "datasets/toy/dataset.yaml"
    dataset.write_text(dataset.read_text().replace("paper: toy", f"paper: toy, provenance: {provenance}"))
    catalog = Catalog(root)
    write_toy(catalog)
    return catalog, Cell("toy", "rag_dense", "k1", MODEL)


@pytest.mark.parametrize(("provenance", "name"), [("release", "large"), ("own", "small")])
def test_the_embedder_that_is_named_is_asked_and_the_endpoint_answers(
    tmp_path: Path, server: FakeEndpoint, provenance: str, name: str
) -> None:
    catalog, cell = make(tmp_path, server, provenance)
    fetch(catalog, name)  # the other one's weights are not here
    manifest = run_cell(catalog, cell, runtime=RunnerRuntime())
    assert manifest.environment.served["embedder"].record == digest(embedder_parts(catalog, cell, name))
    assert manifest.outcomes["error"] == 0 and manifest.measured["new_vectors"] > 0
    assert manifest.cell == f"toy/rag_dense/k1/{MODEL}" and len(server.bodies) == manifest.probes


def test_without_a_gpu_nothing_is_paid_and_with_every_vector_on_record_none_is_needed(
    tmp_path: Path, server: FakeEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, cell = make(tmp_path, server, "release", gpus=1)
    fetch(catalog, "large")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(UpkeepError, match="'large' needs 1 GPU"):
        run_cell(catalog, cell, runtime=RunnerRuntime())
    assert server.bodies == []

    code = catalog.root / "src/upkeep/serving/embedding.py"
    code.write_text(code.read_text().replace('"cuda" if spec.gpus else "cpu"', '"cpu"'))  # a pretended GPU
    monkeypatch.setattr(upkeep, "__file__", str(catalog.root / "src/upkeep/__init__.py"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    catalog = Catalog(catalog.root)
    made = run_cell(catalog, cell, runtime=RunnerRuntime())
    assert made.measured["new_vectors"] > 0 and len(server.bodies) == made.probes

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    again = run_cell(catalog, cell, runtime=RunnerRuntime(), force=True)
    assert (again.measured["new_vectors"], again.files["predictions.jsonl"]) == (0, made.files["predictions.jsonl"])
    assert len(server.bodies) == made.probes
