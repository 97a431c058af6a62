"""`python -m upkeep.serving.several CELL.JSON ADAPTER...`: one vLLM for several adapters on the same model.

It is `upkeep.serving.serve` with a socket for each adapter, in a folder of its own beside the description's: `0/`, `1/`
and so on, in their order. Who connects is answered with that adapter, one after the other, by an engine that is as if
newly started with it: the model is loaded once, and vLLM exchanges the adapters, one of which it has at a time.
"""

from __future__ import annotations

import os
import selectors
import socket
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from upkeep.cell import wire
from upkeep.cell.adapters import rank
from upkeep.cell.machine import environment
from upkeep.contract import CellDescription
from upkeep.serving.loading import load_engine
from upkeep.serving.serve import end_with_input, serve


def listen(paths: Sequence[Path], serve_one: Callable[[int, socket.socket], None]) -> int:
    """Serve whoever connects to one of some Unix sockets, one after the other, as long as that works.

    Args:
        paths: appear when they can be connected to, the last one after the others.

    Returns:
        The exit status, where serving failed.
    """
    with selectors.DefaultSelector() as waiting:
        for number, path in enumerate(paths):
            path.parent.mkdir(exist_ok=True)
            listener, hidden = socket.socket(socket.AF_UNIX), path.with_name(".starting")
            listener.bind(str(hidden))
            hidden.chmod(0o666)  # the host may be another user
            listener.listen()
            waiting.register(listener, selectors.EVENT_READ, number)
            hidden.rename(path)
        while True:
            for key, _ in waiting.select():
                assert isinstance(key.fileobj, socket.socket)
                connection, _ = key.fileobj.accept()
                with connection:
                    try:
                        serve_one(key.data, connection)
                    except Exception:
                        traceback.print_exc()
                        return 3


def load(cell: CellDescription, adapters: Sequence[str]) -> Any:
    """vLLM with room for each of the adapters, which lie on the description's own."""
    widest = max(adapters, key=lambda path: rank(Path(path)))
    return load_engine(msgspec.structs.replace(cell, adapters=[*cell.adapters, widest]))


def choose(engine: Any, number: int, adapter: str) -> None:
    """Send every request with this adapter from now on. Requests that are open are given up before the next one."""
    from vllm.lora.request import LoRARequest

    engine._adapter = {"lora_request": LoRARequest(f"adapter{number}", number + 1, adapter)}


def main(arguments: list[str]) -> int:
    described, *adapters = arguments
    cell = msgspec.json.decode(Path(described).read_bytes(), type=CellDescription)
    assert cell.socket is not None
    end_with_input()
    engine, place = load(cell, adapters), Path(cell.socket)
    ready = wire.Ready(engine.name, engine.version, engine.context_length, environment(cell, engine))

    def serve_one(number: int, connection: socket.socket) -> None:
        choose(engine, number, adapters[number])
        serve(engine, connection, ready)

    return listen([place.parent / str(number) / place.name for number in range(len(adapters))], serve_one)


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stderr.flush()
    os._exit(status)  # the engine's threads and worker processes may no longer answer
