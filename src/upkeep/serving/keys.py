"""Keys and values as the transformers engine holds them: of the latest prompt, of segments of earlier ones, and of the
sequences in its lanes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from upkeep.cell.tokens import Segment, shared_segments
from upkeep.serving.lanes import BEGINNING_TOKENS, BLOCK, DRAFTED, LANE_TOKENS, LANES, TOGETHER, fewest
from upkeep.serving.llama import attention, attention_divided, attention_with_sums, by_heads, by_tokens

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


def _blocks(tokens: int) -> int:
    """The keys that a lane attends to where it holds so many."""
    return -(-tokens // BLOCK) * BLOCK


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

    Each lane attends by itself, in every step with as many queries and to keys up to the next multiple of `BLOCK`: so
    sums have the same order whether a token was drafted or is the only one of a step. Lanes that begin alike attend to
    a long beginning together, each to the rest by itself, and what that gives is weighed. Whether a sequence is so
    divided depends on its prompt alone.

    Args:
        layers, queries, heads, size: how many layers, heads of queries and of keys, and numbers in each.
        like: has their type and their device.
        sizes: numbers of rows that may attend to a beginning together.
    """

    def __init__(
        self, layers: int, queries: int, heads: int, size: int, like: torch.Tensor, sizes: Sequence[int]
    ) -> None:
        # Zeros, for what is no number would stay so, however little it counts.
        self._held = like.new_zeros((layers, 2, LANES, heads, 0, size))
        self._beginnings: list[Beginning | None] = [None] * LANES
        self._sizes, self._ratio = [size for size in sizes if size <= TOGETHER], queries // heads
        later = torch.full((1 + DRAFTED, 2 * LANE_TOKENS), -math.inf, dtype=like.dtype, device=like.device)
        self._later = later.triu(LANE_TOKENS + 1).repeat(self._ratio, 1)
        """What queries may not attend to, were there `LANE_TOKENS` before them."""
        self._divided = self._on_a_cpu and bool(self._sizes) and self._agreeing(queries)
        self.steady = self._steady(queries)
        """Whether a token finds the same bits whatever its place among those of a step, so that drafts have no part in
        an answer."""

    def fill(self, lane: int, layers: Sequence[Held], leading: Sequence[Segment[int]], tokens: int, most: int) -> None:
        """Have a lane hold what `layers` hold.

        Args:
            leading: the segments of its prompt that other prompts may begin with.
            tokens: of these, and of what stands before all prompts.
            most: tokens that the sequence comes to at most, and of what stands before all prompts. No step of it reads
                beyond the block of the last of them.
        """
        beginning = self._beginning(layers, leading, tokens) if self._divided and tokens >= BEGINNING_TOKENS else None
        self._beginnings[lane] = beginning
        start, end = beginning.tokens if beginning else 0, layers[0].length
        length = end - start
        self._make_room(length)
        self._held[:, :, lane, :, length : _blocks(most - start)] = 0  # what another sequence left there
        for (keys, values), layer in zip(self._held, layers, strict=True):
            keys[lane, :, :length] = layer.keys[0, :, start:end]
            values[lane, :, :length] = layer.values[0, :, start:end]

    def most(self, lane: int, position: int) -> int:
        """How many tokens of a lane a step may have, from this position on."""
        return min(1 + DRAFTED, BLOCK - self._before(lane, position) % BLOCK)

    def begin(self, used: Sequence[tuple[int, int, int]]) -> None:
        """Begin a step, whose first rows are the next tokens of some lanes.

        Args:
            used: lanes, the position of the next token of each, and how many there are, up to `most`.
        """
        lanes = {lane for lane, _, _ in used}
        self._beginnings = [held if lane in lanes else None for lane, held in enumerate(self._beginnings)]
        begun = [(lane, self._before(lane, position), tokens) for lane, position, tokens in used]
        rows = [(n, i, lane, before + i) for n, (lane, before, tokens) in enumerate(begun) for i in range(tokens)]
        self._number, self._place, self._lane, self._at = torch.tensor(rows, device=self._held.device).T
        ends = [_blocks(before + tokens) for _, before, tokens in begun]
        self._make_room(max(ends))
        layers = self._held.flatten(0, 1)
        self._own: list[tuple[Sequence[torch.Tensor], torch.Tensor, bool]] = []
        """Of each lane keys and values of all layers, its mask, and whether it has a beginning."""
        groups: dict[int, tuple[Beginning, list[int]]] = {}
        row = 0
        for (lane, before, tokens), end in zip(begun, ends, strict=True):
            parts, beginning = layers[:, lane : lane + 1, :, :end].unbind(), self._beginnings[lane]
            self._own.append((parts, self._mask(before, end), beginning is not None))
            rows_of_lane = range(row, row := row + tokens)
            if beginning is not None:
                groups.setdefault(id(beginning), (beginning, []))[1].extend(rows_of_lane)
        most = max(self._sizes, default=1)
        self._groups = [
            (beginning, rows[n : n + most]) for beginning, rows in groups.values() for n in range(0, len(rows), most)
        ]

    def attend(self, number: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """Attention (rows, heads, 1, head size) in a layer; no lane feels how long the others are. Rows without a lane
        attend to nothing."""
        query, key, value = query[:, :, 0], key[:, :, 0], value[:, :, 0]
        used, here = len(self._lane), slice(2 * number, 2 * number + 2)
        self._held[number][:, self._lane, :, self._at] = torch.stack((key[:used], value[:used]), 1)
        asked = query.new_zeros((len(self._own), 1 + DRAFTED, *query.shape[1:]))
        asked[self._number, self._place] = query[:used]
        asked = by_heads(asked, key.shape[1])
        own, sums = torch.empty_like(asked), asked.new_zeros(asked.shape[:3], dtype=torch.float)
        for n, (parts, mask, divided) in enumerate(self._own):
            lane, (keys, values) = slice(n, n + 1), parts[here]
            if divided:
                own[lane], sums[lane] = attention_with_sums(asked[lane], keys, values, mask)
            else:
                own[lane] = attention(asked[lane], keys, values, mask)
        found = query.new_zeros(query.shape)
        found[:used] = by_tokens(own, self._ratio)[self._number, self._place]
        if self._groups:
            weighed = by_tokens(sums[..., None], self._ratio)[self._number, self._place, :, 0]
        for beginning, rows in self._groups:
            size = fewest(self._sizes, len(rows))
            keys, values = beginning.parts[here]
            found[rows] = attention_divided(query[rows], found[rows], weighed[rows], keys, values, size)
        return found[:, :, None]

    def empty(self) -> None:
        self._beginnings = [None] * LANES

    @property
    def _on_a_cpu(self) -> bool:
        found: bool = self._held.device.type == "cpu"
        return found

    def _before(self, lane: int, position: int) -> int:
        """How many tokens a lane holds before a position, but for its beginning."""
        beginning = self._beginnings[lane]
        return position - (beginning.tokens if beginning else 0)

    def _mask(self, before: int, end: int) -> torch.Tensor:
        """What the tokens of a step may not attend to, of the first `end`, where so many were before them. A copy, for
        kernels of GPUs ask where in memory it begins."""
        return self._later[:, LANE_TOKENS - before :][:, :end].contiguous()

    def _agreeing(self, queries: int) -> bool:
        """Whether a row finds the same bits in a beginning, however many attend to it. It is attended to in blocks, the
        last of which is shorter."""
        _, _, _, heads, _, size = self._held.shape
        generator = torch.Generator().manual_seed(0)
        for tokens in (BEGINNING_TOKENS, BEGINNING_TOKENS + 37):
            keys, values = torch.randn(2, 1, heads, tokens, size, generator=generator).to(self._held)
            query, own = torch.randn(2, max(self._sizes), queries, size, generator=generator).to(self._held)
            sums = query[..., 0].float()
            whole = attention_divided(query, own, sums, keys, values, len(query))
            for n, turned in itertools.product(self._sizes, (0, 1)):
                asked, theirs, weighed = (one[:n].roll(turned, 0) for one in (query, own, sums))
                found = attention_divided(asked, theirs, weighed, keys, values, n)
                if not torch.equal(found.roll(-turned, 0), whole[:n]):
                    return False
        return True

    def _steady(self, queries: int) -> bool:
        """Whether a token finds the same bits at every place of a step, whatever comes before and after it there. How
        sums are made up depends on the number of keys, of which some are tried."""
        _, _, _, heads, _, size = self._held.shape
        generator = torch.Generator().manual_seed(0)

        def random(*shape: int) -> torch.Tensor:
            return torch.randn(shape, generator=generator).to(self._held)

        held, one = random(2, 1, heads, LANE_TOKENS, size), random(queries, size)
        for blocks in (1, 3, 4, 9, 12, 17, 33, LANE_TOKENS // BLOCK):
            end = blocks * BLOCK
            keys, values = held[:, :, :, :end]
            at, expected = end - DRAFTED // 2, list[torch.Tensor]()
            for place in range(1 + DRAFTED):
                asked, mask = random(1, 1 + DRAFTED, queries, size), self._mask(at - place, end)
                asked[0, place] = one
                held[:, :, :, at + 1 : end] = random(2, 1, heads, end - at - 1, size)
                given = by_heads(asked, heads), keys, values, mask
                found = [attention(*given)]
                if self._divided:
                    own, sums = attention_with_sums(*given)
                    found += [own, sums[..., None]]
                found = [by_tokens(one, self._ratio)[0, place] for one in found]
                expected = expected or found
                if not all(map(torch.equal, expected, found)):
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
            self._held = old.new_zeros((*old.shape[:4], room, old.shape[5]))
            self._held[..., : old.shape[4], :] = old
