"""Commands that run no cell: what a suite will take, how far it is, what a machine lacks, what there is."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from upkeep.commands.arguments import catalog_of
from upkeep.errors import UpkeepError, Usage

if TYPE_CHECKING:
    from upkeep.catalog import Catalog


def plan(arguments: argparse.Namespace) -> int:
    """`./upkeep plan`."""
    import msgspec
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
    if arguments.json is not None:
        content = msgspec.json.format(msgspec.json.encode(plan)).decode() + "\n"
        if str(arguments.json) == "-":
            sys.stdout.write(content)
            return 0
        arguments.json.write_text(content)
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
    from upkeep.operations.logs import find, show

    catalog = catalog_of(arguments)
    try:
        for line in show(catalog, find(catalog, arguments.cell), full=arguments.full, following=arguments.follow):
            print(line, flush=arguments.follow)
    except KeyboardInterrupt:
        if not arguments.follow:
            raise
    return 0


def show(arguments: argparse.Namespace) -> int:
    """`./upkeep show`."""
    from upkeep.operations.located import located
    from upkeep.operations.show import show

    catalog, cell = located(catalog_of(arguments), arguments.cell)
    for line in show(catalog, str(cell), arguments.probe, arguments.trial, wrong=arguments.wrong, full=arguments.full):
        print(line)
    return 0


def validate(arguments: argparse.Namespace) -> int:
    """`./upkeep validate`."""
    from upkeep.operations.validate import validate_path

    print(validate_path(arguments.path))
    return 0


def record(arguments: argparse.Namespace) -> int:
    """`./upkeep record`: the replies on record, listed, explained, carried elsewhere."""
    from upkeep.gateway import transfer

    catalog = catalog_of(arguments)
    if arguments.what in ("why", "export", "import") and arguments.name is None:
        one = "CELL" if arguments.what == "why" else "FILE"
        raise Usage(
            f"`record {arguments.what}` needs a name",
            expected=f"./upkeep record {arguments.what} {one}",
            remedy="`./upkeep list cells` shows those of a suite" if one == "CELL" else "name a file",
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


def listing(arguments: argparse.Namespace) -> int:
    """`./upkeep list`; 1 where a card of it cannot be read, which is told: the others are listed all the same."""
    import msgspec

    catalog = catalog_of(arguments)
    if arguments.suite is not None and arguments.what != "cells":
        raise Usage(
            f"`list {arguments.what}` takes no suite", found=arguments.suite, remedy="./upkeep list cells SUITE"
        )
    rows, broken = _listed(catalog, arguments)
    if arguments.json:
        told = [dict(zip(("name", "summary", "more"), row, strict=True)) for row in rows]
        print(msgspec.json.format(msgspec.json.encode(told)).decode())
    else:
        width = max((len(row[0]) for row in rows), default=0)
        for name, summary, more in rows:
            print(f"{name:{width}}  {summary}{f'  [{more}]' if more else ''}".rstrip())
    for error in broken:
        print(f"upkeep: {error}", file=sys.stderr)
    return 1 if broken else 0


def _listed(catalog: Catalog, arguments: argparse.Namespace) -> tuple[list[tuple[str, str, str]], list[UpkeepError]]:
    """(name, summary, what else there is to say) of all that can be read, and what is wrong with the rest."""
    rows: list[tuple[str, str, str]] = []
    broken: list[UpkeepError] = []

    def each(names: Iterable[str], of: Callable[[str], Iterable[tuple[str, str, str]]]) -> None:
        for name in names:
            try:
                rows.extend(of(name))
            except UpkeepError as error:
                broken.append(error)

    match arguments.what:
        case "methods":
            each(catalog.methods, lambda m: [(m, catalog.method(m).summary, " ".join(catalog.method(m).variants))])
        case "models":
            models = catalog.models
            each(models, lambda m: [(m, catalog.model(m).summary, "" if catalog.model(m).trained else "untrained")])
        case "datasets":
            each(catalog.families, lambda f: [(d, spec.summary, "") for d, spec in catalog.family(f).items()])
            rows.sort()
        case "papers":
            from upkeep.report.specs import read_paper

            each(catalog.papers, lambda p: [(p, read_paper(catalog.root / "papers" / p).label, "")])
        case "prompts":
            rows = [(p, str(path.relative_to(catalog.root)), "") for p, path in catalog.prompts.items()]
        case "suites":
            each(catalog.suites, lambda s: [(s, catalog.suite(s).summary, "")])
        case _:
            suite = catalog.suite(arguments.suite or catalog.config.suite)
            cells = [(str(cell), catalog.trials(cell, suite)) for cell in catalog.cells(suite)]
            rows = [(cell, "", f"{trials} trials" if trials > 1 else "") for cell, trials in cells]
    return rows, broken


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
