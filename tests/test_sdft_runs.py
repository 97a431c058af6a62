"""Self-distillation as the suite runs it: of the embedded model it makes a model that is asked as any other."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from conftest import CACHE, copy_repository, make_smaller
from upkeep.batches import Batch
from upkeep.building.build import build_dataset
from upkeep.catalog import Catalog
from upkeep.execution.batch import run_batch
from upkeep.execution.fetch import fetch
from upkeep.execution.supervise import run_cell
from upkeep.jobs import Cell, Training
from upkeep.layout import Layout

BABI = "oaks_babi_mini"
SHORT = {"epochs": 1, "batch": 8, "device_batch": 8, "completion_tokens": 8}


@pytest.mark.parametrize(("variant", "model"), [("full", "tiny"), ("lora_tiny", "pico")])
def test_what_it_makes_of_the_embedded_models_is_asked_as_any_other(tmp_path: Path, model: str, variant: str) -> None:
    root = copy_repository(tmp_path)
    make_smaller(root)
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
    asking = (("closed_book", "default"), ("oracle", "default"), ("rag_bm25", "k1"))
    cells = tuple(Cell(BABI, method, variant, f"{model}+sdft.short") for method, variant in asking)
    for asked in run_batch(catalog, Batch("asking", cells)).values():
        assert asked.probes > 0 and asked.failed == 0
