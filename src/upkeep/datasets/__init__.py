"""Datasets: builders and loaders that all give the one normal form of docs/architecture.md.

A builder is a function `build(context: store.Context) -> store.Built`. `dataset.yaml` names it by its key here.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

from upkeep.errors import UpkeepError

if TYPE_CHECKING:
    from upkeep.catalog import Catalog
    from upkeep.contract import DatasetCard

BUILDERS = {
    "evolveqa": "upkeep.datasets.evolveqa",
    "evowiki": "upkeep.datasets.evowiki",
    "imprint_code": "upkeep.datasets.imprint_code",
    "imprint_news": "upkeep.datasets.imprint_news",
    "imprint_personal": "upkeep.datasets.imprint_personal",
    "prelude": "upkeep.datasets.prelude",
    "oaks_babi": "upkeep.datasets.oaks_babi",
    "oaks_novel": "upkeep.datasets.oaks_novel",
    "oaks_release": "upkeep.datasets.oaks_release",
}
"""Name of a builder -> the module whose `build` it is. Modules are imported when asked for: polars is slow to load."""


def build_dataset(catalog: Catalog, name: str, folder: Path) -> DatasetCard:
    """Build or load the dataset `name` and publish it at `folder`, atomically (a folder of that name is replaced).

    Raises:
        UpkeepError: unknown dataset or builder, wrong options, missing or wrong inputs, or content that breaks a rule.
    """
    from upkeep.building import store
    from upkeep.building.reading import Faults
    from upkeep.identity import plan_dataset

    spec = catalog.dataset(name)
    where = catalog.root / "datasets" / name / "dataset.yaml"
    if spec.builder not in BUILDERS:
        raise UpkeepError(
            f"unknown builder {spec.builder!r}", where=f"{where}: builder", expected=f"one of {', '.join(BUILDERS)}"
        )
    faults = Faults(spec.faults, where)
    context = store.Context(name, spec, where, catalog, faults)
    plan = plan_dataset(catalog, name)  # before the build: what changes during it makes the dataset stale
    return store.publish(context, importlib.import_module(BUILDERS[spec.builder]).build(context), folder, plan)


def describe(catalog: Catalog, card: DatasetCard) -> str:
    """A dataset's counts and statistics as text, beside the paper's where the paper prints them."""
    from upkeep.building import store

    return store.describe(card, store.published(catalog.dataset(card.dataset), catalog.root / "papers"))


def validate(folder: Path) -> DatasetCard:
    """Check a built dataset whole; see `upkeep.building.store.validate`."""
    from upkeep.building import store

    return store.validate(folder)
