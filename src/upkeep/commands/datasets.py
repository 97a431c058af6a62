"""Commands on datasets: build, describe, compare and audit them."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from upkeep.commands.arguments import catalog_of, to_json
from upkeep.errors import Usage
from upkeep.exit_status import DIFFER

if TYPE_CHECKING:
    from upkeep.catalog import Catalog
    from upkeep.contract import DatasetCard

_OF = {
    "other": ("diff",),
    "rows": ("diff",),
    "json": ("build", "describe", "diff", "baselines"),
    "sample": ("audit",),
    "seed": ("audit",),
    "to": ("audit",),
    "marks": ("audit",),
    "model": ("audit",),
}
"""What only some read of the command line, and which."""


def dataset(arguments: argparse.Namespace) -> int:
    """`./upkeep dataset`."""
    for name, readers in _OF.items():
        if arguments.what not in readers and getattr(arguments, name) not in (None, False):
            said = getattr(arguments, name) if name == "other" else f"--{name}"
            of = " and ".join(f"`dataset {reader}`" for reader in readers)
            raise Usage(f"`dataset {arguments.what}` takes no {said}", remedy=f"it is for {of}")
    if arguments.name is None and arguments.what != "baselines":
        raise Usage(
            "which dataset?",
            expected=f"./upkeep dataset {arguments.what} NAME",
            remedy="`./upkeep list datasets` shows them all",
        )
    match arguments.what:
        case "diff":
            return _diff(arguments)
        case "audit":
            return _audit(arguments)
        case "baselines":
            return _baselines(arguments)
        case "record":
            return _record(arguments)
        case _:
            return _describe(arguments)


def _describe(arguments: argparse.Namespace) -> int:
    """Build a dataset, or not; and describe what is built, with its baselines."""
    from upkeep import inputs
    from upkeep.building.build import describe
    from upkeep.layout import Layout
    from upkeep.operations import baselines
    from upkeep.operations.audit.marks import told
    from upkeep.operations.described import described

    catalog = catalog_of(arguments)
    catalog.dataset(arguments.name)
    anew = arguments.what == "build"
    card = build(catalog, arguments.name) if anew else inputs.dataset(catalog, arguments.name)
    if arguments.json:
        print(to_json(described(catalog, card, *baselines.of(catalog, arguments.name))))
        return 0
    print("\n".join([describe(catalog, card), *told(Layout(catalog.results).dataset(arguments.name), card)]))
    if not anew:
        print("", *baselines.lines(catalog, baselines.of(catalog, arguments.name)), sep="\n")
    return 0


def build(catalog: Catalog, name: str) -> DatasetCard:
    """Build a dataset and work out what baselines score on it; those that are above chance are told."""
    from upkeep.building.build import build_dataset
    from upkeep.grading.baselines import baselines
    from upkeep.layout import Layout
    from upkeep.operations.baselines import warnings

    card = build_dataset(catalog, name, Layout(catalog.results).dataset(name))
    for line in warnings(catalog, baselines(catalog, name)):
        print(line, file=sys.stderr)
    return card


def _baselines(arguments: argparse.Namespace) -> int:
    """What answers without a model and without reading score."""
    from upkeep.operations import baselines

    found = baselines.of(catalog := catalog_of(arguments), arguments.name)
    if arguments.json:
        print(to_json(found))
    else:
        print("\n".join(baselines.lines(catalog, found)))
    return 0


def _record(arguments: argparse.Namespace) -> int:
    """Write down what a version of a dataset holds."""
    from upkeep.operations import contents

    catalog = catalog_of(arguments)
    catalog.dataset(arguments.name)
    for name, version in contents.record(catalog, [arguments.name]):
        print(f"{name}: version {version} is in {contents.path_of(catalog)}")
    return 0


def _diff(arguments: argparse.Namespace) -> int:
    """What differs between two builds; `DIFFER` where anything does."""
    from upkeep.operations.dataset_diff import diff, lines

    if arguments.other is None:
        raise Usage(
            "which two?",
            expected="./upkeep dataset diff A B: names, or folders of built datasets",
            remedy="name the newer of the two, too",
        )
    limit = None if arguments.json else arguments.rows or 5
    found = diff(catalog_of(arguments), arguments.name, arguments.other, limit)
    if arguments.json:
        print(to_json(found))
    else:
        for line in lines(found):
            print(line)
    return 0 if found.same else DIFFER


def _audit(arguments: argparse.Namespace) -> int:
    """A page to mark a sample on, which a model may read first; or its marks, read back."""
    from upkeep import inputs
    from upkeep.files import write_atomically
    from upkeep.layout import Layout
    from upkeep.operations.audit import readings
    from upkeep.operations.audit.marks import take, told
    from upkeep.operations.audit.page import Read, render
    from upkeep.operations.audit.sample import draw

    catalog = catalog_of(arguments)
    catalog.dataset(arguments.name)
    card = inputs.dataset(catalog, arguments.name)
    layout = Layout(catalog.results)
    folder = layout.dataset(arguments.name)
    if arguments.marks is not None:
        others = ("sample", "seed", "to", "model")
        if given := [f"--{name}" for name in others if getattr(arguments, name) is not None]:
            raise Usage(f"--marks and {given[0]}", remedy="leave it out: the marks say which sample they are of")
        take(folder, card, arguments.marks)
        print("\n".join(told(folder, card)))
        return 0
    out, count, seed = arguments.to or layout.audit(arguments.name), arguments.sample or 50, arguments.seed or 0
    items, by_model = draw(folder, count, seed), None
    if arguments.model is not None:
        by_model = Read(arguments.model, readings.read(catalog, card, items, arguments.model))
        print("\n".join(readings.told(by_model.of, len(items), arguments.model)))
    write_atomically(out, render(items, card, count, seed, by_model).encode())
    print(f"{out}: {len(items)} of {card.probes:,} probes. Open it, mark them, save the marks; then")
    print(f"  ./upkeep dataset audit {arguments.name} --marks FILE")
    return 0
