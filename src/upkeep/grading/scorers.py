"""Cells scored a few at a time: by other processes, where there are many, while this one reads the verdicts of more."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from upkeep.contract import Fingerprint, Manifest
from upkeep.errors import UpkeepError
from upkeep.files import remove, write_atomically
from upkeep.grading.graded import Graded
from upkeep.grading.judged import Judged
from upkeep.grading.judgements import Judgements
from upkeep.grading.key import Key
from upkeep.grading.metric_families import family_at
from upkeep.grading.metrics import Second
from upkeep.grading.resampling import Draws
from upkeep.grading.score import Identity, score_cell
from upkeep.helpers import Begun, Helpers
from upkeep.integrity import fingerprint
from upkeep.jobs import Cell

TOGETHER, PREDICTIONS = 4, 50_000
"""Cells that a process is given at a time, at most; and fewer as soon as they have so many predictions."""


@dataclass(frozen=True, slots=True)
class Given:
    """All that decides the scores of a cell but for its metrics: as `score_cell` is given it."""

    found: Graded
    manifest: Manifest
    cell: Cell
    identity: Identity
    key: Key
    draws: Draws
    seconds: Mapping[Second, Graded]
    of: Judgements
    judges: Mapping[str, Judged]
    path: Path
    """Where its scores on resamples are written."""


Outcome = tuple[pl.DataFrame, Fingerprint] | UpkeepError
"""The scores of a cell, and what is written of them on resamples; or why there are none."""


class Scorers:
    """Scores cells in whichever order, and says what came of each.

    Args:
        helpers: take a part of it.
        done: is told of each cell.
    """

    def __init__(self, helpers: Helpers, done: Callable[[Cell, Outcome], None]) -> None:
        self._helpers, self._done = helpers, done
        self._metrics, self._given = "", list[Given]()
        self._begun: list[tuple[Sequence[Cell], Begun[list[Outcome]]]] = []

    def score(self, metrics: str, given: Given) -> None:
        """Have a cell scored.

        Args:
            metrics: of its dataset (`metric_families.family_at`).
        """
        if metrics != self._metrics:
            self._send()
        self._metrics = metrics
        self._given.append(given)
        if len(self._given) == TOGETHER or sum(len(one.found.rows) for one in self._given) >= PREDICTIONS:
            self._send()

    def finish(self) -> None:
        """Wait until all are."""
        self._send()
        while self._begun:
            self._take()

    def _send(self) -> None:
        if self._given:
            cells = [one.cell for one in self._given]
            self._begun.append((cells, self._helpers.begin(scored, self._metrics, self._given)))
            self._given = []
        while len(self._begun) > 2 * self._helpers.most:  # no more is held than is soon begun
            self._take()

    def _take(self) -> None:
        """Of some cells what came of them: of those that are done, or else of the last, which most likely nobody has
        begun."""
        place = next((n for n, (_, begun) in enumerate(self._begun) if begun.is_done), -1)
        cells, outcomes = self._begun.pop(place)
        for cell, outcome in zip(cells, outcomes(), strict=True):
            self._done(cell, outcome)


def scored(metrics: str, cells: Sequence[Given]) -> list[Outcome]:
    """Score some cells of a dataset, and write their scores on resamples."""
    return [_scored(metrics, one) for one in cells]


def _scored(metrics: str, one: Given) -> Outcome:
    try:
        family = family_at(metrics)
        made = score_cell(
            one.found,
            one.manifest,
            one.cell,
            one.identity,
            one.key,
            family.of_values() if one.identity.measures else family,
            one.draws,
            one.seconds,
            one.of,
            one.judges,
        )
        content = io.BytesIO()
        np.save(content, made.resamples.astype(np.float32), allow_pickle=False)
        one.path.parent.mkdir(parents=True, exist_ok=True)
        if one.path.is_dir():
            remove(one.path)
        write_atomically(one.path, content.getbuffer())
        return made.rows, fingerprint(one.path)
    except UpkeepError as error:
        return error
