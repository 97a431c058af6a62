"""A repository with one small built dataset, and a runtime whose containers are scripted: they speak the protocol of a
cell, honestly or not, without Docker, engines or models."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

import upkeep
from scripted_containers import CONTAINER, ENGINE
from upkeep.building.assembling import Built
from upkeep.building.store import write
from upkeep.catalog import Catalog
from upkeep.contract import DatasetSpec, Environment, Pair, Prediction, Resources
from upkeep.execution.handle import Handle
from upkeep.execution.runtimes import Launch, Prepared
from upkeep.grading.reading import read_answer
from upkeep.identity import plan_dataset
from upkeep.layout import Layout
from upkeep.normal_form import SCHEMAS, TEXTS

STREAMS = {"a": (6, 3), "b": (4, 2), "c": (5, 1)}
"""Documents and questions of each stream of the dataset `toy`."""


class ScriptedRuntime:
    """Starts a plain Python process that plays the container.

    Args:
        fault: what it does when it is about to write record number `at`.
        extra, after: code of the container, run before the first round and after the last one.
        raw: an expression over `raw` (bytes) and `record`: what is written in place of a line.
        once: only the first container has the fault.
    """

    def __init__(
        self,
        fault: str = "none",
        at: int = 0,
        *,
        extra: str = "",
        after: str = "",
        raw: str = "raw",
        once: bool = False,
    ) -> None:
        self.fault, self.at, self.once, self.starts = fault, at, once, 0
        self.launches: list[Launch] = []
        self.engines: list[Launch] = []
        source = CONTAINER.replace("EXTRA", extra).replace("AFTER", after)
        self.source = f"RAW = lambda raw, record: {raw}\n{source}"

    def prepare(self, method: str | None, engine: str) -> Prepared:
        return Prepared(record=None)  # type: ignore[arg-type]

    def path_of(self, role: str, path: Path) -> str:
        return str(path)

    def start(self, prepared: Prepared, launch: Launch) -> Handle:
        if launch.arguments:
            return self.start_engine(launch)
        fault = self.fault if not (self.once and self.starts) else "none"
        self.starts += 1
        self.launches.append(launch)
        process = subprocess.Popen(
            [
                *(sys.executable, "-I", "-S", "-c", self.source),
                *((launch.inputs["cell"] / "cell.json").read_text(), fault, str(self.at)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        return Handle(process, launch.log, process.kill)

    def start_engine(self, launch: Launch) -> Handle:
        """An engine that nobody asks: scripted containers make up their answers."""
        self.engines.append(launch)
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", ENGINE, launch.inputs["cell"] / "cell.json"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        return Handle(process, launch.log, process.kill)

    def environment(
        self,
        prepared: Prepared,
        engine: str,
        hardware: dict[str, Any],
        job: str | None = None,
    ) -> Environment:
        return Environment(
            runtime="process", isolated=False, image=None, digest=None, engine=engine, engine_version="", packages={},
            hardware=hardware, job=job,
        )  # fmt: skip

    def explain(self, status: int, resources: Resources, starved: bool | None = None) -> str:
        return f"exit status {status}"


TRAIN = """
model = os.path.join(cell["output"], "model")
os.mkdir(model)
pairs = open(cell["pairs"]).read()
for name, text in {FILES}.items():
    open(os.path.join(model, name), "w").write(text)
MORE
os._exit(STATUS)
"""


TRAINED_FILES = {"config.json": "{}", "model.safetensors": "text", "tokenizer.json": "{}"}


def training(files: dict[str, str], more: str = "", code: int = 0) -> ScriptedRuntime:
    source = TRAIN.replace("{FILES}", repr(files)).replace("MORE", more).replace("STATUS", str(code))
    return ScriptedRuntime(extra=source)


class RunnerRuntime(ScriptedRuntime):
    """Starts the real runner of cells, with the engine that is installed beside these tests."""

    def start(self, prepared: Prepared, launch: Launch) -> Handle:
        command = [sys.executable, *launch.arguments]
        if not launch.arguments:
            folders = (folder / "methods" for folder in launch.inputs["cell"].parents)
            methods = next(folder for folder in folders if folder.is_dir())
            command += ["-m", "upkeep.cell", launch.inputs["cell"] / "cell.json", methods]
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=os.environ
            | {"PYTHONPATH": str(Path(upkeep.__file__).parents[1]), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
        )
        return Handle(process, launch.log, process.kill)


METHOD = """label: {label}
papers: []
summary: s
reference: r
model: false
sees: {sees}
variants: {variants}
resources: {{disk_gb: 1}}
{more}
"""


def answer_of(prediction: Prediction) -> str | None:
    """What the suite reads in the response to a question that is answered in a few words."""
    return read_answer(prediction.response or "", "short")[0]


PROMPT = """# Nobody's.
form: short
marker: "A:"
headings: {context: C, question: Q}
system: Read.
closed: Say.
"""


def make_repository(root: Path, trials: int = 1) -> Catalog:
    """Methods `echo` (variants a, b), `keen` (sees answers), `guided` (variants a, b, c; sees evidence) and `trainer`
    (trains a model, of none)."""
    files = {
        "config/config.yaml": "{runtime: process}",
        "config/gpus.yaml": (Path(upkeep.__file__).parents[2] / "config/gpus.yaml").read_text(),
        "config/suites/mini.yaml": f"{{label: l, summary: s, papers: [], cells: [], seed: 5, trials: {trials}}}",
        "datasets/toy/dataset.yaml": "{label: Toy, summary: s, paper: toy, source: ours, licence: CC0,"
        " prompt: short, equivalence: exact, metrics: none}",
        "papers/toy/prompts/short.yaml": PROMPT,
        "papers/toy/prompts/other.yaml": PROMPT.replace("Read", "Read all"),
        "methods/echo/method.yaml": METHOD.format(
            label="Echo", sees="documents", variants="{a: {n: 1}, b: {n: 2}}", more=""
        ),
        "methods/keen/method.yaml": METHOD.format(label="Keen", sees="answers", variants="{a: {}}", more=""),
        "methods/guided/method.yaml": METHOD.format(
            label="Guided", sees="evidence", variants="{a: {}, b: {n: 2}, c: {n: 3}}", more=""
        ),
        "methods/trainer/method.yaml": METHOD.format(
            label="Trainer", sees="documents", variants="{a: {}}", more="trains: true\nsupervision: Q"
        ),
    }
    for method in ("echo", "keen", "guided", "trainer"):
        files[f"methods/{method}/method.py"] = f"# {method}\n"
        files[f"methods/{method}/requirements.lock"] = ""
    for place in ("containers/base/requirements.lock", "containers/install", "src/upkeep/cell/runner.py"):
        files[place] = ""
    files |= {
        "src/upkeep/contract/__init__.py": "",
        "src/upkeep/execution/rounds.py": "",
        "src/upkeep/building/store.py": "",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    catalog = Catalog(root)
    write_toy(catalog)
    return catalog


def write_toy(catalog: Catalog, text: str = "text", quoted: bool = False) -> None:
    """Build the dataset `toy`: every question at every position but the first of stream c, which none is asked at.

    What a scripted container answers in its first trial is right of the questions with the number 0.

    Args:
        quoted: whether these have a sentence that tells what is right.
    """
    documents: list[tuple[object, ...]] = []
    probes: list[tuple[object, ...]] = []
    gold: list[tuple[object, ...]] = []
    for stream, (length, questions) in STREAMS.items():
        for t in range(length):
            documents.append((f"{stream}_c{t}", stream, t, None, f"{text} {stream}{t}. ", 3))
            for q in range(questions if (stream, t) != ("c", 0) else 0):
                probes.append((f"{stream}{q}@{t}", f"{stream}{q}", stream, t, f"Question {q}?", None, "short"))
                gold.append(
                    (
                        f"{stream}{q}@{t}",
                        [f"{text} {stream}{t}." if not q else f"answer {q}"],
                        ["old"],
                        [f"{stream}_c{t}"],
                        0,
                    )
                )
    frames = [
        pl.DataFrame(rows, schema=SCHEMAS[name], orient="row")
        for name, rows in (("documents", documents), ("probes", probes), ("gold", gold))
    ]
    if quoted:
        told = [[f"It tells {probe}."] if probe[1] == "0" else [] for probe in frames[2]["probe_id"]]
        frames[2] = frames[2].with_columns(quotes=pl.Series(told, dtype=TEXTS))
    spec: DatasetSpec = catalog.dataset("toy")
    folder = Layout(catalog.results).dataset("toy")
    folder.mkdir(parents=True, exist_ok=True)
    pairs = [Pair(question=f"q{stream}", answer="a", document=f"{stream}_c0") for stream in STREAMS]
    write(folder, Built(*frames, pairs, "words", 3, "ours", {}), "toy", spec, plan_dataset(catalog, "toy"))


# ---------------------------------------------------------------- being killed


def die_at(event: int, root: Path) -> None:
    """Kill this process by SIGKILL at its `event`-th event: before an operation on a file under `root`, or after it has
    checked a line or kept something of what a model says."""
    from upkeep.execution.collected import Collected
    from upkeep.gateway.record import Replies

    operations, inside, left = ("open", "os.", "shutil.", "subprocess.", "fcntl."), str(root), event

    def tick() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def hook(name: str, arguments: Sequence[object]) -> None:
        if name.startswith(operations) and any(inside in str(a) for a in arguments[:2]):
            tick()

    sys.addaudithook(hook)
    accept = Collected._accept

    def accept_and_tick(self: Collected[Any], line: bytes) -> int:
        key = accept(self, line)
        tick()
        return key

    Collected._accept = accept_and_tick  # type: ignore[method-assign]
    put = Replies.put

    def put_and_tick(self: Replies, *entry: Any, **options: Any) -> None:
        put(self, *entry, **options)
        tick()

    Replies.put = put_and_tick  # type: ignore[method-assign]


def supervise(root: Path, cell: str, event: int = 0) -> None:
    """Run a cell, or a scripted training, whose name ends with `!`."""
    from upkeep.execution.supervise import run_cell
    from upkeep.jobs import Cell, Training

    catalog = Catalog(root)
    if event:
        die_at(event, root / "results")
    parts = cell.rstrip("!").split("/")
    if cell.endswith("!"):
        run_cell(catalog, Training(*parts), runtime=training(TRAINED_FILES))
    else:
        run_cell(catalog, Cell(*parts), runtime=ScriptedRuntime() if cell.endswith("none") else RunnerRuntime())


class Forks:
    """Runs `supervise` in processes of their own, forked from one that has imported everything and started nothing."""

    def __init__(self) -> None:
        paths = [str(Path(__file__).parent), str(Path(upkeep.__file__).parents[1])]
        self._server = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        )

    def run(self, root: Path, name: str, event: int = 0) -> int:
        """The exit status; -9 where it was killed before its `event`-th file operation."""
        assert self._server.stdin is not None and self._server.stdout is not None
        print(json.dumps([str(root), name, event]), file=self._server.stdin, flush=True)
        return int(self._server.stdout.readline())

    def close(self) -> None:
        self._server.communicate()


def serve() -> None:
    import upkeep.execution.supervise

    assert upkeep.execution.supervise
    for line in sys.stdin:
        root, name, event = json.loads(line)
        if (child := os.fork()) == 0:
            status = 1
            try:
                supervise(Path(root), name, event)
                status = 0
            except Exception:
                traceback.print_exc()
            finally:
                os._exit(status)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    serve()
