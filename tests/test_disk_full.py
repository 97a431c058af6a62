"""A disk that is full, under results, cache or scratch: every step says so, tears nothing, and goes on with room.

The disk is a small file system of memory in a mount namespace of the test's own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import CACHE, copy_repository, keep_one_figure

ROOM_KB = (0, 24, 120)
"""What is free when a step begins."""

SMALL = """
import json, os, shutil, sys
from pathlib import Path

import pytest

from host_fakes import TRAINED_FILES, ScriptedRuntime, training
from suite_fakes import BEGUN, CELLS, called, make, numbers, printed, with_begun
from upkeep.catalog import Catalog
from upkeep.building.store import validate

place, real, room = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
root = place / "suite"
root.mkdir()
make(root, "text")
shutil.copytree(real / "datasets/oaks_babi", root / "datasets/oaks_babi")
for name in ("reference", "prompts"):  # of its card, and of what baselines are graded by
    shutil.copytree(real / "papers/oaks" / name, root / "papers/oaks" / name)
patch = pytest.MonkeyPatch()


def runtime(made):
    patch.setattr("upkeep.execution.job.detect", lambda _: made)


def fill():
    filler = os.open(place / "filler", os.O_WRONLY | os.O_CREAT)
    block = bytes(4096)
    try:
        while True:
            os.write(filler, block)
    except OSError:
        pass
    size = os.fstat(filler).st_size
    os.ftruncate(filler, max(0, size - room * 1024))
    os.close(filler)


def remake(cell):
    return lambda: shutil.rmtree(root / "results/cells" / cell)


STEPS = {
    "dataset build oaks_babi_mini": lambda: None,
    "model fetch m": lambda: (root / "results/models/m.json").unlink(),
    "cell " + CELLS[0]: remake(CELLS[0]),
    "cell " + BEGUN: lambda: None,
    "model train toy/trainer/a/m": lambda: shutil.rmtree(root / "results/trained"),
    "score": lambda: shutil.rmtree(root / "results/scores"),
    "report": lambda: shutil.rmtree(root / "results/tables"),
}
assert called(root, "score") == called(root, "report") == (0, "")
truth, shown = numbers(root), printed(root)
found = []
for step, prepare in STEPS.items():
    runtime(training(TRAINED_FILES) if "trainer" in step else ScriptedRuntime())
    words = step.split()
    prepare()
    fill()
    status, said = called(root, *words)
    (place / "filler").unlink()
    again, later = called(root, *words)
    found.append([step, status, said, again, later])
runtime(ScriptedRuntime())
ends = [called(root, *words) for words in (*(["cell", cell] for cell in CELLS), ["score"], ["report"])]
validate(root / "results/datasets/oaks_babi_mini")
left = [str(p) for p in root.rglob("*.partial")] + [str(p) for p in (root / "results/datasets").glob(".*.*")]
same = numbers(root) == with_begun(truth) and set(printed(root)) == set(shown)
print(json.dumps({"steps": found, "ends": ends, "same": same, "left": left}))
"""


def in_small_disk(mount: Path, command: list[str], options: str = "size=48m", **environment: str) -> str:
    """Run a command with a small file system at `mount`; what it printed."""
    script = 'mount -t tmpfs -o "$1" none "$2" && shift 2 && exec "$@"'
    paths = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "src")]
    done = subprocess.run(
        [
            "unshare",
            "--user",
            "--map-root-user",
            "--mount",
            "sh",
            "-c",
            script,
            "sh",
            options,
            str(mount),
            *command,
        ],
        env={k: v for k, v in os.environ.items() if not k.startswith("UPKEEP_")}
        | {"PYTHONPATH": os.pathsep.join(paths)}
        | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stdout + done.stderr
    return done.stdout


@pytest.mark.mounts
@pytest.mark.parametrize("room", ROOM_KB)
def test_a_full_disk_is_said_tears_nothing_and_is_got_over(tmp_path: Path, room: int) -> None:
    mount, real = tmp_path / "disk", Path(__file__).parents[1]
    mount.mkdir()
    out = in_small_disk(mount, [sys.executable, "-c", SMALL, str(mount), str(real), str(room)])
    found = json.loads(out.splitlines()[-1])
    failed = 0
    for step, status, said, again, later in found["steps"]:
        assert "Traceback" not in said + later, said + later
        if status:
            failed += 1
            assert status == 1, (step, said)
            assert "no space left" in said, (step, said)
            assert "remedy:" in said and "the same command continues" in said, (step, said)
        assert (again, "Traceback" in later) == (0, False), (step, later)
    assert failed >= (6 if room == 0 else 1), "the disk was full"
    assert all(status == 0 for status, _ in found["ends"]), found["ends"]
    assert found["same"]
    assert found["left"] == []


SUITE = """
label: full
summary: The two controls.
papers: [oaks]
cells:
  - {datasets: [oaks_babi_mini], methods: ["null", gold], models: [none]}
"""

RUN = """
import os, shutil, subprocess, sys
from pathlib import Path

mount, root, cache, full = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4]
places = {"results": mount / "results", "cache": Path(cache), "scratch": Path(os.environ.get("HOME", "/tmp"))}
if full == "cache":  # a new one, too small
    places["results"], places["cache"] = root / "results", mount / "cache"
if full == "scratch":
    places["results"], places["scratch"] = root / "results", mount / "scratch"
for place in places.values():
    place.mkdir(parents=True, exist_ok=True)


def run(word):
    told = os.environ | {
        "UPKEEP_RUNTIME": "process", "UPKEEP_CACHE": str(places["cache"]), "UPKEEP_RESULTS": str(places["results"]),
        "TMPDIR": str(places["scratch"]), "PYTHONPATH": str(root / "src"),
    }
    command = [sys.executable, "-m", "upkeep", "--root", str(root), "run", "full"]
    done = subprocess.run(command, env=told, capture_output=True, text=True, check=False, cwd=root)
    print(word, done.returncode, "TRACEBACK" if "Traceback" in done.stdout + done.stderr else "")
    print(done.stdout + done.stderr)
    return done.returncode


with open(mount / "filler", "wb", buffering=0) as filler:
    try:
        while True:
            filler.write(bytes(4096))
    except OSError:
        pass
failed = run("FULL")
(mount / "filler").unlink()
if full == "scratch":
    subprocess.run(["mount", "-o", "remount,nr_inodes=1000", str(mount)], check=True)
if full == "cache":  # as the remedy says: another place
    places["cache"] = Path(cache)
print("FAILED", failed, "THEN", run("AGAIN"))
"""


@pytest.mark.mounts
@pytest.mark.parametrize("full", ["results", "cache", "scratch"])
def test_a_run_on_a_full_disk_goes_on_when_there_is_room(tmp_path: Path, full: str) -> None:
    root = copy_repository(tmp_path)
    (root / "config" / "suites" / "full.yaml").write_text(SUITE)
    keep_one_figure(root, "oaks")
    mount = tmp_path / "disk"
    mount.mkdir()
    # A scratch folder needs no room but names.
    options = "size=1m,nr_inodes=3" if full == "scratch" else "size=24m"
    command = [sys.executable, "-c", RUN, str(mount), str(root), str(CACHE), full]
    out = in_small_disk(mount, command, options, HOME=str(tmp_path))
    assert "TRACEBACK" not in out, out
    if full == "scratch" and "FAILED 0" in out:  # Python takes another folder for temporary files
        assert "FAILED 0 THEN 0" in out, out
        return
    assert "FAILED 1 THEN 0" in out, out
    assert "no space left" in out.lower(), out
