"""Keys and values as the transformers engine holds them: of the latest prompt, of segments of earlier ones, and of the
sequences in its lanes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from upkeep.cell.tokens import Segment, shared_segments
from upkeep.serving.lanes import BEGINNING_TOKENS, LANE_TOKENS, LANES, fewest
from upkeep.serving.llama import Own, attention_divided, attention_of_rows, mask_of_rows

GROWTH = 1024
"""Buffers hold a multiple of so many tokens, which keeps every head's first byte aligned alike."""


class Held:
    """Keys and values of one layer in buffers with room to spare: appending copies the new tokens alone, cropping
    nothing. `keys` and `values` are (1, heads, room, head size); the first `length` tokens count."""

    def __init__(self) -> None:
        self.length = 0
        self.keys = self.values = torch.empty(0)

    def update(self, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Append; all that is held."""
        end = self.length + keys.shape[-2]
        if not self.keys.numel():
            self.keys, self.values = (x.new_empty((*x.shape[:2], 0, x.shape[3])) for x in (keys, values))
        if end > self.keys.shape[2]:
            room = -(-max(end, 2 * self.keys.shape[2]) // GROWTH) * GROWTH
            self.keys, self.values = (self._grown(x, room) for x in (self.keys, self.values))
        self.keys[:, :, self.length : end] = keys
        self.values[:, :, self.length : end] = values
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def _grown(self, old: torch.Tensor, room: int) -> torch.Tensor:
        new = old.new_empty((*old.shape[:2], room, old.shape[3]))
        new[:, :, : self.length] = old[:, :, : self.length]
        return new


Cut = list[tuple[torch.Tensor, ...]]
"""Of each layer the keys and the values (1, heads, tokens, head size), whose sizes may differ; nothing of a layer that
holds none of its own."""


def cut(layers: Sequence[Held], first: int, end: int) -> Cut:
    """A copy of the tokens from `first` to `end`."""
    return [
        tuple(held[:, :, first:end].clone() for held in (layer.keys, layer.values) if held.numel()) for layer in layers
    ]


def extend(layers: Sequence[Held], parts: Sequence[Cut]) -> None:
    """Append what was cut off, in this order."""
    for layer, *held in zip(layers, *parts, strict=True):
        if any(held):
            layer.update(*(torch.cat(pieces, 2) for pieces in zip(*held, strict=True)))


def as_cache(layers: Sequence[Held]) -> Any:
    """As a model of transformers reads and extends them."""
    from transformers.cache_utils import Cache, DynamicLayer

    class Layer(DynamicLayer):  # type: ignore[misc]
        def __init__(self, held: Held) -> None:
            super().__init__()
            self.held = held

        def update(
            self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
        ) -> tuple[torch.Tensor, torch.Tensor]:
            if not self.is_initialized:
                self.lazy_initialization(key_states, value_states)
            return self.held.update(key_states, value_states)

        def get_seq_length(self) -> int:
            return self.held.length

    return Cache(layers=[*map(Layer, layers)])


@dataclass(frozen=True, slots=True)
class Beginning:
    """What sequences begin with, held once for all lanes that have it."""

    segments: Sequence[Segment[int]]
    tokens: int
    """Of the segments, and of what stands before all prompts."""
    parts: Sequence[torch.Tensor]
    """Of each layer the keys and the values (1, heads, tokens, head size)."""


class Lanes:
    """Keys and values of the sequences that are decoded together: a buffer (layers, 2, lanes, heads, room, head size).

    Lanes that begin alike attend to a long beginning together, each to the rest by itself, and what that gives is
    weighed. Whether a sequence is so divided depends on its prompt alone.

    Args:
        layers, queries, heads, size: how many layers, heads of queries and of keys, and numbers in each.
        like: has their type and their device.
        sizes: numbers of rows that may attend to a beginning together.
    """

    def __init__(
        self, layers: int, queries: int, heads: int, size: int, like: torch.Tensor, sizes: Sequence[int]
    ) -> None:
        self.lengths = [0] * LANES
        """Tokens that each lane holds, but for its beginning."""
        self._held = like.new_empty((layers, 2, LANES, heads, 0, size))
        self._beginnings: list[Beginning | None] = [None] * LANES
        self._sizes, self._ratio = sizes, queries // heads
        self._divided = self._on_a_cpu and self._agreeing(queries)

    def fill(self, lane: int, layers: Sequence[Held], leading: Sequence[Segment[int]], tokens: int) -> None:
        """Have a lane hold what `layers` hold.

        Args:
            leading: the segments of its prompt that other prompts may begin with.
            tokens: of these, and of what stands before all prompts.
        """
        beginning = self._beginning(layers, leading, tokens) if self._divided and tokens >= BEGINNING_TOKENS else None
        self._beginnings[lane] = beginning
        start, end = beginning.tokens if beginning else 0, layers[0].length
        self.lengths[lane] = length = end - start
        self._make_room(length)
        for (keys, values), layer in zip(self._held, layers, strict=True):
            keys[lane, :, :length] = layer.keys[0, :, start:end]
            values[lane, :, :length] = layer.values[0, :, start:end]

    def begin(self, used: Sequence[tuple[int, int, int]]) -> None:
        """Begin a step, whose first rows are the next tokens of some lanes.

        Args:
            used: lanes, the position of the next token of each, and how many there are.
        """
        places: list[tuple[int, int]] = []
        lanes = {lane for lane, _, _ in used}
        self._beginnings = [held if lane in lanes else None for lane, held in enumerate(self._beginnings)]
        for lane, position, tokens in used:
            beginning = self._beginnings[lane]
            before = position - (beginning.tokens if beginning else 0)
            places += ((lane, before + n) for n in range(tokens))
            self.lengths[lane] = before + tokens
        self._make_room(max(self.lengths))
        self._used, self._places = torch.tensor(places, device=self._held.device).T
        layers = self._held.flatten(0, 1)
        self._alone: list[tuple[slice, Sequence[torch.Tensor], torch.Tensor | None]] = []
        groups: dict[int, tuple[Beginning, list[int], list[Own]]] = {}
        row = 0
        for lane, _, tokens in used:
            length = self.lengths[lane]
            parts = layers[:, lane : lane + 1, :, :length].unbind()
            mask = mask_of_rows(tokens, parts[0], self._ratio)
            rows = range(row, row := row + tokens)
            if (beginning := self._beginnings[lane]) is None:
                self._alone.append((slice(rows.start, rows.stop), parts, mask))
            else:
                _, theirs, rest = groups.setdefault(id(beginning), (beginning, [], []))
                theirs += rows
                rest.append((tokens, parts, mask))
        self._groups = [*groups.values()]

    def attend(self, number: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """Attention (rows, heads, 1, head size) in a layer; no lane feels how long the others are. Rows without a lane
        attend to nothing."""
        new = torch.stack((key[:, :, 0], value[:, :, 0]), 1)
        self._held[number][:, self._used, :, self._places] = new[: len(self._used)]
        here = slice(2 * number, 2 * number + 2)
        found = query.new_zeros(query.shape)
        for rows, parts, mask in self._alone:
            found[rows] = attention_of_rows(query[rows], parts[here], mask)
        for beginning, theirs, rest in self._groups:
            own = [(tokens, parts[here], mask) for tokens, parts, mask in rest]
            size = fewest(self._sizes, len(theirs))
            found[theirs] = attention_divided(query[theirs], beginning.parts[here], own, size)
        return found

    def empty(self) -> None:
        self.lengths = [0] * LANES
        self._beginnings = [None] * LANES

    @property
    def _on_a_cpu(self) -> bool:
        found: bool = self._held.device.type == "cpu"
        return found

    def _agreeing(self, queries: int) -> bool:
        """Whether a row finds the same bits in a beginning, however many attend to it. It is attended to in blocks, the
        last of which is shorter."""
        _, _, _, heads, _, size = self._held.shape
        generator = torch.Generator().manual_seed(0)
        for tokens in (BEGINNING_TOKENS, BEGINNING_TOKENS + 37):
            first, own = torch.randn(2, 2, 1, heads, tokens, size, generator=generator).to(self._held)
            query = torch.randn(max(self._sizes), queries, 1, size, generator=generator).to(self._held)
            rest = [(1, [part[:, :, :3] for part in own], None)] * len(query)
            whole = attention_divided(query, [*first], rest, len(query))
            for n in self._sizes:
                asked = query[:n], query[:n].roll(1, 0)
                rows, rolled = (attention_divided(one, [*first], rest[:n], n) for one in asked)
                if not (torch.equal(rows, whole[:n]) and torch.equal(rolled.roll(-1, 0), rows)):
                    return False
        return True

    def _beginning(self, layers: Sequence[Held], leading: Sequence[Segment[int]], tokens: int) -> Beginning:
        """That which another lane has, or a new one."""
        for held in self._beginnings:
            if held is not None and len(held.segments) == len(leading) == shared_segments(held.segments, leading):
                return held
        return Beginning(leading, tokens, [part for pair in cut(layers, 0, tokens) for part in pair])

    def _make_room(self, length: int) -> None:
        if length > (room := self._held.shape[4]):
            room = min(-(-max(length, 2 * room) // GROWTH) * GROWTH, LANE_TOKENS)
            old = self._held
            self._held = old.new_empty((*old.shape[:4], room, old.shape[5]))
            self._held[..., : old.shape[4], :] = old
