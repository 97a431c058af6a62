"""Commands for those who add to the suite: a start for something new, tests, checks, schemas."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from upkeep.errors import Usage, unknown
from upkeep.exit_status import WRONG
from upkeep.files import folders_with

NO_TESTS = 5
"""pytest's exit status where it has selected no test."""


def new(arguments: argparse.Namespace) -> int:
    """`./upkeep new`: the files of something that works at once, and what comes next."""
    from upkeep.new import add_model, new_dataset, new_method, new_model, new_paper, new_suite

    root, name = arguments.root.resolve(), arguments.name
    is_place = arguments.what == "model" and ("/" in name or Path(name).is_dir())
    if arguments.gpus and not is_place:
        raise Usage(
            "`--gpus` is for a model that is somewhere",
            found=name,
            remedy="give its place, or write `gpus` into the card",
        )
    match arguments.what:
        case "method":
            paths = new_method(root, name)
            then = f"write methods/{name}/method.py, then `./upkeep test -k {name}`"
        case "dataset":
            paths = new_dataset(root, name)
            then = f"`./upkeep dataset build {name}`, then `./upkeep cell {name}/long_context/default/pico`"
        case "suite":
            paths = [new_suite(root, name)]
            then = f"choose its cells, then `./upkeep plan {name} --count`, `./upkeep run {name}`"
        case "paper":
            paths = new_paper(root, name)
            then = f"`./upkeep run {name}`; what to write in each file: papers/{name}/README.md"
        case _:
            card = add_model(root, name, arguments.gpus) if is_place else new_model(root, name)
            paths = [card]
            then = f"read it, then `./upkeep run mini --model {card.parent.name}`"
    print(*paths, sep="\n")
    print(f"next: {then}")
    return 0


def test(arguments: argparse.Namespace) -> int:
    """`./upkeep test`: pytest, with its own options."""
    # Tests of one file share what they prepare, so a file stays with one worker; the longest files come first. They
    # wait for other processes a sixth of their time, so there is one worker more than cores.
    rest = arguments.rest or ["-n", str((os.cpu_count() or 1) + 1), "--dist", "loadfile", "--no-loadscope-reorder"]
    code = subprocess.run([sys.executable, "-m", "pytest", *rest], cwd=arguments.root, check=False).returncode
    if code == NO_TESTS and "-k" in rest[:-1]:
        methods = folders_with(arguments.root / "methods", "method.yaml")
        raise unknown("method", rest[rest.index("-k") + 1], methods, "no test or method of this name (`-k`)")
    return WRONG if code else 0


def check(arguments: argparse.Namespace) -> int:
    """The checks that the pre-commit hooks and the continuous integration run, too."""
    fix = arguments.fix
    commands = [
        ["ruff", "format", *([] if fix else ["--check"]), "."],
        ["ruff", "check", *(["--fix"] if fix else []), "."],
        ["snakefmt", *([] if fix else ["--check"]), "Snakefile", "rules"],
        ["mypy"],
        ["snakemake", "--lint"],
    ]
    failed = []
    for command in commands:
        result = subprocess.run([sys.executable, "-m", *command], cwd=arguments.root, check=False)
        if result.returncode != 0:
            failed.append(" ".join(command))
    print("checks: " + (f"failed: {'; '.join(failed)}" if failed else "all passed"))
    return 1 if failed else 0


def completion(arguments: argparse.Namespace) -> int:
    """`./upkeep completion SHELL`."""
    from upkeep.completion import script

    print(script(arguments.whole), end="")
    return 0


def schema(arguments: argparse.Namespace) -> int:
    """`./upkeep schema`."""
    from upkeep.schemas import write

    for path in write(arguments.root.resolve() / "schema"):
        print(path)
    return 0
