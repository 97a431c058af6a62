"""What a run ends with on the terminal: accuracies, and what came of the papers' findings."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from upkeep.report.fields import by_words
from upkeep.report.written import FINDINGS, ON

WIDTH = 120
"""Characters of a line."""
NUMBER, GAP = 12, 3
"""Characters of a number with its interval, and between two columns."""
_NAMES = dict(zip(ON, ("the papers' own data", "rebuilt data", "small stand-ins"), strict=True))


def summary(scores: pl.DataFrame, trials: Mapping[str, int]) -> str:
    """Accuracy (%) of cells with the 95% half-width: a row for what a cell's id has after its dataset, a column for
    each dataset; in several tables, where they are many.

    Args:
        scores: `grading.score.SCORE_SCHEMA`.
        trials: of each cell, how often its probes were asked; a column says it where that is more than once.
    """
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    accuracy = by_words(scores).filter(pl.col("metric") == "accuracy", pl.col("subset") == "all")
    if accuracy.is_empty():
        return "no scores"
    datasets = accuracy["dataset_id"].unique(maintain_order=True).to_list()
    rows: dict[tuple[str, int], dict[str, dict[str, Any]]] = {}
    for row in accuracy.iter_rows(named=True):
        key = row["cell"].partition("/")[2], trials.get(row["cell"], 1)
        rows.setdefault(key, {}).setdefault(row["dataset_id"], row)
    several = any(times > 1 for _, times in rows)
    console = Console(file=io.StringIO(), width=10 * WIDTH, color_system=None, force_terminal=False)
    longest = max(len(name) for name, _ in rows)
    for some in _parts(datasets, WIDTH - longest - 10 * several):
        table = Table(box=SIMPLE_HEAD)
        table.add_column("METHOD/VARIANT/MODEL", no_wrap=True)
        for heading in [*(["trials"] if several else []), *some]:
            table.add_column(heading, justify="right", no_wrap=True)
        for (name, times), found in rows.items():
            texts = [_number(found[dataset]) if dataset in found else "–" for dataset in some]
            if found.keys() & set(some):
                table.add_row(name, *([str(times)] if several else []), *texts)
        console.print(table)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    lines = "\n".join(line.rstrip() for line in text.splitlines()).strip("\n")
    return f"Accuracy (%), 95% interval clustered by question\n\n{lines}"


def _parts(datasets: list[str], room: int) -> Iterator[list[str]]:
    """The datasets of one table after the other: as many as fit into so many characters, one at least."""
    some: list[str] = []
    for dataset in datasets:
        if some and sum(max(len(one), NUMBER) + GAP for one in [*some, dataset]) > room:
            yield some
            some = []
        some.append(dataset)
    yield some


def _number(row: Mapping[str, Any]) -> str:
    half = "" if row["low"] is None else f" ±{(row['high'] - row['low']) / 2:4.1f}"
    failed = f" ({row['failed']:,} failed)" if row["failed"] else ""
    return f"{row['value']:.1f}{half}{failed}"


def told_findings(tables: Path, papers: Iterable[str]) -> Iterator[str]:
    """How many findings of each paper came out how, a line for each kind of data that says anything of them.

    Args:
        tables: `results/tables/<suite>/`, as the report was written last.
    """
    for paper in papers:
        path = tables / paper / FINDINGS
        lines = list(csv.DictReader(path.read_text("utf-8").splitlines())) if path.is_file() else []
        for on, name in _NAMES.items():
            outcomes = Counter(line[on].replace("_", " ") for line in lines)
            if set(outcomes) - {"not run", "undecidable"}:
                counts = ", ".join(f"{outcome} {count}" for outcome, count in outcomes.most_common())
                yield f"findings of {paper} on {name}: {counts}"
