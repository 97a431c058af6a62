"""ImpRel and BoundAbs: events that moved a market, and what never was about them (ImprintBench 2, D.1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from upkeep.building import leaks
from upkeep.building.assistant import Assistant

from . import steps
from .candidates import Candidate, each
from .corpus import Corpus, leaders, written

Embed = Callable[[Sequence[str]], np.ndarray]
"""Texts to (n, d) rows of length 1; rows of one call can be compared."""

EVENTS_PER_SPIKE = 3
ABSTENTIONS = (
    "No, the corpus contains no record of",
    "insufficient information",
    "no record of",
    "not in my reference",
    "not mentioned",
    "not covered",
    "no information about",
    "cannot find",
)
"""What counts as abstaining, the gold prefix first (E.1)."""
SHOWN_ARTICLES, SHOWN_CHARACTERS = 8, 3000
"""What a request shows of the articles of a spike or of an event at most."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Candidate answers that name one event."""

    answer: str
    """That of the earliest."""
    article: int
    """The article that tells of it first."""
    articles: tuple[int, ...]
    """All that were found to tell of it."""
    size: int
    """Candidate answers in it: how salient the event is."""


def salience(size: int) -> str:
    """The bin of a cluster's size."""
    return "salience_1" if size == 1 else "salience_2_4" if size <= 4 else "salience_5_up"


def imp_rel(
    corpus: Corpus, helper: Assistant, embed: Embed, threshold: float, left: Counter[str]
) -> tuple[list[Candidate], list[Cluster]]:
    """One broad question for each event that the spikes name, and the clusters of their candidate answers."""
    spikes: dict[tuple[str, str], list[int]] = {}
    for n, article in enumerate(corpus.articles):
        spikes.setdefault((article.spike, article.market), []).append(n)
    groups = sorted(spikes.items())
    given = [
        steps.Spike(market, written(day), shown(corpus, members), EVENTS_PER_SPIKE) for (day, market), members in groups
    ]
    events: list[tuple[steps.Event, int, tuple[int, ...]]] = []
    replies = helper.ask(steps.EVENTS, given)
    for n, event in each(replies):
        places = ((member, corpus.find(member, event.quote)) for member in groups[n][1])
        member, evidence = next((place for place in places if place[1]), (0, ()))
        if not evidence:
            left["imp_rel, quote not in the articles"] += 1
        elif not leaks.key(event.answer):
            left["imp_rel, no answer"] += 1
        else:
            events.append((event, member, evidence))
    alike: dict[int, list[int]] = {}
    for n, leader in enumerate(leaders(embed([event.answer for event, _, _ in events]), threshold)):
        alike.setdefault(leader, []).append(n)
    found: list[Candidate] = []
    clusters: list[Cluster] = []
    for leader, members in alike.items():
        event, told_in, evidence = events[leader]
        clusters.append(Cluster(event.answer, told_in, tuple(sorted({events[n][1] for n in members})), len(members)))
        found.append(
            Candidate(
                family="imp_rel",
                stratum="imp_rel",
                question=event.question,
                answers=tuple(dict.fromkeys([event.answer, *filter(leaks.key, event.accepted)])),
                article=told_in,
                evidence=evidence,
                slices={"salience": salience(len(members))},
            )
        )
    return found, clusters


def shown(corpus: Corpus, articles: Sequence[int]) -> tuple[str, ...]:
    """What a request shows of some articles."""
    return tuple(corpus.articles[n].text[:SHOWN_CHARACTERS] for n in articles[:SHOWN_ARTICLES])


def bound_abs(
    corpus: Corpus, clusters: Sequence[Cluster], helper: Assistant, embed: Embed, nearest: int
) -> tuple[list[Candidate], Counter[str]]:
    """A question by each of four strategies about each event; all are kept, with what the nearest articles say.

    Returns:
        The questions, and how many of all verdicts are `affirm`, `deny` and `unrelated`.
    """
    topics = [(cluster, strategy) for cluster in clusters for strategy in steps.STRATEGIES]
    given = [
        steps.Boundary(
            event=cluster.answer,
            date=written(corpus.articles[cluster.article].date),
            strategy=strategy,
            passages=shown(corpus, cluster.articles),
        )
        for cluster, strategy in topics
    ]
    replies = helper.ask(steps.ABSENT, given)
    asked = [
        (*topic, reply.question)
        for topic, reply in zip(topics, replies, strict=True)
        if reply is not None and leaks.key(reply.question)
    ]
    bodies = [article.text for article in corpus.articles]
    vectors = embed([*bodies, *(question for _, _, question in asked)])
    likeness = vectors[len(bodies) :] @ vectors[: len(bodies)].T
    near = np.argsort(-likeness, axis=1, kind="stable")[:, :nearest].tolist()
    retrieved = [
        steps.Retrieved(question, bodies[n]) for (_, _, question), row in zip(asked, near, strict=True) for n in row
    ]
    judged = helper.ask(steps.VERDICT, retrieved)
    said = iter(judged)
    found: list[Candidate] = []
    total: Counter[str] = Counter({"affirm": 0, "deny": 0, "unrelated": 0})
    for (cluster, strategy, question), row in zip(asked, near, strict=True):
        verdicts: Counter[str] = Counter(one.verdict for one in (next(said) for _ in row) if one is not None)
        total.update(verdicts)
        difficulty = "affirmed" if verdicts["affirm"] else "denied" if verdicts["deny"] else "unmentioned"
        found.append(
            Candidate(
                family="bound_abs",
                stratum="bound_abs",
                question=question,
                answers=ABSTENTIONS,
                article=cluster.article,
                evidence=(),
                slices={
                    "bound_abs": f"bound_abs_{strategy}",
                    "difficulty": difficulty,
                    "verdicts": "_".join(f"{verdict}{verdicts[verdict]}" for verdict in total),
                    "salience": salience(cluster.size),
                },
            )
        )
    return found, total
