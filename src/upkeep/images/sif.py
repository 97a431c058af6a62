"""SIF images for Apptainer, made without root and without Docker.

The packages of a folder of `containers/` are one SIF file, shared by all images that are built on them and by all who
use the cache. What an image adds (further packages, the cell code, the method's files) is a small squashed file, laid
over the SIF read-only when a container starts. Both are named by the hash of all that they are built from, appear at
once and complete, and have fixed times and owners: the same base and the same locks give the same bytes.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from upkeep.catalog import Catalog
from upkeep.errors import UpkeepError
from upkeep.file_locks import exclusive
from upkeep.files import digest
from upkeep.images.apptainer import CONTAINED, CommandLine, overlays
from upkeep.images.environments import code_files
from upkeep.images.locks import lay_out, wheels
from upkeep.images.plans import ADDED, ImagePlan, image_for
from upkeep.images.records import ImageRecord, Inventory, known_record
from upkeep.images.sif_bases import Base, ensure_base_sif
from upkeep.images.sif_files import DATA, SQUASH, Seal, seal, sealed, squash, write_sif
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


def ensure_sif(
    catalog: Catalog, method: str | None, engine: str, client: CommandLine
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


def _ensure(plan: ImagePlan, base: Base, client: CommandLine) -> tuple[ImageRecord, tuple[Path, ...]]:
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
            packages=plan.imported(held.packages),
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


def _build_packages(plan: ImagePlan, base: Base, client: CommandLine, target: Path) -> None:
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


def _build_layer(plan: ImagePlan, packages: Path, client: CommandLine, target: Path) -> None:
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
    plan: ImagePlan, client: CommandLine, folder: Path, image: Sequence[Path], places: Mapping[str, Path], script: str
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


def inventory(catalog: Catalog, client: CommandLine, files: Sequence[Path], folders: Sequence[str]) -> Inventory:
    """What an image holds: packages, and one hash over all files in these folders.

    Raises:
        UpkeepError: it does not run.
    """
    script = (catalog.root / "containers" / "inventory.py").read_text()
    done = client.run("exec", *CONTAINED, *overlays(files), PYTHON, "-", *folders, input=script, env=VARIABLES)
    if done.returncode:
        raise UpkeepError("the image does not run", where=files[-1], found=done.stderr.strip()[-2000:], kind="image")
    return msgspec.json.decode(done.stdout.encode(), type=Inventory)
