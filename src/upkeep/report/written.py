"""Tables as files: Markdown, LaTeX and CSV, and the scores that no table has a place for."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterable
from pathlib import Path

import polars as pl

from upkeep.files import write_atomically
from upkeep.grading.settings import as_text
from upkeep.report.latex import to_latex
from upkeep.report.parts import LEGEND, OURS, Part, ours, papers
from upkeep.report.tables import Table
from upkeep.report.verdicts import Finding

ELSEWHERE = "other_scores.csv"
FINDINGS = "claims.csv"
ON = ("release", "rebuild", "stand_in")
"""What a finding is judged on, each apart."""


def to_markdown(table: Table, asked: str = "") -> str:
    """A Markdown table, and one of our own rows below; several lines of head become one.

    Args:
        asked: whose the words of the paper's prompts are.
    """
    spec = table.spec
    lines = [f"**{spec.title}.** {spec.caption}", "", *_markdown(table, papers(table)), "", LEGEND + "."]
    if table.ours:
        lines += ["", f"**{OURS}.**", "", *_markdown(table, ours(table))]
    lines += [f"\n{note}" for note in (*table.notes, asked) if note]
    return "\n".join(lines) + "\n"


def _markdown(table: Table, part: Part) -> list[str]:
    columns = [column.replace(" | ", " · ") for column in table.columns]
    heads = [*part.left, *part.facts, *columns, *part.right]
    aligned = ["---"] * len(part.left) + ["---:"] * (len(part.facts) + len(columns)) + ["---"] * len(part.right)
    return [_line(heads), _line(aligned), *(_line(row) for row in part.rows)]


def _line(texts: Iterable[str]) -> str:
    return "| " + " | ".join(" ".join(text.split()).replace("|", "\\|") for text in texts) + " |"


_OF_NUMBER = ("own", "low", "high", "n", "failed", "published", "difference", "state", "reason")
_BEHIND = ("command", "cell", "source")


def to_csv(table: Table) -> str:
    """Tidy: one line for each place of the table, with all that is known of it. `part` says whose the row is; settings
    are those that were run, also where a stand-in's are read as others."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["table", "part", *table.spec.rows, "data", "setting", "column", *_OF_NUMBER, *_BEHIND])
    for row in table.rows:
        for column, number in zip(table.columns, row.numbers, strict=True):
            whose = "paper" if row.published else "own"
            values = (getattr(number, name) for name in (*_OF_NUMBER, *_BEHIND))
            texts = ["" if value is None else f"{value:.6g}" if isinstance(value, float) else value for value in values]
            writer.writerow([table.spec.id, whose, *row.asked, row.data, row.setting, column, *texts])
    return out.getvalue()


def write(table: Table, folder: Path, asked: str) -> list[Path]:
    """Write `<id>.md`, `.tex` and `.csv`; the first two say in whose words models were asked."""
    written = []
    texts = {"md": to_markdown(table, asked), "tex": to_latex(table, folder.name, asked), "csv": to_csv(table)}
    for suffix, text in texts.items():
        path = folder / f"{table.spec.id}.{suffix}"
        write_atomically(path, text.encode())
        written.append(path)
    return written


def write_elsewhere(scores: pl.DataFrame, placed: Collection[int], folder: Path) -> int:
    """Write the scores of a paper that none of its tables has a place for; returns how many these are.

    Args:
        scores: those on the paper's datasets, its stand-ins included.
        placed: rows of them that are in a table.
    """
    left = scores.with_row_index("place").filter(~pl.col("place").is_in(sorted(placed)))
    write_atomically(folder / ELSEWHERE, as_text(left.drop("place", "table")).write_csv().encode())
    return len(left)


def write_findings(findings: Iterable[Finding], folder: Path) -> None:
    """Write what came of each claim of a paper: one line a claim, with its outcome on each of ON."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["claim", "where", "published", *ON])
    for one in findings:
        own = (getattr(one.own, name).outcome for name in ON)
        writer.writerow([one.claim.id, one.claim.where, one.published.outcome, *own])
    write_atomically(folder / FINDINGS, out.getvalue().encode())
