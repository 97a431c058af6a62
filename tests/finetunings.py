"""Trainings of models with a hundred thousand weights, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from method_fakes import PROMPTS, document, load
from method_runs import card
from upkeep.cell import Checkpoints, Course, Document, Tools, Training
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
    "cpt": {},
    "sft": {},
}
"""A recipe with what every method asks for."""
LORA = {"adapter": "lora", "lora_rank": 4, "lora_alpha": 8, "lora_dropout": 0.2}


def no_model(_: object) -> Any:
    raise AssertionError("it asks no model")


def given(
    base: Path,
    output: Path,
    model: ModelSpec = TINY,
    documents: list[Document] = DOCUMENTS,
    pairs: list[Pair] = PAIRS,
) -> Training:
    """What a training is given; its checkpoints lie beside its output."""
    output.parent.mkdir(exist_ok=True)
    return Training(
        model, base, documents, pairs, output, Checkpoints(output.with_name(f"{output.name}.kept")), no_model
    )


def trained(method: str, recipe: dict[str, Any], training: Training, seed: int = 0) -> Course:
    """Train with a method by its name, as its container does."""
    course = load(method)(recipe, Tools(PROMPTS["oaks_babi"], seed=seed)).train(training)
    assert course is not None
    return course


def variant(method: str, name: str, **parameters: Any) -> dict[str, Any]:
    return card(method).variants[name] | parameters
