"""What a run ends with on the terminal: accuracies, and what came of the papers' findings."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import polars as pl

from upkeep.contract import Record
from upkeep.report.fields import by_words
from upkeep.report.written import FINDINGS, ON

WIDTH = 120
"""Characters of a line."""
NUMBER, GAP = 12, 3
"""Characters of a number with its interval, and between two columns."""
_NAMES = dict(zip(ON, ("the papers' own data", "rebuilt data", "small stand-ins"), strict=True))


class Accuracy(Record, frozen=True, kw_only=True):
    """The accuracy of a cell over all its questions, in percent, by the answer key's words."""

    cell: str
    trials: int
    """How often each probe was asked."""
    value: float
    low: float | None
    """Of the 95% interval, clustered by question; null where few questions give none."""
    high: float | None
    n: int
    """Predictions behind it."""
    failed: int
    """Of these, which count as wrong."""


class Outcomes(Record, frozen=True, kw_only=True):
    """What came of a paper's findings on one kind of data."""

    paper: str
    on: str
    """`release` (the paper's own data), `rebuild` or `stand_in`."""
    outcomes: dict[str, int]
    """Outcome -> findings."""


class Ran(Record, frozen=True, kw_only=True):
    """What `./upkeep run --json` ends with, also where cells failed."""

    suite: str
    sample: str
    """Which questions alone were asked; empty where all were."""
    cells: int
    complete: int
    seconds: float
    """Of this command."""
    report: str | None
    """The first page of the report; null of a sample, which has none."""
    accuracies: list[Accuracy]
    findings: list[Outcomes]
    """Of papers and kinds of data on which any could be looked at; none of a sample."""
    refused: dict[str, str]
    """Cell that is there and has no scores -> why."""


def accuracies(scores: pl.DataFrame, trials: Mapping[str, int]) -> list[Accuracy]:
    """Each cell's.

    Args:
        scores: `grading.score.SCORE_SCHEMA`.
        trials: of each cell, how often its probes were asked.
    """
    found = by_words(scores).filter(pl.col("metric") == "accuracy", pl.col("subset") == "all")
    names = ("cell", "value", "low", "high", "n", "failed")
    return [
        Accuracy(**{name: row[name] for name in names}, trials=trials.get(row["cell"], 1))
        for row in found.iter_rows(named=True)
    ]


def summary(accuracies: Iterable[Accuracy]) -> str:
    """Accuracy (%) of cells with the 95% half-width: a row for what a cell's id has after its dataset, a column for
    each dataset; in several tables, where they are many. A column says how often cells were asked where that is more
    than once.
    """
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    rows: dict[tuple[str, int], dict[str, Accuracy]] = {}
    for one in accuracies:
        dataset, _, rest = one.cell.partition("/")
        rows.setdefault((rest, one.trials), {}).setdefault(dataset, one)
    if not rows:
        return "no scores"
    datasets = list(dict.fromkeys(dataset for found in rows.values() for dataset in found))
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


def _number(one: Accuracy) -> str:
    half = "" if one.low is None or one.high is None else f" ±{(one.high - one.low) / 2:4.1f}"
    failed = f" ({one.failed:,} failed)" if one.failed else ""
    return f"{one.value:.1f}{half}{failed}"


def outcomes(tables: Path, papers: Iterable[str]) -> Iterator[Outcomes]:
    """How many findings of each paper came out how, for each kind of data that says anything of them.

    Args:
        tables: `results/tables/<suite>/`, as the report was written last.
    """
    for paper in papers:
        path = tables / paper / FINDINGS
        lines = list(csv.DictReader(path.read_text("utf-8").splitlines())) if path.is_file() else []
        for on in _NAMES:
            counts = Counter(line[on].replace("_", " ") for line in lines)
            if set(counts) - {"not run", "undecidable"}:
                yield Outcomes(paper=paper, on=on, outcomes=dict(counts.most_common()))


def told_findings(found: Iterable[Outcomes]) -> Iterator[str]:
    """A line for each."""
    for one in found:
        counts = ", ".join(f"{outcome} {count}" for outcome, count in one.outcomes.items())
        yield f"findings of {one.paper} on {_NAMES[one.on]}: {counts}"
