"""What a cell has in the place of an embedder, which runs in a container of its own."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from upkeep.cell import wire
from upkeep.cell.remote import Connection
from upkeep.contract import ModelSpec

AT_ONCE = 64
"""Texts in a frame."""


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


def pieces(text: str, cuts: Sequence[int]) -> list[str]:
    """A text cut at some places."""
    return [text[a:b] for a, b in itertools.pairwise([0, *cuts, len(text)])]
