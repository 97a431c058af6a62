"""From a published place to ours: the cell behind a number, on how much it rests, and what runs it again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from upkeep.catalog import Catalog
from upkeep.contract import Record
from upkeep.errors import UpkeepError, nearest
from upkeep.grading.scores import Scores, scores_now
from upkeep.inputs import remedy_of
from upkeep.jobs import Cell
from upkeep.layout import Layout
from upkeep.machine.checkout import told
from upkeep.report.parts import difference_text, mark, own_text
from upkeep.report.rows import Number, Row
from upkeep.report.tabled import table_ids, tables_of
from upkeep.report.tables import Table
from upkeep.text import one_line

CANDIDATES = 12
"""Rows or columns that an error names."""
SHORT = 12
"""Hex digits of an identity."""


class Behind(Record, frozen=True, kw_only=True):
    """The cell behind a number."""

    cell: str
    folder: str
    identity: str
    identity_parts: dict[str, str]
    predictions: int
    probes: int
    trials: int
    failed: int
    seed: int
    made: str
    commit: str
    """The suite's, as it ran; empty where that is not known."""


class Place(Record, frozen=True, kw_only=True):
    """One place of a published table."""

    paper: str
    table: str
    row: str
    """Its number in the table, and what says which it is."""
    column: str
    published: str
    """As printed; empty where the paper has none."""
    own: float | None
    low: float | None
    high: float | None
    n: int | None
    """Predictions behind our own."""
    difference: float | None
    """Our own less the published one."""
    state: str
    reason: str
    command: str
    """What gives the number, or gives it again."""
    source: str
    """Of what is no score but set by cards: field, value and files; else empty."""
    behind: Behind | None
    """Null where no cell stands behind it, or none that counts."""


def explain(
    catalog: Catalog, suite: str, table: str, row: str | None = None, column: str | None = None
) -> tuple[Table, list[Place]]:
    """The places of a table, of one of its rows, or one place.

    Args:
        table: its id, with its paper before it (`oaks/table_4`) where two papers have one of that id.
        row, column: number, as they are listed, or words that are in one of them alone.

    Raises:
        UpkeepError: there is no such table, row or column, or several.
    """
    scores = scores_now(catalog, suite)
    paper, found = _table(scores, table)
    rows = list(enumerate(found.rows, 1))
    if row is not None:
        rows = [rows[_one("row", row, [_row_text(one) for one in found.rows], table)]]
    columns = list(range(len(found.columns)))
    if column is not None:
        columns = [_one("column", column, found.columns, table)]
    places = [
        _place(scores, paper, found, f"{number} {_row_text(one)}", found.columns[index], one.numbers[index])
        for number, one in rows
        for index in columns
    ]
    return found, places


def _table(scores: Scores, name: str) -> tuple[str, Table]:
    known = table_ids(scores)
    wanted = [(paper, one) for paper, one in known if name in (one, f"{paper}/{one}")]
    if len(wanted) == 1:
        paper, one = wanted[0]
        return paper, next(table for table in tables_of(scores, paper) if table.spec.id == one)
    names = [f"{paper}/{one}" for paper, one in known]
    if wanted:
        raise UpkeepError(
            f"{len(wanted)} papers have a table {name!r}",
            expected="PAPER/TABLE",
            found=", ".join(f"{paper}/{one}" for paper, one in wanted),
            remedy=f"name one of these, as ./upkeep explain {wanted[0][0]}/{name}",
        )
    close = nearest(name, [*names, *(one for _, one in known)])
    raise UpkeepError(
        f"no table {name!r} in the papers of suite {scores.basis.suite!r}",
        expected=f"one of {', '.join(names[:CANDIDATES])}{' ...' if len(names) > CANDIDATES else ''}",
        found="none of this name",
        remedy=f"did you mean {' or '.join(close)}?" if close else "`ls papers/*/reference` shows them all",
    )


def _one(what: str, name: str, known: Sequence[str], table: str) -> int:
    """The place of the only one that a name fits: the number, the whole text, its beginning, or words of it."""
    if name.isdecimal() and 1 <= int(name) <= len(known):
        return int(name) - 1
    said, texts = name.casefold(), list(enumerate(text.casefold() for text in known))
    exact = [place for place, text in texts if text == said]
    begun = [place for place, text in texts if text.startswith(said)]
    found = exact or begun or [place for place, text in texts if all(word in text for word in said.split())]
    if len(found) == 1:
        return found[0]
    shown = found or range(len(known))
    listed = "; ".join(f"{place + 1} {known[place]}" for place in list(shown)[:CANDIDATES])
    more = f" and {len(shown) - CANDIDATES} more" if len(shown) > CANDIDATES else ""
    raise UpkeepError(
        f"{len(found) or 'no'} {what}{'s' if len(found) != 1 else ''} of {table} "
        f"{'fit' if len(found) != 1 else 'fits'} {name!r}",
        expected=f"the number or words of one: {listed}{more}",
        found=name,
        remedy=f"./upkeep explain {table} lists rows and columns",
    )


def _row_text(row: Row) -> str:
    """What says which row it is."""
    return " · ".join(filter(None, (*row.stub, row.setting)))


def _place(scores: Scores, paper: str, table: Table, row: str, column: str, number: Number) -> Place:
    behind = _behind(scores, number.cell) if number.own is not None else None
    command = number.command
    if behind is not None:
        command = remedy_of(scores.basis.catalog, Cell.parse(behind.cell)) + " --force"
    return Place(
        paper=paper,
        table=table.spec.id,
        row=row,
        column=column,
        published=number.published,
        own=number.own,
        low=number.low,
        high=number.high,
        n=number.n,
        difference=number.difference,
        state=number.state,
        reason=number.reason,
        command=command,
        source=number.source,
        behind=behind,
    )


def _behind(scores: Scores, name: str) -> Behind | None:
    cells = {str(cell): found.manifest for cell, found in scores.basis.all.items()}
    if (manifest := cells.get(name)) is None:
        return None
    catalog = scores.basis.catalog
    return Behind(
        cell=name,
        folder=str(Layout(catalog.results).cell(name).relative_to(catalog.root)),
        identity=manifest.identity,
        identity_parts=manifest.identity_parts,
        predictions=manifest.predictions,
        probes=manifest.probes,
        trials=manifest.trials,
        failed=manifest.failed,
        seed=manifest.seed,
        made=manifest.end,
        commit=told(manifest.checkout) if manifest.checkout is not None else "",
    )


# ---------------------------------------------------------------- on the terminal


def lines(table: Table, places: Sequence[Place], *, single: bool) -> Iterator[str]:
    """What there is to say of these places; of one, all of it."""
    yield f"{table.spec.title}. {table.spec.caption}"
    if single:
        yield from _told(table, places[0])
        return
    yield ""
    yield "columns: " + "; ".join(f"{number} {text}" for number, text in enumerate(table.columns, 1))
    by_row: dict[str, list[Place]] = {}
    for one in places:
        by_row.setdefault(one.row, []).append(one)
    for row, those in by_row.items():
        texts = (f"{_number(table, one)} / {one.published or '·'} {_mark(one)}".rstrip() for one in those)
        yield f"{row}: {' | '.join(texts)}"
    yield ""
    yield f"own / published. One of them: ./upkeep explain {places[0].paper}/{table.spec.id} ROW COLUMN"


def _told(table: Table, place: Place) -> Iterator[str]:
    digits = table.spec.digits
    yield f"  row        {place.row}"
    yield f"  column     {place.column}"
    yield f"  published  {place.published or 'none'}"
    if place.own is None:
        yield f"  ours       none: {place.state}" + (f", {place.reason}" if place.reason != place.state else "")
        yield from ([f"  command    {place.command}"] if place.command else [])
        return
    interval = ""
    if place.low is not None and place.high is not None:
        interval = f", 95% interval {place.low:.{digits}f} to {place.high:.{digits}f}"
    yield f"  ours       {_number(table, place)}{interval}" + (f", n = {place.n:,}" if place.n is not None else "")
    if difference := difference_text(_as_number(place), digits):
        yield f"  difference {difference}: {place.state}"
    elif place.state != "unpublished":
        yield f"  state      {place.state}"
    if place.source:
        yield f"  set by     {one_line(place.source)}"
    if place.reason:
        yield f"  because    {one_line(place.reason)}"
    if (cell := place.behind) is not None:
        times = f"{cell.probes:,} probes" + (f", {cell.trials} times" if cell.trials > 1 else "")
        failed = f", {cell.failed:,} predictions failed" if cell.failed else ""
        yield f"  cell       {cell.cell}: {times}, seed {cell.seed}{failed}"
        yield f"  made       {cell.made}" + (f", commit {cell.commit}" if cell.commit else "")
        yield f"  identity   {cell.identity[:SHORT]}: {', '.join(_parts(cell.identity_parts))}"
        yield f"  folder     {cell.folder}"
        yield f"  command    {place.command}"
        yield f"  answers    ./upkeep show {cell.cell}"


def _parts(parts: dict[str, str]) -> Iterable[str]:
    """Those parts of an identity that are hashes of contents, by their first digits."""
    return (f"{name} {value[:SHORT]}" for name, value in parts.items() if len(value) == 64 and " " not in value)


def _as_number(place: Place) -> Number:
    return Number(
        own=place.own,
        low=place.low,
        high=place.high,
        published=place.published,
        state=place.state,  # type: ignore[arg-type]
        source=place.source,
    )


def _number(table: Table, place: Place) -> str:
    return own_text(_as_number(place), table.spec.digits)


def _mark(place: Place) -> str:
    return mark(_as_number(place))
