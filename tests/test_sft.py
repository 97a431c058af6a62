"""What the method that trains does: models of a hundred thousand weights are trained, here and now."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from finetunings import FACTS, TINY, given, trained, variant
from method_fakes import FakeLLM, document, probe
from method_runs import card, make
from upkeep.cell import Message, Reply, Sampling, Seen
from upkeep.cell.adapters import merge
from upkeep.contract import ModelSpec


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from upkeep.serving.make_model import tiny_llama

    folder = tmp_path_factory.mktemp("base")
    tiny_llama(folder, vocabulary=1024)
    return folder


def train(base: Path, output: Path, name: str, model: ModelSpec = TINY, seed: int = 0, **parameters: Any) -> Path:
    trained("sft", variant("sft", name, **parameters), given(base, output, model, documents=[]), seed)
    return output


def right_answers(folder: Path) -> int:
    """Facts that the model in `folder` gives, greedily, when `closed_book` asks."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer, network = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)

    class Tiny(FakeLLM):
        async def chat(self, messages: Sequence[Message], sampling: Sampling | None = None) -> Reply:
            chat = [{"role": m["role"], "content": "".join(m["parts"])} for m in messages]
            asked = tokenizer.apply_chat_template(
                chat, add_generation_prompt=True, return_tensors="pt", return_dict=True
            )
            output = network.generate(**asked, max_new_tokens=16, do_sample=False)
            text = tokenizer.decode(output[0, asked["input_ids"].shape[1] :], skip_special_tokens=True)
            return Reply(text, None, "stop", 0, 0, 0)

    async def ask(name: str) -> str | None:
        method = make("closed_book", "default")
        return (await method.answer(probe(5, f"Where is {name}?"), Seen([document(0)]), Tiny())).response

    return sum(asyncio.run(ask(name)) == f"## Answer: {place}" for name, place in FACTS.items())


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def test_a_trained_model_answers_facts_that_its_base_did_not(base: Path, tmp_path: Path) -> None:
    before = weights(base)
    made = train(base, tmp_path / "model", "lora_tiny")
    assert right_answers(base) == 0
    assert right_answers(made) > len(FACTS) / 2, "two layers of random weights confuse a fact now and then"
    assert weights(base) == before, "the base is left as it was"


@pytest.mark.parametrize("name", ["lora_tiny", "full"])
def test_a_trained_model_is_one_more_plain_model(base: Path, tmp_path: Path, name: str) -> None:
    made = train(base, tmp_path / "model", name, learning_rate=1e-2, epochs=2)
    files = {p.name for p in made.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= files
    assert not any("adapter" in name for name in files), "an adapter with whole layers is merged"
    old, new = (json.loads((f / "config.json").read_text()) for f in (base, made))
    assert new["architectures"] == old["architectures"]
    assert new["vocab_size"] == old["vocab_size"]
    assert weights(made) != weights(base)
    from transformers import AutoTokenizer

    chat = [{"role": "user", "content": "Where is Mira?"}]
    assert len({AutoTokenizer.from_pretrained(f).apply_chat_template(chat, tokenize=False) for f in (base, made)}) == 1


def test_evowikis_own_recipe_is_the_papers_and_is_what_trains(base: Path, tmp_path: Path) -> None:
    """EvoWiki, C: 3 epochs, batch 32, 5e-6, 256 tokens at most, LoRA with rank 16 and alpha 256."""
    p = card("sft").variants["lora_evowiki"]
    told = [p[n] for n in ("epochs", "batch", "learning_rate", "max_tokens", "lora_rank", "lora_alpha")]
    assert told == [3, 32, 5e-6, 256, 16, 256]
    made = {
        name: (train(base, tmp_path / name, "lora_evowiki", **other) / "adapter_model.safetensors").read_bytes()
        for name, other in {"a": {}, "b": {}, "cosine": {"schedule": "cosine"}, "cut": {"max_tokens": 84}}.items()
    }
    assert made["a"] == made["b"] and len(set(made.values())) == 3, "schedule and length are used"


def test_an_adapter_says_the_same_wherever_its_model_lay(base: Path, tmp_path: Path) -> None:
    elsewhere = shutil.copytree(base, tmp_path / "elsewhere")
    made = [train(b, tmp_path / str(n), "lora", learning_rate=1e-2) for n, b in enumerate((base, elsewhere))]
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        assert (made[0] / name).read_bytes() == (made[1] / name).read_bytes(), name
    assert not (made[0] / "model.safetensors").exists()


def test_an_adapter_that_is_merged_is_the_one_that_peft_merges_and_gives_what_it_gives_unmerged(
    base: Path, tmp_path: Path
) -> None:
    import torch
    from peft import PeftModel
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM

    adapter = train(base, tmp_path / "adapter", "lora", learning_rate=1e-2)
    (tmp_path / "merged").mkdir()
    merge(base, [adapter], tmp_path / "merged")
    unmerged = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), adapter)
    ids = torch.arange(3, 67).reshape(2, 32)
    with torch.inference_mode():
        beside = unmerged(ids).logits
        merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")(ids).logits
        bare = AutoModelForCausalLM.from_pretrained(base)(ids).logits
    assert (beside - bare).abs().max() > 1e-2, "it has learnt something"
    assert (beside - merged).abs().max() < 1e-4
    loaded = unmerged.merge_and_unload()
    loaded.save_pretrained(tmp_path / "theirs")
    ours, theirs, old = (load_file(f / "model.safetensors") for f in (tmp_path / "merged", tmp_path / "theirs", base))
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert (ours[name] - tensor).abs().max() < 1e-6, name
    changed = {name for name in ours if not ours[name].equal(old[name])}
    assert changed and all("proj" in name for name in changed)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"use_dora": True}, "use_dora"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"peft_type": "IA3"}, "peft_type"),
    ],
)
def test_an_adapter_of_another_kind_is_refused(base: Path, tmp_path: Path, change: dict[str, Any], found: str) -> None:
    adapter = train(base, tmp_path / "adapter", "lora")
    config = adapter / "adapter_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | change))
    (tmp_path / "merged").mkdir()
    with pytest.raises(ValueError, match=f"{found} other than plain"):
        merge(base, [adapter], tmp_path / "merged")


def test_training_depends_on_the_seed_and_on_nothing_else(base: Path, tmp_path: Path) -> None:
    made = [weights(train(base, tmp_path / str(n), "lora_tiny", seed=s, epochs=2)) for n, s in enumerate((0, 0, 1))]
    assert made[0] == made[1]
    assert made[0] != made[2]


def test_the_cards_chat_template_is_trained_on_and_saved(base: Path, tmp_path: Path) -> None:
    template = (
        "{% for m in messages %}[{{ m.role }}]{{ m.content }}{{ eos_token }}{% endfor %}"
        "{% if add_generation_prompt %}[assistant]{% endif %}"
    )
    model = msgspec.structs.replace(TINY, chat_template=template)
    made = train(base, tmp_path / "model", "full", model, epochs=1)
    from transformers import AutoTokenizer

    assert AutoTokenizer.from_pretrained(made).chat_template == template
