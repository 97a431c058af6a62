"""Questions that several features decide together: whether one release added both, which came first, how many of some.

CompRel is to combine what was newly told (ImprintBench, 2); that of Code (D.2) is about users' code and needs a
writer. These are by rule, of facts that every document states: release, date, what is new. They are closed: of the
features that a question lists the documents tell all. How many a release added in all would not be, for notes are not
read without a miss.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from random import Random

from upkeep.building.assembling import Item

from .features import PARAMETER, Feature
from .questions import Entry, Writer
from .sources import version_key

SAME, ORDER, COUNT = "comp_rel_same", "comp_rel_order", "comp_rel_count"
LISTED = 3
"""Features of a question of COUNT."""
ALIKE = ("the same", "different")
TURNS = ("earlier", "later")
"""No label is "No": who says `no information` would be read as choosing it."""
COUNTS = tuple(str(n) for n in range(LISTED + 1))


def settled(entries: Sequence[Entry]) -> list[Entry]:
    """Features of which no document of another release of their library speaks: their release is beyond doubt."""
    said = [frozenset(re.findall(r"\w+", entry.body)) for entry in entries]

    def is_named_elsewhere(mine: Feature) -> bool:
        names = {mine.leaf, *(parent.rpartition(".")[2] for parent in mine.parents[:1])}
        return any(
            names <= words
            for other, words in zip(entries, said, strict=True)
            if other.feature.library == mine.library and other.feature.version != mine.version
        )

    return [entry for entry in entries if not is_named_elsewhere(entry.feature)]


def called(feature: Feature) -> str:
    """How questions name it."""
    if feature.kind == PARAMETER:
        return f"the parameter {feature.leaf} of {feature.parents[0]}"
    return f"the {feature.kind} {feature.canonical}"


def same(entries: Sequence[Entry], writer: Writer, rng: Random) -> list[Item]:
    """SAME: whether two features, told in two places of the notes, came with one release; as often as not."""

    def is_right(first: Entry, second: Entry, label: str) -> bool:
        alike = first.feature.version == second.feature.version
        return alike == (label == ALIKE[0]) and first.feature.block.text != second.feature.block.text

    found = []
    for first, second, label in _paired(entries, ALIKE, is_right, writer, rng):
        names = [called(entry.feature) for entry in (first, second)]
        rng.shuffle(names)
        both, library = " and ".join(names), first.feature.library
        text = f"Did {both} come to {library} with the same release or with different ones?"
        found.append(writer.item(SAME, _id(first, second), text, [label], [first, second], ALIKE))
    return [item for item in found if item is not None]


def order(entries: Sequence[Entry], writer: Writer, rng: Random) -> list[Item]:
    """ORDER: whether one feature came before another, by the dates of their releases; as often as not."""

    def is_right(first: Entry, second: Entry, label: str) -> bool:
        return is_before(first, second) or is_before(second, first)  # either label, by which is named first

    found = []
    for one, other, label in _paired(entries, TURNS, is_right, writer, rng):
        first, second = (one, other) if is_before(one, other) == (label == TURNS[0]) else (other, one)
        names = [called(entry.feature) for entry in (first, second)]
        text = f"Did {names[0]} come to {first.feature.library} earlier or later than {names[1]}?"
        found.append(writer.item(ORDER, _id(first, second), text, [label], [first, second], TURNS))
    return [item for item in found if item is not None]


def is_before(first: Entry, second: Entry) -> bool:
    """Whether date and version both say so: a bugfix release of an old version may have the later date."""
    if first.date is None or second.date is None:
        return False
    return first.date < second.date and version_key(first.feature.version) < version_key(second.feature.version)


def count(entries: Sequence[Entry], writer: Writer, rng: Random) -> list[Item]:
    """COUNT: how many of LISTED features came with a release; each number as often as any other."""
    found = []
    for mine in _libraries(entries):
        used: Counter[int] = Counter()
        asked: set[tuple[str, frozenset[str]]] = set()
        for first in rng.sample(mine, len(mine)):
            for number in sorted(range(LISTED + 1), key=lambda n: (used[n], rng.random())):
                version, chosen = _listed(first, mine, number, rng)
                key = version, frozenset(called(entry.feature) for entry in chosen)
                if len(key[1]) == LISTED and key not in asked:
                    break
            else:
                writer.left_out["nothing to compare with"] += 1
                continue
            asked.add(key)
            used[number] += 1
            rng.shuffle(chosen)
            names = [called(entry.feature) for entry in chosen]
            library = first.feature.library
            text = f"How many of these came with {library} {version}: {', '.join(names[:-1])} and {names[-1]}?"
            name = f"{version}_{'_'.join(sorted(key[1]))}"
            found.append(writer.item(COUNT, name, text, [str(number)], chosen, COUNTS))
    return [item for item in found if item is not None]


def _listed(first: Entry, mine: Sequence[Entry], number: int, rng: Random) -> tuple[str, list[Entry]]:
    """A release and features, `first` among them, of which so many came with it; fewer than LISTED where there are
    not enough."""
    own = first.feature.version
    version = own if number else rng.choice([one for one in _versions(mine) if one != own])
    inside = [entry for entry in mine if entry.feature.version == version and entry is not first]
    outside = [entry for entry in mine if entry.feature.version != version and entry is not first]
    wanted = (number - 1, LISTED - number) if number else (0, LISTED - 1)
    if wanted[0] > len(inside) or wanted[1] > len(outside):
        return version, []
    return version, [first, *rng.sample(inside, wanted[0]), *rng.sample(outside, wanted[1])]


def _versions(entries: Sequence[Entry]) -> list[str]:
    return list(dict.fromkeys(entry.feature.version for entry in entries))


def _libraries(entries: Sequence[Entry]) -> list[list[Entry]]:
    """The features of each library of which several releases add something."""
    found: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        found.setdefault((entry.stream, entry.feature.library), []).append(entry)
    return [mine for mine in found.values() if len(_versions(mine)) > 1]


def _paired(
    entries: Sequence[Entry],
    labels: Sequence[str],
    is_right: Callable[[Entry, Entry, str], bool],
    writer: Writer,
    rng: Random,
) -> Iterator[tuple[Entry, Entry, str]]:
    """Each feature with another of its library for which the label is right that is due; no two twice."""
    for mine in _libraries(entries):
        used: Counter[str] = Counter()
        asked: set[frozenset[str]] = set()
        for first in rng.sample(mine, len(mine)):
            due = min(labels, key=lambda label: (used[label], rng.random()))
            others = [
                entry
                for entry in mine
                if is_right(first, entry, due) and frozenset((_name(first), _name(entry))) not in asked
            ]
            if not others:
                writer.left_out["nothing to compare with"] += 1
                continue
            second = rng.choice(others)
            asked.add(frozenset((_name(first), _name(second))))
            used[due] += 1
            yield first, second, due


def _name(entry: Entry) -> str:
    return called(entry.feature)


def _id(first: Entry, second: Entry) -> str:
    return "_".join(sorted((_name(first), _name(second))))
