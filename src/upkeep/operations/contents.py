"""`datasets/contents.csv`: what the versions of datasets that are built without any input hold, each by a hash.

A version is one content: where rules change, `changes` in `dataset.yaml` gets the reason, which makes the next version,
and the new content a line here. Lines of older versions stay.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from pathlib import Path

from upkeep import inputs
from upkeep.catalog import Catalog
from upkeep.contract import DatasetCard
from upkeep.errors import UpkeepError
from upkeep.files import digest, write_atomically

HEAD = ("dataset", "version", "sha256")
Contents = Mapping[tuple[str, int], str]
"""(dataset, version) -> hash of its content, as `dataset describe` prints it."""


def path_of(catalog: Catalog) -> Path:
    """Where they lie."""
    return catalog.root / "datasets" / "contents.csv"


def read(path: Path) -> Contents:
    """The versions that are recorded.

    Raises:
        UpkeepError: the file is not what `record` writes.
    """
    try:
        rows = list(csv.reader(path.read_text("utf-8").splitlines()))
        found = {(name, int(version)): sha256 for name, version, sha256 in rows[1:]}
    except (OSError, ValueError) as error:
        raise UpkeepError(f"cannot be read: {error}", where=path, expected=",".join(HEAD)) from None
    return found


def record(catalog: Catalog, names: Iterable[str]) -> list[tuple[str, int]]:
    """Record what these built datasets hold; which versions are new.

    Raises:
        UpkeepError: one is not built, is not of the version that its `dataset.yaml` says, or holds something else than
            that version did.
    """
    path = path_of(catalog)
    known = dict(read(path))
    new = []
    for name in names:
        card = inputs.dataset(catalog, name)
        check(catalog, card, known)
        if (name, card.dataset_version) not in known:
            new.append((name, card.dataset_version))
            known[new[-1]] = digest(card.content)
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(HEAD)
    lines.writerows((*key, sha256) for key, sha256 in sorted(known.items()))
    write_atomically(path, text.getvalue().encode())
    return new


def check(catalog: Catalog, card: DatasetCard, known: Contents) -> None:
    """Refuse a built dataset that is not what its version is recorded to hold.

    Raises:
        UpkeepError: as `record`.
    """
    name, version = card.dataset, card.dataset_version
    said = catalog.dataset(name).version
    if version != said:
        raise UpkeepError(
            f"{name} is built in another version",
            where=catalog.family_card(catalog.family_of(name)),
            expected=f"version {said}",
            found=f"version {version}",
            remedy=f"./upkeep dataset build {name}",
        )
    before, now = known.get((name, version)), digest(card.content)
    if before not in (None, now):
        raise UpkeepError(
            f"{name} holds something else than its version {version} did",
            where=catalog.family_card(catalog.family_of(name)),
            expected=f"content sha256 {before}",
            found=f"content sha256 {now}",
            remedy=f"say why under `changes`, which makes it version {version + 1}, build it, and `./upkeep dataset "
            f"record {name}`; of a version that is not published yet, take its line out of {path_of(catalog)} instead",
        )
