"""`upkeep run` whose processes are killed by SIGKILL, any one or all of them, goes on by the same command.

The same bytes as of a run that nobody disturbed, nothing done twice, nothing left behind. UPKEEP_RUN_KILLS says how
many moments are tried (one by default), UPKEEP_RUN_KILLS_RUNTIME where cells run.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import psutil
import pytest

from conftest import CACHE, copy_repository, keep_one_figure
from test_record import repeated
from upkeep.contract import Manifest
from upkeep.files import digest

SUITE = """
label: killed
summary: The controls, a model that is loaded once, and a method that asks it as documents arrive.
papers: [oaks]
cells:
  - {datasets: [oaks_babi_mini, oaks_novel_mini], methods: ["null", gold], models: [none]}
  - {datasets: [oaks_novel_mini], methods: [closed_book, memory_scaffold/budget32], models: [pico]}
"""
RUNTIME = os.environ.get("UPKEEP_RUN_KILLS_RUNTIME", "process")
CYCLES = int(os.environ.get("UPKEEP_RUN_KILLS", "1"))
END_S = 60.0


@dataclass
class Place:
    """A copy of the suite, and what tells its processes and its temporary files from those of others."""

    root: Path
    temporary: Path

    def start(self, word: str = "run") -> subprocess.Popen[bytes]:
        environment = os.environ | {
            "UPKEEP_RUNTIME": RUNTIME,
            "UPKEEP_CACHE": str(CACHE),
            "PYTHONPATH": str(self.root / "src"),
            "TMPDIR": str(self.temporary),
        }
        command = [sys.executable, "-m", "upkeep", "--root", str(self.root), word, "killed"]
        with (self.root / "said").open("wb") as said:  # no pipe, whose end would have to wait for orphans
            return subprocess.Popen(command, env=environment, stdout=said, stderr=said, cwd=self.root)

    def run(self, word: str = "run") -> float:
        """Run it to its good end; how long that took."""
        begin = time.monotonic()
        status = self.start(word).wait()
        assert status == 0, (self.root / "said").read_text()
        return time.monotonic() - begin

    def processes(self) -> list[psutil.Process]:
        """All that belong to it, orphans too: each has one of its two folders in its environment or command line."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                words = [*process.cmdline(), *process.environ().values()]
                mine = any(str(folder) in word for folder in (self.root, self.temporary) for word in words)
                if process.pid != os.getpid() and mine and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def predictions(self) -> dict[str, bytes]:
        results = self.root / "results"
        files = (results / "cells").rglob("predictions.jsonl")
        return {str(file.relative_to(results)): file.read_bytes() for file in files}

    def starts(self) -> dict[str, str]:
        """When each job that is published was begun."""
        found = {}
        for path in (self.root / "results").rglob("manifest.json"):
            if "work" not in path.relative_to(self.root / "results").parts:
                with contextlib.suppress(FileNotFoundError):
                    found[str(path.parent)] = msgspec.json.decode(path.read_bytes(), type=Manifest).start
        return found

    def left(self) -> list[str]:
        """What is there when nothing should be."""
        results = self.root / "results"
        found = [f"process {p.pid} {' '.join(p.cmdline())[:200]}" for p in self.processes()]
        found += [str(path) for path in self.temporary.iterdir()]
        found += [str(path) for path in (self.root / ".snakemake/locks").glob("*")]
        found += [str(path) for path in (results / "work").rglob("*") if path.is_file()]
        found += [str(path) for path in results.rglob(".*") if path.name.endswith(".partial")]
        if RUNTIME != "process":
            label = f"label=upkeep.results={digest(str(results))}"
            listed = [RUNTIME, "ps", "--all", "--filter", label, "--format", "container {{.Names}}"]
            found += subprocess.run(listed, capture_output=True, text=True, check=True).stdout.splitlines()
        return found


@pytest.fixture(scope="module")
def temporary() -> Iterator[Path]:
    """A folder for temporary files with a short name, so that sockets have room in it."""
    with tempfile.TemporaryDirectory(prefix="kills-") as name:
        yield Path(name)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, temporary: Path) -> tuple[Place, dict[str, bytes], float]:
    """A place with data and environments but nothing run, what a run gives, and how long it takes."""
    folder = tmp_path_factory.mktemp("kills")
    root = copy_repository(folder)
    (root / "config" / "suites" / "killed.yaml").write_text(SUITE)
    keep_one_figure(root, "oaks")
    # One story in place of four, and a memory of a few words.
    for card, old, new in (
        ("datasets/oaks_novel/dataset.yaml", "      streams: 4\n", "      streams: 1\n"),
        ("methods/memory_scaffold/method.yaml", "budget256: {budget: 256}", "budget32: {budget: 32}"),
    ):
        text = (root / card).read_text()
        assert old in text
        (root / card).write_text(text.replace(old, new))
    place = Place(root, temporary)
    place.run("setup")
    shutil.copytree(root, folder / "prepared", symlinks=True)
    took = place.run()
    return Place(folder / "prepared", temporary), place.predictions(), took


def victims(place: Place, choice: random.Random) -> list[psutil.Process]:
    """One process of the run, or all at once."""
    found = sorted(place.processes(), key=lambda process: process.pid)
    return found if choice.random() < 0.25 else [choice.choice(found)]


def name_of(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return " ".join(process.cmdline())[-60:]
    return "gone"


@pytest.mark.parametrize("seed", range(CYCLES))
def test_a_killed_run_goes_on_by_the_same_command_and_leaves_nothing(
    undisturbed: tuple[Place, dict[str, bytes], float], tmp_path: Path, seed: int
) -> None:
    prepared, expected, took = undisturbed
    choice = random.Random(seed)
    place = Place(tmp_path / "upkeep", prepared.temporary)
    # From just after the start to just before the end, each moment in its own share of the time.
    moment = took * (seed + choice.random()) / CYCLES * 0.97
    while True:
        shutil.copytree(prepared.root, place.root, symlinks=True)
        process = place.start()
        try:
            process.wait(moment)
        except subprocess.TimeoutExpired:
            break
        shutil.rmtree(place.root)
        moment *= 0.8
    struck = victims(place, choice)
    assert struck
    before = place.starts()
    told = [name_of(one) for one in struck]
    for one in struck:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()
    if len(struck) > 1 or process.pid in {one.pid for one in struck}:
        process.wait(END_S)  # and at once, beside what is still ending
    else:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(choice.choice([1.0, 120.0]))
        process.kill()
        process.wait()
    again = place.run()
    print(f"seed {seed}: killed {told} with {len(before)} published; at {moment:.1f} s; again {again:.1f} s")
    assert place.predictions() == expected
    assert before.items() <= place.starts().items(), "what was published is not run again"
    assert repeated(place.root / "results" / "record") == 0, "nothing is asked twice"
    deadline = time.monotonic() + END_S
    while place.left() and time.monotonic() < deadline:
        time.sleep(0.5)
    assert place.left() == []
