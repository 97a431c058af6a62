"""Texts that are nearest to another one, by tf-idf."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from upkeep.questions import key


class Nearest:
    """Texts by cosine of their tf-idf vectors over words and pairs of them; of Chinese each character is a word."""

    def __init__(self, texts: Sequence[str]) -> None:
        from sklearn.feature_extraction.text import TfidfVectorizer  # slow to load

        self._texts = texts
        self._vectorizer = TfidfVectorizer(analyzer=_words, sublinear_tf=True)
        self._vectors = self._vectorizer.fit_transform(texts)

    def passages(self, text: str, count: int) -> list[str]:
        """The nearest texts, at most `count`, in their own order; of equals the older."""
        scores = (self._vectors @ self._vectorizer.transform([text]).T).toarray()[:, 0]
        best = np.argsort(-scores, kind="stable")[:count]
        return [self._texts[i] for i in sorted(best)]


def _words(text: str) -> list[str]:
    words = key(text).split()
    return [*words, *map(" ".join, itertools.pairwise(words))]
