"""Engines: what runs a model inside a cell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from upkeep.contract import CellDescription

if TYPE_CHECKING:
    from upkeep.cell.engines.lockstep import Engine

LANES = 8
"""Sequences that the transformers engine decodes together."""
LANE_TOKENS = 4096
"""Tokens of a prompt and its answer in a lane at most; longer ones are decoded alone. It bounds the memory: for all
lanes together 4.8 GB with a model of 8B parameters (147 kB a token), 0.13 GB with `pico`."""


def load_engine(cell: CellDescription) -> Engine | None:
    """Start the engine that a cell asks for; None for a method that calls no model.

    Raises:
        ValueError: the cell names an engine but no model, or the model cannot run on it.
    """
    if cell.engine.name == "none":
        return None
    if cell.socket is not None:
        from upkeep.cell.engines.remote import RemoteEngine

        return RemoteEngine(cell.socket)
    if cell.model_spec is None or cell.model_path is None:
        raise ValueError(f"engine {cell.engine.name!r} needs a model, but the cell has none")
    if cell.engine.name == "vllm":
        from upkeep.cell.engines.vllm_engine import VllmEngine

        return VllmEngine(cell.model_path, cell.model_spec, cell.engine)
    from upkeep.cell.engines.transformers_engine import TransformersEngine

    return TransformersEngine(cell.model_path, cell.model_spec, cell.engine)
