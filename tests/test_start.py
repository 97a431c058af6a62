"""Claims about `./upkeep` itself: what it installs before it runs a command, and which tests it starts."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from conftest import ROOT

LOCKS = ("requirements.lock", "requirements-pytest.lock", "requirements-test.lock", "requirements-engines.lock")
PYTHON = """#!/bin/sh
case $* in
*" pip "*) for word; do last=$word; done; echo "installs ${last##*/}" ;;
*sysconfig*) dirname "$0" ;;
*compileall*) ;;
*) echo "runs ${*#-m upkeep --root * }" ;;
esac
"""
"""Stands for the one in `.venv`: says what it is asked."""


@pytest.mark.parametrize(
    ("words", "installed", "run"),
    [
        ("run mini", 1, "run mini"),
        ("check", 3, "check"),
        ("setup mini", 4, "setup mini"),
        ("test", 4, "test"),
        ("test -k recency", 2, "test -k recency tests/test_methods.py"),
        ("test -x -k recency", 2, "test -x -k recency tests/test_methods.py"),
        ("test -k packaged", 3, "test -k packaged tests/test_methods.py"),
        ("test -k recency tests", 4, "test -k recency tests"),
        ("test tests/test_run.py -k recency", 4, "test tests/test_run.py -k recency"),
        ("test -k own", 4, "test -k own"),
        ("test -k words", 4, "test -k words"),
    ],
)
def test_what_a_command_needs_is_installed_once(tmp_path: Path, words: str, installed: int, run: str) -> None:
    shutil.copy(ROOT / "upkeep", tmp_path)
    python = tmp_path / ".venv/bin/python"
    for path in (python, *(tmp_path / name for name in LOCKS), tmp_path / "tests/test_own.py"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(path.name)
    for method in ("recency", "packaged", "own"):
        (tmp_path / "methods" / method).mkdir(parents=True)
        (tmp_path / "methods" / method / "method.yaml").touch()
    (tmp_path / "methods/packaged/requirements.in").touch()
    python.write_text(PYTHON)
    python.chmod(0o755)

    def said() -> list[str]:
        done = subprocess.run(
            ["sh", tmp_path / "upkeep", *words.split()],
            stdout=subprocess.PIPE,
            text=True,
            env={"PATH": "/usr/bin:/bin"},
        )
        return done.stdout.splitlines()

    assert said() == [*(f"installs {name}" for name in LOCKS[:installed]), f"runs {run}"]
    assert said() == [f"runs {run}"]


@pytest.mark.parametrize(("method", "locks"), [("closed_book", LOCKS[:2]), ("rag_dense", LOCKS[:3])])
def test_what_a_method_must_pass_needs_no_package_of_another_lock(method: str, locks: tuple[str, ...]) -> None:
    def pinned(*locks: str) -> set[str]:
        return {name.lower() for lock in locks for name in re.findall(r"^([\w.-]+)==", (ROOT / lock).read_text(), re.M)}

    others = pinned(*LOCKS) - pinned(*locks)
    owners = packages_distributions().items()
    modules = [module for module, names in owners if all(name.lower().replace("_", "-") in others for name in names)]
    assert {"torch", "transformers", "peft"} <= set(modules) and ("faiss" in modules) is (method == "closed_book")
    code = f"import sys, pytest; sys.modules |= dict.fromkeys({modules}); sys.exit(pytest.main(sys.argv[1:]))"
    tests = [ROOT / "tests/test_methods.py", "-k", method, "-p", "no:cacheprovider"]
    alone = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # some of these are plugins
    done = subprocess.run([sys.executable, "-c", code, *tests], cwd=ROOT, capture_output=True, text=True, env=alone)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
