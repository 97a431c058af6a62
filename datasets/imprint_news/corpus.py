"""The corpus: dated articles read, cleaned, de-duplicated by meaning, and laid out as one stream in order of time."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import get_args

import msgspec
import numpy as np

from upkeep.building import leaks, reading
from upkeep.building.assembling import Stream
from upkeep.building.assistant import Assistant
from upkeep.building.reading import Faults
from upkeep.building.tokens import Tokens, split
from upkeep.contract import FaultKind, FaultPolicy
from upkeep.errors import UpkeepError

from .steps import CLEAN, Page, Story

STREAM = "news"
FILES = ("*.jsonl", "*.jsonl.gz", "*.jsonl.bz2", "*.jsonl.xz")
BLOCK = 1024
"""Rows that are compared at a time."""
_PASSED_OVER: dict[FaultKind, FaultPolicy] = dict.fromkeys(get_args(FaultKind), "skip")
TAKEN = 0.9
"""Share of a cleaned body's words that must stand on its page: an assistant may copy, not write."""
_MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
"""Not from `calendar`, which follows the locale."""


class Raw(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the user's file. `text` and `date` must be there, and one of `id` and `url`."""

    text: str
    date: str | None = None
    id: str | None = None
    url: str | None = None
    title: str = ""
    market: str = ""
    """Id or title of the market that it was found for; empty where it was found otherwise."""
    spike: str | None = None
    """Day of the market's movement; the article's own where it is missing."""


class Relation(msgspec.Struct, frozen=True):
    """A line of an encyclopedia's relations: `object` is the `relation` of `subject`."""

    subject: str
    relation: str
    object: str


@dataclass(frozen=True, slots=True)
class Article:
    """An article of the corpus; before cleaning, `text` is its page."""

    id: str
    title: str
    date: str
    """YYYY-MM-DD."""
    text: str
    market: str
    spike: str
    """YYYY-MM-DD."""
    where: str
    """Where it was read, for messages."""

    @property
    def month(self) -> str:
        """YYYY-MM."""
        return self.date[:7]

    def story(self, count: int = 0) -> Story:
        return Story(written(self.date), self.title, self.text, count)


def written(day: str) -> str:
    """A day as questions have it: `3 February 2026`."""
    value = date.fromisoformat(day)
    return f"{value.day} {_MONTHS[value.month - 1]} {value.year}"


def files_at(path: Path) -> list[Path]:
    """A file, or the files of JSON lines in a folder.

    Raises:
        UpkeepError: there are none.
    """
    found = sorted(file for form in FILES for file in path.glob(form)) if path.is_dir() else [path]
    if not found:
        raise UpkeepError("no files of JSON lines", where=path, expected=", ".join(FILES))
    return found


def read(files: Iterable[Path], longest: int, faults: Faults) -> list[Article]:
    """The articles, as `articles` makes them of the lines of these files."""
    lines = itertools.chain.from_iterable(reading.records(file, Raw, faults) for file in files)
    return articles(lines, longest, faults)


def articles(lines: Iterable[tuple[str, Raw]], longest: int, faults: Faults) -> list[Article]:
    """The articles in order of date and id; what is not usable is a fault.

    Args:
        lines: each with the place where it stands.
        longest: characters of a page.
    """
    is_new = reading.Distinct(faults)
    found: list[Article] = []
    for where, raw in lines:
        id = (raw.id or raw.url or "").strip()
        if not id:
            faults("broken_record", where, "neither `id` nor `url`")
            continue
        if not is_new(id, where) or not reading.usable(raw.text, where, faults, longest):
            continue
        if (day := reading.iso_date(raw.date, where, faults)) is None:
            continue
        spike = day if raw.spike is None else reading.iso_date(raw.spike, where, faults)
        if spike is not None:
            found.append(Article(id, raw.title.strip(), day, raw.text, raw.market.strip(), spike, where))
    return sorted(found, key=lambda article: (article.date, article.id))


Encyclopedia = Callable[[Faults], Iterable[tuple[str, Relation]]]
"""One pass over an encyclopedia: each relation with its place; it may be far larger than memory."""


def in_files(files: Sequence[Path]) -> Encyclopedia:
    """The relations in files of JSON lines."""
    return lambda faults: itertools.chain.from_iterable(reading.records(file, Relation, faults) for file in files)


def relations(encyclopedia: Encyclopedia, near: Iterable[str], steps: int, faults: Faults) -> list[Relation]:
    """What an encyclopedia tells of some things, and of what it leads to from them, each relation once.

    Args:
        near: keys (`leaks.key`) of the things.
        steps: how far it is followed; each takes one pass, and only what is found is held in memory.
        faults: takes note at the first pass.
    """
    found: dict[Relation, None] = {}
    frontier, seen = set(near), set(near)
    for step in range(steps):
        if not frontier:
            break
        ahead: set[str] = set()
        noted = faults if step == 0 else Faults(_PASSED_OVER, Path())
        for where, one in encyclopedia(noted):
            if not all(leaks.key(value) for value in (one.subject, one.relation, one.object)):
                noted("broken_record", where, "an empty field", one)
            elif leaks.key(one.subject) in frontier:
                found[one] = None
                ahead.add(leaks.key(one.object))
        frontier = ahead - seen
        seen |= ahead
    return list(found)


def clean(pages: Sequence[Article], helper: Assistant, faults: Faults) -> list[Article]:
    """The articles with their bodies alone (D.1); a reply that is empty or not copied from the page is a fault."""
    bodies = helper.ask(CLEAN, [Page(page.title, page.text) for page in pages])
    found: list[Article] = []
    for page, body in zip(pages, bodies, strict=True):
        if body is None:
            continue
        words, there = leaks.key(body).split(), set(leaks.key(page.text).split())
        if not words:
            faults("empty_text", page.where, "no body on the page")
        elif sum(word in there for word in words) < TAKEN * len(words):
            faults("unread_reply", page.where, f"{CLEAN.name}: a body that is not on the page", body[:80])
        else:
            found.append(replace(page, text=body.strip()))
    return found


def leaders(vectors: np.ndarray, threshold: float) -> list[int]:
    """For each row the first earlier leader that it resembles, or itself, which makes it a leader.

    Args:
        vectors: (n, d), rows of length 1.
        threshold: cosine from which two rows count as alike.

    Memory is that of the leaders and of one block; no n by n matrix is held.
    """
    found: list[int] = []
    leading: list[int] = []
    for start in range(0, len(vectors), BLOCK):
        block = vectors[start : start + BLOCK]
        outer = block @ vectors[leading].T if leading else np.zeros((len(block), 0), vectors.dtype)
        inner = block @ block.T
        known = np.array(leading, dtype=np.int64)
        own: list[int] = []
        for row in range(len(block)):
            alike = known[outer[row] >= threshold].tolist()
            alike += [start + other for other in own if inner[row, other] >= threshold]
            found.append(alike[0] if alike else start + row)
            if not alike:
                own.append(row)
        leading += [start + row for row in own]
    return found


class Corpus:
    """The articles as a stream of documents, one after the other in order of time.

    Args:
        articles: cleaned and de-duplicated, in order.
        chunk_tokens: an article with more is several documents.
    """

    def __init__(self, articles: Sequence[Article], chunk_tokens: int, tokens: Tokens) -> None:
        self.articles = list(articles)
        texts: list[str] = []
        self.pieces: list[range] = []
        """Positions of the documents of each article."""
        for parts in split([article.text for article in self.articles], chunk_tokens, tokens):
            self.pieces.append(range(len(texts), len(texts) + len(parts)))
            texts += parts
        self._starts = {places.start for places in self.pieces}
        days = [a.date for a, places in zip(self.articles, self.pieces, strict=True) for _ in places]
        self.stream = Stream(STREAM, texts, days)
        self.tokens = tokens.count([article.text for article in self.articles])
        """Of each article."""
        self._keys = [leaks.key(text) for text in texts]

    def find(self, article: int, quote: str) -> tuple[int, ...]:
        """Positions of the documents of an article that hold these words, whatever case and punctuation; else none."""
        words, places = leaks.key(quote), self.pieces[article]
        keys = self._keys[places.start : places.stop]
        start = f" {' '.join(keys)} ".find(f" {words} ") if words else -1
        if start < 0:
            return ()
        begins = list(itertools.accumulate((len(key) + 1 for key in keys), initial=0))
        first, last = (bisect.bisect_right(begins, place) - 1 for place in (start, start + len(words) - 1))
        return tuple(places[first : last + 1])

    def passages(self, positions: Sequence[int]) -> tuple[str, ...]:
        """The texts of documents, those that follow one another in an article put together again."""
        found: list[str] = []
        for before, position in zip((None, *positions), positions, strict=False):
            if before == position - 1 and position not in self._starts:
                found[-1] += f" {self.stream.texts[position]}"
            else:
                found.append(self.stream.texts[position])
        return tuple(found)
