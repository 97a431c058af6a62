"""Vectors are made once: counted by the embedder itself, over every variant of dense retrieval that asks the same one,
the methods beside it, and two readers."""

from __future__ import annotations

import dataclasses
import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from conftest import ROOT, copy_repository
from endpoint_fakes import MODEL, be_quick, fake_endpoint, make_endpoint_repository
from host_fakes import RunnerRuntime, write_toy
from upkeep.batches import Batch
from upkeep.catalog import Catalog
from upkeep.contract import Manifest
from upkeep.execution.batch import run_batch
from upkeep.execution.fetch import fetch
from upkeep.execution.handle import Handle
from upkeep.execution.runtimes import Launch, Prepared
from upkeep.gateway.engines import embedder_parts
from upkeep.gateway.record import Replies, key_of
from upkeep.jobs import Cell
from upkeep.layout import Layout
from upkeep.serving.embedding import load_embedder

EMBEDDER, OTHER = "minilm", "elsewhere"
COUNTED = """
import json, sys
from upkeep.serving import embedder
from upkeep.serving.embedding import SentenceEmbedder

encode = SentenceEmbedder.encode

def counted(self, texts):
    with open({log!r}, "a") as file:
        file.writelines(json.dumps(text) + "\\n" for text in texts)
    return encode(self, texts)

SentenceEmbedder.encode = counted
embedder.main(sys.argv[1:])
"""


class Counted(RunnerRuntime):
    """Has embedders write down each text that they embed, and counts how often one is started."""

    def __init__(self, log: Path) -> None:
        super().__init__()
        self.log, self.embedders = log, 0
        log.touch()

    def start(self, prepared: Prepared, launch: Launch) -> Handle:
        if "upkeep.serving.embedder" in launch.arguments:
            self.embedders += 1
            code = COUNTED.format(log=str(self.log))
            launch = dataclasses.replace(launch, arguments=("-c", code, launch.arguments[-1]))
        return super().start(prepared, launch)

    @property
    def texts(self) -> list[str]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]


def sharing(catalog: Catalog) -> list[Cell]:
    """Every variant of dense retrieval with the small embedder, asked by both readers; then one of each method that
    embeds the same."""
    cells = [Cell("toy", "rag_dense", variant, model) for model in (MODEL, OTHER) for variant in _variants(catalog)]
    cells += [Cell("toy", "rag_hybrid", "k2", MODEL), Cell("toy", "rag_rolling_window", "k1w1", OTHER)]
    return [cell for cell in cells if catalog.asked(cell)["embedder"] == EMBEDDER]


def _variants(catalog: Catalog) -> list[str]:
    return list(catalog.method("rag_dense").variants)


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalog]:
    """A repository with two models behind an endpoint that are other cells' readers."""
    with pytest.MonkeyPatch.context() as patch, fake_endpoint() as server:
        be_quick(patch)
        root = copy_repository(tmp_path_factory.mktemp("vectors"))
        make_endpoint_repository(root, server.url)
        shutil.copytree(ROOT / "src", root / "src", dirs_exist_ok=True)
        (root / "papers/toy/prompts/oaks_babi.yaml").unlink()
        shutil.copytree(root / "models" / MODEL, root / "models" / OTHER)
        (root / "config/config.yaml").write_text(f"{{runtime: process, budget: {{{MODEL}: 1000, {OTHER}: 1000}}}}")
        catalog = Catalog(root)
        write_toy(catalog)
        fetch(catalog, EMBEDDER)
        yield catalog


def run(catalog: Catalog, cells: list[Cell], runtime: Counted) -> dict[Cell, Manifest]:
    return run_batch(catalog, Batch("dense", tuple(cells)), runtime=runtime)


def vectors(catalog: Catalog, cell: Cell) -> dict[bytes, bytes]:
    """What the record holds of the embedder, by what it is kept by."""
    replies = Replies(Layout(catalog.results).record, embedder_parts(catalog, cell, EMBEDDER), EMBEDDER)
    found = list(replies.entries())
    kept = {key: value for _, key, value in found}
    assert len(found) == len(kept), "nothing is there twice"
    return kept


def expected(catalog: Catalog) -> set[str]:
    """The texts that there are: documents and questions, each with its index."""
    folder = Layout(catalog.results).dataset("toy")
    documents = pl.read_parquet(folder / "documents.parquet").select("position", "text").rows()
    probes = pl.read_parquet(folder / "probes.parquet").select("position", "question").rows()
    texts = [f"context: {text}" for _, text in documents] + [f"question: {question}" for _, question in probes]
    places = [place for place, _ in documents + probes]
    return {f"# chunk index : {place}, {text}" for place, text in zip(places, texts, strict=True)}


def test_every_text_is_embedded_once_over_all_variants_methods_and_readers(catalog: Catalog, tmp_path: Path) -> None:
    cells = sharing(catalog)
    assert len(cells) >= 22 and {cell.model for cell in cells} == {MODEL, OTHER}
    made = run(catalog, cells, runtime := Counted(tmp_path / "texts"))
    texts = runtime.texts
    assert len(texts) == len(set(texts)) and set(texts) == expected(catalog)
    assert runtime.embedders == 1
    new = [manifest.measured["new_vectors"] for manifest in made.values()]
    assert new == [len(texts)] + [0] * (len(cells) - 1)
    assert all(manifest.outcomes["error"] == 0 for manifest in made.values())

    # Whoever asks first, in whatever order, and with whatever beside it.
    kept, layout = vectors(catalog, cells[0]), Layout(catalog.results)
    for gone in (layout.record, layout.results / "cells"):
        shutil.rmtree(gone)
    run(catalog, cells[:-4:-1], again := Counted(tmp_path / "again"))
    assert again.texts != texts and sorted(again.texts) == sorted(texts)
    assert vectors(catalog, cells[0]) == kept
    random.Random(3).shuffle(texts)
    threads = catalog.method("rag_dense").resources.cpus
    rows = load_embedder(catalog.model(EMBEDDER), None, threads).encode(texts)
    alone = {key_of("embed", text.encode()): row.astype("<f4").tobytes() for text, row in zip(texts, rows, strict=True)}
    assert alone.items() <= kept.items()
