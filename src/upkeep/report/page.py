"""The report: one self-contained HTML page, and the short summary for the terminal."""

from __future__ import annotations

import io
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2
import msgspec
import polars as pl
from msgspec import Struct

from upkeep.catalog import CONTROLS, Catalog, Cell
from upkeep.contract import Manifest
from upkeep.execution.status import read as status_of
from upkeep.files import write_atomically
from upkeep.grading.score import SCORE_SCHEMA, identify
from upkeep.grading.scores import Scores
from upkeep.layout import Layout
from upkeep.published import Standing
from upkeep.report import claims, figures, tables
from upkeep.report.edits import Edit, edited
from upkeep.text import duration, printable, short

EXPECTED = {"null": 0.0, "gold": 100.0}
"""Accuracy of each control, on every dataset and slice; anything else means a broken dataset or scorer."""

PENDING_SCHEMA = {
    **{
        name: SCORE_SCHEMA[name] for name in ("label", "model", "method", "setting", "dataset", "dataset_id", "trained")
    },
    "cell": pl.String,
    "reason": pl.String,
}
"""Cells that are wanted and have no scores, and why."""


@dataclass(frozen=True, slots=True)
class Control:
    """A control method on one dataset."""

    dataset: str
    method: str
    found: str
    """Accuracy over all slices; a range where they differ."""
    slices: int
    passed: bool | None
    """None where it was not run."""


@dataclass(frozen=True, slots=True)
class Finding:
    claim: claims.Claim
    published: claims.Verdict
    own: claims.Verdict
    stand_in: claims.Verdict


@dataclass(frozen=True, slots=True)
class Paper:
    id: str
    label: str
    citation: str
    tables: list[tables.Table]
    figures: list[tuple[figures.Figure, str]]
    """Each with its SVG."""
    findings: list[Finding]


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
    waiting = pending(catalog, cells, scores, suite_scores.refused)
    papers = []
    for paper in suite.papers:
        folder = catalog.root / "papers" / paper
        spec = tables.read_paper(folder)
        built = list(tables.build_all(folder, scores, waiting))
        for table in built:
            tables.write(table, layout.tables / paper)
        drawn = [figures.build(figure, scores) for figure in spec.figures]
        pictures = figures.write(drawn, catalog.results / "figures" / paper)
        papers.append(
            Paper(
                id=paper,
                label=spec.label,
                citation=spec.citation,
                tables=built,
                figures=[(figure, _inline(pictures[figure.spec.id])) for figure in drawn],
                findings=findings(folder, scores),
            )
        )
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
            stand_ins=_stand_ins(scores),
            outcomes=_totals(rows),
            failures=Counter(row.state for row in rows if row.state not in ("complete", tables.NOT_RUN)).most_common(),
            error_kinds=_error_kinds(layout, rows),
            controls=controls(cells, scores),
            overview=overview(scores),
            papers=papers,
            legend=tables.LEGEND,
            own_text=tables.own_text,
            seconds=seconds,
            link=lambda cell: _link(layout, cell, out),
            places={path.name: os.path.relpath(path, out.parent) for path in (layout.tables, layout.scores)},
            edits=edits,
            mostly_failed=[row for row in rows if row.manifest and row.manifest.mostly_failed],
        ).encode(),
    )
    return edits


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("upkeep.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["thousands"] = lambda number: f"{number:,.0f}"
    environment.filters["number"] = lambda number, digits=1: f"{number:.{digits}f}"
    environment.filters["duration"] = duration
    return environment


def pending(catalog: Catalog, cells: Iterable[Cell], scores: pl.DataFrame, refused: Mapping[str, str]) -> pl.DataFrame:
    """The cells that have no scores, with the reason of each (PENDING_SCHEMA).

    Args:
        refused: cells and datasets that are there and do not count, with the reason.
    """
    scored = set(scores["cell"])
    rows = []
    for cell in cells:
        if str(cell) in scored:
            continue
        identity = identify(catalog, cell)
        rows.append(
            {
                **{name: getattr(identity, name) for name in PENDING_SCHEMA if hasattr(identity, name)},
                "cell": str(cell),
                "reason": _reason(catalog, cell, refused.get(str(cell)) or refused.get(cell.dataset)),
            }
        )
    return pl.DataFrame(rows, schema=PENDING_SCHEMA)


def _reason(catalog: Catalog, cell: Cell, refused: str | None) -> str:
    """Why a cell has no scores: its own failure before that of a job that it waits for."""
    layout = Layout(catalog.results)
    for what, kind, name in _jobs(catalog, cell):
        status = status_of(layout.status(kind, name))
        if status is not None and status.state == "failed":
            reason = f" ({status.kind})" if status.kind else ""
            return f"failed{reason}: {what}{printable(short(status.message))}"
    if refused:
        return f"refused: {refused}"
    if not (layout.dataset(cell.dataset) / "card.json").is_file():
        return "dataset not available"
    return tables.NOT_RUN


def _jobs(catalog: Catalog, cell: Cell) -> Iterator[tuple[str, str, object]]:
    """(what to call it, kind, name) of a cell and of the jobs that it waits for."""
    yield "", "cells", cell
    training = catalog.training_of(cell)
    while training:
        yield f"training {training.model}+{training.method}.{training.variant}: ", "trained", training
        training = catalog.training_of(training)
    yield "its dataset: ", "datasets", cell.dataset


def controls(cells: Iterable[Cell], scores: pl.DataFrame) -> list[Control]:
    """Whether the controls score what they must on every dataset of the suite, overall and on every slice."""
    found = []
    for dataset in dict.fromkeys(cell.dataset for cell in cells):
        for method in CONTROLS:
            values = scores.filter(
                pl.col("dataset_id") == dataset, pl.col("method") == method, pl.col("metric") == "accuracy"
            )["value"]
            if values.is_empty():
                found.append(Control(dataset, method, tables.NOT_RUN, 0, None))
                continue
            low, high = float(values.min()), float(values.max())  # type: ignore[arg-type]
            text = f"{low:.1f}" if low == high else f"{low:.1f} to {high:.1f}"
            wanted = EXPECTED[method]
            passed = abs(low - wanted) < 1e-9 and abs(high - wanted) < 1e-9
            found.append(Control(dataset, method, text, len(values), passed))
    return found


def findings(folder: Path, scores: pl.DataFrame) -> list[Finding]:
    """Every claim of a paper, on the published numbers, on our own, and on stand-ins."""
    ledger = claims.read_claims(folder)
    published = claims.published(folder, ledger)
    own = claims.own(claims.comparable(scores), ledger)
    stand_in = claims.own(claims.on_stand_ins(scores), ledger)
    return [Finding(claim, published[claim.id], own[claim.id], stand_in[claim.id]) for claim in ledger]


# ---------------------------------------------------------------- the overview


@dataclass(frozen=True, slots=True)
class Overview:
    """Accuracy of every cell: a row for each method, setting and model, a column for each dataset."""

    datasets: list[str]
    rows: list[tuple[str, str, str, list[dict[str, Any] | None]]]
    """(method, setting, model, a score for each dataset)."""


def overview(scores: pl.DataFrame) -> Overview:
    """Collect the accuracies over all questions, in the order of the scores."""
    accuracy = scores.filter(pl.col("metric") == "accuracy", pl.col("subset") == "all")
    datasets = accuracy["dataset_id"].unique(maintain_order=True).to_list()
    rows: dict[tuple[str, str, str], list[dict[str, Any] | None]] = {}
    for row in accuracy.iter_rows(named=True):
        setting = ", ".join(p for p in row["setting"].split(";") if p and p != "thinking=off")
        model = tables.model_name(row["model"], trained=row["trained"])
        places = rows.setdefault((row["label"], setting, model), [None] * len(datasets))
        place = datasets.index(row["dataset_id"])
        places[place] = places[place] or row
    return Overview(datasets, [(*key, places) for key, places in rows.items()])


def summary(scores: pl.DataFrame) -> str:
    """Accuracy (%) of methods by dataset with the 95% half-width, as text for the terminal."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    view = overview(scores)
    if not view.rows:
        return "no scores: no cell is complete"
    table = Table(box=SIMPLE_HEAD, title="Accuracy (%), 95% interval clustered by question", title_justify="left")
    for heading in ("method", "setting", "model"):
        table.add_column(heading, no_wrap=True)
    for dataset in view.datasets:
        table.add_column(dataset, justify="right", no_wrap=True)
    for method, setting, model, places in view.rows:
        texts = []
        for row in places:
            if row is None:
                texts.append("–")
            else:
                half = "" if row["low"] is None else f" ±{(row['high'] - row['low']) / 2:4.1f}"
                failed = f" ({row['failed']:,} failed)" if row["failed"] else ""
                texts.append(f"{row['value']:.1f}{half}{failed}")
        table.add_row(method, setting, model, *texts)
    console = Console(file=io.StringIO(), width=200, color_system=None, force_terminal=False)
    console.print(table)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in text.splitlines()).strip("\n")


# ---------------------------------------------------------------- what ran


def _cell_rows(
    layout: Layout, cells: Mapping[Cell, Standing], waiting: pl.DataFrame, scores: pl.DataFrame, out: Path
) -> list[CellRow]:
    reasons = dict(waiting.select("cell", "reason").iter_rows())
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


def _stand_ins(scores: pl.DataFrame) -> list[tuple[str, str]]:
    """(stand-in, the paper's dataset) of the datasets that are not the paper's."""
    pairs = scores.filter(pl.col("dataset_id") != pl.col("dataset")).select("dataset_id", "dataset")
    return pairs.unique(maintain_order=True).rows()


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
