"""Keys and values as the transformers engine holds them: of the latest prompt, and of the sequences in its lanes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.cache_utils import DynamicLayer
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from upkeep.serving.lanes import LANE_TOKENS, LANES

GROWTH = 1024
"""Buffers hold a multiple of so many tokens, which keeps every head's first byte aligned alike."""


class GrowingLayer(DynamicLayer):  # type: ignore[misc]
    """Keys and values of one layer in buffers with room to spare: appending copies the new tokens alone, cropping
    nothing. `keys` and `values` are (1, heads, room, head size); the first `length` tokens count.

    Args:
        most: tokens that it holds at most; None for any number.
    """

    def __init__(self, most: int | None = None) -> None:
        super().__init__()
        self.length, self.most = 0, most

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        end = self.length + key_states.shape[-2]
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.keys, self.values = (x.new_empty((*x.shape[:2], 0, x.shape[3])) for x in (key_states, value_states))
        if end > self.keys.shape[2]:
            room = -(-max(end, 2 * self.keys.shape[2]) // GROWTH) * GROWTH
            room = min(room, self.most or room)
            self.keys, self.values = (self._grown(x, room) for x in (self.keys, self.values))
        self.keys[:, :, self.length : end] = key_states
        self.values[:, :, self.length : end] = value_states
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def copy(self, other: GrowingLayer) -> None:
        """Hold what `other` holds."""
        self.length = 0
        self.update(other.keys[:, :, : other.length], other.values[:, :, : other.length])

    def _grown(self, old: torch.Tensor, room: int) -> torch.Tensor:
        new = old.new_empty((*old.shape[:2], room, old.shape[3]))
        new[:, :, : self.length] = old[:, :, : self.length]
        return new

    def get_seq_length(self) -> int:
        return self.length


class LaneLayer(DynamicLayer):  # type: ignore[misc]
    """Keys and values of one layer in all lanes. A step adds a row to each that is in use, and gets them as lists with
    None for the others.

    Args:
        used: which lanes are in use; changes from step to step.
    """

    def __init__(self, used: Sequence[bool]) -> None:
        super().__init__()
        self.lanes = [GrowingLayer(LANE_TOKENS) for _ in range(LANES)]
        self._used = used

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any) -> Any:
        held: list[Any] = [
            lane.update(key_states[n : n + 1], value_states[n : n + 1]) if used else (None, None)
            for n, (lane, used) in enumerate(zip(self.lanes, self._used, strict=True))
        ]
        return [keys for keys, _ in held], [values for _, values in held]

    def get_seq_length(self) -> int:
        return 0  # it has no one length: positions come with each step


def attend(
    module: torch.nn.Module, query: torch.Tensor, key: Any, value: Any, attention_mask: Any, **options: Any
) -> tuple[torch.Tensor, None]:
    """Attention as `sdpa`; where keys are those of lanes, one lane after the other."""
    if isinstance(key, torch.Tensor):
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)  # type: ignore[no-any-return]
    rows = [
        query.new_zeros(1, 1, query.shape[1], query.shape[3])
        if keys is None
        else sdpa_attention_forward(module, query[n : n + 1], keys, values, None, **options)[0]
        for n, (keys, values) in enumerate(zip(key, value, strict=True))
    ]
    return torch.cat(rows), None


AttentionInterface.register("lanes", attend)
AttentionMaskInterface.register("lanes", sdpa_mask)
