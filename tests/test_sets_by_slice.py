"""A set of adapters by a slice, really trained and asked: each probe is answered by the member of its own slice."""

from __future__ import annotations

import json

import polars as pl
import pytest
import yaml

from conftest import CACHE, copy_repository
from upkeep import weights
from upkeep.building.build import build_dataset
from upkeep.catalog import Catalog
from upkeep.cell.adapters import merge
from upkeep.execution.fetch import fetch
from upkeep.execution.share import SharedEngine, Wanted
from upkeep.execution.supervise import run_cell
from upkeep.jobs import Cell
from upkeep.layout import Layout

# Two houses in one stream, so that the stream says nothing of the member; what is true of one is false of the other.
BUILDER = '''
"""Where things are in two houses."""

from upkeep.building import assembling, tokens
from upkeep.building.assembling import Built, Item, Stream
from upkeep.building.context import Context
from upkeep.contract import Pair

THINGS = ("lamp", "coat", "book", "fiddle", "ladder", "kettle")
PLACES = {"Abel": ("attic", "cellar"), "Beatrix": ("garden", "harbour")}


def build(context: Context) -> Built:
    measure, facts = tokens.load(), []
    for number, thing in enumerate(THINGS):
        facts += [(house, thing, places[number % 2]) for house, places in PLACES.items()]
    stream = Stream(
        "town",
        [f"At {house}'s the {thing} is in the {place}." for house, thing, place in facts],
        slices={"house": [house for house, _, _ in facts]},
    )
    items = [
        Item(id=f"{thing}_{house}", stream=stream.id, text=f"Where is the {thing} at {house}'s?", answers=[place],
             evidence=[stream.document_id(n)], slices={"house": house})
        for n, (house, thing, place) in enumerate(facts)
    ]
    pairs = [
        Pair(question=f"Where is {house}'s {thing}?", answer=place, document=stream.document_id(n))
        for n, (house, thing, place) in enumerate(facts)
    ]
    return Built(*assembling.collect([stream], items, measure), pairs=pairs, tokenizer=str(measure), chunk_tokens=64,
                 source=context.spec.source, statistics={})
'''
CARD = {
    "label": "Houses",
    "summary": "Where things are in two houses.",
    "paper": "none",
    "source": "Two houses.",
    "licence": "CC0-1.0",
    "prompt": "oaks_babi",
    "equivalence": "short_answer",
    "metrics": "answers",
    "training": {"houses": {"by": "house"}},
}
SHORT = {"epochs": 24, "batch": 3, "device_batch": 3, "learning_rate": 2e-3, "adapter": "lora", "lora_rank": 8}
SHORT |= {"lora_alpha": 16, "lora_dropout": 0.0, "checkpoint_minutes": 10}
SET = "pico+sft.short@houses.houses"
TAUGHT = {"Abel": {"attic", "cellar"}, "Beatrix": {"garden", "harbour"}}
HOUSES = tuple(TAUGHT)


def replies(catalog: Catalog, model: str) -> dict[str, str]:
    """What a model says to each question, by the question."""
    cell = Cell("houses", "closed_book", "default", model)
    run_cell(catalog, cell)
    lines = (Layout(catalog.results).cell(cell) / "predictions.jsonl").read_text().splitlines()
    probes = pl.read_parquet(Layout(catalog.results).dataset("houses") / "probes.parquet")
    question = dict(probes.select("probe_id", "question").iter_rows())
    return {question[one["probe_id"]]: one["response"] for one in map(json.loads, lines)}


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """A repository with the set trained, and each of its members as a model of its own: a folder of whole weights."""
    root = copy_repository(tmp_path_factory.mktemp("slices"))
    folder = root / "datasets/houses"
    folder.mkdir()
    (folder / "__init__.py").write_text(BUILDER)
    (folder / "dataset.yaml").write_text(yaml.safe_dump(CARD))
    card, config = root / "methods/sft/method.yaml", root / "config/config.yaml"
    method = yaml.safe_load(card.read_text())
    card.write_text(yaml.safe_dump(method | {"variants": {"short": SHORT}}))
    config.write_text(yaml.safe_dump(yaml.safe_load(config.read_text()) | {"runtime": "process", "cache": str(CACHE)}))
    pico = yaml.safe_load((root / "models/pico/model.yaml").read_text())
    pico["sampling"]["max_tokens"] = 16
    (root / "models/pico/model.yaml").write_text(yaml.safe_dump(pico))
    catalog = Catalog(root)
    build_dataset(catalog, "houses", Layout(catalog.results).dataset("houses"))
    fetch(catalog, "pico")
    for training in catalog.trainings_of(Cell("houses", "closed_book", "default", SET)):
        run_cell(catalog, training)
    for house in HOUSES:
        member = weights.find(catalog, SET, "houses", house)[1]
        assert member.path is not None and len(member.adapters) == 1
        (root / house).mkdir()
        merge(member.path, member.adapters, root / house)
        alone = pico | {"label": house, "location": str(root / house), "sha256": None, "presets": {}}
        (root / "models" / house.lower()).mkdir()
        (root / "models" / house.lower() / "model.yaml").write_text(yaml.safe_dump(alone))
    catalog = Catalog(root)
    for house in HOUSES:
        fetch(catalog, house.lower())
    return catalog


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Wanted]:
    """The engines that are started."""
    found: list[Wanted] = []
    start = SharedEngine._start

    def counted(engine: SharedEngine, wanted: Wanted) -> None:
        found.append(wanted)
        start(engine, wanted)

    monkeypatch.setattr(SharedEngine, "_start", counted)
    return found


def test_one_engine_answers_each_probe_as_the_member_of_its_own_slice(catalog: Catalog, started: list[Wanted]) -> None:
    asked = replies(catalog, SET)
    assert len(started) == 1 and len(started[0].members) == 2
    alone = {house: replies(catalog, house.lower()) for house in HOUSES}
    assert len(asked) == 12
    for question, reply in asked.items():
        (own, other) = HOUSES if "Abel" in question else HOUSES[::-1]
        assert reply == alone[own][question]
        assert reply != alone[other][question], "the two say something else, so it is seen who was asked"
        assert TAUGHT[own] & set(reply.split()), "of what it was taught"


@pytest.mark.vllm
def test_one_vllm_serves_all_members_and_each_probe_is_answered_by_its_own(
    catalog: Catalog, started: list[Wanted]
) -> None:
    served = Cell("houses", "closed_book", "default", SET.replace("pico", "pico-vllm"))
    fetch(catalog, "pico-vllm")
    for training in catalog.trainings_of(served):
        run_cell(catalog, training)
    started.clear()
    asked = replies(catalog, served.model)
    assert len(started) == 1 and len(started[0].members) == 2
    assert asked == replies(catalog, SET), "which the transformers engine answers, member by member"
