"""Invented names for small worlds: readable, of many kinds, and never met outside of them.

Names come in two halves that share none: what a model of ours may be trained on, and what is held out, so that reading
and not memory is measured.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from random import Random

from upkeep.errors import UpkeepError

# fmt: off
_ONSETS = [
    "b", "br", "c", "cl", "d", "dr", "f", "fl", "g", "gr", "h", "j", "k", "kl", "l", "m", "n", "p", "pr", "qu", "r",
    "s", "sk", "st", "t", "tr", "v", "w", "z",
]
_VOWELS = ["a", "e", "i", "o", "u", "ai", "ea", "io", "ou"]
_CODAS = ["", "", "l", "m", "n", "r", "s", "th", "x", "nd", "rk", "st"]
_LAST = ["son", "berg", "wick", "ford", "mere", "dale", "ley", "stone", "strom", "vale"]
_PLACE = ["ville", "ton", "port", "field", "bridge", "haven", "burg", "stead", "mouth", "holm"]
# fmt: on

_TRIES = 10_000
"""For one name: far more than it takes while there are any left to speak of."""


def is_held_out(word: str) -> bool:
    """Which half a word belongs to: decided by the word alone."""
    return hashlib.sha256(word.lower().encode()).digest()[0] % 2 == 1


class Names:
    """Draws names, each once.

    Args:
        rng: their order.
        held_out: which half they come from; None for both.
        taken: words that are not to come up, in any case.

    Raises:
        UpkeepError: a kind has no more names; there are some ten thousand of each in a half.
    """

    def __init__(self, rng: Random, held_out: bool | None = True, taken: Sequence[str] = ()) -> None:
        self._rng, self._held_out = rng, held_out
        self._taken = {word.lower() for word in taken}

    def _word(self, syllables: int, ends: Sequence[str] = ("",)) -> str:
        draw = self._rng.choice
        for _ in range(_TRIES):
            body = "".join(draw(_ONSETS) + draw(_VOWELS) for _ in range(syllables)) + draw(_CODAS)
            word = body + draw(ends)
            right_half = self._held_out is None or is_held_out(word) == self._held_out
            if right_half and word not in self._taken and len(word) >= 4:
                self._taken.add(word)
                return word
        raise UpkeepError("no new name is left", expected="fewer of one kind", found=f"{len(self._taken)} names")

    def person(self) -> str:
        """A first name and a family name."""
        return f"{self._word(2).capitalize()} {self.family()}"

    def first(self) -> str:
        """A first name."""
        return self._word(2).capitalize()

    def family(self) -> str:
        """A family name."""
        return self._word(1, _LAST).capitalize()

    def place(self) -> str:
        """A town."""
        return self._word(1, _PLACE).capitalize()

    def thing(self) -> str:
        """A product, an organisation, a project."""
        return self._word(2).capitalize()

    def word(self) -> str:
        """A word in lower case, as for an identifier."""
        return self._word(2)
