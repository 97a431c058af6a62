"""Chains of facts for CompRel: 2 to 4 of them, at least one from the corpus, the others from an encyclopedia.

The paper counts hops (Table 9) and does not say how they are made. It links entities by relations of Wikipedia (section
2), so a hop is a relation here. Without a fact of the corpus a question could be answered by who has read none of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from random import Random

from upkeep.building import leaks

TIMELESS = ""
"""The date of a fact from the encyclopedia: before all others."""


@dataclass(frozen=True, slots=True)
class Link:
    """A fact: `object` is the `relation` of `subject` from `date` on."""

    subject: str
    relation: str
    object: str
    text: str
    """The sentence that tells it."""
    date: str = TIMELESS
    article: int | None = None
    """None for the encyclopedia."""
    evidence: tuple[int, ...] = ()
    before: str | None = None
    """What the object replaced."""

    @property
    def place(self) -> tuple[str, str]:
        """What it tells about: keys of subject and relation."""
        return leaks.key(self.subject), leaks.key(self.relation)


@dataclass(frozen=True, slots=True)
class Path:
    """Links, each about the object of the one before."""

    links: tuple[Link, ...]
    changed: int | None = None
    """The link that holds what was there before its change, where it is asked about a state that is no more."""

    @property
    def answer(self) -> str:
        return self.links[-1].object

    @property
    def nodes(self) -> list[str]:
        """What lies after its start: none of it may stand in the question."""
        return [link.object for link in self.links]

    @property
    def asked(self) -> tuple[str, tuple[str, ...]]:
        """Start and relations: what a question over it says."""
        return self.links[0].place[0], tuple(link.place[1] for link in self.links)

    @property
    def article(self) -> int:
        """The latest article in it."""
        return max(link.article for link in self.links if link.article is not None)


class Graph:
    """All facts, with what held when.

    Where a relation has several objects at a time there are two answers, so it has no place in a chain.
    """

    def __init__(self, links: Iterable[Link]) -> None:
        self._told: dict[tuple[str, str], list[Link]] = {}
        for link in links:
            self._told.setdefault(link.place, []).append(link)
        for told in self._told.values():
            told.sort(key=lambda link: (link.date, link.article is None, link.article or 0))
        now = [link for link in map(self.at, sorted(self._told)) if link is not None]
        self.corpus = [link for link in now if link.article is not None]
        """The facts of the corpus that hold at its end."""
        self._from: dict[str, list[Link]] = {}
        self._to: dict[str, list[Link]] = {}
        for link in now:
            self._from.setdefault(link.place[0], []).append(link)
            self._to.setdefault(leaks.key(link.object), []).append(link)

    def at(self, place: tuple[str, str], before: str | None = None) -> Link | None:
        """What holds at the end of the corpus, or just before a day; None where nothing or more than one thing does.

        A fact that is told later without a word of change is taken to have held before.
        """
        told = self._told.get(place, [])
        past = told if before is None else [link for link in told if link.date < before]
        if past:
            value = leaks.key(past[-1].object)
            others = [n for n, link in enumerate(past) if leaks.key(link.object) != value]
            if others and past[others[-1]].date == past[-1].date:
                return None
            run = past[others[-1] + 1 :] if others else past
            # Of those that tell the same: the corpus before the encyclopedia, the change itself before its echo.
            return min(run, key=lambda link: (link.article is None, link.before is None, link.date))
        first = [link for link in told if link.date == told[0].date]
        if len({leaks.key(link.before or link.object) for link in first}) != 1:
            return None
        return replace(first[0], object=first[0].before or first[0].object, before=None)

    def paths(self, hops: int, tries: int, rng: Random) -> list[Path]:
        """Random paths over what holds at the end, `tries` attempts through each fact of the corpus; each path once."""
        found: dict[tuple[str, tuple[str, ...]], Path] = {}
        for link in self.corpus:
            for _ in range(tries):
                if (path := self._walk(link, hops, rng)) is not None:
                    found.setdefault(path.asked, path)
        return [found[asked] for asked in sorted(found)]

    def _walk(self, through: Link, hops: int, rng: Random) -> Path | None:
        ahead = rng.randrange(hops)
        links = [through]
        seen = {through.place[0], leaks.key(through.object)}
        for n in range(hops - 1):
            onward = n < ahead
            end = leaks.key(links[-1].object) if onward else links[0].place[0]
            near = self._from.get(end, []) if onward else self._to.get(end, [])
            # No node twice: a chain that comes back would be shorter than it looks.
            free = [link for link in near if (leaks.key(link.object) if onward else link.place[0]) not in seen]
            if not free:
                return None
            link = rng.choice(free)
            seen.add(leaks.key(link.object) if onward else link.place[0])
            links = [*links, link] if onward else [link, *links]
        return Path(tuple(links))

    def undone(self, path: Path) -> Path | None:
        """The same question had the last change on the path not happened (counterfactual)."""
        return self._other(path, before=None)

    def earlier(self, path: Path) -> Path | None:
        """The same question just before the last change on the path (temporal)."""
        return self._other(path, before=self._change(path)[1])

    def _change(self, path: Path) -> tuple[int | None, str | None]:
        changes = [(link.date, n) for n, link in enumerate(path.links) if link.before is not None]
        return (max(changes)[1], max(changes)[0]) if changes else (None, None)

    def _other(self, path: Path, before: str | None) -> Path | None:
        """The path with its last change taken back, all else as at the end of the corpus or before a day.

        None where there is no change, a link is missing, or the answer stays the same.
        """
        turn, _ = self._change(path)
        if turn is None:
            return None
        links: list[Link] = []
        subject = path.links[0].subject
        for n, link in enumerate(path.links):
            place = leaks.key(subject), link.place[1]
            if n == turn and place == link.place:
                found: Link | None = replace(link, object=link.before or "", before=None)
            else:
                found = self.at(place, before)
            if found is None:
                return None
            links.append(found)
            subject = found.object
        nodes = [links[0].place[0], *(leaks.key(link.object) for link in links)]
        if len(set(nodes)) < len(nodes) or nodes[-1] == leaks.key(path.answer):
            return None
        if all(link.article is None for link in links):
            return None
        return Path(tuple(links), turn)
