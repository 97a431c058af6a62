"""A whole stream asked by `long_context`, and replayed from the record on one core: `python benchmarks/replay.py`.

The cell `oaks_babi_stream/long_context/default/tiny` is run twice, each time all of it: supervisor, gateway, container
or process, runner, method, publication. First with an engine in the place of the model's that reads prompts with the
model's tokenizer and replies how many tokens they have, so that the record is filled without computing them. Then by
the command that a user gives (`./upkeep cell ... --force`), on one core, with no engine: the record must answer
everything, and the predictions must be the same bytes. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import psutil
import yaml
from shared import ROOT, copy

from upkeep.building.build import build_dataset
from upkeep.catalog import Catalog
from upkeep.contract import Prediction
from upkeep.execution.detection import detect
from upkeep.execution.fetch import fetch
from upkeep.execution.handle import Handle
from upkeep.execution.runtimes import Launch, Prepared, Runtime
from upkeep.execution.supervise import run_cell
from upkeep.integrity import verify_folder
from upkeep.jobs import Cell
from upkeep.layout import Layout

DATASET, MODEL = "oaks_babi_stream", "tiny"
POLL_S = 0.1
COUNTING = """
import sys

from upkeep.cell.lockstep import Engine, Generated
from upkeep.cell.tokens import ChatTokens
from upkeep.serving import serve


class Counting(Engine):
    name, version = "counting", "1"

    def __init__(self, cell):
        super().__init__(ChatTokens(cell.model_path, cell.model_spec), cell.model_spec.context_length)
        self.waiting = []

    def add(self, request):
        self.waiting.append(request)

    @property
    def busy(self):
        return bool(self.waiting)

    def step(self):
        taken, self.waiting = self.waiting, []
        return [(one, Generated(self.tokens.encode(str(one.prompt.length)), "stop", 0)) for one in taken]

    def reset(self):
        self.waiting = []


serve.load_engine = Counting
sys.exit(serve.main(sys.argv[1:]))
"""
"""An engine whose reply to a prompt is the number of its tokens; run where the model's would run."""


def counting(runtime: Runtime) -> Runtime:
    """The runtime, with this engine in the place of any other."""
    start = runtime.start

    def started(prepared: Prepared, launch: Launch) -> Handle:
        if launch.arguments:
            launch = replace(launch, arguments=("-c", COUNTING, launch.arguments[-1]))
        return start(prepared, launch)

    runtime.start = started  # type: ignore[method-assign]
    return runtime


def on_one_core(command: Sequence[str | Path]) -> int:
    """Run a command and all that it starts on one core; the peak of their resident bytes, summed."""
    peak = 0
    process = psutil.Popen(["taskset", "-c", str(min(os.sched_getaffinity(0))), *command], stdout=sys.stderr)
    while process.poll() is None:
        resident = 0
        for one in (process, *process.children(recursive=True)):
            try:
                resident += one.memory_info().rss
            except psutil.NoSuchProcess:
                continue
        peak = max(peak, resident)
        time.sleep(POLL_S)
    if process.returncode:
        raise SystemExit(f"the replay failed: {process.returncode}")
    return peak


def clocks() -> tuple[float, float]:
    """Seconds by the clock, and on the cores, of this process and those that it waited for."""
    return time.perf_counter(), sum(os.times()[:4])


def since(before: tuple[float, float]) -> str:
    return " | ".join(f"{now - then:.1f}" for now, then in zip(clocks(), before, strict=True))


def megabytes(folder: Path) -> str:
    return f"{sum(path.stat().st_size for path in folder.rglob('*') if path.is_file()) / 1e6:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--intervals", type=int, default=65)
    parser.add_argument("--questions", type=int, default=102)
    arguments = parser.parse_args()
    os.environ["UPKEEP_RUNTIME"] = "process"  # so that all of it is a tree of processes that starts here
    os.environ.setdefault("UPKEEP_CACHE", str(ROOT / "results" / "cache"))
    cell = Cell(DATASET, "long_context", "default", MODEL)
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        copy(root)
        card = root / "datasets/oaks_babi/dataset.yaml"
        family = yaml.safe_load(card.read_text())
        family["variants"]["stream"]["options"] |= {"chunks": arguments.intervals, "questions": arguments.questions}
        card.write_text(yaml.safe_dump(family))
        catalog = Catalog(root)
        layout = Layout(catalog.results)
        build_dataset(catalog, DATASET, layout.dataset(DATASET))
        fetch(catalog, MODEL)
        runtime = counting(detect(catalog))
        for image in catalog.images(cell):
            runtime.prepare(*image)
        predictions = layout.cell(cell) / "predictions.jsonl"
        print("| how | probes | prompt tokens | seconds | on the cores | peak GiB | record, MB |")
        print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
        begin = clocks()
        run_cell(catalog, cell, runtime=runtime)
        taken, first = since(begin), predictions.read_bytes()
        lines = [msgspec.json.decode(line, type=Prediction) for line in first.splitlines()]
        assert all(line.response == str(line.usage.prompt) for line in lines), "each reply is that of its own prompt"
        asked = f"{len(lines):,} | {sum(line.usage.prompt for line in lines):,}"
        print(f"| first, an engine that counts | {asked} | {taken} |  | {megabytes(layout.record)} |", flush=True)
        begin = clocks()
        peak = on_one_core([sys.executable, "-m", "upkeep", "--root", root, "cell", str(cell), "--force"])
        taken, measured = since(begin), verify_folder(layout.cell(cell)).measured
        assert (measured["recorded_replies"], measured["new_replies"]) == (len(lines), 0), measured
        assert predictions.read_bytes() == first, "a replay gives the same bytes"
        print(f"| again, on one core | {asked} | {taken} | {peak / 2**30:.2f} | {megabytes(layout.record)} |")


if __name__ == "__main__":
    main()
