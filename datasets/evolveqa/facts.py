"""From documents to facts that may change: entities, concepts, attributes (evolveQA 2.1, B.3)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from upkeep.building import leaks, prose

from . import fact_steps, phrasing
from .feeds import Document
from .workshop import Workshop, centrality, joined, nearest

WINDOW, STRIDE = 3, 2
"""Sentences of a chunk, and from one chunk to the next (2.1.3)."""


@dataclass(frozen=True, slots=True)
class Mention:
    """A concept that a document exists for, with its entity."""

    document: int
    concept: str
    entity: str


@dataclass(frozen=True, slots=True)
class Chunk:
    """Three sentences of a document, from character `start` to `end`."""

    document: int
    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Fact:
    """An E-C-A tuple with its chunks, the most central first."""

    topic: phrasing.Topic
    chunks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Corpus:
    """The documents in order of time, their chunks with vectors, and what they are about."""

    documents: Sequence[Document]
    chunks: Sequence[Chunk]
    vectors: np.ndarray
    """(chunks, d) float32, rows of length 1."""
    mentions: Sequence[Mention]
    """With canonical entities; concepts are labels of clusters."""
    facts: Sequence[Fact]


@dataclass(slots=True)
class Cluster:
    """Concepts under a label."""

    label: str
    members: list[str] = field(default_factory=list)


def survey(documents: Sequence[Document], shop: Workshop) -> Corpus:
    """Find what the documents are about and which properties of it recur over time.

    Args:
        documents: in order of time.
    """
    options, counts = shop.options, shop.counts
    counts["feed documents"] = len(documents)
    mentions = _mentions(documents, shop)
    counts["concepts found"] = len(mentions)
    canonical = entities([mention.entity for mention in mentions], shop)
    counts["entities"] = len(set(canonical.values()))
    if options.domain == "who":
        names = sorted(set(canonical.values()))
        viruses = shop.agreed(
            fact_steps.VIRUS, [phrasing.One(name) for name in names], lambda reply: reply.virus == "yes"
        )
        kept = {name for name, virus in zip(names, viruses, strict=True) if virus}
        counts["left out: entities that are no virus"] = len(names) - len(kept)
        mentions = [mention for mention in mentions if canonical[mention.entity] in kept]
    labels = labelled([mention.concept for mention in mentions], shop)
    mentions = [
        Mention(mention.document, labels[mention.concept], canonical[mention.entity])
        for mention in mentions
        if mention.concept in labels
    ]
    chunks = [chunk for n, document in enumerate(documents) for chunk in windows(document.text, n)]
    vectors = shop.embed([chunk.text for chunk in chunks])
    facts = attributes(mentions, chunks, vectors, shop)
    counts["facts (entity, concept, attribute)"] = len(facts)
    return Corpus(documents, chunks, vectors, mentions, facts)


def _mentions(documents: Sequence[Document], shop: Workshop) -> list[Mention]:
    k = shop.options.k
    replies = shop.ask(fact_steps.CONCEPTS, [fact_steps.Page(document.text, k) for document in documents])
    return [
        Mention(n, title, entity)
        for n, reply in enumerate(replies)
        for concept in list((reply or {}).values())[:k]
        if (title := " ".join(concept.normalized_title.split()))
        and leaks.key(entity := " ".join(concept.salient_entity.split()))
    ]


def entities(named: Sequence[str], shop: Workshop) -> dict[str, str]:
    """The canonical name of each: the most frequent of those that name the same thing (B.3; the method is ours).

    Names of the same words are one; of those that are near by their vectors the assistant decides.
    """
    frequency = Counter(named)
    spellings: defaultdict[str, list[str]] = defaultdict(list)
    for name in sorted(frequency, key=lambda name: (-frequency[name], name)):
        spellings[leaks.key(name)].append(name)
    names = [forms[0] for forms in spellings.values()]
    near = shop.similar(shop.embed(names))
    pairs = [phrasing.Two(names[first], names[second]) for first, second in near]
    same = shop.agreed(fact_steps.SAME_ENTITY, pairs, lambda reply: reply.same == "yes")
    heads = joined(len(names), [pair for pair, one in zip(near, same, strict=True) if one])
    return {
        form: names[head] for forms, head in zip(spellings.values(), heads, strict=True) for form in forms
    }  # the head is the first, hence the most frequent


def labelled(concepts: Sequence[str], shop: Workshop) -> dict[str, str]:
    """The label of each concept; those that stay in no cluster have none (2.1.2).

    Each distinct concept is clustered once, however many documents have it.
    """
    options, counts = shop.options, shop.counts
    pool = sorted(set(concepts))
    whole = len(pool)
    place = {concept: n for n, concept in enumerate(pool)}
    vectors = shop.embed(pool)
    clusters: list[Cluster] = []
    checked: dict[tuple[str, str], bool] = {}
    """(concept, label) -> whether it fits."""
    for _ in range(options.iterations):
        counts["concept loop: iterations"] += 1
        before = len(pool)
        clusters += _discovered(pool, vectors[[place[concept] for concept in pool]], shop)
        clusters = _distinct(clusters, shop)
        _validate(clusters, checked, shop)
        clusters = [cluster for cluster in clusters if cluster.members]
        inside = {member for cluster in clusters for member in cluster.members}
        pool = _placed([concept for concept in place if concept not in inside], clusters, checked, shop)
        if len(pool) in (0, before) or len(pool) < options.loose_percent / 100 * whole:
            break  # done, or nothing was gained and nothing would be
    counts["concepts, distinct"] = whole
    counts["concept clusters"] = len(clusters)
    counts["concepts in no cluster"] = len(pool)
    return {member: cluster.label for cluster in clusters for member in cluster.members}


def _discovered(pool: Sequence[str], vectors: np.ndarray, shop: Workshop) -> list[Cluster]:
    """Dense groups of the pool that share one concept, with their labels."""
    groups = [[pool[row] for row in rows] for rows in shop.clusters(vectors, "concepts")]
    heads = [fact_steps.Texts(tuple(group[: shop.options.central])) for group in groups]
    coherent = shop.agreed(fact_steps.COHERENT, heads, lambda reply: reply.same == "yes")
    shop.counts["concept clusters dissolved"] += coherent.count(False)
    kept = [n for n, one in enumerate(coherent) if one]
    titles = shop.ask(fact_steps.LABEL, [heads[n] for n in kept])
    return [
        Cluster(" ".join(title.title.split()), groups[n])
        for n, title in zip(kept, titles, strict=True)
        if title is not None and leaks.key(title.title)
    ]


def _distinct(clusters: Sequence[Cluster], shop: Workshop) -> list[Cluster]:
    """The clusters with those merged that the assistant takes for one; the label of the largest stays."""
    ranked = sorted(clusters, key=lambda cluster: -len(cluster.members))  # stable: the oldest first among equals
    near = shop.similar(shop.embed([cluster.label for cluster in ranked]))
    pairs = [phrasing.Two(ranked[first].label, ranked[second].label) for first, second in near]
    merge = shop.agreed(fact_steps.MERGE, pairs, lambda reply: reply.merge == "yes")
    heads = joined(len(ranked), [pair for pair, one in zip(near, merge, strict=True) if one])
    merged: dict[int, Cluster] = {}
    for head, cluster in zip(heads, ranked, strict=True):
        merged.setdefault(head, Cluster(ranked[head].label)).members.extend(cluster.members)
    return list(merged.values())


def _validate(clusters: Sequence[Cluster], checked: dict[tuple[str, str], bool], shop: Workshop) -> None:
    """Take out of each cluster what does not fit its label; what was checked before is not asked again."""
    new = [(m, c.label) for c in clusters for m in c.members if (m, c.label) not in checked]
    fits = shop.agreed(fact_steps.FITS, [fact_steps.Member(*one) for one in new], lambda reply: reply.fits == "yes")
    checked.update(zip(new, fits, strict=True))
    for cluster in clusters:
        cluster.members = [member for member in cluster.members if checked[member, cluster.label]]


def _placed(
    pool: Sequence[str], clusters: Sequence[Cluster], checked: dict[tuple[str, str], bool], shop: Workshop
) -> list[str]:
    """Put concepts of the pool into one of the clusters with the nearest labels; returns those that remain.

    A label that a concept was found not to fit is not offered again.
    """
    if not pool or not clusters:
        return list(pool)
    labels = [cluster.label for cluster in clusters]
    vectors = shop.embed([*labels, *pool])
    offers: list[list[int]] = []
    for concept, vector in zip(pool, vectors[len(labels) :], strict=True):
        ranked = nearest(vectors[: len(labels)], vector)
        open_ones = [int(n) for n in ranked if checked.get((concept, labels[n]), True)]
        offers.append(open_ones[: shop.options.nearest])
    asked = [n for n, offer in enumerate(offers) if offer]
    given = [fact_steps.Loose(pool[n], tuple(labels[c] for c in offers[n])) for n in asked]
    remaining = set(range(len(pool)))
    replies = shop.ask(fact_steps.PLACE, given)
    for n, reply in zip(asked, replies, strict=True):
        if reply is not None and 1 <= reply.label <= len(offers[n]):
            cluster = clusters[offers[n][reply.label - 1]]
            cluster.members.append(pool[n])
            checked[pool[n], cluster.label] = True
            remaining.discard(n)
    return [pool[n] for n in sorted(remaining)]


# ---------------------------------------------------------------- attributes


def windows(text: str, document: int = 0) -> list[Chunk]:
    """Windows of three sentences with one in common; the last may be shorter. A line ends its sentence."""
    spans: list[tuple[int, int]] = []
    place = 0
    for line in text.split("\n"):
        for sentence in prose.split_sentences(line):
            if sentence.strip():
                start = text.index(sentence, place)
                place = start + len(sentence)
                spans.append((start, place))
    found = []
    for first in range(0, max(len(spans) - 1, 1) if spans else 0, STRIDE):
        window = spans[first : first + WINDOW]
        start, end = window[0][0], window[-1][1]
        found.append(Chunk(document, start, end, " ".join(text[a:b] for a, b in window)))
    return found


def attributes(mentions: Sequence[Mention], chunks: Sequence[Chunk], vectors: np.ndarray, shop: Workshop) -> list[Fact]:
    """The E-C-A tuples: recurring subjects among the chunks of each (entity, concept) (2.1.3).

    Clusters of one entity and concept to which the same attribute is given are one tuple.
    """
    of: defaultdict[int, list[int]] = defaultdict(list)
    for n, chunk in enumerate(chunks):
        of[chunk.document].append(n)
    groups: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    for mention in mentions:
        groups[mention.entity, mention.concept].add(mention.document)
    found: list[tuple[str, str, list[int]]] = []
    for entity, concept in sorted(groups):
        rows = [n for document in sorted(groups[entity, concept]) for n in of[document]]
        clusters = shop.clusters(vectors[rows], "chunks")
        found += [(entity, concept, [rows[n] for n in cluster]) for cluster in clusters]
    central = [
        fact_steps.Passages(entity, concept, tuple(chunks[n].text for n in cluster[: shop.options.central]))
        for entity, concept, cluster in found
    ]
    named: dict[tuple[str, str, str], tuple[phrasing.Topic, list[int]]] = {}
    replies = shop.ask(fact_steps.ATTRIBUTE, central)
    for (entity, concept, members), reply in zip(found, replies, strict=True):
        attribute = "" if reply is None else " ".join(reply.attribute.split())
        if not leaks.key(attribute):
            shop.counts["left out: chunk clusters without an attribute"] += 1
            continue
        key = (entity, concept, leaks.key(attribute))
        named.setdefault(key, (phrasing.Topic(entity, concept, attribute), []))[1].extend(members)
    return [Fact(topic, tuple(members[n] for n in centrality(vectors[members]))) for topic, members in named.values()]
