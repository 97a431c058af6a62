"""Commands that set answers beside others: two cells, suites or results folders."""

from __future__ import annotations

import argparse

from upkeep.commands.arguments import catalog_of, to_json
from upkeep.exit_status import DIFFER

ROWS = 5
"""Probes that are told of two cells."""


def diff(arguments: argparse.Namespace) -> int:
    """`./upkeep diff`; `DIFFER` where anything does."""
    from upkeep.operations.diff.comparing import difference
    from upkeep.operations.diff.terminal import lines

    limit = None if arguments.json else arguments.rows or ROWS
    found = difference(catalog_of(arguments), arguments.first, arguments.second, limit)
    if arguments.json:
        print(to_json(found))
    else:
        for line in lines(found):
            print(line)
    return 0 if found.same else DIFFER


def explain(arguments: argparse.Namespace) -> int:
    """`./upkeep explain`."""
    from upkeep.operations.explain import explain, lines

    catalog = catalog_of(arguments)
    asked = arguments.table, arguments.row, arguments.column
    table, places = explain(catalog, catalog.config.suite, *asked)
    if arguments.json:
        print(to_json(places))
        return 0
    for line in lines(table, places, single=arguments.column is not None):
        print(line)
    return 0
