"""What an engine would reuse of earlier prompts, by its kind."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Protocol

from upkeep.cell.tokens import Segment, TokenPrompt, shared_segments
from upkeep.contract import CellDescription

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


class Latest:
    """The transformers engine: whole segments of the latest prompt; the last segment is always computed."""

    def __init__(self) -> None:
        self.held: Sequence[Segment[int]] = ()

    def reused(self, prompt: TokenPrompt) -> int:
        n = min(shared_segments(self.held, prompt.segments), len(prompt.segments) - 1)
        self.held = prompt.segments
        return sum(map(len, prompt.segments[:n]))

    def generated(self, prompt: TokenPrompt, ids: Sequence[int]) -> None:
        pass

    def forget(self) -> None:
        self.held = ()


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
    """vLLM and endpoints: whole blocks of every earlier prompt and answer, for as long as the engine runs.

    A block is known by the hash of all tokens up to its end, so a lookup takes time linear in the prompt.
    """

    def __init__(self, size: int) -> None:
        self._bytes = size * array("i").itemsize
        self._size = size
        self._known: set[int] = set()

    def reused(self, prompt: TokenPrompt) -> int:
        hits, known, counting = 0, self._known, True
        for key in self._keys(prompt, ()):
            counting = counting and key in known
            hits += counting
            known.add(key)
        # The last token is always computed, for its logits are not kept.
        return min(hits, (prompt.length - 1) // self._size) * self._size

    def generated(self, prompt: TokenPrompt, ids: Sequence[int]) -> None:
        self._known.update(self._keys(prompt, ids))

    def forget(self) -> None:
        self._known.clear()

    def _keys(self, prompt: TokenPrompt, ids: Sequence[int]) -> Iterator[int]:
        data = b"".join(segment.tobytes() for segment in prompt.segments) + array("i", ids).tobytes()
        key = 0
        for start in range(0, len(data) - self._bytes + 1, self._bytes):
            key = hash((key, data[start : start + self._bytes]))
            yield key


def reuse(cell: CellDescription) -> Reuse:
    """What the engine that a cell names keeps."""
    if not cell.engine.prefix_cache:
        return Nothing()
    match cell.engine.name:
        case "transformers":
            return Latest()
        case "own":
            return Same()
        case "vllm":
            return Blocks(int(cell.engine.options.get("block_size", BLOCK)))
        case _:
            return Blocks(ENDPOINT_BLOCK)
