"""Claims about what models learn from, and in which steps: tokens, masks, orders, batches, and what is refused."""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from finetunings import DOCUMENTS, FACTS, LORA, PAIRS, SMALL, given, trained
from method_fakes import PROMPTS, document
from method_runs import card
from test_methods import METHODS
from upkeep.cell.adapters import merge
from upkeep.cell.processes import shares
from upkeep.cell.samples import IGNORED, Material, Recipe, Sample
from upkeep.cell.training import Checkpoints, thinned
from upkeep.contract import Pair

WHOLE = SMALL | {"checkpoint_minutes": 10}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from upkeep.serving.make_model import tiny_llama

    folder = tmp_path_factory.mktemp("base")
    tiny_llama(folder, vocabulary=512)
    return folder


@pytest.fixture(scope="module")
def tokenizer(base: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(base, padding_side="right")


Make = Callable[[Material, Recipe], list[Sample]]


def samples(
    base: Path, tokenizer: Any, place: Path, make: Make, recipe: Recipe = WHOLE, **of: Any
) -> tuple[list[Sample], list[str]]:
    """The samples of a recipe, and the text of each."""
    found = make(Material(given(base, place / "model", **of), PROMPTS["oaks_babi"], tokenizer), recipe)
    return found, [tokenizer.decode(sample.tokens) for sample in found]


# ---------------------------------------------------------------- what is learnt


def test_every_token_of_a_document_is_learnt_once_and_no_piece_holds_two_documents(
    base: Path, tokenizer: Any, tmp_path: Path
) -> None:
    found, texts = samples(base, tokenizer, tmp_path, Material.documents)
    for place, one in enumerate(DOCUMENTS):
        mine = [(sample, text) for sample, text in zip(found, texts, strict=True) if sample.place == place]
        assert "".join(text for _, text in mine) == tokenizer.decode(
            [*tokenizer(one.text)["input_ids"], tokenizer.eos_token_id]
        )
        assert all(len(sample.tokens) == SMALL["piece_tokens"] for sample, _ in mine[:-1])
        assert not any(name in text for _, text in mine for name in FACTS if name not in one.text)
    assert all(sample.row()["labels"] == sample.tokens for sample in found)


def test_of_a_pair_the_reply_alone_is_learnt_and_read_as_the_model_is_asked(
    base: Path, tokenizer: Any, tmp_path: Path
) -> None:
    found, texts = samples(base, tokenizer, tmp_path, Material.pairs)
    for sample, text, (name, place) in zip(found, texts, FACTS.items(), strict=True):
        learnt = tokenizer.decode([token for token in sample.row()["labels"] if token != IGNORED])
        assert learnt.startswith(f"## Answer: {place}") and name not in learnt
        assert f"Where is {name}?" in text.removesuffix(learnt)
        assert sample.row()["labels"][: sample.learnt] == [IGNORED] * sample.learnt


def test_documents_and_pairs_are_interleaved_each_document_before_its_pairs(
    base: Path, tokenizer: Any, tmp_path: Path
) -> None:
    loose = Pair(question="Who is nowhere?", answer="Nina")
    found, texts = samples(base, tokenizer, tmp_path, Material.interleaved, pairs=[loose, *PAIRS[::-1]])
    kinds = [("?" in text, sample.place) for sample, text in zip(found, texts, strict=True)]
    assert [place for _, place in kinds] == sorted(place for _, place in kinds)
    for place in range(len(DOCUMENTS)):
        mine = [asks for asks, of in kinds if of == place]
        assert mine.count(True) == 1 and mine[-1], "its pieces, then its pair"
    assert "Nina" in texts[-1], "what names no document comes last"


@pytest.mark.parametrize(
    ("make", "recipe", "of", "problem"),
    [
        (Material.pairs, {}, {"pairs": [Pair(question="Who?", answer=" ")]}, r"pair 1 \('Who\?'\) has no answer"),
        (Material.pairs, {"max_tokens": 9}, {}, r"pair 1 .* cut to 9 tokens, of which none is of its answer"),
        (
            Material.pairs,
            {},
            {"pairs": [*PAIRS, Pair(question="word " * 3000, answer="a")]},
            r"pair 7 .* and the model reads 2048 at once",
        ),
        (Material.documents, {"piece_tokens": 4096}, {}, r"`piece_tokens` is 4096, and the model reads 2048"),
    ],
)
def test_what_cannot_be_learnt_is_named(
    make: Make, recipe: Recipe, of: dict[str, Any], problem: str, base: Path, tokenizer: Any, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=problem):
        samples(base, tokenizer, tmp_path, make, WHOLE | recipe, **of)


def test_nothing_to_learn_is_refused_before_anything_is_trained(base: Path, tmp_path: Path) -> None:
    empty = [msgspec.structs.replace(document(0), text="")]
    with pytest.raises(ValueError, match="nothing to learn"):
        trained("cpt", WHOLE, given(base, tmp_path / "model", documents=empty))


# ---------------------------------------------------------------- what a step reads


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the model is given in training, forward pass by forward pass."""
    from transformers import LlamaForCausalLM

    seen: list[dict[str, Any]] = []
    forward = LlamaForCausalLM.forward

    def noted(self: Any, *args: Any, **given: Any) -> Any:
        seen.append(given)
        return forward(self, *args, **given)

    monkeypatch.setattr(LlamaForCausalLM, "forward", noted)
    return seen


def rows(step: dict[str, Any]) -> Iterator[list[int]]:
    """The tokens of each row that are no padding."""
    for tokens, mask in zip(step["input_ids"], step["attention_mask"], strict=True):
        yield tokens[mask.bool()].tolist()


def test_each_row_that_a_model_reads_is_one_sample(
    steps: list[dict[str, Any]], base: Path, tokenizer: Any, tmp_path: Path
) -> None:
    trained("mixed_ft", WHOLE | {"batch": 4, "device_batch": 4}, given(base, tmp_path / "model"))
    expected, _ = samples(base, tokenizer, tmp_path / "again", Material.interleaved)
    read = [row for step in steps for row in rows(step)]
    assert sorted(read) == sorted([sample.tokens for sample in expected] * SMALL["epochs"])
    kinds = [{len(row) > SMALL["piece_tokens"] for row in rows(step)} for step in steps]
    assert {True, False} in kinds, "a step learns from documents and pairs together"


def logits_of(base: Path, batch: dict[str, Any]) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    with torch.no_grad():
        return AutoModelForCausalLM.from_pretrained(base)(**{k: v for k, v in batch.items() if k != "labels"}).logits


def packed(rows: list[dict[str, list[int]]]) -> dict[str, Any]:
    """Samples one after the other in one row, as if they were one: what a training must not do."""
    import torch

    joined = {name: [value for row in rows for value in row[name]] for name in rows[0]}
    return {name: torch.tensor([values]) for name, values in joined.items()}


@pytest.mark.parametrize("leaks", [False, True])
def test_no_token_of_one_sample_is_seen_from_another(leaks: bool, base: Path, tokenizer: Any, tmp_path: Path) -> None:
    """In a batch as the Trainer makes it. Where samples stand in one row, the same test sees that they leak."""
    from transformers import DataCollatorForSeq2Seq

    found, _ = samples(base, tokenizer, tmp_path, Material.interleaved)
    make = packed if leaks else DataCollatorForSeq2Seq(tokenizer)
    first, *others = (sample.row() for sample in sorted(found, key=lambda sample: len(sample.tokens))[-3:])
    changed = first | {"input_ids": [7] * len(first["input_ids"])}
    before, after = (logits_of(base, make([one, *others])) for one in (first, changed))
    assert before.shape == after.shape
    of_others = (0, slice(len(first["input_ids"]), None)) if leaks else (slice(1, None),)
    assert bool((before[of_others] - after[of_others]).abs().max() > 1e-4) == leaks


@pytest.mark.parametrize("order", ["arrival", None])
def test_the_order_of_arrival_is_kept_in_every_epoch_where_a_recipe_says_so(
    order: str | None, steps: list[dict[str, Any]], base: Path, tokenizer: Any, tmp_path: Path
) -> None:
    trained("mixed_ft", WHOLE | {"order": order}, given(base, tmp_path / "model"))
    expected, _ = samples(base, tokenizer, tmp_path / "again", Material.interleaved)
    read = [row for step in steps for row in rows(step)]
    epochs = [read[: len(expected)], read[len(expected) :]]
    tokens = [sample.tokens for sample in expected]
    assert [epoch == tokens for epoch in epochs] == [order == "arrival"] * 2
    assert all(sorted(epoch) == sorted(tokens) for epoch in epochs)


@pytest.mark.parametrize("devices", [1, 2, 4, 8])
@pytest.mark.parametrize("most", [1, 3, 8, 64])
@pytest.mark.parametrize("batch", [8, 64, 120])
def test_the_batch_is_the_recipes_whatever_the_number_of_devices(batch: int, most: int, devices: int) -> None:
    at_once, parts = shares(batch, most, devices)
    assert at_once * parts * devices == batch and at_once <= most


def test_a_batch_that_cannot_be_dealt_out_evenly_is_refused() -> None:
    with pytest.raises(ValueError, match="batch of 4 samples cannot be dealt out evenly to 3 devices"):
        shares(4, 4, 3)


def test_weights_do_not_depend_on_how_a_batch_is_divided(base: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    def made(name: str, **recipe: Any) -> dict[str, Any]:
        output = tmp_path / name
        trained("mixed_ft", WHOLE | {"learning_rate": 1e-3} | recipe, given(base, output))
        return load_file(output / "model.safetensors")  # type: ignore[no-any-return]

    whole, parts, smaller = made("a", batch=4, device_batch=4), made("b", batch=4), made("c", batch=2)
    apart = {
        one: max(float((whole[n] - other[n]).abs().max()) for n in whole)
        for one, other in (("parts", parts), ("smaller", smaller))
    }
    assert apart["parts"] < 1e-5 < 1e-4 < apart["smaller"]


# ---------------------------------------------------------------- stages


@pytest.mark.parametrize(("method", "order"), [("cpt_sft", ("cpt", "sft")), ("sft_cpt", ("sft", "cpt"))])
def test_two_stages_in_one_training_are_two_trainings_one_after_the_other(
    method: str, order: tuple[str, str], base: Path, tmp_path: Path
) -> None:
    """And their adapters, joined, add what the two add."""
    from safetensors.torch import load_file

    recipe = WHOLE | LORA
    trained(method, recipe, given(base, tmp_path / "both"))
    assert json.loads((tmp_path / "both/adapter_config.json").read_text())["r"] == 2 * LORA["lora_rank"]
    weights, adapters = base, []
    for name in order:
        trained(name, recipe, given(weights, tmp_path / name))
        adapters.append(tmp_path / name)
        weights = tmp_path / f"after_{name}"
        weights.mkdir()
        merge(base, adapters, weights)
    (tmp_path / "joined").mkdir()
    merge(base, [tmp_path / "both"], tmp_path / "joined")
    ours, theirs, old = (load_file(f / "model.safetensors") for f in (tmp_path / "joined", weights, base))
    assert max(float((ours[n] - theirs[n]).abs().max()) for n in ours) < 1e-6
    assert max(float((ours[n] - old[n]).abs().max()) for n in ours) > 1e-3


def test_each_stage_has_its_own_part_of_the_recipe(steps: list[dict[str, Any]], base: Path, tmp_path: Path) -> None:
    course = trained(
        "cpt_sft", WHOLE | {"cpt": {"batch": 1}, "sft": {"batch": 3, "device_batch": 3}}, given(base, tmp_path / "m")
    )
    sizes = [len(step["input_ids"]) for step in steps]
    assert sizes == sorted(sizes) and set(sizes) == {1, 3}
    assert course.steps == len(steps)


# ---------------------------------------------------------------- how it went


def test_a_training_tells_its_steps_tokens_and_losses(base: Path, tokenizer: Any, tmp_path: Path) -> None:
    course = trained("cpt", WHOLE | {"epochs": 6}, given(base, tmp_path / "model"))
    found, _ = samples(base, tokenizer, tmp_path / "again", Material.documents)
    assert course.steps == 6 * math.ceil(len(found) / SMALL["batch"])
    assert course.tokens == 6 * sum(len(sample.tokens) for sample in found)
    at, losses = zip(*course.losses, strict=True)
    assert list(at) == sorted(set(at)) and at[-1] == course.steps
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("method", [name for name in METHODS if card(name).trains])
def test_every_training_tells_how_it_went(method: str, base: Path, tmp_path: Path) -> None:
    course = trained(method, SMALL | LORA | {"piece_tokens": 24}, given(base, tmp_path / "model"))
    assert [step for step, _ in course.losses] == list(range(1, course.steps + 1))
    assert course.steps > 1 and course.tokens > course.steps
    assert all(loss > 0 for _, loss in course.losses)


def test_a_long_loss_curve_is_thinned_to_means() -> None:
    curve = [(n, float(n)) for n in range(1, 1001)]
    assert thinned(curve, 1000) == curve
    assert thinned(curve, 4) == [(250, 125.5), (500, 375.5), (750, 625.5), (1000, 875.5)]
    assert len(thinned(curve, 300)) <= 300


# ---------------------------------------------------------------- what goes wrong


def test_a_loss_that_is_no_number_ends_a_training_and_the_last_checkpoint_is_kept(base: Path, tmp_path: Path) -> None:
    training = given(base, tmp_path / "model")
    with pytest.raises(
        ValueError, match=r"step \d+: (loss|grad_norm) is (nan|inf).*step-0.*lower `learning_rate` than 1e"
    ):
        trained("cpt", SMALL | {"learning_rate": 1e18}, training)
    assert training.checkpoints.latest is not None and not training.output.exists()
    assert (training.checkpoints.latest / "trainer/trainer_state.json").exists()


@pytest.mark.parametrize("told", ["by the system", "by a library"])
def test_a_full_disk_is_named_and_the_last_checkpoint_is_gone_on_from(
    told: str, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = given(base, tmp_path / "model")
    recipe = SMALL | LORA
    save, free = Checkpoints.save, os.statvfs

    def full(self: Checkpoints, step: int, write: Callable[[Path], None]) -> None:
        def half(folder: Path) -> None:
            write(folder)
            if step == 4:
                if told == "by the system":
                    raise OSError(errno.ENOSPC, "No space left on device")
                raise RuntimeError("unexpected pos 64 vs 0")

        save(self, step, half)

    class Full:
        f_bavail, f_frsize = 0, 4096

    with monkeypatch.context() as patched:
        patched.setattr(Checkpoints, "save", full)
        if told == "by a library":
            patched.setattr("upkeep.cell.finetuning.os.statvfs", lambda _: Full)
        with pytest.raises(OSError, match=r"no space left to keep what is trained \(checkpoint step-000000000003 is"):
            trained("sft", recipe, training)
    assert os.statvfs is free
    again = given(base, tmp_path / "model")
    assert again.checkpoints.latest is not None and again.checkpoints.latest.name.endswith("3")
    trained("sft", recipe, again)
    trained("sft", recipe, given(base, tmp_path / "undisturbed"))
    made = [tmp_path / name / "adapter_model.safetensors" for name in ("model", "undisturbed")]
    assert made[0].read_bytes() == made[1].read_bytes()


def test_an_error_that_is_no_full_disks_is_left_as_it_is(base: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="piece_tokens"):
        trained("cpt", SMALL | {"piece_tokens": 10**6}, given(base, tmp_path / "model"))
