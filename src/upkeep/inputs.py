"""What a step is given that another one has made: datasets, memories, trained models; verified when it is read.

Weights are in `upkeep.weights`, which verifies them in the same way.
"""

from __future__ import annotations

from pathlib import Path

from upkeep.catalog import ArtifactCell, Catalog
from upkeep.contract import DatasetCard, Manifest
from upkeep.integrity import NOTHING_KNOWN, Damaged, Hashes, Missing, read_sealed, verify_files, verify_folder
from upkeep.paths import Layout


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


def memory(catalog: Catalog, artifact: ArtifactCell) -> Manifest:
    """The manifest of a memory whose file is the one that was made.

    Raises:
        Missing: it has not been made.
        Damaged: it is not what was made.
    """
    return _artifact(catalog, artifact, Layout(catalog.results).memory(artifact), "memory")


def trained(catalog: Catalog, training: ArtifactCell) -> Manifest:
    """As `memory`, for a trained model."""
    return _artifact(catalog, training, Layout(catalog.results).trained(training), "trained model")


def _artifact(catalog: Catalog, artifact: ArtifactCell, folder: Path, kind: str) -> Manifest:
    try:
        return verify_folder(folder, catalog.hashes)
    except Missing as missing:
        raise Missing(f"the {kind} is not there", where=missing.where, remedy=f"./upkeep artifact {artifact}") from None
