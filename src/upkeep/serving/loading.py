"""Starts an engine by its name."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from upkeep.cell.lockstep import Engine
from upkeep.contract import CellDescription, EngineSettings, ModelSpec


def load_engine(cell: CellDescription) -> Engine:
    """Start the engine that a description asks for.

    vLLM adds the product of the last adapter to those of the layers that it adapts; earlier adapters, on which that was
    trained, and all of the transformers engine's, are merged into the weights before. A prefix comes last.

    Raises:
        ValueError: it names no model, or one that cannot run on it.
    """
    if cell.model_spec is None or cell.model_path is None:
        raise ValueError(f"engine {cell.engine.name!r} needs a model, but the description has none")
    if not cell.adapters:
        return _load(cell.model_path, cell.model_spec, cell.engine)
    from upkeep.cell.adapters import is_prefix, merge

    merged = [Path(adapter) for adapter in cell.adapters]
    last = merged.pop() if cell.engine.name == "vllm" or is_prefix(merged[-1]) else None
    if not merged:
        return _load(cell.model_path, cell.model_spec, cell.engine, last)
    with TemporaryDirectory() as scratch:
        merge(Path(cell.model_path), merged, Path(scratch))
        return _load(scratch, cell.model_spec, cell.engine, last)


def _load(path: str, spec: ModelSpec, settings: EngineSettings, adapter: Path | None = None) -> Engine:
    if settings.name == "vllm":
        from upkeep.serving.vllm_engine import VllmEngine

        return VllmEngine(path, spec, settings, adapter)
    from upkeep.serving.transformers_engine import TransformersEngine

    return TransformersEngine(path, spec, settings, adapter)
