"""Starts an engine by its name."""

from __future__ import annotations

from upkeep.cell.lockstep import Engine
from upkeep.contract import CellDescription


def load_engine(cell: CellDescription) -> Engine:
    """Start the engine that a description asks for.

    Raises:
        ValueError: it names no model, or one that cannot run on it.
    """
    if cell.model_spec is None or cell.model_path is None:
        raise ValueError(f"engine {cell.engine.name!r} needs a model, but the description has none")
    if cell.engine.name == "vllm":
        from upkeep.serving.vllm_engine import VllmEngine

        return VllmEngine(cell.model_path, cell.model_spec, cell.engine)
    from upkeep.serving.transformers_engine import TransformersEngine

    return TransformersEngine(cell.model_path, cell.model_spec, cell.engine)
