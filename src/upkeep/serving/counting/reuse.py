"""What an engine would reuse of earlier prompts, by its kind."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from upkeep.cell.tokens import Segment, TokenPrompt, shared_segments
from upkeep.contract import CellDescription
from upkeep.serving.lanes import KEPT_TOKENS
from upkeep.serving.segments import KeptSegments

BLOCK = 16
"""Tokens that vLLM shares at a time (`upkeep.serving.vllm_engine.BLOCK`)."""
QUESTION = 2
"""Segments of a prompt at its end that a question takes, and what a template puts after it."""
ENDPOINT_BLOCK = 1024
"""Tokens that an endpoint shares at a time, at least: providers' caches begin at some thousand tokens."""


class Reuse(Protocol):
    """What an engine keeps of earlier prompts."""

    def reused(self, prompt: TokenPrompt) -> int:
        """Leading tokens of a prompt that need not be computed, given all prompts before."""
        ...

    def generated(self, prompt: TokenPrompt, ids: Sequence[int]) -> None:
        """Take notice of what was generated after a prompt."""
        ...

    def forget(self) -> None:
        """Drop everything."""


class Nothing:
    """The prefix cache is off."""

    def reused(self, prompt: TokenPrompt) -> int:
        return 0

    def generated(self, prompt: TokenPrompt, ids: Sequence[int]) -> None:
        pass

    def forget(self) -> None:
        pass


class Segments:
    """The transformers engine: whole segments of the latest prompt, and of earlier ones as far as there is room; the
    last segment is always computed.

    Args:
        room: tokens that are kept of earlier prompts; None for all.
    """

    def __init__(self, room: int | None) -> None:
        self.held: Sequence[Segment[int]] = ()
        self._kept: KeptSegments[None] = KeptSegments(room)

    def reused(self, prompt: TokenPrompt) -> int:
        leading = prompt.segments[:-1]
        n = max(shared_segments(self.held, leading), len(self._kept.find(leading)))
        self.held = prompt.segments
        self._kept.keep(prompt.segments, lambda _: None)
        return sum(map(len, prompt.segments[:n]))

    def generated(self, prompt: TokenPrompt, ids: Sequence[int]) -> None:
        pass

    def forget(self) -> None:
        self.held = ()
        self._kept.clear()


class Same:
    """An engine of a method's own: the latest prompt up to its question, where all before that is the same."""

    def __init__(self) -> None:
        self.held: Sequence[Segment[int]] = ()

    def reused(self, prompt: TokenPrompt) -> int:
        n = len(prompt.segments) - QUESTION
        same = len(self.held) == len(prompt.segments) and shared_segments(self.held, prompt.segments) >= n
        self.held = prompt.segments
        return sum(map(len, prompt.segments[:n])) if same and n > 0 else 0

    def generated(self, prompt: TokenPrompt, ids: Sequence[int]) -> None:
        pass

    def forget(self) -> None:
        self.held = ()


class Blocks:
    """vLLM and endpoints: whole blocks of earlier prompts and answers, the latest ones as far as there is room.

    A block is known by the hash of all tokens up to its end, so a lookup takes time linear in the prompt. Where there
    is no more room, the block goes that was not asked for longest, of one prompt the last one first, as in vLLM.

    Args:
        size: tokens of a block.
        room: tokens that are kept at most; None for all, for as long as the engine runs.
    """

    def __init__(self, size: int, room: int | None = None) -> None:
        self._bytes = size * array("i").itemsize
        self._size = size
        self._room = None if room is None else room // size
        self._known: dict[int, None] = {}
        """From the one that was not asked for longest."""

    def reused(self, prompt: TokenPrompt) -> int:
        keys = list(self._keys(prompt, ()))
        hits = next((n for n, key in enumerate(keys) if key not in self._known), len(keys))
        self._keep(keys)
        # The last token is always computed, for its logits are not kept.
        return min(hits, (prompt.length - 1) // self._size) * self._size

    def generated(self, prompt: TokenPrompt, ids: Sequence[int]) -> None:
        self._keep(list(self._keys(prompt, ids)))

    def forget(self) -> None:
        self._known.clear()

    def _keep(self, keys: Sequence[int]) -> None:
        known, room = self._known, self._room
        if room is None:
            known.update(dict.fromkeys(keys))
            return
        for key in reversed(keys):
            known.pop(key, None)
            known[key] = None
        for key in list(itertools.islice(known, max(0, len(known) - room))):
            del known[key]

    def _keys(self, prompt: TokenPrompt, ids: Sequence[int]) -> Iterator[int]:
        return block_keys([*prompt.segments, array("i", ids)], self._bytes)


def block_keys(segments: Sequence[Segment[int]], size: int) -> Iterator[int]:
    """The key of each whole block of a prompt: prompts that begin alike have their first keys in common.

    Args:
        size: bytes of a block.
    """
    data = b"".join(segment.tobytes() for segment in segments)
    key = 0
    for start in range(0, len(data) - size + 1, size):
        key = hash((key, data[start : start + size]))
        yield key


def computed(prompts: Iterable[TokenPrompt], kept: Reuse) -> int:
    """Tokens that are computed of prompts that come one after the other."""
    return sum(prompt.length - kept.reused(prompt) for prompt in prompts)


def least(prompts: Sequence[TokenPrompt], size: int) -> int:
    """Tokens that have to be computed of prompts in whatever order: each block that several begin with once.

    It is what the prompts cost in the order of their blocks, each after the one that it has most in common with. That
    order needs a cache with room for one prompt alone, so with whatever larger one nothing less can be reached.

    Args:
        size: tokens of a block.
    """
    length = size * array("i").itemsize
    keys = [array("q", block_keys(prompt.segments, length)).tobytes() for prompt in prompts]
    # Of two that end in the same block the shorter one first: the last token of a prompt is always computed.
    order = sorted(range(len(prompts)), key=lambda place: (keys[place], prompts[place].length))
    longest = max((prompt.length for prompt in prompts), default=0)
    return computed((prompts[place] for place in order), Blocks(size, longest + size))


def reuse(cell: CellDescription, held: bool | None = None, room: int | None = None) -> Reuse:
    """What the engine that a cell names keeps.

    Args:
        held: whether it keeps what a question was asked before (`CountJob.held`).
        room: tokens that vLLM keeps at most; None for all. Of a sample the transformers engine is taken to keep what
            `held` says.
    """
    if not cell.engine.prefix_cache:
        return Nothing()
    match cell.engine.name:
        case "transformers":
            return Segments(KEPT_TOKENS if held is None else None if held else 0)
        case "own":
            return Same()
        case "vllm":
            return Blocks(int(cell.engine.options.get("block_size", BLOCK)), room)
        case _:
            return Blocks(ENDPOINT_BLOCK)
