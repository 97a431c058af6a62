"""Repositories with trainings and what they are given, for tests."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import polars as pl
import pytest
import yaml

from host_fakes import make_repository
from upkeep.building.assembling import Built
from upkeep.building.store import write
from upkeep.catalog import Catalog
from upkeep.contract import DatasetSpec, Pair, Prediction
from upkeep.execution.fetch import fetch
from upkeep.identity import plan_dataset
from upkeep.jobs import Cell, Training
from upkeep.layout import Layout
from upkeep.normal_form import read_table

TRAINING = Training("toy", "trainer", "a", "none")
SETS = {
    "half": {"until": 0.5},
    "early": {"until": "2024-03-01"},
    "streams": {"by": "stream"},
    "kinds": {"by": "kind"},
    "odd": {"by": "nothing"},
}


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    make_repository(tmp_path)
    return with_sets(tmp_path)


def with_sets(root: Path, supervision: str = "C+Q") -> Catalog:
    """The dataset `toy` with training sets, documents that have dates and are of two kinds, and two pairs of each."""
    card = root / "datasets/toy/dataset.yaml"
    given = yaml.safe_load(card.read_text()) | {"training": SETS, "variants": {"full": None, "later": None}}
    card.write_text(yaml.safe_dump(given))
    method = root / "methods/trainer/method.yaml"
    method.write_text(re.sub("supervision: .*", f"supervision: {supervision}", method.read_text()))
    for name in ("toy", "toy_later"):
        built(Catalog(root), name)
    return Catalog(root)


def built(catalog: Catalog, name: str, change: Callable[[Built], Built] = lambda one: one, toy: str = "toy") -> None:
    """Build a dataset with the rows of `toy`, with dates, kinds of documents, and two pairs of each document."""
    folder = Layout(catalog.results).dataset(toy)
    documents, probes, gold = (read_table(folder, table) for table in ("documents", "probes", "gold"))
    if name != toy:
        documents = documents.with_columns(text=pl.lit(f"{name}: ") + pl.col("text"))
        probes = probes.with_columns(question=pl.lit(f"{name}: ") + pl.col("question"))
    dated = documents.with_columns(timestamp=pl.format("2024-0{}-01", pl.col("position") + 1))
    kind = pl.when(pl.col("stream") == "a").then(pl.lit("first")).otherwise(pl.lit("second"))
    pairs = [
        Pair(question=f"{name}, {n} of {document}", answer="a", document=document)
        for document in documents["document_id"]
        for n in range(2)
    ]
    made = Built(
        dated.with_columns(slice_kind=kind), probes, gold.with_columns(slice_kind=_kind(probes)), pairs, "words", 3,
        "ours", {},
    )  # fmt: skip
    target = Layout(catalog.results).dataset(name)
    target.mkdir(parents=True, exist_ok=True)
    (target / "pairs.jsonl").unlink(missing_ok=True)
    spec: DatasetSpec = catalog.dataset(name)
    write(target, change(made), name, spec, plan_dataset(catalog, name))


def _kind(probes: pl.DataFrame) -> pl.Series:
    return pl.Series(["first" if stream == "a" else "second" for stream in probes["stream"]])


@pytest.fixture
def with_model(catalog: Catalog) -> Catalog:
    """With the model `m` of a folder, which `echo` and `trainer` use."""
    root = catalog.root
    (root / "models/m").mkdir(parents=True)
    (root / "models/m/model.yaml").write_text(
        "{label: M, summary: s, source: path, location: weights, context_length: 100}"
    )
    (root / "weights").mkdir()
    (root / "weights/config.json").write_text("{}")
    (root / "containers/transformers").mkdir(exist_ok=True)
    (root / "containers/transformers/requirements.lock").write_text("")
    for method in ("echo", "trainer"):
        card = root / f"methods/{method}/method.yaml"
        card.write_text(card.read_text().replace("model: false", "model: true"))
    catalog = Catalog(root)
    fetch(catalog, "m")
    return catalog


def predictions_of(catalog: Catalog, cell: Cell) -> list[Prediction]:
    lines = (Layout(catalog.results).cell(cell) / "predictions.jsonl").read_bytes().splitlines()
    return [msgspec.json.decode(line, type=Prediction) for line in lines]
