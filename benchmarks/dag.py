"""How long Snakemake takes to plan a large suite: `python benchmarks/dag.py [--cells 100 5000]`.

Makes a copy of the cards with as many models as the number of cells asks for, and times `snakemake -n` on it, from the
start of the process to its end. Prints a Markdown table, a row a suite.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

from upkeep.catalog import Catalog

ROOT = Path(__file__).resolve().parents[1]


def repository(folder: Path, cells: int) -> int:
    """A repository whose suite `large` has at least `cells` cells; returns how many."""
    for name in ("config", "containers", "datasets", "methods", "models", "papers", "profiles", "rules", "src"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "Snakefile", folder)
    catalog = Catalog(folder)
    methods = [m for m in catalog.methods if catalog.method(m).model and not catalog.method(m).trains]
    variants = sum(len(catalog.method(m).variants) for m in methods)
    datasets = [d for d in catalog.datasets if d.endswith("_mini")]
    models = [f"copy{i}" for i in range(-(-cells // (variants * len(datasets))))]
    for model in models:
        shutil.copytree(folder / "models" / "tiny", folder / "models" / model)
    choice = {"datasets": datasets, "methods": methods, "models": models}
    suite = {"label": "large", "summary": "for the benchmark", "papers": [], "cells": [choice]}
    (folder / "config" / "suites" / "large.yaml").write_text(yaml.safe_dump(suite))
    return variants * len(datasets) * len(models)


def plan(folder: Path) -> tuple[float, int]:
    """Seconds of a dry run, and the jobs that it plans."""
    begin = time.perf_counter()
    command = [sys.executable, "-m", "snakemake", "--profile", "profiles/local", "--config", "suite=large", "-n", "all"]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    seconds = time.perf_counter() - begin
    total = [line for line in run.stdout.splitlines() if line.startswith("total")]
    return seconds, int(total[0].split()[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, nargs="+", default=[100, 5000], help="at least so many, in each suite")
    print("| cells | jobs | seconds |\n| ---: | ---: | ---: |")
    for size in parser.parse_args().cells:
        with tempfile.TemporaryDirectory() as folder:
            cells = repository(Path(folder), size)
            seconds, jobs = plan(Path(folder))
        print(f"| {cells:,} | {jobs:,} | {seconds:.1f} |")


if __name__ == "__main__":
    main()
