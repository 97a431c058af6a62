"""Methods that bring what runs their model (`engine: own` in their card): for what has to reach into it.

Its weights are in the method's own container then, and no gateway is between. All else is as for any method: prompts,
seeds, limits, and what is booked are the runner's, and `llm.chat` asks the engine that the method has brought.
"""

from __future__ import annotations

import tempfile
from abc import abstractmethod
from pathlib import Path

from upkeep.cell.lockstep import Engine
from upkeep.cell.method import Method
from upkeep.contract import CellDescription, ModelSpec


class OwnEngine(Method):
    """A method with an engine of its own."""

    @abstractmethod
    def engine(self, weights: Path, spec: ModelSpec) -> Engine:
        """What runs the model. An answer depends on what is asked alone, whatever was asked before or is asked beside
        it: after a kill the probes that are left are asked of a new one.

        Args:
            weights: folder of the model, in the transformers format.
            spec: its card.
        """


def start(cell: CellDescription, method: Method) -> Engine:
    """The engine that a cell's method brings. Adapters on its model are merged into the weights before.

    Raises:
        ValueError: the method brings none, or the cell has no weights.
    """
    if not isinstance(method, OwnEngine) or cell.model_spec is None or cell.model_path is None:
        raise ValueError(f"{cell.method}: `engine: own` is for a class of OwnEngine, with the weights of its model")
    weights = Path(cell.model_path)
    if cell.adapters:
        from upkeep.cell.adapters import merge

        merged = Path(tempfile.mkdtemp())  # the container's end is its end
        merge(weights, [Path(adapter) for adapter in cell.adapters], merged)
        weights = merged
    return method.engine(weights, cell.model_spec)
