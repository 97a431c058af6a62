"""What images are made of, known before anything is built.

There is one a method, without any engine in it, and one an engine, without any method. Each is two thin layers
(packages of its own, code) on the locked packages of a folder of `containers/`, which have an image to themselves: so
editing code makes new images in seconds. An image's tag ends with the hash of all that it is built from, so an image
that exists is up to date.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from upkeep.catalog import Catalog
from upkeep.errors import UpkeepError
from upkeep.files import digest
from upkeep.images.environments import code_files, file_hashes, packages_of, packages_sha, requirement_locks
from upkeep.images.locks import read_lock

EPOCH = 315_532_800
"""Time of every file in an image: 1980-01-01, the first that a zip file can hold."""
ADDED = ("/opt/extras", "/opt/upkeep", "/methods")
"""Where an image differs from that of its packages."""


@dataclass(frozen=True, slots=True)
class ImagePlan:
    """An image to be, known before anything is built."""

    catalog: Catalog
    method: str | None
    engine: str
    base: str
    """Reference of the base image."""
    parts: dict[str, str]
    """Everything it is built from, by name, each with its hash."""
    packages: ImagePlan | None = None
    """The image that it is built on; None for one of packages alone."""

    @property
    def inputs(self) -> str:
        return digest(self.parts)

    @property
    def tag(self) -> str:
        name = self.engine if self.packages is None else f"{self.method or 'engine'}-{self.engine}"
        return f"upkeep/{name}:{self.inputs[:16]}"

    @property
    def dockerfile(self) -> Path:
        """All images with code have the same."""
        return self.catalog.root / "containers" / ("method" if self.packages else self.engine) / "Dockerfile"

    @property
    def lock(self) -> Path | None:
        """The packages that it adds to those of the image below."""
        lock, extras = requirement_locks(self.catalog, self.method, self.engine)
        return extras if self.packages else lock

    def imported(self, found: Mapping[str, str]) -> dict[str, str]:
        """The version of each package that a program in it gets, of those that are found in it: what it adds lies over
        what is below."""
        added = read_lock(self.lock) if self.packages is not None and self.lock is not None else []
        names = {re.sub(r"[-_.]+", "-", name): name for name in found}
        return {**found, **{names.get(pin.name, pin.name): pin.version for pin in added}}


def image_for(catalog: Catalog, method: str | None, engine: str, base: str | None = None) -> ImagePlan:
    """The image of a method on the packages of an engine, or of the engine itself.

    Args:
        base: base image in place of the pinned one of the engine's Dockerfile.

    Raises:
        UpkeepError: there is no such image, or its lock is missing.
    """
    lock, extras = requirement_locks(catalog, method, engine)
    containers, below = catalog.root / "containers", packages_of(engine)
    base = base or pinned_base(catalog, engine)
    parts = {"base": base}
    parts |= file_hashes({"engine/Dockerfile": containers / below / "Dockerfile", "install": containers / "install"})
    parts["engine/requirements.lock"] = packages_sha(lock)
    packages = ImagePlan(catalog, None, below, base, parts)
    parts = parts | file_hashes({"Dockerfile": containers / "method" / "Dockerfile"})
    parts["requirements.lock"] = packages_sha(extras) if extras is not None else ""
    return ImagePlan(catalog, method, engine, base, parts | file_hashes(code_files(catalog, method, engine)), packages)


def pinned_base(catalog: Catalog, engine: str) -> str:
    """The base image of an engine: the configured one (CPU images), else the pinned one of its Dockerfile."""
    if catalog.config.base_image and not engine.endswith("-gpu"):
        return catalog.config.base_image
    dockerfile = catalog.root / "containers" / packages_of(engine) / "Dockerfile"
    found = re.search(r"^ARG BASE=(\S+@sha256:[0-9a-f]{64})$", dockerfile.read_text(), re.M)
    if found is None:
        raise UpkeepError("no pinned base image", where=dockerfile, expected="ARG BASE=NAME@sha256:...")
    return found[1]
