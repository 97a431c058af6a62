"""What kvzip's engine does with the embedded models, looked at where kvpress is: run in the method's own environment.

python -c TEXT-OF-THIS-FILE MODEL-FOLDER OUTPUT-FILE
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from upkeep.cell.interface import Message
from upkeep.cell.loading import load_method
from upkeep.cell.lockstep import Generate, Generated, Score
from upkeep.cell.wire import Options
from upkeep.contract import ModelSpec, Sampling

DOCUMENTS = [f"Mira went to the attic on day {day} and took letter {day * 7 % 11}." for day in range(30)]
QUESTIONS = ["Where is Mira?", "What did she take on day 3?", "Which of these is right? " + "one, two, three; " * 40]
SPEC = ModelSpec(label="pico", summary="", source="path", location="pico", context_length=2048)
SAMPLED = Sampling(temperature=0.7, top_p=0.95, top_k=20, max_tokens=8)
RATIOS = (1, 2, 3, 16)


def messages(question: str, documents: Sequence[str] = DOCUMENTS) -> list[Message]:
    return [
        Message(role="system", parts=["Answer from the documents."]),
        Message(role="user", parts=["## Context:\n", *(f"\n{one}" for one in documents), f"\n\n{question}"]),
    ]


def request(engine: Any, question: str, sampling: Sampling, documents: Sequence[str] = DOCUMENTS) -> Generate:
    prompt = engine.tokens.prompt(messages(question, documents))
    return Generate(prompt, sampling, 7, asyncio.new_event_loop().create_future())


def outcome(engine: Any, asked: Any) -> Any:
    engine.add(asked)
    ((_, found),) = engine.step()
    return found


def answers(engine: Any, questions: Sequence[str], sampling: Sampling) -> list[list[int]]:
    found = [outcome(engine, request(engine, question, sampling)) for question in questions]
    assert all(isinstance(one, Generated) for one in found), found
    return [list(one.ids) for one in found]


def dropped(engine: Any) -> list[list[int]]:
    """Of each layer, the pairs that are dropped, as head and place in one number."""
    length = len(engine._context)
    layers = [layer.self_attn.masked_key_indices for layer in engine.model.model.layers]
    return [
        sorted((heads * length + places).tolist()) if masked else []
        for masked in layers
        for _, heads, places in [masked or (0, 0, 0)]
    ]


def look(method: Any, model: Path) -> dict[str, Any]:
    import torch

    greedy = Sampling(temperature=0.0, max_tokens=8)
    module = sys.modules[method.__module__]
    engines = {ratio: module.Compressed(model, SPEC, ratio, 1) for ratio in RATIOS}
    found: dict[str, Any] = {"kept": {}, "pairs": 0}
    for ratio, engine in engines.items():
        answers(engine, QUESTIONS[:1], greedy)
        found["kept"][ratio] = engine.kept_share
        config = engine.model.config
        found["pairs"] = config.num_hidden_layers * config.num_key_value_heads * len(engine._context)

    # The same model without compression, all of a prompt at once.
    plain, whole = engines[1].model, []
    for question in QUESTIONS:
        ids = request(engines[1], question, greedy).prompt.ids()
        with torch.inference_mode():
            said = plain.generate(torch.tensor([ids]), do_sample=False, max_new_tokens=8, pad_token_id=0)
        stop = engines[1].chat_tokens.stop_ids
        whole.append([token for token in said[0, len(ids) :].tolist() if token not in stop])
    alike = [
        [t for t in one if t not in engines[1].chat_tokens.stop_ids] for one in answers(engines[1], QUESTIONS, greedy)
    ]
    found["whole"], found["at_ratio_1"] = whole, alike

    # What was asked before, and what else was read, changes nothing.
    engine = engines[16]
    forward = answers(engine, QUESTIONS, SAMPLED)
    first = dropped(engine)
    outcome(engine, request(engine, QUESTIONS[0], SAMPLED, DOCUMENTS[:5]))
    backward = answers(engine, QUESTIONS[::-1], SAMPLED)[::-1]
    again = [answers(module.Compressed(model, SPEC, 16, 1), [question], SAMPLED)[0] for question in QUESTIONS]
    found["orders"] = [forward, backward, again]
    found["chosen_alike"] = first == dropped(engine) and any(first)
    length, heads = len(engine._context), engine.model.config.num_key_value_heads
    found["sinks"] = sum(one % length < 4 for layer in first for one in layer)
    found["uneven"] = len({len(layer) for layer in first}) > 1 or heads == 1

    # Where the question begins.
    prompts = [engine.tokens.prompt(messages(question)) for question in QUESTIONS]
    contexts = [engine.tokens.tokenizer.decode(one.ids()[: one.context]) for one in prompts]
    rests = [engine.tokens.tokenizer.decode(one.ids()[one.context :]) for one in prompts]
    found["contexts"], found["rests"] = contexts, rests
    outcome(engine, request(engine, QUESTIONS[1], SAMPLED))
    trials = [outcome(engine, request(engine, QUESTIONS[0], SAMPLED)).cached for _ in range(2)]
    found["cached"] = [prompts[0].context, *trials, prompts[0].length]

    asked = request(engine, QUESTIONS[0], greedy)
    asked.options = Options(stop=["."])
    score = Score(asked.prompt, asked.prompt.segments[0], asyncio.new_event_loop().create_future())
    found["refused"] = [str(outcome(engine, one)) for one in (asked, score)]
    found["mixture"] = mixture(module)
    return found


def mixture(module: Any) -> float:
    """How far the queries by which kvpress scores are from those of a mixture of experts."""
    import torch
    from kvpress.utils import get_prerope_query_states
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "moe_intermediate_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = Qwen3MoeConfig(
        vocab_size=64, head_dim=16, num_hidden_layers=1, num_experts=4, num_experts_per_tok=2, **sizes
    )
    model = Qwen3MoeForCausalLM(config)
    module._require_known(model, SPEC)
    attention, states = model.model.layers[0].self_attn, torch.randn(1, 5, 64)
    with torch.no_grad():
        attention.q_norm.weight.mul_(3)
        own = attention.q_norm(attention.q_proj(states).view(1, 5, 4, 16)).transpose(1, 2)
        return float((get_prerope_query_states(attention, states) - own).abs().max())


if __name__ == "__main__":
    methods = Path(os.environ["UPKEEP_METHODS"])
    Path(sys.argv[2]).write_text(json.dumps(look(load_method(methods, "kvzip"), Path(sys.argv[1]))))
