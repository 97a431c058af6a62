"""Tables as files: Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from upkeep.files import write_atomically
from upkeep.grading.settings import printed
from upkeep.report.comparing import State
from upkeep.report.tables import Number, Table

MARKS: dict[State, str] = {
    "within the interval": "≈",
    "differs": "≠",
    "not comparable": "†",
    "not run": "–",
    "no number": "✗",
    "unpublished": "·",
}
"""What stands for the state of a place."""
LEGEND = (
    "own / published: ≈ the published number lies in our 95% interval, ≠ it does not, † they are not comparable; "
    "– not run, ✗ no number of our own (see the notes), · no published number"
)
OURS = "Our own variants"
ELSEWHERE = "other_scores.csv"


def own_text(number: Number, digits: int) -> str:
    """Our own number with half its interval and its cell's failed predictions; or the mark that says there is none.

    A count has no decimals, whatever its table's other numbers have.
    """
    if number.own is None:
        return MARKS["no number" if number.state == "no number" else "not run"]
    digits = 0 if number.whole else digits
    half = "" if number.half is None else f"±{number.half:.{digits}f}"
    return f"{number.own:.{digits}f}{half}" + (f" ({number.failed:,} failed)" if number.failed else "")


def mark(number: Number) -> str:
    """How our own number stands to the published one; empty where there are no two."""
    return MARKS[number.state] if number.own is not None and number.published else ""


def pair_text(number: Number, digits: int, published_row: bool) -> str:
    """`own / published` and the mark; a row that the paper lacks has our own number alone."""
    own = own_text(number, digits)
    return f"{own} / {number.published or MARKS['unpublished']} {mark(number)}".rstrip() if published_row else own


def told(number: Number, digits: int) -> str:
    """All that is known of a place, as a sentence for a reader who asks."""
    parts = [f"{number.state}: {number.reason}" if number.reason not in ("", number.state) else str(number.state)]
    if number.difference is not None:
        parts.append(f"difference {number.difference:+.{digits}f}")
    if number.low is not None and number.high is not None:
        parts.append(f"95% interval {number.low:.{digits}f} to {number.high:.{digits}f}")
    if number.n is not None:
        parts.append(f"n = {number.n:,}")
    parts += [text for text in (number.cell, number.command) if text]
    return "; ".join(parts)


@dataclass(frozen=True, slots=True)
class Part:
    """The paper's rows of a table, or our own, as texts."""

    left: list[str]
    """Headings of what says which row it is."""
    facts: list[str]
    """Headings of what is known about it."""
    right: list[str]
    """Headings after the numbers."""
    rows: list[list[str]]


def papers(table: Table) -> Part:
    """The rows that the paper has."""
    spec = table.spec
    rows = [
        [*row.stub, *row.facts, *(pair_text(number, spec.digits, published_row=True) for number in row.numbers)]
        for row in table.papers
    ]
    return Part([stub.heading for stub in spec.stub], [fact.heading for fact in spec.facts], [], rows)


def ours(table: Table) -> Part:
    """The rows that it has not, each with its settings, where any has one that no row of the paper's has, and why."""
    spec, settings = table.spec, any(row.setting for row in table.ours)
    rows = [
        [
            *row.stub,
            *([row.setting] * settings),
            *(pair_text(number, spec.digits, published_row=False) for number in row.numbers),
            row.reason,
        ]
        for row in table.ours
    ]
    return Part([*(stub.heading for stub in spec.stub), *(["Setting"] * settings)], [], ["Why"], rows)


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


_LATEX = {
    "\\": r"\textbackslash{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    # After the end of a row these two would be taken for its options.
    **{character: f"{{{character}}}" for character in "[]*"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "–": "--",
    "—": "---",
    "…": r"\ldots{}",
    "±": r"$\pm$",
    "−": "$-$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "✗": r"$\times$",
    "≈": r"$\approx$",
    "≠": r"$\neq$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "→": r"$\rightarrow$",
    "†": r"\dag{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
}


def latex_escape(text: str) -> str:
    """A text for LaTeX, on one line, `code` as such. Letters beyond Latin stay as they are: LuaLaTeX and XeLaTeX can
    write them."""
    line = "".join(_LATEX.get(character, character) for character in " ".join(text.split()) if character.isprintable())
    return re.sub(r"`([^`]+)`", r"\\texttt{\1}", line)


def to_latex(table: Table, paper: str = "", asked: str = "") -> str:
    """A floating `table` for booktabs, no larger than a page's text, and one of our own rows.

    Args:
        paper: whose it is, for its label, as `tab:oaks:table_1`: papers number their tables alike.
        asked: whose the words of its prompts are.
    """
    spec, label = table.spec, f"tab:{paper}:{table.spec.id}"
    lines = ["% needs \\usepackage{booktabs,adjustbox}; letters beyond Latin need LuaLaTeX or XeLaTeX"]
    lines += _latex(table, papers(table), f"{spec.title}. {spec.caption} {LEGEND}.", label, [*table.notes, asked])
    if table.ours:
        lines += _latex(table, ours(table), f"{spec.title}: {OURS.lower()}.", f"{label}-own", [])
    return "\n".join(lines) + "\n"


def _latex(table: Table, part: Part, caption: str, label: str, notes: Iterable[str]) -> list[str]:
    left = len(part.left) + len(part.facts)
    form = "l" * len(part.left) + "r" * (len(part.facts) + len(table.columns)) + "p{60mm}" * len(part.right)
    lines = [
        "\\begin{table}",
        "\\centering\\small",
        f"\\caption{{{latex_escape(caption)}}}",
        f"\\label{{{label}}}",
        "\\begin{adjustbox}{max width=\\textwidth,max totalheight=0.8\\textheight}",
        f"\\begin{{tabular}}{{{form}}}",
        "\\toprule",
    ]
    for level, line in enumerate(table.head):
        last = level == len(table.head) - 1
        cells = [latex_escape(text) if last else "" for text in (*part.left, *part.facts)]
        rules, at = [], left + 1
        for text, span in line:
            cells.append(f"\\multicolumn{{{span}}}{{c}}{{{latex_escape(text)}}}" if span > 1 else latex_escape(text))
            if text and not last:
                rules.append(f"\\cmidrule(lr){{{at}-{at + span - 1}}}")
            at += span
        cells += [latex_escape(text) if last else "" for text in part.right]
        lines.append(" & ".join(cells) + r" \\" + "".join(rules))
    lines += ["\\midrule", *(" & ".join(latex_escape(text) for text in row) + r" \\" for row in part.rows)]
    lines += ["\\bottomrule", "\\end{tabular}", "\\end{adjustbox}"]
    lines += [f"\\par\\smallskip\\footnotesize {latex_escape(note)}\\par" for note in notes if note]
    return [*lines, "\\end{table}"]


_OF_NUMBER = ("own", "low", "high", "n", "failed", "published", "difference", "state", "reason", "command", "cell")


def to_csv(table: Table) -> str:
    """Tidy: one line for each place of the table, with all that is known of it. `part` says whose the row is."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["table", "part", *table.spec.rows, "data", "setting", "column", *_OF_NUMBER])
    for row in table.rows:
        for column, number in zip(table.columns, row.numbers, strict=True):
            whose = "paper" if row.published else "own"
            values = (getattr(number, name) for name in _OF_NUMBER)
            texts = ["" if value is None else f"{value:.6g}" if isinstance(value, float) else value for value in values]
            writer.writerow([table.spec.id, whose, *row.key, row.data, row.setting, column, *texts])
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
    settings = [printed(setting) for setting in left["setting"]]
    file = left.drop("place", "table").with_columns(pl.Series("setting", settings, dtype=pl.String)).write_csv()
    write_atomically(folder / ELSEWHERE, file.encode())
    return len(left)
