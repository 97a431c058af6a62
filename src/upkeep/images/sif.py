"""SIF images for Apptainer, made without root and without Docker.

The packages of a folder of `containers/` are one SIF file, shared by all images that are built on them and by all who
use the cache. What an image adds (further packages, the cell code, the method's files) is a small squashed file, laid
over the SIF read-only when a container starts. Both are named by the hash of all that they are built from, appear at
once and complete, and have fixed times and owners: the same base and the same locks give the same bytes.
"""

from __future__ import annotations

import functools
import os
import platform
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from upkeep.catalog import Catalog
from upkeep.contract import Count, Record, Sha256
from upkeep.errors import UpkeepError
from upkeep.files import digest, exclusive, hash_file, write_atomically
from upkeep.images.environments import code_files
from upkeep.images.images import (
    ADDED,
    EPOCH,
    ImagePlan,
    ImageRecord,
    Inventory,
    debian,
    host_root,
    image_for,
    known_record,
    made_reference,
    pinned_base,
)
from upkeep.images.locks import lay_out, wheels
from upkeep.integrity import write_sealed
from upkeep.machine.scratch import Scratch

VARIABLES = {
    "PATH": "/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "PYTHONPATH": "/opt/upkeep:/opt/extras",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    "UPKEEP_METHODS": "/methods",
}
"""What the Dockerfiles say under ENV."""
PYTHON = "/opt/venv/bin/python"
SQUASH = ("-noappend", "-all-root", "-no-xattrs", "-comp", "gzip", "-Xcompression-level", "4")
SQUASH_TIMES = ("-mkfs-time", str(EPOCH), "-all-time", str(EPOCH))
DATA = 8192
"""Where a SIF's file system begins: behind one page with the header and one with its only descriptor."""

CONTAINED = ("--userns", "--containall", "--cleanenv", "--no-home", "--no-eval", "--net", "--network", "none")
"""No network, nothing of the host's files, processes or variables, in a user namespace: as an ordinary user."""


class Seal(Record, frozen=True):
    """What lies beside a file of the cache: what it must be."""

    sha256: Sha256
    size: Count


@dataclass(frozen=True)
class Client:
    """The command line of Apptainer."""

    path: str

    def run(
        self, *arguments: str | Path, input: str | None = None, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.path, "--quiet", *map(str, arguments)],
            input=input,
            capture_output=True,
            text=True,
            env=environment(env or {}),
            umask=0o022,
        )

    def answers(self) -> str | None:
        """None where it runs a contained program here, without network and from a squashed file; else why not."""
        if not os.geteuid():
            return "apptainer: not as root, who would be root in the container, too: start as an ordinary user"
        if _mksquashfs() is None:
            return "apptainer: mksquashfs is missing (install squashfs-tools)"
        try:
            done = self._try()
        except (OSError, UpkeepError) as error:
            return f"apptainer: {error}"
        return f"apptainer: {_last(done.stderr)}" if done.returncode else None

    @functools.cached_property
    def delegated(self) -> bool:
        """Whether this user may bound memory and processes of a container (cgroups v2, delegated by systemd)."""
        return not self._try("--memory", "1G", "--memory-swap", "1G", "--pids-limit", "64").returncode

    def _try(self, *options: str) -> subprocess.CompletedProcess[str]:
        """Run /usr/bin/true of the host in a container, in all else as a cell."""
        with host_root() as root:
            layer = root.with_name("layer")
            layer.mkdir()
            squash(layer, image := layer.with_suffix(".sqsh"))
            binds = ["--no-mount", "bind-paths", "--bind", "/usr:/usr:ro"]
            return self.run("exec", *CONTAINED, *options, *binds, *overlays([root, image]), "/usr/bin/true")


def environment(inside: Mapping[str, str]) -> dict[str, str]:
    """The environment of an Apptainer command: `inside` for the container, and of the host's no setting that opens it
    (APPTAINER_BIND and its like)."""
    names = ("HOME", "PATH", "TMPDIR", "LANG", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "CUDA_VISIBLE_DEVICES")
    kept = {name: os.environ[name] for name in names if name in os.environ}
    return kept | {f"APPTAINERENV_{name}": value for name, value in inside.items()}


def find_apptainer() -> Client | None:
    """UPKEEP_APPTAINER, else the one on the PATH."""
    path = os.environ.get("UPKEEP_APPTAINER") or shutil.which("apptainer")
    return Client(path) if path else None


# ---------------------------------------------------------------- files


def _mksquashfs() -> str | None:
    return shutil.which("mksquashfs", path=f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin")


def squash(folder: Path, target: Path, *, offset: int = 0) -> None:
    """Write a folder as a squashed file system, the same bytes for the same content.

    Raises:
        UpkeepError: mksquashfs fails.
    """
    command = [_mksquashfs() or "mksquashfs", str(folder), str(target), *SQUASH, *SQUASH_TIMES, "-offset", str(offset)]
    command += ["-quiet", "-no-progress", "-processors", str(len(os.sched_getaffinity(0)))]
    # It takes the time from the variable or from its options, and never from both.
    variables = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"}
    done = subprocess.run(command, capture_output=True, text=True, env=variables, umask=0o022)
    if done.returncode:
        raise UpkeepError("an image cannot be squashed", where=target, found=done.stderr.strip()[-2000:], kind="image")


def write_sif(folder: Path, target: Path, identity: str) -> None:
    """Write a root file system as a SIF file (version 1, x86-64) whose bytes depend on nothing but its content.

    Apptainer's own `build` writes the time of day and a random id. Layout: https://github.com/apptainer/sif.

    Args:
        identity: hex digits, of which the first 32 become the file's id.

    Raises:
        UpkeepError: mksquashfs fails.
    """
    squash(folder, target, offset=DATA)
    size = target.stat().st_size - DATA
    header = struct.pack(
        "<32s10s3s3s16s8q",
        b"#!/usr/bin/env run-singularity\n",
        b"SIF_MAGIC",
        b"01",
        b"02",  # x86-64
        bytes.fromhex(identity[:32]),
        *(EPOCH, EPOCH),  # created, modified
        *(0, 1, 4096, 585),  # descriptors: free, all, where, bytes
        *(DATA, size),
    )
    partition = struct.pack(
        "<i?III7q128si i3s373x",
        0x4004,  # a partition
        *(True, 1, 0xF0000001, 0),  # used, id, group, link
        *(DATA, size, size, EPOCH, EPOCH, 0, 0),  # where, bytes, padded, created, modified, user, group
        b"",
        *(1, 2, b"02"),  # squashed, the system's own, x86-64
    )
    with target.open("r+b") as file:
        file.write(header)
        file.seek(4096)
        file.write(partition)


def seal(partial: Path, target: Path) -> Seal:
    """Move a finished file to its place, with what it must be beside it."""
    made = Seal(hash_file(partial), partial.stat().st_size)
    partial.chmod(0o644)
    os.utime(partial, (EPOCH, EPOCH))
    write_atomically(_seal_of(target), msgspec.json.encode(made))
    partial.replace(target)
    return made


def _seal_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.json")


def sealed(path: Path) -> Seal | None:
    """What a file of the cache is; None where there is none.

    Its bytes are read only where its size is right and its time another than the one all these files have.

    Raises:
        UpkeepError: it is not what was built.
    """
    try:
        expected = msgspec.json.decode(_seal_of(path).read_bytes(), type=Seal)
        found = path.stat()
    except FileNotFoundError:
        return None
    if found.st_size == expected.size and (found.st_mtime == EPOCH or hash_file(path) == expected.sha256):
        return expected
    raise UpkeepError(
        "an image is not what was built",
        where=path,
        expected=f"{expected.size:,} bytes, sha256 {expected.sha256}",
        found=f"{found.st_size:,} bytes" if found.st_size != expected.size else "other content",
        remedy=f"remove it ({path}), and it is built again",
        kind="image",
    )


# ---------------------------------------------------------------- base images


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


def ensure_base_sif(catalog: Catalog, engine: str, client: Client) -> Base:
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
                    found=_last(done.stderr),
                    remedy="name one that this machine has (base_image, UPKEEP_BASE_IMAGE: a .sif, a folder or an "
                    "archive, with Python 3.11 and venv)" + (", or install mmdebstrap" if may_make else ""),
                    kind="image",
                )
            else:
                print(
                    f"upkeep: {reference} cannot be pulled ({_last(done.stderr)}); making a base image from Debian",
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


def _last(text: str) -> str:
    return (text.strip().splitlines() or ["no answer"])[-1]


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


# ---------------------------------------------------------------- building


def ensure_sif(
    catalog: Catalog, method: str | None, engine: str, client: Client
) -> tuple[ImageRecord, tuple[Path, ...]]:
    """Build the SIF of an image's packages, and the layer of an image on it, where they are missing.

    Returns the record and the files: the SIF and the layer.

    Raises:
        UpkeepError: the base image, a wheel or the build fails; a file is not what was built; or this processor has no
            wheels locked.
    """
    if platform.machine() not in {"x86_64", "AMD64"}:
        raise UpkeepError("the locked wheels are for x86-64", found=platform.machine(), kind="machine")
    base = ensure_base_sif(catalog, engine, client)
    return _ensure(image_for(catalog, method, engine, base.identity), base, client)


def _ensure(plan: ImagePlan, base: Base, client: Client) -> tuple[ImageRecord, tuple[Path, ...]]:
    catalog = plan.catalog
    below, files = _ensure(plan.packages, base, client) if plan.packages is not None else (None, ())
    # How a file is squashed is an input of it, too.
    plan = replace(plan, parts=plan.parts | {"sif": digest([SQUASH, DATA])})
    target = catalog.cache / "sif" / _file_name(plan)
    files = (*files, target)
    path = catalog.cache / "images" / f"{target.name}.json"
    if (record := _known(path, files)) is not None:
        return record, files
    with exclusive(target.with_name(f".{target.name}.lock")):
        if (record := _known(path, files)) is not None:
            return record, files
        begin = time.monotonic()
        if sealed(target) is None:
            print(f"upkeep: building {target}", file=sys.stderr)
            with Scratch(target.parent) as temporary:
                partial = temporary / target.name
                if below is None:
                    _build_packages(plan, base, client, partial)
                else:
                    _build_layer(plan, files[0], client, partial)
                seal(partial, target)
        held = inventory(catalog, client, files, ["/opt/venv"] if below is None else ADDED)
        seals = _seals(files)
        made = ImageRecord(
            method=plan.method,
            engine=plan.engine,
            runtime="apptainer",
            tag=" + ".join(file.name for file in files),
            digest=_digest(seals),
            inputs=plan.inputs,
            content=held.content if below is None else digest([below.content, held.content]),
            size=sum(each.size for each in seals),
            base=base.reference,
            base_digest=base.digest,
            packages=held.packages,
            python=held.python,
            seconds=round(time.monotonic() - begin, 1),
        )
        return write_sealed(path, made), files


def _seals(files: Sequence[Path]) -> list[Seal]:
    """Of those files that are there."""
    return [found for file in files if (found := sealed(file)) is not None]


def _digest(seals: Sequence[Seal]) -> str:
    """Of packages alone the hash of their file; of an image, one over those of both files."""
    return f"sha256:{seals[0].sha256 if len(seals) == 1 else digest([each.sha256 for each in seals])}"


def _known(path: Path, files: Sequence[Path]) -> ImageRecord | None:
    """The record of files that are there and are what it says; needs no right to write."""
    seals, record = _seals(files), known_record(path)
    if len(seals) < len(files) or record is None:
        return None
    return record if record.digest == _digest(seals) else None


def _file_name(plan: ImagePlan) -> str:
    return plan.tag.removeprefix("upkeep/").replace(":", "-") + (".sif" if plan.packages is None else ".sqsh")


def _build_packages(plan: ImagePlan, base: Base, client: Client, target: Path) -> None:
    with Scratch() as folder:
        root = folder / "root"
        _check(client.run("build", "--disable-cache", "--sandbox", root, base.source), base.reference)
        # What says when and from what it was built; the record says the second.
        for name in ("labels.json", "Singularity", "bootstrap_history"):
            unwanted = root / ".singularity.d" / name
            shutil.rmtree(unwanted) if unwanted.is_dir() else unwanted.unlink(missing_ok=True)
        (root / "opt" / "venv").mkdir(parents=True)
        install = "python3 -m venv /opt/venv && PATH=/opt/venv/bin:$PATH sh /wheels/install"
        _install(plan, client, folder, [root], {"/opt/venv": root / "opt" / "venv"}, install)
        write_sif(root, target, plan.inputs)


def _build_layer(plan: ImagePlan, packages: Path, client: Client, target: Path) -> None:
    with Scratch() as folder:
        root = folder / "root"
        places = {name: root / name[1:] for name in ADDED}
        for place in places.values():
            place.mkdir(parents=True)
        for name, path in code_files(plan.catalog, plan.method, plan.engine).items():
            copy = root / name.replace("code/", "opt/upkeep/", 1)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
        for path in (root, *root.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        compiled = f"{PYTHON} -m compileall -q --invalidation-mode unchecked-hash /opt/upkeep"
        install = f"PATH=/opt/venv/bin:$PATH sh /wheels/install /opt/extras && {compiled}"
        _install(plan, client, folder, [packages], places, install)
        squash(root, target)


def _install(
    plan: ImagePlan, client: Client, folder: Path, image: Sequence[Path], places: Mapping[str, Path], script: str
) -> None:
    """Run the Dockerfiles' commands in a container without network, with `places` to write to."""
    lay_out(wheels(plan.lock, plan.catalog.cache / "wheels") if plan.lock else {}, folder / "wheels")
    shutil.copyfile(plan.catalog.root / "containers" / "install", folder / "wheels" / "install")
    (folder / "work").mkdir()
    binds = {"/wheels:ro": folder / "wheels", "/tmp": folder / "work", **places}
    options = [word for place, path in binds.items() for word in ("--bind", f"{path}:{place}")]
    variables = {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/tmp"}
    done = client.run("exec", *CONTAINED, *options, "--cwd", "/tmp", *image, "sh", "-c", script, env=variables)
    _check(done, plan.lock or plan.dockerfile)


def _check(done: subprocess.CompletedProcess[str], where: object) -> None:
    if done.returncode:
        raise UpkeepError(
            "an image cannot be built", where=where, found=(done.stderr or done.stdout).strip()[-4000:], kind="image"
        )


def overlays(files: Sequence[Path]) -> list[str]:
    """The last words of a command: what is laid over the packages, and those."""
    packages, *layers = map(str, files)
    return [word for layer in layers for word in ("--overlay", f"{layer}:ro")] + [packages]


def inventory(catalog: Catalog, client: Client, files: Sequence[Path], folders: Sequence[str]) -> Inventory:
    """What an image holds: packages, and one hash over all files in these folders.

    Raises:
        UpkeepError: it does not run.
    """
    script = (catalog.root / "containers" / "inventory.py").read_text()
    done = client.run("exec", *CONTAINED, *overlays(files), PYTHON, "-", *folders, input=script, env=VARIABLES)
    if done.returncode:
        raise UpkeepError("the image does not run", where=files[-1], found=done.stderr.strip()[-2000:], kind="image")
    return msgspec.json.decode(done.stdout.encode(), type=Inventory)
