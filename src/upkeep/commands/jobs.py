"""Commands on one dataset, image, model, cell or batch of cells: what the jobs of the workflow do."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from upkeep.commands.arguments import catalog_of
from upkeep.commands.datasets import build
from upkeep.commands.results import tell_remarks
from upkeep.errors import UpkeepError, Usage
from upkeep.exit_status import MOSTLY_FAILED
from upkeep.model_cards import RECIPE

if TYPE_CHECKING:
    from upkeep.catalog import Catalog
    from upkeep.contract import Manifest
    from upkeep.jobs import Cell, Job


def cell(arguments: argparse.Namespace) -> int:
    """`./upkeep cell`."""
    from upkeep.execution.supervise import run_cell, traces
    from upkeep.jobs import Cell
    from upkeep.machine.clock import now
    from upkeep.machine.slurm import continued
    from upkeep.operations.show import show

    catalog = catalog_of(arguments)
    cell = Cell.parse(arguments.cell)
    catalog.check(cell)
    catalog.suite(catalog.config.suite)  # whose seed and trials it has: refused before anything is made for it
    tell_remarks(catalog, catalog.config.suite, [cell])
    prepare(catalog, cell)
    begun = now()
    with continued(traces(catalog, cell)):
        manifest = run_cell(catalog, cell, force=arguments.force)
    for line in _ended(catalog, cell, manifest, reused=manifest.end < begun):
        print(line)
    if catalog.config.probe is not None:
        for line in show(catalog, str(cell), catalog.config.probe, wrong=False, full=False):
            print(line)
    return failures(catalog, [manifest])


def _ended(catalog: Catalog, cell: Cell, manifest: Manifest, *, reused: bool) -> Iterator[str]:
    """What a cell came to, where it lies, and what shows it."""
    from upkeep.grading.graded import graded
    from upkeep.grading.key import read_key
    from upkeep.published import folder_of, told
    from upkeep.samples import of_config
    from upkeep.samples import told as told_sample

    kept = f"; complete since {manifest.end}, so nothing was run (--force runs it again)" if reused else ""
    yield f"{cell}: {told(manifest)}{kept}"
    if sample := of_config(catalog.config):
        yield f"  {told_sample(sample)}; in no table"
    if not catalog.method(cell.method).measures:
        rows = graded(catalog, cell, manifest, read_key(catalog, cell.dataset).asked_of(manifest)).rows
        right = rows["right"].sum()
        yield f"  {right:,} of {len(rows):,} right by the answer key ({right / max(1, len(rows)):.1%})"
    folder = os.path.relpath(folder_of(catalog, cell))
    yield f"  {folder}"
    if catalog.dataset(cell.dataset).paper not in catalog.papers and sample is None:
        yield f"  in no table, for {cell.dataset} is of no paper: a suite with this cell (`./upkeep new suite NAME`)"
        yield "  has its score on the terminal and in the overview of its report"
    yield f"next: ./upkeep show {cell if sample is None else folder}"


def prepare(catalog: Catalog, job: Job) -> None:
    """Make what a job lacks, as a run of its suite would: its dataset, its models' weights, and those that are trained
    for it. What is there, of whatever, is left to the job to look at."""
    from upkeep.execution.fetch import fetch
    from upkeep.execution.supervise import run_cell
    from upkeep.layout import Layout
    from upkeep.machine.gpus import require_gpus
    from upkeep.needs import models_of

    layout = Layout(catalog.results)
    models = models_of(catalog, job)
    for model in models:  # before anything is built or downloaded for a model that cannot run here
        if catalog.made_by(model, job.dataset) is None and not layout.weights_record(model).exists():
            require_gpus(catalog.spec(model).gpus, f"the model {model!r}")
    if not (layout.dataset(job.dataset) / "card.json").exists():
        print(f"dataset {job.dataset}: it is built first", flush=True)
        build(catalog, job.dataset)
    for model in models:
        if (training := catalog.made_by(model, job.dataset)) is not None:
            if not (layout.trained(training) / "manifest.json").exists():
                print(f"training {training}: it is done first", flush=True)
                prepare(catalog, training)
                run_cell(catalog, training)
        elif not layout.weights_record(model).exists():
            fetch(catalog, model)


def batch(arguments: argparse.Namespace) -> int:
    """`./upkeep batch`; with `--recorded` as far as no model is asked."""
    from upkeep.batches import find
    from upkeep.execution.batch import run_batch
    from upkeep.execution.supervise import traces
    from upkeep.machine.slurm import continued

    catalog = catalog_of(arguments)
    batch = find(catalog, arguments.name)
    if arguments.recorded:
        from upkeep.execution.detection import detect
        from upkeep.execution.refresh import replay

        found = replay(catalog, batch.cells, detect(catalog))
        print(found.summary())
        return 1 if found.left or found.failed else 0
    with continued(file for job in batch.cells for file in traces(catalog, job)):
        run_batch(catalog, batch)
    return 0


def failures(catalog: Catalog, manifests: Iterable[Manifest]) -> int:
    """Say which cells have failed predictions, and why most of them did; the exit status where more than half of one
    failed."""
    from upkeep.jobs import Cell
    from upkeep.published import predictions
    from upkeep.text import printable, short

    status = 0
    for manifest in manifests:
        if not manifest.failed:
            continue
        reasons = Counter(one.error for one in predictions(catalog, Cell.parse(manifest.cell)) if one.error is not None)
        reason, count = reasons.most_common(1)[0]
        told = f"{manifest.failed:,} of {manifest.predictions:,} predictions failed"
        print(f"{manifest.cell}: {told}, {count:,} of them: {short(printable(reason))}", file=sys.stderr)
        if manifest.mostly_failed:
            print("  its numbers say nothing about the method", file=sys.stderr)
            print(f"  remedy:   ./upkeep logs {manifest.cell}", file=sys.stderr)
            status = MOSTLY_FAILED
    return status


def image(arguments: argparse.Namespace) -> int:
    """`./upkeep image`: build one, or lock requirements."""
    catalog = catalog_of(arguments)
    if arguments.what == "lock":
        from upkeep.images.locks import lock

        for path in lock(catalog, arguments.name):
            print(path)
        return 0
    from upkeep.execution.detection import detect

    name = arguments.name
    if name is None:
        raise Usage(
            "which image?",
            expected="./upkeep image build METHOD|ENGINE [--engine ENGINE]",
            remedy="name a method (`./upkeep list methods`) or a folder of containers/",
        )
    if (catalog.root / "containers" / name / "requirements.in").exists():
        image = None, name
    else:
        image = name, arguments.engine or ("transformers" if catalog.method(name).holds_model else "base")
    print(detect(catalog).prepare(*image).describe())
    return 0


def model(arguments: argparse.Namespace) -> int:
    """`./upkeep model`: its weights, fetched or found; or a model trained by a method."""
    from upkeep.execution.fetch import fetch

    catalog = catalog_of(arguments)
    if arguments.what == "train":
        return _training(catalog, arguments.name, arguments.force)
    found = fetch(catalog, arguments.name)
    if catalog.model(arguments.name).source == "endpoint":
        print(f"{arguments.name}: behind an endpoint, so there is nothing to fetch; ./upkeep doctor looks for its key")
        return 0
    print(f"{arguments.name}: {found.path or 'in the image'} (sha256 {found.sha256})")
    return 0


def _training(catalog: Catalog, name: str, force: bool) -> int:
    from upkeep.execution.supervise import run_cell, traces
    from upkeep.jobs import Training
    from upkeep.machine.slurm import continued

    training = Training.parse(name)
    catalog.check_training(training)
    catalog.suite(catalog.config.suite)  # whose seed it has
    with continued(traces(catalog, training)):
        run_cell(catalog, training, force=force)
    print(f"{training}: complete")
    return 0


def train_own(arguments: argparse.Namespace) -> int:
    """`./upkeep train MODEL`: a model of the suite's own, made by the stages of the recipe in its folder."""
    catalog = catalog_of(arguments)
    folder = catalog.root / "models" / arguments.name
    if not (folder / RECIPE / "make.py").is_file():
        raise UpkeepError(
            f"{arguments.name!r} has no recipe",
            where=folder / RECIPE,
            expected="make.py with `train(catalog, output, start, changes)`, as models/pico/recipe has",
            remedy="`./upkeep model train DATASET/METHOD/VARIANT/MODEL` trains a model by a method",
        )
    sys.path.insert(0, str(folder))
    make = importlib.import_module(f"{RECIPE}.make")
    output = arguments.output or folder
    if arguments.evaluate:
        print(make.evaluate(catalog, output))
        return 0
    given = {"steps": arguments.steps, "seed": arguments.seed}
    make.train(catalog, output, arguments.start, {name: value for name, value in given.items() if value is not None})
    print(f"{arguments.name}: {output}")
    return 0
