"""What a changed prompt asks of a model, counted by the model, in a suite of four datasets of two papers."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from conftest import copy_repository, make_smaller
from endpoint_fakes import MODEL, FakeEndpoint, be_quick, fake_endpoint, write_card
from host_fakes import RunnerRuntime
from upkeep.building.build import build_dataset
from upkeep.catalog import Catalog
from upkeep.contract import Manifest
from upkeep.execution.supervise import run_cell
from upkeep.jobs import Cell
from upkeep.layout import Layout
from upkeep.published import standing

DATASETS = ("oaks_babi_mini", "oaks_babi_other", "oaks_novel_mini", "evowiki_mini")
"""The first two have one prompt; the last is of another paper."""
CELLS = (
    *(Cell(dataset, "closed_book", "default", MODEL) for dataset in DATASETS),
    *(Cell(dataset, "rag_bm25", "k1", MODEL) for dataset in DATASETS[2:]),
)
WORDS = "Take your time."


@dataclass(frozen=True)
class Done:
    root: Path
    server: FakeEndpoint
    probes: dict[Cell, int]


def run(catalog: Catalog) -> dict[Cell, Manifest]:
    """Every cell anew, whether or not it is stale."""
    return {cell: run_cell(catalog, cell, runtime=RunnerRuntime(), force=True) for cell in CELLS}


def contents(catalog: Catalog) -> dict[Cell, bytes]:
    return {cell: (Layout(catalog.results).cell(cell) / "predictions.jsonl").read_bytes() for cell in CELLS}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Done]:
    """A repository whose suite has been asked of a model behind an endpoint."""
    root = copy_repository(tmp_path_factory.mktemp("prompts"))
    make_smaller(root)
    card = root / "datasets/oaks_babi/dataset.yaml"
    family = yaml.safe_load(card.read_text())
    mini = family["variants"]["mini"]
    family["variants"]["other"] = mini | {"options": mini["options"] | {"seed": 7}}
    card.write_text(yaml.safe_dump(family, sort_keys=False))
    (root / "config/config.yaml").write_text(f"{{runtime: process, budget: {{{MODEL}: 100000}}}}")
    with pytest.MonkeyPatch.context() as patch, fake_endpoint() as server:
        be_quick(patch)
        write_card(root, server.url)
        catalog = Catalog(root)
        for name in DATASETS:
            build_dataset(catalog, name, Layout(catalog.results).dataset(name))
        probes = {cell: manifest.probes for cell, manifest in run(catalog).items()}
        assert len(server.bodies) == sum(probes.values())
        yield Done(root, server, probes)


@pytest.mark.parametrize(
    ("edited", "concerned"),
    [
        (["oaks_novel"], ["oaks_novel_mini"]),
        (["oaks_babi"], ["oaks_babi_mini", "oaks_babi_other"]),
        (["oaks_babi", "oaks_novel"], ["oaks_babi_mini", "oaks_babi_other", "oaks_novel_mini"]),
    ],
    ids=["of a dataset", "of a family", "of a paper"],
)
def test_a_changed_prompt_asks_the_probes_of_its_datasets_and_no_others(
    done: Done, tmp_path: Path, edited: Sequence[str], concerned: Sequence[str]
) -> None:
    shutil.copytree(done.root, root := tmp_path / "upkeep", symlinks=True)
    before = contents(Catalog(root))
    for name in edited:
        path = root / f"papers/oaks/prompts/{name}.yaml"
        prompt = yaml.safe_load(path.read_text())
        path.write_text(yaml.safe_dump(prompt | {part: f"{WORDS} {prompt[part]}" for part in ("system", "closed")}))
    catalog = Catalog(root)
    own = {cell for cell in CELLS if cell.dataset in concerned}
    assert {cell for cell in CELLS if standing(catalog, cell).manifest is None} == own
    done.server.bodies.clear()
    made = run(catalog)
    asked = {cell: manifest.measured["requests"] for cell, manifest in made.items()}
    assert asked == {cell: done.probes[cell] if cell in own else 0 for cell in CELLS}
    assert len(done.server.bodies) == sum(asked.values()) > 0
    assert all(WORDS in body["messages"][0]["content"] for body in done.server.bodies)
    after = contents(catalog)
    assert {cell for cell in CELLS if after[cell] != before[cell]} == own
