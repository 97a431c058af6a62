"""vLLM's attention on a CPU, for many requests that begin alike.

vLLM shares prefixes in whole blocks of the key-value cache, so every question computes, besides its own tokens, what
the shared prefix has beyond its last whole block: 16 tokens on average with the blocks of 32 that the CPU backend
declares, which is half a short question. Its kernels have a variant for 16 (`vec16`), which `Backend` allows.

They go through the keys of each request by themselves, although all questions about a stream have most of them in
common: at 66,000 tokens nothing else takes as long. So where the requests of a step begin with the same blocks, all
their tokens attend to these together, each request's to its own rest, and a token's two findings are weighed by their
sums of exponentials.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from vllm.config import get_layers_from_vllm_config
from vllm.model_executor.layers.attention import Attention as Layer
from vllm.v1.attention.backend import AttentionType, MultipleOf
from vllm.v1.attention.backends.cpu_attn import (
    CPUAttentionBackend,
    CPUAttentionBackendImpl,
    CPUAttentionMetadata,
    CPUAttentionMetadataBuilder,
)

from upkeep.serving.llama import attention_with_sums, by_heads, by_tokens

FEWEST_REQUESTS, FEWEST_TOKENS = 4, 512
"""With fewer that begin alike, or fewer tokens alike, there is little to share."""
MOST_ASKED, MOST_OWN = 256, 1024
"""Tokens of a request in a step, and those that it does not share: one with more of either is left to the kernel, which
takes so many queries at once that little is spared."""
AT_ONCE = 4096
"""Tokens whose keys and values are taken from their blocks at a time: a copy of all of them would take much room."""
KERNEL = "vec16"
"""vLLM's, whose blocks are read here: of each head its keys, one number of all tokens after the other, and then its
values, one token after the other."""


@dataclass(frozen=True, slots=True)
class Own:
    """What some requests have besides what they begin with."""

    blocks: torch.Tensor
    """(requests, blocks), filled up with any."""
    queries: torch.Tensor
    """(requests, queries): which tokens of `Shared.tokens` are a request's, filled up with any."""
    asked: torch.Tensor
    """(requests, queries): whether it is one of its own."""
    mask: torch.Tensor
    """(requests, 1, queries of heads that share keys, tokens): 0 where one sees a token, else minus infinity."""


@dataclass(frozen=True, slots=True)
class Shared:
    """What some requests of a step begin with, and what each has besides."""

    blocks: torch.Tensor
    """That all begin with, in order."""
    tokens: torch.Tensor
    """Which of the step's tokens are theirs, request by request."""
    own: Sequence[Own]
    """Of all of them, some at a time, in that order."""


@dataclass
class Metadata(CPUAttentionMetadata):  # type: ignore[misc]
    """Of the requests that are left to vLLM's kernel."""

    shared: Sequence[Shared] = ()
    left: torch.Tensor | None = None
    """Which of the step's tokens are left to the kernel; None for all."""


class Builder(CPUAttentionMetadataBuilder):  # type: ignore[misc]
    """Looks at each step for requests that begin alike."""

    def __init__(self, kv_cache_spec: Any, layer_names: list[str], vllm_config: Any, device: torch.device) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        layers = get_layers_from_vllm_config(vllm_config, Layer, layer_names).values()
        self._plain = self.isa == KERNEL and self.window_size == -1 and all(layer.impl.plain for layer in layers)

    def build(self, common_prefix_len: int, common_attn_metadata: Any, fast_build: bool = False) -> Metadata:
        common, shared = common_attn_metadata, list[Shared]()
        left: torch.Tensor | None = None
        if common.causal is True and self._plain:
            starts = common.query_start_loc
            given = common.block_table_tensor, common.seq_lens, starts, self.block_size
            shared, rest = shared_of(*given, self.num_heads // self.num_kv_heads)
            if shared:
                left = rest.repeat_interleave(starts.diff()).nonzero()[:, 0]
                common = _of(common, rest) if rest.any() else common
        return Metadata(**vars(super().build(0, common, fast_build)), shared=shared, left=left)


def _of(common: Any, some: torch.Tensor) -> Any:
    """What vLLM tells of a step, of some of its requests (a mask): as much as its kernel asks for."""
    starts, lengths = common.query_start_loc, common.seq_lens[some]
    asked = starts.diff()[some]
    return replace(
        common,
        num_reqs=len(asked),
        num_actual_tokens=int(asked.sum()),
        max_query_len=int(asked.max()),
        max_seq_len=int(lengths.max()),
        query_start_loc=torch.cat([starts[:1], asked.cumsum(0, dtype=starts.dtype)]),
        seq_lens=lengths,
        block_table_tensor=common.block_table_tensor[some],
    )


def shared_of(
    table: torch.Tensor, lengths: torch.Tensor, starts: torch.Tensor, block: int, ratio: int
) -> tuple[list[Shared], torch.Tensor]:
    """Requests of a step that begin alike, and which ones are left (a mask).

    Args:
        table: (requests, blocks) of each one's tokens, in order.
        lengths: how many tokens each one has, with those of this step.
        starts: at which of the step's tokens each one's begin, and where the last one's end.
        block: tokens in each.
        ratio: heads that share keys.
    """
    asked = starts.diff()
    before, fewest = (lengths - asked) // block, -(-FEWEST_TOKENS // block)
    left = torch.ones(len(lengths), dtype=torch.bool)
    if table.shape[1] < fewest:
        return [], left
    may = ((before >= fewest) & (asked <= MOST_ASKED)).nonzero()[:, 0]
    kinds, kind = table[may][:, [0, fewest - 1]].unique(dim=0, return_inverse=True)
    found: list[Shared] = []
    for n in range(len(kinds)):
        some = may[kind == n]
        while len(some) >= FEWEST_REQUESTS:
            shared, these = _beginning(table[some], before[some], lengths[some], block)
            if shared < fewest or these.sum() < FEWEST_REQUESTS:
                break
            group, some = some[these], some[~these]
            group = group[asked[group].argsort(stable=True)]  # those that ask alike together
            found.append(_shared(table[group], shared, lengths[group], starts[group], asked[group], block, ratio))
            left[group] = False
    return found, left


def _beginning(
    table: torch.Tensor, before: torch.Tensor, lengths: torch.Tensor, block: int
) -> tuple[int, torch.Tensor]:
    """With how many blocks requests begin alike, and which ones do and have little besides (a mask): of all numbers
    that one of them has in common with others the one by which most is spared.

    Args:
        before: blocks of each before its tokens of this step. (What others compute in this step is among them: keys are
            put into their blocks before any attention.)
    """
    one = before.argsort()[len(before) // 2]
    alike = (table[:, : before[one]] == table[one, : before[one]]).cumprod(1).sum(1).minimum(before)
    each = alike.unique()
    these = (alike >= each[:, None]) & (lengths - each[:, None] * block <= MOST_OWN)
    best = (each * (these.sum(1) - 1)).argmax()
    return int(each[best]), these[best]


def _shared(
    table: torch.Tensor,
    shared: int,
    lengths: torch.Tensor,
    starts: torch.Tensor,
    asked: torch.Tensor,
    block: int,
    ratio: int,
) -> Shared:
    """Of requests that have so many blocks in common, each with where its tokens of this step begin, and how many
    there are."""
    rest, first = lengths - shared * block, asked.cumsum(0) - asked
    tokens = starts.repeat_interleave(asked) + torch.arange(int(asked.sum())) - first.repeat_interleave(asked)
    own = []
    for some in torch.arange(len(table)).split(max(1, AT_ONCE // int(rest.max()))):
        longest, each = int(rest[some].max()), torch.arange(int(asked[some].max()))
        sees = torch.arange(longest) <= (rest - asked)[some, None, None] + each[:, None]
        mask = torch.zeros(sees.shape).masked_fill(~sees, -math.inf).repeat(1, ratio, 1)[:, None]
        blocks = table[some, shared : shared + -(-longest // block)]
        queries = (first[some, None] + each).clamp(max=len(tokens) - 1)
        own.append(Own(blocks, queries, each < asked[some, None], mask))
    return Shared(table[0, :shared], tokens, own)


class Attention(CPUAttentionBackendImpl):  # type: ignore[misc]
    """Of one layer."""

    @property
    def plain(self) -> bool:
        """Whether queries see all that came before, and are weighed by nothing else."""
        more = self.alibi_slopes is not None or self.sinks is not None or self.logits_soft_cap
        every = self.attn_type == AttentionType.DECODER and self.sliding_window == -1
        return every and not more and not self.is_fp8_kv_cache

    def forward(
        self,
        layer: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        kv_cache: torch.Tensor,
        attn_metadata: Metadata | None,
        output: torch.Tensor,
        output_scale: torch.Tensor | None = None,
        output_block_scale: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """As vLLM's own, which says what is given."""
        scales = output_scale, output_block_scale
        if attn_metadata is None or attn_metadata.left is None:
            return super().forward(layer, query, key, value, kv_cache, attn_metadata, output, *scales)
        left = attn_metadata.left
        if len(left):
            of_left = output[left]
            super().forward(layer, query[left], key, value, kv_cache, attn_metadata, of_left, *scales)
            output[left] = of_left
        for shared in attn_metadata.shared:
            # SDPA divides by the square root of the head size.
            asked = query[shared.tokens].float() * (self.scale * math.sqrt(self.head_size))
            together, own = self._together(asked, kv_cache, shared.blocks), self._by_itself(asked, kv_cache, shared.own)
            found, _ = _weighed(*together, *own)
            output[shared.tokens] = found.to(output.dtype).view(-1, *output.shape[1:])
        return output

    def _together(
        self, asked: torch.Tensor, cache: torch.Tensor, blocks: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """What all tokens find in the same blocks (tokens, heads, head size), and the logarithms of its sums of
        exponentials (tokens, heads, 1)."""
        grouped = by_heads(asked[None], self.num_kv_heads)
        found, sums = torch.zeros_like(grouped), grouped.new_full((*grouped.shape[:3], 1), -math.inf)
        for some in blocks.split(max(1, AT_ONCE // cache.shape[2])):
            more, of_more = attention_with_sums(grouped, *self._held(cache, some[None]))
            found, sums = _weighed(found, sums, more, of_more[..., None])
        return by_tokens(found, self.num_queries_per_kv)[0], by_tokens(sums, self.num_queries_per_kv)[0]

    def _by_itself(
        self, asked: torch.Tensor, cache: torch.Tensor, each: Sequence[Own]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """What each token finds in the blocks of its request alone, alike."""
        ratio, parts = self.num_queries_per_kv, []
        for own in each:
            keys, values = (held[:, :, : own.mask.shape[3]] for held in self._held(cache, own.blocks))
            grouped = by_heads(asked[own.queries], self.num_kv_heads)
            found, sums = attention_with_sums(grouped, keys, values, own.mask)
            parts.append((by_tokens(found, ratio)[own.asked], by_tokens(sums[..., None], ratio)[own.asked]))
        return torch.cat([found for found, _ in parts]), torch.cat([sums for _, sums in parts])

    def _held(self, cache: torch.Tensor, blocks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of some rows of blocks: (rows, heads of keys, tokens, head size)."""
        tokens = cache.shape[2]
        taken = cache.view(*cache.shape[:2], -1).index_select(0, blocks.flatten()).unflatten(0, blocks.shape).float()
        keys, values = taken.transpose(1, 2).chunk(2, dim=3)
        keys = keys.unflatten(3, (self.head_size, tokens)).transpose(3, 4)
        values = values.unflatten(3, (tokens, self.head_size))
        # The kernel that these are given takes numbers of a token to lie side by side.
        return keys.flatten(2, 3).contiguous(), values.flatten(2, 3).contiguous()


def _weighed(
    found: torch.Tensor, sums: torch.Tensor, more: torch.Tensor, of_more: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """What is found in two sets of keys together, and the logarithm of its sum of exponentials."""
    return torch.lerp(found, more, (of_more - sums).sigmoid()), torch.logaddexp(sums, of_more)


class Backend(CPUAttentionBackend):  # type: ignore[misc]
    """Put in the place of `CPU_ATTN` by `register_backend`."""

    @staticmethod
    def get_supported_kernel_block_sizes(kv_cache_spec: Any = None) -> list[int | MultipleOf]:
        return [MultipleOf(16)]

    @staticmethod
    def get_impl_cls() -> type[CPUAttentionBackendImpl]:
        return Attention

    @staticmethod
    def get_builder_cls() -> type[CPUAttentionMetadataBuilder]:
        return Builder
