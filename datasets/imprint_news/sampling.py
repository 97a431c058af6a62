"""Which candidates come to be asked: the cheatability filter and the budget an article (ImprintBench, D.1)."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")


def apportion(
    given: Sequence[T], article: Callable[[T], int], tokens: Sequence[int], wanted: int, rng: Random
) -> list[T]:
    """At most `wanted` of them, each article's share growing with its length, in the order given.

    Shares follow Sainte-Laguë's method: the next one always goes to the article with the most tokens for each of
    twice its questions plus one, as long as it has any left. Which of an article's own are taken is drawn.

    Args:
        article: the one that counts for it.
        tokens: of each article.
    """
    waiting: dict[int, list[int]] = {}
    for n, one in enumerate(given):
        waiting.setdefault(article(one), []).append(n)
    for places in waiting.values():
        rng.shuffle(places)
    queue = [(-float(tokens[n]), n, 0) for n in waiting]
    heapq.heapify(queue)
    taken: list[int] = []
    while queue and len(taken) < wanted:
        _, n, already = heapq.heappop(queue)
        taken.append(waiting[n].pop())
        if waiting[n]:
            heapq.heappush(queue, (-tokens[n] / (2 * already + 3), n, already + 1))
    return [given[n] for n in sorted(taken)]
