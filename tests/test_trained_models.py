"""Claims about trained models that need a real one: members of a set, adapters as served."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import yaml

from conftest import CACHE, copy_repository, make_smaller
from upkeep import weights
from upkeep.building.build import build_dataset
from upkeep.catalog import Catalog
from upkeep.cell.adapters import merge
from upkeep.contract import EngineSettings, Manifest, Prediction
from upkeep.execution.fetch import fetch
from upkeep.execution.rounds import BuiltDataset
from upkeep.execution.share import SharedEngine
from upkeep.execution.supervise import run_cell
from upkeep.files import digest
from upkeep.gateway import transfer, why
from upkeep.gateway.engines import all_parts, served_parts
from upkeep.gateway.record import Replies
from upkeep.identity import describe
from upkeep.jobs import Cell, Training
from upkeep.layout import Layout
from upkeep.operations.plan.taken import took

SRC = Path(__file__).resolve().parents[1] / "src"
BABI, NOVEL = "oaks_babi_mini", "oaks_novel_mini"

# ---------------------------------------------------------------- trained, then asked

# Writes an adapter that depends on what it was given, and on the model's word about it.
METHOD = '''
"""A trainer for tests."""
import hashlib
import json

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from upkeep.cell import Method


class Marker(Method):
    def train(self, training):
        said = []
        if self.parameters.get("asks"):
            async def study(llm):
                asked = training.documents[self.parameters.get("first", 0) :][:3]
                return [(await llm.chat([{"role": "user", "parts": [d.text]}])).text for d in asked]
            said = training.ask(study)
        read = json.dumps([[d.id, d.text] for d in training.documents] + [p.question for p in training.pairs] + said)
        generator = torch.Generator().manual_seed(int(hashlib.sha256(read.encode()).hexdigest()[:8], 16))
        tensors = {}
        with safe_open(next(training.weights.glob("*.safetensors")), framework="pt") as file:
            for name in file.keys():
                if name.endswith("q_proj.weight"):
                    rows, columns = file.get_slice(name).get_shape()
                    layer = "base_model.model." + name.removesuffix(".weight")
                    tensors[layer + ".lora_A.weight"] = torch.randn(4, columns, generator=generator)
                    tensors[layer + ".lora_B.weight"] = torch.randn(rows, 4, generator=generator)
        training.output.mkdir()
        save_file(tensors, training.output / "adapter_model.safetensors")
        config = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"], "bias": "none"}
        config |= {"task_type": "CAUSAL_LM"}
        (training.output / "adapter_config.json").write_text(json.dumps(config))
        (training.output / "said.json").write_text(json.dumps(said))
'''
CARD = {
    "label": "Marker",
    "papers": [],
    "summary": "Writes an adapter that depends on what it is given.",
    "reference": "none",
    "supervision": "C",
    "trains": True,
    "asks": True,
    "variants": {"plain": {}, "asking": {"asks": True}, "asking_later": {"asks": True, "first": 3}},
}


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """A repository with a training method, two built datasets, and a model."""
    root = copy_repository(tmp_path_factory.mktemp("trained"))
    make_smaller(root)
    (root / "methods/marker").mkdir()
    (root / "methods/marker/method.py").write_text(METHOD)
    (root / "methods/marker/method.yaml").write_text(yaml.safe_dump(CARD))
    for end in ("in", "lock"):
        (root / f"methods/marker/requirements.{end}").write_bytes(
            (root / f"methods/sft/requirements.{end}").read_bytes()
        )
    card = root / "datasets/oaks_novel/dataset.yaml"
    card.write_text(card.read_text() + "training: {streams: {by: stream}}\n")
    config = root / "config/config.yaml"
    config.write_text(yaml.safe_dump(yaml.safe_load(config.read_text()) | {"runtime": "process", "cache": str(CACHE)}))
    catalog = Catalog(root)
    for name in (BABI, NOVEL):
        build_dataset(catalog, name, Layout(catalog.results).dataset(name))
    fetch(catalog, "tiny")
    return catalog


def responses(catalog: Catalog, cell: Cell) -> list[Prediction]:
    lines = (Layout(catalog.results).cell(cell) / "predictions.jsonl").read_bytes().splitlines()
    return [msgspec.json.decode(line, type=Prediction) for line in lines]


def run(catalog: Catalog, model: str, dataset: str = NOVEL) -> tuple[Manifest, list[Prediction]]:
    cell = Cell(dataset, "closed_book", "default", model)
    for training in catalog.trainings_of(cell):
        run_cell(catalog, training)
    return run_cell(catalog, cell), responses(catalog, cell)


def test_a_model_that_was_trained_on_one_dataset_answers_another(catalog: Catalog) -> None:
    plain, answers = run(catalog, "tiny", BABI)
    trained, others = run(catalog, f"tiny+marker.plain@{NOVEL}", BABI)
    assert trained.cutoff == {} and trained.probes == plain.probes
    assert sum(a.response != b.response for a, b in zip(answers, others, strict=True)) > len(answers) / 2
    assert plain.environment.served["reader"].record != trained.environment.served["reader"].record


MEMBERS = f"tiny+marker.asking_later@{NOVEL}.streams"
"""A set of models whose trainings have asked their base."""


def test_each_probe_is_answered_by_its_own_member_of_a_set(catalog: Catalog) -> None:
    manifest, found = run(catalog, MEMBERS)
    cell, layout = Cell(NOVEL, "closed_book", "default", MEMBERS), Layout(catalog.results)
    streams = sorted({stream_of(catalog, prediction) for prediction in found})
    assert len(streams) > 1 and set(manifest.environment.served) == {f"reader.{name}" for name in streams}
    kept = {}
    for name in streams:
        parts = served_parts(catalog, cell, "reader", MEMBERS, name)
        kept[name] = Replies(layout.record, parts, MEMBERS)
        assert kept[name].engine == manifest.environment.served[f"reader.{name}"].record
    for prediction in found:
        (key,) = prediction.calls
        assert [name for name in streams if kept[name].get(bytes.fromhex(key)) is not None] == [
            stream_of(catalog, prediction)
        ]


def test_what_members_and_trainings_have_asked_is_kept_when_the_record_is_pruned(catalog: Catalog) -> None:
    run(catalog, MEMBERS)
    suite = catalog.root / "config/suites/members.yaml"
    choice = {"datasets": [NOVEL], "methods": ["closed_book"], "models": [MEMBERS]}
    suite.write_text(yaml.safe_dump({"label": "l", "summary": "s", "papers": [], "cells": [choice]}))
    again = Catalog(catalog.root)
    needed = set().union(
        *(
            map(digest, all_parts(again, job, "reader", job.model))
            for job in (
                Cell(NOVEL, "closed_book", "default", MEMBERS),
                Training(NOVEL, "marker", "asking", "tiny", "streams"),
            )
        )
    )
    record = Layout(catalog.results).record
    assert len(needed) > 2 and needed <= {path.name for path in record.iterdir()}
    removed = list(transfer.prune(again))
    assert needed <= {path.name for path in record.iterdir()}, removed
    assert any(one.entries for one in why.why(again, f"{NOVEL}/closed_book/default/{MEMBERS}").engines)


def stream_of(catalog: Catalog, prediction: Prediction) -> str:
    probes = BuiltDataset.read(Layout(catalog.results).dataset(NOVEL)).probes
    return next(probe.stream for probe in probes if probe.id == prediction.probe_id)


def test_a_training_asks_its_base_and_the_engine_is_gone_when_it_trains(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = []
    release = SharedEngine.release

    def noted(engine: SharedEngine) -> None:
        release(engine)
        released.append(engine.lost)

    monkeypatch.setattr(SharedEngine, "release", noted)
    job = Training(NOVEL, "marker", "asking", "tiny")
    first = run_cell(catalog, job)
    assert released == [False] and first.measured["new_replies"] == 3
    told = Layout(catalog.results).trained(job) / "model/said.json"
    said = told.read_bytes()
    assert len(json.loads(said)) == 3
    again = run_cell(catalog, job, force=True)
    assert again.measured["new_replies"] == 0 and again.measured["recorded_replies"] == 3
    assert told.read_bytes() == said and again.files == first.files
    for manifest in (first, again):
        taken = took(catalog, job, manifest)
        assert taken.requests == 3 and taken.prompt_tokens is None, "so many tokens are told nowhere"


# ---------------------------------------------------------------- as it is served

SCORES = """
import asyncio, json, sys
from upkeep.cell.lockstep import Score
from upkeep.contract import CellDescription
from upkeep.serving.loading import load_engine
import msgspec
from array import array

for cell in msgspec.json.decode(sys.argv[1], type=list[CellDescription]):
    engine = load_engine(cell)
    loop = asyncio.new_event_loop()
    for text, more in json.loads(sys.argv[2]):
        found = engine.tokens.scorable(text, more)
        future = loop.create_future()
        engine.add(Score(found.prompt, array("i", found.ids), future))
        while engine.busy:
            for _, outcome in engine.step():
                print("SCORES", json.dumps(outcome), flush=True)
"""
TEXTS = [
    ["Mira is in the ", "attic and Zoltan is in the cellar."],
    ["Nothing is", " known of the tower before the war."],
]


@pytest.mark.vllm
def test_an_adapter_gives_in_vllm_what_the_merged_model_gives(
    catalog: Catalog, vllm_python: Path, tmp_path: Path
) -> None:
    job = Training(NOVEL, "marker", "plain", "tiny")
    run_cell(catalog, job)
    found = weights.find(catalog, f"tiny+marker.plain@{NOVEL}", BABI)[1]
    assert found.path is not None
    (tmp_path / "merged").mkdir()
    merge(found.path, found.adapters, tmp_path / "merged")

    def scored(python: Path, engine: str, *models: tuple[Path, list[str]]) -> list[list[float]]:
        """The scores that each of some models (weights, adapters) gives, one after the other in one process."""
        options = {"kv_cache_gib": 0.25} if engine == "vllm" else {}
        described = describe(catalog, Cell(BABI, "closed_book", "default", "tiny"), 100)
        each = [
            msgspec.structs.replace(
                described,
                model_path=str(path),
                adapters=adapters,
                engine=EngineSettings(name=engine, options=options),
            )
            for path, adapters in models
        ]
        done = subprocess.run(
            [python, "-c", SCORES, msgspec.json.encode(each).decode(), json.dumps(TEXTS)],
            env=os.environ | {"PYTHONPATH": str(SRC)},
            capture_output=True,
            text=True,
        )
        lines = [line.removeprefix("SCORES ") for line in done.stdout.splitlines() if line.startswith("SCORES ")]
        assert len(lines) == len(TEXTS) * len(models), done.stdout[-2000:] + done.stderr[-4000:]
        of_each = [lines[n : n + len(TEXTS)] for n in range(0, len(lines), len(TEXTS))]
        return [[score for line in of_one for score in json.loads(line)] for of_one in of_each]

    folders = [str(folder) for folder in found.adapters]
    # vLLM takes long to be imported: once for both. What is seen to be the same on both engines is not asked of it.
    unmerged, merged = scored(vllm_python, "vllm", (found.path, folders), (tmp_path / "merged", []))
    ours, plain = scored(Path(sys.executable), "transformers", (found.path, folders), (found.path, []))
    assert max(abs(a - b) for a, b in zip(unmerged, merged, strict=True)) < 1e-3
    assert max(abs(a - b) for a, b in zip(unmerged, ours, strict=True)) < 1e-3
    assert max(abs(a - b) for a, b in zip(unmerged, plain, strict=True)) > 0.1, "and not what it gives without it"
