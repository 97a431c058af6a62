"""`./upkeep train pico`: makes the worlds that the model learns from, and trains it inside an engine's environment."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recipe.card import card
from recipe.inputs import DATASETS, SEEDS, write_inputs
from recipe.measured import measure
from upkeep import weights
from upkeep.catalog import Catalog
from upkeep.contract import Resources
from upkeep.files import write_atomically
from upkeep.integrity import fingerprint
from upkeep.layout import Layout

FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
"""What the model is."""
HERE = Path(__file__).resolve().parent
NO_WEIGHT = ("__main__", "card", "evaluate", "inputs", "make", "measured")
"""Modules that decide no weight; what `inputs` gives counts by its content."""


def train(catalog: Catalog, output: Path, recipe: Mapping[str, Any]) -> None:
    """Train the model and put it at `output`, with `training.json` (what it was made of, how well it does), `log.jsonl`
    (recipe and curve) and the model card. What was begun with the same code, recipe and worlds is gone on with. At its
    place in the suite, the hash of what was made is pinned in `models/pico/model.yaml`.

    Args:
        recipe: fields of `recipe.settings.Recipe` other than the defaults.

    Raises:
        UpkeepError: a world cannot be built, or the training fails.
    """
    from upkeep.execution.detection import detect

    runtime = detect(catalog)
    prepared = runtime.prepare("rag_bm25", "transformers")  # the evaluation retrieves
    inputs = Layout(catalog.results).weights("pico-inputs")
    write_inputs(catalog, inputs, recipe)
    code = sorted(path for path in HERE.glob("*.py") if path.stem not in NO_WEIGHT)
    made_of = (inputs / "worlds.jsonl", inputs / "given.json", *code)
    key = hashlib.sha256(b"".join(path.read_bytes() for path in made_of)).hexdigest()
    work = Layout(catalog.results).weights(f"pico-{key[:16]}")
    work.mkdir(parents=True, exist_ok=True)
    given = {"cell": inputs, "recipe": HERE}
    place = {name: runtime.path_of(name, path) for name, path in (given | {"output": work}).items()}
    resources = Resources(cpus=2, memory_gb=16, minutes=360)
    for module in ("train", "evaluate"):
        call = [place["recipe"], module, place["cell"], place["output"]]
        runtime.run_tool(prepared, call, inputs=given, output=work, resources=resources)
    publish(inputs, work, output)
    spec = catalog.model("pico")
    if output.resolve() == weights.place(catalog, "pico", spec) and spec.sha256:
        sha = weights.content_of({p.relative_to(output).as_posix(): fingerprint(p) for p in weights.files_of(output)})
        path = catalog.root / catalog.model_card("pico")
        write_atomically(path, path.read_bytes().replace(spec.sha256.encode(), sha.encode()))


def publish(inputs: Path, work: Path, output: Path) -> None:
    """Put a trained and measured model in its place, with its log, its record and its card."""
    output.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        shutil.copyfile(work / name, output / name)
    record = {
        "datasets": list(DATASETS),
        "seeds": [SEEDS.start, SEEDS.stop - 1],
        "worlds_sha256": hashlib.sha256((inputs / "worlds.jsonl").read_bytes()).hexdigest(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "accuracy": measure(work / "replies.jsonl"),
    }
    (output / "training.json").write_text(json.dumps(record, indent=1) + "\n")
    shutil.copyfile(work / "log.jsonl", output / "log.jsonl")
    (output / "README.md").write_text(card(record, output / "log.jsonl"))
