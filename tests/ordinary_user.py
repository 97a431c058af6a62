"""An ordinary user with a clone of this working tree, a virtual environment and a cache: who the suite is made for.

Clusters give nobody root, and Apptainer does not run as root on every machine. Tests that root starts do such trials as
a user of their own, made where it is missing; tests that an ordinary user starts do them as that user. The virtual
environment and the cache stay for later runs, the clone is made anew.
"""

from __future__ import annotations

import getpass
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from conftest import CACHE, ROOT, SMALLER, make_smaller
from upkeep.file_locks import exclusive
from upkeep.files import hash_file

NAME = "upkeep-tests"
PYTHON = "/usr/bin/python3"
"""The system's: the interpreter that runs the tests may lie in root's home, which nobody else can read."""
KEPT = Path(os.environ.get("UPKEEP_TEST_HOME") or Path(tempfile.gettempdir()) / f"upkeep-tests-{os.getuid()}")
"""What later runs find again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrdinaryUser:
    name: str
    uid: int
    gid: int
    home: Path
    clone: Path
    """A copy of the working tree, the user's own; the current folder of `run`."""
    venv: Path
    """With `requirements.lock`; `run` has it first on the PATH. Readable by all."""
    cache: Path
    """UPKEEP_CACHE: wheels, environments, SIF images; the user's own."""

    def environment(self) -> dict[str, str]:
        """All that a command finds in its environment: of the caller's, only what pip needs to find packages."""
        kept = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        return kept | {
            "HOME": str(self.home),
            "USER": self.name,
            "LOGNAME": self.name,
            "PATH": f"{self.venv}/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "PYTHONPATH": str(self.clone / "src"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "UPKEEP_CACHE": str(self.cache),
            "UPKEEP_VENV": str(self.venv),
            "LC_ALL": "C.UTF-8",
        }

    def _options(self, env: Mapping[str, str] | None) -> dict[str, Any]:
        options: dict[str, Any] = {"cwd": self.clone, "env": self.environment() | dict(env or {})}
        if os.getuid() != self.uid:
            options |= {"user": self.uid, "group": self.gid, "extra_groups": [], "umask": 0o022}
        return options

    def run(
        self, *argv: str | Path, env: Mapping[str, str] | None = None, check: bool = True, timeout: float = 900
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as this user, in its clone, and wait; `env` adds to `environment()`.

        Raises:
            AssertionError: it fails, and `check` is not False; with what it wrote.
        """
        words = [str(word) for word in argv]
        done = subprocess.run(words, capture_output=True, text=True, timeout=timeout, **self._options(env))
        if check and done.returncode:
            raise AssertionError(f"{' '.join(words)[:300]}: {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done

    def start(self, *argv: str | Path, env: Mapping[str, str] | None = None, **options: Any) -> subprocess.Popen[str]:
        """Start a command as this user; `options` go to Popen."""
        return subprocess.Popen([str(word) for word in argv], text=True, **self._options(env), **options)

    def own(self, path: Path) -> Path:
        """Give a file or folder with all that is in it to this user."""
        for each in (path, *path.rglob("*")):
            os.chown(each, self.uid, self.gid, follow_symlinks=False)
        return path


@pytest.fixture(scope="session")
def ordinary_user() -> Iterator[OrdinaryUser]:
    KEPT.mkdir(exist_ok=True)
    KEPT.chmod(0o755)
    with exclusive(KEPT / ".lock"):
        account = _account()
        venv = _venv()
        cache = KEPT / "cache"
        _share_wheels(cache / "wheels")
        for folder in (cache, cache / "wheels"):
            os.chown(folder, account.pw_uid, account.pw_gid)
    # Not in pytest's own folder, which its user alone can read.
    clone = Path(tempfile.mkdtemp(prefix="upkeep-clone-"))
    clone.chmod(0o755)
    user = OrdinaryUser(
        name=account.pw_name,
        uid=account.pw_uid,
        gid=account.pw_gid,
        home=Path(account.pw_dir),
        clone=clone,
        venv=venv,
        cache=cache,
    )
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():  # not what was removed since the last commit
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, clone / name)
    user.own(clone)
    yield user
    shutil.rmtree(clone, ignore_errors=True)


def _account() -> pwd.struct_passwd:
    if os.getuid():
        return pwd.getpwnam(getpass.getuser())
    try:
        return pwd.getpwnam(NAME)
    except KeyError:
        subprocess.run(["useradd", "--create-home", "--shell", "/bin/sh", NAME], check=True)
        return pwd.getpwnam(NAME)


def _venv() -> Path:
    """A virtual environment with the suite's requirements, one for each state of their lock."""
    lock = ROOT / "requirements.lock"
    venv = KEPT / f"venv-{hash_file(lock)[:16]}"
    stamp = venv / ".requirements.lock.installed"  # `./upkeep` looks for it, too
    if not stamp.exists():
        shutil.rmtree(venv, ignore_errors=True)
        subprocess.run([PYTHON, "-m", "venv", venv], check=True)
        options = ["--quiet", "--no-compile", "--no-deps", "--require-hashes", "--requirement", lock]
        done = subprocess.run([venv / "bin" / "pip", "install", *options], capture_output=True, text=True)
        assert not done.returncode, done.stderr
        # pip compiles on one core. Templates that some packages carry are no Python, and stay as they are.
        subprocess.run(
            [venv / "bin" / "python", "-m", "compileall", "-q", "-j", "0", venv / "lib"], capture_output=True
        )
        shutil.copy(lock, stamp)
    return venv


def _share_wheels(pool: Path) -> None:
    """Let the user's pool of wheels begin with what the tests' own cache has."""
    pool.mkdir(parents=True, exist_ok=True)
    for wheel in (CACHE / "wheels").glob("*/*.whl"):
        link = pool / wheel.parent.name
        if not link.exists():
            link.unlink(missing_ok=True)
            link.symlink_to(wheel.parent.resolve())


@pytest.fixture
def smaller_user(ordinary_user: OrdinaryUser) -> Iterator[OrdinaryUser]:
    """The same, with smaller datasets in the clone."""
    cards = [ordinary_user.clone / "datasets" / family / "dataset.yaml" for family in SMALLER]
    before = [card.read_text() for card in cards]
    make_smaller(ordinary_user.clone)
    yield ordinary_user
    for card, text in zip(cards, before, strict=True):
        card.write_text(text)
