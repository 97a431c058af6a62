"""Whole cells of the methods that work through the context: each on every small dataset of the papers that its card
names, with the embedded model and with a model behind an OpenAI-compatible server; and each in its container."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from conftest import CACHE, ROOT, copy_repository, make_smaller
from endpoint_fakes import MODEL, FakeEndpoint, be_quick, fake_endpoint, write_card
from host_fakes import RunnerRuntime
from method_fakes import json_said
from upkeep.batches import Batch
from upkeep.building.build import build_dataset
from upkeep.catalog import Catalog
from upkeep.contract import Manifest, Prediction
from upkeep.execution.batch import run_batch
from upkeep.execution.fetch import fetch
from upkeep.execution.job import Runtime
from upkeep.jobs import Cell
from upkeep.layout import Layout
from upkeep.normal_form import read_table
from upkeep.samples import asked, of_config

VARIANTS = {
    "a_mem": "k3",
    "chunked_summary": "budget32",
    "deep_research": "k3",
    "document_summary": "budget32",
    "few_shot": "five",
    "hipporag2": "k2",
    "many_shot": "all",
    "memagent": "budget64",
    "memory_scaffold": "budget256",
    "rag_agentic": "k3",
    "self_critique": "bm25_k2",
}
"""Of each method, one for a model that reads little."""
SMALL = (
    "evowiki_mini",
    "imprint_code_mini",
    "imprint_news_mini",
    "imprint_personal_mini",
    "oaks_babi_mini",
    "oaks_novel_mini",
    "prelude_mini",
)
CATALOG = Catalog(ROOT)
NAMED = [
    (dataset, method)
    for method in VARIANTS
    for dataset in SMALL
    if CATALOG.dataset(dataset).paper in CATALOG.method(method).papers
]
ASKING = [(dataset, method, MODEL) for dataset, method in NAMED]
ASKING += [(dataset, method, "pico") for method, dataset in {method: dataset for dataset, method in NAMED}.items()]
"""The embedded model, which takes its time, on one dataset of each method's."""
ASKED = {"process": "1", "docker": "2"}
"""Questions of each dataset, by runtime: another sample is another cell, which is not taken over."""


def cell(dataset: str, method: str, model: str) -> Cell:
    return Cell(dataset, method, VARIANTS[method], model)


# ---------------------------------------------------------------- a server


def obliging(number: int, body: dict[str, Any]) -> str:
    """Write the JSON that is asked for, call a tool as long as there is one, and answer."""
    prompt = "".join(message["content"] or "" for message in body["messages"])
    if body.get("tools"):
        function = {"name": "search", "arguments": json.dumps({"query": f"Mira {number}"})}
        call = {"id": f"c{number}", "type": "function", "function": function}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        return "set:" + json.dumps({"choices.0.message": message, "choices.0.finish_reason": "tool_calls"})
    said = json_said(prompt)
    return "good" if said is None else "set:" + json.dumps({"choices.0.message.content": said})


# ---------------------------------------------------------------- cells


@pytest.fixture(scope="module")
def server() -> Iterator[FakeEndpoint]:
    with pytest.MonkeyPatch.context() as monkeypatch, fake_endpoint(obliging) as server:
        be_quick(monkeypatch)
        yield server


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, server: FakeEndpoint) -> Path:
    """A repository with the small datasets and both models."""
    root = copy_repository(tmp_path_factory.mktemp("context"))
    make_smaller(root)
    write_card(root, server.url)
    shorten(root)
    config = root / "config/config.yaml"
    settings = {"budget": {MODEL: 1000.0}, "cache": str(CACHE)}
    config.write_text(yaml.safe_dump(yaml.safe_load(config.read_text()) | settings))
    catalog = Catalog(root)
    for dataset in {dataset for dataset, _ in NAMED}:
        build_dataset(catalog, dataset, Layout(catalog.results).dataset(dataset))
    for model in ("pico", "minilm"):
        fetch(catalog, model)
    return root


def shorten(root: Path) -> None:
    """Of a copy, replies and memories: the embedded model hardly ever ends what it cannot write."""
    for path, before, after in (
        ("models/pico/model.yaml", "max_tokens: 96", "max_tokens: 24"),
        ("methods/memory_scaffold/method.yaml", "budget: 256", "budget: 8"),
    ):
        text = (root / path).read_text()
        assert before in text
        (root / path).write_text(text.replace(before, after))


def made(root: Path, runtime: str, cells: list[Cell], by: Runtime | None = None) -> dict[Cell, Manifest]:
    """A sample of each cell's dataset, asked."""
    catalog = Catalog(root, None, {"runtime": runtime, "limit": ASKED[runtime]})
    return run_batch(catalog, Batch(runtime, tuple(cells)), runtime=by)


def complete(root: Path, cell: Cell, runtime: str) -> list[Prediction]:
    """The predictions of a cell, one for each probe of its sample, in their order."""
    catalog = Catalog(root, None, {"limit": ASKED[runtime]})
    lines = (Layout(catalog.results).cell(cell) / "predictions.jsonl").read_bytes().splitlines()
    found = [msgspec.json.decode(line, type=Prediction, strict=True) for line in lines]
    probes = read_table(Layout(catalog.results).dataset(cell.dataset), "probes")
    sample = of_config(catalog.config)
    assert sample is not None
    ids = asked(sample, cell.dataset, 0, zip(probes["probe_id"], probes["question_id"], strict=True))
    assert [one.probe_id for one in found] == [one for one in probes["probe_id"] if one in ids]
    return found


@pytest.fixture(scope="module")
def as_processes(root: Path, request: pytest.FixtureRequest) -> dict[Cell, Manifest]:
    """Those cells that a test of this run asks for, in one batch a model."""
    wanted = {
        tuple(item.callspec.params.get(name) for name in ("dataset", "method", "model"))
        for item in request.session.items
        if item.path == request.path and hasattr(item, "callspec")
    }
    found: dict[Cell, Manifest] = {}
    for model in ("pico", MODEL):
        cells = [cell(*one) for one in ASKING if one in wanted and one[2] == model]
        found |= made(root, "process", cells, RunnerRuntime())
    return found


@pytest.mark.parametrize(("dataset", "method", "model"), ASKING)
def test_every_method_answers_every_small_dataset_that_its_card_names(
    root: Path, as_processes: dict[Cell, Manifest], dataset: str, method: str, model: str
) -> None:
    one = cell(dataset, method, model)
    assert one in as_processes
    for prediction in complete(root, one, "process"):
        assert prediction.error is None, prediction.error
        assert prediction.response is not None and prediction.usage.calls


@pytest.mark.docker
@pytest.mark.parametrize("method", VARIANTS)
def test_every_method_answers_in_its_container(root: Path, in_containers: dict[Cell, Manifest], method: str) -> None:
    one = next(cell for cell in in_containers if cell.method == method)
    assert in_containers[one].environment.isolated
    assert all(prediction.error is None for prediction in complete(root, one, "docker"))


@pytest.fixture(scope="module")
def in_containers(root: Path) -> dict[Cell, Manifest]:
    """A cell of each method; the model is behind the server, so no container holds one."""
    datasets = {method: dataset for dataset, method in reversed(NAMED)}
    cells = [cell(datasets[method], method, MODEL) for method in VARIANTS]
    return made(root, "docker", cells)
