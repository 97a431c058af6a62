"""Published tables from specs over scores: our own number and the published one side by side.

Nothing here knows any table (`specs`). The paper's rows come first, with what of ours is the same experiment. What fits
none of them follows as rows of our own, each with its reason: a model or a setting that the paper lacks, a rebuild of
a dataset or a small stand-in for it. A score that the table has a column for is in one of the two.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import polars as pl

from upkeep.grading.judgements import WORDS
from upkeep.report.card_fields import Cards
from upkeep.report.comparing import incomparable
from upkeep.report.fields import REBUILD, check
from upkeep.report.reference import read_reference
from upkeep.report.rows import Draft, Row, averaged, facts_of, row_of
from upkeep.report.selecting import Entry, Selection, Values, values_of
from upkeep.report.specs import Match, PaperSpec, TableSpec, read_paper
from upkeep.report.waiting import Gaps


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
        """Whether any number of ours that a run gave is in the paper's rows."""
        return any(number.own is not None and not number.source for row in self.papers for number in row.numbers)


@dataclass(frozen=True, slots=True)
class _Places:
    """A table with the paper's numbers, and where in it scores of ours have a place."""

    spec: TableSpec
    paper: PaperSpec
    reference: pl.DataFrame
    columns: list[list[str]]
    """The headings of each."""
    selection: Selection
    rows: dict[Entry, Draft]
    """The paper's."""
    own: list[tuple[Values, int, Entry]]
    """Scores, each with its column and its row."""

    @property
    def settings(self) -> dict[int, int]:
        """As `Table.placed`."""
        return {values["place"]: entry.foreign for values, _, entry in self.own}


def build(
    spec: TableSpec,
    paper: PaperSpec,
    reference: pl.DataFrame,
    scores: pl.DataFrame,
    pending: pl.DataFrame,
    gaps: Gaps | None = None,
    cards: Cards | None = None,
) -> Table:
    """Fill a table by itself.

    Args:
        reference: published numbers (`read_reference`).
        scores: `score.SCORE_SCHEMA`, as the paper calls them (`fields.as_printed`).
        pending: `waiting.PENDING_SCHEMA`, called so too: cells that have no scores, or lack one.
        gaps: why nothing can be run for some of the published numbers.
        cards: what the paper's `cards` are read from; without them none is.

    Returns:
        The paper's rows in its order, then rows of our own. Where rows are metrics, those that the paper prints alone.

    Raises:
        UpkeepError: the spec names a field that does not exist.
    """
    places = _places(spec, paper, reference, values_of(scores), cards)
    return _filled(places, values_of(pending), gaps, places.settings)


def build_all(
    folder: Path, scores: pl.DataFrame, pending: pl.DataFrame, gaps: Gaps | None = None, cards: Cards | None = None
) -> Iterator[Table]:
    """Every table of a paper's folder, in order; a score is a variant only where the fewest of its settings are odd."""
    paper, nearest, own, waiting = read_paper(folder), dict[int, int](), values_of(scores), values_of(pending)
    read = ((spec, read_reference(folder / "reference" / spec.file)) for spec in paper.tables)
    found = [_places(spec, paper, reference, own, cards) for spec, reference in read]
    for place, foreign in (item for places in found for item in places.settings.items()):
        nearest[place] = min(foreign, nearest.get(place, foreign))
    for places in found:
        yield _filled(places, waiting, gaps, nearest)


def _places(
    spec: TableSpec, paper: PaperSpec, reference: pl.DataFrame, scores: Sequence[Values], cards: Cards | None
) -> _Places:
    """Arguments as of `build`."""
    columns = [_merged(combination) for combination in itertools.product(*(axis.items() for axis in spec.columns))]
    fields = {*spec.where, *spec.rows, *(name for _, match in columns for name in match), *(s.field for s in spec.stub)}
    matches = [*(one.match for one in spec.unfilled), *(one.match for one in spec.cards)]
    check(sorted(fields.union(*matches)), f"tables.yaml, {spec.id}")
    selection = Selection(spec, [match for _, match in columns], paper.stand_in, paper.judge or WORDS)
    rows: dict[Entry, Draft] = {}
    published = reference.with_columns(
        dataset_id="dataset", provenance=pl.lit("release"), stand_in=pl.lit(""), trained=pl.lit(value=True)
    )
    for values in selection.rows(values_of(published)):
        said = cards.of(spec, values) if cards else None
        for index, entry in selection.published(values):
            draft = rows.setdefault(entry, Draft(values))
            draft.published[index] = values
            draft.said |= {index: said} if said else {}
    about = {entry.key[spec.rows.index("metric")] for entry in rows} if "metric" in spec.rows else set()
    own = [
        (values, index, entry)
        for values in sorted(selection.rows(scores), key=lambda values: bool(incomparable(values)))
        if not about or values["metric"] in about
        for index, entry in selection.own(values)
    ]
    return _Places(spec, paper, reference, [path for path, _ in columns], selection, rows, own)


def _filled(places: _Places, pending: Sequence[Values], gaps: Gaps | None, nearest: Mapping[int, int]) -> Table:
    """A table with our own numbers.

    Args:
        nearest: the same number as of `Table.placed` in the table where it is smallest: here a larger one has no place.
    """
    spec, rows, placed = places.spec, places.rows, dict[int, int]()
    keys = frozenset(entry.key for entry in rows)
    for values, index, entry in places.own:
        if entry.foreign > nearest[values["place"]]:
            continue  # no variant of what the table is about
        if entry in rows and index in rows[entry].own:  # two cells that the table cannot tell apart
            entry = replace(entry, cell=values["cell"] or values["dataset_id"])
        rows.setdefault(entry, Draft(values)).own[index] = values
        placed[values["place"]] = entry.foreign
    for values in places.selection.rows(pending):
        for index, entry in places.selection.waiting(values, rows):
            rows.setdefault(entry, Draft(values)).waiting.setdefault(index, values)

    facts = [facts_of(places.reference, fact) for fact in spec.facts]
    drafts = sorted(rows.items(), key=lambda item: (not item[1].published, item[0].data != "", item[1].order))
    filled = [
        row_of(entry, rows, spec, places.paper, facts, len(places.columns), keys, gaps or {}) for entry, _ in drafts
    ]
    if spec.average:
        filled = averaged(filled, spec)
    return Table(
        spec,
        _head(places.columns),
        [" | ".join(path) for path in places.columns],
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
    if any(number.source for row in rows for number in row.numbers):
        kinds = [kind for kind in ("model", "method", "dataset") if any(getattr(one, f"{kind}s") for one in spec.cards)]
        cards = " and ".join(f"`{kind}s/<{kind}>/{kind}.yaml`" for kind in kinds)
        notes.append(f"What {cards} set{'s' * (len(kinds) == 1)}, which no run gives: ≡ as printed, ≢ otherwise.")
    failures = {n.reason for row in rows for n in row.numbers if n.state == "no number"}
    notes += [f"No number of our own (✗): {reason}" for reason in sorted(failures)]
    return notes
