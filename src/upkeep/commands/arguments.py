"""What all commands read of the command line: the repository, and which fields of the configuration it decides."""

from __future__ import annotations

import argparse
import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

from upkeep.errors import UpkeepError

if TYPE_CHECKING:
    from upkeep.catalog import Catalog


def catalog_of(arguments: argparse.Namespace) -> Catalog:
    """The repository, with the configuration as the command line has it."""
    from upkeep.catalog import Catalog

    return Catalog(arguments.root.resolve(), arguments.config, chosen_by(arguments))


def to_json(found: object) -> str:
    """A result for programs (docs/json.md)."""
    import msgspec

    return msgspec.json.format(msgspec.json.encode(found)).decode()


def cache_refusal(error: OSError, arguments: argparse.Namespace) -> UpkeepError | None:
    """What it means that nothing can be written to the configured cache; None where an error is of another place."""
    unwritable = (errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.ENOENT, errno.EEXIST)
    if error.errno not in unwritable or not isinstance(error.filename, str):
        return None
    cache, place = catalog_of(arguments).cache.absolute(), Path(error.filename).absolute()
    concerned = place.is_relative_to(cache) or cache.is_relative_to(place)
    if not concerned or (cache.is_dir() and os.access(cache, os.W_OK)):
        return None
    return UpkeepError(
        "the cache cannot be written",
        where=cache,
        expected="a folder, or a place for one, that you may write to",
        found=os.strerror(error.errno),
        remedy="name another place: `cache:` in your configuration, or UPKEEP_CACHE",
        kind="machine",
    )


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
    for name, field in (("limit", "limit"), ("probe_alone", "probe")):
        if (value := getattr(arguments, name, None)) is not None:
            chosen[field] = str(value)
    if judge := getattr(arguments, "judge", None):
        chosen["judge"] = judge
    return chosen
