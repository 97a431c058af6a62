"""What all commands read of the command line: the repository, and which fields of the configuration it decides."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from upkeep.catalog import Catalog


def catalog_of(arguments: argparse.Namespace) -> Catalog:
    """The repository, with the configuration as the command line has it."""
    from upkeep.catalog import Catalog

    return Catalog(arguments.root.resolve(), arguments.config, chosen_by(arguments))


def chosen_by(arguments: argparse.Namespace) -> dict[str, str]:
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
    for name in ("limit", "only"):
        if (value := getattr(arguments, name, None)) is not None:
            chosen["probe" if name == "only" else name] = str(value)
    if judge := getattr(arguments, "judge", None):
        chosen["judge"] = judge
    return chosen
