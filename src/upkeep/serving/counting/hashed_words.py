"""Vectors of texts without an embedder."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

FEATURES = 1024


class HashedWords:
    """Stands in for an embedder: a text's vector says which words it has, by hash, and not how often.

    Args:
        context_length: tokens that the embedder reads at a time; four are taken to be three words.
    """

    def __init__(self, context_length: int) -> None:
        self._words = max(1, 3 * context_length // 4)

    def documents(self, texts: Sequence[str]) -> np.ndarray:
        """(n, 1024) float32, each row of length 1."""
        import numpy as np

        vectors = np.full((len(texts), FEATURES), 1e-3, dtype=np.float32)
        for row, text in zip(vectors, texts, strict=True):
            words = {*text.lower().split()}
            row[[zlib.crc32(word.encode("utf-8", "surrogatepass")) % FEATURES for word in words]] = 1
        unit: np.ndarray = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return unit

    queries = documents

    def windows(self, text: str) -> list[str]:
        words, size = text.split(), self._words
        return [" ".join(words[start : start + size]) for start in range(0, max(1, len(words)), size)]
