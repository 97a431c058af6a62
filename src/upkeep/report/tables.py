"""Published tables as specs over scores: our own number and the published one side by side.

A spec (`papers/<paper>/tables.yaml`) says which fields tell one row from another and which fields' values make up the
columns; nothing here knows any table. A field is a column of papers/FORMAT.md, or `setting.<key>` for one key of the
setting column. Numbers on a small stand-in of a dataset are never set beside published ones: they get rows of their
own at the end, as do models that the paper does not have.
"""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from upkeep.contract import Name, Record
from upkeep.errors import UpkeepError
from upkeep.files import open_regular, write_atomically
from upkeep.yaml_files import read_yaml

Match = dict[str, str]
"""Field -> the value that it must have."""

MAX_REFERENCE_BYTES = 16 * 2**20
REFERENCE_COLUMNS = ("table", "label", "model", "method", "supervision", "setting", "dataset", "subset", "metric")


class Stub(Record, frozen=True, kw_only=True):
    """A column at the left that says what a row is."""

    field: str
    heading: str


class Fact(Record, frozen=True, kw_only=True):
    """A column of published facts about a row (a model's size), which no run of ours can change."""

    heading: str
    match: Match
    by: list[str]
    """The row fields that it hangs on."""


class TableSpec(Record, frozen=True, kw_only=True):
    """One published table."""

    id: Name
    """File name in `reference/`, as the paper numbers it."""
    title: str
    caption: str
    where: Match = msgspec.field(default_factory=dict)
    """What all its numbers have in common."""
    rows: list[str]
    """Fields that tell one row from another."""
    stub: list[Stub]
    facts: list[Fact] = msgspec.field(default_factory=list)
    columns: list[dict[str, Match]]
    """Axes, the outermost first, each from heading to match; the table's columns are their product. `|` in a heading
    parts two lines of the head."""
    extend: list[str] = msgspec.field(default_factory=list)
    """Row fields in which rows of our own may differ from every published row."""
    average: Match | None = None
    """The row that is the mean of the others."""
    digits: int = 1
    """Decimals of our own numbers; published ones stay as printed."""
    notes: list[str] = msgspec.field(default_factory=list)


class Series(Record, frozen=True, kw_only=True):
    """One kind of line in a figure; there is a line for each model and set of data."""

    name: str
    match: Match
    x: str
    """Field on the horizontal axis."""
    largest: str | None = None
    """Of several runs of a line, only the one with the largest value of this field."""


class Panel(Record, frozen=True, kw_only=True):
    title: str
    match: Match


class FigureSpec(Record, frozen=True, kw_only=True):
    """One published figure."""

    id: Name
    title: str
    caption: str
    xlabel: str
    ylabel: str
    panels: list[Panel]
    series: list[Series]
    notes: list[str] = msgspec.field(default_factory=list)


class PaperSpec(Record, frozen=True, kw_only=True):
    """`papers/<paper>/tables.yaml`."""

    label: str
    citation: str
    names: dict[str, str] = msgspec.field(default_factory=dict)
    """Printed names of ids."""
    stand_in: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)
    """Field -> value on a stand-in -> the published value that it stands for."""
    tables: list[TableSpec]
    figures: list[FigureSpec] = msgspec.field(default_factory=list)


def read_paper(folder: Path) -> PaperSpec:
    """Read `tables.yaml` of a paper's folder."""
    return read_yaml(folder / "tables.yaml", PaperSpec)


def read_reference(path: Path) -> pl.DataFrame:
    """Published numbers: the columns of papers/FORMAT.md as text, `value` as printed.

    Raises:
        UpkeepError: the file is missing or unreadable, its columns are others, or a value is no number.
    """
    if not path.exists():
        raise UpkeepError("no published numbers", where=path, remedy="see papers/FORMAT.md")
    with open_regular(path, MAX_REFERENCE_BYTES, links=True) as file:
        content = file.read()
    try:
        frame = pl.read_csv(content, infer_schema=False).fill_null("")
    except pl.exceptions.PolarsError as error:
        raise UpkeepError(
            f"not readable as CSV: {str(error).splitlines()[0]}", where=path, remedy="see papers/FORMAT.md"
        ) from None
    if frame.columns != [*REFERENCE_COLUMNS, "value", "unit"]:
        raise UpkeepError(
            "other columns than papers/FORMAT.md has",
            where=path,
            expected=", ".join([*REFERENCE_COLUMNS, "value", "unit"]),
            found=", ".join(frame.columns)[:500],
        )
    odd = frame.with_row_index("line", 2).filter(pl.col("value").cast(pl.Float64, strict=False).is_null())
    if not odd.is_empty():
        raise UpkeepError(
            "not a number", where=f"{path}:{odd['line'][0]}", expected="a number in `value`", found=odd["value"][0]
        )
    return frame


# ---------------------------------------------------------------- what a table is made of


@dataclass(frozen=True, slots=True)
class Number:
    """One place of a table."""

    own: float | None
    low: float | None
    high: float | None
    n: int | None
    cell: str
    """The cell that the number comes from; empty where there is none."""
    published: str
    """As printed; empty where the paper has none."""
    reason: str
    """Why there is no number of our own; empty where there is one."""
    failed: int = 0
    """Predictions of the cell that failed; they count as wrong."""

    @property
    def half(self) -> float | None:
        """Half the width of the 95% interval."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2


@dataclass(frozen=True, slots=True)
class Row:
    key: tuple[str, ...]
    """Values of the spec's row fields."""
    data: str
    """Empty for the paper's dataset, else which stand-in (`mini`)."""
    stub: list[str]
    facts: list[str]
    numbers: list[Number]
    published: bool
    """Whether the paper has this row."""
    untrained: bool


@dataclass(frozen=True, slots=True)
class Table:
    spec: TableSpec
    head: list[list[tuple[str, int]]]
    """Lines of the head over the numbers: (text, number of columns that it spans)."""
    columns: list[str]
    """The full heading of each column of numbers."""
    rows: list[Row]
    notes: list[str] = field(default_factory=list)


NOT_RUN = "not run"


STAND_IN = pl.col("dataset_id").str.strip_prefix(pl.col("dataset")).str.strip_chars("_-")
"""Which stand-in for a paper's dataset one is: `mini` for `oaks_babi_mini`, empty for the dataset itself."""


def build(
    spec: TableSpec,
    paper: PaperSpec,
    reference: pl.DataFrame,
    scores: pl.DataFrame,
    pending: pl.DataFrame,
) -> Table:
    """Fill a table.

    Args:
        reference: published numbers (`read_reference`).
        scores: `scoring.score.SCORE_SCHEMA`.
        pending: cells that are wanted and have no scores: label, model, method, setting, dataset, dataset_id, trained
            and `reason`.

    Returns:
        The paper's rows in its order, then rows of our own.

    Raises:
        UpkeepError: the spec names a field that does not exist.
    """
    columns = [_merged(combination) for combination in itertools.product(*(axis.items() for axis in spec.columns))]
    fields = _fields(spec, [match for _, match in columns])
    published = _prepare(reference.with_columns(dataset_id="dataset"), spec, fields, {})
    own = _prepare(scores, spec, fields, paper.stand_in)
    waiting = _prepare(pending, spec, fields, paper.stand_in)

    rows: dict[tuple[tuple[str, ...], str], _Draft] = {}
    for index, (_, match) in enumerate(columns):
        for row in _select(published, match).iter_rows(named=True):
            draft = rows.setdefault((_key(row, spec), ""), _Draft(row))
            draft.published[index] = row["value"]
    # Rows in the order of the paper's file, whichever column they were first met in.
    order = {_key(row, spec): place for place, row in reversed(list(enumerate(published.iter_rows(named=True))))}
    rows = dict(sorted(rows.items(), key=lambda item: order[item[0][0]]))
    fixed = {_fixed(key, spec) for key, _ in rows}

    for index, (_, match) in enumerate(columns):
        for row in _select(own, match).iter_rows(named=True):
            key = _key(row, spec)
            if _fixed(key, spec) in fixed:
                rows.setdefault((key, row["data"]), _Draft(row)).own.setdefault(index, row)
        for row in _select(waiting, {k: v for k, v in match.items() if k not in ("subset", "metric")}).iter_rows(
            named=True
        ):
            key = _key(row, spec)
            if _fixed(key, spec) in fixed and "method" in fields:
                rows.setdefault((key, row["data"]), _Draft(row)).reasons.setdefault(index, row["reason"])

    facts = [_facts(reference, fact) for fact in spec.facts]
    drafts = [(key, data, draft) for (key, data), draft in rows.items()]
    drafts.sort(key=lambda item: (not item[2].published, item[1] != ""))  # stable: the paper's order stays
    filled = [_row(key, data, draft, spec, paper, facts, len(columns)) for key, data, draft in drafts]
    if spec.average:
        filled = _averaged(filled, spec)
    return Table(
        spec,
        _head([path for path, _ in columns]),
        [" | ".join(path) for path, _ in columns],
        filled,
        _notes(spec, filled),
    )


@dataclass(slots=True)
class _Draft:
    first: dict[str, Any]
    published: dict[int, str] = field(default_factory=dict)
    own: dict[int, dict[str, Any]] = field(default_factory=dict)
    reasons: dict[int, str] = field(default_factory=dict)


def _merged(combination: Iterable[tuple[str, Match]]) -> tuple[list[str], Match]:
    path: list[str] = []
    match: Match = {}
    for heading, part in combination:
        path += [line.strip() for line in heading.split("|")]
        match |= part
    return path, match


def _fields(spec: TableSpec, matches: Sequence[Match]) -> set[str]:
    fields = set(spec.where) | set(spec.rows) | {name for match in matches for name in match}
    known = {*REFERENCE_COLUMNS[1:], "dataset_id"}
    for name in fields | {s.field for s in spec.stub}:
        if name not in known and not name.startswith("setting."):
            raise UpkeepError(
                f"unknown field {name!r}",
                where=f"tables.yaml, {spec.id}",
                expected=f"one of {', '.join(sorted(known))}, or setting.<key>",
            )
    return fields


def _prepare(
    frame: pl.DataFrame, spec: TableSpec, fields: set[str], scale: Mapping[str, Mapping[str, str]]
) -> pl.DataFrame:
    """Rows that may belong to the table, with `data` and a column for each setting field.

    Rows with a setting that the spec does not name are other experiments. On stand-ins, settings are read as the
    published ones that they stand for.
    """
    keys = sorted(name.removeprefix("setting.") for name in fields if name.startswith("setting."))
    others = (
        pl.col("setting")
        .str.split(";")
        .list.eval(pl.element().filter(~pl.element().str.extract("^([^=]*)", 1).is_in(["", *keys])))
    )
    frame = frame.filter(others.list.len() == 0).with_columns(
        STAND_IN.alias("data"), *(option(key).alias(f"setting.{key}") for key in keys)
    )
    for name, values in scale.items():
        if name in frame.columns:
            scaled = pl.col(name).replace_strict(values, default="not " + pl.col(name), return_dtype=pl.String)
            small = (pl.col("data") != "") & (pl.col(name) != "")
            frame = frame.with_columns(pl.when(small).then(scaled).otherwise(name).alias(name))
    return _select(frame, {name: value for name, value in spec.where.items() if name in frame.columns})


def model_name(label: str, *, trained: bool) -> str:
    """A model's label, marked where its weights are random."""
    return label if trained or "untrained" in label.lower() else f"{label} (untrained)"


def option(key: str) -> pl.Expr:
    """One key of the setting column; empty where it is absent (the macro `opt` of papers/FORMAT.md)."""
    return pl.col("setting").str.extract(f"(?:^|;){re.escape(key)}=([^;]*)", 1).fill_null("")


def _select(frame: pl.DataFrame, match: Match) -> pl.DataFrame:
    return frame.filter(*(pl.col(name) == value for name, value in match.items())) if match else frame


def _key(row: Mapping[str, Any], spec: TableSpec) -> tuple[str, ...]:
    return tuple(row[name] for name in spec.rows)


def _fixed(key: tuple[str, ...], spec: TableSpec) -> tuple[str, ...]:
    """The part of a row's key in which rows of our own must be like a published one."""
    return tuple(value for name, value in zip(spec.rows, key, strict=True) if name not in spec.extend)


def _facts(reference: pl.DataFrame, fact: Fact) -> dict[tuple[str, ...], str]:
    keys = [name.removeprefix("setting.") for name in fact.by if name.startswith("setting.")]
    frame = reference.with_columns(option(key).alias(f"setting.{key}") for key in keys)
    return {
        tuple(row[name] for name in fact.by): row["value"] for row in _select(frame, fact.match).iter_rows(named=True)
    }


def _row(
    key: tuple[str, ...],
    data: str,
    draft: _Draft,
    spec: TableSpec,
    paper: PaperSpec,
    facts: list[dict[tuple[str, ...], str]],
    width: int,
) -> Row:
    values = dict(zip(spec.rows, key, strict=True))
    untrained = draft.first.get("trained") is False
    stub = []
    for column in spec.stub:
        text = values.get(column.field, draft.first.get(column.field, ""))
        if column.field == "model" and not text:  # a row of means
            text = draft.first["label"]
        text = paper.names.get(text, text)
        if column.field == "label" and not draft.published:
            text += _described(draft.first, spec)
        if column.field == "model":
            text = model_name(text, trained=not untrained)
        stub.append(text)
    if data:
        stub[0] += f" [{data}]"
    numbers = []
    for index in range(width):
        row, published = draft.own.get(index), draft.published.get(index, "")
        if row is None:
            numbers.append(Number(None, None, None, None, "", published, draft.reasons.get(index, NOT_RUN)))
        else:
            numbers.append(
                Number(row["value"], row["low"], row["high"], row["n"], row["cell"], published, "", row["failed"] or 0)
            )
    return Row(
        key=key,
        data=data,
        stub=stub,
        facts=[
            known.get(tuple(values[name] for name in fact.by), "")
            for fact, known in zip(spec.facts, facts, strict=True)
        ],
        numbers=numbers,
        published=bool(draft.published),
        untrained=untrained,
    )


def _described(row: Mapping[str, Any], spec: TableSpec) -> str:
    """The settings of a row of our own, where they tell rows apart."""
    keys = {name.removeprefix("setting.") for name in spec.rows if name.startswith("setting.")} - {"thinking", "row"}
    parts = [part for part in row["setting"].split(";") if part.partition("=")[0] in keys]
    return f" ({', '.join(parts)})" if parts else ""


def _averaged(rows: list[Row], spec: TableSpec) -> list[Row]:
    """Fill the row of means where every other published row has a number of our own."""
    wanted = tuple((spec.average or {}).items())
    places = {name: place for place, name in enumerate(spec.rows)}
    mean_rows = [row for row in rows if all(row.key[places[name]] == value for name, value in wanted)]
    others = [row for row in rows if row.published and row not in mean_rows]
    result = []
    for row in rows:
        if row not in mean_rows:
            result.append(row)
            continue
        numbers = []
        for index, number in enumerate(row.numbers):
            own = [other.numbers[index].own for other in others]
            complete = [value for value in own if value is not None]
            if complete and len(complete) == len(own):
                numbers.append(Number(sum(complete) / len(complete), None, None, None, "", number.published, ""))
            else:
                numbers.append(number)
        result.append(Row(row.key, row.data, row.stub, row.facts, numbers, row.published, row.untrained))
    return result


def _head(paths: list[list[str]]) -> list[list[tuple[str, int]]]:
    """Lines of the head; equal neighbours under equal parents are joined."""
    depth = max(len(path) for path in paths)
    padded = [[""] * (depth - len(path)) + path for path in paths]
    lines: list[list[tuple[str, int]]] = []
    for level in range(depth):
        groups = itertools.groupby(range(len(padded)), key=lambda i: padded[i][: level + 1] if level + 1 < depth else i)
        line = [(padded[members[0]][level], len(members)) for members in (list(group) for _, group in groups)]
        lines.append(line)
    return lines


def _notes(spec: TableSpec, rows: Sequence[Row]) -> list[str]:
    """The spec's notes, and what the table's own content calls for."""
    notes = list(spec.notes)
    data = sorted({row.data for row in rows if row.data})
    if data:
        notes.append(
            f"Rows with [{'], ['.join(data)}] are runs on small stand-ins for the paper's datasets: not comparable "
            "with the published numbers."
        )
    if any(row.untrained for row in rows):
        notes.append("Models marked untrained have random weights: their numbers show that the suite works, no more.")
    failures = {n.reason for row in rows for n in row.numbers if n.reason and n.reason != NOT_RUN}
    notes += [f"No number of our own (✗): {reason}" for reason in sorted(failures)]
    return notes


# ---------------------------------------------------------------- written forms


def own_text(number: Number, digits: int) -> str:
    """Our own number, with its cell's failed predictions; or why there is none: `–` not run, `✗` see the notes."""
    if number.own is not None:
        return f"{number.own:.{digits}f}" + (f" ({number.failed:,} failed)" if number.failed else "")
    return "–" if number.reason == NOT_RUN else "✗"


def pair_text(number: Number, digits: int, published_row: bool) -> str:
    """`own / published`; a row that the paper lacks has our own number alone."""
    own = own_text(number, digits)
    return f"{own} / {number.published or '·'}" if published_row else own


LEGEND = "own / published; – not run, ✗ no number of our own (see the notes), · no published number"


def to_markdown(table: Table) -> str:
    """A Markdown table; several lines of head become one."""
    spec = table.spec
    heads = (
        [s.heading for s in spec.stub]
        + [f.heading for f in spec.facts]
        + [c.replace(" | ", " · ") for c in table.columns]
    )
    aligned = ["---"] * len(spec.stub) + ["---:"] * (len(spec.facts) + len(table.columns))
    lines = [f"**{spec.title}.** {spec.caption}", "", _line(heads), _line(aligned)]
    for row in table.rows:
        numbers = [pair_text(number, spec.digits, row.published) for number in row.numbers]
        lines.append(_line([*row.stub, *row.facts, *numbers]))
    lines += ["", LEGEND + ".", *(f"\n{note}" for note in table.notes)]
    return "\n".join(lines) + "\n"


def _line(texts: Iterable[str]) -> str:
    return "| " + " | ".join(text.replace("|", "\\|").replace("\n", " ") for text in texts) + " |"


_LATEX = {
    "\\": r"\textbackslash{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "–": "--",
    "±": r"$\pm$",
    "·": r"$\cdot$",
    "✗": r"$\times$",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
}


def latex_escape(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)


def to_latex(table: Table) -> str:
    """A floating `table` for booktabs."""
    spec = table.spec
    left = len(spec.stub) + len(spec.facts)
    lines = [
        "% needs \\usepackage{booktabs}",
        "\\begin{table}",
        "\\centering\\small",
        f"\\caption{{{latex_escape(spec.title)}. {latex_escape(spec.caption)} {latex_escape(LEGEND)}.}}",
        f"\\label{{tab:{spec.id}}}",
        f"\\begin{{tabular}}{{{'l' * len(spec.stub)}{'r' * (len(spec.facts) + len(table.columns))}}}",
        "\\toprule",
    ]
    for level, line in enumerate(table.head):
        last = level == len(table.head) - 1
        texts = [s.heading for s in spec.stub] + [f.heading for f in spec.facts] if last else [""] * left
        cells = [latex_escape(text) for text in texts]
        rules, at = [], left + 1
        for text, span in line:
            cells.append(f"\\multicolumn{{{span}}}{{c}}{{{latex_escape(text)}}}" if span > 1 else latex_escape(text))
            if text and not last:
                rules.append(f"\\cmidrule(lr){{{at}-{at + span - 1}}}")
            at += span
        lines.append(" & ".join(cells) + r" \\" + "".join(rules))
    lines.append("\\midrule")
    for number, row in enumerate(table.rows):
        if number and table.rows[number - 1].published and not row.published:
            lines.append("\\midrule")
        texts = [*row.stub, *row.facts, *(pair_text(n, spec.digits, row.published) for n in row.numbers)]
        lines.append(" & ".join(latex_escape(text) for text in texts) + r" \\")
    lines += ["\\bottomrule", "\\end{tabular}"]
    lines += [f"\\par\\footnotesize {latex_escape(note)}" for note in table.notes]
    lines.append("\\end{table}")
    return "\n".join(lines) + "\n"


def to_csv(table: Table) -> str:
    """Tidy: one line for each place of the table."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        [
            "table",
            *table.spec.rows,
            "data",
            "column",
            "own",
            "low",
            "high",
            "n",
            "failed",
            "published",
            "reason",
            "cell",
        ]
    )
    for row in table.rows:
        for column, number in zip(table.columns, row.numbers, strict=True):
            values = [number.own, number.low, number.high, number.n, number.failed]
            texts = ["" if value is None else f"{value:.6g}" if isinstance(value, float) else value for value in values]
            writer.writerow(
                [table.spec.id, *row.key, row.data, column, *texts, number.published, number.reason, number.cell]
            )
    return out.getvalue()


def write(table: Table, folder: Path) -> list[Path]:
    """Write `<id>.md`, `.tex` and `.csv`."""
    written = []
    for suffix, text in (("md", to_markdown(table)), ("tex", to_latex(table)), ("csv", to_csv(table))):
        path = folder / f"{table.spec.id}.{suffix}"
        write_atomically(path, text.encode())
        written.append(path)
    return written


def build_all(folder: Path, scores: pl.DataFrame, pending: pl.DataFrame) -> Iterator[Table]:
    """Every table of a paper's folder, in the order of its specs."""
    paper = read_paper(folder)
    for spec in paper.tables:
        yield build(spec, paper, read_reference(folder / "reference" / f"{spec.id}.csv"), scores, pending)
