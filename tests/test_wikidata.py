"""Wikidata's dumps and Wikipedia's pages are read as their documentation says, in little memory, faults by name."""

from __future__ import annotations

import bz2
import gzip
import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import polars as pl
import pytest
import yaml

from conftest import ROOT, put_dataset, spec_of
from evowiki import wikidata
from evowiki.facts import ENTITIES, FACTS, RELATIONS, Snapshot, Written
from evowiki.wikidata import Options
from evowiki.wikipedia import Wikipedia, lowest, strip
from upkeep.building import store
from upkeep.building.build import build_dataset
from upkeep.building.reading import Faults
from upkeep.building.store import validate
from upkeep.catalog import Catalog
from upkeep.errors import UpkeepError

SKIP = {"broken_record": "skip", "encoding": "skip", "duplicate_id": "skip", "empty_text": "skip"}


def noted() -> Faults:
    return Faults(SKIP, Path("dataset.yaml"))  # type: ignore[arg-type]


def strict() -> Faults:
    return Faults({}, Path("dataset.yaml"))


# ---------------------------------------------------------------- a dump in the official form


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


def read(path: Path, faults: Faults | None = None, views: Path | None = None, **options: Any) -> Snapshot:
    scratch = path.parent / "scratch"
    snapshot = wikidata.read(path, "2024-05-01", Written({}), Options(**options), faults or strict(), scratch, views)
    assert not list(scratch.iterdir()), "the scratch folder is emptied"
    assert snapshot.facts.schema == pl.Schema(FACTS)
    assert snapshot.entities.schema == pl.Schema(ENTITIES)
    assert snapshot.relations.schema == pl.Schema(RELATIONS)
    return snapshot


def triples(snapshot: Snapshot) -> set[tuple[str, str, str]]:
    return set(snapshot.facts.select("subject", "relation", "object").rows())


ADA = entity("Q7259", "Ada Lovelace", [human("Q7259"), statement("Q7259", "P26", "Q100")], "Ada Lovelace")
WILLIAM = entity("Q100", "William King", [human("Q100")], "William_King")
FIRM = entity("Q200", "Acme")


def test_a_fact_has_the_statements_own_id_and_both_its_ends(tmp_path: Path) -> None:
    snapshot = read(dump(tmp_path / "d.json", [ADA, WILLIAM, FIRM]))
    assert snapshot.facts.rows() == [("Q7259$P26-1", "Q7259", "P26", "Q100")]
    assert snapshot.entities.rows() == [
        ("Q100", "William King", "William King", True, None),
        ("Q7259", "Ada Lovelace", "Ada Lovelace", True, None),
    ], "entities that no fact names are left out, and underscores in titles are spaces"
    assert snapshot.relations.rows() == [("P26", "spouse", True)]
    assert snapshot.date == "2024-05-01"


@pytest.mark.parametrize("name", ["d.json.gz", "d.json.bz2"])
def test_packed_dumps_are_read_as_they_are(tmp_path: Path, name: str) -> None:
    assert triples(read(dump(tmp_path / name, [ADA, WILLIAM]))) == {("Q7259", "P26", "Q100")}


def test_only_statements_of_the_best_rank_count(tmp_path: Path) -> None:
    mine = [
        human("Q7259"),
        statement("Q7259", "P108", "Q200", number=1),
        statement("Q7259", "P108", "Q201", "preferred", number=2),
        statement("Q7259", "P551", "Q202", "deprecated"),
        statement("Q7259", "P26", None, "preferred"),
        statement("Q7259", "P26", "Q100", number=2),
        statement("Q7259", "P19", "Q202", number=1),
        statement("Q7259", "P19", "Q201", number=2),
    ]
    places = [entity(f"Q{n}", f"Place {n}") for n in (200, 201, 202)]
    found = triples(read(dump(tmp_path / "d.json", [entity("Q7259", "Ada", mine, "Ada"), WILLIAM, *places])))
    assert found == {("Q7259", "P108", "Q201"), ("Q7259", "P19", "Q202"), ("Q7259", "P19", "Q201")}


def test_values_that_are_no_items_and_values_that_are_unknown_are_passed_over(tmp_path: Path) -> None:
    def other(value: Any, kind: str, number: int) -> dict[str, Any]:
        made = statement("Q7259", "P26", "Q100", number=number)
        made["mainsnak"]["datavalue"] = {"value": value, "type": kind}
        return made

    unknown = statement("Q7259", "P26", None, number=9)
    unknown["mainsnak"]["snaktype"] = "somevalue"
    mine = [
        human("Q7259"),
        unknown,
        other("a text", "string", 2),
        other({"time": "+1815-12-10T00:00:00Z", "precision": 11}, "time", 3),
        other({"amount": "+1", "unit": "1"}, "quantity", 4),
        other({"entity-type": "property", "numeric-id": 31, "id": "P31"}, "wikibase-entityid", 5),
        other({"entity-type": "item", "numeric-id": 100}, "wikibase-entityid", 6),
    ]
    snapshot = read(dump(tmp_path / "d.json", [entity("Q7259", "Ada", mine, "Ada"), WILLIAM]))
    assert snapshot.facts["statement"].to_list() == ["Q7259$P26-6"], "old dumps give an item by its number alone"


def test_facts_without_an_english_label_or_any_page_are_left_out(tmp_path: Path) -> None:
    def person(id: str, label: str | None, spouse: str, title: str | None) -> dict[str, Any]:
        return entity(id, label, [human(id), statement(id, "P26", spouse)], title)

    people = [
        person("Q10", "Page At Subject", "Q11", "Ten"),
        person("Q11", "Page At Object", "Q10", None),
        person("Q12", "No Page", "Q13", None),
        person("Q13", "No Page Either", "Q12", None),
        person("Q14", None, "Q10", "Fourteen"),
        person("Q15", "Spouse Without Label", "Q14", "Fifteen"),
        person("Q16", "Spouse Not In The Dump", "Q999", "Sixteen"),
    ]
    found = triples(read(dump(tmp_path / "d.json", people)))
    assert found == {("Q10", "P26", "Q11"), ("Q11", "P26", "Q10")}


def test_a_label_for_all_languages_stands_in_for_the_english_one(tmp_path: Path) -> None:
    mul = entity("Q100", None, [human("Q100")], "W", labels={"mul": {"language": "mul", "value": "William K."}})
    snapshot = read(dump(tmp_path / "d.json", [ADA, mul]))
    assert "William K." in snapshot.entities["label"].to_list()


def test_only_people_have_facts_unless_all_are_asked_for(tmp_path: Path) -> None:
    firm = entity("Q200", "Acme", [statement("Q200", "P6", "Q100")], "Acme")
    path = dump(tmp_path / "d.json", [ADA, WILLIAM, firm])
    assert triples(read(path)) == {("Q7259", "P26", "Q100")}
    assert triples(read(path, humans=False)) == {("Q7259", "P26", "Q100"), ("Q200", "P6", "Q100")}


def test_labels_of_relations_are_the_options_then_ours_then_the_dumps_then_the_tables(tmp_path: Path) -> None:
    mine = [statement("Q7259", p, "Q100") for p in ("P26", "P22", "P102", "P9999")]
    people = [entity("Q7259", "Ada", [human("Q7259"), *mine], "Ada"), WILLIAM]
    own = [entity("P22", "male parent"), entity("P102", "member of political party"), entity("P9999", "invented")]
    path = dump(tmp_path / "d.json", people + own)
    labels = dict(read(path).relations.select("relation", "label").rows())
    assert labels == {"P26": "spouse", "P22": "male parent", "P102": "political party"}
    chosen = read(path, relations={"P26": "better half", "P9999": ""}).relations
    assert dict(chosen.select("relation", "label").rows()) == {"P26": "better half", "P9999": "invented"}


def test_a_relation_without_any_label_is_refused_by_name(tmp_path: Path) -> None:
    odd = entity("Q7259", "Ada", [human("Q7259"), statement("Q7259", "P9999", "Q100")], "Ada")
    with pytest.raises(UpkeepError, match="P9999"):
        read(dump(tmp_path / "d.json", [odd, WILLIAM]), relations={"P9999": ""})


def test_a_relation_is_asked_with_who_where_most_of_its_objects_are_people(tmp_path: Path) -> None:
    mine = [human("Q7259"), statement("Q7259", "P26", "Q100"), statement("Q7259", "P108", "Q200")]
    snapshot = read(dump(tmp_path / "d.json", [entity("Q7259", "Ada", mine, "Ada"), WILLIAM, FIRM]))
    assert dict(snapshot.relations.select("relation", "person").rows()) == {"P26": True, "P108": False}


def test_the_order_of_the_dump_makes_no_difference(tmp_path: Path) -> None:
    forth = read(dump(tmp_path / "a.json", [ADA, WILLIAM, FIRM]))
    back = read(dump(tmp_path / "b.json", [FIRM, WILLIAM, ADA]))
    assert forth.facts.equals(back.facts)
    assert forth.entities.equals(back.entities)


def test_more_entities_than_a_batch_are_all_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wikidata, "BATCH", 7)
    people = [
        entity(f"Q{n}", f"P {n}", [human(f"Q{n}"), statement(f"Q{n}", "P26", f"Q{2021 - n}")], f"T {n}")
        for n in range(1000, 1022)
    ]
    found = triples(read(dump(tmp_path / "d.json", people)))
    assert found == {(f"Q{n}", "P26", f"Q{2021 - n}") for n in range(1000, 1022)}


# ---------------------------------------------------------------- what is wrong with a dump

BROKEN = {
    "broken_record": json.dumps(ADA).encode()[:-300],
    "encoding": json.dumps(entity("Q300", "XX", title="T")).encode().replace(b"XX", b"\xff\xfe"),
    "duplicate_id": json.dumps(WILLIAM).encode(),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_fault_is_named_by_line_skipped_where_the_dataset_says_so_and_refused_elsewhere(
    tmp_path: Path, kind: str
) -> None:
    path = dump(tmp_path / "d.json", [WILLIAM, BROKEN[kind], ADA])
    faults = noted()
    assert triples(read(path, faults)) == {("Q7259", "P26", "Q100")}
    assert faults.counts == {kind: 1}
    assert "line 3" in faults.notes()[0]
    with pytest.raises(UpkeepError, match="line 3"):
        read(path)


@pytest.mark.parametrize("id", ["", "Q", "Q01", "X7", "Q12345678901234567890", "q7259"])
def test_an_id_that_is_none_is_a_broken_record(tmp_path: Path, id: str) -> None:
    faults = noted()
    read(dump(tmp_path / "d.json", [ADA, WILLIAM, entity(id, "Odd", [human("Q1")]) | {"type": "item"}]), faults)
    assert faults.counts == {"broken_record": 1}


def test_lexemes_are_passed_over(tmp_path: Path) -> None:
    lexeme = {"type": "lexeme", "id": "L1", "lemmas": {"en": {"language": "en", "value": "word"}}, "claims": []}
    assert triples(read(dump(tmp_path / "d.json", [ADA, WILLIAM, json.dumps(lexeme).encode()])))


@pytest.mark.parametrize("name", ["d.json.gz", "d.json.bz2"])
@pytest.mark.parametrize("damage", ["cut", "changed", "other"])
def test_a_damaged_dump_is_refused_by_name(tmp_path: Path, name: str, damage: str) -> None:
    people = [entity(f"Q{n}", f"P{n * 7919 % 10007}", [human(f"Q{n}")]) for n in range(1, 3000)]
    path = dump(tmp_path / name, [ADA, WILLIAM, *people])
    raw = bytearray(path.read_bytes())
    if damage == "cut":
        raw = raw[: len(raw) // 2]
    elif damage == "changed":
        middle = len(raw) // 2
        raw[middle : middle + 200] = bytes(200)
    else:
        raw = bytearray(b"<html>no such file</html>")
    path.write_bytes(raw)
    with pytest.raises(UpkeepError, match=r"d\.json"):
        read(path, noted())


def test_a_dump_without_facts_says_so(tmp_path: Path) -> None:
    for entities in ([], [FIRM]):
        with pytest.raises(UpkeepError, match="no fact"):
            read(dump(tmp_path / "d.json", entities))


def test_memory_does_not_grow_with_the_dump(tmp_path: Path) -> None:
    """Four times the dump, of the same facts, in less than a fifth more memory."""
    peaks = []
    for copies in (1, 4):
        path = tmp_path / f"{copies}.json"
        filler = "x" * 3000
        with path.open("w") as file:
            file.write("[\n")
            for made in (ADA, WILLIAM):
                file.write(json.dumps(made) + ",\n")
            for n in range(1_000_000, 1_000_000 + 10_000 * copies):
                made = entity(f"Q{n}", f"Thing {n}", [statement(f"Q{n}", "P31", "Q6")]) | {"descriptions": filler}
                file.write(json.dumps(made) + ",\n")
            file.write(json.dumps(FIRM) + "\n]\n")
        code = (
            "import sys; from pathlib import Path; sys.path.insert(0, 'tests')\n"
            "from test_wikidata import read\n"
            "assert len(read(Path(sys.argv[1]), None).facts) == 1\n"
            "status = Path('/proc/self/status').read_text()\n"  # its own peak, without that of who started it
            "print(status.partition('VmHWM:')[2].split()[0])"
        )
        root = Path(__file__).resolve().parents[1]
        done = subprocess.run(
            [sys.executable, "-c", code, str(path)], cwd=root, capture_output=True, text=True, check=True,
            env={"PYTHONPATH": f"{root}/src:{root}/datasets", "POLARS_MAX_THREADS": "2"},
        )  # fmt: skip
        peaks.append(int(done.stdout))
    assert peaks[1] < 1.2 * peaks[0]


# ---------------------------------------------------------------- page views


def test_views_are_added_up_by_title_in_either_form(tmp_path: Path) -> None:
    path = dump(tmp_path / "d.json", [ADA, WILLIAM])
    (tmp_path / "v.csv").write_text("title,views,agent\nAda_Lovelace,40,a\nAda Lovelace,2,b\nElse,7,a\n")
    frame = pl.DataFrame({"title": ["Ada_Lovelace", "Ada Lovelace", "Else"], "views": [40, 2, 7]})
    frame.write_parquet(tmp_path / "v.parquet")
    for name in ("v.csv", "v.parquet"):
        found = dict(read(path, views=tmp_path / name).entities.select("label", "views").rows())
        assert found == {"Ada Lovelace": 42, "William King": None}


@pytest.mark.parametrize("content", ["page,views\nAda,1\n", "title,views\nAda,many\n", ""])
def test_unreadable_views_are_refused(tmp_path: Path, content: str) -> None:
    path = dump(tmp_path / "d.json", [ADA, WILLIAM])
    (tmp_path / "v.csv").write_text(content)
    with pytest.raises(UpkeepError, match=r"v\.csv"):
        read(path, views=tmp_path / "v.csv")


# ---------------------------------------------------------------- pages

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


FORMS = [
    *("a.jsonl", "a.json.gz", "a.ndjson.bz2", "a.parquet", "pages-articles.xml"),
    *("pages-articles.xml.bz2", "pages-articles1.xml-p1p41242.bz2"),
]


@pytest.mark.parametrize("form", FORMS)
def test_the_wanted_pages_come_in_the_files_order(tmp_path: Path, form: str) -> None:
    pages = Wikipedia(write(tmp_path, form), strict())
    wanted = ["Über", "No Such Page", "Ada Lovelace"]
    assert list(pages.read(wanted)) == [("Ada Lovelace", "She wrote notes."), ("Über", "Ein Wort.")]
    assert list(pages.read([])) == []


def test_a_folder_of_files_is_read_by_name(tmp_path: Path) -> None:
    write(tmp_path, "pages-articles2.xml-p2p3.bz2", {"B": "two"})
    write(tmp_path, "pages-articles1.xml-p1p1.bz2", {"A": "one"})
    (tmp_path / "md5sums.txt").write_text("not a form")
    assert list(Wikipedia(tmp_path, strict()).read(["A", "B"])) == [("A", "one"), ("B", "two")]


def test_nothing_of_any_form_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    for path in (tmp_path, tmp_path / "a.txt", tmp_path / "missing"):
        with pytest.raises(UpkeepError, match="no articles"):
            Wikipedia(path, strict())


def test_redirects_and_other_namespaces_are_no_articles(tmp_path: Path) -> None:
    path = tmp_path / "w.xml"
    path.write_text(
        xml([
            ("Ada", "#REDIRECT [[Ada Lovelace]]", '<ns>0</ns><redirect title="Ada Lovelace" />'),
            ("Talk:Ada Lovelace", "talk", "<ns>1</ns>"),
            ("Ada Lovelace", "notes", "<ns>0</ns>"),
        ])
    )  # fmt: skip
    assert list(Wikipedia(path, strict()).read(["Ada", "Talk:Ada Lovelace", "Ada Lovelace"])) == [
        ("Ada Lovelace", "notes")
    ]


def test_markup_becomes_the_text_that_a_reader_sees() -> None:
    markup = (
        "{{Infobox person|name=Ada}}\n'''Ada''' (10 [[December]] 1815) was an [[England|English]] ''writer''."
        "<ref>A [[book]] {{cite}}</ref> She wrote.<ref name=x />\n[[File:A.jpg|thumb|A [[portrait]]]]\n"
        '{| class="wikitable"\n! a !! b\n|-\n| 1 || 2\n|}\n\n\n\n== Life ==\n* one\n* two<!-- hidden -->'
        "\n[[Category:Writers]]"
    )
    assert strip(markup) == "Ada (10 December 1815) was an English writer. She wrote.\n\nLife\none\ntwo"
    for odd in ("", "[[", "{{{", "<ref>", "'''''", "{|", "[[File:", "== ==", "\x00"):
        assert isinstance(strip(odd), str)


FAULTY = {
    "broken_record": b'{"title": "Rain"\n',
    "encoding": b'{"title": "Rain", "text": "\xff\xfe"}\n',
    "duplicate_id": b'{"title": "Lamp", "text": "again"}\n',
    "empty_text": b'{"title": "Rain", "text": " \\n"}\n',
}


@pytest.mark.parametrize("kind", FAULTY)
def test_a_fault_of_a_page_is_named_once_however_often_it_is_read(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"title": "Lamp", "text": "shines"}\n' + FAULTY[kind] + b'{"title": "End", "text": "."}\n')
    faults = noted()
    pages = Wikipedia(path, faults)
    for _ in range(2):
        assert list(pages.read(["Lamp", "Rain", "End"])) == [("Lamp", "shines"), ("End", ".")]
    assert faults.counts == {kind: 1}
    assert "line 2" in faults.notes()[0]
    with pytest.raises(UpkeepError, match="line 2"):
        list(Wikipedia(path, strict()).read(["Lamp", "Rain", "End"]))


def test_a_row_without_text_is_a_broken_record(tmp_path: Path) -> None:
    pl.DataFrame({"title": ["A", None, "C"], "text": ["a", "b", None]}).write_parquet(tmp_path / "a.parquet")
    faults = noted()
    assert list(Wikipedia(tmp_path / "a.parquet", faults).read(["A", "C"])) == [("A", "a")]
    assert faults.counts == {"broken_record": 2}


@pytest.mark.parametrize("form", ["a.xml", "a.xml.bz2", "a.jsonl.gz", "a.parquet"])
def test_damaged_files_of_pages_are_refused_by_name(tmp_path: Path, form: str) -> None:
    many = {f"Title {n}": f"text {n * 7919 % 10007}" for n in range(500)}
    path = write(tmp_path, form, many)
    path.write_bytes(path.read_bytes()[: -path.stat().st_size // 3])
    with pytest.raises(UpkeepError, match=form):
        list(Wikipedia(path, noted()).read(["Title 1"]))


def test_parquet_without_the_columns_is_refused(tmp_path: Path) -> None:
    pl.DataFrame({"name": ["A"]}).write_parquet(tmp_path / "a.parquet")
    with pytest.raises(UpkeepError, match="title, text"):
        list(Wikipedia(tmp_path / "a.parquet", strict()).read(["A"]))


# ---------------------------------------------------------------- distractors


def test_a_sample_depends_on_titles_and_seed_alone() -> None:
    titles = [f"T{n}" for n in range(200)]
    drawn = lowest(titles, 50, 7)
    assert len(drawn) == 50
    assert drawn == lowest(reversed(titles * 3), 50, 7)
    assert drawn != lowest(titles, 50, 8)
    assert lowest(titles, 10, 7) < drawn, "a smaller sample is part of a larger one"
    assert lowest(titles, 500, 7) == frozenset(titles)
    assert lowest(titles, 0, 7) == frozenset()
    left = sorted(drawn)[:20]
    assert not lowest(titles, 50, 7, left) & set(left)
    assert drawn - set(left) < lowest(titles, 50, 7, left)


def test_a_sample_is_drawn_evenly() -> None:
    """Over 300 seeds a title of 10 is among 3 drawn in 30% of them, give or take four standard deviations."""
    titles = [f"T{n}" for n in range(10)]
    counts = dict.fromkeys(titles, 0)
    for seed in range(300):
        for title in lowest(titles, 3, seed):
            counts[title] += 1
    assert all(58 <= count <= 122 for count in counts.values())


@pytest.mark.parametrize("form", ["a.jsonl", "a.parquet", "a.xml.bz2"])
def test_distractors_are_the_same_in_every_form_and_never_golden(tmp_path: Path, form: str) -> None:
    many = {f"Title {n}": f"text {n}" for n in range(60)} | {"Empty": " "}
    path = write(tmp_path, form, many)
    golden = [f"Title {n}" for n in range(20)]
    found = list(Wikipedia(path, strict()).sample(15, 3, golden))
    assert {title for title, _ in found} == lowest(many.keys() - {"Empty"}, 15, 3, golden)
    assert all(many[title] == text for title, text in found)
    assert [t for t, _ in found] == [t for t in many if t in dict(found)]


# ---------------------------------------------------------------- the whole builder

TIMES = ("init", "cutoff", "current")
PEOPLE, MOVED, CAME = range(100, 140), range(100, 115), range(130, 140)
"""Numbers of people: all, those whose employer changes, and those whose residence is new at the current time."""


def name(number: int) -> str:
    syllables = "ba de fi go lu ma ne po ri su".split()  # noqa: SIM905
    first, last = (syllables[number // 10 % 10] + syllables[number % 10] for number in (number, number + 57))
    return f"{first.capitalize()}n {last.capitalize()}sky"


def employer(number: int, time: str) -> int:
    """The number of an employer; half of the changes are before the cut-off, half after."""
    changed = TIMES.index(time) >= (1 if number % 2 else 2)
    return 10 + number % 5 + (5 if number in MOVED and changed else 0)


def world(folder: Path, time: str) -> dict[str, Path]:
    """The dump and the pages of one time, with something wrong in either."""
    things, pages = [], dict[str, str]()
    for n in PEOPLE:
        id, spouse = f"Q{n}", PEOPLE[0] + (n - PEOPLE[0] + 20) % len(PEOPLE)
        mine = [
            human(id),
            statement(id, "P26", f"Q{spouse}"),
            statement(id, "P108", f"Q{employer(n, time)}"),
            statement(id, "P108", "Q29", "deprecated", number=2),
            statement(id, "P19", None),
        ]
        text = f"{name(n)} works for Firm {employer(n, time)}. The spouse of {name(n)} is {name(spouse)}."
        if n in CAME and time == "current":
            mine.append(statement(id, "P551", f"Q{30 + n % 3}"))
            text += f" In spring the family went to Town {30 + n % 3}."
        things.append(entity(id, name(n), mine, name(n)))
        pages[name(n)] = text
    things += [entity(f"Q{n}", f"Firm {n}") for n in range(10, 30)]
    things += [entity(f"Q{n}", f"Town {n}") for n in range(30, 33)]
    things.append(entity("Q50", None, [human("Q50")]))
    broken = [json.dumps(things[0]).encode()[:99], json.dumps(things[1]).encode()]
    packing = {"init": "json.gz", "cutoff": "json.bz2", "current": "json"}[time]
    wikidata = dump(folder / f"{time}.{packing}", [*things[:5], *broken, *things[5:]])
    others = {f"Rain {n}": f"Rain number {n} falls on hills." for n in range(9)}
    form = {"init": "pages.xml.bz2", "cutoff": "pages.jsonl.gz", "current": "pages.parquet"}[time]
    place = folder / f"pages_{time}"
    place.mkdir()
    write(place, form, pages | others)
    if time == "init":
        redirect = xml([("Firm 10", "#REDIRECT [[Firm]]", '<ns>0</ns><redirect title="Firm" />')])
        (place / "a.xml").write_text(redirect)
    if time == "cutoff":
        (place / "z.jsonl").write_text('{"title": "Rain 0", "te\n{"title": "Rain 1", "text": "again"}\n')
    return {f"evowiki.wikidata_{time}": wikidata, f"evowiki.wikipedia_{time}": place}


def repository(folder: Path, **options: Any) -> Catalog:
    """A repository whose dataset `evowiki` reads the three times from files."""
    spec = spec_of("evowiki")
    spec["options"] |= options
    data = {key: str(path) for time in TIMES for key, path in world(folder, time).items()}
    views = folder / "views.csv"
    views.write_text("title,views\n" + "".join(f"{name(n).replace(' ', '_')},{3 * n}\n" for n in PEOPLE))
    data |= {"evowiki.views": str(views), "evowiki.distractors": data["evowiki.wikipedia_current"]}
    (folder / "config").mkdir()
    (folder / "config/config.yaml").write_text(yaml.safe_dump({"data": data}))
    put_dataset(folder, "evowiki", spec)
    (folder / "papers").symlink_to(ROOT / "papers")
    return Catalog(folder)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> store.Dataset:
    folder = tmp_path_factory.mktemp("evowiki")
    build_dataset(repository(folder, distractors=6, hops=2), "evowiki", folder / "built")
    validate(folder / "built")
    return store.load(folder / "built")


def single(built: store.Dataset, level: str) -> dict[str, tuple[list[str], list[str]]]:
    """Question -> answers and outdated answers, of one hop."""
    rows = built.probes.join(built.gold, on="probe_id").filter(
        pl.col("slice_level") == level, pl.col("slice_hop_number") == "1"
    )
    return {q: (a, o) for q, a, o in rows.select("question", "answers", "outdated").rows()}


def test_three_dumps_become_questions_of_all_levels_with_old_answers(built: store.Dataset) -> None:
    spouses = {f"Who is the spouse of {name(n)}?": ([name(100 + (n - 80) % 40)], []) for n in PEOPLE}
    settled = [n for n in PEOPLE if n not in MOVED]
    firms = {f"What is the employer of {name(n)}?": ([f"Firm {employer(n, 'current')}"], []) for n in settled}
    assert single(built, "stable") == spouses | firms
    assert single(built, "evolved") == {
        f"What is the employer of {name(n)}?": ([f"Firm {employer(n, 'current')}"], [f"Firm {employer(n, 'init')}"])
        for n in MOVED
    }
    assert single(built, "uncharted") == {
        f"What is the residence of {name(n)}?": ([f"Town {30 + n % 3}"], []) for n in CAME
    }


def test_two_hops_go_over_a_person(built: store.Dataset) -> None:
    rows = built.probes.join(built.gold, on="probe_id").filter(pl.col("slice_hop_number") == "2")
    asked = dict(rows.select("question", "answers").rows())
    n = MOVED[3]
    question = f"What is the employer of the spouse of {name((n - 100 - 20) % 40 + 100)}?"
    assert asked[question] == [f"Firm {employer(n, 'current')}"]


def test_what_is_wrong_with_the_files_is_counted_and_what_is_read_is_on_record(built: store.Dataset) -> None:
    assert built.card.faults == {"broken_record": 4, "duplicate_id": 3}
    assert any("line 7" in note for note in built.card.notes)
    names = {"init.json.gz", "cutoff.json.bz2", "current.json", "views.csv"}
    assert names | {"a.xml", "pages.xml.bz2", "pages.jsonl.gz", "z.jsonl", "pages.parquet"} == built.card.inputs.keys()


def test_distractors_stand_beside_the_golden_pages(built: store.Dataset) -> None:
    titles = built.documents["text"].str.split("\n").list.first()
    assert titles.str.starts_with("Rain").sum() == 6
    assert set(titles) >= {name(n) for n in PEOPLE}
    evidence = set(built.gold["evidence"].explode())
    rain = built.documents.filter(pl.col("text").str.starts_with("Rain"))["document_id"]
    assert not evidence & set(rain)


def test_views_give_the_popularity(built: store.Dataset) -> None:
    assert built.card.slices["popularity"].keys() == {"popularity_2"}, "300 to 417 views"


def test_the_same_files_give_the_same_dataset(built: store.Dataset, tmp_path: Path) -> None:
    card = build_dataset(repository(tmp_path, distractors=6, hops=2), "evowiki", tmp_path / "built")
    assert card.content == built.card.content


def test_a_missing_dump_is_named_with_the_line_of_the_config(tmp_path: Path) -> None:
    catalog = repository(tmp_path)
    (tmp_path / "cutoff.json.bz2").unlink()
    with pytest.raises(UpkeepError, match=r"cutoff\.json\.bz2"):
        build_dataset(catalog, "evowiki", tmp_path / "built")
