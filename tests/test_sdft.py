"""What self-distillation does: models of a hundred thousand weights, and pico, are trained, here and now."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from method_fakes import PROMPTS, document, load
from method_runs import card
from upkeep.cell import Checkpoints, Document, Tools, Training
from upkeep.contract import ModelSpec, Pair

torch = pytest.importorskip("torch")

PLACES = {"Mira": "attic", "Zoltan": "cellar", "Anna": "harbour", "Peter": "tower", "Kofi": "garden", "Lena": "market"}
DOCUMENTS = [document(n, f"{name} went to the {place}.") for n, (name, place) in enumerate(PLACES.items())]
PAIRS = [
    Pair(question=f"Where is {name}?", answer=place, document=told.id)
    for (name, place), told in zip(PLACES.items(), DOCUMENTS, strict=True)
]
TINY = ModelSpec(label="tiny", summary="", source="rule", location="tiny_llama", context_length=2048, trained=False)
SHORT = {"epochs": 2, "batch": 3, "device_batch": 3, "completion_tokens": 8, "learning_rate": 1e-2}
VARIANTS = ("full", "lora_tiny")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from upkeep.serving.make_model import tiny_llama

    folder = tmp_path_factory.mktemp("base")
    tiny_llama(folder, vocabulary=512)
    return folder


def training(
    base: Path,
    output: Path,
    model: ModelSpec = TINY,
    pairs: Sequence[Pair] = PAIRS,
    documents: Sequence[Document] = DOCUMENTS,
) -> Training:
    output.mkdir(exist_ok=True)
    return Training(model, base, documents, pairs, output / "model", Checkpoints(output / "checkpoints"), no_model)


def no_model(_: object) -> Any:
    raise AssertionError("it asks no model")


def method(variant: str = "full", seed: int = 0, **parameters: Any) -> Any:
    tools = Tools(PROMPTS["oaks_babi"], seed=seed)
    return load("sdft")(card("sdft").variants[variant] | SHORT | parameters, tools)


def trainer(base: Path, output: Path, variant: str = "full", **parameters: Any) -> Any:
    return method(variant, **parameters).trainer(training(base, output), output)


def trained(base: Path, output: Path, variant: str = "full", **parameters: Any) -> bytes:
    made = training(base, output)
    method(variant, **parameters).train(made)
    (weights,) = made.output.glob("*.safetensors")
    return weights.read_bytes()


# ---------------------------------------------------------------- the loss

# Three tokens of an answer, and a place that is only padding. A row: what each of four tokens is thought to be worth.
STUDENT = [[0.26, 0.24, 0.4, 0.1], [0.1, 0.2, 0.3, 0.4], [0.7, 0.15, 0.1, 0.05], [0.97, 0.01, 0.01, 0.01]]
TEACHER = [[0.5, 0.3, 0.1, 0.1], [0.05, 0.15, 0.2, 0.6], [0.2, 0.1, 0.6, 0.1], [0.01, 0.01, 0.01, 0.97]]


def divergence(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(p * math.log(p / q) for p, q in zip(one, other, strict=True))


def test_the_loss_is_the_one_that_is_computed_by_hand_on_three_tokens(base: Path, tmp_path: Path) -> None:
    from trl.experimental.sdft.sdft_trainer import DistillationLogits

    student = torch.tensor([STUDENT]).log().add(3.0).requires_grad_()  # what is added to all of them changes nothing
    teacher = torch.tensor([TEACHER]).log().sub(5.0)
    given = DistillationLogits(torch.zeros(1, 4, dtype=torch.long), torch.tensor([[1, 1, 1, 0]]), student, teacher)
    made = trainer(base, tmp_path, teacher_top=2)
    loss = made._compute_self_distillation_loss(made.model, {}, given)
    # The two tokens that the teacher finds likeliest by themselves, the other two together: student, then teacher.
    by_hand = (
        divergence([0.26, 0.24, 0.5], [0.5, 0.3, 0.2])
        + divergence([0.4, 0.3, 0.3], [0.6, 0.2, 0.2])
        + divergence([0.1, 0.7, 0.2], [0.6, 0.2, 0.2])
    ) / 3
    assert loss.item() == pytest.approx(by_hand, abs=1e-5)
    other_way = (
        divergence([0.5, 0.3, 0.2], [0.26, 0.24, 0.5])
        + divergence([0.6, 0.2, 0.2], [0.4, 0.3, 0.3])
        + divergence([0.6, 0.2, 0.2], [0.1, 0.7, 0.2])
    ) / 3
    students_own = (
        divergence([0.4, 0.26, 0.34], [0.1, 0.5, 0.4])
        + divergence([0.4, 0.3, 0.3], [0.6, 0.2, 0.2])
        + divergence([0.7, 0.15, 0.15], [0.2, 0.1, 0.7])
    ) / 3
    assert min(abs(by_hand - other_way), abs(by_hand - students_own)) > 0.01, "each of these would have been seen"
    loss.backward()
    assert student.grad is not None and student.grad[0, :3].abs().sum() > 0.1
    assert student.grad[0, 3].abs().sum() == 0, "padding teaches nothing"


def test_it_is_the_reverse_divergence(base: Path, tmp_path: Path) -> None:
    """A student that bets on one of two answers that the teacher holds for possible is not far off; one that holds an
    answer for possible which the teacher rules out is."""
    from trl.experimental.sdft.sdft_trainer import DistillationLogits

    made = trainer(base, tmp_path, teacher_top=4)

    def loss(student: list[float], teacher: list[float]) -> float:
        rows = (torch.tensor([[row]]).log() for row in (student, teacher))
        given = DistillationLogits(torch.zeros(1, 1, dtype=torch.long), torch.ones(1, 1, dtype=torch.long), *rows)
        return float(made._compute_self_distillation_loss(made.model, {}, given))

    sure, torn = [0.999, 0.0009, 0.00005, 0.00005], [0.49995, 0.49995, 0.00005, 0.00005]
    assert loss(sure, torn) == pytest.approx(divergence(sure, torn), abs=1e-4)
    assert loss(sure, torn) < 1 < loss(torn, sure)


# ---------------------------------------------------------------- who reads what


def followed(made: Any) -> list[tuple[bool, str, bool]]:
    """What its network reads from now on: whether as the teacher, the text, and whether it can learn from it."""
    read: list[tuple[bool, str, bool]] = []
    tokenizer, student, teacher = made.processing_class, made.model, made.teacher_model
    adapted = student is teacher
    inner = student.get_base_model() if adapted else student
    layers = [module for module in inner.modules() if hasattr(module, "disable_adapters")]

    def note(as_teacher: bool | None) -> Any:
        def hook(module: Any, args: Any, kwargs: Any) -> None:
            taught = all(layer.disable_adapters for layer in layers) if as_teacher is None else as_teacher
            ids = kwargs["input_ids"] if "input_ids" in kwargs else args[0]
            read.extend((taught, tokenizer.decode(row), torch.is_grad_enabled()) for row in ids)

        return hook

    inner.model.register_forward_pre_hook(note(None if adapted else False), with_kwargs=True)
    if not adapted:
        teacher.model.register_forward_pre_hook(note(True), with_kwargs=True)
    return read


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_the_teacher_may_read_reaches_no_other(base: Path, tmp_path: Path, variant: str) -> None:
    made = trainer(base, tmp_path, variant)
    read = followed(made)
    made.train()
    taught = [text for teacher, text, _ in read if teacher]
    own = [text for teacher, text, _ in read if not teacher]
    learned = [text for teacher, text, learns in read if learns and not teacher]
    assert len(taught) == 4 * 3 and len(learned) >= 4 * 3
    assert not any(learns for teacher, _, learns in read if teacher), "the teacher learns nothing"
    for text in own:
        assert "sentinel" not in text and "Answer: " not in text.partition("Where is")[2]
    asked = {name for name in PLACES for text in own if f"Where is {name}?" in text}
    assert asked == set(PLACES)
    for text in taught:
        (name,) = [name for name in PLACES if f"Question: Where is {name}?\nAnswer: {PLACES[name]}" in text]
        number = list(PLACES).index(name)
        assert f"sentinel{number}xs {name} went to the {PLACES[name]}." in text
        assert text.count("sentinel") == 1, "of its own document"
        assert text.index("sentinel") < text.index("Question: Where") < text.rindex(f"Where is {name}?")


@pytest.mark.parametrize("variant", VARIANTS)
def test_both_read_the_answer_that_the_student_gave(base: Path, tmp_path: Path, variant: str) -> None:
    made = trainer(base, tmp_path, variant)
    read = followed(made)
    made.train()

    def answers(teacher: bool) -> list[str]:
        end = made.processing_class.pad_token
        found = [text for is_teacher, text, learns in read if is_teacher == teacher and (teacher or learns)]
        return [text.rpartition("<|assistant|>\n")[2].replace(end, "") for text in found]

    assert answers(True) == answers(False)[-len(answers(True)) :] and len(set(answers(True))) > 6


def test_answers_are_those_of_the_student_as_it_is_then(base: Path, tmp_path: Path) -> None:
    """Two students that learn at different rates answer alike before the first step, and otherwise after it."""
    answers = []
    for name, rate in (("slow", 1e-9), ("fast", 1e-1)):
        made = trainer(base, tmp_path / name, learning_rate=rate)
        read = followed(made)
        made.train()
        answers.append([text for teacher, text, _ in read if teacher])
    slow, fast = answers
    assert slow[:3] == fast[:3] and all(a != b for a, b in zip(slow[3:], fast[3:], strict=True))


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_teacher_stays_what_the_student_was(base: Path, tmp_path: Path, variant: str) -> None:
    from transformers import AutoModelForCausalLM

    made = trainer(base, tmp_path, variant)
    made.train()
    ids = torch.arange(1, 40).reshape(1, -1)
    with torch.no_grad():
        before = AutoModelForCausalLM.from_pretrained(base)(input_ids=ids).logits
        with made._get_teacher_context_for_self_distillation():
            assert torch.equal(made.teacher_model(input_ids=ids).logits, before)
        assert not torch.allclose(made.model(input_ids=ids).logits, before, atol=1e-3)


def test_of_a_pair_without_a_document_the_teacher_reads_the_pair(base: Path, tmp_path: Path) -> None:
    pairs = [msgspec.structs.replace(pair, document=None) for pair in PAIRS]
    made = method().trainer(training(base, tmp_path, pairs=pairs, documents=DOCUMENTS), tmp_path)
    for row in made.train_dataset:
        shown = row["privileged_context"][-1]["content"]
        assert "Answer: " in shown and "sentinel" not in shown


# ---------------------------------------------------------------- order, steps, seed


@pytest.mark.parametrize(("pairs", "batch", "device_batch", "steps"), [(6, 4, 4, 3), (6, 4, 3, 3), (5, 64, 8, 2)])
def test_every_pair_is_asked_in_every_epoch(
    base: Path, tmp_path: Path, pairs: int, batch: int, device_batch: int, steps: int
) -> None:
    made = method(batch=batch, device_batch=device_batch)
    built = made.trainer(training(base, tmp_path, pairs=PAIRS[:pairs]), tmp_path)
    asked = [row["prompt"][-1]["content"] for row in built.train_dataset]
    for epoch in range(2):
        assert len(set(asked[epoch * pairs : (epoch + 1) * pairs])) == pairs
    assert asked[:pairs] != asked[pairs : 2 * pairs], "in an order of its own"
    read = followed(built)
    built.train()
    assert built.state.global_step == steps
    assert sum(teacher for teacher, _, _ in read) == len(asked) == steps * min(batch, pairs)


@pytest.mark.parametrize("variant", VARIANTS)
def test_training_depends_on_the_seed_and_on_nothing_else(base: Path, tmp_path: Path, variant: str) -> None:
    made = [trained(base, tmp_path / str(n), variant, seed=seed) for n, seed in enumerate((0, 0, 1))]
    assert made[0] == made[1] != made[2]


def test_a_batch_in_parts_teaches_what_the_whole_teaches(base: Path, tmp_path: Path) -> None:
    from safetensors.torch import load

    whole, parts = (
        load(trained(base, tmp_path / str(n), batch=6, device_batch=n, epochs=1, learning_rate=1e-4)) for n in (6, 2)
    )
    for name, tensor in whole.items():
        assert (tensor - parts[name]).abs().max() < 1e-5, name


# ---------------------------------------------------------------- what it makes


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_trained_model_is_one_more_plain_model(base: Path, tmp_path: Path, variant: str) -> None:
    before = (base / "model.safetensors").read_bytes()
    assert trained(base, tmp_path, variant) != before == (base / "model.safetensors").read_bytes()
    old, new = (json.loads((folder / "config.json").read_text()) for folder in (base, tmp_path / "model"))
    assert [new[name] for name in ("architectures", "vocab_size")] == [old["architectures"], old["vocab_size"]]
    names = {path.name for path in (tmp_path / "model").iterdir()}
    assert names >= {"config.json", "model.safetensors", "tokenizer.json"} and not any("adapter" in n for n in names)


def test_an_adapter_says_the_same_wherever_its_model_lay(base: Path, tmp_path: Path) -> None:
    elsewhere = shutil.copytree(base, tmp_path / "elsewhere")
    one, other = (trained(b, tmp_path / str(n), "lora_tiny", train_whole=None) for n, b in enumerate((base, elsewhere)))
    assert one == other
    configs = [(tmp_path / str(n) / "model/adapter_config.json").read_text() for n in range(2)]
    assert configs[0] == configs[1] and json.loads(configs[0])["base_model_name_or_path"] == TINY.location


# ---------------------------------------------------------------- the paper's numbers


def test_the_recipe_is_the_papers() -> None:
    """C.2 and Table 11."""
    variants = card("sdft").variants
    swept = {name: p for name, p in variants.items() if name.startswith("full")}
    assert sorted(p["learning_rate"] for p in swept.values()) == [5e-6, 1e-5, 5e-5]
    for p in swept.values():
        told = [p[name] for name in ("epochs", "batch", "completion_tokens", "teacher_top")]
        assert told == [2, 64, 256, 100] and "adapter" not in p


def test_it_is_compared_with_sft_on_equal_terms() -> None:
    own, other = (card(method).variants["lora_tiny"] for method in ("sdft", "sft"))
    assert {name: own[name] for name in own.keys() & other.keys()} == {
        name: other[name] for name in own.keys() & other.keys()
    }
    assert (
        own.keys() ^ other.keys() == {"completion_tokens", "teacher_top", "lora_dropout"} and not other["lora_dropout"]
    )


# ---------------------------------------------------------------- what is wrong with what it is given


def test_without_pairs_there_is_nothing_to_learn(base: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there are no pairs to train on"):
        method().train(training(base, tmp_path, pairs=[]))


@pytest.mark.parametrize("long", ["the document", "the question"])
def test_what_the_context_does_not_hold_is_refused_and_not_cut(base: Path, tmp_path: Path, long: str) -> None:
    words = "word " * 2048
    documents, pairs = list(DOCUMENTS), list(PAIRS)
    if long == "the document":
        documents[3] = document(3, words)
    else:
        pairs[3] = msgspec.structs.replace(pairs[3], question=f"{words}where is Peter?")
    given = training(base, tmp_path, pairs=pairs, documents=documents)
    with pytest.raises(ValueError, match=r"of document 's-3' is \d+ tokens.*at most 2040") as caught:
        method().train(given)
    assert "Peter" in str(caught.value) and not given.output.exists()


def test_a_loss_that_is_no_number_ends_the_training_and_leaves_the_last_good_checkpoint(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = training(base, tmp_path)
    made = method(checkpoint_minutes=0)
    built = made.trainer(given, tmp_path)
    loss, calls = built._compute_self_distillation_loss, iter(range(100))
    monkeypatch.setattr(
        built, "_compute_self_distillation_loss", lambda *a: loss(*a) * (math.nan if next(calls) == 2 else 1)
    )
    monkeypatch.setattr(made, "trainer", lambda *_: built)
    with pytest.raises(FloatingPointError, match=r"step 3 .* learning rate below 0.01"):
        made.train(given)
    latest = given.checkpoints.latest
    assert latest is not None and latest.name.endswith("2") and not given.output.exists()
    from safetensors.torch import load_file

    assert all(tensor.isfinite().all() for tensor in load_file(latest / "model.safetensors").values())


def test_a_learning_rate_that_is_far_too_large_is_told(base: Path, tmp_path: Path) -> None:
    with pytest.raises(FloatingPointError, match="expected: finite ones"):
        method(learning_rate=1e30).train(training(base, tmp_path))
