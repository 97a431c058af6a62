"""Vectors of texts without an embedder."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


FEATURES = 256


class HashedWords:
    """Stands in for an embedder: a text's vector has one feature for each of its words, by hash."""

    def documents(self, texts: Sequence[str]) -> np.ndarray:
        """(n, 256) float32, each row of length 1."""
        import numpy as np

        vectors = np.full((len(texts), FEATURES), 1e-3, dtype=np.float32)
        for row, text in zip(vectors, texts, strict=True):
            for word in text.lower().split():
                row[zlib.crc32(word.encode("utf-8", "surrogatepass")) % FEATURES] += 1
        unit: np.ndarray = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return unit

    queries = documents

    def windows(self, text: str) -> list[str]:
        return [text]
