"""How far judges agree with each other, and with the answer key's words, on the same responses."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import polars as pl

from upkeep.grading.basis import Basis
from upkeep.grading.judged import Judged
from upkeep.grading.judgements import RIGHT, WORDS
from upkeep.jobs import Cell
from upkeep.layout import Layout

OF_RESPONSE = ["probe_id", "trial", "decides"]
"""What tells one verdict on a cell's responses from another."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """Two judges on the responses to a dataset's questions that both have judged, over all cells."""

    dataset: str
    first: str
    second: str
    responses: int
    share: float
    """Of the responses, on which they say the same: right, outdated or wrong. Percent."""
    kappa: float | None
    """The same beyond what chance gives (J. Cohen, A coefficient of agreement for nominal scales, 1960); None where
    both always say one thing."""


@dataclass(frozen=True, slots=True)
class Judging:
    """A judge's work on a dataset, over all cells."""

    dataset: str
    judge: str
    responses: int
    asked: int
    unread: int
    """Responses of which it said nothing that can be read: they count as wrong."""


def work(basis: Basis) -> list[Judging]:
    """What each judge of a suite did, by dataset."""
    found: dict[tuple[str, str], list[Judged]] = {}
    for cell in basis.cells:
        for judge, one in basis.judged[cell].items():
            if isinstance(one, Judged):
                found.setdefault((cell.dataset, judge), []).append(one)
    return [
        Judging(dataset, judge, sum(len(o.rows) for o in all_), sum(o.asked for o in all_), sum(o.unread for o in all_))
        for (dataset, judge), all_ in found.items()
    ]


def agreements(basis: Basis) -> Iterator[Agreement]:
    """Each two judges of a suite on each dataset that both judged; what an answer key's words say is one of them."""
    counts: dict[tuple[str, str, str], dict[tuple[str, str], int]] = {}
    for cell in basis.cells:
        said = basis.judged[cell].items()
        verdicts = {judge: _meanings(one.rows) for judge, one in said if isinstance(one, Judged)}
        if verdicts:
            verdicts = {WORDS: _of_words(basis, cell)} | verdicts
        for first, second in itertools.combinations(verdicts, 2):
            both = verdicts[first].join(verdicts[second], on=OF_RESPONSE)
            seen = counts.setdefault((cell.dataset, first, second), {})
            for one, other, n in both.group_by("meaning", "meaning_right").len().iter_rows():
                seen[one, other] = seen.get((one, other), 0) + n
    for (dataset, first, second), seen in counts.items():
        if total := sum(seen.values()):
            yield Agreement(dataset, first, second, total, *agreement(seen))


def agreement(counts: Mapping[tuple[str, str], int]) -> tuple[float, float | None]:
    """(share in percent, kappa) of responses counted by what the two said of them."""
    total = sum(counts.values())
    observed = sum(n for (one, other), n in counts.items() if one == other) / total
    words = {word for pair in counts for word in pair}
    firsts = {word: sum(n for (one, _), n in counts.items() if one == word) / total for word in words}
    seconds = {word: sum(n for (_, other), n in counts.items() if other == word) / total for word in words}
    chance = sum(firsts[word] * seconds[word] for word in words)
    return 100 * observed, None if chance >= 1 else (observed - chance) / (1 - chance)


def _meanings(rows: pl.DataFrame) -> pl.DataFrame:
    """A judge's verdicts; what could not be read counts as wrong. Where it was not asked it agrees with nobody."""
    told = rows.filter(pl.col("meaning").is_not_null())
    return told.select(*OF_RESPONSE, meaning=pl.col("meaning").replace("unread", "wrong"))


def _of_words(basis: Basis, cell: Cell) -> pl.DataFrame:
    """What the answer key's words say of a cell's responses."""
    rows = pl.read_parquet(Layout(basis.catalog.results).verdicts(cell))
    said = pl.when("right").then(pl.lit("right")).when("outdated").then(pl.lit("outdated")).otherwise(pl.lit("wrong"))
    return rows.select("probe_id", "trial", decides=pl.lit(RIGHT), meaning=said)
