"""A suite to scores: every cell that counts, in one file, with a record of what it was made of."""

from __future__ import annotations

import functools
import io
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from upkeep import inputs
from upkeep.catalog import Catalog, Cell
from upkeep.contract import DatasetCard, DatasetSpec, Fingerprint, Sealed, Sha256
from upkeep.errors import UpkeepError
from upkeep.fields import plain
from upkeep.files import digest, write_atomically
from upkeep.grading.graded import graded
from upkeep.grading.key import GRADED_ON, Key, read_key
from upkeep.grading.score import SCORE_SCHEMA, identify, score_cell, tidy
from upkeep.identity import tree
from upkeep.integrity import Damaged, Missing, Stale, fingerprint, read_sealed, verify_files, write_sealed
from upkeep.layout import Layout
from upkeep.published import Standing, standing


class ScoresRecord(Sealed, frozen=True, kw_only=True):
    """`results/scores/scores.json`: what `scores.parquet` is."""

    suite: str
    made_of: dict[str, Sha256]
    """What decides the scores, by name: each cell and dataset that counts, with what tables call it; the code."""
    refused: dict[str, str]
    """Cells and datasets that are there and do not count, with the reason of each."""
    files: dict[str, Fingerprint]


@dataclass(frozen=True)
class Basis:
    """What the scores of a suite rest on, as it is now."""

    catalog: Catalog
    suite: str

    @cached_property
    def cells(self) -> dict[Cell, Standing]:
        """Every cell of the suite, in its order."""
        return {cell: standing(self.catalog, cell) for cell in self.catalog.cells(self.catalog.suite(self.suite))}

    @cached_property
    def datasets(self) -> dict[str, DatasetCard | UpkeepError]:
        """Every dataset of the suite; of one that is not there or damaged, the reason."""
        found: dict[str, DatasetCard | UpkeepError] = {}
        for name in dict.fromkeys(cell.dataset for cell in self.cells):
            try:
                found[name] = inputs.dataset(self.catalog, name)
            except UpkeepError as error:
                found[name] = error
        return found

    @property
    def refused(self) -> dict[str, UpkeepError]:
        """What is there and does not count, by name."""
        cells = {str(cell): found.problem for cell, found in self.cells.items()}
        datasets = {name: found for name, found in self.datasets.items() if not isinstance(found, Missing)}
        return {name: found for name, found in (datasets | cells).items() if isinstance(found, UpkeepError)}

    def made_of(self) -> dict[str, str]:
        """`ScoresRecord.made_of`."""
        parts: dict[str, object] = {name: str(error) for name, error in self.refused.items()}
        for name, card in self.datasets.items():
            if isinstance(card, DatasetCard):
                graded_on = [card.content[part] for part in (*GRADED_ON, "slices")]
                parts[name] = [graded_on, plain(self.catalog.dataset(name))]
        for cell, found in self.cells.items():
            if found.manifest:
                parts[str(cell)] = [found.manifest.seal, plain(identify(self.catalog, cell))]
        parts["code"] = tree(self.catalog, "src/upkeep/grading")
        return {name: digest(part) for name, part in sorted(parts.items())}


@dataclass(frozen=True)
class Scores:
    """The scores of a suite."""

    table: pl.DataFrame
    """SCORE_SCHEMA, in the order of the suite's cells."""
    basis: Basis
    refused: Mapping[str, str]
    """Cells and datasets that are there and do not count, with the reason of each."""


def score_suite(catalog: Catalog, suite: str) -> Scores:
    """Score every cell that counts and describe every built dataset, and write `scores.parquet` with its record.

    Cells that have not been run have no rows. One that is damaged, or was made with other code, data or settings than
    are here now, has none either; the reason is printed, and kept in the record for the report. What has not changed
    since these results were last scored keeps its rows.
    """
    basis, layout = Basis(catalog, suite), Layout(catalog.results)
    refused, made_of, kept = dict(basis.refused), basis.made_of(), _Kept.read(catalog)
    parts: list[pl.DataFrame] = [pl.DataFrame(schema=SCORE_SCHEMA)]
    keys = functools.lru_cache(maxsize=1)(functools.partial(read_key, catalog))  # the rows are in order of datasets
    for name, card in basis.datasets.items():
        if not isinstance(card, DatasetCard):
            continue
        spec, rows = catalog.dataset(name), kept.rows(name, made_of)
        parts.append(score_dataset(name, spec, keys(name)) if rows is None else rows)
        for cell, manifest in ((cell, found.manifest) for cell, found in basis.cells.items() if cell.dataset == name):
            if manifest is None:
                continue
            if (rows := kept.rows(str(cell), made_of, name)) is None:
                try:
                    verdicts = graded(catalog, cell, manifest, keys(name))
                    rows = score_cell(verdicts, manifest, cell, identify(catalog, cell), keys(name), spec)
                except UpkeepError as error:
                    refused[str(cell)] = error
                    continue
            parts.append(rows)
    for name, reason in refused.items():
        print(f"refused {name}: {reason}", file=sys.stderr)
    reasons = {name: reason.problem for name, reason in refused.items()}
    table = pl.concat(parts)
    content = io.BytesIO()
    table.write_parquet(content)
    write_atomically(layout.scores, content.getbuffer())
    files = {layout.scores.name: fingerprint(layout.scores)}
    record = ScoresRecord(suite=suite, made_of=made_of, refused=reasons, files=files)
    write_sealed(layout.scores_record, record)
    return Scores(table, basis, reasons)


@dataclass(frozen=True)
class _Kept:
    """Scores as they were last written."""

    made_of: Mapping[str, str]
    parts: Mapping[str, pl.DataFrame]
    """Rows by cell; those of datasets by their id."""

    @classmethod
    def read(cls, catalog: Catalog) -> _Kept:
        """What is there and undamaged, of whatever suite."""
        layout = Layout(catalog.results)
        try:
            record = read_sealed(layout.scores_record, ScoresRecord, "")
            verify_files(layout.scores.parent, record.files, "", catalog.hashes)
            table = pl.read_parquet(layout.scores)
        except (Missing, Damaged):  # it follows from what is there
            return cls({}, {})
        if dict(table.schema) != SCORE_SCHEMA:
            return cls({}, {})
        names = table.with_columns(name=pl.when(pl.col("cell") == "").then("dataset_id").otherwise("cell"))
        parts = names.partition_by("name", maintain_order=True, include_key=False, as_dict=True)
        return cls(record.made_of, {str(name): rows for (name,), rows in parts.items()})

    def rows(self, name: str, made_of: Mapping[str, str], *beside: str) -> pl.DataFrame | None:
        """The rows of a cell or dataset, if neither it nor what stands beside it has changed."""
        same = all(self.made_of.get(one) == made_of.get(one) for one in (name, *beside, "code"))
        return self.parts.get(name) if same else None


def score_dataset(name: str, spec: DatasetSpec, key: Key) -> pl.DataFrame:
    """What a dataset is made of, as scores: `question_count`, and `question_share` of each slice (Tables 7 and 9)."""
    firsts = key.probes.unique("question_id", keep="first", maintain_order=True)
    rows: list[dict[str, object]] = [
        {"subset": "all", "metric": "question_count", "value": float(len(firsts)), "unit": "count"}
    ]
    for column in (column for column in firsts.columns if column.startswith("slice_")):
        counts = firsts[column].drop_nulls().value_counts().sort(column)
        rows += [
            {
                "subset": value,
                "metric": "question_share",
                "value": 100 * count / counts["count"].sum(),
                "unit": "percent",
            }
            for value, count in counts.iter_rows()
        ]
    return tidy(
        pl.DataFrame(rows).with_columns(
            label=pl.lit(spec.label),
            dataset=pl.lit(spec.stands_for or name),
            dataset_id=pl.lit(name),
            n=pl.lit(len(firsts)),
            questions=pl.lit(len(firsts)),
            trained=pl.lit(value=True),
        )
    )


def read_scores(catalog: Catalog, suite: str) -> Scores:
    """The scores of a suite, as `score_suite` wrote them, if they are still those of what is there now.

    Raises:
        Missing: it has not been scored.
        Damaged: the file or its record is not what was written.
        Stale: a cell, a dataset, a card or the code has changed since, or another suite was scored.
    """
    layout = Layout(catalog.results)
    path, remedy = layout.scores_record, f"./upkeep score --suite {suite}"
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
        table = pl.read_parquet(layout.scores)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise Damaged(f"not readable as Parquet: {error}", where=layout.scores, remedy=remedy) from None
    return Scores(table, basis, record.refused)
