"""Invented names of worlds, found and replaced by fresh ones, so that a name tells a model nothing.

A word that few worlds of a dataset share is an invented name: the generators' own words come back in world after world.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from random import Random

import msgspec

from recipe.worlds import World

SHARED = 0.12
"""Share of a dataset's worlds that a word of the generator's own is in, at least."""
_WORD = re.compile(r"[A-Za-z]{3,}")
ENDING = re.compile(
    "(son|berg|wick|ford|mere|dale|ley|stone|strom|vale|ville|ton|port|field|bridge|haven|burg|stead|mouth|holm"
    "|orium|ary|erie|hold|ance)$"
)
"""Endings of names that tell their kind."""


def texts(world: World) -> Iterable[str]:
    """All that a world says."""
    yield from (document.text for document in world.documents)
    for probe, gold in zip(world.probes, world.golds, strict=True):
        yield from (probe.question, *(probe.options or ()), *gold.answers, *gold.context)
    yield from (f"{pair.question} {pair.answer}" for pair in world.pairs)


def ordinary(texts: Iterable[str], names: frozenset[str]) -> frozenset[str]:
    """The words of texts that are no names, each as it stands there."""
    return frozenset(w for text in texts for w in _WORD.findall(text) if w.lower() not in names)


def words_of(worlds: Iterable[World]) -> frozenset[str]:
    """All words of worlds, in lower case."""
    return frozenset(word.lower() for world in worlds for text in texts(world) for word in _WORD.findall(text))


def invented(worlds: Sequence[World], vocabulary: Iterable[str]) -> frozenset[str]:
    """The invented words of all worlds, in lower case.

    Args:
        vocabulary: texts whose words are none.
    """
    shared = {word.lower() for text in vocabulary for word in _WORD.findall(text)}
    every = set[str]()
    for dataset in sorted({world.dataset for world in worlds}):
        mine = [world for world in worlds if world.dataset == dataset]
        counts = Counter(
            word for world in mine for word in {w.lower() for text in texts(world) for w in _WORD.findall(text)}
        )
        shared.update(word for word, count in counts.items() if count >= max(2, SHARED * len(mine)))
        every.update(counts)
    return frozenset(every - shared)


class Pools(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Fresh names, in lower case."""

    plain: list[str]
    ended: dict[str, list[str]]
    """Names with an ending that tells their kind, by the ending."""
    chinese: list[list[str]] = []
    """Of persons, and of places; all of one list have the same length."""

    def without(self, words: frozenset[str]) -> Pools:
        """Those that are none of these words."""
        return self.those(lambda name: name not in words)

    def those(self, wanted: Callable[[str], bool]) -> Pools:
        """Those that are wanted, and all Chinese ones."""

        def left(names: Sequence[str]) -> list[str]:
            return [name for name in names if wanted(name)]

        return Pools(left(self.plain), {end: left(names) for end, names in self.ended.items()}, self.chinese)

    def fresh(self, word: str, rng: Random) -> str:
        """Another word of the same ending, in lower case."""
        ending = ENDING.search(word)
        return rng.choice(self.ended[ending[0]] if ending and ending[0] in self.ended else self.plain)


def renamer(pools: Pools, names: frozenset[str], rng: Random) -> Callable[[str], str]:
    """A function that replaces every invented name of a text, each always by the same one."""
    chosen: dict[str, str] = {}
    used = set[str]()

    def replace(match: re.Match[str]) -> str:
        word = match[0]
        low = word.lower()
        if low not in names:
            return word
        if low not in chosen:
            new = pools.fresh(low, rng)
            while new in used:
                new = pools.fresh(low, rng)
            used.add(new)
            chosen[low] = new
        new = chosen[low]
        return new if word[0].islower() else new.capitalize()

    chinese = _chinese(pools, chosen, rng)
    return lambda text: chinese(_WORD.sub(replace, text))


def _chinese(pools: Pools, chosen: dict[str, str], rng: Random) -> Callable[[str], str]:
    """Replaces Chinese names."""
    pattern = _pattern(pools)

    def replace(match: re.Match[str]) -> str:
        word = match[0]
        assert match.lastindex is not None
        while word not in chosen:
            new = rng.choice(pools.chinese[match.lastindex - 1])
            if new not in chosen.values():
                chosen[word] = new
        return chosen[word]

    return lambda text: text if text.isascii() else pattern.sub(replace, text)


def chinese_names(pools: Pools) -> Callable[[str], list[str]]:
    """A function that finds a text's Chinese names, of either half."""
    pattern = _pattern(pools)
    return lambda text: [] if text.isascii() else [match[0] for match in pattern.finditer(text)]


def _pattern(pools: Pools) -> re.Pattern[str]:
    """Chinese names are known by the characters that they have at each place: a group a kind."""
    kinds = ["".join(f"[{''.join(sorted(set(at)))}]" for at in zip(*names, strict=True)) for names in pools.chinese]
    return re.compile("|".join(f"({kind})" for kind in kinds) or "(?!)")
