"""Container images: one a method, without any engine in it, and one an engine, without any method.

Each is two thin layers (packages of its own, code) on the locked packages of a folder of `containers/`, which have an
image to themselves: so editing code makes new images in seconds. An image's tag ends with the hash of all that it is
built from, so an image that exists is up to date. Builds have no network: the locked wheels are downloaded before.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec

from upkeep.catalog import Catalog
from upkeep.contract import Count, Record, Sealed, Seconds, Sha256
from upkeep.errors import UpkeepError
from upkeep.files import digest, exclusive
from upkeep.images.environments import code_files, file_hashes, packages_of, packages_sha, requirement_locks
from upkeep.images.locks import lay_out, wheels
from upkeep.integrity import read_sealed, write_sealed
from upkeep.machine.ask import ask
from upkeep.machine.scratch import Scratch

EPOCH = 315_532_800
"""Time of every file in an image: 1980-01-01, the first that a zip file can hold."""
MADE_BASE = "upkeep/base-os"
PODMAN_PROCESSES = 32_768
"""Podman lowers its own limit of processes to this, and can give none that is higher."""
ADDED = ("/opt/extras", "/opt/upkeep", "/methods")
"""Where an image differs from that of its packages."""
MADE_PACKAGES = ("python3", "python3-venv", "libgomp1", "libnuma1", "libstdc++6")


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


# ---------------------------------------------------------------- the client


@dataclass(frozen=True, slots=True)
class Client:
    """The command line of Docker or Podman."""

    name: str
    """docker or podman"""
    path: str

    def run(
        self, *arguments: str, input: str | None = None, env: dict[str, str] | None = None, timeout: float | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.path, *arguments],
            input=input,
            capture_output=True,
            text=True,
            timeout=timeout,
            env=os.environ | (env or {}),
        )

    def answers(self) -> str | None:
        """None where the engine answers; else why not."""
        query = "{{.Server.Version}}" if self.name == "docker" else "{{.Client.Version}}"
        try:
            done = self.run("version", "--format", query, timeout=20)
            if not done.returncode and self.name == "podman":
                done = self._try()
        except (subprocess.TimeoutExpired, OSError) as error:
            return f"{self.name}: {error}"
        if done.returncode:
            return f"{self.name}: {(done.stderr.strip() or 'no answer').splitlines()[-1]}"
        return None

    def _try(self) -> subprocess.CompletedProcess[str]:
        """Run a program of the host in a container with limits. Podman has no server that would know without trying."""
        bounds = ["--memory", "1g", "--pids-limit", "64", *self.limits, "--security-opt", "label=disable"]
        with host_root() as root:
            options = ["--rm", "--network", "none", "--log-driver", "none", "--volume", "/usr:/usr:ro"]
            return self.run("run", *options, *bounds, "--rootfs", str(root), "/usr/bin/true", timeout=60)

    @property
    def limits(self) -> list[str]:
        """Options for containers and builds: limits that this user may set. Podman's defaults raise them, which needs a
        capability; processes are bounded by other means."""
        if self.name != "podman":
            return []
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        processes = min(limit for limit in (*resource.getrlimit(resource.RLIMIT_NPROC), PODMAN_PROCESSES) if limit > 0)
        return ["--ulimit", f"nofile={files}:{files}", "--ulimit", f"nproc={processes}:{processes}"]

    def inspect(self, image: str) -> dict[str, object] | None:
        """What the engine knows of a local image; None where there is no such image."""
        done = self.run("image", "inspect", image)
        return None if done.returncode else json.loads(done.stdout)[0]


@contextlib.contextmanager
def host_root() -> Iterator[Path]:
    """A root file system with nothing in it but a place for the host's /usr: to try whether containers run at all."""
    with Scratch() as folder:
        root = folder / "root"
        for name in ("dev", "etc", "proc", "run", "sys", "tmp", "usr"):
            (root / name).mkdir(parents=True)
        for link in (Path("/bin"), Path("/lib"), Path("/lib64")):
            if link.is_symlink():
                (root / link.name).symlink_to(link.readlink())
        yield root


@functools.cache
def find_client(name: str) -> Client | None:
    """The client to use: UPKEEP_DOCKER (or UPKEEP_PODMAN), else the first on the PATH that can build.

    Docker's clients since 23 build through a plug-in (buildx) that may be missing; older ones need none.
    """
    if chosen := os.environ.get(f"UPKEEP_{name.upper()}"):
        return Client(name, chosen)
    paths = (Path(folder) / name for folder in os.environ.get("PATH", "").split(os.pathsep) if folder)
    clients = [Client(name, str(path)) for path in paths if os.access(path, os.X_OK) and path.is_file()]
    return next((client for client in clients if _builds(client)), clients[0] if clients else None)


def _builds(client: Client) -> bool:
    if client.name != "docker":
        return True
    version = re.search(r"version (\d+)", ask(client.path, "--version", timeout_s=20).out)
    return (version is not None and int(version[1]) < 23) or bool(ask(client.path, "buildx", "version", timeout_s=20))


# ---------------------------------------------------------------- plans


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


# ---------------------------------------------------------------- base images


class Base(NamedTuple):
    """A base image on this machine."""

    reference: str
    identity: str
    """Its name with what it holds: the pinned digest, or the digests of its layers."""


def ensure_base(catalog: Catalog, engine: str, client: Client) -> Base:
    """The base image of an engine, on this machine: the one asked for, or where no registry has it, one made here.

    None is made in place of an image that the configuration names, nor for GPUs (they want a compiler in it).

    Raises:
        UpkeepError: it can neither be pulled nor made.
    """
    reference = _ensure_base(catalog, engine, client)
    if "@sha256:" in reference:
        return Base(reference, reference)
    known = client.inspect(reference)
    if known is None:
        raise UpkeepError("no such image on this machine", where=reference, kind="image")
    return Base(reference, f"{reference}#{digest(known['RootFS'])}")


def _ensure_base(catalog: Catalog, engine: str, client: Client) -> str:
    reference = pinned_base(catalog, engine)
    if client.inspect(reference) is not None:
        return reference
    may_make = reference != catalog.config.base_image and not engine.endswith("-gpu")
    made = made_reference()
    with exclusive(catalog.cache / "images" / ".base.lock"):
        if may_make and client.inspect(made) is not None:
            return made
        print(f"upkeep: pulling {reference}", file=sys.stderr)
        try:
            pulled = client.run("pull", reference, timeout=1800)
            reason = pulled.stderr.strip().splitlines()[-1:] or ["no answer"]
            if not pulled.returncode:
                return reference
        except subprocess.TimeoutExpired:
            reason = ["no answer in 30 minutes"]
        if not may_make or shutil.which("mmdebstrap") is None:
            raise UpkeepError(
                "the base image cannot be pulled",
                where=reference,
                found=reason[0],
                remedy="name one that this machine has (base_image, UPKEEP_BASE_IMAGE; Python 3.11 with venv on "
                "Debian 12)" + (", or install mmdebstrap" if may_make else ""),
                kind="image",
            )
        print(f"upkeep: {reference} cannot be pulled ({reason[0]}); making a base image from Debian", file=sys.stderr)
        make_base_image(client, made)
        return made


def made_reference() -> str:
    """Name of the base image that is made on a machine itself."""
    return f"{MADE_BASE}:{digest(MADE_PACKAGES)[:12]}"


def make_base_image(client: Client, reference: str) -> None:
    """Make a base image of Debian 12 with Python 3.11 by mmdebstrap, for machines that no registry can be reached from.

    Raises:
        UpkeepError: mmdebstrap or the import fails.
    """
    with Scratch() as folder:
        archive = folder / "base.tar"
        debian(archive)
        imported = client.run("import", str(archive), reference)
        if imported.returncode:
            raise UpkeepError("the base image cannot be imported", found=imported.stderr.strip()[-2000:])


def debian(archive: Path) -> None:
    """Write a root file system of Debian 12 with Python 3.11 as a tar file; root is not needed.

    Raises:
        UpkeepError: mmdebstrap fails.
    """
    command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(MADE_PACKAGES)}"]
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(EPOCH)}
    done = subprocess.run(
        [*command, "bookworm", str(archive)], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise UpkeepError("the base image cannot be made", found=done.stderr.strip()[-2000:])


# ---------------------------------------------------------------- building


def ensure_image(catalog: Catalog, method: str | None, engine: str, client: Client, base: Base) -> ImageRecord:
    """Build an image of a method or an engine where it is missing, that of its packages first; returns its record.

    Raises:
        UpkeepError: a wheel or the build fails; or this processor has no wheels locked.
    """
    if platform.machine() not in {"x86_64", "AMD64"}:
        raise UpkeepError("the locked wheels are for x86-64", found=platform.machine(), kind="machine")
    return _ensure(image_for(catalog, method, engine, base.identity), base.reference, client)


def _ensure(plan: ImagePlan, base: str, client: Client) -> ImageRecord:
    catalog = plan.catalog
    records = catalog.cache / "images"
    path = records / f"{plan.tag.removeprefix('upkeep/').replace(':', '-')}.{client.name}.json"
    with exclusive(records / f".{path.name}.lock"):
        known = client.inspect(plan.tag)
        record = known_record(path)
        if known is not None and record is not None and record.digest == _text(known["Id"]):
            return record
        below = _ensure(plan.packages, base, client) if plan.packages is not None else None
        begin = time.monotonic()
        if known is None:
            print(f"upkeep: building {plan.tag}", file=sys.stderr)
            _build(plan, client, base, below)
            known = client.inspect(plan.tag)
        assert known is not None
        held = _inventory(catalog, client, plan.tag, ["/opt/venv"] if below is None else ADDED)
        made = ImageRecord(
            method=plan.method,
            engine=plan.engine,
            runtime=client.name,
            tag=plan.tag,
            digest=_text(known["Id"]),
            inputs=plan.inputs,
            content=held.content if below is None else digest([below.content, held.content]),
            size=int(str(known["Size"])),
            base=base,
            base_digest=base.partition("@")[2] or _text((client.inspect(base) or {}).get("Id")),
            packages=held.packages,
            python=held.python,
            seconds=round(time.monotonic() - begin, 1),
        )
        return write_sealed(path, made)


def known_record(path: Path) -> ImageRecord | None:
    """The record of an image; None where there is none, or a damaged one, which is made again."""
    try:
        return read_sealed(path, ImageRecord, "it is made again")
    except UpkeepError:
        return None


def _text(image_id: object) -> str:
    """An image's id with its algorithm, as Docker writes it and Podman does not."""
    return f"sha256:{str(image_id).removeprefix('sha256:')}"


def _build(plan: ImagePlan, client: Client, base: str, below: ImageRecord | None) -> None:
    """Assemble the context (hard links, fixed times) and build without network."""
    catalog = plan.catalog
    (catalog.cache / "wheels").mkdir(parents=True, exist_ok=True)
    with Scratch(catalog.cache) as folder:
        context = folder / "context"
        lay_out(wheels(plan.lock, catalog.cache / "wheels") if plan.lock else {}, context / "wheels")
        files = {"Dockerfile": plan.dockerfile, "wheels/install": catalog.root / "containers" / "install"}
        if below is not None:
            files |= code_files(catalog, plan.method, plan.engine)
            (context / "methods").mkdir()
        for name, path in files.items():
            (context / name).parent.mkdir(parents=True, exist_ok=True)
            (context / name).write_bytes(path.read_bytes())
        for path in [context, *context.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
            os.utime(path, (EPOCH, EPOCH))
        command = [
            "build",
            "--network",
            "none",
            "--quiet",
            "--tag",
            plan.tag,
            "--label",
            f"upkeep.inputs={plan.inputs}",
        ]
        if below is not None:
            command += [
                "--build-arg",
                f"PACKAGES={below.tag}",
                "--build-arg",
                f"LOCK={plan.parts['requirements.lock']}",
            ]
        else:
            command += ["--no-cache", "--build-arg", f"BASE={base}"]
        command += client.limits
        done = client.run(*command, str(context), env={"DOCKER_BUILDKIT": "1", "BUILDKIT_PROGRESS": "plain"})
    if done.returncode:
        raise UpkeepError(
            "image cannot be built",
            where=plan.dockerfile,
            found=done.stderr.strip()[-4000:],
            remedy="Docker needs BuildKit: install its buildx plug-in, or name another client in UPKEEP_DOCKER"
            if "buildx" in done.stderr
            else None,
            kind="image",
        )


class Inventory(Record, frozen=True):
    """What `containers/inventory.py` prints."""

    content: Sha256
    packages: dict[str, str]
    python: str


def _inventory(catalog: Catalog, client: Client, tag: str, folders: Sequence[str]) -> Inventory:
    """What an image holds: packages, and one hash over all files in these folders."""
    script = (catalog.root / "containers" / "inventory.py").read_text()
    arguments = ("run", "-i", "--rm", "--network", "none", *client.limits, tag, "python", "-")
    done = client.run(*arguments, *folders, input=script)
    if done.returncode:
        raise UpkeepError("the image does not run", where=tag, found=done.stderr.strip()[-2000:], kind="image")
    return msgspec.json.decode(done.stdout.encode(), type=Inventory)
