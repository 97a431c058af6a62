"""One engine for ten small cells against one engine a cell: `python benchmarks/shared.py [--runtime R] [--model M]`.

Runs the same ten cells (two a dataset) of one model twice in one run: one after the other, each with an engine of its
own, then as a batch that shares one. The predictions must be the same bytes. Images, weights and datasets are made
before the clock starts. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from pathlib import Path

import yaml

from upkeep.batches import batches
from upkeep.building.build import build_dataset
from upkeep.catalog import Catalog
from upkeep.execution.batch import run_batch
from upkeep.execution.detection import detect
from upkeep.execution.fetch import fetch
from upkeep.execution.supervise import run_cell
from upkeep.jobs import Cell
from upkeep.layout import Layout

ROOT = Path(__file__).resolve().parents[1]
COPIED = ("config", "containers", "datasets", "methods", "models", "papers", "profiles", "rules", "src")
METHODS = ("closed_book", "rag_bm25/k1")


def copy(folder: Path) -> None:
    """Make a repository of the suite's code, without results."""
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))


def repository(folder: Path, model: str, datasets: int, questions: int) -> Catalog:
    """A repository with some very small datasets, each of a seed of its own."""
    copy(folder)
    card = folder / "datasets/oaks_babi/dataset.yaml"
    family = yaml.safe_load(card.read_text())
    mini = family["variants"]["mini"]
    for seed in range(1, datasets + 1):
        family["variants"][f"small{seed}"] = mini | {
            "options": mini["options"] | {"streams": 1, "seed": seed, "questions": questions}
        }
    card.write_text(yaml.safe_dump(family))
    names = [f"oaks_babi_small{seed}" for seed in range(1, datasets + 1)]
    choice = {"datasets": names, "methods": list(METHODS), "models": [model]}
    suite = {"label": "small", "summary": "for the benchmark", "papers": [], "cells": [choice]}
    (folder / "config/suites/small.yaml").write_text(yaml.safe_dump(suite))
    os.environ["UPKEEP_SUITE"] = "small"
    catalog = Catalog(folder)
    for name in names:
        build_dataset(catalog, name, Layout(catalog.results).dataset(name))
    fetch(catalog, model)
    runtime = detect(catalog)
    for cell in catalog.cells(catalog.suite("small")):
        for image in catalog.images(cell):
            runtime.prepare(*image)
    return catalog


def contents(catalog: Catalog, cells: list[Cell]) -> list[bytes]:
    return [(Layout(catalog.results).cell(cell) / "predictions.jsonl").read_bytes() for cell in cells]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runtime", default="auto")
    parser.add_argument("--model", default="tiny-vllm")
    parser.add_argument("--datasets", type=int, default=5)
    parser.add_argument("--questions", type=int, default=32, help="of a dataset, each asked ten times")
    arguments = parser.parse_args()
    os.environ["UPKEEP_RUNTIME"] = arguments.runtime
    os.environ["UPKEEP_FRESH"] = "true"  # engines are to work, not the record of what they said
    os.environ.setdefault("UPKEEP_CACHE", str(ROOT / "results" / "cache"))
    with tempfile.TemporaryDirectory() as folder:
        catalog = repository(Path(folder), arguments.model, arguments.datasets, arguments.questions)
        cells = catalog.cells(catalog.suite("small"))
        begin = time.perf_counter()
        for cell in cells:
            run_cell(catalog, cell, ask="everything")
        alone = time.perf_counter() - begin
        expected = contents(catalog, cells)
        shutil.rmtree(Layout(catalog.results).results / "cells")
        (batch,) = batches(catalog, cells)
        begin = time.perf_counter()
        run_batch(catalog, batch)
        together = time.perf_counter() - begin
        assert contents(catalog, cells) == expected, "a shared engine must answer the same bytes"
    print("| cells | engine | seconds | a cell | ratio |\n| ---: | --- | ---: | ---: | ---: |")
    print(f"| {len(cells)} | one a cell | {alone:.0f} | {alone / len(cells):.1f} |  |")
    print(f"| {len(cells)} | shared | {together:.0f} | {together / len(cells):.1f} | {alone / together:.1f} |")


if __name__ == "__main__":
    main()
