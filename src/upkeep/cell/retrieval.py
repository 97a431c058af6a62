"""Retrieval over documents that have arrived.

One index a stream, grown as documents arrive. A search sees the documents up to the probe's position and no other, and
neither do its statistics: BM25's document frequencies are those of the arrived documents. Orders are total (score, then
position), and no score depends on what else was asked at the time, so that a cell which was killed and goes on gives
the same bytes.
"""

from __future__ import annotations

import bisect
import functools
import itertools
from abc import ABC, abstractmethod
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import numpy as np

from upkeep.cell.interface import Embedder
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
        self.positions = array("q")

    def add(self, documents: Sequence[Document]) -> None:
        """Take in the next documents.

        Raises:
            ValueError: one is not later than the last.
        """
        for document in documents:
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
        for stream, run in itertools.groupby(documents, key=lambda document: document.stream):
            self._indices[stream].add(list(run))

    def scored(self, probe: Probe, last: int | None = None) -> tuple[IndexT, np.ndarray] | None:
        """A stream's index and (n,) float: the scores of its documents up to `last` and the probe's position; None
        where there is none."""
        if probe.stream not in self._indices:
            return None
        index = self._indices[probe.stream]
        n = index.arrived(probe.position)
        allowed = n if last is None else min(n, index.arrived(last))
        return (index, index.scores(probe, n)[:allowed]) if allowed else None

    def search(self, probe: Probe, k: int, *, last: int | None = None) -> list[Retrieved]:
        if (found := self.scored(probe, last)) is None:
            return []
        index, scores = found
        return _retrieved(index, scores, _best(scores, k))


def _best(scores: np.ndarray, k: int) -> np.ndarray:
    """The places of the `k` highest scores, best first; of equals the older first. Linear in their number."""
    if k <= 0:
        return np.empty(0, dtype=np.intp)
    if k < len(scores):
        least = np.partition(scores, -k)[-k]
        above, equal = np.flatnonzero(scores > least), np.flatnonzero(scores == least)
        places = np.concatenate([above, equal[: k - len(above)]])
    else:
        places = np.arange(len(scores))
    return places[np.argsort(-scores[places], kind="stable")]


def _ranks(scores: np.ndarray) -> np.ndarray:
    """(n,) int: the rank of each score from 1, the highest first; of equals the older first."""
    ranks = np.empty(len(scores), dtype=np.int64)
    ranks[np.argsort(-scores, kind="stable")] = np.arange(1, len(scores) + 1)
    return ranks


def _retrieved(index: _Index, scores: np.ndarray, places: np.ndarray) -> list[Retrieved]:
    return [Retrieved(id=index.ids[i], score=float(scores[i]), rank=rank) for rank, i in enumerate(places, start=1)]


# ---------------------------------------------------------------- BM25


class _Words:
    """The numbers of the words of each document, in one run of memory: a large corpus has a hundred million."""

    def __init__(self) -> None:
        self._words, self._ends = array("i"), array("q", [0])

    def append(self, words: Iterable[int]) -> None:
        self._words.extend(words)
        self._ends.append(len(self._words))

    def until(self, n: int) -> _Words:
        """Those of the first `n` documents."""
        first = _Words()
        first._words, first._ends = self._words, self._ends[: n + 1]
        return first

    def total(self) -> int:
        """Words of all documents."""
        return self._ends[-1]

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __iter__(self) -> Iterator[list[int]]:
        for start, end in itertools.pairwise(self._ends):
            yield self._words[start:end].tolist()


class _Bm25Index(_Index):
    def __init__(self) -> None:
        import bm25s

        super().__init__()
        self._tokenizer = bm25s.tokenization.Tokenizer(stopwords="en")
        self._words = _Words()
        self._built: tuple[int, bm25s.BM25 | None] = (0, None)

    def add(self, documents: Sequence[Document]) -> None:
        super().add(documents)
        for words in self._tokenizer.streaming_tokenize((d.text for d in documents), allow_empty=False):
            self._words.append(words)

    def scores(self, probe: Probe, n: int) -> np.ndarray:
        import bm25s

        size, model = self._built
        if size != n:
            # Every document changes the frequencies of all, so the index is built anew, once an interval.
            model = None
            arrived = self._words.until(n)
            if arrived.total():
                model = bm25s.BM25(method="lucene", k1=1.5, b=0.75)
                corpus = bm25s.tokenization.Tokenized(ids=arrived, vocab=self._tokenizer.word_to_id)
                model.index(corpus, create_empty_token=False, show_progress=False)
            self._built = (n, model)
        if model is None:
            return np.zeros(n)
        (words,) = self._tokenizer.streaming_tokenize([probe.question], update_vocab=False, allow_empty=False)
        known = len(model.scores["indptr"]) - 1  # words that came with later documents have higher numbers
        return np.asarray(model.get_scores_from_ids([word for word in words if word < known]))


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
        self._starts = array("q")

    def add(self, documents: Sequence[Document]) -> None:
        import faiss

        super().add(documents)
        for document in documents:
            # Windows of one document are embedded together and apart from any other's: padding changes last bits.
            vectors = self._embedder.documents(self._embedder.windows(entry(document)))
            if self._vectors is None:
                self._vectors = faiss.IndexFlatIP(vectors.shape[1])
            self._starts.append(self._vectors.ntotal)
            self._vectors.add(np.ascontiguousarray(vectors, dtype=np.float32))

    def scores(self, probe: Probe, n: int) -> np.ndarray:
        assert self._vectors is not None, "an index with documents has vectors"
        query = self._query(f"# chunk index : {probe.position}, question: {probe.question}")
        # All vectors, by their range: `search` for all of them sorts, and computes large indices by another routine,
        # so that a score's last bits would depend on how many vectors there are.
        _, similarity, windows = self._vectors.range_search(query[None], -np.inf)
        if len(windows) != self._vectors.ntotal:
            raise ValueError("the embedder gave vectors that are not numbers")
        by_window = np.empty(self._vectors.ntotal, dtype=np.float32)
        by_window[windows] = similarity
        best: np.ndarray = np.maximum.reduceat(by_window, np.asarray(self._starts))
        return best[:n]


class Dense(_Streams[_DenseIndex]):
    """Exact cosine similarity to documents in the form that shows their index (OAKS, C.1.3), no query instruction.

    A document that is longer than the embedder reads is embedded in windows and scored by its best one; its id stays
    the document's, so that the bound on positions holds. Exact search on the CPU takes less time than the query's
    embedding for some thousand windows, and about a second for a million; the embedder itself uses a GPU where there is
    one.
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
        dense, lexical = self._dense.scored(probe, last), self._bm25.scored(probe, last)
        if dense is None or lexical is None:
            return []
        index, scores = dense
        by_words = np.where(lexical[1] > 0, 1 / (RRF_K + _ranks(lexical[1])), 0.0)
        fused = by_words + 1 / (RRF_K + _ranks(scores))
        return _retrieved(index, fused, _best(fused, k))
