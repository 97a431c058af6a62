"""A small repository with a complete suite (cells, a trained model, a paper) of scripted containers, and its
commands, called as the command line calls them."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from types import FrameType
from unittest import mock

import polars as pl
import pytest

from host_fakes import TRAINED_FILES, ScriptedRuntime, make_repository, training, write_toy
from upkeep import cli
from upkeep.catalog import Catalog
from upkeep.errors import UpkeepError
from upkeep.execution.fetch import fetch
from upkeep.execution.supervise import run_cell
from upkeep.files import hash_file
from upkeep.images.records import ImageRecord
from upkeep.integrity import write_sealed
from upkeep.jobs import Cell, Training
from upkeep.report.edits import files_of
from upkeep.workflow import Workflow

LIMITS = {(signal.ITIMER_PROF, signal.SIGPROF): 10, (signal.ITIMER_REAL, signal.SIGALRM): 100}
"""Seconds that a command may take, whatever it reads: of a processor, which other tests want, too; and in all."""

PLAIN, TRAINED, GUIDED = "toy/echo/a/m", "toy/echo/a/m+trainer.a", "toy/guided/a/none"
CELLS = (PLAIN, TRAINED, GUIDED)
TRAINING = "toy/trainer/a/m"
BEGUN = "toy/echo/b/m"
"""A cell that was interrupted."""

SUITE = """{label: l, summary: s, papers: [toy], seed: 5, trials: 2, cells: [
  {datasets: [toy], methods: [echo/a], models: [m, m+trainer.a]},
  {datasets: [toy], methods: [guided/a], models: [none]}]}
"""
TABLES = """
label: Toy
citation: "A toy."
tables:
  - {id: table_1, title: Table 1, caption: c, where: {metric: accuracy}, rows: [model],
     stub: [{field: model, heading: Model}], columns: [{Toy: {dataset: toy, method: echo}}]}
"""
CLAIMS = """
- id: toy-c1
  where: Table 1
  statement: s
  checks:
    - {query: "select value as lhs, 0.0 as rhs from scores where metric = 'accuracy'", op: ">", rows: 1, table: table_1}
  published: holds
  needs: {models: [any], methods: [echo], datasets: [toy]}
"""
REFERENCE = """table,label,model,method,supervision,setting,dataset,subset,metric,value,unit
table_1,Echo,M,echo,,,toy,all,accuracy,61.5,percent
"""


IMAGE_RECORD = "results/images/echo.base.json"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository whose suite `mini` has run, with seed 5 and 2 trials."""
    import upkeep.report.page  # noqa: F401  # slow to load, which is not to count as a command's time

    root = tmp_path_factory.mktemp("made") / "root"
    make(root, "text")
    return root


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    """A copy of `made`, to be changed."""
    return Path(shutil.copytree(made, tmp_path / "root", symlinks=True))


def make(root: Path, text: str) -> None:
    make_repository(root, trials=2)
    files = {
        "config/suites/mini.yaml": SUITE,
        "papers/toy/tables.yaml": TABLES,
        "papers/toy/claims/toy.yaml": CLAIMS,
        "papers/toy/reference/table_1.csv": REFERENCE,
        "models/m/model.yaml": "{label: M, summary: s, source: path, location: weights, context_length: 100}",
        "weights/config.json": "{}",
        "weights/tokenizer.json": '{"version": "1.0"}',
        "weights/model.safetensors": f"weights of {text}",
        "containers/transformers/requirements.lock": "",
        "src/upkeep/grading/score.py": "",
    }
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    dataset = root / "datasets/toy/dataset.yaml"
    dataset.write_text(
        dataset.read_text()
        .replace("exact", "short_answer")
        .replace("metrics: none", "metrics: answers, provenance: release")
    )
    for method in ("echo", "trainer"):
        card = root / f"methods/{method}/method.yaml"
        card.write_text(card.read_text().replace("model: false", "model: true"))
    sums = [*files_of(root / "papers/toy"), *root.glob("config/suites/*")]
    lines = [f"{hash_file(path)}  {path.relative_to(root)}\n" for path in sorted(sums)]
    (root / "papers/SHA256SUMS").write_text("".join(lines))
    catalog = Catalog(root)
    write_toy(catalog, text)
    fetch(catalog, "m")
    runtime = ScriptedRuntime()
    files = TRAINED_FILES | {"model.safetensors": text}
    run_cell(catalog, Training("toy", "trainer", "a", "m"), runtime=training(files))
    for cell in CELLS:
        run_cell(catalog, Cell.parse(cell), runtime=runtime)
    with pytest.raises(UpkeepError):
        run_cell(catalog, Cell.parse(BEGUN), runtime=ScriptedRuntime("die", 7), retries=0)
    record = dict.fromkeys(("engine", "runtime", "python"), "") | {"runtime": "process", "digest": text}
    write_sealed(root / IMAGE_RECORD, ImageRecord(
        method="echo", tag=None, inputs="0" * 64, content=None, size=0, base=None, base_digest=None, packages={},
        seconds=0.0, **record,
    ))  # fmt: skip
    workflow(root)


def workflow(root: Path) -> Workflow:
    """What Snakemake loads, after every plan has been looked at."""
    with mock.patch.dict(os.environ):  # which it sets for the jobs of its Snakemake
        made = Workflow(str(root), {})
        for batch in made.batches:
            made.inputs_of_batch(batch)(None)
    return made


# ---------------------------------------------------------------- commands


class TooLong(Exception):
    pass


def called(root: Path, *words: str, out: list[str] | None = None) -> tuple[int, str]:
    """Exit status and what was said on standard error by one command, called as the command line does."""

    def stop(number: int, _: FrameType | None) -> None:
        raise TooLong(f"{words}: {signal.strsignal(number)}")

    said, printed = tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")  # noqa: SIM115
    before = {number: signal.signal(number, stop) for _, number in LIMITS}
    for (timer, _), seconds in LIMITS.items():
        signal.setitimer(timer, seconds)
    arguments, errors, output = sys.argv, sys.stderr, sys.stdout
    sys.argv, sys.stderr, sys.stdout = ["upkeep", "--root", str(root), *words], said, printed
    try:
        cli.main()
    except SystemExit as end:
        status = int(end.code or 0)
    finally:
        sys.argv, sys.stderr, sys.stdout = arguments, errors, output
        for timer, number in LIMITS:
            signal.setitimer(timer, 0)
            signal.signal(number, before[number])
    said.seek(0)
    printed.seek(0)
    if out is not None:
        out.append(printed.read())
    return status, said.read()


def numbers(root: Path) -> dict[str, float]:
    """What the scores say: accuracy of each cell, and the dataset's size."""
    table = pl.read_parquet(root / "results/scores/mini/scores.parquet")
    rows = table.filter(pl.col("metric").is_in(["accuracy", "outdated_rate", "error_rate", "question_count"]))
    return {f"{r['cell']} {r['metric']} {r['subset']}": r["value"] for r in rows.iter_rows(named=True)}


def with_begun(said: dict[str, float]) -> dict[str, float]:
    """The same where the interrupted cell is complete, too: beside the suite's own, it answers as PLAIN does."""
    return said | {name.replace(PLAIN, BEGUN): value for name, value in said.items() if name.split()[0] == PLAIN}


def printed(root: Path) -> list[str]:
    """The numbers of our own in the report's table."""
    lines = (root / "results/tables/mini/toy/table_1.csv").read_text().splitlines()[1:]
    return [line.split(",")[4] for line in lines if line.split(",")[4]]
