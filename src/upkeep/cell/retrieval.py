"""Retrieval over documents that have arrived.

One index a stream, grown as documents arrive. A search sees the documents up to the probe's position and no other, and
neither do its statistics: BM25's document frequencies are those of the arrived documents. Orders are total (score, then
position), and no score depends on what else was asked at the time, so that a cell which was killed and goes on gives
the same bytes.
"""

from __future__ import annotations

import bisect
import functools
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import numpy as np

from upkeep.cell.method import Embedder
from upkeep.cell.prompts import entry
from upkeep.contract import Document, Probe, Retrieved

# An image holds the libraries of its own method alone, so each is imported where it is used.
if TYPE_CHECKING:
    import bm25s
    import faiss

RRF_K = 60
"""Constant of reciprocal rank fusion (Cormack, Clarke and Buettcher, SIGIR 2009)."""


class Retriever(Protocol):
    """Finds documents of a probe's stream: `Bm25`, `Dense`, `Hybrid`."""

    def add(self, documents: Iterable[Document]) -> None:
        """Take in documents that arrive, in order of arrival within each stream."""
        ...

    def search(self, probe: Probe, k: int, *, last: int | None = None) -> list[Retrieved]:
        """The `k` best documents for a probe, best first; all where there are fewer.

        Args:
            last: only documents up to this position (default and at most: the probe's).
        """
        ...


class _Index(ABC):
    """The index of one stream."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.positions: list[int] = []

    def add(self, document: Document) -> None:
        """Take in the next document.

        Raises:
            ValueError: it is not later than the last one.
        """
        if self.positions and document.position <= self.positions[-1]:
            raise ValueError(f"{document.id} at position {document.position} comes after {self.positions[-1]}")
        self.ids.append(document.id)
        self.positions.append(document.position)

    def arrived(self, position: int) -> int:
        """How many documents there are up to a position."""
        return bisect.bisect_right(self.positions, position)

    @abstractmethod
    def scores(self, probe: Probe, n: int) -> np.ndarray:
        """(n,) float: scores of the first `n` documents, of which there is at least one."""


IndexT = TypeVar("IndexT", bound=_Index)


class _Streams(Generic[IndexT]):
    """One index a stream."""

    def __init__(self, new: Callable[[], IndexT]) -> None:
        self._indices: defaultdict[str, IndexT] = defaultdict(new)

    def add(self, documents: Iterable[Document]) -> None:
        for document in documents:
            self._indices[document.stream].add(document)

    def ranking(self, probe: Probe, last: int | None = None) -> list[tuple[str, float, int]]:
        """(id, score, position) of every document up to `last` and the probe's position, best first."""
        if probe.stream not in self._indices:
            return []
        index = self._indices[probe.stream]
        n = index.arrived(probe.position)
        if n == 0:
            return []
        allowed = n if last is None else min(n, index.arrived(last))
        scores = index.scores(probe, n)[:allowed]
        order = np.argsort(-scores, kind="stable")  # stable: of equals the older first
        return [(index.ids[i], float(scores[i]), index.positions[i]) for i in order]

    def search(self, probe: Probe, k: int, *, last: int | None = None) -> list[Retrieved]:
        return _ranked(self.ranking(probe, last)[:k])


def _ranked(best: Sequence[tuple[str, float, int]]) -> list[Retrieved]:
    return [Retrieved(id=id, score=score, rank=rank) for rank, (id, score, _) in enumerate(best, start=1)]


# ---------------------------------------------------------------- BM25


class _Bm25Index(_Index):
    def __init__(self) -> None:
        super().__init__()
        self._tokens: list[list[str]] = []
        self._built: tuple[int, bm25s.BM25 | None] = (0, None)

    def add(self, document: Document) -> None:
        super().add(document)
        self._tokens.append(_tokens(document.text))

    def scores(self, probe: Probe, n: int) -> np.ndarray:
        import bm25s

        size, model = self._built
        if size != n:
            # Every document changes the frequencies of all, so the index is built anew, once an interval.
            model = None
            if any(self._tokens[:n]):
                model = bm25s.BM25(method="lucene", k1=1.5, b=0.75)
                model.index(self._tokens[:n], create_empty_token=True, show_progress=False)
            self._built = (n, model)
        words = _tokens(probe.question)
        if model is None or not any(word in model.vocab_dict for word in words):
            return np.zeros(n)
        return np.asarray(model.get_scores(words))


def _tokens(text: str) -> list[str]:
    """Lower-case words without English stop words, by bm25s' own tokenizer."""
    import bm25s

    words: list[list[str]] = bm25s.tokenize([text], stopwords="en", return_ids=False, show_progress=False)
    return words[0]


class Bm25(_Streams[_Bm25Index]):
    """BM25 (Lucene's form, k1 1.5, b 0.75) over texts and questions as they are.

    Chunk indices are left out: a number that occurs once would outweigh every word of the question.
    """

    def __init__(self) -> None:
        super().__init__(_Bm25Index)


# ---------------------------------------------------------------- dense


class _DenseIndex(_Index):
    def __init__(self, embedder: Embedder, query: Callable[[str], np.ndarray]) -> None:
        super().__init__()
        self._embedder, self._query = embedder, query
        self._vectors: faiss.IndexFlatIP | None = None
        self._starts: list[int] = []

    def add(self, document: Document) -> None:
        import faiss

        super().add(document)
        # Windows of one document are embedded together and apart from any other's: padding changes last bits.
        vectors = self._embedder.documents(self._embedder.windows(entry(document)))
        if self._vectors is None:
            self._vectors = faiss.IndexFlatIP(vectors.shape[1])
        self._starts.append(self._vectors.ntotal)
        self._vectors.add(np.ascontiguousarray(vectors, dtype=np.float32))

    def scores(self, probe: Probe, n: int) -> np.ndarray:
        assert self._vectors is not None, "an index with documents has vectors"
        query = self._query(f"# chunk index : {probe.position}, question: {probe.question}")
        similarity, windows = self._vectors.search(query[None], self._vectors.ntotal)
        if (windows < 0).any():
            raise ValueError("the embedder gave vectors that are not numbers")
        by_window = np.empty(self._vectors.ntotal, dtype=np.float32)
        by_window[windows[0]] = similarity[0]
        best: np.ndarray = np.maximum.reduceat(by_window, self._starts)
        return best[:n]


class Dense(_Streams[_DenseIndex]):
    """Exact cosine similarity to documents in the form that shows their index (OAKS, C.1.3), no query instruction.

    A document that is longer than the embedder reads is embedded in windows and scored by its best one; its id stays
    the document's, so that the bound on positions holds. A stream has some thousand windows at most, for which exact
    search on the CPU takes less time than the query's embedding; the embedder itself uses a GPU where there is one.
    """

    def __init__(self, embedder: Embedder | None) -> None:
        """
        Raises:
            ValueError: there is no embedder.
        """
        if embedder is None:
            raise ValueError("dense retrieval needs an embedder: name one under `embedder:` in method.yaml")

        # One at a time: in a batch a vector's last bits would depend on the other queries.
        @functools.lru_cache(maxsize=4096)
        def query(text: str) -> np.ndarray:
            return np.ascontiguousarray(embedder.queries([text])[0], dtype=np.float32)

        super().__init__(lambda: _DenseIndex(embedder, query))


# ---------------------------------------------------------------- hybrid


class Hybrid:
    """Reciprocal rank fusion of BM25 and dense retrieval: score = sum of 1 / (60 + rank) over both rankings.

    A document without a word of the question has no place in BM25's ranking.
    """

    def __init__(self, embedder: Embedder | None) -> None:
        self._bm25, self._dense = Bm25(), Dense(embedder)

    def add(self, documents: Iterable[Document]) -> None:
        documents = list(documents)
        self._bm25.add(documents)
        self._dense.add(documents)

    def search(self, probe: Probe, k: int, *, last: int | None = None) -> list[Retrieved]:
        dense = self._dense.ranking(probe, last)
        lexical = [found for found in self._bm25.ranking(probe, last) if found[1] > 0]
        fused: defaultdict[str, float] = defaultdict(float)
        for ranking in (lexical, dense):
            for rank, (id, _, _) in enumerate(ranking, start=1):
                fused[id] += 1 / (RRF_K + rank)
        best = sorted(((id, fused[id], position) for id, _, position in dense), key=lambda f: (-f[1], f[2]))
        return _ranked(best[:k])
