"""Published tables from specs over scores: our own number and the published one side by side.

Nothing here knows any table (`specs`). The paper's rows come first, with what of ours is the same experiment. What fits
none of them follows as rows of our own, each with its reason: a model or a setting that the paper lacks, a rebuild of
a dataset or a small stand-in for it. A score that the table has a column for is in one of the two.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl

from upkeep.grading.judgements import WORDS
from upkeep.grading.settings import option, printed
from upkeep.report.comparing import UNRUN, State, compare, incomparable
from upkeep.report.fields import REBUILD, agrees, check, expanded, holds
from upkeep.report.reference import read_reference
from upkeep.report.selecting import Entry, Selection, Values
from upkeep.report.specs import Fact, Match, PaperSpec, TableSpec, read_paper
from upkeep.report.waiting import Gap, Gaps

NO_MODEL = "–"


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """One place of a table."""

    own: float | None = None
    low: float | None = None
    high: float | None = None
    n: int | None = None
    cell: str = ""
    """The cell that the number comes from, or that would give it; empty where there is none."""
    published: str = ""
    """As printed; empty where the paper has none."""
    state: State
    reason: str = ""
    """Why there is no number of our own, or why it is not to be compared."""
    command: str = ""
    """What would give the number, where there is none."""
    failed: int = 0
    """Predictions of the cell that failed; they count as wrong."""
    whole: bool = False
    """Whether our own is a count of whole things, which has no decimals; a mean of counts has."""

    @property
    def half(self) -> float | None:
        """Half the width of the 95% interval."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2

    @property
    def difference(self) -> float | None:
        """Our own number less the published one."""
        return None if self.own is None or not self.published else self.own - float(self.published)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    key: tuple[str, ...]
    """Values of the spec's row fields."""
    asked: tuple[str, ...]
    """The same as its cells have them: a stand-in's settings are read as others."""
    data: str
    """Empty for the paper's release, REBUILD, or which stand-in (`mini`)."""
    setting: str = ""
    """Of a row of our own: the settings that no row of the paper's has."""
    stub: list[str]
    facts: list[str]
    numbers: list[Number]
    published: bool
    """Whether the paper has this row."""
    untrained: bool
    reason: str = ""
    """Of a row of our own: why it is not the paper's."""


@dataclass(frozen=True, slots=True)
class Table:
    spec: TableSpec
    head: list[list[tuple[str, int]]]
    """Lines of the head over the numbers: (text, number of columns that it spans)."""
    columns: list[str]
    """The full heading of each column of numbers."""
    rows: list[Row]
    """The paper's, in its order, then our own."""
    notes: list[str] = field(default_factory=list)
    placed: Mapping[int, int] = field(default_factory=dict)
    """The rows of the scores that are in the table, each with the number of its settings that the paper's rows lack."""

    @property
    def papers(self) -> list[Row]:
        return [row for row in self.rows if row.published]

    @property
    def ours(self) -> list[Row]:
        return [row for row in self.rows if not row.published]

    @property
    def filled(self) -> bool:
        """Whether any number of ours is in the paper's rows."""
        return any(number.own is not None for row in self.papers for number in row.numbers)


@dataclass(slots=True)
class _Draft:
    first: Values
    published: dict[int, Values] = field(default_factory=dict)
    own: dict[int, Values] = field(default_factory=dict)
    waiting: dict[int, Values] = field(default_factory=dict)

    @property
    def order(self) -> float:
        """Where a row of ours stands among these: as in the scores, and last where it has none."""
        return min((values["place"] for values in self.own.values()), default=math.inf) if not self.published else 0


def build(
    spec: TableSpec,
    paper: PaperSpec,
    reference: pl.DataFrame,
    scores: pl.DataFrame,
    pending: pl.DataFrame,
    gaps: Gaps | None = None,
    nearest: Mapping[int, int] | None = None,
) -> Table:
    """Fill a table.

    Args:
        reference: published numbers (`read_reference`).
        scores: `score.SCORE_SCHEMA`, as the paper calls them (`fields.as_printed`).
        pending: `waiting.PENDING_SCHEMA`, called so too: cells that have no scores, or lack one.
        gaps: why nothing can be run for some of the published numbers.
        nearest: the same number as of `Table.placed` in the table where it is smallest: here a larger one has no place.

    Returns:
        The paper's rows in its order, then rows of our own. Where rows are metrics, those that the paper prints alone.

    Raises:
        UpkeepError: the spec names a field that does not exist.
    """
    columns = [_merged(combination) for combination in itertools.product(*(axis.items() for axis in spec.columns))]
    fields = {*spec.where, *spec.rows, *(name for _, match in columns for name in match), *(s.field for s in spec.stub)}
    check(sorted(fields | {name for one in spec.unfilled for name in one.match}), f"tables.yaml, {spec.id}")
    selection = Selection(spec, [match for _, match in columns], paper.stand_in, paper.judge or WORDS)
    rows: dict[Entry, _Draft] = {}
    published = reference.with_columns(
        dataset_id="dataset", provenance=pl.lit("release"), stand_in=pl.lit(""), trained=pl.lit(value=True)
    )
    for values in selection.rows(published):
        for index, entry in selection.published(values):
            rows.setdefault(entry, _Draft(values)).published[index] = values
    keys = frozenset(entry.key for entry in rows)
    about = {entry.key[spec.rows.index("metric")] for entry in rows} if "metric" in spec.rows else set()

    placed: dict[int, int] = {}
    for values in sorted(selection.rows(scores), key=lambda values: bool(incomparable(values))):
        for index, entry in selection.own(values):
            is_far = nearest is not None and entry.foreign > nearest.get(values["place"], entry.foreign)
            if is_far or (about and values["metric"] not in about):
                continue  # no variant of what the table is about
            if entry in rows and index in rows[entry].own:  # two cells that the table cannot tell apart
                entry = replace(entry, cell=values["cell"] or values["dataset_id"])
            rows.setdefault(entry, _Draft(values)).own[index] = values
            placed[values["place"]] = entry.foreign
    for values in selection.rows(pending):
        for index, entry in list(selection.waiting(values, rows)):
            if entry in rows or not (values["aside"] or values["reason"] in UNRUN):
                rows.setdefault(entry, _Draft(values)).waiting.setdefault(index, values)

    facts = [_facts(reference, fact) for fact in spec.facts]
    drafts = sorted(rows.items(), key=lambda item: (not item[1].published, item[0].data != "", item[1].order))
    filled = [_row(entry, rows, spec, paper, facts, len(columns), keys, gaps or {}) for entry, _ in drafts]
    if spec.average:
        filled = _averaged(filled, spec)
    return Table(
        spec,
        _head([path for path, _ in columns]),
        [" | ".join(path) for path, _ in columns],
        filled,
        _notes(spec, filled),
        placed,
    )


def _merged(combination: Iterable[tuple[str, Match]]) -> tuple[list[str], Match]:
    path: list[str] = []
    match: Match = {}
    for heading, part in combination:
        path += [line.strip() for line in heading.split("|")]
        match |= part
    return path, match


def model_name(label: str, *, trained: bool) -> str:
    """A model's label, marked where its weights are random."""
    return label if trained or "untrained" in label.lower() else f"{label} (untrained)"


def _facts(reference: pl.DataFrame, fact: Fact) -> dict[tuple[str, ...], str]:
    keys = [name.removeprefix("setting.") for name in fact.by if name.startswith("setting.")]
    frame = reference.filter(holds(fact.match)).with_columns(option(key).alias(f"setting.{key}") for key in keys)
    return {tuple(row[name] for name in fact.by): row["value"] for row in frame.iter_rows(named=True)}


def _row(
    entry: Entry,
    drafts: Mapping[Entry, _Draft],
    spec: TableSpec,
    paper: PaperSpec,
    facts: list[dict[tuple[str, ...], str]],
    width: int,
    keys: frozenset[tuple[str, ...]],
    gaps: Gaps,
) -> Row:
    values, draft = dict(zip(spec.rows, entry.key, strict=True)), drafts[entry]
    real, rebuilt = expanded(draft.first), drafts.get(replace(entry, data=REBUILD))
    why = "" if draft.published else _why(entry, draft, spec, keys)
    untrained = not draft.published and draft.first["trained"] is False
    return Row(
        key=entry.key,
        asked=tuple(real.get(name) or "" for name in spec.rows),
        data=entry.data,
        setting=entry.setting,
        stub=_stub(entry, draft, spec, paper, real, untrained=untrained),
        facts=[
            known.get(tuple(values[name] for name in fact.by), "")
            for fact, known in zip(spec.facts, facts, strict=True)
        ],
        numbers=[_number(draft, index, spec, gaps, why, rebuilt) for index in range(width)],
        published=bool(draft.published),
        untrained=untrained,
        reason=why,
    )


def _stub(
    entry: Entry, draft: _Draft, spec: TableSpec, paper: PaperSpec, real: Mapping[str, Any], *, untrained: bool
) -> list[str]:
    """What says which row it is. Settings of a stand-in are shown as they are, and not as what they stand for."""
    labelled = any(column.field == "label" for column in spec.stub)
    stub = []
    for column in spec.stub:
        text = real.get(column.field) or ""
        if column.field == "model" and not text:  # a row of means, a control, people
            text = NO_MODEL if labelled else draft.first["label"]
        text = paper.names.get(text, text)
        if column.field == "label" and not draft.published:
            text += _described(draft.first, spec)
        if column.field == "model":
            text = model_name(text, trained=not untrained)
        stub.append(text)
    stub[0] += f" [{entry.data}]" if entry.data else ""
    return stub


def _described(row: Values, spec: TableSpec) -> str:
    """The settings of a row of our own, where they tell rows apart and have no column of their own."""
    shown = {column.field for column in spec.stub}
    keys = {name.removeprefix("setting.") for name in set(spec.rows) - shown if name.startswith("setting.")} - {"row"}
    text = printed(pair for pair in row["setting"] if pair["key"] in keys)
    return f" ({text})" if text else ""


def _number(draft: _Draft, index: int, spec: TableSpec, gaps: Gaps, why: str, rebuilt: _Draft | None) -> Number:
    row, beside = draft.own.get(index), draft.published.get(index)
    published = beside["value"] if beside else ""
    if row is not None:
        state, reason = compare(row, published)
        if why:
            state, reason = "not comparable", "; ".join(filter(None, (why, row["read_as"])))
        return Number(
            own=row["value"],
            low=row["low"],
            high=row["high"],
            n=row["n"],
            cell=row["cell"],
            published=published,
            state=state,
            reason=reason,
            failed=row["failed"] or 0,
            whole=row["unit"] == "count" and float(row["value"]).is_integer(),
        )
    waiting, state = draft.waiting.get(index), "not run"
    unfilled = [one.why for one in spec.unfilled if agrees(beside, one.match)] if beside else []
    if unfilled:
        gap, state = Gap(unfilled[0]), "no number"
    elif waiting is not None:
        gap = Gap(waiting["reason"], waiting["command"] or "", waiting["cell"] or "")
        state = "not run" if gap.reason in UNRUN else "no number"
    elif rebuilt is not None and index in rebuilt.own:
        gap = Gap("run on a rebuild of the paper's data alone")
    elif beside is not None:
        gap = gaps.get((beside["dataset"], beside["method"], beside["model"]), Gap())
    else:
        gap, state = Gap("the paper prints no number here, and no cell of the suite gives one"), "unpublished"
    return Number(published=published, state=state, reason=gap.reason, command=gap.command, cell=gap.cell)


def _why(entry: Entry, draft: _Draft, spec: TableSpec, keys: frozenset[tuple[str, ...]]) -> str:
    """Why a row is not the paper's."""
    reasons = list(
        dict.fromkeys(text for row in draft.own.values() if (text := incomparable(row)))
        or ([text] if (text := incomparable(draft.first)) else [])
    )
    if entry.setting:
        reasons.append(f"no row of the paper's has {entry.setting}")
    if entry.key not in keys:
        real = expanded(draft.first)  # a stand-in's own settings, and not what they are read as
        columns = zip(spec.rows, entry.key, zip(*keys, strict=True), strict=True) if keys else ()
        others = [
            f"{name.removeprefix('setting.')} {real[name]}"
            for name, value, known in columns
            if value and value not in known
        ]
        reasons.append(f"not in the paper's table: {', '.join(others) or 'this combination'}")
    if entry.cell:
        reasons.append(f"{entry.cell} has the names and settings of another row")
    return "; ".join(reasons)


def _averaged(rows: list[Row], spec: TableSpec) -> list[Row]:
    """Fill the row of means where every other published row has a number of our own."""

    def is_mean(row: Row) -> bool:
        return row.published and agrees(dict(zip(spec.rows, row.key, strict=True)), spec.average or {})

    others = [row for row in rows if row.published and not is_mean(row)]
    result = []
    for row in rows:
        numbers = row.numbers
        if is_mean(row):
            numbers = [_mean([o.numbers[i].own for o in others], n.published) for i, n in enumerate(row.numbers)]
        result.append(replace(row, numbers=numbers))
    return result


def _mean(own: Sequence[float | None], published: str) -> Number:
    known = [value for value in own if value is not None]
    if len(known) < len(own) or not own:
        return Number(published=published, state="not run", reason="the mean of rows of which some have no number")
    return Number(
        own=sum(known) / len(known),
        published=published,
        state="not comparable",
        reason="a mean of rows has no interval here",
    )


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
    small = sorted({row.data for row in rows} - {"", REBUILD})
    if any(row.data == REBUILD for row in rows):
        notes.append(
            f"Rows with [{REBUILD}] are runs on datasets that were built anew by the paper's rules, from other or "
            "newly collected inputs: the questions are not the paper's."
        )
    if small:
        notes.append(
            f"Rows with [{'], ['.join(small)}] are runs on small stand-ins for the paper's datasets: not comparable "
            "with the published numbers."
        )
    if any(row.untrained for row in rows):
        notes.append("Models marked untrained have random weights: their numbers show that the suite works, no more.")
    failures = {n.reason for row in rows for n in row.numbers if n.state == "no number"}
    notes += [f"No number of our own (✗): {reason}" for reason in sorted(failures)]
    return notes


def build_all(folder: Path, scores: pl.DataFrame, pending: pl.DataFrame, gaps: Gaps | None = None) -> Iterator[Table]:
    """Every table of a paper's folder, in order; a score is a variant only where the fewest of its settings are odd."""
    paper = read_paper(folder)
    parts = [
        (spec, paper, read_reference(folder / "reference" / spec.file), scores, pending, gaps) for spec in paper.tables
    ]
    first, nearest = [build(*part) for part in parts], dict[int, int]()
    for place, foreign in (item for table in first for item in table.placed.items()):
        nearest[place] = min(foreign, nearest.get(place, foreign))
    for part, table in zip(parts, first, strict=True):
        yield build(*part, nearest) if any(n > nearest[place] for place, n in table.placed.items()) else table
