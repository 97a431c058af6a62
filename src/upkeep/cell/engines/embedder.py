"""An embedder in a container of its own, and what a cell has in its place.

`python -m upkeep.cell.engines.embedder CELL.JSON` loads the embedder that the description names as its model, then
listens at the description's socket, as `serve` does for a language model. The frames are those of `wire`; the vector of
a text is the same whoever asks, and however many are asked for at a time.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from upkeep.cell.embedding import SentenceEmbedder, load_embedder, pieces
from upkeep.cell.engines import wire
from upkeep.cell.engines.remote import Connection
from upkeep.cell.engines.serve import end_with_input, listen
from upkeep.contract import CellDescription, ModelSpec

AT_ONCE = 64
"""Texts in a frame."""

_QUESTIONS: Any = wire.EmbedderQuestion


class RemoteEmbedder:
    """An `Embedder` behind a Unix socket.

    Args:
        path: the socket (`CellDescription.embedder_socket`).
        spec: the embedder's card, which says what stands before a query and before a document.

    Raises:
        EngineDied: there is none; also from every method, where it has ended.
    """

    def __init__(self, path: str, spec: ModelSpec) -> None:
        self._connection, self._spec = Connection(path), spec

    def documents(self, texts: Sequence[str]) -> np.ndarray:
        """(n, d) float32, each row of length 1."""
        return self._encode([self._spec.document_prefix + text for text in texts])

    def queries(self, texts: Sequence[str]) -> np.ndarray:
        """(n, d) float32, each row of length 1."""
        return self._encode([self._spec.query_prefix + text for text in texts])

    def windows(self, text: str) -> list[str]:
        """The text cut into pieces that the embedder reads whole; at the starts of words where it can be."""
        return pieces(text, self._connection.ask(wire.Cuts(text), list[int]))

    def _encode(self, texts: list[str]) -> np.ndarray:
        found: list[bytes] = []
        for start in range(0, len(texts), AT_ONCE):
            found += self._connection.ask(wire.Embed(texts[start : start + AT_ONCE]), list[bytes])
        return np.frombuffer(b"".join(found), "<f4").reshape(len(texts), -1) if texts else np.empty((0, 0), "<f4")


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
