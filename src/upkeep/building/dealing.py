"""The order of a question's options: shuffled, and dealt so that each letter is right about as often as any other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random

from upkeep.building.assembling import LETTERS, Item

DRAWS = 50
"""Orders that one is chosen from."""
Right = tuple[int, Mapping[str, str]]
"""Of a probe: the place of the right option, and its slices."""


class Deal:
    """Deals one question after the other: of some seeded orders it takes the one whose right letters were right least
    often before, among all probes and among those of each slice."""

    def __init__(self, seed: str) -> None:
        self._rng = Random(seed)
        self._counts: Counter[tuple[str, str, int]] = Counter()
        """(slice, value, letter's place) -> probes for which it is right."""

    def order(self, options: int, right: Sequence[Right]) -> list[int]:
        """The places of so many options in their new order.

        Args:
            right: of each probe that offers them.
        """

        def gained(order: Sequence[int]) -> Counter[tuple[str, str, int]]:
            return Counter((*kind, order.index(at)) for at, slices in right for kind in [("", ""), *slices.items()])

        def uneven(order: Sequence[int]) -> int:  # by how much the sum of squares grows
            return sum(more * (2 * self._counts[one] + more) for one, more in gained(order).items())

        best = min((self._rng.sample(range(options), options) for _ in range(DRAWS)), key=uneven)
        self._counts += gained(best)
        return best


def dealt(items: Sequence[Item], seed: str) -> list[Item]:
    """The items, the options of `choice` in a new order: one for all items that ask the same of a stream."""
    alike: dict[tuple[str, str, tuple[str, ...]], list[int]] = {}
    for n, item in enumerate(items):
        if item.form == "choice":
            alike.setdefault((item.stream, item.text, tuple(item.options or ())), []).append(n)
    deal, found = Deal(seed), list(items)
    for (_, _, options), places in alike.items():
        mine = [items[n] for n in places]
        order = deal.order(len(options), [(LETTERS.index(item.answers[0]), item.slices) for item in mine])
        letter = {LETTERS[before]: LETTERS[now] for now, before in enumerate(order)}
        for n, item in zip(places, mine, strict=True):
            found[n] = replace(
                item,
                options=[options[place] for place in order],
                answers=[letter[answer] for answer in item.answers],
                outdated=sorted(letter[old] for old in item.outdated),
            )
    return found
