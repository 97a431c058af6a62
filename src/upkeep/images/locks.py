"""Hash-locked requirements (`requirements.lock` in `containers/<image>/` and `methods/<method>/`) and their wheels.

A lock pins every package to one version and to the sha256 of its files, and names no index: where the wheels come from
is the business of the machine (pip's own configuration), what is in them is not.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from upkeep.catalog import Catalog
from upkeep.errors import UpkeepError
from upkeep.file_locks import exclusive
from upkeep.files import hash_file
from upkeep.machine.reaper import kept
from upkeep.machine.scratch import Scratch

PYTHON = "3.11"
"""The Python of every image and environment, for which the locks are resolved."""
GLIBC_MINOR = 31
"""Wheels may ask for glibc 2.31 (2020) at most."""
BESIDE = ("excludes.in", "overrides.in")
"""What may lie beside a `requirements.in`: packages that are left out, and versions that rule."""
AS_OF = "2026-11-12"
"""Locks are resolved as of this day, so resolving again gives the same. Moving it raises versions."""

_PIN = re.compile(r"^(?P<name>[a-z0-9][a-z0-9.-]*)==(?P<version>[A-Za-z0-9.!+]+)$")
_HASH = re.compile(r"^--hash=sha256:([0-9a-f]{64})$")
_SOURCE = re.compile(r"^# from (\S+) sha256:([0-9a-f]{64})$", re.M)


@dataclass(frozen=True, slots=True)
class Pin:
    """One package at one version; a file of it is accepted if its sha256 is among `hashes`."""

    name: str
    """Normalised: lower case, with hyphens."""
    version: str
    hashes: tuple[str, ...]

    def __str__(self) -> str:
        return " \\\n    ".join([f"{self.name}=={self.version}", *(f"--hash=sha256:{h}" for h in self.hashes)])


def read_lock(path: Path) -> list[Pin]:
    """The pins of a lock, in the order of the file.

    Raises:
        UpkeepError: the file is missing, or a line is anything but a pinned, hashed package (a URL, an option, ...).
    """
    try:
        text = path.read_text()
    except FileNotFoundError:
        raise UpkeepError("file not found", where=path, remedy="make it with `upkeep image lock`") from None
    pins: dict[str, Pin] = {}
    for logical in re.sub(r"\\\n", " ", text).splitlines():
        words = logical.split()
        if not words or words[0].startswith("#"):
            continue
        pin, hashes = _PIN.match(words[0]), [_HASH.match(word) for word in words[1:]]
        if pin is None or not hashes or not all(hashes):
            raise UpkeepError(
                "not a hash-locked requirement",
                where=path,
                expected="NAME==VERSION --hash=sha256:... and nothing else",
                found=logical.strip()[:200],
                remedy="make the file anew with `upkeep image lock`",
            )
        if pin["name"] in pins:
            raise UpkeepError(f"{pin['name']} is there twice", where=path)
        pins[pin["name"]] = Pin(pin["name"], pin["version"], tuple(h[1] for h in hashes if h))
    return list(pins.values())


def stale(lock: Path) -> list[str]:
    """Names of the files that changed since the lock was resolved from them; empty where it is up to date."""
    sources = _SOURCE.findall(lock.read_text())
    return [name for name, sha in sources if hash_file(lock.parent / name) != sha] if sources else [lock.name]


# ---------------------------------------------------------------- resolving


def lock(catalog: Catalog, image: str | None = None) -> list[Path]:
    """Resolve the requirements of one image, method or peer of a benchmark, or those of all, in the order in which they
    build on each other.

    Returns the files written.

    Raises:
        UpkeepError: no image and no method of that name has any; or as `resolve`.
    """
    folders = [catalog.root / place for place in ("containers", "methods", "benchmarks/peers")]
    if image is not None:
        places = [folder / image for folder in folders]
        return resolve(next((place for place in places if (place / "requirements.in").exists()), places[0]))
    written: dict[Path, list[Path]] = {}

    def visit(folder: Path) -> None:
        if folder in written:
            return
        for engine in _constraints(folder / "requirements.in"):
            visit(engine.parent.resolve())
        written[folder] = resolve(folder)

    for source in sorted(source for folder in folders for source in folder.glob("*/requirements.in")):
        visit(source.parent.resolve())
    return [path for paths in written.values() for path in paths]


def _constraints(source: Path) -> list[Path]:
    """The locks that a `requirements.in` names by `-c`."""
    return [source.parent / name for name in re.findall(r"^-c\s+(\S+)", source.read_text(), re.M)]


def overridden(source: Path) -> set[str]:
    """The packages that `overrides.in` beside a `requirements.in` names."""
    overrides = source.with_name("overrides.in")
    return set(re.findall(r"^[a-z0-9-]+", overrides.read_text(), re.M)) if overrides.exists() else set()


def resolve(folder: Path) -> list[Path]:
    """Write the lock of a folder's `requirements.in`; returns the files written.

    `-c FILE` lines constrain to other images' locks. Where a folder has no Dockerfile (methods, embedders), these
    are what it may be built on: what all of them have at the same version is left out of its lock. What `overrides.in`
    names has the version that is said there, whatever these locks or other packages say, and lies over theirs. A pin
    to a local build (`torch==2.13.0+cpu`) is locked as the plain version with the local build's hashes; the registry's
    own build and what that needs are locked in `requirements.registry.lock`, for machines that know no index with the
    local build.

    Raises:
        UpkeepError: uv is missing, or finds no solution.
    """
    source = folder / "requirements.in"
    if not source.exists():
        raise UpkeepError("no requirements", where=folder, expected="requirements.in")
    return list(_resolve(source))


def _resolve(source: Path) -> Iterator[Path]:
    engines = _constraints(source)
    adds = not (source.parent / "Dockerfile").exists()
    beside = [path for name in BESIDE if (path := source.with_name(name)).exists()]
    inputs = [source, *beside]
    header = "# Made by `upkeep image lock`. Do not edit.\n" + "".join(
        f"# from {path.name} sha256:{hash_file(path)}\n" for path in inputs
    )
    options = [word for path in beside for word in (f"--{path.stem}", str(path))]

    local = {name for lock in [source, *engines] for name in _local_builds(lock)}
    pins = []
    extra: list[Pin] = []
    if re.search(r"^[A-Za-z]", source.read_text(), re.M):
        for pin in _compile(source, options, local=bool(local)):
            public = pin.version.partition("+")[0]
            if pin.name in local and public == pin.version:
                raise UpkeepError(
                    f"no local build of {pin.name} found",
                    where=source,
                    expected=f"{pin.name}=={public}+...",
                    remedy="name a folder or page that has it in PIP_FIND_LINKS",
                )
            if public == pin.version or adds:
                pins.append(Pin(pin.name, public, pin.hashes))
                continue
            pins.append(Pin(pin.name, public, pin.hashes))
            extra += _compile_text(f"{pin.name}=={public}")
    have = [{(p.name, p.version) for p in read_lock(engine)} for engine in engines]
    if adds and have:
        shared = set.intersection(*have)
        pins = [p for p in pins if (p.name, p.version) not in shared]

    lock = source.with_suffix(".lock")
    lock.write_text(header + "".join(f"{pin}\n" for pin in pins))
    yield lock
    names = {p.name for p in pins} - local
    if registry := [p for p in extra if p.name not in names]:
        lock = source.with_suffix(".registry.lock")
        lock.write_text(header + "".join(f"{pin}\n" for pin in registry))
        yield lock


def _compile_text(requirement: str) -> list[Pin]:
    with Scratch() as folder:
        source = folder / "requirements.in"
        source.write_text(requirement + "\n")
        return _compile(source, [], local=False)


def _compile(source: Path, options: Sequence[str], *, local: bool) -> list[Pin]:
    """Resolve with uv; `local` also looks where pip is told to look besides the registry (PIP_FIND_LINKS)."""
    uv = shutil.which("uv")
    if uv is None:
        raise UpkeepError("uv not found", remedy="install it (`pip install uv`); only resolving locks needs it")
    environment = {k: v for k, v in os.environ.items() if local or k not in {"UV_FIND_LINKS", "UV_EXTRA_INDEX_URL"}}
    links = os.environ.get("PIP_FIND_LINKS", "").split() if local else []
    own = overridden(source)
    shared = [pin for engine in _constraints(source) for pin in read_lock(engine) if pin.name not in own]
    with Scratch() as folder:
        lock = folder / "requirements.lock"
        (folder / source.name).write_text(re.sub(r"^-c .*", "", source.read_text(), flags=re.M))
        (folder / "shared.txt").write_text("".join(f"{pin.name}=={pin.version}\n" for pin in shared))
        command = [uv, "pip", "compile", source.name, "--constraints", "shared.txt", "--generate-hashes"]
        command += ["--only-binary", ":all:", "--no-annotate", "--no-header", "--no-emit-index-url"]
        command += ["--no-emit-find-links", "--python-version", PYTHON, "--quiet", "--output-file", str(lock)]
        command += ["--python-platform", f"x86_64-manylinux_2_{GLIBC_MINOR}", *options]
        command += ["--exclude-newer", AS_OF]
        command += [word for link in links for word in ("--find-links", link)]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise UpkeepError("requirements cannot be resolved", where=source, found=done.stderr.strip()[-4000:])
        return read_lock(lock)


# ---------------------------------------------------------------- wheels


def wheels(lock: Path, pool: Path) -> dict[Pin, Path]:
    """The wheel of every pin of a lock, downloaded where the pool has it not.

    The pool is `<sha256>/<file name>`: what is there is right by its name, and is shared by all images, environments
    and copies of the suite that use the same cache. Where no index has a local build (`torch==2.13.0+cpu`), the pins of
    `requirements.registry.lock` stand in for it.

    Raises:
        UpkeepError: a wheel cannot be had, or what the index gave has another hash than the lock says.
    """
    pins, local = read_lock(lock), _local_builds(lock)
    found = _collect([pin for pin in pins if pin.name not in local], pool, lock)
    if builds := [pin for pin in pins if pin.name in local]:
        try:
            found |= _collect(builds, pool, lock)
        except UpkeepError:
            registry = lock.with_suffix(".registry.lock")
            if not registry.exists():
                raise
            print(
                f"upkeep: no package index here has the CPU build of {', '.join(sorted(local))}; taking the GPU build, "
                "which is larger by gigabytes. Name an index with CPU builds in PIP_EXTRA_INDEX_URL to avoid this.",
                file=sys.stderr,
            )
            found |= _collect(read_lock(registry), pool, registry)
    return found


def _local_builds(lock: Path) -> set[str]:
    """Packages that the lock's source wants in a local build (`torch==2.13.0+cpu`)."""
    return set(re.findall(r"^([a-z0-9-]+)==[^+\s]+\+", lock.with_suffix(".in").read_text(), re.M))


def _collect(pins: Sequence[Pin], pool: Path, where: Path) -> dict[Pin, Path]:
    with exclusive(pool / ".lock"):
        missing = [pin for pin in pins if _pooled(pin, pool) is None]
        if missing:
            _download(missing, pool, where)
    return {pin: path for pin in pins if (path := _pooled(pin, pool))}


def _pooled(pin: Pin, pool: Path) -> Path | None:
    return min((path for sha in pin.hashes for path in (pool / sha).glob("*.whl")), default=None)


def _download(pins: Sequence[Pin], pool: Path, where: Path) -> None:
    print(f"upkeep: downloading {len(pins)} wheels for {where}", file=sys.stderr)
    with Scratch(pool) as folder:
        lock = folder / "requirements.lock"
        lock.write_text("".join(f"{pin}\n" for pin in pins))
        platforms = [f"manylinux_2_{minor}_x86_64" for minor in range(GLIBC_MINOR, 4, -1)]
        platforms += ["manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64", "linux_x86_64"]
        command = [*pip(), "download", "--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:"]
        command += ["--implementation", "cp", "--python-version", PYTHON, "--dest", str(folder)]
        command += ["--requirement", str(lock)]
        command += [word for platform in platforms for word in ("--platform", platform)]
        done = subprocess.run(kept(command), capture_output=True, text=True)
        if done.returncode:
            raise UpkeepError(
                "locked wheels cannot be downloaded",
                where=where,
                found=done.stderr.strip()[-4000:],
                remedy="check the network and pip's index settings; a finished download is never repeated",
                kind="image",
            )
        for path in folder.glob("*.whl"):
            target = pool / hash_file(path)
            target.mkdir(exist_ok=True)
            path.replace(target / path.name)
    for pin in pins:
        if _pooled(pin, pool) is None:
            problem = f"the index gave no wheel of {pin.name} {pin.version} that the lock accepts"
            raise UpkeepError(problem, where=where, kind="image")


@functools.cache
def pip() -> tuple[str, ...]:
    """A pip to call: this Python's own, else the one of `python3`."""
    for python in (sys.executable, shutil.which("python3")):
        if python and not subprocess.run([python, "-m", "pip", "--version"], capture_output=True).returncode:
            return (python, "-m", "pip", "--disable-pip-version-check")
    raise UpkeepError("pip not found", remedy=f"{sys.executable} -m ensurepip", kind="machine")


def lay_out(chosen: Mapping[Pin, Path], folder: Path) -> Path:
    """Put wheels (as hard links, where the file system can) and their `requirements.lock` into `folder`.

    Returns the `requirements.lock`.
    """
    folder.mkdir(parents=True)
    for path in chosen.values():
        try:
            (folder / path.name).hardlink_to(path)
        except OSError:
            shutil.copy2(path, folder / path.name)
    lock = folder / "requirements.lock"
    lock.write_text("".join(f"{pin}\n" for pin in chosen))
    return lock
