"""Wikidata's dumps are read as their documentation says, in little memory, faults by name."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from evowiki import wikidata
from evowiki.facts import ENTITIES, FACTS, RELATIONS, Snapshot, Written
from evowiki.wikidata import Options
from upkeep.building.reading import Faults
from upkeep.errors import UpkeepError
from wikidata_dumps import dump, entity, human, noted, statement, strict

# ---------------------------------------------------------------- a dump in the official form


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
