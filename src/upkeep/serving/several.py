"""`python -m upkeep.serving.several CELL.JSON FIRST ADAPTER...`: one engine for several adapters on the same model.

It is `upkeep.serving.serve` with a socket for each adapter, in a folder of its own beside the description's: `0/`, `1/`
and so on, in their order. Who connects is answered with that adapter, one after the other, by an engine that is as if
newly started with it. vLLM loads the model once and exchanges the adapters, one of which it has at a time. The
transformers engine, which merges an adapter into the weights, or has a prefix before every prompt, is loaded anew
within the process where another adapter is asked than before.
"""

from __future__ import annotations

import gc
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


class Several:
    """The engine of one adapter or another.

    Args:
        cell: a description; the adapters lie on its own.
        first: the one that is asked first.
    """

    def __init__(self, cell: CellDescription, adapters: Sequence[str], first: int) -> None:
        self._cell, self._adapters = cell, adapters
        self._exchanges = cell.engine.name == "vllm"
        self._asked = max(range(len(adapters)), key=lambda n: rank(Path(adapters[n]))) if self._exchanges else first
        self._engine: Any = self._loaded()

    def _loaded(self) -> Any:
        """Of the adapter that is asked; of vLLM that with the highest rank, which has room for all of them."""
        own = [*self._cell.adapters, self._adapters[self._asked]]
        return load_engine(msgspec.structs.replace(self._cell, adapters=own))

    def of(self, number: int) -> Any:
        """The engine that sends every request with this adapter from now on. Requests that are open are given up before
        the next one."""
        if self._exchanges:
            from vllm.lora.request import LoRARequest

            self._engine._adapter = {
                "lora_request": LoRARequest(f"adapter{number}", number + 1, self._adapters[number])
            }
        elif number != self._asked:
            self._asked, self._engine = number, None
            gc.collect()  # there may be no room for two
            self._engine = self._loaded()
        return self._engine


def main(arguments: list[str]) -> int:
    described, first, *adapters = arguments
    cell = msgspec.json.decode(Path(described).read_bytes(), type=CellDescription)
    assert cell.socket is not None
    end_with_input()
    several, place = Several(cell, adapters, int(first)), Path(cell.socket)

    def serve_one(number: int, connection: socket.socket) -> None:
        engine = several.of(number)
        ready = wire.Ready(engine.name, engine.version, engine.context_length, environment(cell, engine))
        serve(engine, connection, ready)

    return listen([place.parent / str(number) / place.name for number in range(len(adapters))], serve_one)


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stderr.flush()
    os._exit(status)  # the engine's threads and worker processes may no longer answer
