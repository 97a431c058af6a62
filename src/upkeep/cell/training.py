"""The task `train`: a method makes a new model of another one."""

from __future__ import annotations

from pathlib import Path

import msgspec

from upkeep.cell.method import Method
from upkeep.contract import CellDescription, Pair


def train(cell: CellDescription, method: Method) -> None:
    """Have a method make a new model in `<output>/model`.

    Raises:
        ValueError: the cell names no base model or no training pairs.
    """
    if cell.model_spec is None or cell.model_path is None or cell.pairs is None:
        raise ValueError("the task `train` needs a base model and training pairs")
    decoder = msgspec.json.Decoder(Pair)
    pairs = [decoder.decode(line) for line in Path(cell.pairs).read_bytes().splitlines()]
    method.train(cell.model_spec, Path(cell.model_path), pairs, Path(cell.output) / "model")
