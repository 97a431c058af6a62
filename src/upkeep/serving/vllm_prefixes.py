"""What vLLM is told of prompts that begin alike, so that none of it is made anew for each.

vLLM is given a prompt as a list of tokens, and hashes it block by block before it looks what of it its cache holds: at
66,000 tokens that takes longer than a small model's answer. Prompts of a stream differ in their last segment alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from upkeep.cell.tokens import Segment, TokenPrompt, shared_segments

HELD, HELD_TOKENS = 128, 2_000_000
"""Prompts that are remembered, and their tokens, at most: some 100 MB, and looked through in less than it takes to hash
one of them."""
LONG = 4096
"""Tokens; a shorter prompt is hashed sooner than another one is found."""
NEAR = 2
"""Segments of its own that a prompt has after a stream's documents: its question, and what a template puts after it."""


@dataclass(slots=True)
class Held:
    """A prompt that vLLM was given."""

    segments: Sequence[Segment[int]]
    adapter: str
    """By whose name vLLM tells its hashes from others; empty for none."""
    ids: list[int]
    hashes: list[Any] = field(default_factory=list)
    """Of its whole blocks, from the first one on."""


class Prefixes:
    """The prompts that an engine was given last.

    Args:
        block: tokens that vLLM hashes at a time.
        hasher: vLLM's: gives the hashes of a request's whole blocks after those that it has.
    """

    def __init__(self, block: int, hasher: Callable[[Any], list[Any]]) -> None:
        self._block, self._hasher = block, hasher
        self._held: deque[Held] = deque()
        self._size = 0
        self._next: Held | None = None

    def ids(self, prompt: TokenPrompt, more: Sequence[int] = (), adapter: str = "") -> list[int]:
        """The tokens of the prompt that vLLM is given next, and of what follows it."""
        self._next = None
        if prompt.length < LONG:
            return [*prompt.ids(), *more]
        held, shared = self._nearest(prompt.segments, adapter)
        known = sum(map(len, prompt.segments[:shared]))
        ids = held.ids[:known] if held is not None else []
        for segment in prompt.segments[shared:]:
            ids += segment.tolist()
        ids += more
        hashes = held.hashes[: known // self._block] if held is not None else []
        self._next = Held(prompt.segments, adapter, ids, hashes)
        return ids

    def hashes(self, request: Any) -> list[Any]:
        """Stands in the place of `hasher`."""
        told, self._next = self._next, None
        if told is None or request.block_hashes or request.prompt_token_ids != told.ids:
            return self._hasher(request)  # it goes on with its answer
        request.block_hashes.extend(told.hashes)
        found = self._hasher(request)
        told.hashes = [*told.hashes, *found]
        self._keep(told)
        return found

    def _nearest(self, segments: Sequence[Segment[int]], adapter: str) -> tuple[Held | None, int]:
        """The prompt that has most leading segments in common with these, and how many; the latest one, where that
        differs in its question alone."""
        best, most = None, 0
        for held in reversed(self._held):
            shared = shared_segments(held.segments, segments) if held.adapter == adapter else 0
            if shared > most:
                best, most = held, shared
            if shared >= len(segments) - NEAR:
                break
        return best, most

    def _keep(self, held: Held) -> None:
        self._held.append(held)
        self._size += len(held.ids)
        while len(self._held) > HELD or (self._size > HELD_TOKENS and len(self._held) > 1):
            self._size -= len(self._held.popleft().ids)


GROUP = (0).to_bytes(4, "big")
"""What vLLM puts after a block's hash where all layers keep the same of a prompt."""


def search_of(coordinator: Any) -> Callable[[Sequence[bytes], int], tuple[tuple[list[Any]], int, int]]:
    """vLLM's search for what its cache holds of a prompt, where all layers keep all of it: its own makes a dozen calls
    for each block, thousands of times a prompt. To stand in the place of its `find_longest_cache_hit`.

    Args:
        coordinator: vLLM's, of one group of layers that attend to everything.
    """

    def search(block_hashes: Sequence[bytes], max_cache_hit_length: int) -> tuple[tuple[list[Any]], int, int]:
        held = coordinator.block_pool.cached_block_hash_to_block._cache  # another one after a reset
        whole = max_cache_hit_length // coordinator.block_size
        found = [*map(held.get, [one + GROUP for one in islice(block_hashes, whole)])]
        del found[next((n for n, one in enumerate(found) if one is None), whole) :]
        if dict in set(map(type, found)):  # of blocks with the same content
            found = [next(iter(one.values())) if isinstance(one, dict) else one for one in found]
        return (found,), len(found) * coordinator.block_size, 0

    return search
