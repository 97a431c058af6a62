"""Facts about people out of Wikidata's JSON dumps, in little memory (EvoWiki, 3.1 and 3.2).

A dump is a JSON array with an entity a line (https://www.mediawiki.org/wiki/Wikibase/DataModel/JSON), packed or not. It
is read once: what is wanted of each line goes to Parquet files in batches, and the joins (labels of the objects) are
made over these, so that memory depends on the facts that are kept and not on the dump.

Taken are statements with an item for a value, of the best rank of their property (preferred ones, else normal ones),
where both ends have an English label and one of them a page in English Wikipedia.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec
import polars as pl

from upkeep.building.reading import Faults, records
from upkeep.errors import UpkeepError

from .facts import ENTITIES, FACTS, RELATIONS, Pages, Snapshot
from .views import page_views

INSTANCE_OF, HUMAN = "P31", "Q5"
BATCH = 50_000
"""Rows that are held before they are written."""

LABELS: Mapping[str, str] = {
    "P6": "head of government",
    "P19": "place of birth",
    "P20": "place of death",
    "P22": "father",
    "P25": "mother",
    "P26": "spouse",
    "P27": "country of citizenship",
    "P40": "child",
    "P101": "field of work",
    "P103": "native language",
    "P106": "occupation",
    "P108": "employer",
    "P119": "place of burial",
    "P135": "movement",
    "P136": "genre",
    "P140": "religion",
    "P157": "killer",
    "P166": "award received",
    "P172": "ethnic group",
    "P184": "doctoral advisor",
    "P185": "doctoral student",
    "P241": "military branch",
    "P264": "record label",
    "P412": "voice type",
    "P451": "unmarried partner",
    "P509": "cause of death",
    "P512": "academic degree",
    "P551": "residence",
    "P641": "sport",
    "P737": "influence",
    "P800": "notable work",
    "P802": "student",
    "P812": "academic major",
    "P937": "work location",
    "P1196": "manner of death",
    "P1303": "instrument",
    "P1327": "professional partner",
    "P3373": "sibling",
}
"""Properties that read well after "What is the ..." and before "of ...", with the label that a dump gives them too."""

RENAMED: Mapping[str, str] = {
    "P39": "position",
    "P54": "sports team",
    "P69": "place of education",
    "P102": "political party",
    "P118": "league",
    "P410": "military rank",
    "P413": "playing position",
    "P1037": "director",
}
"""Properties whose own label ("member of political party") does not read there; these labels go before the dump's."""


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is taken of a dump."""

    relations: dict[str, str] = {}
    """Property -> the label that questions use, or "" for the dump's own; empty for `LABELS` and `RENAMED`."""
    humans: bool = True
    """Only facts about people (instance of `Q5`), as in the paper; `false` for facts about anything."""

    def given(self) -> dict[str, str]:
        """Property -> the label that goes before the dump's; "" for none."""
        return self.relations or {**dict.fromkeys(LABELS, ""), **RENAMED}


# ---------------------------------------------------------------- a line


class _Id(msgspec.Struct, gc=False):
    """A value that is an entity; fields of other values (times, quantities) are passed over."""

    id: str | None = None
    number: int | None = msgspec.field(name="numeric-id", default=None)
    kind: str | None = msgspec.field(name="entity-type", default=None)

    def item(self) -> str | None:
        """`Q42`; dumps of the first years give the number alone."""
        if self.kind not in (None, "item"):
            return None
        return self.id or (f"Q{self.number}" if self.number is not None else None)


class _Value(msgspec.Struct, gc=False):
    value: _Id | str | None = None


class _Snak(msgspec.Struct, gc=False):
    snaktype: str = "value"
    """`value`, `somevalue` (unknown) or `novalue`."""
    datavalue: _Value | None = None


class _Statement(msgspec.Struct, gc=False):
    id: str
    mainsnak: _Snak
    rank: str = "normal"


class _Text(msgspec.Struct, gc=False):
    value: str


class _Labels(msgspec.Struct, gc=False):
    en: _Text | None = None
    mul: _Text | None = None
    """The default for all languages, which names have had since 2024."""


class _Link(msgspec.Struct, gc=False):
    title: str


class _Links(msgspec.Struct, gc=False):
    enwiki: _Link | None = None


_Nothing = list[msgspec.Raw]
"""How a dump writes an empty map: `[]`."""


def _entity(properties: Sequence[str]) -> Any:
    """The type of a line, which names the wanted properties alone: all others are passed over without being built."""
    claims = msgspec.defstruct("Claims", [(name, list[_Statement] | None, None) for name in properties], gc=False)
    return msgspec.defstruct(
        "Entity",
        [
            ("id", str),
            ("type", str, "item"),
            ("labels", _Labels | _Nothing | None, None),
            ("claims", claims | _Nothing | None, None),
            ("sitelinks", _Links | _Nothing | None, None),
        ],
        gc=False,
    )


def _label(labels: object) -> str | None:
    text = (labels.en or labels.mul) if isinstance(labels, _Labels) else None
    return text.value.strip() or None if text else None


def _best(statements: Sequence[_Statement] | None) -> list[tuple[str, str]]:
    """(statement, item) of the statements of the best rank; none of those is there whose value is none or unknown."""
    if not statements:
        return []
    best = "preferred" if any(s.rank == "preferred" for s in statements) else "normal"
    found = []
    for statement in statements:
        snak = statement.mainsnak
        if statement.rank != best or snak.snaktype != "value" or snak.datavalue is None:
            continue
        value = snak.datavalue.value
        if isinstance(value, _Id) and (item := value.item()):
            found.append((statement.id, item))
    return found


_ID = re.compile(r"([QP])([1-9][0-9]{0,8})\Z")


class _Distinct:
    """Tells entities that were seen before, with a bit for each number: a dump has a hundred million."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._seen = {"Q": bytearray(), "P": bytearray()}

    def __call__(self, id: str, where: str) -> bool:
        """Whether it is a new id of an item or property."""
        if (match := _ID.match(id)) is None:
            self._faults("broken_record", where, "not the id of an item or property", id)
            return False
        seen, (byte, bit) = self._seen[match[1]], divmod(int(match[2]), 8)
        if byte >= len(seen):
            seen.extend(bytes(byte + 1 - len(seen) + (1 << 16)))
        if seen[byte] >> bit & 1:
            self._faults("duplicate_id", where, "entity given before", id)
            return False
        seen[byte] |= 1 << bit
        return True


# ---------------------------------------------------------------- a dump


class _Spill:
    """A table that grows on disk.

    Args:
        path: its files' common beginning.
    """

    def __init__(self, path: Path, schema: Mapping[str, type[pl.DataType]]) -> None:
        self._path, self._schema = path, dict(schema)
        self._rows: list[tuple[Any, ...]] = []
        self._files = 0

    def __enter__(self) -> _Spill:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is None and (self._rows or not self._files):
            self._write()

    def add(self, row: tuple[Any, ...]) -> None:
        self._rows.append(row)
        if len(self._rows) >= BATCH:
            self._write()

    def _write(self) -> None:
        frame = pl.DataFrame(self._rows, schema=self._schema, orient="row")
        frame.write_parquet(f"{self._path}.{self._files:06}.parquet", compression="lz4", statistics=False)
        self._rows.clear()
        self._files += 1

    def scan(self) -> pl.LazyFrame:
        return pl.scan_parquet(f"{self._path}.*.parquet")


def read(
    dump: Path, date: str, pages: Pages, options: Options, faults: Faults, scratch: Path, views: Path | None = None
) -> Snapshot:
    """A snapshot out of a dump.

    Args:
        dump: `wikidata-20240501-all.json.bz2`; .gz, .xz or unpacked too.
        pages: the Wikipedia of that date.
        faults: takes note of broken lines, wrong encodings and entities that are given twice.
        scratch: a folder for what does not fit into memory, about 5% of the unpacked dump; emptied at the end.
        views: page views (see `page_views`).

    Returns:
        Facts in order of subject, relation, statement and object, entities in order of their id.

    Raises:
        UpkeepError: the dump is missing or damaged, has no fact, or a fault is refused; a property has no label.
    """
    given = options.given()
    scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=scratch, prefix="wikidata.") as folder:
        facts, entities, own = _scan(dump, list(given), options.humans, faults, Path(folder))
        return _join(facts, entities, {p: label or own.get(p) for p, label in given.items()}, date, pages, dump, views)


def _scan(
    dump: Path, properties: Sequence[str], humans: bool, faults: Faults, folder: Path
) -> tuple[pl.LazyFrame, pl.LazyFrame, dict[str, str]]:
    """What is wanted of each line: the statements, all entities, and the dump's labels of the properties."""
    distinct, own = _Distinct(faults), dict[str, str]()
    wanted = set(properties)
    columns = {name: kind for name, kind in ENTITIES.items() if name != "views"}
    with _Spill(folder / "facts", FACTS) as facts, _Spill(folder / "entities", columns) as entities:
        for where, entity in records(dump, _entity(list(dict.fromkeys([INSTANCE_OF, *properties]))), faults):
            if entity.type not in ("item", "property") or not distinct(entity.id, where):
                continue
            label = _label(entity.labels)
            if entity.type == "property":
                if entity.id in wanted and label:
                    own[entity.id] = label
                continue
            claims = entity.claims if isinstance(entity.claims, msgspec.Struct) else None
            human = any(item == HUMAN for _, item in _best(getattr(claims, INSTANCE_OF, None)))
            if label is not None:
                link = entity.sitelinks.enwiki if isinstance(entity.sitelinks, _Links) else None
                entities.add((entity.id, label, link.title.replace("_", " ") if link else None, human))
                if claims is not None and (human or not humans):
                    for name in properties:
                        for statement, item in _best(getattr(claims, name)):
                            facts.add((statement, entity.id, name, item))
    return facts.scan(), entities.scan(), own


def _join(
    facts: pl.LazyFrame,
    entities: pl.LazyFrame,
    labels: Mapping[str, str | None],
    date: str,
    pages: Pages,
    dump: Path,
    views: Path | None,
) -> Snapshot:
    ends = ("subject", "object")
    named = pl.concat([facts.select(pl.col(end).alias("entity")) for end in ends]).unique()
    known = entities.join(named, on="entity", how="semi").collect(engine="streaming")
    for end in ends:
        linked = known.lazy().select(pl.col("entity").alias(end), pl.col("title").is_not_null().alias(f"{end}_page"))
        facts = facts.join(linked, on=end)
    kept = (
        facts.filter(pl.col("subject_page") | pl.col("object_page"))
        .select(list(FACTS))
        .collect(engine="streaming")
        .sort("subject", "relation", "statement", "object")
    )
    if kept.is_empty():
        raise UpkeepError(
            "no fact about a person with a page in English Wikipedia",
            where=dump,
            expected=f"entities in the official JSON form, with any of the {len(labels)} properties that are taken",
        )
    known = known.join(
        pl.concat([kept.select(pl.col(end).alias("entity")) for end in ends]).unique(), on="entity", how="semi"
    )
    humans = kept.join(known.select(pl.col("entity").alias("object"), "human"), on="object")
    relations = humans.group_by("relation").agg((2 * pl.col("human").sum() > pl.len()).alias("person")).sort("relation")
    relations = relations.with_columns(
        pl.Series("label", [_named(relation, labels, dump) for relation in relations["relation"]], pl.String)
    )
    if views is None:
        known = known.with_columns(pl.lit(None, pl.Int64).alias("views"))
    else:
        known = known.join(page_views(views, known["title"].drop_nulls()), on="title", how="left")
    return Snapshot(date, kept, known.select(list(ENTITIES)).sort("entity"), relations.select(list(RELATIONS)), pages)


def _named(relation: str, labels: Mapping[str, str | None], dump: Path) -> str:
    if label := labels[relation] or LABELS.get(relation):
        return label
    raise UpkeepError(
        f"no label for the property {relation}", where=dump, remedy="give one under `options.wikidata.relations`"
    )
