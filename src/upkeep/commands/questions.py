"""Commands that run no cell: what a suite will take, how far it is, what a machine lacks, what there is."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from upkeep.commands.arguments import catalog_of, to_json
from upkeep.contract import Record
from upkeep.errors import UpkeepError, Usage

if TYPE_CHECKING:
    from upkeep.catalog import Catalog


def plan(arguments: argparse.Namespace) -> int:
    """`./upkeep plan`."""
    from rich.console import Console

    from upkeep.operations import part
    from upkeep.operations.plan.assumptions import Options
    from upkeep.operations.plan.estimate import make_plan
    from upkeep.operations.plan.terminal import render, render_actual

    catalog = catalog_of(arguments)
    options = Options(arguments.gpu, arguments.output_tokens, arguments.thinking_tokens)
    told, suite, cells = Console(stderr=True), catalog.config.suite, None
    if arguments.table or arguments.method:
        cells = part.chosen(catalog, suite, arguments.table, arguments.method)
    with told.status("planning") as status:
        plan = make_plan(catalog, suite, options, status.update, cells=cells, count=arguments.count)
    if str(arguments.json) == "-":
        print(to_json(plan))
        return 0
    if arguments.json is not None:
        arguments.json.write_text(to_json(plan) + "\n")
    # A file or a pipe has no width that a line would have to be broken at.
    console = Console() if sys.stdout.isatty() else Console(width=250)
    show = render_actual if arguments.actual else render
    console.print(show(plan, arguments.cells), highlight=False)
    return 0


def doctor(arguments: argparse.Namespace) -> int:
    """`./upkeep doctor`; 1 where the suite cannot run here."""
    from upkeep.operations.doctor.examination import examine, release
    from upkeep.operations.doctor.terminal import drawn

    catalog = catalog_of(arguments)
    found = examine(catalog, arguments.suite or catalog.config.suite)
    _print(found if arguments.json else drawn(found), arguments.json)
    release()
    return 0 if found.can_run else 1


def status(arguments: argparse.Namespace) -> int:
    """`./upkeep status`."""
    from upkeep.operations.status.survey import survey
    from upkeep.operations.status.terminal import Shown, watch

    catalog = catalog_of(arguments)
    suite = arguments.suite or catalog.config.suite
    if arguments.watch is not None:
        watch(catalog, suite, arguments.watch, each=arguments.failed)
        return 0
    found = survey(catalog, suite)
    _print(found if arguments.json else Shown(found, each=arguments.failed), arguments.json)
    return 0


def logs(arguments: argparse.Namespace) -> int:
    """`./upkeep logs`; Ctrl-C ends following."""
    from upkeep.operations.logs import find, lines, tell

    if arguments.json and arguments.follow:
        raise Usage("--json and --follow", remedy="leave one out: JSON is printed when all of it is there")
    catalog = catalog_of(arguments)
    if arguments.json:
        print(to_json(tell(catalog, find(catalog, arguments.cell), full=arguments.full)))
        return 0
    try:
        for line in lines(catalog, find(catalog, arguments.cell), full=arguments.full, following=arguments.follow):
            print(line, flush=arguments.follow)
    except KeyboardInterrupt:
        if not arguments.follow:
            raise
    return 0


def show(arguments: argparse.Namespace) -> int:
    """`./upkeep show`."""
    from upkeep.operations.located import located
    from upkeep.operations.show import lines
    from upkeep.operations.told import tell

    catalog, cell = located(catalog_of(arguments), arguments.cell)
    told = tell(catalog, str(cell), arguments.probe, arguments.trial, wrong=arguments.wrong)
    if arguments.json:
        print(to_json(told))
    else:
        for line in lines(told, full=arguments.full):
            print(line)
    return 0


def validate(arguments: argparse.Namespace) -> int:
    """`./upkeep validate`."""
    from upkeep.operations.validate import validate_path

    print(validate_path(arguments.path))
    return 0


def record(arguments: argparse.Namespace) -> int:
    """`./upkeep record`: the replies on record, listed, explained, carried elsewhere."""
    from upkeep.gateway import transfer, why

    if arguments.json and arguments.what not in ("list", "why"):
        raise Usage(f"`record {arguments.what}` takes no --json", remedy="it is for `record list` and `record why`")
    catalog = catalog_of(arguments)
    if arguments.what in ("why", "export", "import") and arguments.name is None:
        one = "CELL" if arguments.what == "why" else "FILE"
        raise Usage(
            f"`record {arguments.what}` needs a name",
            expected=f"./upkeep record {arguments.what} {one}",
            remedy="`./upkeep list cells` shows those of a suite" if one == "CELL" else "name a file",
        )
    if arguments.what == "why":
        found = why.why(catalog, arguments.name, arguments.probe)
        print(to_json(found) if arguments.json else "\n".join(why.lines(found)))
        return 0
    if arguments.json:
        print(to_json(list(transfer.kept(catalog))))
        return 0
    match arguments.what:
        case "list":
            lines = transfer.listing(catalog)
        case "export":
            lines = transfer.export(catalog, Path(arguments.name))
        case "import":
            lines = transfer.take_in(catalog, Path(arguments.name))
        case _:
            lines = transfer.prune(catalog)
    for line in lines:
        print(line)
    return 0


class Listed(Record, frozen=True):
    """A line of a listing."""

    name: str
    summary: str
    """Of a card; of a prompt its file; of a paper its name."""
    more: str = ""
    """Of a method its variants; of a model `untrained`, of a cell how many trials, where these are to be said."""


def listing(arguments: argparse.Namespace) -> int:
    """`./upkeep list`; 1 where a card of it cannot be read, which is told: the others are listed all the same."""
    catalog = catalog_of(arguments)
    if arguments.suite is not None and arguments.what != "cells":
        raise Usage(
            f"`list {arguments.what}` takes no suite", found=arguments.suite, remedy="./upkeep list cells SUITE"
        )
    rows, broken = _listed(catalog, arguments)
    if arguments.json:
        print(to_json(rows))
    else:
        width = max((len(row.name) for row in rows), default=0)
        for row in rows:
            print(f"{row.name:{width}}  {row.summary}{f'  [{row.more}]' if row.more else ''}".rstrip())
    for error in broken:
        print(f"upkeep: {error}", file=sys.stderr)
    return 1 if broken else 0


def _listed(catalog: Catalog, arguments: argparse.Namespace) -> tuple[list[Listed], list[UpkeepError]]:
    """All that can be read, and what is wrong with the rest."""
    rows: list[Listed] = []
    broken: list[UpkeepError] = []

    def each(names: Iterable[str], of: Callable[[str], Iterable[Listed]]) -> None:
        for name in names:
            try:
                rows.extend(of(name))
            except UpkeepError as error:
                broken.append(error)

    match arguments.what:
        case "methods":
            each(
                catalog.methods, lambda m: [Listed(m, catalog.method(m).summary, " ".join(catalog.method(m).variants))]
            )
        case "models":
            cards, untrained = catalog.model, ("untrained", "")
            each(catalog.models, lambda m: [Listed(m, cards(m).summary, untrained[cards(m).trained])])
        case "datasets":
            each(catalog.families, lambda f: [Listed(d, spec.summary) for d, spec in catalog.family(f).items()])
            rows.sort(key=lambda row: row.name)
        case "papers":
            from upkeep.report.specs import read_paper

            each(catalog.papers, lambda p: [Listed(p, read_paper(catalog.root / "papers" / p).label)])
        case "prompts":
            rows = [Listed(p, str(path.relative_to(catalog.root))) for p, path in catalog.prompts.items()]
        case "suites":
            each(catalog.suites, lambda s: [Listed(s, catalog.suite(s).summary)])
        case _:
            suite = catalog.suite(arguments.suite or catalog.config.suite)
            cells = [(str(cell), catalog.trials(cell, suite)) for cell in catalog.cells(suite)]
            rows = [Listed(cell, "", f"{trials} trials" if trials > 1 else "") for cell, trials in cells]
    return rows, broken


def _print(found: object, as_json: bool) -> None:
    """A result for people, or for programs."""
    from rich.console import Console

    if as_json:
        print(to_json(found))
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
