"""What a reader of a fact base gives: its state at one date, and a page of text for each thing (EvoWiki, 3.1)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Protocol

import polars as pl

FACTS: dict[str, type[pl.DataType]] = {
    "statement": pl.String,
    "subject": pl.String,
    "relation": pl.String,
    "object": pl.String,
}
"""Columns of `Snapshot.facts`, none null. `statement` is the source's own identifier and the same in every snapshot;
one subject, relation and statement may have several objects in the course of time, one at each date. `object` is an
entity's id, or the label of a literal."""

ENTITIES: dict[str, type[pl.DataType]] = {
    "entity": pl.String,
    "label": pl.String,
    "title": pl.String,
    "human": pl.Boolean,
    "views": pl.Int64,
}
"""Columns of `Snapshot.entities`, an entity a row. `title` is that of its page, `views` what its page had in the month;
both may be null."""

RELATIONS: dict[str, type[pl.DataType]] = {"relation": pl.String, "label": pl.String, "person": pl.Boolean}
"""Columns of `Snapshot.relations`: "employer" for a label; `person` where its objects are persons (a "Who")."""


class Pages(Protocol):
    """A page of text for each title, at one date."""

    def read(self, titles: Collection[str]) -> Iterator[tuple[str, str]]:
        """(title, text) of those of `titles` that have a page, each once, in the store's order; little is held."""
        ...


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A fact base at one date."""

    date: str
    """As 2021-09-01."""
    facts: pl.DataFrame
    """`FACTS`."""
    entities: pl.DataFrame
    """`ENTITIES`: all that `facts` names."""
    relations: pl.DataFrame
    """`RELATIONS`: all that `facts` names."""
    pages: Pages


@dataclass(frozen=True, slots=True)
class Written:
    """Pages held in memory."""

    texts: dict[str, str]
    """Title -> text."""

    def read(self, titles: Collection[str]) -> Iterator[tuple[str, str]]:
        """See `Pages`."""
        wanted = frozenset(titles)
        return ((title, text) for title, text in self.texts.items() if title in wanted)
