"""Which probes are asked in which pass, where a cell is asked in several (`execution.order`).

An engine computes once what prompts of a pass begin with, as far as it keeps them. Where a card says how its method
ranks documents, each probe goes to the pass that has had most of what its prompt begins with; else a question goes with
those that are worded like it, for they find alike, and stays in its pass. Of the documents those are looked at that
have arrived at a probe, and no method is told any of it.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from upkeep.execution.rounds import BuiltDataset, RoundPlaces


def by_wording(corpus: BuiltDataset, size: int) -> list[int]:
    """Of each probe the number of its pass, where so many questions of a stream are asked together: each with those
    that are worded alike."""
    texts = {(probe.stream, probe.question_id): probe.question for probe in corpus.probes}
    seen: Counter[str] = Counter()
    places = {}
    for key in sorted(texts, key=lambda key: (texts[key], key)):
        places[key] = seen[key[0]]
        seen[key[0]] += 1
    return [places[probe.stream, probe.question_id] // size for probe in corpus.probes]


@functools.lru_cache(maxsize=4)  # cells of a plan that show as many documents are dealt alike
def by_finding(corpus: BuiltDataset, size: int, ranked: int) -> list[int]:
    """Of each probe the number of its pass, where a pass asks so many probes of an interval at most and each prompt
    begins with the documents that BM25 ranks first.

    Prompts are paths in a tree whose nodes are documents. In each interval those probes come first of whose path most
    was asked in the interval before, each in the pass that asked it, or that has been given such a path since; those of
    which nothing was asked begin where most room is.

    Args:
        ranked: documents of a prompt, at most.
    """
    numbers = [0] * len(corpus.probes)
    for steps in corpus.intervals:
        passes = -(-max(len(step.probes) for step in steps) // size)
        before: dict[int, set[int]] = {}  # a node's passes
        for paths in _paths(corpus, steps, ranked):
            room, now = [size] * passes, defaultdict[int, set[int]](set)
            known = {place: sum(1 for _ in itertools.takewhile(before.__contains__, paths[place])) for place in paths}
            for place in sorted(paths, key=lambda place: (-known[place], paths[place])):
                holders = (
                    [number for number in before.get(node, set()) | now.get(node, set()) if room[number]]
                    for node in reversed(paths[place])
                )
                among = next(filter(None, holders), range(passes))
                chosen = max(among, key=lambda number: (room[number], -number))
                room[chosen] -= 1
                numbers[place] = chosen
                for node in paths[place]:
                    now[node].add(chosen)
            before = now
    return numbers


def _paths(corpus: BuiltDataset, steps: Sequence[RoundPlaces], ranked: int) -> Iterator[dict[int, list[int]]]:
    """Of each interval of a stream the nodes of each probe's path, by its place: a node is a document behind all that
    stand before it."""
    from upkeep.cell.retrieval import Bm25  # with it numpy, and with its first index bm25s: a while

    index, nodes = Bm25(), dict[tuple[int, str], int]()
    for step in steps:
        index.add(corpus.documents[place] for place in step.documents)
        paths: dict[int, list[int]] = {}
        for place in step.probes:
            path, node = [], 0
            for found in index.search(corpus.probes[place], ranked):
                node = nodes.setdefault((node, found.id), len(nodes) + 1)
                path.append(node)
            paths[place] = path
        yield paths
