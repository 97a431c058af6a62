"""The suite beside other ways to ask the same: `python benchmarks/peers.py [--intervals 12 24 65] [--questions 102]`.

Every question about one stream is asked after each of its documents, as `long_context` does: by `./upkeep cell`, then
with all prompts that the cell asked by vLLM's own `LLM.chat`, by inspect_ai over a vLLM server, and by
lm-evaluation-harness with vLLM; and, as the floor, by the suite's own vLLM in the cell's order with nothing around it,
the prompts being tokens already. Each is a process of its own, timed from start to end, engine included, on all cores,
with the same weights, data type and decoding. Their vLLM has the suite's settings as far as it has them (room for keys
and values, tokens of a step, requests at a time, no compilation); blocks of 16 tokens on a CPU are the suite's own.
Each peer has the environment of `containers/vllm-cpu` or `containers/base` and what its folder in `benchmarks/peers/`
locks besides (`./upkeep image lock inspect`, `lm_eval`).

Prints a Markdown table: how often as long as the suite each one took, its memory at most with all of its processes, how
many of its replies are the suite's, and how it ended, where that was before its replies: for it took more than
`--minutes`, or more memory than `--gib`. `--models tiny` asks the same weights on the transformers engine, too.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
import psutil
import yaml
from shared import contents, copy

from upkeep.building.build import build_dataset
from upkeep.catalog import Catalog
from upkeep.contract import EngineSettings, Prediction
from upkeep.execution.detection import detect
from upkeep.execution.fetch import fetch
from upkeep.gateway.calls import Calls
from upkeep.identity import describe
from upkeep.images.environments import ensure_environment
from upkeep.jobs import Cell
from upkeep.layout import Layout
from upkeep.serving.vllm_engine import BATCHED_TOKENS
from upkeep.weights import find

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = Path(__file__).with_suffix("")
DATASET = "oaks_babi_stream"
ENGINE = {
    "kv_cache_memory_bytes": 2**30,
    "max_num_batched_tokens": BATCHED_TOKENS,
    "max_num_seqs": EngineSettings(name="vllm").max_in_flight,
    "enforce_eager": True,
}
"""The suite's own on a CPU."""
QUIET = {"VLLM_LOGGING_LEVEL": "WARNING", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1"}
PEERS = {
    "floor": ("the same steps with nothing around them", "vllm-cpu"),
    "plain": ("vLLM, `LLM.chat`", "vllm-cpu"),
    "inspect": ("inspect_ai over a vLLM server", "base"),
    "lm_eval": ("lm-evaluation-harness", "vllm-cpu"),
}
"""Name -> in words, and what its environment is built on."""


@dataclass(frozen=True, slots=True)
class Took:
    seconds: float
    gib: float
    """At most, of all its processes together."""
    replies: Sequence[str] = ()
    ended: str = ""
    """How, where it was before its replies."""


def repository(root: Path, intervals: int, questions: int, chunk_tokens: int) -> Catalog:
    """A repository with one stream, whose tiny model has all cores."""
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
    for name in PEERS:
        if (SCRIPTS / name / "requirements.lock").exists():
            shutil.copytree(SCRIPTS / name, root / "methods" / f"peer_{name}")
    catalog = Catalog(root)
    build_dataset(catalog, DATASET, Layout(catalog.results).dataset(DATASET))
    return catalog


def ours(catalog: Catalog, model: str, minutes: float, gib: float) -> tuple[Cell, Took, list[Prediction]]:
    """The suite's cell.

    Raises:
        SystemExit: it ended before its replies.
    """
    cell = Cell(DATASET, "long_context", "default", model)
    fetch(catalog, model)
    for image in catalog.images(cell):
        detect(catalog).prepare(*image)
    command = [sys.executable, "-m", "upkeep", "--root", str(catalog.root), "cell", str(cell)]
    took = watched(command, os.environ, 60 * minutes, gib)
    if took.ended:
        raise SystemExit(f"{cell} {took.ended}")
    found = [msgspec.json.decode(line, type=Prediction) for line in contents(catalog, [cell])[0].splitlines()]
    return cell, replace(took, replies=[p.response or "" for p in found]), found


def hand_over(catalog: Catalog, cell: Cell, predictions: Sequence[Prediction], folder: Path) -> Path:
    """Write down what every peer is to ask, and with what; returns the file."""
    calls = Calls(catalog, cell)
    with (folder / "prompts.jsonl").open("w") as file:
        for prediction in predictions:
            call = calls.find(prediction.calls[0])
            assert call is not None and call.messages is not None, prediction.probe_id
            file.write(json.dumps([{"role": role, "content": "".join(parts)} for role, parts in call.messages]) + "\n")
    spec, settings = catalog.spec(cell.model), describe(catalog, cell, 1).engine
    given = {
        "model": str(find(catalog, cell.model, cell.dataset)[1].path),
        "dtype": spec.dtype,
        "max_tokens": spec.sampling.max_tokens,
        "engine": ENGINE,
        "in_flight": settings.max_in_flight,
        "prompts": str(folder / "prompts.jsonl"),
        "rounds": [len(list(found)) for _, found in groupby(p.probe_id.rpartition("@")[2] for p in predictions)],
        "server": str(ensure_environment(catalog, None, "vllm-cpu").python),
        "spec": msgspec.to_builtins(spec),
        "settings": msgspec.to_builtins(settings),
    }
    path = folder / "given.json"
    path.write_text(json.dumps(given))
    return path


def theirs(catalog: Catalog, peer: str, given: Path, minutes: float, gib: float) -> Took:
    """What a peer takes."""
    own = f"peer_{peer}" if (SCRIPTS / peer / "requirements.lock").exists() else None
    made = ensure_environment(catalog, own, PEERS[peer][1])
    cores, home = str(len(os.sched_getaffinity(0))), given.with_name(f"{peer}-home")
    environment = os.environ | QUIET | {"PYTHONPATH": os.pathsep.join(map(str, made.path)), "HOME": str(home)}
    # By itself vLLM leaves one core out.
    environment |= {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": cores}
    command = [str(made.python), str(SCRIPTS / peer / "run.py"), str(given)]
    if peer == "floor":
        subprocess.run([*command, "tokens"], check=True, stdout=sys.stderr, env=environment)
    replied = given.with_name(f"{peer}.json")
    took = watched([*command, str(replied)], environment, 60 * minutes, gib)
    if took.ended:
        return took
    return Took(took.seconds, took.gib, json.loads(replied.read_text()))


def watched(command: Sequence[str], environment: Mapping[str, str], seconds: float, gib: float) -> Took:
    """Run something that ends with 0, within so many seconds and so much memory; else it is ended, with all of its
    processes."""
    begin, most, ended = time.perf_counter(), 0.0, ""
    process = subprocess.Popen(command, stdout=sys.stderr, env=environment, start_new_session=True)
    try:
        while process.poll() is None and not ended:
            time.sleep(0.1)
            most = max(most, resident(process.pid))
            if most > gib:
                ended = f"took more than {gib:g} GiB"
            elif time.perf_counter() - begin > seconds:
                ended = f"took more than {seconds / 60:g} minutes"
        took = time.perf_counter() - begin
    finally:  # a server that it started may be left, too
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    if process.wait() and not ended:
        ended = f"ended with {process.returncode}"
    return Took(took, most, ended=ended)


def resident(pid: int) -> float:
    """GiB that a process and those that it started have in memory."""
    total = 0
    try:
        first = psutil.Process(pid)
        for process in (first, *first.children(recursive=True)):
            total += process.memory_info().rss
    except psutil.NoSuchProcess:
        pass
    return total / 2**30


def row(intervals: int, how: str, took: Took, suite: Took) -> list[Any]:
    """Of the table."""
    ratio = f"{took.seconds / suite.seconds:.2f}" if not took.ended else f"over {took.seconds / suite.seconds:.2f}"
    same = ""
    if took.replies and took is not suite:
        pairs = zip(took.replies, suite.replies, strict=True)
        same = f"{100 * sum(one == other for one, other in pairs) / len(suite.replies):.1f}%"
    figures = [f"{len(suite.replies):,}", f"{took.seconds:.0f}", ratio, f"{took.gib:.1f}"]
    return [intervals, how, *figures, same, took.ended]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--intervals", nargs="+", type=int, default=[12, 24, 65])
    parser.add_argument("--questions", type=int, default=102)
    parser.add_argument("--chunk-tokens", type=int, default=2000)
    parser.add_argument("--models", nargs="*", default=[], help="of the suite, besides tiny-vllm")
    parser.add_argument("--peers", nargs="*", default=list(PEERS), choices=list(PEERS))
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--gib", type=float, default=24)
    given = parser.parse_args()
    os.environ |= {"UPKEEP_RUNTIME": "process"}
    os.environ.setdefault("UPKEEP_CACHE", str(ROOT / "results" / "cache"))
    print("| documents | how | requests | seconds | ratio | GiB | same replies | ended |")
    print("| ---: | --- | ---: | ---: | ---: | ---: | ---: | --- |", flush=True)
    for intervals in given.intervals:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            catalog = repository(folder / "root", intervals, given.questions, given.chunk_tokens)
            limits = given.minutes, given.gib
            cell, suite, predictions = ours(catalog, "tiny-vllm", *limits)
            rows = [("`upkeep`", suite)]
            rows += [(f"`upkeep`, `{model}`", ours(catalog, model, *limits)[1]) for model in given.models]
            asked = hand_over(catalog, cell, predictions, folder)
            for how, took in rows:
                print("| " + " | ".join(map(str, row(intervals, how, took, suite))) + " |", flush=True)
            for peer in given.peers:
                took = theirs(catalog, peer, asked, *limits)
                print("| " + " | ".join(map(str, row(intervals, PEERS[peer][0], took, suite))) + " |", flush=True)


if __name__ == "__main__":
    main()
