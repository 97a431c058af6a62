"""An embedder in a container of its own.

`python -m upkeep.serving.embedder CELL.JSON` loads the embedder that the description names as its model, then
listens at the description's socket, as `serve` does for a language model. The frames are those of `wire`; the vector of
a text is the same whoever asks, and however many are asked for at a time.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import Any

import msgspec

from upkeep.cell import wire
from upkeep.contract import CellDescription
from upkeep.serving.embedding import SentenceEmbedder, load_embedder
from upkeep.serving.serve import end_with_input, listen

_QUESTIONS: Any = wire.EmbedderQuestion


def serve(embedder: SentenceEmbedder, connection: socket.socket, ready: wire.Ready) -> None:
    """Serve whoever connected to the end of the connection."""
    try:
        wire.send(connection, ready)
        while True:
            question = wire.receive(connection, _QUESTIONS)
            try:
                value: object
                if isinstance(question, wire.Cuts):
                    value = embedder.cuts(question.text)
                else:
                    value = [row.astype("<f4").tobytes() for row in embedder.encode(question.texts)]
            except Exception as error:  # a text that it cannot read
                wire.send(connection, wire.Refused(f"{type(error).__name__}: {error}"))
            else:
                wire.send(connection, wire.Answer(msgspec.Raw(msgspec.msgpack.encode(value)), 0))
    except (OSError, EOFError):
        return  # it has gone
    except wire.Breach as error:
        print(f"a cell was disconnected: {error}", file=sys.stderr, flush=True)


def main(arguments: list[str]) -> int:
    from upkeep.cell.machine import environment

    cell = msgspec.json.decode(Path(arguments[0]).read_bytes(), type=CellDescription)
    assert cell.socket is not None and cell.model_spec is not None
    end_with_input()
    embedder = load_embedder(cell.model_spec, cell.model_path, cell.engine.threads)
    found = environment(cell, None)
    version = found["packages"].get("sentence-transformers", "")
    ready = wire.Ready("sentence-transformers", version, cell.model_spec.context_length, found)
    return listen(cell.socket, lambda connection: serve(embedder, connection, ready))


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stderr.flush()
    os._exit(status)
