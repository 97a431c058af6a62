"""A graph of facts that the model finds in the documents; retrieval by personalised PageRank from the facts that a
question is near to."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from msgspec.structs import replace

from upkeep.cell import LLM, Answer, Context, Document, Method, Probe, Retrieved, Seen, Tools
from upkeep.cell.asking import instructed, json_object
from upkeep.cell.budget import pieces
from upkeep.cell.interface import Embedder, PromptTooLong
from upkeep.cell.retrieval import Dense

ENTITIES = """\
List the named entities of a text: persons, places, organisations, things, dates, numbers that stand for something. \
Write JSON and nothing else: {"entities": ["...", "..."]}"""
TRIPLES = """\
Write down what a text says as triples of subject, relation and object. Every triple holds at least one of the \
entities that you are given; use names in place of pronouns. Write JSON and nothing else: \
{"triples": [["subject", "relation", "object"], ...]}"""
FILTER = """\
You are given a question and numbered facts that a search has found. Choose the facts that help to answer the \
question; none, where none does. Write JSON and nothing else: {"facts": [1, 2]}"""

PASSAGES = 30
"""Documents that are read (OAKS, C.1.1)."""
FACTS = 5
"""Facts that a question is compared with the model, and entities that the walk starts from."""
SYNONYMS, SIMILAR, SHORT = 101, 0.8, 2
"""Edges between entities: from an entity with more than so many letters and digits, to so many others at most, from
this cosine on."""
DAMPING, PASSAGE_WEIGHT = 0.5, 0.05
EXTRACTION, FILTERING = 2048, 512
"""Tokens that a reply may have."""


class HippoRag2(Method):
    def __init__(self, parameters: dict[str, Any], tools: Tools) -> None:
        super().__init__(parameters, tools)
        if tools.embedder is None:
            raise ValueError("hipporag2 needs an embedder: name one under `embedder:` in method.yaml")
        self.embedder = tools.embedder
        self.passages = Dense(tools.embedder)
        self.graphs: dict[str, Graph] = defaultdict(Graph)

    async def arrive(self, stream: str, documents: Sequence[Document], llm: LLM) -> None:
        found = await asyncio.gather(*(self.extracted(document, llm) for document in documents))
        self.passages.add(documents)
        for triples in found:
            self.graphs[stream].add(triples, self.embedder)

    async def extracted(self, document: Document, llm: LLM) -> list[Triple] | None:
        """The triples of a document, of each of its pieces where the model cannot read it whole; None where a reply is
        not what was asked for."""
        sampling = replace(llm.sampling, temperature=0.0, max_tokens=min(EXTRACTION, llm.context_length // 4))
        room = llm.context_length - 2 * sampling.max_tokens - llm.count_prompt(instructed(TRIPLES, "")) - 16
        if room < 1:
            raise PromptTooLong(f"no text to find facts in fits into {llm.context_length} tokens of context")
        triples: list[Triple] = []
        for text in pieces(document.text, room, llm):
            named = listed((await llm.chat(instructed(ENTITIES, f"# Text\n{text}"), sampling)).text, "entities")
            if named is None:
                return None
            given = f"# Text\n{text}\n\n# Entities\n{json.dumps(named, ensure_ascii=False)}"
            told = listed((await llm.chat(instructed(TRIPLES, given), sampling)).text, "triples")
            if told is None:
                return None
            triples += [
                tuple(t) for t in told if isinstance(t, list) and len(t) == 3 and all(isinstance(p, str) for p in t)
            ]
        return triples

    async def answer(self, probe: Probe, seen: Seen, llm: LLM) -> Answer:
        graph, k = self.graphs[probe.stream], self.parameters.get("k", PASSAGES)
        near = graph.nearest(self.embedder.queries([probe.question])[0], FACTS)
        kept = await self.chosen(probe, [graph.facts[fact] for fact, _ in near], llm) if near else []
        dense = self.passages.search(probe, len(seen.documents))
        found = dense[:k]
        if kept:
            scores = {one.id: one.score for one in dense}
            ranks = graph.walk([near[n] for n in kept], np.array([scores[d.id] for d in seen.documents]))
            best = np.argsort(-ranks, kind="stable")[:k]
            found = [
                Retrieved(id=seen.documents[place].id, score=float(ranks[place]), rank=rank)
                for rank, place in enumerate(best, start=1)
            ]
        answer = await self.read(probe, llm, Context(retrieved=seen.pick(one.id for one in found)), found)
        answer.values = {"unread_documents": float(graph.unread), "unread_filter": float(kept is None)}
        return answer

    async def chosen(self, probe: Probe, facts: Sequence[Triple], llm: LLM) -> list[int] | None:
        """The places of the facts that the model keeps; None where its reply is not what was asked for."""
        lines = "\n".join(f"{n}. {' '.join(fact)}" for n, fact in enumerate(facts, start=1))
        request = instructed(FILTER, f"# Question\n{probe.question}\n\n# Facts\n{lines}")
        sampling = replace(llm.sampling, temperature=0.0, max_tokens=min(FILTERING, llm.sampling.max_tokens))
        named = listed((await llm.chat(request, sampling)).text, "facts")
        if named is None:
            return None
        return [n for n in range(len(facts)) if n + 1 in named]


Triple = tuple[str, ...]
"""Subject, relation, object."""


@dataclass
class Graph:
    """Entities, facts and passages of one stream. Passages are the stream's documents, in their order."""

    facts: list[Triple] = field(default_factory=list)
    entities: dict[str, int] = field(default_factory=dict)
    passages: list[set[int]] = field(default_factory=list)
    """The entities of each."""
    unread: int = 0
    """Passages whose facts could not be read."""
    told: dict[tuple[int, int], float] = field(default_factory=lambda: defaultdict(float))
    """From an entity to another, and back: how many facts, in how many passages, join them."""
    alike: dict[tuple[int, int], float] = field(default_factory=dict)
    """From an entity to another: their likeness, where they are like. It takes the place of the facts."""
    _known: dict[Triple, int] = field(default_factory=dict)
    _facts: list[np.ndarray] = field(default_factory=list)
    _entities: list[np.ndarray] = field(default_factory=list)

    def add(self, triples: Sequence[Triple] | None, embedder: Embedder) -> None:
        """Take in the next passage's triples; None where they could not be read."""
        self.unread += triples is None
        mine: set[int] = set()
        for fact in dict.fromkeys(map(normal, triples or ())):
            subject, _, object_ = fact
            if not subject or not object_:
                continue
            ends = [self._entity(end, embedder) for end in (subject, object_)]
            if fact not in self._known:
                self._known[fact] = len(self.facts)
                self.facts.append(fact)
                self._facts.append(embedder.documents([str(fact)])[0])
            if ends[0] != ends[1]:
                self.told[ends[0], ends[1]] += 1
                self.told[ends[1], ends[0]] += 1
            mine.update(ends)
        self.passages.append(mine)

    def _entity(self, name: str, embedder: Embedder) -> int:
        """The number of an entity; a new one is joined to those that are like it."""
        if name not in self.entities:
            vector, new, names = embedder.documents([name])[0], len(self.entities), list(self.entities)
            if self._entities:
                likeness = np.stack(self._entities) @ vector
                for other in map(int, np.argsort(-likeness, kind="stable")[:SYNONYMS]):
                    if likeness[other] < SIMILAR:
                        break
                    for start, end, word in ((new, other, name), (other, new, names[other])):
                        if len(re.sub(r"[\W_]", "", word)) > SHORT:
                            self.alike[start, end] = float(likeness[other])
            self.entities[name] = new
            self._entities.append(vector)
        return self.entities[name]

    def nearest(self, query: np.ndarray, n: int) -> list[tuple[int, float]]:
        """The facts nearest to a question, nearest first, with how near they are among all (0 to 1)."""
        if not self.facts:
            return []
        scores = scaled(np.stack(self._facts) @ query)
        return [(int(fact), float(scores[fact])) for fact in np.argsort(-scores, kind="stable")[:n]]

    def walk(self, facts: Sequence[tuple[int, float]], likeness: np.ndarray) -> np.ndarray:
        """(passages,) float: the personalised PageRank of each passage.

        The walk starts at the entities of the facts, each weighted by the mean nearness of its facts divided by the
        passages that hold it, and a little at each passage, by its likeness.

        Args:
            facts: places of facts, with their nearness to the question.
            likeness: (passages,) of each passage to the question.
        """
        n = len(self.entities)
        holding = Counter(entity for entities in self.passages for entity in entities)
        near: dict[int, list[float]] = defaultdict(list)
        for fact, score in facts:
            subject, _, object_ = self.facts[fact]
            for entity in (self.entities[subject], self.entities[object_]):
                near[entity].append(score)
        weights = {entity: sum(scores) / len(scores) / holding[entity] for entity, scores in near.items()}
        start = np.zeros(n + len(self.passages))
        for entity in sorted(weights, key=lambda entity: (-weights[entity], entity))[:FACTS]:
            start[entity] = weights[entity]
        start[n:] = PASSAGE_WEIGHT * scaled(likeness)
        joined = [(a, b, float(weight)) for (a, b), weight in {**self.told, **self.alike}.items()]
        joined += [(entity, n + place, 1.0) for place, held in enumerate(self.passages) for entity in sorted(held)]
        return pagerank(joined, start)[n:]


def pagerank(edges: Sequence[tuple[int, int, float]], start: np.ndarray, tolerance: float = 1e-12) -> np.ndarray:
    """(n,) float: personalised PageRank of an undirected graph, damping 0.5.

    A node without an edge sends its walk back to the start.

    Args:
        edges: two nodes and a weight.
        start: (n,) where walks begin, in any scale.
        tolerance: sum of absolute changes at which the iteration ends.
    """
    if not start.sum():
        return np.zeros(len(start))
    start = start / start.sum()
    ends = np.array([(a, b) for a, b, _ in edges], dtype=np.int64).reshape(-1, 2)
    weights = np.tile(np.array([w for *_, w in edges], dtype=float), 2)
    source, target = np.concatenate([ends[:, 0], ends[:, 1]]), np.concatenate([ends[:, 1], ends[:, 0]])
    out = np.bincount(source, weights, len(start))
    share = weights / out[source]
    rank = start
    while True:
        moved = np.bincount(target, rank[source] * share, len(start)) + rank[out == 0].sum() * start
        now: np.ndarray = DAMPING * moved + (1 - DAMPING) * start
        if np.abs(now - rank).sum() < tolerance:
            return now
        rank = now


def scaled(values: np.ndarray) -> np.ndarray:
    """The values from 0 for the least to 1 for the greatest; all 1 where they are equal."""
    low, high = values.min(), values.max()
    spread: np.ndarray = (values - low) / (high - low) if high > low else np.ones(len(values))
    return spread


def normal(triple: Triple) -> Triple:
    """A triple's parts in lower case, letters and digits alone."""
    return tuple(re.sub(r"[\W_]+", " ", part.lower()).strip() for part in triple)


def listed(reply: str, key: str) -> list[Any] | None:
    """The list under a key of the JSON object in a reply; None where there is none."""
    found = (json_object(reply) or {}).get(key)
    return found if isinstance(found, list) else None
