"""The report: one self-contained HTML page."""

from __future__ import annotations

import functools
import itertools
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2
import msgspec
import polars as pl
from msgspec import Struct

from upkeep.catalog import CONTROLS, Catalog
from upkeep.contract import DatasetCard, Manifest, Provenance
from upkeep.errors import UpkeepError
from upkeep.files import write_atomically
from upkeep.grading.agreement import agreements, work
from upkeep.grading.judgements import WORDS
from upkeep.grading.scores import Scores
from upkeep.grading.settings import printed
from upkeep.jobs import Cell
from upkeep.layout import Layout
from upkeep.pages import templates
from upkeep.published import Standing
from upkeep.report import drawing, figures, parts, tables, trivial, verdicts, written
from upkeep.report.asked import asked
from upkeep.report.best import best_of
from upkeep.report.comparing import NOT_RUN
from upkeep.report.drawn import Drawn
from upkeep.report.edits import Edit, edited
from upkeep.report.fields import JUDGE, as_judged, as_printed, by_words
from upkeep.report.reference import read_reference
from upkeep.report.rows import model_name
from upkeep.report.specs import PaperSpec, read_paper
from upkeep.report.waiting import PENDING_SCHEMA, Gaps, Printed, beyond, pending
from upkeep.text import duration

EXPECTED = {"null": 0.0, "gold": 100.0}
"""Accuracy of each control, on every dataset and slice; anything else means a broken dataset or scorer."""


@dataclass(frozen=True, slots=True)
class Control:
    """A control method on one dataset."""

    dataset: str
    method: str
    found: str
    """Accuracy over all slices; a range where they differ, empty where it was not run."""
    slices: int
    passed: bool | None
    """None where it was not run."""


@dataclass(frozen=True, slots=True)
class Plate:
    """A figure with the runs that the paper has, and one with the others, as SVG; empty where there are none."""

    figure: figures.Figure
    papers: str
    ours: str


@dataclass(frozen=True, slots=True)
class Paper:
    id: str
    label: str
    citation: str
    tables: list[tables.Table]
    figures: list[Plate]
    asked: str
    """Whose the words of its prompts are."""
    elsewhere: int
    """Scores on its datasets that no table has a place for."""
    findings: list[verdicts.Finding]


@dataclass(frozen=True, slots=True)
class CellRow:
    cell: str
    state: str
    """`complete`, or the reason why there are no scores."""
    manifest: Manifest | None
    unread: int
    """Predictions that hold no answer that can be read."""
    link: str


def render(catalog: Catalog, suite_scores: Scores, out: Path) -> list[Edit]:
    """Write the tables and figures of a suite's papers, and the page that shows them.

    Tables go to `results/tables/<paper>/`, figures to `results/figures/<paper>/`, the page to `out`. The page asks
    nothing of any network; its numbers link to the predictions behind them, relative to `out`.

    Returns:
        What of the papers' numbers, tables and claims, and of the suite, is not as it was shipped; the page says it.
    """
    layout = Layout(catalog.results)
    suite_name, scores = suite_scores.basis.suite, suite_scores.table
    suite, standings = catalog.suite(suite_name), suite_scores.basis.cells
    cells = list(standings)
    edits = edited(catalog, suite_name)
    specs = {paper: read_paper(catalog.root / "papers" / paper) for paper in suite.papers}
    references = {paper: _references(catalog, paper, spec) for paper, spec in specs.items()}
    waiting = pending(
        catalog,
        cells,
        scores,
        suite_scores.refused,
        suite_scores.lacking,
        suite_scores.basis.datasets,
        suite_name,
        suite_scores.basis.unjudged,
        Printed.of(itertools.chain.from_iterable(references.values())),
        suite_scores.basis.wanted(suite_scores.lacking),
    )
    papers = [
        _paper(catalog, paper, spec, suite_scores, waiting, Printed.of(references[paper]))
        for paper, spec in specs.items()
    ]
    rows = _cell_rows(layout, standings, waiting, scores, out)
    manifests = [row.manifest for row in rows if row.manifest]
    page = _environment().get_template("report.html.j2")
    write_atomically(
        out,
        page.render(
            suite_name=suite_name,
            suite=suite,
            rows=rows,
            runtimes=_runtimes(manifests),
            untrained=sorted(set(scores.filter(~pl.col("trained"))["model"])),
            stand_ins=_datasets(scores, "stand_in"),
            rebuilds=_datasets(scores, "rebuild"),
            outcomes=_totals(rows),
            failures=Counter(row.state for row in rows if row.state not in ("complete", NOT_RUN)).most_common(),
            error_kinds=_error_kinds(layout, rows),
            controls=controls(cells, scores),
            trivial=trivial.shown(catalog, suite_scores),
            versions=_versions(suite_scores.basis.datasets),
            overview=overview(suite_scores.own),
            beside=[(str(cell), _link(layout, str(cell), out)) for cell in suite_scores.basis.beside],
            papers=papers,
            judging=work(suite_scores.basis),
            agreements=list(agreements(suite_scores.basis)),
            own_text=parts.own_text,
            mark=parts.mark,
            told=parts.told,
            marks=parts.MARKS,
            elsewhere=written.ELSEWHERE,
            seconds=seconds,
            link=lambda cell: _link(layout, cell, out),
            places={path.name: os.path.relpath(path, out.parent) for path in (layout.tables, layout.scores)},
            edits=edits,
            mostly_failed=[row for row in rows if row.manifest and row.manifest.mostly_failed],
        ).encode(),
    )
    return edits


def _paper(
    catalog: Catalog,
    paper: str,
    spec: PaperSpec,
    suite_scores: Scores,
    waiting: pl.DataFrame,
    known: Printed,
) -> Paper:
    """Write a paper's tables and figures; what the page shows of it."""
    layout, folder = Layout(catalog.results), catalog.root / "papers" / paper
    table, cells = suite_scores.table, suite_scores.basis.all
    scores = as_printed(best_of(table, spec.best, spec.judge) if spec.best else table, spec.called)
    more, gaps = _beyond(catalog, cells, known, spec)
    own = _of_paper(catalog, paper, known, scores)
    built = list(tables.build_all(folder, own, as_printed(pl.concat([waiting, more]), spec.called), gaps))
    words = asked(catalog, paper)
    for one in built:
        written.write(one, layout.tables / paper, words)
    placed = frozenset[int]().union(*(one.placed for one in built))
    elsewhere = written.write_elsewhere(own, placed, layout.tables / paper)
    plates, drawn = [], Drawn(catalog.results / "figures" / paper)
    for figure_spec in spec.figures:
        published = [read_reference(folder / "reference" / f"{name}.csv") for name in figure_spec.published]
        figure = figures.build(figure_spec, as_judged(own, spec.judge), published)
        svgs = drawing.write(figure, drawn)
        plates.append(Plate(figure, *(_inline(svg) if svg else "" for svg in svgs)))
    if plates:
        drawn.keep()
    drawn_models = {one.id: one.models for one in spec.figures}
    findings = verdicts.findings(folder, scores, suite_scores.resamples, spec.judge, drawn_models)
    written.write_findings(findings, layout.tables / paper)
    return Paper(
        id=paper,
        label=spec.label,
        citation=spec.citation,
        tables=built,
        figures=plates,
        asked=words,
        elsewhere=elsewhere,
        findings=findings,
    )


def _of_paper(catalog: Catalog, paper: str, known: Printed, scores: pl.DataFrame) -> pl.DataFrame:
    """The scores on a paper's datasets, as cards or published numbers name them; its tables see no others."""
    ran = [name for name in scores["dataset_id"].unique() if name in catalog.datasets]  # sums are of several
    families = [name for name in ran if catalog.dataset(name).paper == paper]
    named = {dataset for dataset, _, _ in known.triples}
    return scores.filter(pl.col("dataset_id").is_in(families) | pl.col("dataset").is_in(sorted(named)))


def _references(catalog: Catalog, paper: str, spec: PaperSpec) -> list[pl.DataFrame]:
    """The published numbers of a paper's tables."""
    return [read_reference(catalog.root / "papers" / paper / "reference" / table.file) for table in spec.tables]


def _beyond(catalog: Catalog, cells: Iterable[Cell], known: Printed, spec: PaperSpec) -> tuple[pl.DataFrame, Gaps]:
    """`waiting.beyond`; a card that cannot be read, of what this suite may not use, keeps no report from being written:
    `./upkeep list` tells it."""
    try:
        return beyond(catalog, cells, known, spec.called)
    except UpkeepError:
        return pl.DataFrame(schema=PENDING_SCHEMA), {}


@functools.cache
def _environment() -> jinja2.Environment:
    return templates(
        "upkeep.report",
        thousands=lambda number: f"{number:,.0f}",
        number=lambda number, digits=1: f"{number:.{digits}f}",
        duration=duration,
    )


def controls(cells: Iterable[Cell], scores: pl.DataFrame) -> list[Control]:
    """Whether the controls score what they must on every dataset of the suite, overall and on every slice."""
    found, scores = [], by_words(scores)
    for dataset in dict.fromkeys(cell.dataset for cell in cells):
        for method in CONTROLS:
            values = scores.filter(
                pl.col("dataset_id") == dataset, pl.col("method") == method, pl.col("metric") == "accuracy"
            )["value"]
            if values.is_empty():
                found.append(Control(dataset, method, "", 0, None))
                continue
            low, high = float(values.min()), float(values.max())  # type: ignore[arg-type]
            text = f"{low:.1f}" if low == high else f"{low:.1f} to {high:.1f}"
            wanted = EXPECTED[method]
            passed = abs(low - wanted) < 1e-9 and abs(high - wanted) < 1e-9
            found.append(Control(dataset, method, text, len(values), passed))
    return found


# ---------------------------------------------------------------- the overview


@dataclass(frozen=True, slots=True)
class Overview:
    """Accuracy of every cell: a row for each method, setting and model, a column for each dataset."""

    datasets: list[str]
    rows: list[tuple[str, str, str, list[dict[str, Any] | None]]]
    """(method, setting, model, a score for each dataset)."""


def overview(scores: pl.DataFrame) -> Overview:
    """Collect the accuracies over all questions, in the order of the scores."""
    accuracy = by_words(scores).filter(pl.col("metric") == "accuracy", pl.col("subset") == "all")
    datasets = accuracy["dataset_id"].unique(maintain_order=True).to_list()
    rows: dict[tuple[str, str, str], list[dict[str, Any] | None]] = {}
    for row in accuracy.iter_rows(named=True):
        setting = printed(row["setting"], leave_out=[("thinking", "off"), (JUDGE, WORDS)])
        model = model_name(row["model"], trained=row["trained"])
        places = rows.setdefault((row["label"], setting, model), [None] * len(datasets))
        place = datasets.index(row["dataset_id"])
        places[place] = places[place] or row
    return Overview(datasets, [(*key, places) for key, places in rows.items()])


# ---------------------------------------------------------------- what ran


def _cell_rows(
    layout: Layout, cells: Mapping[Cell, Standing], waiting: pl.DataFrame, scores: pl.DataFrame, out: Path
) -> list[CellRow]:
    reasons = dict(waiting.filter(pl.col("lacks") == "").select("cell", "reason").iter_rows())
    unread = dict(scores.select("cell", "unread").unique("cell").iter_rows())
    rows = []
    for cell, found in cells.items():
        state = reasons.get(str(cell), "complete")
        manifest = found.manifest if state == "complete" else None
        rows.append(CellRow(str(cell), state, manifest, unread.get(str(cell), 0), _link(layout, str(cell), out)))
    return rows


def _link(layout: Layout, cell: str, out: Path) -> str:
    return os.path.relpath(layout.cell(Cell.parse(cell)), out.parent) + "/" if cell else ""


def _runtimes(manifests: Iterable[Manifest]) -> list[tuple[str, bool, int]]:
    """(runtime, isolated, cells), the commonest first."""
    found = Counter((m.environment.runtime, m.environment.isolated) for m in manifests)
    return [(runtime, isolated, count) for (runtime, isolated), count in found.most_common()]


def _datasets(scores: pl.DataFrame, provenance: Provenance) -> list[tuple[str, str]]:
    """(dataset, the paper's that it is set beside) of the datasets of a provenance."""
    pairs = scores.filter(pl.col("provenance") == provenance).select("dataset_id", "dataset")
    return pairs.unique("dataset_id", keep="first", maintain_order=True).rows()


def _versions(datasets: Mapping[str, DatasetCard | UpkeepError]) -> dict[str, int]:
    """Of each dataset that is there, the version that all numbers on it are of."""
    return {name: card.dataset_version for name, card in datasets.items() if isinstance(card, DatasetCard)}


def _totals(rows: Sequence[CellRow]) -> dict[str, float]:
    """Sums over all complete cells."""
    manifests = [row.manifest for row in rows if row.manifest]
    return {
        "predictions": sum(m.predictions for m in manifests),
        "unread": sum(row.unread for row in rows),
        "error": sum(m.failed for m in manifests),
        "prompt": sum(m.usage.prompt for m in manifests),
        "completion": sum(m.usage.completion for m in manifests),
        "calls": sum(m.usage.calls for m in manifests),
        "computed": sum(m.measured.get("computed_prompt_tokens", m.usage.prompt) for m in manifests),
        "seconds": sum(seconds(m) for m in manifests),
    }


def seconds(manifest: Manifest) -> float:
    """Wall-clock time of a cell from its first start to its end, pauses between attempts included."""
    return (datetime.fromisoformat(manifest.end) - datetime.fromisoformat(manifest.start)).total_seconds()


class _Error(Struct, gc=False):
    error: str | None


def _error_kinds(layout: Layout, rows: Iterable[CellRow]) -> list[tuple[str, int]]:
    """Failed predictions by the first words of their error (up to a colon), the commonest first."""
    decode = msgspec.json.Decoder(_Error).decode
    kinds: Counter[str] = Counter()
    for row in rows:
        if row.manifest and row.manifest.outcomes.get("error"):
            with (layout.cell(Cell.parse(row.cell)) / "predictions.jsonl").open("rb") as file:
                errors = (decode(line).error for line in file)
                kinds.update(error.splitlines()[0].partition(":")[0][:80] for error in errors if error)
    return kinds.most_common()


def _inline(svg: str) -> str:
    """The SVG element alone, without XML declaration and document type."""
    return svg[svg.index("<svg") :]
