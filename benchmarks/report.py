"""Size and time of the report of a large suite: `python benchmarks/report.py [--cells 5000] [--answers 100]`.

Makes a repository with so many published cells, each a variant of one method, over a small dataset; of some of them the
report is to have the answers, each with a prompt of ten documents that it retrieved, half of them wrong. (No model is
asked and no prompt on record: what would look it up is told it.) Scores are made first, then the report three times:
without any answers, with those, and again with nothing changed. Prints a Markdown table; `--keep FOLDER` leaves the
report there.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import shutil
import tempfile
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from unittest import mock

import msgspec
import polars as pl
from rescoring import publish

from cluster import DATASET, repository
from upkeep.building.build import build_dataset
from upkeep.catalog import Catalog
from upkeep.contract import ContextUse, Manifest, Prediction, Retrieved, Usage
from upkeep.execution.supervise import run_cell
from upkeep.files import digest
from upkeep.gateway.calls import Call
from upkeep.grading.scores import Scores, score_suite
from upkeep.integrity import fingerprint, read_sealed, write_sealed
from upkeep.jobs import Cell
from upkeep.layout import Layout
from upkeep.report import answers, page

RETRIEVED = 10
SUITE = "many"
PROMPTS: dict[str, list[str]] = {}
"""Documents and the question of each prompt, by the key of its call."""


def answered(catalog: Catalog, cell: Cell) -> None:
    """Put answers in the place of a published cell's: to every question, after documents that had arrived."""
    layout = Layout(catalog.results)
    folder, dataset = layout.cell(cell), layout.dataset(DATASET)
    draw = random.Random(str(cell))
    documents = pl.read_parquet(dataset / "documents.parquet", columns=["stream", "position", "document_id"])
    streams = documents.group_by("stream").agg(pl.col("document_id").sort_by("position"))
    arrived = dict(streams.iter_rows())
    asked = pl.read_parquet(dataset / "probes.parquet").join(
        pl.read_parquet(dataset / "gold.parquet").select("probe_id", "answers"), on="probe_id", maintain_order="left"
    )

    def line(probe: dict[str, object], right: str) -> bytes:
        there = arrived[probe["stream"]][: int(str(probe["position"])) + 1]
        found = draw.sample(there, min(RETRIEVED, len(there)))
        key = digest([str(cell), probe["probe_id"]])
        PROMPTS[key] = [*found, str(probe["question"])]
        said = right if draw.random() < 0.5 else "somewhere else"
        one = Prediction(
            probe_id=str(probe["probe_id"]), trial=0, response=f"## Answer: {said}", reasoning=None,
            finish_reason="stop", retrieved=[Retrieved(id=id, score=1.0, rank=n) for n, id in enumerate(found, 1)],
            usage=Usage(calls=1, prompt=2000, completion=6), context=ContextUse(documents=len(found)), error=None,
            calls=[key],
        )  # fmt: skip
        return msgspec.json.encode(one) + b"\n"

    lines = [line(probe, probe["answers"][0]) for probe in asked.iter_rows(named=True)]
    (folder / "predictions.jsonl").unlink()
    (folder / "predictions.jsonl").write_bytes(b"".join(lines))
    manifest = read_sealed(folder / "manifest.json", Manifest, "")
    files = manifest.files | {"predictions.jsonl": fingerprint(folder / "predictions.jsonl")}
    write_sealed(folder / "manifest.json", msgspec.structs.replace(manifest, files=files))


class Told:
    """In the place of `Calls`: a prompt of the documents and the question that a key names."""

    def __init__(self, catalog: Catalog, cell: Cell, _: object) -> None:
        documents = pl.read_parquet(Layout(catalog.results).dataset(DATASET) / "documents.parquet")
        self._texts = dict(documents.select("document_id", "text").iter_rows())

    def find(self, key: str) -> Call:
        *documents, question = PROMPTS[key]
        messages = [("user", [*(self._texts[name] for name in documents), question])]
        return Call("a model", "greedy", None, messages, None, 2000, 6, "## Answer: somewhere", None, "stop")


def size(folder: Path) -> Iterator[int]:
    return (path.stat().st_size for path in folder.rglob("*") if path.is_file())


def spent() -> float:
    """Seconds on the cores, of this process and of those that have drawn, which count when they have ended."""
    for drawer in multiprocessing.active_children():
        drawer.join()
    return sum(os.times()[:4])


def report(catalog: Catalog, scores: Scores, what: str, named: Collection[str]) -> str:
    """Write the report; a row of the table."""
    begin, before = time.perf_counter(), spent()
    page.render(catalog, scores, named)
    wall, on_cores = time.perf_counter() - begin, spent() - before
    folder = Layout(catalog.results).report(SUITE).parent
    sizes = list(size(folder))
    cells = len(list((folder / "cells").rglob("index.js")))
    return (
        f"| {what} | {cells:,} | {wall:.2f} | {on_cores:.2f} | {len(sizes):,} | {sum(sizes) / 1e6:.2f} "
        f"| {(folder / 'cells.html').stat().st_size / 1e6:.2f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=5000)
    parser.add_argument("--answers", type=int, default=100)
    parser.add_argument("--keep", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, mock.patch.object(answers, "Calls", Told):
        folder = Path(scratch) / "suite"
        repository(folder, arguments.cells, 10)
        catalog = Catalog(folder)
        layout = Layout(catalog.results)
        build_dataset(catalog, DATASET, layout.dataset(DATASET))
        cells = catalog.cells(catalog.suite(SUITE))
        run_cell(catalog, cells[0])
        for cell in cells[1:]:
            publish(catalog, layout.cell(cells[0]), cell)
        chosen = cells[: arguments.answers]
        for cell in chosen:
            answered(catalog, cell)
        catalog = Catalog(folder)
        scores = score_suite(catalog, SUITE)
        named = [str(cell) for cell in chosen]
        print("| report | with answers | seconds | on the cores | files | MB | cells.html, MB |")
        print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
        for what, wanted in (("without answers", [page.NONE]), ("with answers", named), ("again", named)):
            print(report(catalog, scores, what, wanted), flush=True)
        if arguments.keep is not None:
            shutil.copytree(layout.report(SUITE).parent, arguments.keep)


if __name__ == "__main__":
    main()
