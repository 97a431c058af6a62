"""KVzip: what it keeps, and whole cells of a method with an engine of its own, as a process and in a container."""

from __future__ import annotations

import functools
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest
import yaml

from conftest import CACHE, ROOT, copy_repository, make_smaller
from method_fakes import FakeLLM
from method_runs import Run, shown, stream
from upkeep import identity
from upkeep.batches import batches
from upkeep.building.build import build_dataset
from upkeep.catalog import Catalog
from upkeep.contract import Prediction, Resources
from upkeep.errors import UpkeepError
from upkeep.execution.detection import detect
from upkeep.execution.fetch import fetch
from upkeep.execution.handle import Handle
from upkeep.execution.refresh import replay
from upkeep.execution.runtimes import Launch, Prepared
from upkeep.execution.supervise import run_cell
from upkeep.images import plans
from upkeep.jobs import Cell
from upkeep.layout import Layout
from upkeep.needs import gpus_of, models_of
from upkeep.operations.plan.estimate import make_plan
from upkeep.weights import find
from upkeep.workflow import Workflow

BABI = "oaks_babi_mini"
LIMIT = "1"
"""Questions that a cell is asked."""
ASKED = 5
"""How often: after each document of its stream."""
INSIDE = Path(__file__).with_name("kvzip_inside.py")
MODELS = ("tiny", "pico")


def cell(variant: str = "default", model: str = "pico") -> Cell:
    return Cell(BABI, "kvzip", variant, model)


# ---------------------------------------------------------------- real cells


@pytest.fixture(scope="module")
def repository_in(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Catalog]:
    """A repository for each runtime, made when it is first asked for."""

    @functools.cache
    def made(runtime: str) -> Catalog:
        root = copy_repository(tmp_path_factory.mktemp(runtime))
        make_smaller(root)
        card = root / "models/pico/model.yaml"
        card.write_text(card.read_text().replace("max_tokens: 96", "max_tokens: 12"))
        config = root / "config/config.yaml"
        settings = {"runtime": runtime, "cache": str(CACHE)}
        config.write_text(yaml.safe_dump(yaml.safe_load(config.read_text()) | settings))
        catalog = Catalog(root, None, {"limit": LIMIT})
        build_dataset(catalog, BABI, Layout(catalog.results).dataset(BABI))
        for model in MODELS:
            fetch(catalog, model)
        return catalog

    return made


@pytest.fixture(scope="module")
def process(repository_in: Callable[[str], Catalog]) -> Catalog:
    return repository_in("process")


@pytest.fixture(params=[pytest.param("docker", marks=pytest.mark.docker), "process"])
def catalog(request: pytest.FixtureRequest, repository_in: Callable[[str], Catalog]) -> Catalog:
    """In each runtime."""
    return repository_in(request.param)


def content(catalog: Catalog, cell: Cell) -> bytes:
    return (Layout(catalog.results).cell(cell) / "predictions.jsonl").read_bytes()


def predictions(catalog: Catalog, cell: Cell) -> list[Prediction]:
    return [msgspec.json.decode(line, type=Prediction) for line in content(catalog, cell).splitlines()]


@pytest.mark.parametrize(
    ("catalog", "model"),
    [pytest.param("docker", "tiny", marks=pytest.mark.docker), ("process", "pico")],
    indirect=["catalog"],
)
def test_it_answers_twice_with_the_same_bytes(catalog: Catalog, model: str) -> None:
    one = cell(model=model)
    manifest = run_cell(catalog, one, force=True)
    before = content(catalog, one)
    said = predictions(catalog, one)
    assert len(said) == ASKED and not [p.error for p in said if p.error]
    assert all(p.usage.calls == 1 and p.usage.prompt and p.usage.completion for p in said)
    assert all(p.values["kept_share"] == pytest.approx(1 / 16, abs=2e-3) for p in said)
    assert run_cell(catalog, one) == manifest, "what is complete is reused"
    again = run_cell(catalog, one, ask="everything")
    assert again.start != manifest.start and again.measured["other_answers"] == 0
    assert content(catalog, one) == before


def test_the_manifest_says_what_ran(catalog: Catalog) -> None:
    manifest = run_cell(catalog, cell(model="tiny"))
    ran = manifest.environment
    assert (ran.engine, ran.served, ran.isolated) == ("own", {}, catalog.config.runtime == "docker")
    assert ran.packages["kvpress"] == "0.5.5" and ran.packages["transformers"].startswith("5.2.")
    assert ran.packages["torch"].startswith("2.13.0")
    weights = find(catalog, "tiny", BABI)[1].sha256
    assert manifest.identity_parts["weights"] == weights and manifest.identity_parts["own_code"]
    assert manifest.usage.calls == ASKED and manifest.measured["computed_prompt_tokens"] == manifest.usage.prompt


def test_at_ratio_1_it_answers_as_the_model_does_without_it(process: Catalog) -> None:
    mine, plain = cell("ratio1"), Cell(BABI, "long_context", "default", "pico")
    for one in (mine, plain):
        run_cell(process, one)
    both = list(zip(predictions(process, mine), predictions(process, plain), strict=True))
    assert all(a.response == b.response and a.usage == b.usage and a.context == b.context for a, b in both)
    assert all(a.values == {"kept_share": 1.0} for a, _ in both)


class Striking:
    """A runtime that kills the first container of a cell when some of its predictions are there."""

    def __init__(self, catalog: Catalog, cell: Cell) -> None:
        self._runtime, self.starts = detect(catalog), 0
        self._path = Layout(catalog.results).work("cells", cell) / "predictions.jsonl"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)

    def start(self, prepared: Prepared, launch: Launch) -> Handle:
        handle = self._runtime.start(prepared, launch)
        self.starts += 1
        if self.starts == 1:
            threading.Thread(target=self._strike, args=(handle,)).start()
        return handle

    def _strike(self, handle: Handle) -> None:
        while handle.poll() is None and not (self._path.exists() and self._path.read_bytes().count(b"\n") >= 2):
            time.sleep(0.005)
        handle.kill()


def test_a_killed_cell_goes_on_and_ends_with_the_same_bytes(process: Catalog) -> None:
    one = cell()
    run_cell(process, one)
    whole, runtime = content(process, one), Striking(process, one)
    manifest = run_cell(process, one, force=True, runtime=runtime)
    assert [attempt.outcome for attempt in manifest.attempts] == ["failed", "complete"]
    assert 2 <= manifest.attempts[0].lines < ASKED
    assert content(process, one) == whole


def test_no_reply_is_on_record_so_a_stale_cell_is_left_to_a_run(process: Catalog) -> None:
    one = cell(model="tiny")
    run_cell(process, one)
    card = process.root / "models/tiny/model.yaml"
    text = card.read_text()
    card.write_text(text.replace("max_tokens: 16", "max_tokens: 15"))
    try:
        changed = Catalog(process.root, None, {"limit": LIMIT})
        assert list(replay(changed, [one], detect(changed)).left) == [one]
    finally:
        card.write_text(text)


# ---------------------------------------------------------------- what is kept


@pytest.fixture(scope="module")
def inside(process: Catalog, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `kvzip_inside.py` sees."""
    runtime, output = detect(process), tmp_path_factory.mktemp("inside")
    prepared, model = runtime.prepare("kvzip", "transformers"), find(process, "pico", BABI)[1].path
    assert model is not None
    places = runtime.path_of("model", model), f"{runtime.path_of('output', output)}/found.json"
    arguments = ("-c", INSIDE.read_text(), *places)
    runtime.run_tool(prepared, arguments, inputs={"model": model}, output=output, resources=Resources())
    found: dict[str, Any] = json.loads((output / "found.json").read_text())
    return found


def test_one_pair_of_keys_and_values_is_kept_of_as_many_as_the_ratio_says(inside: dict[str, Any]) -> None:
    kept = {int(ratio): share for ratio, share in inside["kept"].items()}
    assert kept.keys() == {1, 2, 3, 16} and kept[1] == 1
    for ratio, share in kept.items():
        assert share * inside["pairs"] == pytest.approx(inside["pairs"] / ratio, abs=1)


def test_without_compression_the_tokens_are_those_of_the_model_over_the_whole_prompt(inside: dict[str, Any]) -> None:
    assert inside["at_ratio_1"] == inside["whole"] and any(inside["whole"])


def test_an_answer_depends_on_its_own_prompt_alone(inside: dict[str, Any]) -> None:
    forward, backward, again = inside["orders"]
    assert forward == backward == again


def test_pairs_are_chosen_before_a_question_is_read_and_unlike_in_each_layer(inside: dict[str, Any]) -> None:
    assert inside["chosen_alike"] and inside["uneven"] and inside["sinks"] == 0


def test_what_is_compressed_are_all_documents_and_nothing_of_the_question(inside: dict[str, Any]) -> None:
    assert len(set(inside["contexts"])) == 1
    for context, rest in zip(inside["contexts"], inside["rests"], strict=True):
        assert context.count("Mira went to the attic") == 30 and "Mira went to the attic" not in rest
        assert not any(word in context for word in ("Where is", "What did", "Which of"))


def test_a_further_trial_computes_its_last_token_alone(inside: dict[str, Any]) -> None:
    context, first, second, length = inside["cached"]
    assert context <= first < second == length - 1


def test_what_it_cannot_do_is_an_error(inside: dict[str, Any]) -> None:
    assert all("plain text" in error for error in inside["refused"])


def test_a_mixture_of_experts_is_scored_by_the_queries_that_it_computes(inside: dict[str, Any]) -> None:
    assert inside["mixture"] == 0


def test_what_does_not_fit_is_the_oldest_and_never_the_newest() -> None:
    run = Run("kvzip", "default", stream(7, None), FakeLLM(context_length=170, max_tokens=20))
    assert run.answers[-1].context.dropped > 0
    for position, seen in enumerate(shown(run)):
        assert seen == set(range(position + 1 - len(seen), position + 1)) and position in seen


# ---------------------------------------------------------------- beside the cells


def test_a_cell_asks_no_engine_and_its_job_has_what_its_model_needs() -> None:
    catalog = Catalog(ROOT)
    on_cpu, on_gpus = cell(model="tiny"), cell(model="qwen3-30b-imprintbench")
    assert catalog.asked(on_cpu) == {} and models_of(catalog, on_cpu) == ["tiny"]
    assert catalog.images(on_cpu) == [("kvzip", "transformers")] and gpus_of(catalog, on_cpu) == 0
    assert catalog.images(on_gpus) == [("kvzip", "vllm-gpu")] and gpus_of(catalog, on_gpus) == 4
    plain = Cell(BABI, "long_context", "default", "qwen3-30b-imprintbench")
    apart = batches(catalog, [plain, on_gpus])
    assert [batch.cells for batch in apart] == [(plain,), (on_gpus,)], "the GPUs hold one copy of the weights at a time"
    with mock.patch.dict(os.environ):  # which it sets for the jobs of its Snakemake
        workflow = Workflow(str(ROOT), {})
    needs = {one: workflow.needs([one]) for one in (plain, on_gpus)}
    assert needs[on_gpus].gpus == 4 and needs[on_gpus].mem_mb <= needs[plain].mem_mb
    assert workflow.weights(on_gpus.model) in workflow.inputs_of_batch(apart[1])(None)


def test_weights_lock_and_engine_are_in_the_identity(repository: Path) -> None:
    def planned() -> str:
        return identity.plan_identity(Catalog(repository), cell(model="tiny"))

    before = planned()
    changes = {
        "methods/kvzip/requirements.lock": "# another",
        "containers/transformers/requirements.lock": "# another",
        "src/upkeep/serving/sampling.py": "OTHER = 1",
        "methods/kvzip/method.py": "OTHER = 1",
        "src/upkeep/serving/make_model.py": "OTHER = 1",
    }
    for place, line in changes.items():
        text = (repository / place).read_text()
        (repository / place).write_text(f"{text}\n{line}\n")
        assert planned() != before, place
        (repository / place).write_text(text)
    card = repository / "methods/kvzip/method.yaml"
    card.write_text(card.read_text().replace("passes: 2", "passes: 3"))
    assert planned() == before


def test_a_plan_counts_what_it_asks_and_computes_each_context_once_for_its_questions(process: Catalog) -> None:
    suite = process.root / "config/suites/small.yaml"
    suite.write_text(
        f"label: Small\nsummary: Small.\npapers: []\ncells:\n"
        f"  - {{datasets: [{BABI}], methods: [kvzip, long_context], models: [tiny]}}\n"
    )
    planned = {job.job: job for job in make_plan(Catalog(process.root), "small").jobs}
    mine, plain = planned[str(cell(model="tiny"))], planned[f"{BABI}/long_context/default/tiny"]
    assert not [reason for reason in mine.unknown if "CPU-hours" not in reason]
    assert mine.plan.requests == plain.plan.requests == 80
    assert mine.plan.prompt_tokens == plain.plan.prompt_tokens
    # A context that has grown is compressed anew, and not extended.
    assert plain.plan.computed_tokens < mine.plan.computed_tokens < mine.plan.prompt_tokens / 2


def test_a_record_says_the_version_that_lies_over_what_is_below() -> None:
    plan = plans.image_for(Catalog(ROOT), "kvzip", "transformers")
    found = plan.imported({"transformers": "5.19.0", "huggingface_hub": "2.4.0", "torch": "2.13.0+cpu"})
    assert found["transformers"].startswith("5.2.") and found["huggingface_hub"].startswith("1.")
    assert found["torch"] == "2.13.0+cpu" and "huggingface-hub" not in found
    assert plan.packages is not None and plan.packages.imported({"torch": "2.13.0+cpu"}) == {"torch": "2.13.0+cpu"}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("engine: own", "engine: own\nmodel: false"), "model: false"),
        (("engine: own", "engine: own\ntrains: true"), "trains"),
        (("engine: own", "engine: own\nembedder: minilm"), "embedder"),
        (("ratio2: {ratio: 2}", "ratio2: {ratio: 2, writer: pico}"), "writer"),
        (("engine: own\n", ""), "passes"),
    ],
)
def test_a_card_that_says_what_does_not_go_with_an_own_engine_is_refused(
    repository: Path, change: tuple[str, str], told: str
) -> None:
    card = repository / "methods/kvzip/method.yaml"
    card.write_text(card.read_text().replace(*change))
    with pytest.raises(UpkeepError, match=told):
        Catalog(repository).method("kvzip")


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ("gpt-4o-mini", "an endpoint gives no weights"),
        ("pico+cartridges.tiny", "a prefix is served by"),
        ("none", "none"),
    ],
)
def test_a_model_that_it_cannot_run_is_refused_before_anything_starts(model: str, told: str) -> None:
    with pytest.raises(UpkeepError, match=told):
        Catalog(ROOT).check(cell(model=model))
