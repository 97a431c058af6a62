"""The report of a suite: a folder of pages, from what came out down to each answer (`results/report/<suite>/`).

It is made of files alone, asks nothing of any network, and can be moved. `papers`, `tables`, `rows` build the tables,
`answers` lays out what cells answered; here the pages are put together.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from upkeep.catalog import Catalog
from upkeep.contract import DatasetCard, Provenance
from upkeep.errors import UpkeepError
from upkeep.files import remove, write_atomically
from upkeep.gateway.calls import Opened
from upkeep.grading.agreement import agreements, work
from upkeep.grading.scores import Scores
from upkeep.helpers import Helpers
from upkeep.jobs import Cell
from upkeep.layout import Layout
from upkeep.pages import templates
from upkeep.report import overview, parts, ran, trivial, written
from upkeep.report.answers import write_answers, write_documents
from upkeep.report.beside import write_pairs
from upkeep.report.edits import Edit, edited
from upkeep.report.papers import paper_of, references
from upkeep.report.ran import CellRow
from upkeep.report.site import FIRST, Site, link_of, place_of
from upkeep.report.specs import read_paper
from upkeep.report.things import write_things
from upkeep.report.waiting import Printed, pending

MOST = 100_000
"""Predictions of a suite up to which a report has all of them; of a larger one, those of the cells that are named."""
ALL, NONE = "all", "none"


def render(catalog: Catalog, suite_scores: Scores, named: Collection[str] = ()) -> list[Edit]:
    """Write the tables and figures of a suite's papers, and the pages that show them and lead to the answers behind.

    Tables go to `results/tables/<suite>/<paper>/`, figures to `results/figures/<suite>/<paper>/`.

    Args:
        named: cells whose predictions it has one by one, ALL, or NONE; by default all where they are at most MOST, else
            those that it has already.

    Returns:
        What of the papers' numbers, tables and claims, and of the suite, is not as it was shipped; the page says it.

    Raises:
        UpkeepError: a cell is named that is not one of these.
    """
    with Helpers() as helpers:
        return _render(catalog, suite_scores, named, helpers)


def _render(catalog: Catalog, suite_scores: Scores, named: Collection[str], helpers: Helpers) -> list[Edit]:
    layout = Layout(catalog.results)
    name, scores = suite_scores.basis.suite, suite_scores.table
    suite, basis, out = catalog.suite(name), suite_scores.basis, layout.report(name)
    edits = edited(catalog, name)
    specs = {paper: read_paper(catalog.root / "papers" / paper) for paper in suite.papers}
    known = {paper: references(catalog, paper, spec) for paper, spec in specs.items()}
    waiting = pending(
        catalog,
        list(basis.cells),
        scores,
        suite_scores.refused,
        suite_scores.lacking,
        basis.datasets,
        name,
        basis.unjudged,
        Printed.of(itertools.chain.from_iterable(known.values())),
        basis.wanted(suite_scores.lacking),
    )
    papers = [
        paper_of(catalog, paper, spec, suite_scores, waiting, Printed.of(known[paper]), helpers)
        for paper, spec in specs.items()
    ]
    helpers.end()
    rows = ran.cell_rows(basis.cells, waiting, scores)
    beside = ran.cell_rows(basis.beside, waiting, scores)
    manifests = [row.manifest for row in rows if row.manifest]
    there = {str(row.cell): row for row in (*rows, *beside) if row.manifest}

    site = Site(
        out.parent,
        suite_name=name,
        suite=suite,
        papers=papers,
        link=link_of,
        pages={str(row.cell) for row in (*rows, *beside)},
        results=os.path.relpath(layout.results, out.parent),
        seconds=ran.seconds,
        computed=ran.computed,
    )
    with_answers = _with_answers(there, named, site, name)
    with_answers = _write_cells(catalog, [*rows, *beside], with_answers, basis.datasets, site)
    write_things(catalog, [*rows, *beside], site, basis.datasets)
    # Last of what takes long: figures are drawn meanwhile.
    for paper in papers:
        if paper.figures:
            paper.drawn.keep()
        for path in paper.files:
            site.file(f"papers/{paper.id}/{path.name}", path.read_bytes())
        site.page(
            place_of("paper", paper.id), "paper.html.j2", paper=paper, own_text=parts.own_text, mark=parts.mark,
            told=parts.told, marks=parts.MARKS, unfilled=parts.unfilled, elsewhere=written.ELSEWHERE,
        )  # fmt: skip
    controls, judging = overview.controls(basis.cells, scores), work(basis)
    site.page(
        "checks.html", "checks.html.j2", controls=controls, trivial=trivial.shown(catalog, suite_scores),
        versions=_versions(basis.datasets), judging=judging, agreements=list(agreements(basis)),
    )  # fmt: skip
    site.page("cells.html", "cells.html.j2", rows=rows, beside=beside, with_answers=with_answers)
    site.page("compare.html", "compare.html.j2", cells=sorted(with_answers))
    site.data("cells", sorted(with_answers))
    site.file(layout.scores(name).name, layout.scores(name).read_bytes())
    site.share()
    found, totals = overview.grid(suite_scores.own), ran.totals(rows)
    incomplete = Counter(row.state for row in rows if row.state != ran.COMPLETE)
    site.page(
        FIRST,
        "overview.html.j2",
        rows=rows,
        copy=ran.copy_of(catalog.root),
        machines=ran.machines(manifests),
        span=ran.span(manifests),
        runtimes=ran.runtimes(manifests),
        untrained=sorted(set(scores.filter(~scores["trained"])["model"])),
        stand_ins=_datasets(scores, "stand_in"),
        rebuilds=_datasets(scores, "rebuild"),
        totals=totals,
        sentences=overview.sentences(catalog, found, len(manifests), int(totals["predictions"]), incomplete, papers),
        undone=_undone(rows),
        error_kinds=ran.error_kinds(catalog, rows),
        controls=controls,
        grid=found,
        best=overview.best(catalog, found),
        judging=judging,
        edits=edits,
        mostly_failed=[row for row in rows if row.manifest and row.manifest.mostly_failed],
        answers=sum(row.manifest.predictions for row in there.values() if row.manifest),
        with_answers=with_answers,
        most=MOST,
    )
    site.finish()
    for path in layout.astray(name):
        remove(path)
    _write_list(layout.reports)
    return edits


def _with_answers(there: Mapping[str, CellRow], named: Collection[str], site: Site, suite: str) -> set[str]:
    """The cells whose predictions a report has."""
    if NONE in named:
        return set()
    for cell in named:
        if cell != ALL and cell not in there:
            raise UpkeepError(
                "no complete cell of the report",
                where=cell,
                expected=f"a cell of suite {suite}, `{ALL}` or `{NONE}`",
                remedy="`./upkeep status` tells what is complete",
            )
    total = sum(row.manifest.predictions for row in there.values() if row.manifest)
    if ALL in named or (total <= MOST and not named):
        return set(there)
    return {cell for cell in there if cell in named or (site.folder / f"cells/{cell}/index.js").is_file()}


def _write_cells(
    catalog: Catalog,
    rows: Sequence[CellRow],
    with_answers: Collection[str],
    cards: Mapping[str, DatasetCard | UpkeepError],
    site: Site,
) -> set[str]:
    """Write the page of each cell, and the data of those that are to have any; returns those that have."""
    faults, opened = dict[str, str](), Opened(catalog)
    told = {row.cell: row.manifest for row in rows if row.manifest and str(row.cell) in with_answers}
    for cell, manifest in told.items():
        card = cards[cell.dataset]
        assert isinstance(card, DatasetCard)  # it counts
        try:
            write_answers(catalog, cell, manifest, card, site, opened)
        except UpkeepError as error:
            faults[str(cell)] = str(error)
    has = {str(cell) for cell in told} - faults.keys()
    for dataset in dict.fromkeys(cell.dataset for cell in told):
        shown = {cell: told[cell] for cell in told if cell.dataset == dataset and str(cell) in has}
        try:
            write_documents(catalog, dataset, site)
            write_pairs(catalog, dataset, shown, site)
        except UpkeepError as error:
            faults |= {str(cell): str(error) for cell in shown}
            has -= faults.keys()
    for row in rows:
        name = str(row.cell)
        site.page(
            place_of("cell", name), "cell.html.j2", row=row, cell=row.cell, name=name, manifest=row.manifest,
            spec=catalog.dataset(row.cell.dataset), method=catalog.method(row.cell.method),
            told=name in has, fault=faults.get(name, ""),
        )  # fmt: skip
    return has


def _undone(rows: Iterable[CellRow]) -> list[tuple[str, str, bool, list[Cell]]]:
    """(reason, command, whether something went wrong, cells) of what has no scores, what went wrong first."""
    found: dict[tuple[str, str, bool], list[Cell]] = {}
    for row in rows:
        if row.state != ran.COMPLETE:
            found.setdefault((row.state, row.command, row.is_wrong), []).append(row.cell)
    return [(*key, cells) for key, cells in sorted(found.items(), key=lambda one: (not one[0][2], -len(one[1])))]


def _datasets(scores: Any, provenance: Provenance) -> list[tuple[str, str]]:
    """(dataset, the paper's that it is set beside) of the datasets of a provenance."""
    pairs = scores.filter(scores["provenance"] == provenance).select("dataset_id", "dataset")
    return [(own, paper) for own, paper in pairs.unique("dataset_id", keep="first", maintain_order=True).rows()]


def _versions(datasets: Mapping[str, DatasetCard | UpkeepError]) -> dict[str, int]:
    """Of each dataset that is there, the version that all numbers on it are of."""
    return {name: card.dataset_version for name, card in datasets.items() if isinstance(card, DatasetCard)}


def _write_list(path: Path) -> None:
    """Write the page that leads to the report of each suite."""
    suites = sorted(one.parent.name for one in path.parent.glob(f"*/{FIRST}"))
    page = templates("upkeep.report").get_template("reports.html.j2")
    write_atomically(path, page.render(suites=suites).encode())
