"""Models of three shapes with random weights, and what trainings that are planned learn from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from finetunings import SMALL, TINY
from method_fakes import document
from upkeep.contract import Attention, ModelSpec, Pair, Widths

PIECE = 64
SIZES = {
    "wide": {
        "hidden": 128,
        "layers": 4,
        "heads": 4,
        "kv_heads": 2,
        "head_dim": 32,
        "feed_forward": 384,
        "vocabulary": 1024,
    },
    "deep": {
        "hidden": 192,
        "layers": 8,
        "heads": 3,
        "kv_heads": 3,
        "head_dim": 64,
        "feed_forward": 512,
        "vocabulary": 512,
    },
    "wordy": {
        "hidden": 320,
        "layers": 3,
        "heads": 5,
        "kv_heads": 1,
        "head_dim": 64,
        "feed_forward": 640,
        "vocabulary": 4096,
    },
}
TEXT = " ".join(f"word{n} and the {n * 7}" for n in range(400))
DOCUMENTS = [document(n, TEXT[n * 40 :][:1200]) for n in range(4)]
RECIPE = SMALL | {
    "piece_tokens": PIECE,
    "checkpoint_minutes": 10,
    "epochs": 1,
    "learning_rate": 1e-4,
    "batch": 8,
    "device_batch": 4,
}
LORA = {"adapter": "lora", "lora_rank": 8, "lora_alpha": 8, "lora_dropout": 0.1}
PAIRS = [Pair(question=f"Who is number {n}?", answer=f"word{n}", document=one.id) for n, one in enumerate(DOCUMENTS)]
PARTS = RECIPE | {"batch": 2, "device_batch": 1}
"""Two steps over four pairs, each in two parts."""


@dataclass
class Base:
    """A model with random weights, and its card."""

    folder: Path
    spec: ModelSpec


@pytest.fixture(scope="module", params=SIZES)
def base(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Base:
    from safetensors import safe_open

    from upkeep.serving.make_model import tiny_llama

    size, folder = SIZES[request.param], tmp_path_factory.mktemp(request.param)
    tiny_llama(folder, **size)
    with safe_open(folder / "model.safetensors", "np") as file:
        count = sum(file.get_tensor(name).size for name in list(file.keys()))
    spec = msgspec.structs.replace(
        TINY,
        parameters_b=count / 1e9,
        attention=Attention(
            layers=size["layers"], heads=size["heads"], kv_heads=size["kv_heads"], head_size=size["head_dim"]
        ),
        widths=Widths(**{name: size[name] for name in ("layers", "hidden", "feed_forward", "vocabulary")}),
    )
    return Base(folder, spec)
