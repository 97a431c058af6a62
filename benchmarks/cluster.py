"""What scheduling costs a cell on SLURM: `python benchmarks/cluster.py [--cells 1000]`, as root, with SLURM installed.

Starts the tests' cluster (two nodes on this machine) and runs cells of the method `null`, which does nothing: first a
few, each in a job of its own, then all of them in batches; and the same few in one process without any workflow. What a
cell takes beyond the last is scheduling: Snakemake, SLURM, and the start of its job. Prints a Markdown table.
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

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests import cluster as clusters  # noqa: E402

COPIED = ("config", "containers", "datasets", "methods", "models", "papers", "profiles", "rules", "src")
DATASET = "oaks_babi_mini"


def repository(folder: Path, cells: int, together: int) -> None:
    """A repository whose suite has so many cells of the method `null`, each a variant of it."""
    folder.mkdir()
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "Snakefile", folder)
    card = folder / "methods/null/method.yaml"
    variants = {f"v{number}": {} for number in range(cells)}
    card.write_text(yaml.safe_dump(yaml.safe_load(card.read_text()) | {"variants": variants}))
    choice = {"datasets": [DATASET], "methods": ["null"], "models": ["none"]}
    suite = {"label": "many", "summary": "for the benchmark", "papers": [], "cells": [choice]}
    (folder / "config/suites/many.yaml").write_text(yaml.safe_dump(suite))
    config = folder / "config/config.yaml"
    given = {"suite": "many", "runtime": "process", "cells_per_job": together}
    config.write_text(yaml.safe_dump(yaml.safe_load(config.read_text()) | given))
    profile = folder / "profiles/slurm/config.yaml"
    # Where nothing is late there is nothing to wait for.
    quick = {"latency-wait": 5, "seconds-between-status-checks": 5, "slurm-init-seconds-before-status-checks": 5}
    profile.write_text(yaml.safe_dump(yaml.safe_load(profile.read_text()) | quick))


def run(folder: Path, environment: dict[str, str], *command: str) -> float:
    """Seconds of a command in the repository."""
    begin = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed\n{done.stdout[-3000:]}\n{done.stderr[-6000:]}")
    return time.perf_counter() - begin


def measure(folder: Path, environment: dict[str, str], cells: int, together: int, profile: str) -> float:
    repository(folder, cells, together)
    run(folder, environment, "snakemake", "prepared", "--profile", "profiles/local")
    seconds = run(folder, environment, "snakemake", "all", "--profile", profile)
    published = len(list(folder.glob("results/cells/*/null/*/none/manifest.json")))
    assert published == cells, f"{published} of {cells} cells are there"
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=1000)
    parser.add_argument("--few", type=int, default=40)
    arguments = parser.parse_args()
    cache = os.environ.get("UPKEEP_CACHE", str(ROOT / "results" / "cache"))
    rows = [
        ("one process", "profiles/local", arguments.few, arguments.few),
        ("a job a cell", "profiles/slurm", arguments.few, 1),
        ("batches of 10", "profiles/slurm", arguments.cells, 10),
    ]
    print("| cells | how | jobs | seconds | a cell |\n| ---: | --- | ---: | ---: | ---: |", flush=True)
    ours = {k: v for k, v in os.environ.items() if not k.startswith("UPKEEP_")}
    ours |= {"UPKEEP_CACHE": cache, "UPKEEP_RUNTIME": "process"}
    with tempfile.TemporaryDirectory(prefix="upkeep-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        with clusters.running(folder / "c", "root", cpus=2) as cluster:
            path = f"{cluster.path}:{Path(sys.executable).parent}:{os.environ['PATH']}"
            environment = ours | cluster.environment | {"PATH": path}
            for number, (how, profile, cells, together) in enumerate(rows):
                seconds = measure(folder / str(number), environment, cells, together, profile)
                jobs = -(-cells // together)
                print(f"| {cells:,} | {how} | {jobs} | {seconds:.0f} | {seconds / cells:.2f} |", flush=True)


if __name__ == "__main__":
    main()
