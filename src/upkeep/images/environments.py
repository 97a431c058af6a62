"""Environments for machines without a container engine, and the code that goes into images and environments alike.

An environment is a virtual environment with the locked wheels of a folder of `containers/` (`<cache>/envs/<hash>`),
shared by all that are built on it; what a method or an embedder needs besides is a folder of its own
(`<cache>/extras/<hash>`), and the suite's own code another one (`<cache>/code/<hash>`), so that editing a file while
cells run mixes nothing. Each folder is named by the hash of what
it is made from and is complete where it has the file `.complete`.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from upkeep.catalog import BESIDE_CODE, EMBEDDERS, Catalog
from upkeep.contract import Sealed
from upkeep.errors import UpkeepError
from upkeep.file_locks import exclusive
from upkeep.files import digest, hash_file, remove
from upkeep.identity import image_code
from upkeep.images.locks import PYTHON, lay_out, pip, read_lock, wheels
from upkeep.integrity import read_sealed, write_sealed
from upkeep.machine.reaper import kept
from upkeep.machine.scratch import Scratch

# ---------------------------------------------------------------- code


def code_files(catalog: Catalog, method: str | None, engine: str) -> dict[str, Path]:
    """The suite's own files inside an image, by their place in it.

    `code/upkeep/...` is the code of cells, and of engines where their packages are, `methods/<method>/...` the method
    without what lies beside its code (`catalog.BESIDE_CODE`): a variant's parameters come to a cell in its description,
    so editing a label makes no new image.
    """
    source = catalog.root / "src"
    places = [source / "upkeep" / "__init__.py", *(catalog.root / place for place in image_code(engine))]
    paths = [path for place in places for path in (_tree(place) if place.is_dir() else [place])]
    files = {f"code/{path.relative_to(source).as_posix()}": path for path in paths}
    if method is not None:
        folder = catalog.root / "methods" / method
        code = {p.relative_to(folder).as_posix(): p for p in _tree(folder)}
        files |= {f"methods/{method}/{name}": path for name, path in code.items() if name not in BESIDE_CODE}
    return dict(sorted(files.items()))


def _tree(folder: Path) -> list[Path]:
    return [p for p in sorted(folder.rglob("*")) if p.is_file() and "__pycache__" not in p.parts]


def file_hashes(files: Mapping[str, Path]) -> dict[str, str]:
    """sha256 of each file, by its name in `files`."""
    return {name: hash_file(path) for name, path in files.items()}


def requirement_locks(catalog: Catalog, method: str | None, engine: str) -> tuple[Path, Path | None]:
    """The locks of an image: of the packages that it is built on, and of those that it adds to them, if any.

    Args:
        method: the method in it; None for an engine's own.
        engine: folder of `containers/` that it is built on, or that serves.

    Raises:
        UpkeepError: there is no such image, or a lock is missing.
    """
    lock = catalog.root / "containers" / packages_of(engine) / "requirements.lock"
    if not lock.exists():
        raise UpkeepError(f"unknown engine image {engine!r}", where=lock, expected="a lock (`upkeep image lock`)")
    adds = catalog.root / "methods" / method if method is not None else catalog.root / "containers" / engine
    if (method is None and engine not in EMBEDDERS) or not (adds / "requirements.in").exists():
        return lock, None
    if not (extras := adds / "requirements.lock").exists():
        raise UpkeepError(
            f"the requirements of {adds.name!r} are not locked",
            where=extras,
            remedy=f"`upkeep image lock {adds.name}` makes the lock",
        )
    return lock, extras


def packages_of(engine: str) -> str:
    """The folder of `containers/` whose packages an engine's image is built on: but for embedders, its own."""
    return EMBEDDERS.get(engine, engine)


# ---------------------------------------------------------------- environments


@dataclass(frozen=True, slots=True)
class EnvironmentRecord:
    """An environment that is ready to run cells."""

    python: Path
    path: tuple[Path, ...]
    """PYTHONPATH: the suite's code, then what is added to the packages."""
    methods: Path
    digest: str
    """sha256 over the locked requirements."""
    inputs: str
    """sha256 over requirements and code: what determines how a cell runs."""
    packages: dict[str, str]
    version: str
    """Of Python."""


def ensure_environment(catalog: Catalog, method: str | None, engine: str) -> EnvironmentRecord:
    """Make whatever is missing of a method's or an engine's environment.

    Raises:
        UpkeepError: no Python of the locked version, or wheels that cannot be had.
    """
    lock, extras = requirement_locks(catalog, method, engine)
    environment, installed = _folder(catalog.cache / "envs", lock, catalog, venv=True)
    path, packages = [ensure_code(catalog, method, engine)], installed.packages
    if extras is not None and read_lock(extras):
        folder, added = _folder(catalog.cache / "extras", extras, catalog, venv=False)
        path.append(folder)
        packages = packages | added.packages
    requirements = digest([packages_sha(lock), packages_sha(extras) if extras else ""])
    return EnvironmentRecord(
        python=environment / "bin" / "python",
        path=(path[0] / "code", *path[1:]),
        methods=path[0] / "methods",
        digest=requirements,
        inputs=digest([requirements, path[0].name]),
        packages=dict(sorted(packages.items())),
        version=installed.python,
    )


def packages_sha(lock: Path) -> str:
    """sha256 of a lock's pins; its comments do not count."""
    return hashlib.sha256("\n".join(str(pin) for pin in read_lock(lock)).encode()).hexdigest()


def ensure_code(catalog: Catalog, method: str | None, engine: str) -> Path:
    """A copy of the suite's code for cells, `code/` and `methods/`, that no later edit changes."""
    files = code_files(catalog, method, engine)
    contents = {name: path.read_bytes() for name, path in files.items()}
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    target = catalog.cache / "code" / digest(hashes)[:32]
    with exclusive(target.parent / ".lock"):
        if _held(target) != hashes:
            remove(target)
            target.parent.mkdir(parents=True, exist_ok=True)
            with Scratch(target.parent) as temporary:
                copy = temporary / "copy"
                (copy / "methods").mkdir(parents=True)
                for name, content in contents.items():
                    (copy / name).parent.mkdir(parents=True, exist_ok=True)
                    (copy / name).write_bytes(content)
                copy.rename(target)
    return target


def _held(folder: Path) -> dict[str, str]:
    """SHA-256 of each file under a folder of code, by its place; what is no regular file has none."""
    paths = [path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()]
    return {
        path.relative_to(folder).as_posix(): hash_file(path, links=False) if stat.S_ISREG(path.lstat().st_mode) else ""
        for path in paths
        if "__pycache__" not in path.parts
    }


class _Installed(Sealed, frozen=True, kw_only=True):
    """`.complete` of an environment."""

    packages: dict[str, str]
    python: str


def _installed(folder: Path) -> _Installed | None:
    """What an environment holds; None where it is not complete, or nobody can tell."""
    try:
        return read_sealed(folder / ".complete", _Installed, "it is made again")
    except UpkeepError:
        return None


def _folder(parent: Path, lock: Path, catalog: Catalog, *, venv: bool) -> tuple[Path, _Installed]:
    """The installed wheels of a lock: a virtual environment, or a plain folder for PYTHONPATH."""
    target = parent / packages_sha(lock)[:32]
    with exclusive(parent / f".{target.name}.lock"):
        if known := _installed(target):
            return target, known
        python = locked_python()
        chosen = wheels(lock, catalog.cache / "wheels")
        print(f"upkeep: installing {len(chosen)} wheels of {lock}", file=sys.stderr)
        # Environments cannot be moved, so they are made in place, and what an earlier attempt left is removed.
        shutil.rmtree(target, ignore_errors=True)
        if venv:
            _run([python, "-m", "venv", "--without-pip", str(target)], lock)
            place = ["--python", str(target / "bin" / "python")]
        else:
            target.mkdir(parents=True)
            place = []
        with Scratch(parent) as temporary:
            folder = temporary / "wheels"
            requirements = lay_out(chosen, folder)
            command = [*pip(), *place, "install", "--quiet", "--no-index", "--find-links", str(folder), "--no-deps"]
            command += ["--require-hashes", "--no-compile", "--requirement", str(requirements)]
            if not venv:
                command += ["--target", str(target), "--python-version", PYTHON, "--only-binary", ":all:"]
            _run(command, lock)
        python = str(target / "bin" / "python") if venv else python
        # A few packages carry templates that are no valid Python: those alone stay without bytecode.
        subprocess.run(
            [python, "-m", "compileall", "-qq", "-j", "0", "--invalidation-mode", "unchecked-hash", str(target)],
            stdout=subprocess.DEVNULL,
            check=False,
        )
        asked = subprocess.run([python, "-V"], capture_output=True, text=True, check=True)
        packages = {pin.name: path.name.split("-")[1] for pin, path in chosen.items()}
        made = _Installed(packages=packages, python=asked.stdout.split()[1])
        return target, write_sealed(target / ".complete", made)


def _run(command: list[str], where: Path) -> None:
    # Wheels are chosen by the lock alone, whatever pip's own settings say.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PIP_")}
    # The lock goes with this process; nothing may write on after it.
    done = subprocess.run(
        kept(command), capture_output=True, text=True, env=environment | {"PIP_CONFIG_FILE": os.devnull}
    )
    if done.returncode:
        found = (done.stderr or done.stdout).strip()[-4000:]
        raise UpkeepError("environment cannot be made", where=where, found=found, kind="image")


@functools.cache
def locked_python() -> str:
    """A Python interpreter of the version that the locks are for."""
    wanted = tuple(int(part) for part in PYTHON.split("."))
    if sys.version_info[:2] == wanted:
        return sys.executable
    if found := shutil.which(f"python{PYTHON}"):
        return found
    raise UpkeepError(
        f"no Python {PYTHON} found",
        expected=f"python{PYTHON} on the PATH: the locked requirements are for it",
        found=f"Python {sys.version.split()[0]}",
        remedy=f"install Python {PYTHON}, or Docker or Podman",
        kind="machine",
    )
