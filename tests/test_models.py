"""The cards of `models/`: every model that a paper's table names has one, and each is coherent (`test_model_cards.py`
has what a card and its presets are)."""

from __future__ import annotations

import csv
import json
import re
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import msgspec
import pytest

from conftest import ROOT
from upkeep.catalog import Catalog
from upkeep.contract import Attention, ModelSpec
from upkeep.errors import UpkeepError
from upkeep.execution import fetch as fetching
from upkeep.fields import MODEL
from upkeep.new import add_model, card_of

CATALOG = Catalog(ROOT)
CARDS = {name: CATALOG.model(name) for name in CATALOG.models}
SERVED = sorted(name for name, spec in CARDS.items() if spec.source == "hub" and spec.engine == "vllm")
ENDPOINTS = sorted(name for name, spec in CARDS.items() if spec.endpoint is not None)

NO_CARD = {
    ("prelude", "o3"): "OpenAI DeepResearch, used through its web page",
    ("evolveqa", "Llama-3.1-8B-Instruct"): "how Table 5 spells the model that all other tables print with a space",
}
"""Names in the published tables that have no card, and why."""

EVOLVEQA_CUTOFFS = {
    "2023-08-31": ["Claude 3 Haiku"],
    "2023-12-31": ["Llama 3.1-8B-Instruct", "Llama 3.3-70B-Instruct"],
    "2024-04-30": ["Claude 3.5-sonnet-v1", "Claude 3.5-sonnet-v2"],
    "2024-05-31": ["GPT-4.1-mini", "GPT-5-mini"],
    "2024-07-31": ["Claude 3.5 Haiku"],
    "2024-08-31": [
        "Gemma3-27B-instruct",
        "Gemma3-4B-instruct",
        "Llama 4-Maverick-instruct",
        "Llama 4-Scout-instruct",
    ],
}
"""Table 1 of evolveQA."""

BYTES = {"deepseek-r1": 1, "deepseek-v3": 1}
"""A parameter's bytes where they are not the two of bfloat16 (models/README.md)."""
GPU_GB = {None: 80, "h200": 141}


def printed(paper: Path) -> set[str]:
    """The models that a paper's tables name."""
    names: set[str] = set()
    for table in paper.glob("reference/*.csv"):
        with table.open(encoding="utf-8", newline="") as lines:
            names.update(row["model"] for row in csv.DictReader(lines))
    return names - {""}


PRINTED = sorted((paper.name, name) for paper in (ROOT / "papers").iterdir() for name in printed(paper))


def context_bytes(shape: Attention, tokens: int, gpus: int) -> float:
    """Keys and values of one context in bfloat16; a head is kept whole, so with more GPUs than heads several times."""
    return 4 * shape.layers * max(shape.kv_heads, gpus) * shape.head_size * tokens


# ---------------------------------------------------------------- the papers' models


def test_the_published_tables_name_models_of_every_paper() -> None:
    assert {paper for paper, _ in PRINTED} == {path.parent.name for path in (ROOT / "papers").glob("*/tables.yaml")}


@pytest.mark.parametrize(("paper", "name"), PRINTED)
def test_every_model_of_a_published_table_has_a_card_or_a_reason(paper: str, name: str) -> None:
    labels = {spec.label for spec in CARDS.values()}
    assert (name in labels) != ((paper, name) in NO_CARD)


def test_every_reason_is_about_a_name_that_is_printed() -> None:
    assert NO_CARD.keys() <= set(PRINTED)


def test_the_models_of_evolveqa_have_the_cutoff_that_it_prints() -> None:
    found = {spec.label: spec.cutoff for spec in CARDS.values() if spec.cutoff}
    for cutoff, labels in EVOLVEQA_CUTOFFS.items():
        assert {label: found[label] for label in labels} == dict.fromkeys(labels, cutoff)
    tables = (ROOT / "papers" / "evolveqa" / "reference" / "table_1.csv").read_text(encoding="utf-8")
    assert all(f"cutoff={cutoff}" in tables for cutoff in EVOLVEQA_CUTOFFS)


@pytest.mark.parametrize(
    ("model", "temperature", "top_p", "top_k"),
    [
        ("qwen3-30b", 0.7, 0.8, 20),  # OAKS, C.1.4
        ("qwen3-80b", 0.6, 0.95, 20),
        ("qwen3-30b-thinking", 0.6, 0.95, 20),
        ("gemini-2.5-flash", 0.0, 0.95, 0),
        ("qwen3-30b-imprintbench", 0.7, 0.95, 20),  # ImprintBench, C.3
        ("qwen3-4b-imprintbench", 0.7, 0.95, 20),
        ("llama-3.1-8b-evolveqa", 0.4, 0.95, 0),  # evolveQA, B.3
        ("llama-3.3-70b", 0.0, 0.95, 0),
        ("claude-3.5-sonnet-v2", 0.0, 0.95, 0),
    ],
)
def test_what_a_paper_says_of_decoding_stands_in_the_card(
    model: str, temperature: float, top_p: float, top_k: int
) -> None:
    sampling = CARDS[model].sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (temperature, top_p, top_k)


def test_gpt_5_mini_is_decoded_as_its_provider_does() -> None:
    endpoint = CARDS["gpt-5-mini"].endpoint
    assert endpoint is not None and {"temperature", "top_p"} <= set(endpoint.omit) and endpoint.fields == {}


def test_cards_of_one_label_differ_in_what_determines_answers() -> None:
    seen: dict[tuple[str, bytes], str] = {}
    for name, spec in CARDS.items():
        values = msgspec.to_builtins(spec)
        told = {field: values[field] for field, kind in MODEL.items() if kind != "out"}
        key = (spec.label, msgspec.json.encode(told, order="sorted"))
        assert key not in seen, f"{name} is {seen.get(key)} once more"
        seen[key] = name


# ---------------------------------------------------------------- coherence


@pytest.mark.parametrize("name", CARDS)
def test_a_card_is_coherent(name: str) -> None:
    spec = CARDS[name]
    if spec.role == "generator":
        assert spec.sampling.max_tokens < spec.context_length
        assert spec.resources is not None or spec.engine == "transformers"
    if spec.active_b is not None:
        assert spec.parameters_b is not None and spec.active_b < spec.parameters_b
    if spec.parameters_b is not None and spec.parameters_b > 3:
        assert spec.gpus > 0
    if spec.attention is not None:
        assert spec.attention.heads % spec.attention.kv_heads == 0
    if spec.cutoff is not None:
        date.fromisoformat(spec.cutoff)
    if spec.thinking == "on" and spec.endpoint is None:
        assert spec.thinking_tags is not None and all(spec.thinking_tags)
    if "enable_thinking" in spec.template_options:
        assert spec.template_options["enable_thinking"] == (spec.thinking == "on")


@pytest.mark.parametrize("name", SERVED)
def test_the_gpus_hold_the_weights_and_one_whole_context(name: str) -> None:
    spec = CARDS[name]
    assert spec.gpus in (1, 2, 4, 8) and spec.parameters_b is not None and spec.licence
    gpu_gb = GPU_GB[spec.resources.gpu_type if spec.resources else None]
    needed = spec.parameters_b * 1e9 * BYTES.get(name, 2)
    if spec.attention is not None:
        needed += context_bytes(spec.attention, spec.context_length, spec.gpus)
    assert needed <= 0.9 * spec.gpus * gpu_gb * 1e9


@pytest.mark.parametrize("name", ENDPOINTS)
def test_an_endpoint_is_asked_with_what_it_takes(name: str) -> None:
    spec = CARDS[name]
    assert spec.endpoint is not None and spec.location.startswith("https://") and spec.endpoint.key
    price = spec.endpoint.price
    assert 0 < price.prompt < price.completion and (price.cached is None or price.cached <= price.prompt)
    # Parameters of vLLM alone: no provider here has all of them.
    assert {"min_p", "repetition_penalty"} <= set(spec.endpoint.omit)
    unsent = {field for field in spec.endpoint.omit if field not in ("temperature", "top_p", "seed")}
    usual = {"top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0}
    assert {field: getattr(spec.sampling, field) for field in unsent} == {field: usual[field] for field in unsent}


# ---------------------------------------------------------------- fetching


class FakeHub(ModuleType):
    """`huggingface_hub` with a repository of these files."""

    def __init__(self, files: list[str]) -> None:
        super().__init__("huggingface_hub")
        self.files, self.asked = files, []  # type: ignore[var-annotated]

    def snapshot_download(self, location: str, *, local_dir: Path, **options: Any) -> None:
        self.asked.append((location, options["revision"]))
        local_dir.mkdir(parents=True, exist_ok=True)
        for file in self.files:
            (local_dir / file).write_bytes(b"{}")


def fetch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, model: str, hub: FakeHub, **changed: Any) -> ModelSpec:
    errors = ModuleType("huggingface_hub.errors")
    errors.HfHubHTTPError = OSError  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    monkeypatch.setitem(sys.modules, "huggingface_hub.errors", errors)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    catalog = Catalog(ROOT)
    catalog.results, catalog.cache = tmp_path / "results", tmp_path / "cache"
    spec = msgspec.structs.replace(CARDS[model], **changed)
    monkeypatch.setattr(catalog, "model", lambda name: spec)
    fetching.fetch(catalog, model)
    return spec


def test_a_model_of_a_hub_is_fetched_at_its_revision(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hub = FakeHub(["config.json", "model.safetensors"])
    spec = fetch(monkeypatch, tmp_path, "qwq-32b", hub)
    assert hub.asked == [("Qwen/QwQ-32B", spec.revision)]


def test_a_model_of_a_hub_without_revision_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hub = FakeHub(["config.json", "model.safetensors"])
    with pytest.raises(UpkeepError, match="needs a revision") as error:
        fetch(monkeypatch, tmp_path, "qwq-32b", hub, revision=None)
    assert "qwq-32b/model.yaml" in str(error.value) and not hub.asked


def test_weights_that_are_a_pickle_are_refused_with_the_way_round(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hub = FakeHub(["config.json"])
    for _ in range(2):  # nor are they taken for complete the second time
        with pytest.raises(UpkeepError, match="no weights as safetensors") as error:
            fetch(monkeypatch, tmp_path, "contriever", hub)
        assert "models: {contriever:" in str(error.value)
    assert len(hub.asked) == 2


# ---------------------------------------------------------------- a model of one's own


def _weights(folder: Path, **config: object) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": 512, "dtype": "bfloat16"} | config))
    return folder


class _Models(BaseHTTPRequestHandler):
    """A server that says what it serves."""

    served: ClassVar[list[dict[str, object]]] = []

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/v1/models" else 404)
        self.end_headers()
        self.wfile.write(json.dumps({"object": "list", "data": self.served}).encode())


@pytest.fixture
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Models) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        server.shutdown()


def test_a_folder_of_weights_takes_the_place_of_the_suites_model(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = card_of(repository, str(_weights(tmp_path / "My Model-2B")))
    assert name == "my-model-2b"
    assert card_of(repository, str(tmp_path / "My Model-2B")) == name, "the card is written once"
    before = Catalog(repository).cells(Catalog(repository).suite("mini"))
    monkeypatch.setenv("UPKEEP_MODEL", name)
    catalog = Catalog(repository)
    spec = catalog.model(name)
    assert (spec.context_length, spec.engine, spec.dtype, spec.gpus) == (512, "transformers", "float32", 0)
    cells = catalog.cells(catalog.suite("mini"))
    # Of its two presets, one: what samples and what is greedy is the user's own, once.
    assert list(dict.fromkeys(replace(c, model=re.sub("pico(-sampled)?", name, c.model)) for c in before)) == cells
    trained = f"{name}+sft.lora_tiny"  # on the dataset that is asked about, and on another one
    assert {c.model for c in cells} == {"none", name, trained, f"{trained}@oaks_babi_mini"}


def test_a_model_on_gpus_keeps_its_number_type(repository: Path, tmp_path: Path) -> None:
    inner = {"max_position_embeddings": 9, "torch_dtype": "float16"}
    folder = _weights(tmp_path / "m", max_position_embeddings=None, text_config=inner)
    add_model(repository, str(folder), 2)
    spec = Catalog(repository).model("m")
    assert (spec.context_length, spec.engine, spec.dtype, spec.gpus) == (9, "vllm", "float16", 2)


def test_a_server_takes_the_place_of_the_suites_model_and_is_not_trained(
    repository: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _Models.served = [{"id": "Org/Thing-7B", "max_model_len": 4096}, {"id": "adapter", "parent": "Org/Thing-7B"}]
    name = card_of(repository, server)
    assert card_of(repository, f"{server}/") == name
    monkeypatch.setenv("UPKEEP_MODEL", name)
    catalog = Catalog(repository)
    spec = catalog.model(name)
    assert spec.endpoint is not None and spec.endpoint.key is None and spec.endpoint.model == "Org/Thing-7B"
    assert (spec.location, spec.context_length, spec.label) == (server, 4096, "Thing-7B")
    assert {c.model for c in catalog.cells(catalog.suite("mini"))} == {"none", name}


def test_a_model_of_the_hub_is_pinned_to_the_commit_it_has_now(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub

    asked = []
    commit = "0123456789abcdef0123456789abcdef01234567"

    def model_info(self: object, name: str, revision: str | None) -> SimpleNamespace:
        asked.append((name, revision))
        return SimpleNamespace(sha=commit)

    folder = _weights(tmp_path / "hub")
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", model_info)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda *_, **__: str(folder / "config.json"))
    assert card_of(repository, "Org/Thing-7B@main") == "thing-7b"
    spec = Catalog(repository).model("thing-7b")
    assert asked == [("Org/Thing-7B", "main")]
    assert (spec.source, spec.location, spec.revision, spec.context_length) == ("hub", "Org/Thing-7B", commit, 512)


def test_what_is_no_model_is_refused_by_its_place(repository: Path, tmp_path: Path, server: str) -> None:
    (tmp_path / "empty").mkdir()
    _Models.served = [{"id": "a", "max_model_len": 1}, {"id": "b", "max_model_len": 1}]
    for place, said in (
        (str(tmp_path / "empty"), "config.json"),
        (str(tmp_path / "nothing"), "a folder of weights"),
        (str(_weights(tmp_path / "endless", max_position_embeddings=None)), "max_position_embeddings"),
        (server, "one model with id"),
        (server.replace("/v1", "/v2"), "no answer from the server"),
    ):
        with pytest.raises(UpkeepError, match=said):
            card_of(repository, place)
    add_model(repository, str(_weights(tmp_path / "pico2")), 0)
    with pytest.raises(UpkeepError, match="there already"):
        add_model(repository, str(_weights(tmp_path / "other") / ".." / "pico2"), 0)
    assert card_of(repository, "pico") == "pico"
