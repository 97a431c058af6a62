"""`python -m upkeep.cell CELL.JSON [METHODS-FOLDER]`: what a cell's container runs.

The methods' folder is the second argument, else `$UPKEEP_METHODS`, else `/methods`. Exit codes: 0 all rounds are
answered (or the model is trained), 1 the cell cannot run, 3 the engine died, 143 asked to end.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from upkeep.cell.loading import Load


def main(arguments: list[str], load: Load | None = None) -> int:
    if not 1 <= len(arguments) <= 2:
        print("usage: python -m upkeep.cell CELL.JSON [METHODS-FOLDER]", file=sys.stderr)
        return 2
    # A container's first process gets no default action for signals. Nothing is lost by ending at once: results are
    # whole lines on disk.
    signal.signal(signal.SIGTERM, _end)

    import msgspec

    from upkeep.cell.command import ProgramFailed
    from upkeep.cell.loading import reach_engine
    from upkeep.cell.lockstep import EngineDied
    from upkeep.cell.runner import run
    from upkeep.contract import CellDescription

    cell = msgspec.json.decode(Path(arguments[0]).read_bytes(), type=CellDescription)
    methods = Path(arguments[1] if len(arguments) == 2 else os.environ.get("UPKEEP_METHODS", "/methods"))
    try:
        run(cell, methods, sys.stdin.buffer, load or reach_engine)
    except ProgramFailed as error:
        print(error, file=sys.stderr, flush=True)
        return 1
    except EngineDied as error:
        print(f"engine died: {error}", file=sys.stderr, flush=True)
        os._exit(3)  # its threads and worker processes may no longer answer
    return 0


def _end(signum: int, _: FrameType | None) -> None:
    os._exit(128 + signum)


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # threads of upstream code may still run, and nobody waits for them
