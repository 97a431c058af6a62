"""Claims about decoding side by side: answers that do not depend on the company."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from array import array
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from conftest import ROOT
from engine_models import CHATS, QUESTIONS, SAMPLED, answers, chat, engine, spec, tiny, together
from upkeep.cell.lockstep import (
    Generate,
    Handle,
    Score,
    lockstep,
)
from upkeep.contract import Sampling
from upkeep.serving import keys, llama, transformers_engine
from upkeep.serving.lanes import BEGINNING_TOKENS, ROWS

__all__ = ["tiny"]


# ---------------------------------------------------------------- transformers


@pytest.mark.parametrize(
    "sampling", [None, SAMPLED, Sampling(repetition_penalty=1.3, presence_penalty=0.5, max_tokens=8)]
)
def test_an_answer_is_the_same_whatever_was_asked_before(tiny: Path, sampling: Sampling | None) -> None:
    warm = engine(tiny)
    forward = [text for text, _, _ in answers(warm, CHATS, sampling)]
    backward = [text for text, _, _ in answers(warm, CHATS[::-1], sampling)][::-1]
    cold = [text for text, _, _ in answers(engine(tiny, prefix_cache=False), CHATS, sampling)]
    assert forward == backward == cold
    assert len(set(forward)) > 3


@pytest.mark.parametrize(
    "sampling", [None, SAMPLED, Sampling(repetition_penalty=1.3, presence_penalty=0.5, max_tokens=8)]
)
@pytest.mark.parametrize("beginning", [BEGINNING_TOKENS, 30])
def test_an_answer_is_the_same_whatever_is_decoded_beside_it(
    beginning: int, tiny: Path, sampling: Sampling | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "BEGINNING_TOKENS", beginning)
    chats = [chat(n, q) for n in (1, 2, 3, 4, 5, 6, 7) for q in QUESTIONS]
    model: Any = engine(tiny)
    assert model.lanes >= 8
    single = [text for text, _, _ in answers(model, chats, sampling)]
    assert together(model, chats, sampling) == single
    assert all(model._held_in_lanes.lengths[: model.lanes])
    assert together(engine(tiny), chats[::-1], sampling) == single[::-1]
    assert together(model, chats, sampling, given_up=5) == single[5:]
    assert not model.busy
    assert len(set(single)) > 3


def test_what_waiting_prompts_share_is_computed_once_in_whatever_order_they_come(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where nothing is kept but the latest prompt."""
    monkeypatch.setattr(transformers_engine, "KEPT_TOKENS", 0)
    mixed = [CHATS[n] for n in (4, 0, 6, 1, 3, 7, 2, 8, 5)]
    waiting, grouped, one_by_one = engine(tiny), engine(tiny), engine(tiny)

    async def at_once() -> list[str]:
        asked = [Handle(waiting, spec(), 0, messages[-1]["parts"][-1]).chat(messages) for messages in mixed]
        return [reply.text for reply in await asyncio.gather(*asked)]

    with lockstep(waiting) as loop:
        found = loop.run(at_once())
    assert found == [text for text, _, _ in answers(one_by_one, mixed)]
    answers(grouped, CHATS)
    assert waiting.computed == grouped.computed < one_by_one.computed


@pytest.mark.parametrize("begun", [0, BEGINNING_TOKENS, BEGINNING_TOKENS + 1, 1500])
def test_rows_of_a_step_do_not_depend_on_each_other_or_on_their_number(begun: int, tiny: Path) -> None:
    """How many agree is the machine's matter; where none do, answers are decoded alone."""
    model: Any = engine(tiny)
    assert model._rows and {*model._rows} <= {*ROWS}
    with torch.inference_mode():
        alone = model._tried([[7] * model.lanes], begun)[0]
        for rows in model._rows:
            tokens = [7] * rows, [7 if n % 3 else n for n in range(rows)]
            alike, mixed = (model._tried([one], begun) for one in tokens)
            assert torch.equal(alike, alone.expand_as(alike))
            assert all(torch.equal(alone, mixed[n]) == (n % 3 > 0) for n in range(rows))


def test_on_a_gpu_no_beginning_is_attended_to_apart(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model: Any = engine(tiny)
    tried: list[int] = []

    def noted(tokens: list[list[int]], begun: int) -> torch.Tensor:
        tried.append(begun)
        return torch.zeros(len(tokens[0]), 3)

    monkeypatch.setattr(model, "_tried", noted)
    model._agreeing()
    assert {*tried} > {0}
    tried.clear()
    monkeypatch.setattr(model, "device", torch.device("cuda"))
    model._agreeing()
    assert {*tried} == {0}


def test_lanes_continue_as_the_plain_model_does(tiny: Path) -> None:
    from transformers import AutoModelForCausalLM

    model: Any = engine(tiny)
    prompts = [model.tokens.encode(text) for text in ("the captain took", "nobody in the old house", "a coin")]
    plain = AutoModelForCausalLM.from_pretrained(tiny)
    with torch.inference_mode():
        for n, ids in enumerate(prompts):
            model._crop(0)
            model._forward(ids, keep=1)
            model._held_in_lanes.fill(n, model._layers, [], 0)
        for step in range(3):
            latest = [(50 + n + step, len(ids)) for n, ids in enumerate(prompts)]
            logits = model._step([*range(len(prompts))], latest, model.lanes)
            for n, (token, _) in enumerate(latest):
                prompts[n].append(token)
                assert torch.allclose(logits[n], plain(torch.tensor([prompts[n]])).logits[0, -1], atol=1e-3)


@pytest.mark.parametrize("heads", [1, 3, 4])
def test_attention_to_two_places_is_that_to_all(heads: int) -> None:
    asked = torch.randn(5, 12, 1, 16)
    first = [torch.randn(1, heads, 40, 16) for _ in range(2)]
    rest = [[torch.randn(1, heads, 3 + n, 16) for _ in range(2)] for n in range(5)]
    whole = [
        llama.attention(query[None], *(torch.cat((one, other), 2) for one, other in zip(first, own, strict=True)))
        for query, own in zip(asked, rest, strict=True)
    ]
    for size in (5, 8):
        assert torch.allclose(llama.attention_divided(asked, first, rest, size), torch.cat(whole), atol=1e-6)


@pytest.mark.parametrize("tokens", [BEGINNING_TOKENS, BEGINNING_TOKENS + 37, 1100])
def test_attention_to_a_beginning_does_not_depend_on_who_has_it_too(tokens: int, tiny: Path) -> None:
    sizes = engine(tiny)._rows  # type: ignore[attr-defined]
    torch.manual_seed(tokens)
    asked, first = torch.randn(16, 4, 1, 32), [torch.randn(1, 2, tokens, 32) for _ in range(2)]
    rest = [[torch.randn(1, 2, 3 + 7 * n, 32) for _ in range(2)] for n in range(16)]
    alone = [llama.attention_divided(asked[n : n + 1], first, rest[n : n + 1], sizes[0]) for n in range(16)]
    for size in sizes:
        for number in range(1, size + 1):
            found = llama.attention_divided(asked[:number], first, rest[:number], size)
            assert torch.equal(found, torch.cat(alone[:number]))


def random_model(kind: str, dtype: torch.dtype, **more: Any) -> Any:
    """Of transformers."""
    from transformers import AutoConfig, AutoModelForCausalLM

    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "vocab_size": 300}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **sizes, **heads, **more), dtype=dtype).eval()
    with torch.inference_mode():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("tied", [False, True], ids=["two matrices", "one matrix"])
def test_a_model_that_is_read_from_its_files_is_the_one_that_transformers_loads(
    tmp_path: Path, kind: str, dtype: torch.dtype, tied: bool
) -> None:
    from upkeep.serving import llama_files

    theirs = random_model(kind, dtype, tie_word_embeddings=tied)
    theirs.save_pretrained(tmp_path, max_shard_size="100KB" if tied else "1GB")
    assert (tmp_path / "model.safetensors.index.json").is_file() == tied
    with torch.inference_mode():
        loaded, read = llama.of(theirs, 200), llama_files.read(tmp_path, dtype, theirs.device, 200)
        assert loaded is not None
        assert read is not None

        def attend(_: int, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
            return llama.attention(query, keys, values, llama.causal_mask(0, 150, dtype, theirs.device))

        tokens, places = torch.randint(300, (1, 150)), torch.arange(50, 200)[None]
        assert torch.equal(loaded(tokens, places, attend, 0), read(tokens, places, attend, 0))


LEFT: dict[str, dict[str, Any]] = {
    "scaled positions": {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
    "scaled positions in both places": {
        "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
        "rope_scaling": {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0},
    },
    "another base of positions by layer": {"rope_parameters": {"full_attention": {"rope_theta": 10000.0}}},
    "a part of each head turned": {"rope_parameters": {"rope_theta": 10000.0, "partial_rotary_factor": 0.5}},
    "another function": {"hidden_act": "gelu"},
    "numbers of a few bits": {"quantization_config": {"quant_method": "awq"}},
    "a window": {"model_type": "qwen2", "use_sliding_window": True},
    "windows in some layers": {"layer_types": ["sliding_attention", "full_attention"]},
    "another kind": {"model_type": "mistral"},
    "no word of heads": {"num_key_value_heads": ...},
    "no word of positions": {"rope_theta": ..., "rope_parameters": ...},
    "more words than there are rows": {"vocab_size": 100_000},
    "a bias that is not there": {"attention_bias": True},
    "a head of its own beside a tie": {"tie_word_embeddings": True},
    "fewer layers than there are": {"num_hidden_layers": 1},
    "an adapter beside it": {},
}


@pytest.mark.parametrize("why", LEFT)
def test_what_is_not_plainly_such_a_model_is_left_to_transformers(tiny: Path, tmp_path: Path, why: str) -> None:
    from upkeep.serving import llama_files

    shutil.copytree(tiny, tmp_path, dirs_exist_ok=True)
    cpu = torch.device("cpu")
    assert llama_files.read(tmp_path, torch.float32, cpu, 200) is not None
    config = json.loads((tmp_path / "config.json").read_text())
    if "tie" in why:
        weights = load_file(tmp_path / "model.safetensors")
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"] + 1
        save_file(weights, tmp_path / "model.safetensors")
    if "adapter" in why:
        (tmp_path / "adapter_config.json").write_text("{}")
    (tmp_path / "config.json").write_text(
        json.dumps({name: v for name, v in {**config, **LEFT[why]}.items() if v is not ...})
    )
    assert llama_files.read(tmp_path, torch.float32, cpu, 200) is None


def test_an_engine_of_a_plain_model_starts_without_the_models_of_transformers(tiny: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from test_lanes import engine; engine(Path(sys.argv[1])); "
        "print(sorted({'sympy', 'torch._dynamo', 'transformers.modeling_utils'} & sys.modules.keys()))"
    )
    paths = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}"}
    run = subprocess.run([sys.executable, "-c", code, str(tiny)], capture_output=True, text=True, check=True, env=paths)
    assert run.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_the_step_for_llama_and_its_kin_gives_the_very_bits_of_transformers(kind: str, dtype: torch.dtype) -> None:
    from upkeep.serving.keys import Held, as_cache

    theirs = random_model(kind, dtype)
    held, kept = [Held(), Held()], as_cache([Held(), Held()])
    with torch.inference_mode():
        ours = llama.of(theirs, 200)
        assert ours is not None
        for before, new in ((0, 20), (20, 1), (21, 30), (51, 1)):
            tokens, places = torch.randint(300, (1, new)), torch.arange(before, before + new)[None]
            mask = llama.causal_mask(before, new, dtype, tokens.device)

            def attend(n: int, query: torch.Tensor, *new: torch.Tensor, mask: Any = mask) -> torch.Tensor:
                return llama.attention(query, *held[n].update(*new), mask)

            wanted = theirs(input_ids=tokens, past_key_values=kept, use_cache=True).logits
            assert torch.equal(ours(tokens, places, attend, 0), wanted)


@pytest.mark.parametrize("why", ["long", "a machine whose rows differ"])
def test_what_takes_no_lane_is_answered_alone(tiny: Path, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    if why == "long":
        monkeypatch.setattr(transformers_engine, "LANE_TOKENS", 100)
    else:
        monkeypatch.setattr(
            transformers_engine.TransformersEngine,
            "_step",
            lambda self, lanes, latest, rows: torch.arange(rows * 3.0).reshape(rows, 3),
        )
    model: Any = engine(tiny)
    assert together(model, CHATS, None) == [text for text, _, _ in answers(engine(tiny), CHATS)]
    assert not model.busy
    assert not any(model._held_in_lanes.lengths)


@pytest.mark.parametrize("why", ["long", "scores"])
def test_what_takes_no_lane_is_answered_request_by_request(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    if why == "long":
        monkeypatch.setattr(transformers_engine, "LANE_TOKENS", 100)
    model = engine(tiny)

    async def main() -> None:
        future = asyncio.get_running_loop().create_future
        prompt = model.tokens.prompt(CHATS[0])
        for _ in range(3):
            if why == "long":
                model.add(Generate(prompt, Sampling(max_tokens=4), 0, future()))
            else:
                model.add(Score(prompt, array("i", [1, 2]), future()))
        assert [len(list(model.step())) for _ in range(3)] == [1, 1, 1]

    asyncio.run(main())
    assert not model.busy


def test_a_queue_of_all_kinds_gives_what_each_gives_alone(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transformers_engine, "LANE_TOKENS", 1000)
    model = engine(tiny)
    lengths = {model.tokens.prompt(messages).length > 1000 for messages in CHATS}
    assert lengths == {True, False}

    async def ask(n: int) -> object:
        if n % 3 == 2:
            return await Handle(model, spec(), 0, str(n)).logprobs("the captain took", f" a coin and {n} more")
        return (await Handle(model, spec(), 0, str(n)).chat(CHATS[n % len(CHATS)], SAMPLED)).text

    async def at_once() -> list[object]:
        return list(await asyncio.gather(*map(ask, range(24))))

    async def one_by_one() -> list[object]:
        return [await ask(n) for n in range(24)]

    with lockstep(model) as loop:
        assert loop.run(at_once()) == loop.run(one_by_one())


def test_an_engine_that_is_reset_in_mid_answer_is_as_new(tiny: Path) -> None:
    model = engine(tiny)

    async def begin() -> None:
        future = asyncio.get_running_loop().create_future
        for n in range(12):
            prompt = model.tokens.prompt(CHATS[n % len(CHATS)])
            model.add(Generate(prompt, Sampling(max_tokens=2 + 5 * n), 0, future()))
        assert len(list(model.step())) == 1

    asyncio.run(begin())
    assert model.busy
    model.reset()
    assert not model.busy
    assert answers(model, CHATS) == answers(engine(tiny), CHATS)
    assert model.computed == sum(prompt - cached for _, prompt, cached in answers(engine(tiny), CHATS))


def test_positions_that_depend_on_the_longest_sequence_take_no_lanes(tiny: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny, tmp_path, dirs_exist_ok=True)
    config = json.loads((tmp_path / "config.json").read_text())
    config["rope_parameters"] = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10_000.0}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert engine(tiny).lanes >= 8 > engine(tmp_path).lanes == 1
