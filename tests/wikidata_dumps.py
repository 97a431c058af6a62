"""Dumps and pages in the official forms, for tests."""

from __future__ import annotations

import bz2
import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import polars as pl

from upkeep.building.reading import Faults

SKIP = {"broken_record": "skip", "encoding": "skip", "duplicate_id": "skip", "empty_text": "skip"}


def noted() -> Faults:
    return Faults(SKIP, Path("dataset.yaml"))  # type: ignore[arg-type]


def strict() -> Faults:
    return Faults({}, Path("dataset.yaml"))


def statement(
    subject: str, relation: str, value: str | None, rank: str = "normal", number: int = 1, **more: Any
) -> dict[str, Any]:
    """A statement with an item for a value; None for `novalue`."""
    snak: dict[str, Any] = {"snaktype": "novalue", "property": relation, "hash": "0" * 40, "datatype": "wikibase-item"}
    if value is not None:
        entity = {"entity-type": "item", "numeric-id": int(value[1:]), "id": value}
        snak |= {"snaktype": "value", "datavalue": {"value": entity, "type": "wikibase-entityid"}}
    return {
        "mainsnak": snak,
        "type": "statement",
        "id": f"{subject}${relation}-{number}",
        "rank": rank,
        "qualifiers": {"P580": [{"snaktype": "somevalue", "property": "P580", "datatype": "time"}]},
        "references": [{"hash": "1" * 40, "snaks": {}, "snaks-order": []}],
    } | more


def entity(
    id: str, label: str | None, statements: Iterable[dict[str, Any]] = (), title: str | None = None, **more: Any
) -> dict[str, Any]:
    claims: dict[str, list[dict[str, Any]]] = {}
    for each in statements:
        claims.setdefault(each["mainsnak"]["property"], []).append(each)
    german = {"de": {"language": "de", "value": "auf Deutsch"}}
    english = {"en": {"language": "en", "value": label}} if label else {}
    return {
        "type": "property" if id.startswith("P") else "item",
        "id": id,
        "labels": german | english,
        "descriptions": {"en": {"language": "en", "value": "something"}},
        "aliases": [],
        "claims": claims or [],
        "sitelinks": {"enwiki": {"site": "enwiki", "title": title, "badges": []}} if title else [],
        "lastrevid": 1,
    } | more


def human(id: str) -> dict[str, Any]:
    return statement(id, "P31", "Q5")


def dump(path: Path, entities: Iterable[dict[str, Any] | bytes]) -> Path:
    """An array with an entity a line, as the official dumps are; bytes stand as they are."""
    lines = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in entities]
    whole = b"[\n" + b",\n".join(lines) + b"\n]\n"
    packers: dict[str, Any] = {".gz": gzip.compress, ".bz2": bz2.compress}
    path.write_bytes(packers.get(path.suffix, bytes)(whole))
    return path


ARTICLES = {"Ada Lovelace": "She wrote notes.", "Rain": "It falls.", "Über": "Ein Wort.", "Lamp": "It shines."}


def xml(pages: Iterable[tuple[str, str, str]]) -> str:
    """An official dump of (title, wikitext, what else stands in the page)."""
    body = "".join(
        f"<page><title>{escape(title)}</title>{more or '<ns>0</ns>'}<id>1</id><revision><id>2</id>"
        f'<text bytes="9" xml:space="preserve">{escape(text)}</text></revision></page>\n'
        for title, text, more in pages
    )
    return (
        '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="en">\n'
        f"<siteinfo><sitename>Wikipedia</sitename></siteinfo>\n{body}</mediawiki>\n"
    )


def write(folder: Path, form: str, articles: dict[str, str] = ARTICLES) -> Path:
    path = folder / form
    raw = "".join(json.dumps({"id": 1, "title": t, "text": x}) + "\n" for t, x in articles.items()).encode()
    if ".xml" in form:
        raw = xml([(title, text, "") for title, text in articles.items()]).encode()
    if form.endswith(".parquet"):
        rows = pl.DataFrame({"url": "", "title": list(articles), "text": list(articles.values())})
        rows.write_parquet(path, row_group_size=2)
    elif form.endswith(".bz2"):
        # As many streams as the official multistream files have.
        path.write_bytes(bz2.compress(raw[:100]) + bz2.compress(raw[100:]))
    else:
        path.write_bytes(gzip.compress(raw) if form.endswith(".gz") else raw)
    return path
