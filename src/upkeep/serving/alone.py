"""`python -m upkeep.serving.alone CELL.JSON [METHODS-FOLDER]`: a cell with its engine in one process.

For measuring and testing engines; the cells of a suite reach theirs through the gateway.
"""

from __future__ import annotations

import os
import sys

from upkeep.cell.__main__ import main
from upkeep.cell.endpoint import Endpoint
from upkeep.cell.loading import reach_engine
from upkeep.cell.lockstep import Engine
from upkeep.contract import CellDescription
from upkeep.serving.loading import load_engine


def load(cell: CellDescription) -> Engine | Endpoint | None:
    """The engine itself where a cell has no way to one."""
    return reach_engine(cell) if cell.engine.name == "none" or cell.socket is not None else load_engine(cell)


if __name__ == "__main__":
    status = main(sys.argv[1:], load)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # threads of engines and of upstream code may still run, and nobody waits for them
