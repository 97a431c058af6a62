"""A suite to scores: every cell that counts, in one file, with a record of what it was made of."""

from __future__ import annotations

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
from upkeep.files import digest, write_atomically
from upkeep.grading.matching import equivalence
from upkeep.grading.score import SCORE_SCHEMA, Key, identify, read_key, score_cell, tidy
from upkeep.identity import tree
from upkeep.integrity import Damaged, Missing, Stale, fingerprint, read_sealed, verify_files, write_sealed
from upkeep.layout import Layout
from upkeep.published import Standing, standing


class ScoresRecord(Sealed, frozen=True, kw_only=True):
    """`results/scores/scores.json`: what `scores.parquet` is."""

    suite: str
    made_of: dict[str, Sha256]
    """What decides the scores, by name: each cell and dataset that counts, the code, the cards."""
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
        catalog = self.catalog
        cards = {f"datasets/{c.dataset}/dataset.yaml" for c in self.cells}
        cards |= {f"methods/{c.method}/method.yaml" for c in self.cells}
        cards |= {f"models/{model}.yaml" for c in self.cells if (model := c.model.partition("+")[0]) != "none"}
        parts: dict[str, object] = {name: str(error) for name, error in self.refused.items()}
        parts |= {str(cell): found.manifest.seal for cell, found in self.cells.items() if found.manifest}
        parts |= {name: card.seal for name, card in self.datasets.items() if isinstance(card, DatasetCard)}
        parts["code"] = tree(catalog, "src/upkeep/grading")
        parts["cards"] = tree(catalog, *sorted(cards))
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
    are here now, has none either; the reason is printed, and kept in the record for the report.
    """
    basis, layout = Basis(catalog, suite), Layout(catalog.results)
    parts: list[pl.DataFrame] = [pl.DataFrame(schema=SCORE_SCHEMA)]
    refused = dict(basis.refused)
    made_of = basis.made_of()
    for name, card in basis.datasets.items():
        if not isinstance(card, DatasetCard):
            continue
        spec = catalog.dataset(name)
        key = read_key(layout.dataset(name), equivalence(spec.equivalence), catalog.hashes)
        parts.append(score_dataset(name, spec, key))
        for cell, manifest in ((cell, found.manifest) for cell, found in basis.cells.items() if cell.dataset == name):
            if manifest is None:
                continue
            try:
                parts.append(score_cell(layout.cell(cell), manifest, cell, identify(catalog, cell), key, spec))
            except UpkeepError as error:
                refused[str(cell)] = error
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
