"""Claims about vLLM's attention on a CPU: requests that begin alike are answered as each of them by itself."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from conftest import ROOT
from engine_models import answers, chat, document, engine, spec, tiny
from upkeep.cell.interface import Message

__all__ = ["tiny"]

PROGRAM = """
import asyncio, json, sys
from pathlib import Path

import msgspec

from upkeep.cell.lockstep import Handle, lockstep
from upkeep.contract import EngineSettings, ModelSpec
from upkeep.serving import vllm_engine

card, weights, rounds, gib, at_once, given = sys.argv[1:]
spec = msgspec.json.decode(Path(card).read_bytes(), type=ModelSpec)
settings = EngineSettings(name="vllm", options={"kv_cache_gib": float(gib)})
engine = vllm_engine.VllmEngine(weights, spec, settings)

from upkeep.serving import vllm_attention

vllm_attention.AT_ONCE = int(at_once)
groups = []
plain = vllm_attention.shared_of

def counted(*given):
    found, left = plain(*given)
    groups.append((len(found), int(left.sum())))
    return found, left

vllm_attention.shared_of = counted

coordinator = engine._llm.engine_core.engine_core.scheduler.kv_cache_manager.coordinator
search, searched = coordinator.find_longest_cache_hit, []

def as_its_own(*given, **named):
    found = search(*given, **named)
    assert found == type(coordinator).find_longest_cache_hit(coordinator, *given, **named)
    searched.append(found[1])
    return found

coordinator.find_longest_cache_hit = as_its_own

async def asked(round):
    handles = [Handle(engine, spec, 0, f"p{n}") for n in range(len(round))]
    return await asyncio.gather(*(h.chat(m, top_logprobs=1) for h, m in zip(handles, round, strict=True)))

def replies():
    with lockstep(engine) as loop:
        return [loop.run(asked(round)) for round in json.loads(Path(rounds).read_text())]

together = replies()
seen = list(groups)
engine.reset()
groups.clear()
vllm_attention.FEWEST_REQUESTS = 10**9
alone = replies()
assert not any(found for found, _ in groups)
assert 0 in searched and max(searched) > 1000
Path(given).write_bytes(msgspec.json.encode([together, alone, seen]))
"""


BESIDE_THE_KERNEL = """
import math
from types import SimpleNamespace

import torch
from vllm import _custom_ops as ops
from vllm.v1.attention.backends import cpu_attn
from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackendImpl, CPUAttentionMetadata

from upkeep.serving import vllm_attention
from upkeep.serving.vllm_attention import Attention, Metadata, shared_of

BLOCKS = 900
layer = SimpleNamespace(isa="vec16", _k_scale_float=1.0, _v_scale_float=1.0)
vllm_attention.FEWEST_TOKENS, vllm_attention.MOST_OWN = 48, 100


def compare(heads, kv_heads, size, dtype, block, requests):
    # The largest difference from the kernel, how many requests are taken together, and how many are left.
    torch.manual_seed(heads + block)
    blocks, used = torch.randperm(BLOCKS, dtype=torch.int32), 0
    table = torch.zeros((len(requests), 60), dtype=torch.int32)
    for row, (begins, shared, rest, _) in enumerate(requests):
        same = next(other for other in range(len(requests)) if requests[other][0] == begins[0])
        whole, common = -(-(shared + rest) // block), min(shared, requests[same][1]) // block
        table[row, :whole] = blocks[used : used + whole]
        first = len(begins) - 1  # a block of its own, if it has the others' words there
        table[row, first:common] = table[same, first:common]
        used += whole
    lengths = torch.tensor([shared + rest for _, shared, rest, _ in requests], dtype=torch.int32)
    asked = torch.tensor([n for *_, n in requests], dtype=torch.int32)
    starts = torch.cat([torch.zeros(1, dtype=torch.int32), asked.cumsum(0, dtype=torch.int32)])
    cpu_attn.get_current_vllm_config = lambda: SimpleNamespace(model_config=SimpleNamespace(dtype=dtype))
    attention = Attention(heads, size, 0.7 / math.sqrt(size), kv_heads, None, None, "auto")
    cache = torch.zeros((BLOCKS, kv_heads, block, 2 * size), dtype=dtype)
    keys, values = torch.randn((2, BLOCKS * block, kv_heads, size), dtype=dtype)
    attention.do_kv_cache_update(layer, keys, values, cache, torch.arange(BLOCKS * block))
    query = torch.randn((int(starts[-1]), heads, size), dtype=dtype)

    def metadata(kind, rows, **more):
        own, ends = lengths[rows], torch.cat([starts[:1], asked[rows].cumsum(0, dtype=torch.int32)])
        plan = ops.cpu_attn_get_scheduler_metadata(
            num_reqs=len(own), num_heads=heads, num_kv_heads=kv_heads, head_dim=size, seq_lens=own, dtype=dtype,
            query_start_loc=ends, causal=True, sliding_window_size=-1, isa="vec16", enable_kv_split=False,
        )
        return kind(
            num_actual_tokens=int(ends[-1]), max_query_len=0, query_start_loc=ends, max_seq_len=0, seq_lens=own,
            block_table=table[rows], slot_mapping=torch.empty(0), scheduler_metadata=plan, **more,
        )

    by_kernel, found = torch.zeros_like(query), torch.zeros_like(query)
    given = metadata(CPUAttentionMetadata, lengths > 0)
    CPUAttentionBackendImpl.forward(attention, layer, query, query, query, cache, given, by_kernel)
    groups, rest = shared_of(table, lengths, starts, block, heads // kv_heads)
    left = rest.repeat_interleave(asked).nonzero()[:, 0]
    given = metadata(Metadata, rest, shared=groups, left=left)
    attention.forward(layer, query, query, query, cache, given, found)
    together = sorted(sum(len(own.blocks) for own in group.own) for group in groups)
    return (by_kernel.float() - found.float()).abs().max().item(), together, int(rest.sum())


# What each begins with, of how many tokens that is, how many follow, and how many of these are asked for.
REQUESTS = [
    ("a", 160, 5, 5), ("a", 160, 17, 1), ("b", 96, 3, 3), ("a", 160, 40, 31), ("c", 48, 9, 2), ("a", 160, 16, 1),
    ("a", 64, 7, 2), ("a", 160, 1, 1), ("b", 96, 40, 1), ("a", 160, 330, 300), ("b", 96, 3, 3), ("b", 96, 17, 1),
    ("b'", 96, 9, 2), *[("d", 480, 20, 4)] * 4, *[("d", 96, 20, 1)] * 4, ("d", 144, 400, 1),
]
for vllm_attention.AT_ONCE in (4096, 16):
    for dtype, most in ((torch.float32, 1e-5), (torch.bfloat16, 2e-2)):
        for heads, kv_heads, size in ((2, 1, 32), (4, 2, 64), (3, 3, 32)):
            for block in (16, 48):
                apart, *told = compare(heads, kv_heads, size, dtype, block, REQUESTS)
                assert apart < most, (dtype, heads, block, apart)
                assert told == [[4, 4, 4, 5], 5], (dtype, heads, block, told)
"""


def question(n: int) -> str:
    """Of 1 to some 60 words."""
    return f"Who is {n}? " + document(n, 1 + 7 * (n % 9))


def stream(name: str, documents: int, questions: int) -> list[list[Message]]:
    """Questions after so many of a stream's documents."""
    system = Message(role="system", parts=[f"The stream {name}. Read the text and answer. "])
    return [[system, *chat(documents, question(n), words=500)[1:]] for n in range(questions)]


ROUNDS = [
    stream("a", 3, 14),
    [*stream("a", 4, 14), *stream("b", 3, 9), *stream("c", 2, 2), *([m] for (_, m) in stream("d", 0, 3))],
    [*stream("b", 4, 9), *stream("a", 4, 14), *(stream("a", 3, 1) * 5)],
]
"""One stream; three, of which one is of two questions, and short prompts; earlier ones again, and one question five
times."""


@pytest.fixture(scope="module")
def on_transformers(tiny: Path) -> list[list[str]]:
    """What the other engine answers, one request after the other."""
    own = engine(tiny)
    return [[text for text, *_ in answers(own, round_)] for round_ in ROUNDS]


@pytest.mark.vllm
@pytest.mark.parametrize(("gib", "at_once"), [(0.25, 4096), (0.004, 16)], ids=["room for all", "room for two"])
def test_what_begins_alike_is_attended_to_together_and_answered_as_by_itself(
    tiny: Path, on_transformers: list[list[str]], tmp_path: Path, vllm_python: Path, gib: float, at_once: int
) -> None:
    card = spec(context_length=6000)
    (tmp_path / "card.json").write_bytes(msgspec.json.encode(card))
    (tmp_path / "rounds.json").write_text(json.dumps(ROUNDS))
    given = [tmp_path / "card.json", tiny, tmp_path / "rounds.json", str(gib), str(at_once), tmp_path / "found.json"]
    run_there(vllm_python, tmp_path, PROGRAM, *given)

    together, alone, groups = json.loads((tmp_path / "found.json").read_text())
    assert max(found for found, _ in groups) == 2  # streams in one step
    assert any(found and left for found, left in groups) and any(found and not left for found, left in groups)
    for expected, one, other in zip(on_transformers, together, alone, strict=True):
        assert texts(one) == texts(other) == expected
        for reply, same in zip(one, other, strict=True):
            told, by_itself = ([token["logprob"] for token in found["logprobs"]] for found in (reply, same))
            assert told == pytest.approx(by_itself, abs=1e-4)


def texts(replies: list[dict[str, Any]]) -> list[str]:
    return [reply["text"] for reply in replies]


@pytest.mark.vllm
def test_what_is_found_together_is_what_the_kernel_finds(tmp_path: Path, vllm_python: Path) -> None:
    run_there(vllm_python, tmp_path, BESIDE_THE_KERNEL)


def run_there(python: Path, folder: Path, program: str, *given: Path | str) -> None:
    """Run a program in the environment with vLLM."""
    path = folder / "program.py"
    path.write_text(program)
    subprocess.run([python, path, *given], env=os.environ | {"PYTHONPATH": str(ROOT / "src")}, check=True)
