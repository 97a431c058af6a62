"""The tables of a suite's papers over scores, without the page that shows them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import polars as pl

from upkeep.catalog import Catalog
from upkeep.errors import UpkeepError
from upkeep.grading.scores import Scores
from upkeep.jobs import Cell
from upkeep.report import tables
from upkeep.report.best import best_of
from upkeep.report.card_fields import Cards
from upkeep.report.fields import as_printed
from upkeep.report.reference import read_reference
from upkeep.report.specs import PaperSpec, read_paper
from upkeep.report.waiting import PENDING_SCHEMA, Gaps, Printed, beyond, pending


def tables_of(scores: Scores, paper: str) -> Iterator[tables.Table]:
    """Every table of a paper, in its order, with all that is known of each of its places."""
    catalog, basis = scores.basis.catalog, scores.basis
    folder = catalog.root / "papers" / paper
    spec = read_paper(folder)
    known = Printed.of(read_reference(folder / "reference" / table.file) for table in spec.tables)
    waiting = pending(
        catalog,
        list(basis.cells),
        scores.table,
        scores.refused,
        scores.lacking,
        basis.datasets,
        basis.suite,
        basis.unjudged,
        known,
        basis.wanted(scores.lacking),
    )
    more, gaps = beyond_suite(catalog, basis.all, known, spec)
    table = best_of(scores.table, spec.best, spec.judge) if spec.best else scores.table
    own = of_paper(catalog, paper, known, as_printed(table, spec.called))
    yield from tables.build_all(
        folder, own, as_printed(pl.concat([waiting, more]), spec.called), gaps, Cards(catalog, paper)
    )


def of_paper(catalog: Catalog, paper: str, known: Printed, scores: pl.DataFrame) -> pl.DataFrame:
    """The scores on a paper's datasets, as cards or published numbers name them; its tables see no others."""
    ran = [name for name in scores["dataset_id"].unique() if catalog.has_dataset(name)]  # sums are of several
    families = [name for name in ran if catalog.dataset(name).paper == paper]
    named = {dataset for dataset, _, _ in known.triples}
    return scores.filter(pl.col("dataset_id").is_in(families) | pl.col("dataset").is_in(sorted(named)))


def beyond_suite(catalog: Catalog, cells: Iterable[Cell], known: Printed, spec: PaperSpec) -> tuple[pl.DataFrame, Gaps]:
    """`waiting.beyond`; a card that cannot be read, of what this suite may not use, keeps no report from being written:
    `./upkeep list` tells it."""
    try:
        return beyond(catalog, cells, known, spec.called)
    except UpkeepError:
        return pl.DataFrame(schema=PENDING_SCHEMA), {}


def table_ids(scores: Scores) -> list[tuple[str, str]]:
    """(paper, table) of the suite's papers."""
    catalog = scores.basis.catalog
    papers = catalog.suite(scores.basis.suite).papers
    specs = ((paper, read_paper(catalog.root / "papers" / paper)) for paper in papers)
    return list(itertools.chain.from_iterable(((paper, one.id) for one in spec.tables) for paper, spec in specs))
