"""What a step is given that another one has made: datasets, trained models; verified when it is read.

Weights are in `upkeep.weights`, which verifies them in the same way.
"""

from __future__ import annotations

from pathlib import Path

from upkeep.catalog import Catalog
from upkeep.configuration import read_config
from upkeep.contract import DatasetCard, Manifest
from upkeep.integrity import (
    NOTHING_KNOWN,
    Damaged,
    Hashes,
    Missing,
    read_sealed,
    verified_once,
    verify_files,
    verify_folder,
)
from upkeep.jobs import Cell, Job, Training
from upkeep.layout import Layout


def command_of(job: Job) -> str:
    """The command that makes a job's results."""
    return f"./upkeep {'cell' if isinstance(job, Cell) else 'model train'} {job}"


def remedy_of(catalog: Catalog, job: Job) -> str:
    """`command_of`, with the suite where the command would take another by itself: its seed is part of what a job is,
    and its trials of what a cell is."""
    suite = catalog.config.suite
    return command_of(job) + ("" if suite == read_config(catalog.root, None, {}).suite else f" --suite {suite}")


@verified_once
def dataset(catalog: Catalog, name: str) -> DatasetCard:
    """The card of a built dataset whose files are the ones that were built.

    Raises:
        Missing: it is not built.
        Damaged: the card or a file is not what was written, or is another dataset's.
    """
    folder = Layout(catalog.results).dataset(name)
    card = verify_dataset(folder, catalog.hashes)
    if card.dataset != name:
        raise Damaged(
            "another dataset",
            where=folder / "card.json",
            expected=name,
            found=card.dataset,
            remedy=f"./upkeep dataset build {name}",
        )
    return card


def verify_dataset(folder: Path, hashes: Hashes = NOTHING_KNOWN) -> DatasetCard:
    """As `dataset`, whatever its name."""
    remedy = f"./upkeep dataset build {folder.name}"
    try:
        card = read_sealed(folder / "card.json", DatasetCard, remedy)
    except Missing as missing:
        raise Missing(f"the dataset {folder.name!r} is not built", where=missing.where, remedy=remedy) from None
    verify_files(folder, card.files, remedy, hashes)
    return card


@verified_once
def trained(catalog: Catalog, training: Training) -> Manifest:
    """The manifest of a trained model whose files are the ones that were made.

    Raises:
        Missing: it has not been made.
        Damaged: it is not what was made.
    """
    try:
        return verify_folder(Layout(catalog.results).trained(training), catalog.hashes)
    except Missing as missing:
        remedy = remedy_of(catalog, training)
        raise Missing("the trained model is not there", where=missing.where, remedy=remedy) from None
