"""What differs between two built datasets: two versions of one, or two builds of it.

Ids are drawn anew with every build, so rows are set beside each other by what they say, and by their id only where that
leaves nothing: a document that moved is no document that changed. Texts are compared by 128
bits of hash, column by column and slice by slice; of whole tables ids and hashes are kept, and the rows that are told
are read again. (A slice is decoded out of its file's row group, of which a large file has several.)
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from upkeep import inputs
from upkeep.catalog import Catalog
from upkeep.contract import DatasetCard, Record
from upkeep.integrity import NOTHING_KNOWN, Hashes
from upkeep.layout import Layout
from upkeep.normal_form import EXAMPLES, OPTIONAL, PAIRS, SCHEMAS, TABLES, TEXTS, check_schema
from upkeep.text import printable, short

COUNTS = ("streams", "documents", "questions", "probes", "pairs", "examples")
_SAID_APART = {"seal", "slices", *COUNTS}
_STORAGE = frozenset({"files"})
"""Fields of the card that say how rows are stored, not what they are: by themselves they are no difference."""
_WIDTH = 160
SLICE = 20_000
"""Rows that are hashed at once."""
STATISTICS = 10
"""So many of the card's are told as text."""


class Found(Record, frozen=True):
    """Differences of one kind."""

    count: int
    rows: list[dict[str, Any]]
    """The first of them; all, where all were asked for."""


class Difference(Record, frozen=True, kw_only=True):
    """What differs. A pair of values is old, new."""

    old: str
    new: str
    """The folders."""
    card: dict[str, tuple[Any, Any]]
    """Field of the card -> its values, where they differ: builder, versions, hashes."""
    counts: dict[str, tuple[int, int]]
    """Of both, whether they differ or not."""
    slices: dict[str, tuple[int, int]]
    """`slice: value` -> questions, where they differ."""
    found: dict[str, Found]
    """Kind of difference -> its rows; none that was not found."""

    @property
    def same(self) -> bool:
        """Whether nothing differs but how the rows are stored."""
        return not (self.slices or self.found or {field.split(".")[0] for field in self.card} - _STORAGE)


@dataclass(frozen=True)
class _Side:
    folder: Path
    card: DatasetCard

    def scan(self, table: str) -> pl.LazyFrame:
        path = self.folder / f"{table}.parquet"
        scan = pl.scan_parquet(path)
        check_schema(table, pl.DataFrame(schema=scan.collect_schema()), path)
        return scan

    @cached_property
    def columns(self) -> dict[str, set[str]]:
        return {table: set(self.scan(table).collect_schema().names()) for table in TABLES}

    def keys(self, table: str, plain: Sequence[str], hashed: Sequence[str] = ()) -> pl.DataFrame:
        """`row`, columns as they are, and `_1`, `_2`: a hash of others."""
        two = [self._hash(table, hashed, seed).alias(f"_{seed}") for seed in (1, 2)] if hashed else []
        scan, count = self.scan(table), self.length(table)
        # Slice by slice: a file of one row group would be in memory as a whole.
        parts = [
            scan.slice(at, SLICE).select(*plain, *two, _at=pl.int_range(pl.len())) for at in range(0, count, SLICE)
        ]
        parts = parts or [scan.select(*plain, *two, _at=pl.int_range(pl.len()))]
        return pl.concat([part.drop("_at").collect(engine="streaming") for part in parts]).with_row_index("row")

    def length(self, table: str) -> int:
        """How many rows a table has."""
        return int(self.scan(table).select(pl.len()).collect().item())

    def _hash(self, table: str, columns: Sequence[str], seed: int) -> pl.Expr:
        kinds = SCHEMAS[table] | dict.fromkeys(OPTIONAL, TEXTS)
        there = self.columns[table]
        values = [pl.col(c) if c in there else pl.lit(None, kinds.get(c, pl.String)).alias(c) for c in columns]
        return pl.struct([value.hash(seed) for value in values]).hash(seed)  # of a struct of texts they are copied

    def rows(self, table: str, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """Rows by their number, in the order that they are asked for."""
        wanted = pl.DataFrame({"row": numbers}, schema={"row": pl.get_index_type()})
        found = self.scan(table).with_row_index("row").join(wanted.lazy(), on="row", how="semi")
        by_number = {row.pop("row"): row for row in found.collect(engine="streaming").to_dicts()}
        return [by_number[number] for number in numbers]


def diff(catalog: Catalog, old: str, new: str, limit: int | None = 5) -> Difference:
    """Compare two built datasets.

    Args:
        old, new: names of datasets, or folders of built ones.
        limit: how many rows of each kind of difference are given; None for all.

    Raises:
        UpkeepError: no such dataset, it is not built, or its files are not those that were built.
    """
    return compare(_side(catalog, old), _side(catalog, new), limit)


def _side(catalog: Catalog, given: str) -> _Side:
    path = Path(given)
    if "/" in given or (path / "card.json").is_file():
        return side(path, catalog.hashes)
    catalog.dataset(given)
    return _Side(Layout(catalog.results).dataset(given), inputs.dataset(catalog, given))


def side(folder: Path, hashes: Hashes = NOTHING_KNOWN) -> _Side:
    """A folder of a built dataset, verified."""
    return _Side(folder, inputs.verify_dataset(folder, hashes))


def compare(old: _Side, new: _Side, limit: int | None = 5) -> Difference:
    """As `diff`, of two that are verified."""
    cards = [_flat(one.card) for one in (old, new)]
    fields = sorted(cards[0].keys() | cards[1].keys())
    values = {field: (cards[0].get(field), cards[1].get(field)) for field in fields}
    slices = [{f"{s}: {v}": n for s, of in one.card.slices.items() for v, n in of.items()} for one in (old, new)]
    counted = {name: (slices[0].get(name, 0), slices[1].get(name, 0)) for name in sorted(slices[0] | slices[1])}
    rows = {} if old.card.content == new.card.content else dict(_rows(old, new, limit))
    return Difference(
        old=str(old.folder),
        new=str(new.folder),
        card={name: pair for name, pair in values.items() if pair[0] != pair[1]},
        counts={name: (getattr(old.card, name), getattr(new.card, name)) for name in COUNTS},
        slices={name: pair for name, pair in counted.items() if pair[0] != pair[1]},
        found={kind: found for kind, found in rows.items() if found.count},
    )


def _flat(card: DatasetCard) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in msgspec.to_builtins(card).items():
        if name in _SAID_APART:
            continue
        found |= {f"{name}.{key}": one for key, one in value.items()} if isinstance(value, dict) else {name: value}
    return found


# ---------------------------------------------------------------- rows


@dataclass(frozen=True)
class _Match:
    pairs: pl.DataFrame
    """`old`, `new`: numbers of rows that belong together."""
    removed: list[int]
    added: list[int]


def _match(sides: Sequence[pl.DataFrame], keys: Sequence[Sequence[str]]) -> _Match:
    """Set rows beside each other by the first of the keys that finds one; of several that are alike, in their order."""
    old, new = sides
    found = []
    for key in keys:
        nth = pl.int_range(pl.len()).over(key).alias("_nth")
        left, right = (side.select("row", *key).with_columns(nth) for side in (old, new))
        pairs = left.join(right, on=[*key, "_nth"], suffix="_new").select(old="row", new="row_new")
        found.append(pairs)
        old = old.join(pairs, left_on="row", right_on="old", how="anti")
        new = new.join(pairs, left_on="row", right_on="new", how="anti")
    return _Match(pl.concat(found).sort("old"), sorted(old["row"]), sorted(new["row"]))


def _differing(match: _Match, sides: Iterable[pl.DataFrame], columns: Sequence[str]) -> pl.DataFrame:
    """The pairs whose columns are not equal."""
    old, new = sides
    pairs = match.pairs.join(old.select("row", *columns), left_on="old", right_on="row")
    pairs = pairs.join(new.select("row", *columns), left_on="new", right_on="row", suffix="_new")
    unequal = pl.any_horizontal([pl.col(c).ne_missing(pl.col(f"{c}_new")) for c in columns])
    return pairs.filter(unequal).select("old", "new").sort("old")


def _rows(old: _Side, new: _Side, limit: int | None) -> Iterator[tuple[str, Found]]:
    said = ["document_id", "stream", "position", "timestamp", "text"]
    texts = [one.keys("documents", ["document_id", "stream", "position"], ["text"]) for one in (old, new)]
    text = ["stream", "_1", "_2"]
    documents = _match(texts, [["document_id", *text], text, ["document_id", "stream"]])
    yield from _one_sided("documents", "documents", documents, old, new, said, limit)
    moved = _differing(documents, texts, ["document_id", "position"])
    yield "documents under another id or at another position", _both("documents", moved, old, new, said[:3], limit)
    for column in _columns("documents", old, new, {"document_id", "stream", "position"}):
        changed = _differing(documents, (one.keys("documents", [], [column]) for one in (old, new)), ["_1", "_2"])
        yield f"documents: {column} changed", _both("documents", changed, old, new, ["document_id", column], limit)

    # A question is its first probe; those that are beside each other bring their probes along.
    said = ["question_id", "stream", "question", "options"]
    sides = [one.keys("probes", ["probe_id", "question_id", "stream", "position"], said[2:]) for one in (old, new)]
    firsts = [one.unique("question_id", keep="first", maintain_order=True) for one in sides]
    questions = _match(firsts, [["question_id", *text], text, ["question_id", "stream"]])
    yield from _one_sided("questions", "probes", questions, old, new, said, limit)
    renamed = _differing(questions, firsts, ["question_id"])
    yield "questions under another id", _both("probes", renamed, old, new, said[:3], limit)
    labels = _labels(questions, firsts, "question_id")
    asked = [one.join(label, on="question_id", maintain_order="left") for one, label in zip(sides, labels, strict=True)]
    probes = _match(asked, [["label", "position"], ["label"]])
    said = ["probe_id", "stream", "question", "options"]
    yield from _one_sided("probes", "probes", probes, old, new, said, limit)
    moved = _differing(probes, asked, ["position"])
    yield "probes at another position", _both("probes", moved, old, new, [*said[:2], "position"], limit)
    for column in ("question", "options", "form"):
        changed = _differing(probes, (one.keys("probes", [], [column]) for one in (old, new)), ["_1", "_2"])
        yield f"probes: {column} changed", _both("probes", changed, old, new, ["probe_id", column], limit)
    yield from _key(old, new, asked, probes, _labels(documents, texts, "document_id"), limit)
    for name, file in (("training pairs", PAIRS), ("worked examples", EXAMPLES)):
        yield from _lines(name, old.folder / file, new.folder / file, limit)


def _key(
    old: _Side,
    new: _Side,
    asked: Sequence[pl.DataFrame],
    probes: _Match,
    documents: Sequence[pl.DataFrame],
    limit: int | None,
) -> Iterator[tuple[str, Found]]:
    """The answer key, column by column. Evidence is the same where it names the same documents, whatever their ids."""
    places = [
        one.keys("gold", ["probe_id"]).join(rows.select("probe_id", probe="row"), on="probe_id")
        for one, rows in zip((old, new), asked, strict=True)
    ]
    pairs = probes.pairs.join(places[0].select(old="probe", at="row"), on="old")
    pairs = pairs.join(places[1].select(new="probe", at_new="row"), on="new")
    gold = _Match(pairs.select(old="at", new="at_new"), [], [])
    for column in _columns("gold", old, new, {"probe_id"}):
        if column == "evidence":
            sides = [
                one.keys("gold", ["evidence"])
                .explode("evidence")
                .join(ids, left_on="evidence", right_on="document_id", how="left", maintain_order="left")
                .group_by("row", maintain_order=True)
                .agg("label")
                for one, ids in zip((old, new), documents, strict=True)
            ]
            changed = _differing(gold, sides, ["label"])
        else:
            changed = _differing(gold, (one.keys("gold", [], [column]) for one in (old, new)), ["_1", "_2"])
        yield f"gold: {column} changed", _both("gold", changed, old, new, ["probe_id", column], limit)


def _labels(match: _Match, sides: Iterable[pl.DataFrame], name: str) -> list[pl.DataFrame]:
    """An id of either side -> a label that both sides' ids of one thing share."""
    old, new = sides
    number = pl.col("row").cast(pl.Int64)
    of_new = match.pairs.select(row="new", label=pl.col("old").cast(pl.Int64))
    labelled = new.select(name, "row").join(of_new, on="row", how="left")
    return [
        old.select(name, label=number),
        labelled.select(name, label=pl.col("label").fill_null(-1 - number)),
    ]


def _columns(table: str, old: _Side, new: _Side, known: set[str]) -> list[str]:
    there = old.columns[table] | new.columns[table]
    order = [*SCHEMAS[table], *OPTIONAL]
    return sorted(there - known, key=lambda c: (order.index(c) if c in order else len(order), c))


def _one_sided(
    name: str, table: str, match: _Match, old: _Side, new: _Side, said: Sequence[str], limit: int | None
) -> Iterator[tuple[str, Found]]:
    for word, side, numbers in (("removed", old, match.removed), ("added", new, match.added)):
        told = [{column: row.get(column) for column in said} for row in side.rows(table, numbers[:limit])]
        yield f"{name} {word}", Found(len(numbers), told)


def _both(table: str, pairs: pl.DataFrame, old: _Side, new: _Side, said: Sequence[str], limit: int | None) -> Found:
    told = pairs.head(limit) if limit is not None else pairs
    rows = zip(old.rows(table, told["old"].to_list()), new.rows(table, told["new"].to_list()), strict=True)
    return Found(len(pairs), [{column: (a.get(column), b.get(column)) for column in said} for a, b in rows])


def _lines(name: str, old: Path, new: Path, limit: int | None) -> Iterator[tuple[str, Found]]:
    """Lines that one file has more often than the other, wherever they stand; a file that is not there has none."""
    counts = [Counter(_hash(line) for line in _read(path)) for path in (old, new)]
    for word, path, more in (("removed", old, counts[0] - counts[1]), ("added", new, counts[1] - counts[0])):
        rows: list[dict[str, Any]] = []
        total = more.total()
        for line in _read(path):
            if limit is not None and len(rows) >= limit:
                break
            if more[_hash(line)] > 0:
                more[_hash(line)] -= 1
                rows.append(msgspec.json.decode(line))
        yield f"{name} {word}", Found(total, rows)


def _hash(line: bytes) -> bytes:
    return hashlib.blake2b(line.rstrip(b"\n"), digest_size=16).digest()


def _read(path: Path) -> Iterator[bytes]:
    if path.exists():
        with path.open("rb") as file:
            yield from file


# ---------------------------------------------------------------- in words


def lines(found: Difference) -> Iterator[str]:
    """The difference as text, a line each; nothing where there is none."""
    if found.same:
        return
    yield f"old: {found.old}"
    yield f"new: {found.new}"
    for head, of in (("", found.counts), ("questions by slice", found.slices)):
        yield from _table(
            head, ((name, f"{a:,}", f"{b:,}", f"{b - a:+,}" if a != b else "") for name, (a, b) in of.items())
        )
    stated = [(name, _value(a, 40), _value(b, 40)) for name, (a, b) in found.card.items()]
    counted = [row for row in stated if row[0].startswith("statistics.")]
    yield from _table("card", [row for row in stated if row not in counted] + counted[:STATISTICS])
    if len(counted) > STATISTICS:
        yield f"  and {len(counted) - STATISTICS:,} more statistics (--json has all)"
    for kind, those in found.found.items():
        yield ""
        yield f"{kind}: {those.count:,}"
        for row in those.rows:
            yield "  " + "; ".join(f"{name} {_told(value)}" for name, value in row.items() if value is not None)
        if those.count > len(those.rows):
            yield f"  and {those.count - len(those.rows):,} more (--json has all)"


def _table(head: str, rows: Iterable[Sequence[str]]) -> Iterator[str]:
    cells = [(" " * 2 + row[0], *row[1:]) for row in rows]
    if not cells:
        return
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    yield ""
    if head:
        yield head
    yield from ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells)


def _told(value: Any) -> str:
    if isinstance(value, tuple):
        return _value(value[0]) if value[0] == value[1] else f"{_value(value[0])} -> {_value(value[1])}"
    return _value(value)


def _value(value: Any, width: int = _WIDTH) -> str:
    if value is None:
        return "none"
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return short(" ".join(printable(text).split()), width) if text.strip() else repr(text)
