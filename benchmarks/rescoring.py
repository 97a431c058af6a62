"""What scores and report take when one cell of many has changed: `python benchmarks/rescoring.py [--cells 5000]`.

Makes a repository with so many published cells of the method `null`, each a variant of it, over a small dataset. Then,
each in a process of its own as a user starts it: everything scored from nothing, on one core and on all, and reported;
one cell published anew with other answers; scores and report again. Prints a Markdown table, with the processor time
beside the seconds.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from cluster import DATASET, repository
from upkeep.catalog import Catalog
from upkeep.contract import Manifest, Prediction
from upkeep.execution.supervise import run_cell
from upkeep.identity import identity
from upkeep.integrity import fingerprint, read_sealed, write_sealed
from upkeep.jobs import Cell
from upkeep.layout import Layout

ROOT = Path(__file__).resolve().parents[1]
ALL = frozenset(os.sched_getaffinity(0))


def publish(catalog: Catalog, like: Path, cell: Cell, answer: str | None = None) -> None:
    """Publish a cell as another one is, under its own identity; with this answer to everything, where one is given."""
    folder = Layout(catalog.results).cell(cell)
    folder.mkdir(parents=True, exist_ok=True)
    manifest: Manifest = read_sealed(like / "manifest.json", Manifest, "")
    for name in manifest.files:
        (folder / name).unlink(missing_ok=True)
        content = (like / name).read_bytes()
        if answer is not None and name == "predictions.jsonl":
            decoded = [msgspec.json.decode(line, type=Prediction) for line in content.splitlines()]
            given = (msgspec.structs.replace(one, response=f"## Answer: {answer}") for one in decoded)
            content = b"".join(msgspec.json.encode(one) + b"\n" for one in given)
        (folder / name).write_bytes(content)
    found, parts = identity(catalog, cell)
    files = {name: fingerprint(folder / name) for name in manifest.files}
    named = msgspec.structs.replace(manifest, cell=str(cell), identity=found, identity_parts=parts, files=files)
    write_sealed(folder / "manifest.json", named)


def seconds(folder: Path, *commands: str, cores: frozenset[int] = ALL) -> tuple[float, float]:
    """Of some commands of the suite's, one after the other, on these cores; and those of processors."""
    begin, before = time.perf_counter(), os.times()
    for command in commands:
        done = subprocess.run(
            [sys.executable, "-m", "upkeep", "--root", str(folder), command],
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"{command} failed\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    after = os.times()
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    return time.perf_counter() - begin, spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=5000)
    count = parser.parse_args().cells
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "suite"
        repository(folder, count, 10)
        subprocess.run(
            [sys.executable, "-m", "upkeep", "--root", str(folder), "dataset", "build", DATASET],
            check=True,
            capture_output=True,
        )
        catalog = Catalog(folder)
        cells = catalog.cells(catalog.suite("many"))
        run_cell(catalog, cells[0])
        first = Layout(catalog.results).cell(cells[0])
        for cell in cells[1:]:
            publish(catalog, first, cell)
        alone = seconds(folder, "score", cores=frozenset([min(ALL)]))
        for made in ("scores", "graded"):
            shutil.rmtree(catalog.results / made)
        whole = seconds(folder, "score")
        reported = seconds(folder, "report")
        publish(catalog, first, cells[-1], answer="Unknown")
        again = seconds(folder, "score", "report")
    print("| cells | what | seconds | of processors |")
    print("| ---: | --- | ---: | ---: |")
    rows = {"scored on one core": alone, "scored": whole, "reported": reported, "both after one has changed": again}
    for what, (wall, spent) in rows.items():
        print(f"| {count:,} | {what} | {wall:.2f} | {spent:.2f} |")


if __name__ == "__main__":
    main()
