"""Tokens by the bytes of a text, where a tokenizer is not at hand or too slow."""

from __future__ import annotations

import functools
import itertools
import json
import math
from collections.abc import Sequence
from typing import Any

from upkeep.cell.interface import Message
from upkeep.cell.tokens import Scorable, Segment, TokenPrompt


class ByteTokens:
    """Stands in for a tokenizer that is not at hand, or too slow for a large dataset: tokens of equal length.

    A prompt has a segment for each part of its messages, so it shares tokens with others as far as it shares parts.

    Args:
        rate: tokens a byte (UTF-8).
    """

    HEADER = Segment("i", [-1, -2, -3, -4])
    """What a chat template puts around a message, about."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._texts: list[str] = []
        self.segment = functools.lru_cache(maxsize=4096)(self._segment)

    def _segment(self, text: str) -> Segment[int]:
        import numpy as np

        data = np.frombuffer(text.encode("utf-8", "surrogatepass") + b"\0\0", dtype=np.uint8).astype(np.int32)
        places = (np.arange(self.count(text)) / self._rate).astype(np.int64)
        ids = data[places] << 16 | data[places + 1] << 8 | data[places + 2]
        return Segment("i", ids.tobytes())

    def prompt(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]] = ()) -> TokenPrompt:
        shown = [self.segment(json.dumps(list(tools)))] if tools else []
        parts = (segment for m in messages for segment in (self.HEADER, *map(self.segment, m["parts"])))
        return TokenPrompt.of([*shown, *filter(len, parts), self.HEADER])

    def scorable(self, prompt: str | Sequence[Message], continuation: str) -> Scorable:
        before = TokenPrompt.of([self.segment(prompt)]) if isinstance(prompt, str) else self.prompt(prompt)
        ids = self.segment(continuation)
        cuts = [n * len(continuation) // len(ids) for n in range(len(ids) + 1)] if ids else []
        return Scorable(before, ids, list(itertools.pairwise(cuts)))

    def count(self, text: str) -> int:
        return math.ceil(len(text.encode("utf-8", "surrogatepass")) * self._rate)

    def encode(self, text: str) -> Sequence[int]:
        """A short text as tokens that `decode` knows."""
        cuts = [math.floor(i / self._rate) for i in range(math.ceil(len(text) * self._rate))]
        first = len(self._texts)
        self._texts += [text[a:b] for a, b in itertools.pairwise([*cuts, len(text)])]
        return [-5 - place for place in range(first, len(self._texts))]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(self._texts[-5 - i] for i in ids)
