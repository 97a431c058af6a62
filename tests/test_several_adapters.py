"""One engine for several adapters: each socket leads to its own, and each gives what it gives alone."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace as changed

from conftest import ROOT
from finetunings import TINY
from upkeep.catalog import Catalog
from upkeep.contract import CellDescription, EngineSettings, Resources
from upkeep.execution.share import Wanted
from upkeep.serving.several import listen

SRC = ROOT / "src"
CELL = CellDescription(
    task="answer",
    dataset="d",
    method="closed_book",
    variant="default",
    model="tiny",
    parameters={},
    model_spec=TINY,
    model_path=None,
    engine=EngineSettings(name="vllm", options={"kv_cache_gib": 0.25}),
    chunk_tokens=100,
    prompt=Catalog(ROOT).prompt_of("oaks_babi_mini"),
    output="",
)


def test_who_connects_to_a_socket_is_served_by_its_number_and_one_after_the_other(tmp_path: Path) -> None:
    served: list[tuple[int, bytes]] = []

    def serve_one(number: int, connection: socket.socket) -> None:
        if (said := connection.recv(9)) == b"fail":
            raise RuntimeError("the engine died")
        served.append((number, said))
        connection.sendall(b"done")

    paths = [tmp_path / str(number) / "engine.sock" for number in range(3)]
    status: list[int] = []
    thread = threading.Thread(target=lambda: status.append(listen(paths, serve_one)), daemon=True)
    thread.start()

    def say(number: int, text: bytes) -> bytes:
        with socket.socket(socket.AF_UNIX) as one:
            while not paths[-1].exists():
                threading.Event().wait(0.01)
            one.settimeout(60)
            one.connect(str(paths[number]))
            one.sendall(text)
            return one.recv(9)

    assert [say(number, b"%d" % number) for number in (2, 0, 2, 1)] == [b"done"] * 4
    assert served == [(2, b"2"), (0, b"0"), (2, b"2"), (1, b"1")]
    say(0, b"fail")
    thread.join(60)
    assert status == [3]


def test_members_of_one_set_have_one_engine_and_each_a_place_in_it() -> None:
    sets = [tuple(Path(one) for one in names) for names in (("a", "b"), ("a", "c"))]
    alone = Wanted(CELL, Path("base"), "vllm-cpu", Resources(), 0)
    first, second, other = (
        replace(alone, members=members, member=number) for members, number in ((sets[0], 0), (sets[0], 1), (sets[1], 1))
    )
    assert first.same_engine(second) and not first.same_engine(other) and not first.same_engine(alone)
    assert [str(one.place) for one in (alone, first, second)] == ["engine.sock", "0/engine.sock", "1/engine.sock"]


SCORES = """
import asyncio, json, sys
from array import array
import msgspec
from upkeep.cell.lockstep import Score
from upkeep.catalog import Catalog
from upkeep.contract import CellDescription
from upkeep.serving import several, vllm_prefixes
from upkeep.serving.loading import load_engine

vllm_prefixes.LONG = 0  # of short prompts, too, what was hashed before is not hashed again
cell = msgspec.json.decode(sys.argv[1], type=CellDescription)
adapters, together = sys.argv[4:], sys.argv[3] == "together"
engines = several.Several(cell, adapters, 1) if together else None
for number in json.loads(sys.argv[2]):
    if engines is None:
        asked = load_engine(msgspec.structs.replace(cell, adapters=[adapters[number]]))
    else:
        asked = engines.of(number)
        asked.reset()
    loop = asyncio.new_event_loop()
    found = asked.tokens.scorable("Mira is in the ", "attic and Zoltan is in the cellar.")
    asked.add(Score(found.prompt, array("i", found.ids), loop.create_future()))
    while asked.busy:
        for _, outcome in asked.step():
            print("SCORES", json.dumps(outcome), flush=True)
"""


@pytest.mark.vllm
def test_each_adapter_gives_in_a_shared_engine_what_it_gives_alone(vllm_python: Path, tmp_path: Path) -> None:
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    from upkeep.serving.make_model import tiny_llama

    base = tmp_path / "base"
    base.mkdir()
    tiny_llama(base, vocabulary=512)
    adapters = [tmp_path / name for name in ("first", "second")]
    for seed, adapter in enumerate(adapters):
        torch.manual_seed(seed)
        config = LoraConfig(
            task_type="CAUSAL_LM", r=(4, 16)[seed], target_modules="all-linear", init_lora_weights=False
        )
        get_peft_model(AutoModelForCausalLM.from_pretrained(base), config).save_pretrained(adapter)

    def scored(python: Path, engine: str, how: str, order: list[int]) -> list[list[float]]:
        """What one process gives with one adapter after the other."""
        settings = EngineSettings(name=engine, options={"kv_cache_gib": 0.25} if engine == "vllm" else {})
        told = msgspec.json.encode(changed(CELL, model_path=str(base), engine=settings)).decode()
        done = subprocess.run(
            [python, "-c", SCORES, told, json.dumps(order), how, *adapters],
            env=os.environ | {"PYTHONPATH": str(SRC)},
            capture_output=True,
            text=True,
        )
        lines = [line.removeprefix("SCORES ") for line in done.stdout.splitlines() if line.startswith("SCORES ")]
        assert len(lines) == len(order), done.stdout[-2000:] + done.stderr[-4000:]
        return [json.loads(line) for line in lines]

    first, second, again = scored(vllm_python, "vllm", "together", [0, 1, 0])
    merged = scored(Path(sys.executable), "transformers", "alone", [0, 1])
    assert again == first, "to the bit, whatever was asked in between"
    for ours, theirs in zip((first, second), merged, strict=True):
        assert max(abs(a - b) for a, b in zip(ours, theirs, strict=True)) < 1e-3
    assert max(abs(a - b) for a, b in zip(first, second, strict=True)) > 0.1
    exchanged = scored(Path(sys.executable), "transformers", "together", [0, 1, 0])
    assert exchanged == [*merged, merged[0]], "to the bit what each gives in a process of its own"
