"""Which segments of earlier prompts the transformers engine keeps, for itself and for what counts in its place."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from upkeep.cell.tokens import Segment

Kept = TypeVar("Kept")


def passes(segments: Sequence[Segment[int]], most: int) -> list[list[Segment[int]]]:
    """Segments that are computed together: consecutive ones of up to `most` tokens, a longer one by itself."""
    found: list[list[Segment[int]]] = []
    room = 0
    for segment in segments:
        if not found or len(segment) > room:
            found.append([])
            room = most
        found[-1].append(segment)
        room -= len(segment)
    return found


@dataclass(frozen=True, slots=True)
class _Node(Generic[Kept]):
    number: int
    """Of no other one, ever."""
    tokens: int
    kept: Kept


class KeptSegments(Generic[Kept]):
    """Something for each segment of the latest prompts, which is known by all tokens up to its end. Where there is no
    more room, that goes which was not asked for longest, of one prompt the last segment first.

    Args:
        room: tokens of all segments at most; None for as many as come.
    """

    def __init__(self, room: int | None) -> None:
        self._room, self._tokens = room, 0
        self._numbers = itertools.count(1)
        self._nodes: OrderedDict[tuple[int, bytes], _Node[Kept]] = OrderedDict()
        """By the number of the node before and the tokens, from the one that was not asked for longest. One goes later
        than all that follow it, so none is ever left without those before it."""

    def find(self, segments: Sequence[Segment[int]]) -> list[Kept]:
        """What is kept of the leading segments, as far as all of them are."""
        return [node.kept for _, node in self._known(segments)]

    def keep(self, segments: Sequence[Segment[int]], of: Callable[[int], Kept]) -> None:
        """Keep the leading segments of a prompt, as many as there is room for.

        Args:
            of: what is to be kept of a segment, by its place; called for those alone of which nothing is.
        """
        path = [*self._known(segments)]
        self._touch(path)
        number, taken = (path[-1][1].number if path else 0), sum(node.tokens for _, node in path)
        for place, segment in enumerate(segments[len(path) :], len(path)):
            taken += len(segment)
            if self._room is not None and taken > self._room:
                break
            self._make_room(len(segment))
            node = _Node(next(self._numbers), len(segment), of(place))
            key = (number, segment.tobytes())
            self._nodes[key] = node
            self._tokens += node.tokens
            path.append((key, node))
            number = node.number
        self._touch(path)

    def clear(self) -> None:
        self._nodes.clear()
        self._tokens = 0

    def _touch(self, path: Sequence[tuple[tuple[int, bytes], _Node[Kept]]]) -> None:
        for key, _ in reversed(path):
            self._nodes.move_to_end(key)

    def _make_room(self, tokens: int) -> None:
        while self._room is not None and self._tokens + tokens > self._room:
            _, oldest = self._nodes.popitem(last=False)
            self._tokens -= oldest.tokens

    def _known(self, segments: Sequence[Segment[int]]) -> Iterator[tuple[tuple[int, bytes], _Node[Kept]]]:
        number = 0
        for segment in segments:
            key = (number, segment.tobytes())
            if (node := self._nodes.get(key)) is None:
                return
            yield key, node
            number = node.number
