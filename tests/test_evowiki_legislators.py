"""Records of legislators become facts with their times, and what is wrong in them is named by file and place."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import ROOT
from evowiki import legislators
from evowiki_worlds import asked, built, mini
from upkeep.building import leaks, store, tokens
from upkeep.building.build import build_dataset
from upkeep.building.reading import Faults
from upkeep.catalog import Catalog
from upkeep.errors import UpkeepError

__all__ = ["mini"]


def legislator_files(folder: Path, date: str, people: str, seats: str = "{}") -> None:
    (folder / f"legislators-{date}.yaml").write_text(people)
    (folder / f"committees-{date}.yaml").write_text("[]")
    (folder / f"committee-membership-{date}.yaml").write_text(seats)


PERSON = """- id: {bioguide: A000001}
  name: {first: Ann, last: Abel}
  terms: [{type: rep, start: '2021-01-03', end: '2023-01-03', state: VI, district: 0, party: Independent}]
"""


def test_a_person_without_a_full_name_is_called_by_first_and_last(tmp_path: Path) -> None:
    legislator_files(tmp_path, "2022-01-01", PERSON)
    base = legislators.read(tmp_path, "2022-01-01", Faults({}, Path("d")))
    [(_, text)] = base.pages.read(["Ann Abel"])
    assert text.startswith("Ann Abel is an American politician from")
    assert "Ann Abel sits as an Independent." in text
    assert "Virgin Islands' at-large congressional district" in text
    assert "born" not in base.facts["relation"]


def test_a_post_is_held_from_its_first_day_to_the_one_before_its_last(tmp_path: Path) -> None:
    role = "  leadership_roles: [{title: Whip, start: '2022-01-01', end: '2022-02-01'}]\n"
    for date, holders in {"2021-12-31": 0, "2022-01-01": 1, "2022-01-31": 1, "2022-02-01": 0}.items():
        legislator_files(tmp_path, date, PERSON + role)
        facts = legislators.read(tmp_path, date, Faults({}, Path("d"))).facts
        assert (facts["relation"] == "holder").sum() == holders, date


@pytest.mark.parametrize(
    ("people", "seats", "problem", "where"),
    [
        (PERSON + "- id: [\n", "{}", "not readable as YAML", "legislators-2022-01-01.yaml:"),
        (PERSON + "- name: {first: Bob, last: Bell}\n", "{}", "not a record", "item 2"),
        (PERSON + PERSON, "{}", "id given before", "item 2"),
        (PERSON, "HSAG: [{name: Ann}]", "Object missing required field", "committee-membership-2022-01-01.yaml"),
        ("- just words\n", "{}", "Expected `object`", "legislators-2022-01-01.yaml"),
    ],
)
def test_faults_of_the_records_are_named_by_file_and_place(
    tmp_path: Path, people: str, seats: str, problem: str, where: str
) -> None:
    legislator_files(tmp_path, "2022-01-01", people, seats)
    with pytest.raises(UpkeepError, match=problem) as caught:
        legislators.read(tmp_path, "2022-01-01", Faults({}, Path("d")))
    assert where in str(caught.value)


def test_a_file_in_another_encoding_is_refused_by_name(tmp_path: Path) -> None:
    legislator_files(tmp_path, "2022-01-01", PERSON)
    (tmp_path / "legislators-2022-01-01.yaml").write_bytes(PERSON.replace("Ann", "Zoé").encode("latin-1"))
    with pytest.raises(UpkeepError, match="not UTF-8"):
        legislators.read(tmp_path, "2022-01-01", Faults({}, Path("d")))


def test_a_missing_date_is_refused_with_those_that_are_there(tmp_path: Path) -> None:
    legislator_files(tmp_path, "2022-01-01", PERSON)
    with pytest.raises(UpkeepError, match="2022-01-01"):
        legislators.read(tmp_path, "2023-01-01", Faults({}, Path("d")))


def test_broken_records_are_skipped_and_counted_where_the_dataset_says_so(tmp_path: Path) -> None:
    legislator_files(tmp_path, "2022-01-01", "- {id: {bioguide: X}}\n" + PERSON + PERSON)
    faults = Faults({"broken_record": "skip", "duplicate_id": "skip"}, Path("d"))
    base = legislators.read(tmp_path, "2022-01-01", faults)
    assert faults.counts == {"broken_record": 1, "duplicate_id": 1}
    assert base.entities.filter("human")["label"].to_list() == ["Ann Abel"]


HOUSE = """- id: {{bioguide: A000001, wikipedia: Ann_Abel (politician)}}
  name: {{first: Ann, last: Abel}}
  terms: [{{type: rep, start: '2021-01-03', end: '2027-01-03', state: OH, district: 1, party: {party}}}]
- id: {{bioguide: B000002, wikipedia: Bob Bell}}
  name: {{first: Bob, last: Bell}}
  terms: [{{type: rep, start: '2021-01-03', end: '2027-01-03', state: OH, district: 2, party: Democrat}}]
- id: {{bioguide: C000003}}
  name: {{first: Cid, last: Cole}}
  terms: [{{type: rep, start: '2021-01-03', end: '2027-01-03', state: OH, district: 3, party: Democrat}}]
"""


def of_a_house(folder: Path, **more: str) -> store.Dataset:
    """Three persons of whom one changes the party, with whatever else the user gives."""
    times = {"init": "2021-09-01", "cutoff": "2024-01-01", "current": "2024-05-01"}
    for date, party in zip(times.values(), ("Democrat", "Democrat", "Republican"), strict=True):
        legislator_files(folder, date, HOUSE.format(party=party))
    data = {"evowiki_legislators.snapshots": str(folder)} | more
    return built(folder / "r", "evowiki_legislators", options={**times, "hops": 2, "most": {}}, data=data)


def test_views_of_legislators_pages_give_their_questions_popularity_and_others_none(tmp_path: Path) -> None:
    (tmp_path / "views.csv").write_text(
        "title,views\nAnn_Abel_(politician),900\nAnn Abel (politician),200\nBob_Bell,7\nOhio,50000\nCid Cole,3\n"
    )
    data = of_a_house(tmp_path, **{"evowiki_legislators.views": str(tmp_path / "views.csv")})
    groups = {"Ann Abel": "3", "Bob Bell": "0_1", "Cid Cole": "unknown"}  # no record says which page is Cid Cole's
    for row in asked(data).iter_rows(named=True):
        first = row["question"].removesuffix("?").rpartition(" of ")[2]
        assert row["slice_popularity"] == f"popularity_{groups.get(first, 'unknown')}", row["question"]
    assert data.card.slices["popularity"].keys() == {"popularity_0_1", "popularity_3", "popularity_unknown"}
    assert data.card.statistics["popularity_mean: evolved"] == 1100
    assert 7 <= data.card.statistics["popularity_mean: stable"] <= 1100
    assert "views.csv" in data.card.inputs


def test_without_views_legislators_have_no_popularity_and_the_same_questions(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    (tmp_path / "views.csv").write_text("title,views\nBob Bell,7\n")
    without = of_a_house(tmp_path / "one")
    viewed = of_a_house(tmp_path / "two", **{"evowiki_legislators.views": str(tmp_path / "views.csv")})
    assert "popularity" not in without.card.slices
    assert not [name for name in without.card.statistics if name.startswith("popularity")]
    assert viewed.gold.drop("slice_popularity").equals(without.gold)
    assert viewed.probes.equals(without.probes) and viewed.documents.equals(without.documents)


def test_long_pages_are_split_and_the_evidence_is_the_piece_with_the_sentence(
    mini: store.Dataset, tmp_path: Path
) -> None:
    data = built(tmp_path, "evowiki_mini", options={"chunk_tokens": 16, "pairs": False})
    assert len(data.documents) > len(mini.documents)
    assert data.documents["tokens"].max() <= 16  # type: ignore[operator]
    text = dict(data.documents.select("document_id", "text").iter_rows())
    for row in asked(data).iter_rows(named=True):
        there = leaks.key(" ".join(text[id] for id in row["evidence"]))
        assert all(leaks.key(sentence) in there for sentence in row["context"])
    assert tokens.load().count([data.documents["text"][0]])[0] <= 16


def test_neither_ids_nor_their_order_tell_the_level(tmp_path: Path) -> None:
    catalog = Catalog(ROOT)
    build_dataset(catalog, "evowiki_mini", tmp_path / "out")
    levels = store.load(tmp_path / "out").gold["slice_level"].to_list()
    half = levels[: len(levels) // 2]
    assert all(0.25 < half.count(level) / levels.count(level) < 0.75 for level in set(levels))
