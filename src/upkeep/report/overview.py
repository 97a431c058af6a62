"""What came out of a suite, for its first page: methods by datasets, and three sentences written from the numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from upkeep.catalog import CONTROLS, Catalog
from upkeep.grading.judgements import WORDS
from upkeep.grading.settings import printed
from upkeep.jobs import Cell
from upkeep.report.fields import JUDGE, by_words
from upkeep.report.papers import Paper
from upkeep.report.rows import model_name

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


# ---------------------------------------------------------------- methods by datasets


@dataclass(frozen=True, slots=True)
class Line:
    """A method in one setting, with one model."""

    method: str
    """Its id; of a trained model, the one that asks it."""
    label: str
    setting: str
    model: str
    places: list[dict[str, Any] | None]
    """A score for each dataset, as `score.SCORE_SCHEMA` has it."""

    def named(self, with_model: bool) -> str:
        """What a sentence calls it."""
        name = f"{self.label} ({self.setting})" if self.setting else self.label
        return f"{name} with {self.model}" if with_model and self.model else name


@dataclass(frozen=True, slots=True)
class Grid:
    """Accuracy of every cell."""

    datasets: list[str]
    lines: list[Line]


def grid(scores: pl.DataFrame) -> Grid:
    """The accuracies over all questions: methods as the suite has them, each in the order of its settings."""
    accuracy = by_words(scores).filter(pl.col("metric") == "accuracy", pl.col("subset") == "all")
    datasets = accuracy["dataset_id"].unique(maintain_order=True).to_list()
    lines: dict[tuple[str, str, str], Line] = {}
    for row in accuracy.iter_rows(named=True):
        setting = printed(row["setting"], leave_out=[("thinking", "off"), (JUDGE, WORDS)])
        model = model_name(row["model"], trained=row["trained"])
        key = row["label"], setting, model
        line = lines.setdefault(key, Line(Cell.parse(row["cell"]).method, *key, [None] * len(datasets)))
        place = datasets.index(row["dataset_id"])
        line.places[place] = line.places[place] or row
    order = {label: place for place, label in enumerate(dict.fromkeys(label for label, _, _ in lines))}
    found = sorted(lines.values(), key=lambda line: (order[line.label], natural(line.setting), line.model))
    return Grid(datasets, found)


def best(catalog: Catalog, found: Grid) -> list[list[Line]]:
    """For each dataset the most accurate of the methods that are not told where the answer stands, several where these
    are equal; none where there are not two of them."""
    rows = [line for line in found.lines if catalog.method(line.method).sees == "documents"]
    firsts = []
    for place in range(len(found.datasets)):
        there = [(row["value"], line) for line in rows if (row := line.places[place]) is not None]
        highest = max((value for value, _ in there), default=0.0)
        firsts.append([line for value, line in there if value == highest] if len(there) > 1 else [])
    return firsts


def natural(text: str) -> list[tuple[str, float]]:
    """A key to sort by that takes numbers in a text as numbers: `k=3` before `k=10`."""
    return [(words, float(number or 0)) for words, number in re.findall(r"(\D*)(\d*(?:\.\d+)?)", text)]


# ---------------------------------------------------------------- in words


def sentences(
    catalog: Catalog, found: Grid, cells: int, answers: int, incomplete: Counter[str], papers: Sequence[Paper]
) -> list[str]:
    """What came out, in three sentences: what was run, what is best, and how it stands to what the papers print.

    Args:
        cells: how many of the suite are complete.
        answers: how many predictions these have.
        incomplete: the others, by reason.
    """
    total = cells + incomplete.total()
    methods = {line.method for line in found.lines}
    ran = f"{cells:,} of {total:,} cells are complete"
    if found.lines:
        ran += f": {_count(len(methods), 'method')} on {_count(len(found.datasets), 'dataset')}, {answers:,} answers"
    if incomplete:
        ran += "; " + ", ".join(f"{count:,} {_short(reason)}" for reason, count in incomplete.most_common(3))
    return [f"{ran}.", *_best(catalog, found), *_papers(papers)]


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def _short(reason: str) -> str:
    return reason.partition(":")[0]


def _best(catalog: Catalog, found: Grid) -> list[str]:
    """Which method is most often the best."""
    several = len({line.model for line in found.lines if line.model}) > 1
    wins: Counter[str] = Counter()
    values: dict[str, list[tuple[float, str]]] = {}
    for place, lines in enumerate(best(catalog, found)):
        row = lines[0].places[place] if len(lines) == 1 else None
        if row is not None:
            name = lines[0].named(several)
            wins[name] += 1
            values.setdefault(name, []).append((row["value"], found.datasets[place]))
    if not wins:
        return []
    (first, count), *others = wins.most_common()
    low, high = min(values[first]), max(values[first])
    span = f"{low[0]:.1f}% on {low[1]}" + (f" to {high[0]:.1f}% on {high[1]}" if count > 1 else "")
    told = f"Of the methods that must find the answer, {first} is the most accurate on {count} of "
    told += f"{_count(len(found.datasets), 'dataset')} ({span})"
    if others:
        told += f", {others[0][0]} on {others[0][1]}"
    return [f"{told}."]


def _papers(papers: Sequence[Paper]) -> list[str]:
    """How our numbers stand to the published ones, and what came of the findings."""
    states: Counter[str] = Counter(
        number.state for paper in papers for table in paper.tables for row in table.papers for number in row.numbers
    )
    findings = [finding for paper in papers for finding in paper.findings]
    if not findings:
        return []
    beside = states["within the interval"] + states["differs"]
    told = (
        f"Of {beside:,} published numbers beside ours, {states['within the interval']:,} lie in our 95% interval"
        if beside
        else "No published number has a comparable one of ours beside it"
    )
    on = {"the papers' own data": "release", "rebuilt data": "rebuild", "stand-ins": "stand_in"}
    outcomes = {name: Counter(getattr(one.own, field).outcome for one in findings) for name, field in on.items()}
    parts = [text for name, counts in outcomes.items() if (text := _decided(counts, name))]
    told += f"; of {len(findings)} findings " + (" and ".join(parts) if parts else "none is decided by these runs")
    return [f"{told}."]


def _decided(counts: Mapping[str, int], name: str) -> str:
    words = {"holds": ("holds", "hold"), "fails": ("fails", "fail"), "undecided": ("is undecided", "are undecided")}
    found = [f"{count} {words[outcome][count > 1]}" for outcome in words if (count := counts.get(outcome, 0))]
    return f"{', '.join(found)} on {name}" if found else ""
