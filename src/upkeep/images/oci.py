"""Images of Docker and Podman. Builds have no network: the locked wheels are downloaded before."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from upkeep.catalog import Catalog
from upkeep.errors import UpkeepError
from upkeep.file_locks import exclusive
from upkeep.files import digest
from upkeep.images.debian import debian, made_reference
from upkeep.images.docker import CommandLine
from upkeep.images.environments import code_files
from upkeep.images.locks import lay_out, wheels
from upkeep.images.plans import ADDED, EPOCH, ImagePlan, image_for, pinned_base
from upkeep.images.records import ImageRecord, Inventory, known_record
from upkeep.integrity import write_sealed
from upkeep.machine.scratch import Scratch


class Base(NamedTuple):
    """A base image on this machine."""

    reference: str
    identity: str
    """Its name with what it holds: the pinned digest, or the digests of its layers."""


def ensure_base(catalog: Catalog, engine: str, client: CommandLine) -> Base:
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


def _ensure_base(catalog: Catalog, engine: str, client: CommandLine) -> str:
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


def make_base_image(client: CommandLine, reference: str) -> None:
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


def ensure_image(catalog: Catalog, method: str | None, engine: str, client: CommandLine, base: Base) -> ImageRecord:
    """Build an image of a method or an engine where it is missing, that of its packages first; returns its record.

    Raises:
        UpkeepError: a wheel or the build fails; or this processor has no wheels locked.
    """
    if platform.machine() not in {"x86_64", "AMD64"}:
        raise UpkeepError("the locked wheels are for x86-64", found=platform.machine(), kind="machine")
    return _ensure(image_for(catalog, method, engine, base.identity), base.reference, client)


def _ensure(plan: ImagePlan, base: str, client: CommandLine) -> ImageRecord:
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
            packages=plan.imported(held.packages),
            python=held.python,
            seconds=round(time.monotonic() - begin, 1),
        )
        return write_sealed(path, made)


def _text(image_id: object) -> str:
    """An image's id with its algorithm, as Docker writes it and Podman does not."""
    return f"sha256:{str(image_id).removeprefix('sha256:')}"


def _build(plan: ImagePlan, client: CommandLine, base: str, below: ImageRecord | None) -> None:
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


def _inventory(catalog: Catalog, client: CommandLine, tag: str, folders: Sequence[str]) -> Inventory:
    """What an image holds: packages, and one hash over all files in these folders."""
    script = (catalog.root / "containers" / "inventory.py").read_text()
    arguments = ("run", "-i", "--rm", "--network", "none", *client.limits, tag, "python", "-")
    done = client.run(*arguments, *folders, input=script)
    if done.returncode:
        raise UpkeepError("the image does not run", where=tag, found=done.stderr.strip()[-2000:], kind="image")
    return msgspec.json.decode(done.stdout.encode(), type=Inventory)
