"""What an answer may go on with, guessed from what stands before it."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import chain

from upkeep.cell.tokens import Segment

LONGEST = 3
"""Tokens that are looked for first; then fewer."""


class Drafts:
    """Prompt lookup decoding (Saxena 2023): where an answer's latest tokens stood before, in the prompt or in the
    answer itself, it may go on as it did there. Nothing but the sequence decides on a draft.

    Args:
        prompt: its segments.
    """

    def __init__(self, prompt: Sequence[Segment[int]]) -> None:
        self._tokens = array("i", chain.from_iterable(prompt))
        self._prompt = len(self._tokens)

    def after(self, answer: Sequence[int], most: int) -> list[int]:
        """Up to `most` tokens that may come after an answer, which is longer than when this was asked before."""
        tokens = self._tokens
        tokens.extend(answer[len(tokens) - self._prompt :])
        if most <= 0:
            return []
        text = tokens.tobytes()
        for length in range(min(LONGEST, len(tokens) - 1), 0, -1):
            if (end := _latest(text, length * tokens.itemsize, tokens.itemsize)) is not None:
                return tokens[end : end + most].tolist()
        return []


def _latest(text: bytes, length: int, size: int) -> int | None:
    """The place after the latest earlier occurrence of the last bytes, counted in tokens of `size` bytes."""
    wanted, end = text[-length:], len(text) - size
    while (found := text.rfind(wanted, 0, end)) >= 0:
        if found % size == 0:
            return (found + length) // size
        end = found + length - 1
    return None
