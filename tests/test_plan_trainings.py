"""Plans of trainings: memory is what a training is measured to take, and time follows from what it computes."""

from __future__ import annotations

import re
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
import yaml

from conftest import ROOT
from finetunings import TINY, given, trained
from method_fakes import PROMPTS, load
from shaped_models import DOCUMENTS, LORA, PAIRS, PARTS, PIECE, RECIPE, Base, base
from trainings import catalog
from upkeep.catalog import Catalog
from upkeep.cell import Tools
from upkeep.cell.processes import shares
from upkeep.contract import Attention, Pair, Widths
from upkeep.execution.trained_on import Member
from upkeep.jobs import Cell, Training
from upkeep.layout import Layout
from upkeep.operations.needs import trainings
from upkeep.operations.plan.amounts import TrainingPlan
from upkeep.operations.plan.assumptions import Options, assume
from upkeep.operations.plan.distilling import cartridge, self_distillation
from upkeep.operations.plan.estimate import make_plan
from upkeep.operations.plan.training import memory, operations
from upkeep.operations.plan.trainings import Trainings

__all__ = ["base", "catalog"]


def measured(train: Callable[[], object]) -> float:
    """Bytes that tensors have at most at a time in a training: of each storage that any operation makes, from then on
    until nothing refers to it. The weights are counted when they are first used; what an operation makes and frees
    within itself is not seen."""
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    known: dict[int, int] = {}
    held = most = 0

    def gone(key: int) -> None:
        nonlocal held
        held -= known.pop(key)

    class Counting(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal held, most
            out = func(*args, **(kwargs or {}))
            for tensor in tree_leaves((args, kwargs, out)):
                if isinstance(tensor, torch.Tensor) and tensor.device.type == "cpu":
                    storage = tensor.untyped_storage()
                    if (key := storage._cdata) not in known:
                        known[key] = storage.nbytes()
                        held += known[key]
                        weakref.finalize(storage, gone, key)
            most = max(most, held)
            return out

    with Counting():
        train()
    return float(most)


@pytest.fixture(params=[False, True], ids=["all", "inputs"])
def checkpoints(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[bool]:
    """Whether layers keep their inputs alone, as they do on GPUs."""
    from upkeep.cell import finetuning

    arguments = finetuning._Run._arguments

    def changed(run: Any) -> Any:
        made = arguments(run)
        made.gradient_checkpointing = request.param
        return made

    monkeypatch.setattr(finetuning._Run, "_arguments", changed)
    return bool(request.param)


@pytest.mark.parametrize("kind", [{}, LORA], ids=["full", "lora"])
def test_the_memory_that_is_planned_is_within_15_percent_of_what_is_measured(
    kind: dict[str, Any], checkpoints: bool, base: Base, tmp_path: Path
) -> None:
    recipe = RECIPE | kind
    training = given(base.folder, tmp_path / "model", base.spec, DOCUMENTS)
    found = measured(lambda: trained("cpt", recipe, training, seed=1))
    at_once, parts = shares(recipe["batch"], recipe["device_batch"])
    planned = memory(base.spec, recipe, at_once, parts, PIECE, checkpoints=checkpoints, on_gpus=False)
    assert planned.peak == pytest.approx(found, rel=0.15)


@pytest.mark.parametrize("kind", [{}, LORA], ids=["full", "lora"])
@pytest.mark.parametrize(("shown", "answer"), [(400, 8), (20, 64)], ids=["documents", "answers"])
def test_what_self_distillation_takes_is_within_15_percent_of_what_is_measured(
    kind: dict[str, Any], shown: int, answer: int, base: Base, tmp_path: Path
) -> None:
    """Where the teacher reads most of it, and where the student writes most."""
    from transformers import AutoTokenizer

    method = load("sdft")(PARTS | kind | {"completion_tokens": answer}, Tools(PROMPTS["oaks_babi"], seed=1))
    documents = [msgspec.structs.replace(one, text=one.text[:shown]) for one in DOCUMENTS]
    training = given(base.folder, tmp_path / "model", base.spec, documents, PAIRS)
    tokenizer = AutoTokenizer.from_pretrained(base.folder)
    rows = method._examples(training, tokenizer)
    asked, told = (
        max(len(tokenizer.apply_chat_template(row[of], add_generation_prompt=True)["input_ids"]) for row in rows)
        for of in ("prompt", "privileged_context")
    )
    found = measured(lambda: method.train(training))
    planned = self_distillation(base.spec, method.parameters, 1, 2, asked, told, on_gpus=False)
    assert planned.peak == pytest.approx(found, rel=0.15)


@pytest.mark.parametrize("prefix", [16, 512])
def test_what_a_prefix_takes_is_within_15_percent_of_what_is_measured(
    prefix: int, base: Base, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = load("cartridges")(PARTS | {"prefix": prefix}, Tools(PROMPTS["oaks_babi"], seed=1))
    module, rows, made = sys.modules[type(method).__module__], list[Any](), list[int]()

    def trainer(model: Any, given: Any, *rest: Any) -> Any:
        rows.extend(given)
        made.append(model.peft_config["default"].num_virtual_tokens)
        return real(model, given, *rest)

    real = module._trainer
    monkeypatch.setattr(module, "_trainer", trainer)
    training = given(base.folder, tmp_path / "model", base.spec, DOCUMENTS, PAIRS)
    found = measured(lambda: method.train(training))
    longest = max(len(row["input_ids"]) for row in rows)
    reply = max(len(row["known"]) for row in rows)
    planned = cartridge(base.spec, 1, 2, longest, reply, prefix, on_gpus=False)
    assert made == [prefix] and planned.peak == pytest.approx(found, rel=0.15)


# ---------------------------------------------------------------- what follows from the formula

BIG = msgspec.structs.replace(
    TINY,
    dtype="bfloat16",
    gpus=4,
    parameters_b=8.0,
    attention=Attention(layers=32, heads=32, kv_heads=8, head_size=128),
    widths=Widths(layers=32, hidden=4096, feed_forward=14336, vocabulary=128256),
)


def test_a_full_training_in_bfloat16_takes_eight_bytes_a_parameter_beside_activations() -> None:
    found = memory(BIG, RECIPE, 8, 8, 512)
    assert (found.weights, found.optimizer, found.gradients) == (16e9, 32e9, 16e9)
    assert found.peak == 64e9 + max(found.activations, 16e9)


def test_an_adapter_has_the_parameters_that_peft_gives_it(base: Base) -> None:
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    config = LoraConfig(task_type="CAUSAL_LM", r=8, target_modules="all-linear")
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(base.folder), config)
    trained_ones = sum(one.numel() for one in model.parameters() if one.requires_grad)
    assert memory(base.spec, RECIPE | LORA, 1, 1, PIECE).gradients == 4 * trained_ones


def test_more_gpus_take_less_each_and_activations_stay() -> None:
    one, four = memory(BIG, RECIPE, 8, 8, 512), memory(BIG, RECIPE, 8, 2, 512, devices=4)
    layer = (8e9 - 2 * 128256 * 4096) / 32 * 2
    assert four.weights == 16e9 / 4 + layer and four.optimizer == 8e9 and four.activations == one.activations


def test_operations_are_six_a_parameter_and_token_of_an_adapter_four_and_two_more_that_are_done_again() -> None:
    assert operations(BIG, RECIPE, 1e6, checkpoints=False) == 6 * 8e9 * 1e6
    assert operations(BIG, RECIPE | LORA, 1e6) == 6 * 8e9 * 1e6
    experts = msgspec.structs.replace(BIG, active_b=1.0)
    assert operations(experts, RECIPE, 1e6) == 8 * 1e9 * 1e6


# ---------------------------------------------------------------- the papers' trainings


@pytest.fixture(scope="module")
def papers() -> dict[Training, tuple[TrainingPlan | None, list[str]]]:
    """Each training of the papers' suites, planned where no dataset is at hand."""
    catalog = Catalog(ROOT)
    plans = Trainings(catalog, assume(catalog, Options()), lambda _: None)
    plans._dataset = lambda name: None  # type: ignore[method-assign]
    found = {}
    for paper in ("imprintbench", "evowiki", "prelude"):
        for job in trainings(catalog, catalog.cells(catalog.suite(paper))):
            plan = plans.plan(job, "h100")
            assert plan.hours is None and plan.unknown
            found[job] = (plan.training, [*plan.unknown])
    return found


def test_every_training_of_the_papers_is_planned_and_all_but_one_model_s_fit_their_gpus(
    papers: dict[Training, tuple[TrainingPlan | None, list[str]]],
) -> None:
    """Of the paper's largest model, self-distillation in full keeps 10 bytes a weight, where fine-tuning keeps 8."""
    methods = {"cpt", "sft", "mixed_ft", "cpt_sft", "sft_cpt", "in_domain_lora", "sdft", "cartridges"}
    assert {job.method for job in papers} == methods
    large = {job for job, (plan, _) in papers.items() if plan is not None and plan.memory.peak > 80e9}
    assert {(job.method, job.model) for job in large} == {("sdft", "qwen3-30b-imprintbench")}
    for job, (plan, unknown) in papers.items():
        assert plan is not None and 0 < plan.memory.weights < plan.memory.peak
        assert unknown[-1] == f"hours of training: {job.dataset} is not at hand"
        assert [one.startswith("it does not fit: ") for one in unknown[:-1]] == [True] * (job in large)


def test_a_training_that_does_not_fit_says_so() -> None:
    catalog = Catalog(ROOT)
    plans = Trainings(catalog, assume(catalog, Options()), lambda _: None)
    plans._dataset = lambda name: None  # type: ignore[method-assign]
    unknown = plans.plan(Training("imprint_news", "cpt", "full", "qwen3-32b"), "h100").unknown
    assert unknown[0].startswith("it does not fit: ") and "80 GB" in unknown[0]
    unknown = plans.plan(Training("imprint_news", "cpt", "full", "qwen2.5-72b"), "h100").unknown
    assert unknown == ["memory and hours of training: models/qwen2.5-72b/model.yaml has no widths"]


# ---------------------------------------------------------------- a user's own trainings

OURS = "from upkeep.cell.finetuning import Stage, finetune\n"
SELF = "from trl.experimental.sdft import SDFTConfig\n"
PREFIX = "from peft import CartridgeConfig, get_peft_model\n"
NEEDED: dict[str, Any] = {"epochs": 2, "batch": 4, "device_batch": 2, "piece_tokens": 64}


def own(catalog: Catalog, recipe: dict[str, Any], code: str = OURS, **model: Any) -> Catalog:
    """A repository whose method `trainer` has this code and recipe, with a model `m` on GPUs."""
    root = catalog.root
    card = root / "methods/trainer/method.yaml"
    card.write_text(yaml.safe_dump(yaml.safe_load(card.read_text()) | {"variants": {"a": recipe}}))
    (root / "methods/trainer/method.py").write_text(code)
    fields = {"label": "M", "summary": "s", "source": "hub", "location": "a/b", "revision": "1", "context_length": 4000}
    fields |= {"engine": "vllm", "dtype": "bfloat16", "gpus": 2, "parameters_b": 8.0}
    fields |= {"attention": msgspec.to_builtins(BIG.attention), "widths": msgspec.to_builtins(BIG.widths)}
    (root / "models/m").mkdir(parents=True, exist_ok=True)
    (root / "models/m/model.yaml").write_text(yaml.safe_dump(fields | model))
    (root / "config/gpus.yaml").write_bytes((ROOT / "config/gpus.yaml").read_bytes())
    return Catalog(root)


def planned(catalog: Catalog, chosen: str = "") -> tuple[TrainingPlan | None, float | None, list[str]]:
    plans = Trainings(catalog, assume(catalog, Options()), None)
    found = plans.plan(Training("toy", "trainer", "a", "m", chosen), "h100")
    return found.training, found.hours, [*found.unknown]


def test_a_users_own_fine_tuning_is_planned_on_the_gpus_of_one_node(catalog: Catalog) -> None:
    plan, hours, unknown = planned(own(catalog, NEEDED, nodes=2))
    assert plan is not None and plan.gpus == 2 and hours and not unknown


def test_a_users_own_distillations_are_planned_by_what_they_read_and_say(catalog: Catalog) -> None:
    long = planned(own(catalog, NEEDED))[0]
    shown, hours, said = planned(own(catalog, NEEDED | {"completion_tokens": 64}, SELF))
    assert long is not None and shown is not None and hours and not said
    assert shown.memory.weights > long.memory.weights + 7e9, "a teacher on two GPUs"
    assert shown.longest > long.longest + 64, "which reads the document, too"
    assert planned(own(catalog, NEEDED | {"completion_tokens": 128}, SELF))[1] > 1.5 * hours  # type: ignore[operator]
    recipe = NEEDED | {"prefix": 1000, "studies": 1, "completion": 50, "piece": 100}
    held, hours, said = planned(own(catalog, recipe, PREFIX))
    assert held is not None and hours and not said and held.longest > 100
    assert (held.at_once, held.parts) == (2, 2)
    assert planned(own(catalog, recipe | {"studies": 9}, PREFIX))[1] > hours  # type: ignore[operator]


def test_what_takes_turns_on_its_gpus_holds_all_of_them(catalog: Catalog) -> None:
    """Self-distillation is one process, of which each GPU has some layers; fine-tuning is one process a GPU."""
    for code, more, each in ((OURS, {}, 1), (SELF, {"completion_tokens": 64}, 2)):
        two, four = (planned(own(catalog, NEEDED | more, code, gpus=gpus))[1] for gpus in (2, 4))
        assert two and four == pytest.approx(each * two, rel=0.01)


def test_a_set_is_planned_by_each_of_its_members_in_whatever_order(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Members with fewer pairs than a batch have a smaller one, and an engine is started for each that is studied."""
    pairs = [Pair(question=f"Who is number {n}?", answer=f"word{n}") for n in range(100)]
    large, small = Member("large", DOCUMENTS, pairs), Member("small", DOCUMENTS[:1], pairs[:3])
    self = NEEDED | {"completion_tokens": 64, "batch": 64}
    prefix = NEEDED | {"prefix": 64, "studies": 1, "completion": 50, "piece": 100}
    for code, recipe in ((SELF, self), (PREFIX, prefix)):
        plans = []
        for found in ([large, small], [small, large], [large], [small]):
            monkeypatch.setattr("upkeep.operations.plan.trainings.members", lambda *_, found=found: found)
            plans.append(planned(own(catalog, recipe, code)))
        (both, hours, _), (turned, same, _), (one, first, _), (_, second, _) = plans
        assert both is not None and turned == both and one is not None and both.memory == one.memory
        assert hours == pytest.approx(same) and first and second
        assert hours == pytest.approx(first + second, rel=0.02)


@pytest.mark.parametrize(
    ("code", "recipe", "reason"),
    [
        ("# another trainer\n", {}, "trainer has a trainer of its own"),
        ("# another trainer\n", NEEDED, "trainer has a trainer of its own"),
        (OURS, {}, "the recipe trainer/a: .*`epochs`"),
        (OURS, NEEDED | {"batch": 0}, r"the recipe trainer/a: .*>= 1.*\$\.batch"),
        (OURS, NEEDED | {"piece_tokens": None}, r"the recipe trainer/a: .*\$\.piece_tokens"),
        ("from upkeep.cell import finetuning\n", NEEDED | {"adapter": "lora"}, "the recipe trainer/a: .*`lora_rank`"),
        (SELF, NEEDED, "the recipe trainer/a: .*`completion_tokens`"),
        (SELF, NEEDED | {"completion_tokens": 9, "adapter": "lora"}, "the recipe trainer/a: .*`lora_rank`"),
        (PREFIX, NEEDED | {"prefix": 9, "studies": 0}, "the recipe trainer/a: .*`completion`"),
    ],
)
def test_a_users_own_training_that_cannot_be_counted_is_unknown_and_says_why(
    catalog: Catalog, code: str, recipe: dict[str, Any], reason: str
) -> None:
    plan, hours, (unknown,) = planned(own(catalog, recipe, code))
    assert plan is None and hours is None
    assert re.fullmatch(f"memory and hours of training: {reason}.*", unknown)


def test_a_training_that_would_be_refused_is_unknown_with_the_reason(catalog: Catalog) -> None:
    plan, hours, unknown = planned(own(catalog, NEEDED), "odd")
    assert plan is None and hours is None and unknown == ["memory and hours of training: no slice 'nothing'"]


def test_a_plan_that_does_not_count_builds_no_dataset(catalog: Catalog) -> None:
    catalog = own(catalog, NEEDED)
    folder = Layout(catalog.results).dataset("toy")
    folder.rename(folder.with_name("before"))
    said: list[str] = []
    cells = [Cell("toy", "echo", "a", "m+trainer.a@toy")]
    plan = make_plan(catalog, "mini", say=said.append, cells=cells, count=False)
    (training,) = (job for job in plan.jobs if job.kind == "training")
    assert training.training is not None and training.unknown == ["hours of training: toy is not at hand"]
    assert not said and not folder.exists()
