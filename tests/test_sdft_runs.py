"""Self-distillation as the suite runs it: killed and gone on with, and of the embedded model a model that is asked."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from conftest import CACHE, copy_repository
from upkeep.building.build import build_dataset
from upkeep.catalog import Catalog
from upkeep.execution.fetch import fetch
from upkeep.execution.supervise import run_cell
from upkeep.jobs import Cell, Training
from upkeep.layout import Layout
from upkeep.serving.make_model import tiny_llama

SRC, TESTS = Path(__file__).resolve().parents[1] / "src", Path(__file__).resolve().parent
KILLS = 10

# ---------------------------------------------------------------- killed in mid-training

# Answers for a step are made at once and learned from in two parts, so that a kill finds some that are pending.
TRAINING = """
import os, sys
from pathlib import Path

import peft, torch, trl.experimental.sdft
from host_fakes import die_at
from method_fakes import document
from test_sdft import PAIRS, method, training


def train(base, folder, **adapter):
    made = training(base, folder)
    method(epochs=4, batch=2, device_batch=1, checkpoint_minutes=0, seed=3, **adapter).train(made)


# Everything is loaded; each training is a process of its own, forked from here.
base = Path(sys.argv[1])
for line in sys.stdin:
    folder, event, adapter = line.split()
    if (child := os.fork()) == 0:
        status = 1
        try:
            if int(event):
                die_at(int(event), Path(folder) / "checkpoints")
            train(base, Path(folder), **({"adapter": "lora", "lora_rank": 4, "lora_alpha": 8} if int(adapter) else {}))
            status = 0
        finally:
            os._exit(status)
    print("ENDED", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.mark.parametrize("adapter", [False, True], ids=["full", "lora"])
def test_a_training_that_is_killed_anywhere_ends_with_the_same_weights(tmp_path: Path, adapter: bool) -> None:
    base = tmp_path / "base"
    base.mkdir()
    tiny_llama(base, vocabulary=512)
    file = f"model/{'adapter_' if adapter else ''}model.safetensors"
    with subprocess.Popen(
        [sys.executable, "-c", TRAINING, base],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(SRC), str(TESTS)]), "OMP_NUM_THREADS": "1"},
    ) as process:

        def trained(folder: Path, event: int = 0) -> int:
            assert process.stdin is not None and process.stdout is not None
            folder.mkdir(exist_ok=True)
            print(folder, event, int(adapter), file=process.stdin, flush=True)
            while not (line := process.stdout.readline()).startswith("ENDED"):
                assert line, "it has gone"
            return int(line.split()[1])

        assert trained(tmp_path / "whole") == 0
        whole = (tmp_path / "whole" / file).read_bytes()
        chance, killed = random.Random(7), 0
        for attempt in range(KILLS + 1):
            folder = tmp_path / f"killed-{attempt}"
            while (status := trained(folder, chance.randrange(5, 600))) != 0:
                assert status == -9
                killed += 1
                assert killed <= 4 * KILLS, f"it does not get on: {list((folder / 'checkpoints').iterdir())}"
            assert (folder / file).read_bytes() == whole
            if killed >= KILLS:
                break
        assert killed >= KILLS
        assert process.stdin is not None
        process.stdin.close()


# ---------------------------------------------------------------- trained, then asked

BABI = "oaks_babi_mini"
SHORT = {"epochs": 1, "batch": 8, "device_batch": 8, "completion_tokens": 8}


@pytest.mark.parametrize("model", ["tiny", "pico"])
@pytest.mark.parametrize("variant", ["full", "lora_tiny"])
def test_what_it_makes_of_the_embedded_models_is_asked_as_any_other(tmp_path: Path, model: str, variant: str) -> None:
    root = copy_repository(tmp_path)
    card, config = root / "methods/sdft/method.yaml", root / "config/config.yaml"
    method = yaml.safe_load(card.read_text())
    method["variants"]["short"] = method["variants"][variant] | SHORT
    card.write_text(yaml.safe_dump(method))
    config.write_text(yaml.safe_dump(yaml.safe_load(config.read_text()) | {"runtime": "process", "cache": str(CACHE)}))
    catalog = Catalog(root)
    build_dataset(catalog, BABI, Layout(catalog.results).dataset(BABI))
    fetch(catalog, model)
    made = run_cell(catalog, Training(BABI, "sdft", "short", model))
    assert "model.safetensors" in {Path(name).name for name in made.files}
    for asking in ("closed_book/default", "oracle/default", "rag_bm25/k1"):
        name, variant_of = asking.split("/")
        asked = run_cell(catalog, Cell(BABI, name, variant_of, f"{model}+sdft.short"))
        assert asked.probes > 0 and asked.failed == 0
