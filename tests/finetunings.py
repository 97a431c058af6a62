"""Trainings of models with a hundred thousand weights, for tests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from method_fakes import PROMPTS, FakeLLM, document, load
from method_runs import card
from upkeep.cell import LLM, Checkpoints, Document, Tools, Training
from upkeep.contract import ModelSpec, Pair

FACTS = {"Mira": "attic", "Zoltan": "cellar", "Anna": "harbour", "Peter": "tower", "Kofi": "garden", "Lena": "market"}
DOCUMENTS = [
    document(n, f"{name} is in the {place}. Nobody else is there.") for n, (name, place) in enumerate(FACTS.items())
]
PAIRS = [
    Pair(question=f"Where is {name}?", answer=place, document=one.id)
    for one, (name, place) in zip(DOCUMENTS, FACTS.items(), strict=True)
]
TINY = ModelSpec(label="tiny", summary="", source="rule", location="tiny_llama", context_length=2048, trained=False)
SMALL: dict[str, Any] = {
    "epochs": 2,
    "batch": 2,
    "device_batch": 1,
    "learning_rate": 1e-2,
    "checkpoint_minutes": 0,
    "piece_tokens": 8,
    "completion_tokens": 4,
    "teacher_top": 20,
    "prefix": 16,
    "piece": 64,
    "studies": 0,
    "completion": 16,
    "top": 20,
    "cpt": {},
    "sft": {},
}
"""A recipe with what every method asks for."""
LORA = {"adapter": "lora", "lora_rank": 4, "lora_alpha": 8, "lora_dropout": 0.2}


def ask(study: Callable[[LLM], Awaitable[Any]]) -> Any:
    """A model that says something."""
    return asyncio.run(study(FakeLLM(TINY.context_length)))


def given(
    base: Path,
    output: Path,
    model: ModelSpec = TINY,
    documents: list[Document] = DOCUMENTS,
    pairs: list[Pair] = PAIRS,
) -> Training:
    """What a training is given; its checkpoints lie beside its output."""
    output.parent.mkdir(exist_ok=True)
    return Training(model, base, documents, pairs, output, Checkpoints(output.with_name(f"{output.name}.kept")), ask)


def trained(method: str, recipe: dict[str, Any], training: Training, seed: int = 0) -> Any:
    """Train with a method by its name, as its container does; what it tells of its course."""
    return load(method)(recipe, Tools(PROMPTS["oaks_babi"], seed=seed)).train(training)


def variant(method: str, name: str, **parameters: Any) -> dict[str, Any]:
    return card(method).variants[name] | parameters
