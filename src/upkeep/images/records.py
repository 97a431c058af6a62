"""What an image that was built is, and what it holds."""

from __future__ import annotations

from pathlib import Path

from upkeep.contract import Count, Record, Sealed, Seconds, Sha256
from upkeep.errors import UpkeepError
from upkeep.integrity import read_sealed


class ImageRecord(Sealed, frozen=True, kw_only=True):
    """`results/images/<method>.<engine>.json`, `results/images/<engine>.json`: what a method or an engine runs in."""

    method: str | None
    """None for an engine's own."""
    engine: str
    """Folder of `containers/`."""
    runtime: str
    tag: str | None
    """Name of the image; null for an environment."""
    digest: str
    """Id of the image (`sha256:...`); for an environment, the hash of its locked requirements."""
    inputs: Sha256
    """Hash of all that it is built from."""
    content: Sha256 | None
    """Hash over all files that were installed, by path, mode and content: equal for two builds of the same inputs."""
    size: Count
    """Bytes; 0 for an environment."""
    base: str | None
    """Reference of the base image, with its digest where it is pinned."""
    base_digest: str | None
    packages: dict[str, str]
    python: str
    seconds: Seconds
    """What the build took."""


class Inventory(Record, frozen=True):
    """What `containers/inventory.py` prints."""

    content: Sha256
    packages: dict[str, str]
    python: str


def known_record(path: Path) -> ImageRecord | None:
    """The record of an image; None where there is none, or a damaged one, which is made again."""
    try:
        return read_sealed(path, ImageRecord, "it is made again")
    except UpkeepError:
        return None
