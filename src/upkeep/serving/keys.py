"""Keys and values as the transformers engine holds them: of the latest prompt, of segments of earlier ones, and of the
sequences in its lanes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from upkeep.cell.tokens import Segment, shared_segments
from upkeep.serving.lanes import BEGINNING_TOKENS, LANE_TOKENS, LANES
from upkeep.serving.llama import attention, attention_divided

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
    parts: Sequence[torch.Tensor]
    """Of each layer the keys and the values (1, heads, tokens, head size)."""


class Lanes:
    """Keys and values of the sequences that are decoded together: a buffer (layers, 2, lanes, heads, room, head size).

    Lanes that begin alike attend to a long beginning together, each to the rest by itself, and what that gives is
    weighed. Whether a sequence is so divided depends on its prompt alone.

    Args:
        layers, heads, size: how many layers, heads of keys, and numbers in each.
        like: has their type and their device.
    """

    def __init__(self, layers: int, heads: int, size: int, like: torch.Tensor) -> None:
        self.lengths = [0] * LANES
        """Tokens that each lane holds, but for its beginning."""
        self._held = like.new_empty((layers, 2, LANES, heads, 0, size))
        self._beginnings: list[Beginning | None] = [None] * LANES

    def fill(self, lane: int, layers: Sequence[Held], leading: Sequence[Segment[int]], tokens: int) -> None:
        """Have a lane hold what `layers` hold.

        Args:
            leading: the segments of its prompt that other prompts may begin with.
            tokens: of these, and of what stands before all prompts.
        """
        start = tokens if tokens >= BEGINNING_TOKENS and self._held.device.type == "cpu" else 0
        self._beginnings[lane] = self._beginning(layers, leading, start) if start else None
        end = layers[0].length
        self.lengths[lane] = length = end - start
        self._make_room(length)
        for (keys, values), layer in zip(self._held, layers, strict=True):
            keys[lane, :, :length] = layer.keys[0, :, start:end]
            values[lane, :, :length] = layer.values[0, :, start:end]

    def fill_alike(self, tokens: int) -> None:
        """Have all lanes begin with the same numbers, which are drawn."""
        layers, _, _, heads, _, size = self._held.shape
        drawn = torch.randn(layers * 2, 1, heads, tokens, size, generator=torch.Generator().manual_seed(0))
        self._beginnings = [Beginning((), drawn.to(self._held).unbind())] * LANES

    def begin(self, used: Sequence[int], sizes: Sequence[int]) -> None:
        """Begin a step, whose first rows are these lanes, each longer by a token then.

        Args:
            sizes: numbers of rows that attend to one beginning together.
        """
        for lane in used:
            self.lengths[lane] += 1
        self._beginnings = [held if lane in used else None for lane, held in enumerate(self._beginnings)]
        self._make_room(max(self.lengths))
        places = [[lane, self.lengths[lane] - 1] for lane in used]
        self._used, self._places = torch.tensor(places, device=self._held.device).T
        layers = self._held.flatten(0, 1)
        self._parts = [layers[:, lane : lane + 1, :, : self.lengths[lane]].unbind() for lane in used]
        """Of each of these lanes the keys and the values of each layer, but for its beginning."""
        groups: dict[int, tuple[Beginning, list[int]]] = {}
        for row, lane in enumerate(used):
            if (beginning := self._beginnings[lane]) is not None:
                groups.setdefault(id(beginning), (beginning, []))[1].append(row)
        self._groups = [(one, rows, min(size for size in sizes if size >= len(rows))) for one, rows in groups.values()]
        self._alone = sorted({*range(len(used))}.difference(*(rows for _, rows, _ in self._groups)))

    def attend(self, number: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """Attention (rows, heads, 1, head size) in a layer; no lane feels how long the others are. Rows without a lane
        attend to nothing."""
        new = torch.stack((key[:, :, 0], value[:, :, 0]), 1)
        self._held[number][:, self._used, :, self._places] = new[: len(self._parts)]
        here = slice(2 * number, 2 * number + 2)
        found = query.new_zeros(query.shape)
        for row in self._alone:
            found[row] = attention(query[row : row + 1], *self._parts[row][here])[0]
        for beginning, rows, size in self._groups:
            rest = [self._parts[row][here] for row in rows]
            found[rows] = attention_divided(query[rows], beginning.parts[here], rest, size)
        return found

    def empty(self) -> None:
        self.lengths = [0] * LANES
        self._beginnings = [None] * LANES

    def _beginning(self, layers: Sequence[Held], leading: Sequence[Segment[int]], tokens: int) -> Beginning:
        """That which another lane has, or a new one."""
        for held in self._beginnings:
            if held is not None and len(held.segments) == len(leading) == shared_segments(held.segments, leading):
                return held
        return Beginning(leading, [part for pair in cut(layers, 0, tokens) for part in pair])

    def _make_room(self, length: int) -> None:
        if length > (room := self._held.shape[4]):
            room = min(-(-max(length, 2 * room) // GROWTH) * GROWTH, LANE_TOKENS)
            old = self._held
            self._held = old.new_empty((*old.shape[:4], room, old.shape[5]))
            self._held[..., : old.shape[4], :] = old
