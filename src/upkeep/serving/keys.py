"""Keys and values as the transformers engine holds them: of the latest prompt, and of the sequences in its lanes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from upkeep.serving.lanes import LANE_TOKENS, LANES
from upkeep.serving.llama import attention

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


class Lanes:
    """Keys and values of the sequences that are decoded together; those of one layer are in one buffer (2, lanes,
    heads, room, head size).

    Args:
        layers, heads, size: how many layers, heads of keys, and numbers in each.
        like: has their type and their device.
    """

    def __init__(self, layers: int, heads: int, size: int, like: torch.Tensor) -> None:
        self.lengths = [0] * LANES
        """Tokens that each lane holds."""
        self._held = [like.new_empty((2, LANES, heads, 0, size)) for _ in range(layers)]
        self._by_lane: list[list[tuple[torch.Tensor, ...]]] = [[] for _ in range(layers)]
        """Of each layer and lane the keys and values, as parts of these buffers."""
        self._rows = torch.arange(LANES, device=like.device)

    def fill(self, lane: int, layers: Sequence[Held]) -> None:
        """Have a lane hold what `layers` hold."""
        self.lengths[lane] = length = layers[0].length
        self._make_room(length)
        for (keys, values), layer in zip(self._held, layers, strict=True):
            keys[lane, :, :length] = layer.keys[0, :, :length]
            values[lane, :, :length] = layer.values[0, :, :length]

    def begin(self, used: Sequence[bool]) -> None:
        """Begin a step, which adds a token to each lane that is in use. What the others held is no longer whole."""
        self._used = used
        self.lengths = [length + one for length, one in zip(self.lengths, used, strict=True)]
        self._make_room(max(1, *self.lengths))
        self._places = torch.tensor([max(length - 1, 0) for length in self.lengths], device=self._rows.device)

    def attend(self, number: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """Attention (lanes, heads, 1, head size) in a layer; one lane after the other, so that none feels how long the
        others are."""
        self._held[number][:, self._rows, :, self._places] = torch.stack((key[:, :, 0], value[:, :, 0]), 1)
        found = [
            attention(asked, keys.narrow(2, 0, length), values.narrow(2, 0, length))
            if used
            else torch.zeros_like(asked)
            for asked, (keys, values), length, used in zip(
                query.split(1), self._by_lane[number], self.lengths, self._used, strict=True
            )
        ]
        return torch.cat(found)

    def empty(self) -> None:
        self.lengths = [0] * LANES

    def _make_room(self, length: int) -> None:
        if length > (room := self._held[0].shape[3]):
            room = min(-(-max(length, 2 * room) // GROWTH) * GROWTH, LANE_TOKENS)
            for number, old in enumerate(self._held):
                self._held[number] = old.new_empty((*old.shape[:3], room, old.shape[4]))
                self._held[number][..., : old.shape[3], :] = old
                self._by_lane[number] = [lane.split(1) for lane in self._held[number].transpose(0, 1)]
