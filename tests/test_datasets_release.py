"""OAKS's official releases are read as they are, and what is malformed, missing or changed is refused."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from dataset_rows import BABI, NONE, catalog, spec
from upkeep.building import describing, store
from upkeep.building.build import build_dataset
from upkeep.building.store import validate
from upkeep.errors import UpkeepError

NOVEL: list[dict[str, Any]] = [
    {
        "meta": {"bid": "C7", "num_chunks": 3, "num_qas": 1, "title": "T", "author": "A"},
        "data": {
            "chunks": {"0": "Once.", "1": "By train.", "2": "By sea."},
            "qas": {
                "How do they travel?": {
                    "question_id": "C7_q0",
                    "options": ["train", NONE, "ship"],
                    "chunk_to_answer": {"0": NONE, "1": "train", "2": "ship"},
                    "option_sources": {"train": {"1": ["By train."]}, "ship": {"1": ["By train."], "2": ["By sea."]}},
                }
            },
        },
    }
]

MARY = ["data", "qas", "Where is Mary?"]
MOVES = ["data", "qas", "How many times has Mary moved?"]
TRAVEL = ["data", "qas", "How do they travel?"]


def release(tmp_path: Path, content: Any, **fields: Any) -> store.Dataset:
    where = tmp_path / "release.json"
    where.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    build_dataset(catalog(tmp_path / "r", spec(**fields), {"d": str(where)}), "d", tmp_path / "out")
    return store.load(tmp_path / "out")


def test_an_open_release_is_loaded(tmp_path: Path) -> None:
    data = release(tmp_path, BABI)
    assert validate(tmp_path / "out") == data.card
    assert data.documents["document_id"].to_list() == ["P1_c0", "P1_c1", "P1_c2", "P1_c3"]
    assert data.card.slices == {"changes": {"sparse": 2}, "question_type": {"counting": 1, "tracking": 1}}
    rows = data.gold.filter(pl.col("probe_id").str.starts_with("P1_q1"))
    assert rows["answers"].to_list() == [["Unknown", "0"], ["1", "once"], ["2", "twice"], ["2", "twice"]]
    assert rows["evidence"].to_list() == [[], ["P1_c1"], ["P1_c1", "P1_c2"], ["P1_c1", "P1_c2"]]
    assert "official OAKS release" in data.card.source and data.card.inputs.keys() == {"release.json"}


def test_the_sentences_that_people_marked_are_kept_beside_the_evidence(tmp_path: Path) -> None:
    fields = {"prompt": "oaks_novel", "equivalence": "letter"}
    data = release(tmp_path, NOVEL, **fields)
    assert data.gold["quotes"].to_list() == [[], ["By train."], ["By train.", "By sea."]]
    (tmp_path / "alone").mkdir()
    alone = edited(NOVEL, [*TRAVEL, "option_sources", "ship"], {"2": "By sea.", "1": [" "]})
    assert release(tmp_path / "alone", alone, prompt="oaks_novel", equivalence="letter").gold["quotes"][
        2
    ].to_list() == ["By sea."]
    (tmp_path / "open").mkdir()
    assert "quotes" not in release(tmp_path / "open", BABI).gold.columns


def test_a_multiple_choice_release_is_loaded(tmp_path: Path) -> None:
    data = release(tmp_path, NOVEL)
    assert data.gold["answers"].to_list() == [["B"], ["A"], ["C"]]
    assert data.gold["evidence"].to_list() == [[], ["C7_c1"], ["C7_c1", "C7_c2"]]
    assert data.probes["options"][0].to_list() == ["train", NONE, "ship"]
    assert data.card.statistics["options_per_question"] == 3


def test_an_answer_holds_until_the_next_one_and_the_card_says_so(tmp_path: Path) -> None:
    content = edited(BABI, ["data", "qas", "Where is Mary?", "chunk_to_answer"], {"0": ["Unknown"], "2": ["attic"]})
    data = release(tmp_path, content)
    rows = data.gold.filter(pl.col("probe_id").str.starts_with("P1_q0"))
    assert rows["answers"].to_list() == [["Unknown"], ["Unknown"], ["attic"], ["attic"]]
    assert any("2 of 8 answers are not given" in note for note in data.card.notes)


def of_question(data: store.Dataset, question: str) -> dict[str, list[Any]]:
    return data.gold.filter(pl.col("probe_id").str.starts_with(f"{question}@")).to_dict(as_series=False)


def test_whole_numbers_are_answers_as_their_digits(tmp_path: Path) -> None:
    given = {"0": ["Unknown", 0], "1": [1], "2": [2, "twice"], "3": ["2"]}
    rows = of_question(release(tmp_path, edited(BABI, [*MOVES, "chunk_to_answer"], given)), "P1_q1")
    assert rows["answers"] == [["Unknown", "0"], ["1"], ["2", "twice"], ["2", "twice"]]
    assert rows["phase"] == [0, 1, 2, 2]


def test_an_answer_in_other_words_that_are_graded_alike_begins_no_phase_and_is_not_outdated(tmp_path: Path) -> None:
    given = {"0": ["hall"], "1": ["The Hall."], "2": ["attic"], "3": ["a hall", "HALL"]}
    rows = of_question(release(tmp_path, edited(BABI, [*MARY, "chunk_to_answer"], given)), "P1_q0")
    assert rows["answers"] == [["hall"], ["hall"], ["attic"], ["hall"]]
    assert (rows["phase"], rows["outdated"]) == ([0, 0, 1, 2], [[], [], ["hall"], ["attic"]])


def test_an_answer_that_is_accepted_in_one_form_more_begins_a_phase(tmp_path: Path) -> None:
    given = {"0": ["Unknown"], "1": ["Unknown", "0"], "2": ["0"], "3": ["zero"]}
    rows = of_question(release(tmp_path, edited(BABI, [*MOVES, "chunk_to_answer"], given)), "P1_q1")
    assert rows["phase"] == [0, 1, 2, 2]


@pytest.mark.parametrize("unknown", ["Unknown", "unknown", "UNKNOWN", "unknown."])
def test_nothing_is_evidence_of_what_is_not_known_however_that_is_written(tmp_path: Path, unknown: str) -> None:
    given = {"0": [unknown], "1": ["hall"], "2": [unknown, "attic"], "3": ["Unknown Street"]}
    rows = of_question(release(tmp_path, edited(BABI, [*MARY, "chunk_to_answer"], given)), "P1_q0")
    assert rows["evidence"] == [[], ["P1_c1"], [], ["P1_c1", "P1_c2", "P1_c3"]]


def test_a_count_that_is_off_is_noted_in_the_card_and_the_data_count(tmp_path: Path) -> None:
    meta = {"bid": "P1", "num_chunks": 5, "num_qas": 1}
    card = release(tmp_path, edited(BABI, ["meta"], meta)).card
    assert (card.documents, card.questions) == (4, 2)
    (note,) = (note for note in card.notes if "meta" in note)
    assert note.endswith("P1 num_chunks 5 (found 4), P1 num_qas 1 (found 2)")


def test_of_counts_that_are_right_the_card_says_nothing(tmp_path: Path) -> None:
    assert not [note for note in release(tmp_path, BABI).card.notes if "meta" in note]


@pytest.mark.parametrize("family", ["oaks_babi", "oaks_novel"])
def test_a_builder_gives_way_to_a_release_that_the_config_names(tmp_path: Path, family: str) -> None:
    (tmp_path / "release.json").write_text(json.dumps(BABI))
    given = spec(builder=None, options={"streams": 12})
    known = catalog(tmp_path, given, {"d": str(tmp_path / "release.json")}, family)
    assert build_dataset(known, "d", tmp_path / "out").streams == 1


@pytest.mark.parametrize(("said", "is_then"), [("rebuild", "release"), ("own", "own")])
def test_a_release_in_the_place_of_a_rebuild_is_a_release_and_nothing_else_becomes_one(
    tmp_path: Path, said: str, is_then: str
) -> None:
    (tmp_path / "release.json").write_text(json.dumps(BABI))
    given = spec(builder=None, options={"streams": 12}) | {"provenance": said}
    known = catalog(tmp_path, given, {"d": str(tmp_path / "release.json")}, "oaks_babi")
    card = build_dataset(known, "d", tmp_path / "out")
    assert card.provenance == is_then and f"provenance: {is_then}" in describing.describe(card, {})


def edited(content: list[dict[str, Any]], path: list[str], value: Any) -> list[dict[str, Any]]:
    """A copy with one field of the first document changed; None takes it away."""
    copy = json.loads(json.dumps(content))
    inner = copy[0]
    for key in path[:-1]:
        inner = inner[key]
    if value is None:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return copy


MALFORMED: list[tuple[Any, str]] = [
    (b"[{", "not JSON"),
    (b'{"meta": {}}', "array"),
    (edited(BABI, ["meta"], None), "document 0: .*`meta`"),
    (edited(BABI, ["meta", "bid"], None), r"document 0: .*`bid` - at `\$.meta`"),
    (edited(BABI, ["meta", "num_qas"], "2"), r"document 0: .*`int`.*`\$.meta.num_qas`"),
    (edited(BABI, ["data", "chunks", "2"], None), "document 0, data.chunks"),
    (edited(BABI, ["data", "chunks", "2"], 7), "document 0: Expected `str`"),
    (edited(BABI, ["data", "chunks", "two"], "x"), "document 0, data.chunks: not a chunk index"),
    (edited(BABI, ["data", "facts", "9"], ["x"]), "document 0, data.facts: no such chunk"),
    (edited(BABI, [*MARY, "question_id"], None), "document 0, question 'Where is Mary[?]': .*`question_id`"),
    (edited(BABI, [*MARY, "question_type"], "riddle"), "question 'Where is Mary[?]', question_type"),
    (edited(BABI, [*MARY, "chunk_to_answer"], None), "`chunk_to_answer`"),
    (edited(BABI, [*MARY, "chunk_to_answer", "0"], None), "chunk_to_answer: no answer at the first chunk"),
    (edited(BABI, [*MARY, "chunk_to_answer", "4"], ["x"]), "chunk_to_answer: no such chunk"),
    (edited(BABI, [*MARY, "chunk_to_answer", "1"], []), "chunk_to_answer: no accepted answer"),
    (edited(BABI, [*MARY, "chunk_to_answer", "1"], "hall"), "Expected `array`"),
    (edited(BABI, [*MARY, "chunk_to_answer", "1"], [True]), "Expected `int | str`"),
    (edited(BABI, [*MARY, "chunk_to_answer", "1"], [1.5]), "Expected `int | str`"),
    (edited(NOVEL, [*TRAVEL, "options"], ["train", "train"]), "options: not a list of options"),
    (edited(NOVEL, [*TRAVEL, "chunk_to_answer", "1"], "balloon"), "chunk_to_answer: not an option"),
    (edited(NOVEL, [*TRAVEL, "option_sources", "ship"], {"9": []}), "option_sources: no such chunk"),
    (BABI + BABI, "document 1, meta.bid: a document twice"),
    (BABI + NOVEL, "open and multiple-choice"),
    ([], "no questions"),
]


@pytest.mark.parametrize(("content", "message"), MALFORMED, ids=[message for _, message in MALFORMED])
def test_a_malformed_release_is_refused_with_document_and_field(tmp_path: Path, content: Any, message: str) -> None:
    with pytest.raises(UpkeepError) as raised:
        release(tmp_path, content)
    assert re.search(message, str(raised.value)), raised.value


def test_without_a_release_the_error_tells_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UpkeepError, match=r"data: \{d: PATH\}"):
        build_dataset(catalog(tmp_path, spec()), "d", tmp_path / "out")


def test_a_path_without_a_release_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UpkeepError, match="no release here"):
        build_dataset(catalog(tmp_path, spec(), {"d": str(tmp_path / "none.json")}), "d", tmp_path / "out")


def test_a_wrong_pin_stops_with_both_hashes(tmp_path: Path) -> None:
    found = hashlib.sha256(json.dumps(BABI).encode()).hexdigest()
    with pytest.raises(UpkeepError, match="wrong sha256") as raised:
        release(tmp_path, BABI, sha256={"release.json": "0" * 64})
    assert "0" * 64 in str(raised.value) and found in str(raised.value)
    (tmp_path / "again").mkdir()
    assert release(tmp_path / "again", BABI, sha256={"release.json": found}).card.inputs == {"release.json": found}


def test_a_pinned_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UpkeepError, match=r"pinned file missing: other\.json"):
        release(tmp_path, BABI, sha256={"other.json": "0" * 64})


def test_a_release_is_downloaded_once_and_checked(tmp_path: Path) -> None:
    served = tmp_path / "served" / "v1"
    served.mkdir(parents=True)
    raw = json.dumps(BABI).encode()
    (served / "babi.json").write_bytes(raw)
    pin = {"babi.json": hashlib.sha256(raw).hexdigest()}
    url = (tmp_path / "served").as_uri() + "/{revision}"
    known = catalog(tmp_path / "r", spec(url=url, revision="v1", sha256=pin))
    build_dataset(known, "d", tmp_path / "out")
    (served / "babi.json").unlink()
    assert build_dataset(known, "d", tmp_path / "out").inputs == pin


@pytest.mark.parametrize(("config", "problem"), [({}, "download failed"), ({"offline": True}, "`offline` is set")])
def test_a_download_that_cannot_be_had_names_the_option_for_a_local_path(
    tmp_path: Path, config: dict[str, Any], problem: str
) -> None:
    fields = spec(url=(tmp_path / "nowhere").as_uri(), revision="v1", sha256={"x.json": "0" * 64})
    with pytest.raises(UpkeepError, match=problem) as raised:
        build_dataset(catalog(tmp_path / "r", fields, **config), "d", tmp_path / "out")
    assert "data: {d: PATH}" in str(raised.value)


def test_a_download_of_other_content_is_thrown_away(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("[]")
    known = catalog(tmp_path / "r", spec(url=tmp_path.as_uri(), revision="v1", sha256={"x.json": "0" * 64}))
    with pytest.raises(UpkeepError, match="wrong sha256"):
        build_dataset(known, "d", tmp_path / "out")
    assert [p for p in known.cache.rglob("*") if p.is_file()] == []
