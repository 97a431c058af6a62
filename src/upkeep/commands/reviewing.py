"""`./upkeep review`: a suite on this machine, beside what the release recorded of it."""

from __future__ import annotations

import argparse
import sys
import time

from upkeep.commands import suite
from upkeep.commands.arguments import catalog_of
from upkeep.errors import UpkeepError
from upkeep.exit_status import WRONG

TOLD = 20
"""Differences that the terminal names; the page has more."""


def review(arguments: argparse.Namespace) -> int:
    """Check the machine, run the suite, compare, write the page; 1 where anything is not as it must be.

    With `--record` the suite's results, as they stand, become what is recorded.
    """
    from upkeep.operations.doctor.examination import examine, release
    from upkeep.operations.review import comparing, page
    from upkeep.operations.review.release import read, record

    catalog = catalog_of(arguments)
    name = arguments.suite = arguments.suite or catalog.config.suite
    if arguments.record:
        made = record(catalog, name)
        print(f"{catalog.release(name)}: {len(made.cells):,} cells of suite {name}")
        return 0
    was, scores, answers = read(catalog, name)
    machine = examine(catalog, name)
    release()
    if not machine.can_run and not arguments.as_is:
        raise UpkeepError(
            f"this machine cannot run suite {name!r}",
            found="; ".join(f.found for f in machine.findings if f.state == "missing") or machine.runtime_problem,
            remedy="`./upkeep doctor` says what is missing, with the remedy of each",
            kind="machine",
        )
    changed = comparing.changed_since(catalog, was, answers)
    seconds, finished = None, 0
    if not arguments.as_is:
        begin = time.monotonic()
        finished = suite.run(arguments)
        seconds = time.monotonic() - begin
    catalog = catalog_of(arguments)  # as things are now
    found = comparing.with_first(changed, comparing.compare(catalog, was, scores, answers))
    path = page.write(catalog, was, found, machine, seconds)
    for one in found.failures[:TOLD]:
        print(f"{one.what}: recorded {one.recorded}; found {one.found}", file=sys.stderr)
    if len(found.failures) > TOLD:
        print(f"and {len(found.failures) - TOLD:,} more, on the page", file=sys.stderr)
    print(f"review {page.verdict(found)}\n{path}")
    return WRONG if found.failures else finished
