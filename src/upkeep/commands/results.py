"""Commands on what cells answered: scores, and tables, figures and the page."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from upkeep.commands.arguments import catalog_of
from upkeep.errors import UpkeepError, unknown

if TYPE_CHECKING:
    from upkeep.catalog import Catalog
    from upkeep.grading.scores import Scores
    from upkeep.jobs import Cell
    from upkeep.report.edits import Edit


def judge(arguments: argparse.Namespace) -> int:
    """`./upkeep judge`: the verdicts of a suite's judges on the responses of its cells that count."""
    from upkeep.judges import judges_of
    from upkeep.judging.suite import judge_suite

    catalog = catalog_of(arguments)
    name = catalog.config.suite
    judges = judges_of(catalog, catalog.suite(name))
    if not judges:
        print(f"suite {name} has no judges: `judges:` in its file names them, or --judge one for this time")
    if arguments.only is not None and arguments.only not in judges:
        raise unknown("judge", arguments.only, judges, f"no judge of this name in suite {name}")
    for judge in [arguments.only] if arguments.only is not None else judges:
        for line in judge_suite(catalog, name, judge):
            print(line, flush=True)
    return 0


def score(arguments: argparse.Namespace) -> int:
    """`./upkeep score`; 1 where cells are there and none of them counts."""
    # Before numpy is there: of its many small products several threads would mostly wait for each other.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from upkeep.grading.scores import score_suite

    catalog = catalog_of(arguments)
    scores = score_suite(catalog, arguments.suite or catalog.config.suite)
    tell_alike(scores)
    beside = scores.table["cell"].n_unique() - (own := scores.own["cell"].n_unique()) - ("" in scores.table["cell"])
    more = f" and {beside} beside the suite's" if beside else ""
    refused = f"; {len(scores.refused)} refused (above, each with its remedy)" if scores.refused else ""
    print(f"{len(scores.table):,} scores of {own} cells{more}{refused}")
    return 1 if scores.refused and not own else 0


def report(arguments: argparse.Namespace) -> int:
    """`./upkeep report`: of the scores as things are now."""
    from upkeep.grading.scores import scores_now
    from upkeep.layout import Layout
    from upkeep.report.page import render
    from upkeep.samples import of_config, told

    catalog = catalog_of(arguments)
    if (sample := of_config(catalog.config)) is not None:
        raise UpkeepError(
            f"{told(sample)} is in no table, so there is no report of it",
            remedy="`./upkeep report` without it, of what was asked whole",
        )
    suite = arguments.suite or catalog.config.suite
    tell_edits(render(catalog, scores_now(catalog, suite), arguments.answers))
    print(Layout(catalog.results).report(suite))
    return 0


def tell_refused(scores: Scores) -> None:
    """Say which cells are there and have no scores; `./upkeep score` says it whole."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in scores.refused.items():
        by_reason.setdefault(reason, []).append(name)
    for reason, names in by_reason.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        suite = scores.basis.suite
        print(f"no scores of {names[0]}{more}: {reason} (./upkeep score {suite} says where)", file=sys.stderr)


def tell_remarks(catalog: Catalog, suite: str, cells: Iterable[Cell]) -> None:
    """Say what would surprise of cells that are about to be asked."""
    from upkeep.beforehand import remarks

    for line in remarks(catalog, suite, cells):
        print(f"warning: {line}", file=sys.stderr, flush=True)


def tell_alike(scores: Scores) -> None:
    """Say which cells tables cannot tell apart."""
    for first, second, *others in scores.alike():
        more = f" and {len(others):,} more" if others else ""
        words = "tables show one of them; give the method's variant a setting, or the model's preset a `label`"
        print(f"{first} and {second}{more} have the same names and settings: {words}", file=sys.stderr)


def tell_edits(edits: Iterable[Edit]) -> None:
    """Say which published files of the suite are not as they were shipped."""
    for edit in edits:
        print(f"{edit.file}: {edit.how}; not as it was shipped with the suite (docs/running.md)", file=sys.stderr)
