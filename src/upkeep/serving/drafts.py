"""What an answer may go on with, guessed from what stands before it."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from upkeep.cell.tokens import Segment

LONGEST = 3
"""Tokens that are looked for first; then fewer."""
SIZE = array("i").itemsize
"""Bytes of a token."""


class Drafts:
    """Prompt lookup decoding (Saxena 2023): where an answer's latest tokens stood before, in the prompt or in the
    answer itself, it may go on as it did there. Nothing but the sequence decides on a draft.

    Args:
        prompt: its segments.
    """

    def __init__(self, prompt: Sequence[Segment[int]]) -> None:
        self._text = bytearray().join(segment.tobytes() for segment in prompt)
        self._prompt = len(self._text)

    def after(self, answer: Sequence[int], most: int) -> list[int]:
        """Up to `most` tokens that may come after an answer, which is longer than when this was asked before."""
        text = self._text
        text += array("i", answer[(len(text) - self._prompt) // SIZE :]).tobytes()
        if most <= 0:
            return []
        for length in range(min(LONGEST, len(text) // SIZE - 1), 0, -1):
            if (end := self._latest(length * SIZE)) is not None:
                return array("i", bytes(text[end : end + most * SIZE])).tolist()
        return []

    def _latest(self, length: int) -> int | None:
        """Where the latest earlier occurrence of the last bytes ends, if it is one of whole tokens."""
        wanted, end = self._text[-length:], len(self._text) - SIZE
        while (found := self._text.rfind(wanted, 0, end)) >= 0:
            if found % SIZE == 0:
                return found + length
            end = found + length - 1
        return None
