"""What an answer may go on with, guessed from what stands before it and from earlier answers."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from upkeep.cell.tokens import Segment
from upkeep.serving.lanes import ANSWER_TOKENS

LONGEST = 3
"""Tokens that are looked for first in a sequence; then fewer."""
SURE = 3
"""Tokens of a draft at most where fewer were found."""
KNOWN_BY = (8, 4)
"""Tokens by which it is known how an earlier answer went on."""
SIZE = array("i").itemsize
"""Bytes of a token."""


class Answers:
    """Earlier answers, by the 8 and by the 4 tokens before any place in them: a model says of other questions, and at
    other intervals, much in the words that it has found before (Oliaro et al. 2024). The latest place counts.

    Args:
        room: tokens of the latest answers that are held, and of as many before them.
    """

    def __init__(self, room: int = ANSWER_TOKENS) -> None:
        self._room = room
        self.clear()

    def clear(self) -> None:
        """Forget them all."""
        self._tokens = 0
        self._places: dict[bytes, tuple[bytes, int]] = {}
        """By the tokens up to a place the text, and where in it the place is."""
        self._before: dict[bytes, tuple[bytes, int]] = {}
        """Of answers before those."""

    def keep(self, text: bytes, begin: int) -> None:
        """Remember an answer.

        Args:
            text: some tokens before it, and the answer.
            begin: the byte at which it begins.
        """
        for place in range(begin, len(text), SIZE):
            for tokens in KNOWN_BY:
                if (start := place - tokens * SIZE) >= 0:
                    self._places[text[start:place]] = text, place
        self._tokens += (len(text) - begin) // SIZE
        if self._tokens >= self._room:
            self._before, self._places, self._tokens = self._places, {}, 0

    def after(self, text: bytearray, most: int) -> list[int]:
        """Up to `most` tokens that came after the last ones of a text."""
        for tokens in KNOWN_BY:
            last = bytes(text[-tokens * SIZE :])
            if found := self._places.get(last) or self._before.get(last):
                known, place = found
                return array("i", known[place : place + most * SIZE]).tolist()
        return []


class Drafts:
    """Prompt lookup decoding (Saxena 2023): where an answer's latest tokens stood before, in the prompt or in the
    answer itself, it may go on as it did there. What earlier answers went on with comes first.

    Args:
        prompt: its segments.
        answers: without them nothing but the sequence decides on a draft.
    """

    def __init__(self, prompt: Sequence[Segment[int]], answers: Answers | None = None) -> None:
        self._text = bytearray().join(segment.tobytes() for segment in prompt)
        self._prompt = len(self._text)
        self._answers = answers

    def after(self, answer: Sequence[int], most: int) -> list[int]:
        """Up to `most` tokens that may come after an answer, which is longer than when this was asked before."""
        self._read(answer)
        if most <= 0:
            return []
        if self._answers is not None and (found := self._answers.after(self._text, most)):
            return found
        text = self._text
        for length in range(min(LONGEST, len(text) // SIZE - 1), 0, -1):
            if (end := self._latest(length * SIZE)) is not None:
                most = most if length == LONGEST else min(most, SURE)
                return array("i", bytes(text[end : end + most * SIZE])).tolist()
        return []

    def ended(self, answer: Sequence[int]) -> None:
        """Remember the whole answer for later ones."""
        if self._answers is not None:
            self._read(answer)
            start = max(0, self._prompt - max(KNOWN_BY) * SIZE)
            self._answers.keep(bytes(self._text[start:]), self._prompt - start)

    def _read(self, answer: Sequence[int]) -> None:
        self._text += array("i", answer[(len(self._text) - self._prompt) // SIZE :]).tobytes()

    def _latest(self, length: int) -> int | None:
        """Where the latest earlier occurrence of the last bytes ends, if it is one of whole tokens."""
        wanted, end = self._text[-length:], len(self._text) - SIZE
        while (found := self._text.rfind(wanted, 0, end)) >= 0:
            if found % SIZE == 0:
                return found + length
            end = found + length - 1
        return None
