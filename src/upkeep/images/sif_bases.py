"""Base images of SIF files: what the configuration names, what a registry has, or what is made on the machine."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from upkeep.catalog import Catalog
from upkeep.errors import UpkeepError
from upkeep.file_locks import exclusive
from upkeep.files import digest, hash_file
from upkeep.images.apptainer import CommandLine, last_line
from upkeep.images.debian import debian, made_reference
from upkeep.images.plans import pinned_base
from upkeep.images.sif_files import seal, sealed, write_sif
from upkeep.machine.scratch import Scratch


@dataclass(frozen=True, slots=True)
class Base:
    """A base image on this machine."""

    reference: str
    """The name that was asked for, or that of the one made here."""
    source: str
    """What Apptainer builds from: a path, or `docker-archive:PATH`."""
    identity: str
    """The name with what it holds."""
    digest: str


def ensure_base_sif(catalog: Catalog, engine: str, client: CommandLine) -> Base:
    """The base image of an engine: what the configuration names (a .sif, a folder, an archive as `docker save` writes
    it, or a name in a registry), else the pinned one of a registry, or where none can be reached, one made here.

    Raises:
        UpkeepError: it can neither be pulled nor made.
    """
    if (base := base_at_hand(catalog, engine)) is not None:
        return base
    reference = pinned_base(catalog, engine)
    pulled, made = _places(catalog, reference)
    may_make = reference != catalog.config.base_image and not engine.endswith("-gpu")
    folder = pulled.parent
    with exclusive(folder / ".base.lock"):
        if (base := base_at_hand(catalog, engine)) is not None:
            return base
        print(f"upkeep: pulling {reference}", file=sys.stderr)
        with Scratch(folder) as temporary:
            partial = temporary / "base.sif"
            done = client.run("build", "--disable-cache", partial, _pullable(reference))
            if not done.returncode:
                seal(partial, pulled)
            elif not may_make or shutil.which("mmdebstrap") is None:
                raise UpkeepError(
                    "the base image cannot be pulled",
                    where=reference,
                    found=last_line(done.stderr),
                    remedy="name one that this machine has (base_image, UPKEEP_BASE_IMAGE: a .sif, a folder or an "
                    "archive, with Python 3.11 and venv)" + (", or install mmdebstrap" if may_make else ""),
                    kind="image",
                )
            else:
                print(
                    f"upkeep: {reference} cannot be pulled ({last_line(done.stderr)}); making a base image from Debian",
                    file=sys.stderr,
                )
                _make_base(partial)
                seal(partial, made)
    base = base_at_hand(catalog, engine)
    assert base is not None
    return base


def base_at_hand(catalog: Catalog, engine: str) -> Base | None:
    """The base image of an engine, where it is on this machine already."""
    reference = pinned_base(catalog, engine)
    path = catalog.root / Path(reference).expanduser()
    if path.exists():
        return _named(path, reference)
    pulled, made = _places(catalog, reference)
    if (found := sealed(pulled)) is not None:
        # One that is pinned is the same everywhere, though the file that a pull makes of it is not.
        pinned = reference.partition("@")[2]
        identity = reference if pinned else f"{reference}#{found.sha256}"
        return Base(reference, str(pulled), identity, pinned or f"sha256:{found.sha256}")
    if reference != catalog.config.base_image and not engine.endswith("-gpu") and (found := sealed(made)) is not None:
        return Base(made_reference(), str(made), f"{made_reference()}#{found.sha256}", f"sha256:{found.sha256}")
    return None


def _places(catalog: Catalog, reference: str) -> tuple[Path, Path]:
    """Where the cache has a base image that was pulled, and the one that is made on the machine."""
    folder, made = catalog.cache / "sif", made_reference().replace("/", "-").replace(":", "-")
    return folder / f"pulled-{digest(reference)[:16]}.sif", folder / f"{made}.sif"


@functools.cache
def _named(path: Path, reference: str) -> Base:
    if path.is_dir():
        held = digest(
            {
                str(file.relative_to(path)): str(file.readlink()) if file.is_symlink() else hash_file(file)
                for file in sorted(path.rglob("*"))
                if file.is_symlink() or file.is_file()
            }
        )
    else:
        held = hash_file(path)
    source = f"docker-archive:{path}" if path.suffix == ".tar" else str(path)
    return Base(reference, source, f"{path.name}#{held}", f"sha256:{held}")


def _pullable(reference: str) -> str:
    """A name as Apptainer pulls it: of a tag and a digest it takes the digest alone."""
    if "://" in reference or reference.startswith(("docker-archive:", "oci-archive:", "oci:")):
        return reference
    name, _, pinned = reference.partition("@")
    if pinned:
        folder, slash, last = name.rpartition("/")
        name = f"{folder}{slash}{last.partition(':')[0]}@{pinned}"
    return f"docker://{name}"


def _make_base(target: Path) -> None:
    """A base image of Debian 12, made as an ordinary user (in a user namespace or with fakechroot)."""
    with Scratch() as folder:
        archive, root = folder / "base.tar", folder / "root"
        debian(archive)
        root.mkdir()
        command = ["tar", "-xf", str(archive), "-C", str(root), "--exclude=./dev/*", "--no-same-owner"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise UpkeepError(
                "the base image cannot be unpacked", where=archive, found=done.stderr.strip()[-2000:], kind="image"
            )
        write_sif(root, target, digest("base"))
