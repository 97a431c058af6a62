"""Tables in LaTeX that can be read on paper: wide ones as panels below each other, long ones over several floats."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import ceil

from upkeep.report.parts import LEGEND, OURS, Part, ours, papers
from upkeep.report.tables import Table

WIDTH, LINES = 160, 58
"""Characters in a line of a table and lines in a float, in `\\scriptsize`, for which a page of the class `article` has
room."""
WRAPPED = 46
"""Characters in a line of a text that is longer than this."""
GAP = 2
"""Of columns, in characters."""

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
    "○": r"$\circ$",
    "✗": r"$\times$",
    "≈": r"$\approx$",
    "≠": r"$\neq$",
    "≡": r"$\equiv$",
    "≢": r"$\not\equiv$",
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
    """Floats for booktabs, none larger than a page's text: the paper's rows, then our own.

    Args:
        paper: whose it is, for its label, as `tab:oaks:table_1`: papers number their tables alike.
        asked: whose the words of its prompts are.
    """
    spec, label = table.spec, f"tab:{paper}:{table.spec.id}"
    lines = ["% needs \\usepackage{array,booktabs,adjustbox,caption}; letters beyond Latin need LuaLaTeX or XeLaTeX"]
    notes = [note for note in (*table.notes, asked) if note]
    lines += _floats(table, papers(table), f"{spec.title}. {spec.caption} {LEGEND}.", label, notes)
    if table.ours:
        lines += _floats(table, ours(table), f"{spec.title}: {OURS.lower()}.", f"{label}-own", [])
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class _Piece:
    """A `tabular`."""

    lines: list[str]
    height: int
    """In lines of text."""


def _floats(table: Table, part: Part, caption: str, label: str, notes: Sequence[str]) -> Iterator[str]:
    """The pieces, as many in each float as it has room for; notes stand below the last."""
    room = max(LINES - _height(caption, 80) - sum(_height(note, 90) for note in notes), LINES // 3)
    floats: list[list[_Piece]] = [[]]
    for piece in _pieces(table, part, room):
        if floats[-1] and sum(other.height + 1 for other in floats[-1]) + piece.height > room:
            floats.append([])
        floats[-1].append(piece)
    for number, pieces in enumerate(floats):
        if number:
            yield "\\clearpage"  # LaTeX holds back a few floats and no more
        yield from ("\\begin{table}", "\\centering\\scriptsize\\setlength{\\tabcolsep}{3pt}")
        # The paper's number is the only one, in the caption and where a text refers to it.
        yield f"\\captionsetup{{labelformat=empty}}\\renewcommand{{\\thetable}}{{{latex_escape(table.spec.title)}}}"
        if number:
            yield f"\\ContinuedFloat\\caption{{{latex_escape(table.spec.title)} (continued).}}"
        else:
            yield from (f"\\caption{{{latex_escape(caption)}}}", f"\\label{{{label}}}")
        for piece in pieces:
            yield "\\begin{adjustbox}{max width=\\textwidth,max totalheight=0.8\\textheight}"
            yield from piece.lines
            yield "\\end{adjustbox}\\par\\smallskip"
        if number == len(floats) - 1:
            yield from (f"\\raggedright\\footnotesize {latex_escape(note)}\\par" for note in notes)
        yield "\\end{table}"


def _height(text: str, width: int) -> int:
    return ceil(len(text) / width)


def _pieces(table: Table, part: Part, room: int) -> Iterator[_Piece]:
    """Rows that fit below each other, in each of the panels; then the next rows."""
    head, left = len(table.head) + 2, len(part.left) + len(part.facts)
    widths = [max(map(len, texts)) for texts in zip(*part.rows, strict=True)] if part.rows else []
    widths = [*widths, *[0] * (left + len(table.columns) + len(part.right) - len(widths))]
    names = [*part.left, *part.facts, *(text for text, _ in table.head[-1]), *part.right]
    widths = [min(max(width, len(name)), WRAPPED) + GAP for width, name in zip(widths, names, strict=True)]
    panels = _panels(table, widths, left)
    chunks: list[list[list[str]]] = [[]]
    filled = head
    for row in part.rows:
        height = max(_height(text, WRAPPED) for text in row)
        if chunks[-1] and filled + height > room:
            chunks.append([])
            filled = head
        chunks[-1].append(row)
        filled += height
    for rows in chunks:
        for number, panel in enumerate(panels):
            places = [*range(left), *(left + column for column in panel)]
            if number == len(panels) - 1:
                places += range(left + len(table.columns), len(widths))
            texts = [[row[place] for place in places] for row in rows]
            height = head + sum(max(_height(text, WRAPPED) for text in row) for row in texts)
            forms = [
                _form(widths[place], number=len(part.left) <= place < left + len(table.columns)) for place in places
            ]
            yield _Piece(_tabular("".join(forms), _head(table, part, panel, places), texts), height)


def _form(width: int, *, number: bool) -> str:
    if number:
        return "r"
    return "l" if width < WRAPPED + GAP else ">{\\raggedright\\arraybackslash}p{60mm}"


def _panels(table: Table, widths: Sequence[int], left: int) -> list[list[int]]:
    """Which columns of numbers stand side by side: what has one heading at the top stays together where it can."""
    beside = sum(widths[:left])
    last = sum(widths[left + len(table.columns) :])
    panels: list[list[int]] = [[]]

    def room(columns: Sequence[int]) -> int:
        return WIDTH - beside - sum(widths[left + column] for column in columns)

    def units(level: int, columns: list[int]) -> Iterator[list[int]]:
        if room(columns) >= 0 or len(columns) == 1:
            yield columns
            return
        for unit in _groups(table.head[level + 1]):  # the last line has a heading for each column
            if unit[0] in columns:
                yield from units(level + 1, unit)

    for group in _groups(table.head[0]):
        for unit in units(0, group):
            if panels[-1] and room([*panels[-1], *unit]) < 0:
                panels.append([])
            panels[-1] += unit
    if last and room(panels[-1]) < last and len(panels[-1]) > 1:  # the reason has a place beside some numbers at least
        half = ceil(len(panels[-1]) / 2)
        panels[-1:] = [panels[-1][:half], panels[-1][half:]]
    return panels


def _groups(line: Sequence[tuple[str, int]]) -> Iterator[list[int]]:
    at = 0
    for _, span in line:
        yield list(range(at, at + span))
        at += span


def _head(table: Table, part: Part, panel: Sequence[int], places: Sequence[int]) -> Iterator[str]:
    """The lines of a panel's head; a heading over several columns spans those of them that are in the panel."""
    left = len(part.left) + len(part.facts)
    after = len(places) - left - len(panel)
    for level, line in enumerate(table.head):
        last = level == len(table.head) - 1
        above = {column: group for group in _groups(line) for column in group}
        cells = [latex_escape(text) if last else "" for text in (*part.left, *part.facts)]
        rules, at = [], left + 1
        texts = [text for text, span in line for _ in range(span)]  # by column
        for group, columns in groupby(panel, key=above.__getitem__):
            text, span = texts[group[0]], len(list(columns))
            cells.append(f"\\multicolumn{{{span}}}{{c}}{{{latex_escape(text)}}}" if span > 1 else latex_escape(text))
            if text and not last:
                rules.append(f"\\cmidrule(lr){{{at}-{at + span - 1}}}")
            at += span
        cells += [latex_escape(text) if last else "" for text in part.right[:after]]
        yield " & ".join(cells) + r" \\" + "".join(rules)


def _tabular(form: str, head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    body = (" & ".join(latex_escape(text) for text in row) + r" \\" for row in rows)
    return [f"\\begin{{tabular}}{{{form}}}", "\\toprule", *head, "\\midrule", *body, "\\bottomrule", "\\end{tabular}"]
