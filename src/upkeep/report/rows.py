"""Rows of tables: what stands in each of their places, and why."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl

from upkeep.grading.settings import option, printed
from upkeep.report.card_fields import Said
from upkeep.report.comparing import UNRUN, State, compare, compare_setting, incomparable
from upkeep.report.fields import REBUILD, agrees, expanded, holds
from upkeep.report.selecting import Entry, Values
from upkeep.report.specs import Fact, PaperSpec, TableSpec
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
    source: str = ""
    """Of what is no score but set by cards: field, value and files."""
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


@dataclass(slots=True)
class Draft:
    """What is known of a row, by column."""

    first: Values
    published: dict[int, Values] = field(default_factory=dict)
    own: dict[int, Values] = field(default_factory=dict)
    said: dict[int, Said] = field(default_factory=dict)
    """What cards say of published numbers."""
    waiting: dict[int, Values] = field(default_factory=dict)

    @property
    def order(self) -> float:
        """Where a row of ours stands among these: as in the scores, and last where it has none."""
        return min((values["place"] for values in self.own.values()), default=math.inf) if not self.published else 0


def model_name(label: str, *, trained: bool) -> str:
    """A model's label, marked where its weights are random."""
    return label if trained or "untrained" in label.lower() else f"{label} (untrained)"


def facts_of(reference: pl.DataFrame, fact: Fact) -> dict[tuple[str, ...], str]:
    keys = [name.removeprefix("setting.") for name in fact.by if name.startswith("setting.")]
    frame = reference.filter(holds(fact.match)).with_columns(option(key).alias(f"setting.{key}") for key in keys)
    return {tuple(row[name] for name in fact.by): row["value"] for row in frame.iter_rows(named=True)}


def row_of(
    entry: Entry,
    drafts: Mapping[Entry, Draft],
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
    entry: Entry, draft: Draft, spec: TableSpec, paper: PaperSpec, real: Mapping[str, Any], *, untrained: bool
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


def _number(draft: Draft, index: int, spec: TableSpec, gaps: Gaps, why: str, rebuilt: Draft | None) -> Number:
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
    if (said := draft.said.get(index)) is not None:
        state = "no number" if said.value is None else compare_setting(said.value, published)
        return Number(own=said.value, source=said.source, published=published, state=state, reason=said.reason)
    # What cards set in other places of the row, no cell gives in this one.
    waiting, state = None if draft.said and beside is None else draft.waiting.get(index), "not run"
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


def _why(entry: Entry, draft: Draft, spec: TableSpec, keys: frozenset[tuple[str, ...]]) -> str:
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


def averaged(rows: list[Row], spec: TableSpec) -> list[Row]:
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
