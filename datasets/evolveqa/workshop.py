"""What the steps of the build share: options, the assistant, vectors, clusters and counts."""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, TypeVar

import numpy as np
from msgspec import Struct

from upkeep.building import embedding, leaks
from upkeep.building.assistant import Assistant, Step
from upkeep.building.context import Context

from .membership import Membership
from .synthetic import Sizes

Given = TypeVar("Given", bound=Struct)
Reply = TypeVar("Reply")

Domain = Literal["aws", "azure", "who"]
Format = Literal["open_ended", "mcq", "verifiable"]
Hint = Literal["none", "context", "date", "both"]

CUTOFFS = ("2023-08-31", "2023-12-31", "2024-04-30", "2024-05-31", "2024-07-31", "2024-08-31")
CONCEPTS: dict[Domain, int] = {"aws": 3, "azure": 3, "who": 5}
"""Concepts of a document at most (B.3)."""
_BLOCK = 1024


class Options(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """`options` of `dataset.yaml`. Where nothing else is said, a default is the paper's (B.3)."""

    domain: Domain
    """`who`: sections are documents, only viruses are entities, k = 5."""
    source: Literal["files", "world"] = "files"
    """`files`: the feed `data: {evolveqa_<domain>.feed: PATH}`; `world`: a generated one."""
    control: bool = False
    """The set about facts that do not change (4.1) in place of that about facts that do."""
    formats: tuple[Format, ...] = ("open_ended", "mcq", "verifiable")
    hints: tuple[Hint, ...] = ("none",)
    """What open-ended questions are told besides, each a question of its own (C.3)."""
    membership: Membership | None = None
    """Documents of before and after one cut-off date (B.4) in place of questions about facts; they stay whole, and what
    makes such questions is not asked for."""
    cutoffs: tuple[str, ...] = CUTOFFS
    """YYYY-MM-DD, ascending."""
    concepts: int | None = None
    """Concepts of a document at most; null for the paper's of the domain."""
    neighbours: int = 15
    """Of UMAP."""
    components: int = 5
    """Dimensions after UMAP."""
    cluster_size: int = 5
    """Of HDBSCAN, at least."""
    samples: int = 1
    """Of HDBSCAN (`min_samples`)."""
    epsilon: float = 0.1
    """Of HDBSCAN (`cluster_selection_epsilon`)."""
    central: int = 5
    """Members that a cluster is judged and named by (m)."""
    nearest: int = 3
    """Labels that a loose concept is offered."""
    iterations: int = 5
    """Of the concept loop, at most."""
    loose_percent: float = 5
    """The concept loop ends when fewer concepts than this are in no cluster. Ours."""
    similarity: float = 0.8
    """Cosine from which two labels, entities or questions are compared by the assistant. Ours."""
    passages: int = 10
    """Chunks that a question is made from, at most (K). Ours."""
    conflicts: int = 4
    """Concepts with the most change that the control set leaves out."""
    control_documents: int = 1200
    """Documents that the control set draws. The paper draws about 1,200 over its three domains."""
    chunk_tokens: int = 512
    """Of a document of the stream, at most."""
    max_characters: int = 100_000
    """Of a document of the feed."""
    seed: int = 0
    tokenizer: str | None = None
    """A `tokenizer.json`; null for the suite's own."""
    assistant: str | None = None
    """A model of `models/`; null for a world, which knows the replies."""
    embedder: str = "lsa"
    """An embedder of `models/`, or the built-in `lsa`."""
    sizes: Sizes = Sizes()
    """Of the world."""

    @property
    def k(self) -> int:
        return CONCEPTS[self.domain] if self.concepts is None else self.concepts


@dataclass(frozen=True)
class Workshop:
    """Options, the assistant, vectors and clusters; counts what is made and what is left out."""

    context: Context
    options: Options
    helper: Assistant
    counts: Counter[str] = field(default_factory=Counter)

    def ask(self, step: Step[Given, Reply], given: Sequence[Given]) -> list[Reply | None]:
        """The reply to each, None where it was unreadable and such are skipped."""
        return self.helper.ask(step, given) if given else []

    def agreed(self, step: Step[Given, Reply], given: Sequence[Given], yes: Callable[[Reply], bool]) -> list[bool]:
        """Whether the reply to each says so; an unreadable one does not."""
        return [reply is not None and yes(reply) for reply in self.ask(step, given)]

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """(n, d) float32, rows of length 1; see `embedding.embed`."""
        return embedding.embed(self.context, self.options.embedder, texts)

    @cached_property
    def _umap(self) -> Callable[..., np.ndarray]:
        import umap  # seconds to import

        _keep_compiled()

        def reduce(vectors: np.ndarray, neighbours: int, init: str) -> np.ndarray:
            with warnings.catch_warnings():  # of one thread for the sake of the seed, and of points far from all others
                warnings.simplefilter("ignore", UserWarning)
                reducer = umap.UMAP(
                    n_neighbors=neighbours,
                    n_components=self.options.components,
                    metric="cosine",
                    random_state=self.options.seed,
                    init=init,
                )
                return np.asarray(reducer.fit_transform(vectors))

        return reduce

    def clusters(self, vectors: np.ndarray, what: str) -> list[np.ndarray]:
        """Rows of each dense group of vectors, the most central first; rows of no group are left out (B.3).

        UMAP needs more points than neighbours, and for its usual start more than its components by two; with fewer it
        takes as many neighbours as there are, and a random start. `counts` says how often, by `what` is clustered.
        """
        from sklearn.cluster import HDBSCAN

        options = self.options
        if len(vectors) < max(options.cluster_size, 3):
            self.counts[f"clustering {what}: too few points"] += 1
            return []
        self.counts[f"clustering {what}: runs"] += 1
        if len(vectors) <= options.neighbours:
            self.counts[f"clustering {what}: runs with fewer than {options.neighbours} neighbours"] += 1
        reduced = self._umap(
            vectors,
            min(options.neighbours, len(vectors) - 1),
            "spectral" if len(vectors) > options.components + 1 else "random",
        )
        labels = HDBSCAN(
            min_cluster_size=options.cluster_size,
            min_samples=options.samples,
            cluster_selection_epsilon=options.epsilon,
            copy=True,
        ).fit_predict(reduced)
        return [
            rows[centrality(vectors[rows])] for n in range(labels.max() + 1) if len(rows := np.flatnonzero(labels == n))
        ]

    def similar(self, vectors: np.ndarray) -> list[tuple[int, int]]:
        """Pairs of rows (i < j, ascending) with a cosine of at least `similarity`; in little memory."""
        pairs: list[tuple[int, int]] = []
        for start in range(0, len(vectors), _BLOCK):
            near = vectors[start : start + _BLOCK] @ vectors.T >= self.options.similarity
            first, second = np.nonzero(near)
            first += start
            keep = first < second
            pairs += zip(first[keep].tolist(), second[keep].tolist(), strict=True)
        return pairs


def _keep_compiled() -> None:
    """Have Numba keep what it compiles of UMAP beside its source, as UMAP does not ask for: a quarter of a minute of
    each process otherwise."""
    from numba.core.dispatcher import Dispatcher

    for name, module in list(sys.modules.items()):
        if name.split(".")[0] in ("umap", "pynndescent"):
            for function in vars(module).values():
                if isinstance(function, Dispatcher):
                    function.enable_caching()


def centrality(vectors: np.ndarray) -> np.ndarray:
    """Rows in order of their cosine to the mean, the nearest first; among equals the first."""
    scores = vectors @ vectors.mean(axis=0)
    return np.argsort(-np.round(scores, 6), kind="stable")


def nearest(vectors: np.ndarray, to: np.ndarray) -> np.ndarray:
    """Rows in order of their cosine to `to`, the nearest first; among equals the first."""
    return np.argsort(-np.round(vectors @ to, 6), kind="stable")


def distinct(texts: Sequence[str]) -> list[str]:
    """Texts that differ in their words, in order, each in its first form."""
    found: dict[str, str] = {}
    for text in texts:
        found.setdefault(leaks.key(text), text)
    return list(found.values())


def joined(size: int, pairs: Sequence[tuple[int, int]]) -> list[int]:
    """For each of `size` things the first of those that `pairs` connects it with, directly or not."""
    root = list(range(size))

    def find(n: int) -> int:
        while root[n] != n:
            root[n] = root[root[n]]
            n = root[n]
        return n

    for first, second in pairs:
        low, high = sorted((find(first), find(second)))
        root[high] = low
    return [find(n) for n in range(size)]
