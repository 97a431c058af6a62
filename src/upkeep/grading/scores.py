"""A suite to scores: every cell that counts, in one file, with a record of what it was made of."""

from __future__ import annotations

import functools
import io
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from upkeep.catalog import Catalog
from upkeep.contract import DatasetCard, Fingerprint, Manifest, Sealed, Sha256
from upkeep.errors import UpkeepError
from upkeep.files import remove, write_atomically
from upkeep.grading import counted
from upkeep.grading.basis import Basis
from upkeep.grading.dataset_scores import score_dataset
from upkeep.grading.graded import VALUE, Graded, graded
from upkeep.grading.judged import Judged
from upkeep.grading.judgements import judgements_of
from upkeep.grading.key import read_key
from upkeep.grading.metric_families import family_of, metrics_of
from upkeep.grading.metrics import Family, Second
from upkeep.grading.resampling import Draws, Floats
from upkeep.grading.score import SCORE_SCHEMA
from upkeep.grading.scorers import Given, Outcome, Scorers
from upkeep.helpers import MOST, Helpers
from upkeep.integrity import Damaged, Missing, Stale, fingerprint, read_sealed, verify_files, write_sealed
from upkeep.jobs import Cell
from upkeep.layout import Layout

MANY = 20
"""Cells from which on other processes are worth their start."""


class ScoresRecord(Sealed, frozen=True, kw_only=True):
    """`results/scores/<suite>/scores.json`: what `scores.parquet` is."""

    suite: str
    made_of: dict[str, Sha256]
    """What decides the scores, by name: each cell that counts, with what tables call it; each dataset that counts, with
    its metrics; the code."""
    refused: dict[str, str]
    """Cells and datasets that are there and do not count, with the reason of each."""
    lacking: dict[str, dict[str, str]]
    """Cell -> metric -> why it has no score, where that is for want of a second cell."""
    verdicts: dict[str, Sha256]
    """Cell -> hash of the verdicts that its scores were made of."""
    resamples: dict[str, Fingerprint]
    """Cell -> the file of its scores on resamples of the questions."""
    files: dict[str, Fingerprint]


@dataclass(frozen=True)
class Scores:
    """The scores of a suite."""

    table: pl.DataFrame
    """SCORE_SCHEMA, in the order of the suite's cells; after those of a dataset, others on it (`Basis.beside`)."""
    basis: Basis
    refused: Mapping[str, str]
    """Cells and datasets that are there and do not count, with the reason of each."""
    lacking: Mapping[str, Mapping[str, str]]
    """Cell -> metric -> why it has no score, where that is for want of a second cell."""
    resampled: Mapping[str, Fingerprint]
    """Cell -> the file of its scores on resamples of the questions."""

    @property
    def own(self) -> pl.DataFrame:
        """Of the table, the scores of the suite's own cells."""
        return self.table.filter(pl.col("cell").is_in([str(cell) for cell in self.basis.cells]))

    def resamples(self, cell: str) -> Floats:
        """A cell's scores on resamples of its dataset's questions: (its rows in `table`, RESAMPLES).

        Raises:
            Damaged: the file is not what was written.
        """
        catalog = self.basis.catalog
        path, remedy = Layout(catalog.results).resamples(self.basis.suite, cell), f"./upkeep score {self.basis.suite}"
        verify_files(path.parent, {path.name: self.resampled[cell]}, remedy, catalog.hashes)
        found: Floats = np.load(path, mmap_mode="r")
        return found

    @property
    def unscored(self) -> list[str]:
        """Cells that count and have no scores: a metric failed, or what it needs cannot be read."""
        complete = [cell for cell, found in self.basis.cells.items() if found.manifest is not None]
        return [str(cell) for cell in complete if str(cell) in self.refused or cell.dataset in self.refused]

    def alike(self) -> list[list[str]]:
        """Cells that no table can tell apart, together: what they share are their names and settings."""
        names = ["label", "model", "method", "supervision", "setting", "dataset", "dataset_id", "subset", "metric"]
        rows = self.table.filter(pl.col("cell") != "")
        twice = rows.group_by(names, maintain_order=True).agg("cell").filter(pl.col("cell").list.len() > 1)
        return twice["cell"].unique(maintain_order=True).to_list()


def score_suite(catalog: Catalog, suite: str) -> Scores:
    """Score every cell that counts and describe every built dataset, and write `scores.parquet` with its record.

    Cells that have not been run have no rows. One that is damaged, or was made with other code, data or settings than
    are here now, has none either; the reason is printed, and kept in the record for the report. A metric that sets a
    second cell beside the first has no row where that one does not count. What has not changed since these results were
    last scored keeps its rows.
    """
    basis, layout = Basis(catalog, suite), Layout(catalog.results)
    work = _Work(basis, basis.made_of(), _Kept.read(catalog, suite), dict(basis.refused))
    with Helpers(MOST if work.changed >= MANY else 0) as helpers:
        scorers = Scorers(helpers, work.scored)
        for name, card in basis.datasets.items():
            if isinstance(card, DatasetCard):
                work.score(name, card, scorers)
        scorers.finish()
    order = {name: place for place, name in enumerate([*basis.datasets, *map(str, basis.all)])}
    reasons = dict(sorted(work.refused.items(), key=lambda one: order.get(one[0], -1)))
    for name, reason in reasons.items():
        print(f"refused {name}: {reason}", file=sys.stderr)
    refused = {name: reason.problem for name, reason in reasons.items()}
    table = pl.concat([pl.DataFrame(schema=SCORE_SCHEMA), *work.parts.values()])
    table = pl.concat([table, counted.sums(table, basis.joined)])
    content = io.BytesIO()
    table.write_parquet(content)
    path = layout.scores(suite)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content.getbuffer())
    files = {path.name: fingerprint(path)}
    record = ScoresRecord(
        suite=suite,
        made_of=work.made_of,
        refused=refused,
        lacking=work.lacking,
        verdicts={name: work.verdicts[name] for name in work.parts if name in work.verdicts},
        resamples={name: work.resampled[name] for name in work.parts if name in work.resampled},
        files=files,
    )
    write_sealed(layout.scores_record(suite), record)
    for cell in work.kept.resampled.keys() - work.resampled.keys():
        remove(layout.resamples(suite, cell))
    known = {layout.resamples(suite, cell): what for cell, what in work.resampled.items()}
    catalog.hashes.keep(layout.scores(suite).parent, known)
    for path in layout.outgrown:
        remove(path)
    return Scores(table, basis, refused, work.lacking, work.resampled)


@dataclass
class _Work:
    """Scores as they are made, dataset by dataset."""

    basis: Basis
    made_of: dict[str, str]
    kept: _Kept
    refused: dict[str, UpkeepError]
    parts: dict[str, pl.DataFrame] = field(default_factory=dict)
    """In order of the datasets: the rows of each, then those of its cells."""
    lacking: dict[str, dict[str, str]] = field(default_factory=dict)
    verdicts: dict[str, str] = field(default_factory=dict)
    resampled: dict[str, Fingerprint] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # The rows are in order of datasets, and many cells have one second cell.
        self._key = functools.lru_cache(maxsize=1)(functools.partial(read_key, self.basis.catalog))
        self._draws = functools.lru_cache(maxsize=1)(self._drawn)
        self._verdicts = functools.lru_cache(maxsize=2)(self._graded)

    @property
    def changed(self) -> int:
        """How many cells are to be scored, as far as that is known before their answers are read."""
        complete = [cell for cell, found in self.basis.all.items() if found.manifest is not None]
        return sum(self.kept.rows(str(cell), self.made_of, cell.dataset) is None for cell in complete)

    def score(self, name: str, card: DatasetCard, scorers: Scorers) -> None:
        """A dataset and its cells."""
        rows = self.kept.rows(name, self.made_of)
        try:
            family = family_of(self.basis.catalog, name)
            if rows is None:
                spec = self.basis.catalog.dataset(name)
                papers = self.basis.catalog.root / "papers"
                rows = score_dataset(name, spec, card, self._key(name), papers, self.basis.printed)
        except UpkeepError as error:
            self.refused[name] = error
            return
        self.parts[name] = rows
        for cell, found in self.basis.all.items():
            if cell.dataset == name and found.manifest is not None:
                try:
                    self._score(cell, found.manifest, family, scorers)
                except UpkeepError as error:
                    self.refused[str(cell)] = error

    def _score(self, cell: Cell, manifest: Manifest, family: Family, scorers: Scorers) -> None:
        known_as, name = self.basis.identify(cell), str(cell)
        layout = Layout(self.basis.catalog.results)
        if known_as.measures:
            family = family.of_values()
        seconds = self.basis.seconds(family, cell)
        lacking = self._lacking(family, seconds, cell)
        beside = [cell.dataset, *(str(other) for other, _ in seconds.values())]
        rows = self.kept.rows(name, self.made_of, *beside)
        fit = [other for other, unfit in seconds.values() if not unfit]
        if (
            rows is None
            or self.kept.lacking.get(name, {}) != lacking
            or not self.kept.whole(self.basis, name)
            or not self._read_alike(cell, *fit)
        ):
            key = self._key(cell.dataset).asked_of(manifest)
            verdicts: dict[Second, Graded] = {}
            for second, (other, unfit) in seconds.items():
                if not unfit:
                    try:
                        verdicts[second] = self._verdicts(other).among(key)
                    except UpkeepError as error:
                        seconds[second] = (other, error.problem)
            lacking = self._lacking(family, seconds, cell)
            draws = self._draws(cell.dataset)
            of = judgements_of(self.basis.catalog, cell.dataset)
            by_judge = self.basis.judged[cell].items()
            said = {self.basis.called[judge]: one for judge, one in by_judge if isinstance(one, Judged)}
            found, path = self._verdicts(cell), layout.resamples(self.basis.suite, cell)
            self.verdicts[name], self.parts[name] = found.sha256, pl.DataFrame(schema=SCORE_SCHEMA)
            given = Given(found, manifest, cell, known_as, key, draws, verdicts, of, said, path)
            scorers.score(metrics_of(self.basis.catalog, cell.dataset), given)
        else:
            self.verdicts[name], self.resampled[name] = self.kept.verdicts[name], self.kept.resampled[name]
            self.parts[name] = rows
        if lacking:
            self.lacking[name] = lacking

    def scored(self, cell: Cell, outcome: Outcome) -> None:
        """Take what came of a cell."""
        name = str(cell)
        if isinstance(outcome, UpkeepError):
            self.refused[name] = outcome
            del self.parts[name], self.verdicts[name]
            self.lacking.pop(name, None)
        else:
            self.parts[name], self.resampled[name] = outcome

    def _read_alike(self, *cells: Cell) -> bool:
        """Whether the answers of these cells are read as they were when their scores were made, or to the same end."""
        if self.kept.made_of.get("reading") == self.made_of["reading"]:
            return True
        try:
            return all(self._verdicts(cell).sha256 == self.kept.verdicts.get(str(cell)) for cell in cells)
        except UpkeepError:  # said where they are needed
            return False

    def _lacking(self, family: Family, seconds: Mapping[Second, tuple[Cell, str]], cell: Cell) -> dict[str, str]:
        """Metrics that have no score for want of a second cell, with the reason; not those that are made of numbers
        that the cell itself did not measure."""
        found: dict[str, str] = {}
        for second, metrics in family.of_two:
            other, unfit = seconds.get(second, (None, ""))
            if unfit:
                found |= dict.fromkeys(metrics, f"{second.name} ({other}): {unfit}")
        of_values = {metric: one.values for one in family.resampled if one.values for metric in one.metrics}
        if found.keys() & of_values.keys():
            measured = self._verdicts(cell).rows.columns
            found = {n: why for n, why in found.items() if {f"{VALUE}{v}" for v in of_values.get(n, ())} <= {*measured}}
        return found

    def _drawn(self, dataset: str) -> Draws:
        return Draws(dataset, self._key(dataset).probes["question_id"].unique())

    def _graded(self, cell: Cell) -> Graded:
        manifest = self.basis.all[cell].manifest
        assert manifest is not None
        return graded(self.basis.catalog, cell, manifest, self._key(cell.dataset).asked_of(manifest))


@dataclass(frozen=True)
class _Kept:
    """Scores as they were last written."""

    made_of: Mapping[str, str]
    parts: Mapping[str, pl.DataFrame]
    """Rows by cell; those of datasets by their id."""
    lacking: Mapping[str, Mapping[str, str]]
    verdicts: Mapping[str, str]
    resampled: Mapping[str, Fingerprint]
    """Of these cells, those whose scores on resamples are there, too."""

    @classmethod
    def read(cls, catalog: Catalog, suite: str) -> _Kept:
        """What is there and undamaged."""
        layout = Layout(catalog.results)
        try:
            record = read_sealed(layout.scores_record(suite), ScoresRecord, "")
            catalog.hashes.recall(layout.scores(suite).parent)
            verify_files(layout.scores(suite).parent, record.files, "", catalog.hashes)
            table = pl.read_parquet(layout.scores(suite))
        except (Missing, Damaged):  # it follows from what is there
            return cls({}, {}, {}, {}, {})
        if dict(table.schema) != SCORE_SCHEMA:
            return cls({}, {}, {}, {}, {})
        names = table.with_columns(name=pl.when(pl.col("cell") == "").then("dataset_id").otherwise("cell"))
        parts = names.partition_by("name", maintain_order=True, include_key=False, as_dict=True)
        found = {str(name): rows for (name,), rows in parts.items()}
        return cls(record.made_of, found, record.lacking, record.verdicts, record.resamples)

    def rows(self, name: str, made_of: Mapping[str, str], *beside: str) -> pl.DataFrame | None:
        """The rows of a cell or dataset, if neither it nor what stands beside it has changed."""
        same = all(self.made_of.get(one) == made_of.get(one) for one in (name, *beside, "code"))
        return self.parts.get(name) if same else None

    def whole(self, basis: Basis, cell: str) -> bool:
        """Whether a cell's scores on resamples are there as they were written."""
        path = Layout(basis.catalog.results).resamples(basis.suite, cell)
        try:
            verify_files(path.parent, {path.name: self.resampled[cell]}, "", basis.catalog.hashes)
        except (KeyError, Damaged):  # it follows from what is there
            return False
        return True


def scores_now(catalog: Catalog, suite: str) -> Scores:
    """The scores of a suite as things are now: those that were written, or, where something has changed since or none
    were, such as `score_suite` writes.

    Raises:
        Damaged: as `read_scores`.
    """
    try:
        return read_scores(catalog, suite)
    except (Missing, Stale):
        return score_suite(catalog, suite)


def read_scores(catalog: Catalog, suite: str) -> Scores:
    """The scores of a suite, as `score_suite` wrote them, if they are still those of what is there now.

    Scores on resamples are verified when they are asked for (`Scores.resamples`).

    Raises:
        Missing: it has not been scored.
        Damaged: the file or its record is not what was written.
        Stale: a cell, a dataset, a card or the code has changed since, or these are another suite's.
    """
    layout = Layout(catalog.results)
    path, remedy = layout.scores_record(suite), f"./upkeep score {suite}"
    record = read_sealed(path, ScoresRecord, remedy)
    verify_files(path.parent, record.files, remedy, catalog.hashes)
    if record.suite != suite:
        raise Stale("the scores of another suite", where=path, expected=suite, found=record.suite, remedy=remedy)
    basis = Basis(catalog, suite)
    now = basis.made_of()
    if changed := sorted(name for name in now | record.made_of if now.get(name) != record.made_of.get(name)):
        raise Stale(
            "something has changed since these scores were made",
            where=path,
            expected="the scores of what is there now",
            found=f"another {', '.join(changed[:5])}{' ...' if len(changed) > 5 else ''}",
            remedy=remedy,
        )
    try:
        table = pl.read_parquet(layout.scores(suite))
    except (pl.exceptions.PolarsError, OSError) as error:
        raise Damaged(f"not readable as Parquet: {error}", where=layout.scores(suite), remedy=remedy) from None
    return Scores(table, basis, record.refused, record.lacking, record.resamples)
