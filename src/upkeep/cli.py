"""The command line: which commands there are, and what is told of one that fails."""

from __future__ import annotations

import argparse
import difflib
import functools
import os
import re
import sys
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, NoReturn

from upkeep.commands import comparing, datasets, developing, jobs, keeping, questions, results, reviewing, suite
from upkeep.commands.arguments import cache_refusal
from upkeep.errors import UpkeepError, Usage
from upkeep.exit_status import INTERRUPTED, USAGE, WRONG
from upkeep.files import refusal
from upkeep.machine.lifeline import followed


def main() -> None:
    """Run one command; what the user can put right is printed without a traceback."""
    parser = _parser(os.environ.get("UPKEEP_ROOT", "."))
    if not _words(sys.argv[1:]):
        parser.print_help()
        sys.exit()
    arguments, rest = parser.parse_known_args()
    if arguments.run is developing.test:
        arguments.rest = rest
    elif rest:
        arguments.parser.error(f"unrecognized arguments: {' '.join(rest)}")
    try:
        with followed():
            code = arguments.run(arguments)
    except UpkeepError as error:
        print(f"upkeep: {error}", file=sys.stderr)
        code = USAGE if isinstance(error, Usage) else WRONG
    except KeyboardInterrupt:
        print("upkeep: interrupted; what is done is kept, the same command continues", file=sys.stderr)
        code = INTERRUPTED
    except BrokenPipeError:
        code = 0
    except OSError as error:
        if (told := refusal(error, arguments.root.resolve()) or cache_refusal(error, arguments)) is None:
            raise
        print(f"upkeep: {told}", file=sys.stderr)
        code = WRONG
    sys.exit(code)


def _words(given: list[str]) -> list[str]:
    """What is on a command line beside the repository, which the bootstrap names."""
    return given[2:] if given[:1] == ["--root"] else given


class _Version(argparse.Action):
    """Prints the version, with the commit of the clone that is meant."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, *_: object) -> NoReturn:
        from upkeep.machine.checkout import version

        print(version(namespace.root.resolve()))
        sys.exit()


class _Parser(argparse.ArgumentParser):
    """argparse's, which says what is nearest to a word or an option that there is not, and takes no beginning of an
    option for it."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        if wrong := re.search(r"argument (.*?): invalid choice: '(.*?)' \(choose from (.*)\)", message):
            word, known = wrong[2], re.findall(r"[\w-]+", wrong[3])
            message = f"unknown {'word' if wrong[1] == 'what' else wrong[1].lower()} {word!r}"
            listed = "\n  expected: one of " + ", ".join(known)
        else:
            wrong, listed = re.search(r"unrecognized arguments: (-[^\s=]*)", message), ""
            word, known = wrong[1] if wrong else "", [name for name in self._option_string_actions if wrong]
        # What belongs to another command comes first: `describe` is `dataset describe`.
        close = [f"{name} {word}" for name, words in self._words() if word in words]
        close = close or difflib.get_close_matches(word, known, cutoff=0.7 if word.startswith("-") else 0.6)
        # One that is near is told first, and all of them only where there is none.
        remedy = f"did you mean {' or '.join(close)}?" if close else f"./{self.prog} --help says what it takes"
        super().error(f"{message}{'' if close else listed}\n  remedy:   {remedy}")

    def _words(self) -> Iterator[tuple[str, Collection[str]]]:
        """The commands, with the words that each of them takes."""
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                for name, sub in action.choices.items():
                    yield name, [word for one in sub._actions for word in one.choices or ()]


@functools.cache
def _parser(root: str) -> argparse.ArgumentParser:
    parser = _Parser(
        prog="upkeep", description="Do language models keep up with changing knowledge? Every baseline of five papers."
    )
    parser.add_argument("--root", type=Path, default=Path(root), help=argparse.SUPPRESS)
    parser.add_argument("--version", action=_Version, nargs=0, help="the version and the commit")
    parser.add_argument("--config", type=Path, help="your own configuration file, over config/config.yaml")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(run=run, parser=sub)
        return sub

    run = command("run", suite.run, "run a suite: set-up, cells, scores, tables, report")
    run.add_argument("suite", nargs="?", help="default: `suite` in config/config.yaml")
    run.add_argument("--cores", type=_cores, default="all", metavar="N", help="to use at once; default: all")
    run.add_argument("-n", "--dry-run", action="store_true", help="say which cells would be run")
    run.add_argument("--json", action="store_true", help="print what came of it for programs, and nothing else there")

    refresh = command(
        "refresh", suite.refresh, "bring stale cells up to date by the replies on record, without any model"
    )
    refresh.add_argument("suite", nargs="?", help="default: `suite` in config/config.yaml")
    refresh.add_argument("--cores", type=_cores, default="all", metavar="N", help="to use at once; default: all")

    record = command(
        "record", questions.record, "the replies on record: of which engines, and what would answer a cell"
    )
    record.add_argument("what", nargs="?", choices=["list", "why", "export", "import", "prune"], default="list")
    record.add_argument("name", nargs="?", help="`why`: a cell; `export`, `import`: a file")
    record.add_argument("probe", nargs="?", help="`why`: of the cell, for its requests")
    record.add_argument("--json", action="store_true", help="`list`, `why`: print it for programs")

    setup = command(
        "setup", suite.setup, "all that could need a network, and nothing else: afterwards a suite runs offline"
    )
    setup.add_argument("suite", nargs="?", help="default: `suite` in config/config.yaml")
    setup.add_argument("--cores", type=_cores, default="all", metavar="N", help="to use at once; default: all")

    plan = command(
        "plan", questions.plan, "what a suite will take: requests, tokens, hours, money, disk; afterwards, what it took"
    )
    plan.add_argument("suite", nargs="?", help="default: `suite` in config/config.yaml")
    plan.add_argument("--count", action="store_true", help="count what is not counted yet: makes datasets and images")
    plan.add_argument("--cells", action="store_true", help="a line for each cell, too")
    plan.add_argument("--actual", action="store_true", help="beside it what the complete cells took")
    plan.add_argument("--gpu", help="a GPU of config/gpus.yaml, in place of the one that it assumes")
    plan.add_argument("--output-tokens", type=_count, metavar="N", help="tokens of a reply, without its reasoning")
    plan.add_argument("--thinking-tokens", type=_count, metavar="N", help="tokens of reasoning, for models that think")
    plan.add_argument("--json", type=Path, metavar="FILE", help="write the plan to a file, for programs; `-`: print it")

    doctor = command(
        "doctor", questions.doctor, "what this machine has, what each missing thing rules out, and the remedy"
    )
    doctor.add_argument("suite", nargs="?", help="default: `suite` in config/config.yaml")
    doctor.add_argument("--json", action="store_true", help="print the findings for programs")

    status = command(
        "status", questions.status, "how far a suite is: done, running, queued, failed and why; what to do next"
    )
    status.add_argument("suite", nargs="?", help="default: `suite` in config/config.yaml")
    status.add_argument("--failed", action="store_true", help="each failed cell by itself")
    status.add_argument("--watch", nargs="?", type=float, const=5.0, metavar="SECONDS", help="redraw, every 5 seconds")
    status.add_argument("--json", action="store_true", help="print it for programs")

    logs = command(
        "logs", questions.logs, "what a cell or training printed: DATASET/METHOD/VARIANT/MODEL, or a part of it"
    )
    logs.add_argument("cell")
    logs.add_argument("--suite", help="whose cells are meant; default: `suite` in config/config.yaml")
    logs.add_argument("-f", "--follow", action="store_true", help="go on printing what comes, until it has ended")
    logs.add_argument("--full", action="store_true", help="all of it, in place of the end")
    logs.add_argument("--json", action="store_true", help="print it for programs")

    show = command(
        "show", questions.show, "a prediction in reading order: question, prompts, replies, answer key, verdict"
    )
    show.add_argument("cell", help="DATASET/METHOD/VARIANT/MODEL, or the folder of one")
    show.add_argument("probe", nargs="?", help="a probe, or a question for all its probes; default: all of the cell")
    show.add_argument("--trial", type=int, metavar="N", help="from 0 on; of one prediction the default is 0")
    show.add_argument("--wrong", action="store_true", help="of a listing, what is not right")
    show.add_argument("--full", action="store_true", help="everything, however long")
    show.add_argument("--json", action="store_true", help="print all of it for programs")

    diff = command(
        "diff",
        comparing.diff,
        "what differs between two cells, suites or results folders: by how much, by chance or not, and why",
    )
    diff.add_argument("first", metavar="A", help="DATASET/METHOD/VARIANT/MODEL, a suite, or a folder of either")
    diff.add_argument("second", metavar="B")
    diff.add_argument("--rows", type=_count, metavar="N", help="so many probes of two cells; default: 5")
    diff.add_argument("--json", action="store_true", help="print all of it for programs")

    explain = command(
        "explain",
        comparing.explain,
        "a place of a published table: our number there, and the cell, command and data behind",
    )
    explain.add_argument("table", help="`table_4`, or `oaks/table_4` where several papers have one")
    explain.add_argument("row", nargs="?", help="words of it, or its number; default: all of the table")
    explain.add_argument("column", nargs="?", help="words of it, or its number; default: all of the row")
    explain.add_argument("--suite", help="whose scores are meant; default: `suite` in config/config.yaml")
    explain.add_argument("--json", action="store_true", help="print it for programs")

    prune = command(
        "prune",
        keeping.prune,
        "what could be removed to make room, and, with --delete, its removal: what is unused alone",
    )
    prune.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(keeping.KINDS)}; default: all")
    prune.add_argument("--older-than", type=_count, metavar="DAYS", help="what was made so many days ago or earlier")
    prune.add_argument("--used", action="store_true", help="also what is in use, which is made again when it is wanted")
    prune.add_argument("--delete", action="store_true", help="remove it; without, nothing is changed")
    prune.add_argument("--json", action="store_true", help="print it for programs")

    export = command("export", keeping.export, "scores and predictions of a suite, for other programs")
    export.add_argument("folder", type=Path, help="a new one")
    export.add_argument("--as", dest="form", choices=keeping.FORMS, default="csv", help="default: csv")
    export.add_argument("--suite", help="default: `suite` in config/config.yaml")

    review = command(
        "review", reviewing.review, "run a suite and set every number and answer beside what the release recorded"
    )
    review.add_argument("suite", nargs="?", help="default: `suite` in config/config.yaml")
    review.add_argument("--cores", type=_cores, default="all", metavar="N", help="to use at once; default: all")
    review.add_argument("--as-is", action="store_true", help="run nothing: compare what lies there")
    review.add_argument("--record", action="store_true", help="record what lies there as the release's")
    review.set_defaults(table=None, method=None, dry_run=False, json=False)

    command("test", developing.test, "run the tests; options are pytest's (-k WORD, -x, ...)")

    check = command("check", developing.check, "formatter, linter, type checker, snakemake --lint")
    check.add_argument("--fix", action="store_true", help="let the formatter and the linter mend what they can")

    cell = command("cell", jobs.cell, "run one cell: DATASET/METHOD/VARIANT/MODEL")
    cell.add_argument("cell")
    cell.add_argument("--suite", help="whose seed and trials it is asked with; default: `suite` in config/config.yaml")
    cell.add_argument("--force", action="store_true", help="run it again, though it is complete")

    batch = command(
        "batch", jobs.batch, "run the cells of one model that share an engine; what a job of the workflow does"
    )
    batch.add_argument("name")
    batch.add_argument(
        "--recorded", action="store_true", help="as far as the record of replies answers; 1 where a model is wanted"
    )

    dataset = command(
        "dataset",
        datasets.dataset,
        "build, describe or audit one, say what differs between two, or what answers without reading score",
    )
    dataset.add_argument("what", choices=["build", "describe", "baselines", "record", "diff", "audit"])
    dataset.add_argument(
        "name",
        nargs="?",
        help="of it; of `diff` a name or a folder of a built one; `baselines`: default, all of them; "
        "`record`: what its version holds is written into datasets/contents.csv",
    )
    dataset.add_argument("other", nargs="?", help="`diff`: the newer of the two")
    dataset.add_argument("--rows", type=_count, metavar="N", help="`diff`: so many of each kind; default: 5")
    dataset.add_argument("--json", action="store_true", help="`build`, `describe`, `diff`, `baselines`: for programs")
    dataset.add_argument("--sample", type=_count, metavar="N", help="`audit`: so many probes; default: 50")
    dataset.add_argument("--seed", type=int, metavar="N", help="`audit`: of the drawing; default: 0")
    dataset.add_argument("--to", type=Path, metavar="FILE", help="`audit`: the page; default: results/audits/NAME.html")
    dataset.add_argument("--marks", type=Path, metavar="FILE", help="`audit`: what the page gave, to be kept")
    dataset.add_argument("--model", metavar="MODEL", help="`audit`: which reads the probes with evidence and without")

    image = command("image", jobs.image, "build the image of a method or an engine, or lock requirements")
    image.add_argument("what", choices=["build", "lock"])
    image.add_argument("name", nargs="?", help="a method, or a folder of containers/")
    image.add_argument("--engine", help="of a method that holds its model: transformers (default) or vllm-gpu")

    model = command("model", jobs.model, "fetch, make or find a model's weights; or train one by a method")
    model.add_argument("what", choices=["fetch", "train"])
    model.add_argument("name", help="of the model; of a training DATASET/METHOD/VARIANT/MODEL")
    model.add_argument("--suite", help="`train`: whose seed it is given; default: `suite` in config/config.yaml")
    model.add_argument("--force", action="store_true", help="train it again, though it is complete")

    train = command("train", jobs.train_own, "make a model of the suite's own anew, by its recipe")
    train.add_argument("name", help="of the model: pico")
    train.add_argument("--output", type=Path, help="where it goes; default: models/<name>")
    train.add_argument("--from", dest="start", metavar="STAGE", help="whose weights to go on from; default: nothing")
    train.add_argument("--steps", type=_count, metavar="N", help="of the last stage: fewer or more than the recipe's")
    train.add_argument("--seed", type=_count, metavar="N", help="of the last stage: another than the recipe's")
    train.add_argument("--evaluate", action="store_true", help="train nothing; print what the weights can do")

    judge = command("judge", results.judge, "have the judges of a suite judge the responses of its complete cells")
    judge.add_argument("suite", nargs="?", help="default: `suite` in config/config.yaml")
    judge.add_argument("--only", metavar="MODEL", help="one of the suite's judges")

    score = command("score", results.score, "score the complete cells of a suite")
    score.add_argument("suite", nargs="?", help="default: `suite` in config/config.yaml")

    report = command("report", results.report, "tables, figures and the pages from the scores")
    report.add_argument("suite", nargs="?", help="default: `suite` in config/config.yaml")
    report.add_argument(
        "--answers", nargs="+", default=[], metavar="CELL",
        help="cells whose answers it has one by one, `all` or `none`; default: all, where they are 100,000 at most",
    )  # fmt: skip

    for one in (run, plan):
        one.add_argument(
            "--table", metavar="TABLE", help="those cells alone that a table shows: `table_4`, `oaks/table_4`"
        )
        one.add_argument("--method", metavar="METHOD", help="the cells of one method, also of one that is in no suite")
    for one in (run, cell):
        sampled = one.add_mutually_exclusive_group()
        sampled.add_argument(
            "--limit",
            type=_count,
            metavar="N",
            help="ask so many questions of each dataset; results apart, in no table",
        )
        sampled.add_argument(
            "--probe",
            dest="probe_alone",
            metavar="ID",
            help="ask this probe alone, or this question at all its positions",
        )
        one.add_argument(
            "--fresh", action="store_true", help="ask the models everything again, and say how many answers differ"
        )
    for one in (run, setup, refresh, status, cell, model, score, report):
        one.add_argument(
            "--verify", action="store_true", help="hash every file again, also large ones that have not changed since"
        )
    for one in (run, setup, plan, judge, score, report):
        one.add_argument("--judge", metavar="MODEL", help="in place of every judge of the suite; `none` for no judge")
    for one in (run, refresh, setup, plan, doctor, status, logs, judge, score, report):
        one.add_argument(
            "--model", help="in place of every model of the suite: one of `list models`, a folder, ORG/NAME, or a URL"
        )

    validate = command("validate", questions.validate, "check predictions, a manifest, a cell, a dataset or a card")
    validate.add_argument("path", type=Path)

    new = command(
        "new", developing.new, "start a method, dataset, model, paper or suite of your own, which works at once"
    )
    new.add_argument("what", choices=["method", "dataset", "model", "paper", "suite"])
    new.add_argument(
        "name", help="of it; or where a model is: a folder, ORG/NAME[@REVISION] of a hub, or the URL of a server"
    )
    new.add_argument("--gpus", type=_count, default=0, metavar="N", help="that such a model needs; default: none")

    listing = command(
        "list", questions.listing, "what there is: methods, models, datasets, prompts, suites, or the cells of a suite"
    )
    listing.add_argument("what", choices=["methods", "models", "datasets", "papers", "prompts", "suites", "cells"])
    listing.add_argument("suite", nargs="?", help="`cells`: whose; default: `suite` in config/config.yaml")
    listing.add_argument("--json", action="store_true", help="print it for programs")

    completion = command(
        "completion", developing.completion, 'what completes its words: eval "$(./upkeep completion bash)"'
    )
    completion.add_argument("shell", choices=["bash", "zsh"])
    completion.set_defaults(whole=parser)

    command("schema", developing.schema, "write schema/*.schema.json anew from the records of the library")
    return parser


def _count(text: str) -> int:
    """A number from 1 on, for the parser."""
    if not (text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"expected a whole number from 1; found {text!r}")
    return int(text)


def _cores(text: str) -> str:
    """A number of cores as Snakemake takes it, for the parser."""
    if text != "all" and not (text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"expected a number from 1, or `all`; found {text!r}")
    return text
