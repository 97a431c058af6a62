"""The tables of a suite's papers over scores, without the page that shows them."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator

import polars as pl

from upkeep.errors import UpkeepError
from upkeep.grading.scores import Scores
from upkeep.report import tables
from upkeep.report.best import best_of
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
    more: pl.DataFrame = pl.DataFrame(schema=PENDING_SCHEMA)
    gaps: Gaps = {}
    with contextlib.suppress(UpkeepError):  # a card that cannot be read, of what this suite may not use
        more, gaps = beyond(catalog, basis.all, known, spec.called)
    own = _of_paper(scores, paper, spec, known)
    yield from tables.build_all(folder, own, as_printed(pl.concat([waiting, more]), spec.called), gaps)


def _of_paper(scores: Scores, paper: str, spec: PaperSpec, known: Printed) -> pl.DataFrame:
    """The scores on a paper's datasets, as it calls them."""
    catalog = scores.basis.catalog
    table = best_of(scores.table, spec.best, spec.judge) if spec.best else scores.table
    called = as_printed(table, spec.called)
    ran = [name for name in called["dataset_id"].unique() if name in catalog.datasets]  # sums are of several
    families = [name for name in ran if catalog.dataset(name).paper == paper]
    named = {dataset for dataset, _, _ in known.triples}
    return called.filter(pl.col("dataset_id").is_in(families) | pl.col("dataset").is_in(sorted(named)))


def table_ids(scores: Scores) -> list[tuple[str, str]]:
    """(paper, table) of the suite's papers."""
    catalog = scores.basis.catalog
    papers = catalog.suite(scores.basis.suite).papers
    specs = ((paper, read_paper(catalog.root / "papers" / paper)) for paper in papers)
    return list(itertools.chain.from_iterable(((paper, one.id) for one in spec.tables) for paper, spec in specs))
