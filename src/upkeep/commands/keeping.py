"""Commands on what is kept: what could be removed, and what is given away."""

from __future__ import annotations

import argparse
import contextlib

from upkeep.commands.arguments import catalog_of, to_json
from upkeep.errors import Usage, nearest

KINDS = ("images", "environments", "wheels", "cells", "samples")
"""What `./upkeep prune` looks for."""
FORMS = ("csv", "xlsx", "parquet", "huggingface", "ro-crate")
"""What `./upkeep export` writes."""


def prune(arguments: argparse.Namespace) -> int:
    """`./upkeep prune`; 1 where something could not be removed."""
    from upkeep.layout import Layout
    from upkeep.machine.lifeline import leading
    from upkeep.operations.prune import lines, prune

    for kind in arguments.kinds:
        if kind not in KINDS:
            close = nearest(kind, KINDS)
            raise Usage(
                f"unknown kind {kind!r}",
                expected=f"of {', '.join(KINDS)}",
                remedy=f"did you mean {' or '.join(close)}?" if close else "leave it out for all",
            )
    catalog = catalog_of(arguments)
    with leading(Layout(catalog.results).run) if arguments.delete else contextlib.nullcontext():
        found = prune(catalog, arguments.kinds, arguments.older_than, used=arguments.used, delete=arguments.delete)
    if arguments.json:
        print(to_json(found))
    else:
        for line in lines(found, delete=arguments.delete, used=arguments.used):
            print(line)
    return 1 if found.failed else 0


def export(arguments: argparse.Namespace) -> int:
    """`./upkeep export`."""
    from upkeep.operations.export.crate import to_crate
    from upkeep.operations.export.files import require_new, to_csv, to_huggingface, to_parquet
    from upkeep.operations.export.rows import Exported
    from upkeep.operations.export.sheet import to_xlsx

    catalog, folder = catalog_of(arguments), arguments.folder
    require_new(folder)
    exported = Exported.of(catalog, catalog.config.suite)
    folder.mkdir(parents=True, exist_ok=True)
    writers = dict(zip(FORMS, (to_csv, to_xlsx, to_parquet, to_huggingface, to_crate), strict=True))
    files = list(writers[arguments.form](exported, folder))
    print(f"{folder}: {len(files):,} files, {len(exported.cells):,} cells of suite {exported.suite}")
    return 0
