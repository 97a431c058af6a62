"""A paper's tables, figures and findings: as files, and as its page shows them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import polars as pl

from upkeep.catalog import Catalog
from upkeep.grading.scores import Scores
from upkeep.helpers import Helpers
from upkeep.layout import Layout
from upkeep.report import drawing, figures, tables, verdicts, written
from upkeep.report.asked import asked
from upkeep.report.best import best_of
from upkeep.report.card_fields import Cards
from upkeep.report.drawn import Drawn
from upkeep.report.fields import as_judged, as_printed
from upkeep.report.reference import read_reference
from upkeep.report.specs import PaperSpec
from upkeep.report.tabled import beyond_suite, of_paper
from upkeep.report.waiting import Printed


@dataclass(frozen=True)
class Plate:
    """A figure with the runs that the paper has, and one with the others, as SVG; empty where there are none. They are
    there when `drawn` is kept."""

    figure: figures.Figure
    drawn: Drawn

    @cached_property
    def papers(self) -> str:
        name = self.figure.spec.id
        return inline(self.drawn.svg(name), name)

    @cached_property
    def ours(self) -> str:
        if not any(self.figure.ours):
            return ""
        return inline(self.drawn.svg(drawing.own(self.figure)), f"{self.figure.spec.id}-own")


@dataclass(frozen=True, slots=True)
class Paper:
    id: str
    label: str
    citation: str
    tables: list[tables.Table]
    figures: list[Plate]
    drawn: Drawn
    asked: str
    """Whose the words of its prompts are."""
    elsewhere: int
    """Scores on its datasets that no table has a place for."""
    findings: list[verdicts.Finding]
    files: list[Path]
    """Its tables as files, the scores of no table, and what came of its findings."""


def references(catalog: Catalog, paper: str, spec: PaperSpec) -> list[pl.DataFrame]:
    """The published numbers of a paper's tables."""
    return [read_reference(catalog.root / "papers" / paper / "reference" / table.file) for table in spec.tables]


def paper_of(
    catalog: Catalog,
    paper: str,
    spec: PaperSpec,
    suite_scores: Scores,
    waiting: pl.DataFrame,
    known: Printed,
    helpers: Helpers,
) -> Paper:
    """Write a paper's tables to `results/tables/<suite>/<paper>/`, and have its figures drawn to
    `results/figures/<suite>/<paper>/`; what its page shows of it.

    Args:
        waiting: `waiting.PENDING_SCHEMA`, of the suite's cells.
        known: what its published numbers are called.
        helpers: draw the figures; they are written when `Paper.drawn` is kept.
    """
    layout, suite, folder = Layout(catalog.results), suite_scores.basis.suite, catalog.root / "papers" / paper
    own_tables = layout.tables(suite) / paper
    table, cells = suite_scores.table, suite_scores.basis.all
    scores = as_printed(best_of(table, spec.best, spec.judge) if spec.best else table, spec.called)
    more, gaps = beyond_suite(catalog, cells, known, spec)
    own = of_paper(catalog, paper, known, scores)
    left = as_printed(pl.concat([waiting, more]), spec.called)
    built = list(tables.build_all(folder, own, left, gaps, Cards(catalog, paper)))
    words = asked(catalog, paper)
    files = [path for one in built for path in written.write(one, own_tables, words)]
    placed = frozenset[int]().union(*(one.placed for one in built))
    elsewhere = written.write_elsewhere(own, placed, own_tables)
    plates, drawn, shown = [], Drawn(layout.figures(suite) / paper, helpers), as_judged(own, spec.judge)
    for figure_spec in spec.figures:
        published = [read_reference(folder / "reference" / f"{name}.csv") for name in figure_spec.published]
        figure = figures.build(figure_spec, shown, published)
        drawing.write(figure, drawn)
        plates.append(Plate(figure, drawn))
    drawn_models = {one.id: one.models for one in spec.figures}
    findings = verdicts.findings(folder, scores, suite_scores.resamples, spec.judge, drawn_models)
    written.write_findings(findings, own_tables)
    return Paper(
        id=paper,
        label=spec.label,
        citation=spec.citation,
        tables=built,
        figures=plates,
        drawn=drawn,
        asked=words,
        elsewhere=elsewhere,
        findings=findings,
        files=[
            *files,
            own_tables / written.ELSEWHERE,
            own_tables / written.FINDINGS,
        ],
    )


def inline(svg: str, name: str) -> str:
    """The SVG element alone, as a part of a page that has others: names of its parts begin with its own, and what
    nothing refers to has none."""
    named = set(re.findall(r'[("]#([^)"]+)', svg))
    svg = re.sub(r'([("])#', rf"\1#{name}-", svg[svg.index("<svg") :])
    return re.sub(r' id="([^"]+)"', lambda one: f' id="{name}-{one[1]}"' if one[1] in named else "", svg)
