"""Commands on datasets: build, describe, compare and audit them."""

from __future__ import annotations

import argparse
import sys

from upkeep.commands.arguments import catalog_of
from upkeep.errors import UpkeepError

DIFFER = 4
"""Exit status of `dataset diff` where the two differ."""
_OF = {"diff": ("other", "rows", "json"), "audit": ("sample", "seed", "to", "marks")}
"""What only these read of the command line."""


def dataset(arguments: argparse.Namespace) -> int:
    """`./upkeep dataset`."""
    for what, names in _OF.items():
        for name in names:
            if what != arguments.what and getattr(arguments, name) not in (None, False):
                said = getattr(arguments, name) if name == "other" else f"--{name}"
                raise UpkeepError(f"`dataset {arguments.what}` takes no {said}", remedy=f"it is for `dataset {what}`")
    match arguments.what:
        case "diff":
            return _diff(arguments)
        case "audit":
            return _audit(arguments)
        case _:
            return _describe(arguments)


def _describe(arguments: argparse.Namespace) -> int:
    """Build a dataset, or not; and describe what is built."""
    from upkeep import inputs
    from upkeep.building.build import build_dataset, describe
    from upkeep.layout import Layout
    from upkeep.operations.audit.marks import told

    catalog = catalog_of(arguments)
    catalog.dataset(arguments.name)
    folder = Layout(catalog.results).dataset(arguments.name)
    if arguments.what == "build":
        card = build_dataset(catalog, arguments.name, folder)
    else:
        card = inputs.dataset(catalog, arguments.name)
    print("\n".join([describe(catalog, card), *told(folder, card)]))
    return 0


def _diff(arguments: argparse.Namespace) -> int:
    """What differs between two builds; `DIFFER` where anything does."""
    import msgspec

    from upkeep.operations.dataset_diff import diff, lines

    if arguments.other is None:
        raise UpkeepError("which two?", expected="./upkeep dataset diff A B: names, or folders of built datasets")
    limit = None if arguments.json else arguments.rows or 5
    found = diff(catalog_of(arguments), arguments.name, arguments.other, limit)
    if arguments.json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(found)).decode() + "\n")
    else:
        for line in lines(found):
            print(line)
    return 0 if found.same else DIFFER


def _audit(arguments: argparse.Namespace) -> int:
    """A page to mark a sample on; or its marks, read back."""
    from upkeep import inputs
    from upkeep.layout import Layout
    from upkeep.operations.audit.marks import take, told
    from upkeep.operations.audit.page import write_page

    catalog = catalog_of(arguments)
    catalog.dataset(arguments.name)
    card = inputs.dataset(catalog, arguments.name)
    layout = Layout(catalog.results)
    folder = layout.dataset(arguments.name)
    if arguments.marks is not None:
        if given := [f"--{name}" for name in ("sample", "seed", "to") if getattr(arguments, name) is not None]:
            raise UpkeepError(f"--marks and {given[0]}", remedy="leave it out: the marks say which sample they are of")
        take(folder, card, arguments.marks)
        print("\n".join(told(folder, card)))
        return 0
    out = arguments.to or layout.audit(arguments.name)
    shown = write_page(folder, card, arguments.sample or 50, arguments.seed or 0, out)
    print(f"{out}: {shown} of {card.probes:,} probes. Open it, mark them, save the marks; then")
    print(f"  ./upkeep dataset audit {arguments.name} --marks FILE")
    return 0
