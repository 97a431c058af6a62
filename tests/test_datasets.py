"""Datasets in normal form: what is written can be read, and what is wrong is refused with its place."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pytest
import yaml

import oaks_novel
from conftest import ROOT, put_dataset, spec_of
from upkeep import normal_form
from upkeep.building import assembling, checking, describing, embedding, leaks, store, tokens
from upkeep.building.assembling import Built, Question, Stream
from upkeep.building.build import build_dataset, describe
from upkeep.building.content import PARTS, content
from upkeep.building.store import validate
from upkeep.catalog import Catalog
from upkeep.contract import DatasetSpec, Pair
from upkeep.errors import UpkeepError
from upkeep.files import hash_file
from upkeep.inputs import verify_dataset
from upkeep.integrity import write_sealed


def catalog(
    folder: Path, spec: dict[str, Any], data: dict[str, str] | None = None, family: str = "oaks_novel", **config: Any
) -> Catalog:
    """A repository with one dataset, `d`, that has the code of one of the suite's families."""
    put_dataset(folder, "d", spec, family)
    (folder / "config").mkdir()
    (folder / "config" / "config.yaml").write_text(yaml.safe_dump({"data": data or {}} | config))
    return Catalog(folder)


def spec(**fields: Any) -> dict[str, Any]:
    base = {
        "label": "D",
        "summary": "s",
        "paper": "oaks",
        "source": "here",
        "licence": "none",
        "builder": "oaks_release",
    }
    return base | {"prompt": "oaks_babi", "equivalence": "short_answer", "metrics": "oaks"} | fields


def small() -> Built:
    """Two streams, three documents each, an open and a multiple-choice question."""
    streams = [Stream("a", ["Ann is here.", "Ann left.", "Ann is back."]), Stream("b", ["One.", "Two.", "Three."])]
    questions = [
        Question(
            "a_q0", "a", "Where is Ann?", [["here"], ["Unknown", "away"], ["here"]], [[0], [1], [2]], {"changes": "x"}
        ),
        Question("b_q0", "b", "Which?", [["B"], ["A"], ["A"]], [[], [1], [1]], {"changes": "y"}, ["one", "two"]),
    ]
    measure = tokens.load()
    tables = assembling.assemble(streams, questions, measure)
    return Built(
        *tables,
        pairs=[Pair(question="q", answer="a")],
        tokenizer=str(measure),
        chunk_tokens=20,
        source="here",
        statistics=assembling.common_statistics(tables),
    )


def write(folder: Path, built: Built) -> Path:
    folder.mkdir()
    store.write(folder, built, "d", msgspec.convert(spec(), DatasetSpec))
    return folder


def test_what_is_written_is_valid_and_read_back(tmp_path: Path) -> None:
    built = small()
    folder = write(tmp_path / "d", built)
    card = validate(folder)
    data = store.load(folder)
    for table in normal_form.TABLES:
        assert getattr(data, table).equals(built.table(table))
    assert data.pairs == built.pairs
    assert (card.streams, card.documents, card.questions, card.probes, card.pairs) == (2, 6, 2, 6, 1)
    assert card.slices == {"changes": {"x": 1, "y": 1}}


def test_rows_are_in_order_of_stream_position_and_question_with_phases_and_outdated_answers() -> None:
    built = small()
    assert built.probes["probe_id"].to_list() == ["a_q0@0", "a_q0@1", "a_q0@2", "b_q0@0", "b_q0@1", "b_q0@2"]
    assert built.gold["phase"].to_list() == [0, 1, 2, 0, 1, 1]
    assert built.gold["outdated"].to_list() == [[], ["here"], ["Unknown"], [], ["B"], ["B"]]
    assert built.gold["evidence"].to_list() == [["a_c0"], ["a_c1"], ["a_c2"], [], ["b_c1"], ["b_c1"]]
    assert built.probes["form"].to_list() == ["short"] * 3 + ["choice"] * 3


def test_the_content_hash_is_of_the_rows_not_of_the_file(tmp_path: Path) -> None:
    built = small()
    before = content(built.documents, built.probes, built.gold, built.pairs)
    for table in normal_form.TABLES:
        built.table(table).write_parquet(tmp_path / table, compression="uncompressed", row_group_size=2)
    stored = [pl.read_parquet(tmp_path / table) for table in normal_form.TABLES]
    assert content(*stored, built.pairs) == before


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("documents", lambda b: {"documents": b.documents.with_columns(text=pl.col("text") + " ")}),
        ("documents", lambda b: {"documents": b.documents.with_columns(timestamp=pl.lit(""))}),
        ("probes", lambda b: {"probes": b.probes.reverse()}),
        ("probes", lambda b: {"probes": b.probes.with_columns(options=pl.col("options").fill_null([]))}),
        ("outdated", lambda b: {"gold": b.gold.with_columns(outdated=pl.col("outdated").list.concat(pl.lit("z")))}),
        ("evidence", lambda b: {"gold": b.gold.with_columns(evidence=pl.col("evidence").list.reverse().list.head(0))}),
        ("evidence", lambda b: {"gold": b.gold.with_columns(context=pl.lit(["a"]))}),
        ("slices", lambda b: {"gold": b.gold.with_columns(phase=pl.col("phase") + 1)}),
        ("slices", lambda b: {"gold": b.gold.with_columns(slice_new=pl.lit("x"))}),
        (
            "answers",
            lambda b: {
                "gold": b.gold.with_columns(answers=pl.col("answers").list.eval(pl.element().str.replace("h", "H")))
            },
        ),
        ("pairs", lambda _: {"pairs": []}),
        ("examples", lambda b: {"examples": b.pairs}),
    ],
)
def test_every_change_of_a_row_changes_the_hash_of_its_part_alone(
    part: str, change: Callable[[Built], dict[str, Any]]
) -> None:
    built = small()
    other = dataclasses.replace(built, **change(built))
    before, after = (content(b.documents, b.probes, b.gold, b.pairs, b.examples) for b in (built, other))
    assert tuple(before) == PARTS
    assert {name for name in PARTS if before[name] != after[name]} == {part}


def at(frame: pl.DataFrame, row: int, column: str, value: Any) -> pl.DataFrame:
    """The frame with one cell changed."""
    values = frame[column].to_list()
    values[row] = value
    return frame.with_columns(pl.Series(column, values, dtype=frame[column].dtype))


FAULTS: dict[str, tuple[Callable[[Built], dict[str, Any]], str]] = {
    "a document twice": (
        lambda b: {"documents": at(b.documents, 1, "document_id", "a_c0")},
        "row 0, column `document_id`",
    ),
    "a gap": (
        lambda b: {"documents": at(b.documents, 2, "position", 3)},
        "row 2, column `position`.*\n.*expected: 2\n.*3",
    ),
    "not from zero": (lambda b: {"documents": at(b.documents, 3, "position", 1)}, "row 3, column `position`"),
    "torn stream": (
        lambda b: {
            "documents": pl.concat(
                [b.documents[:3], b.documents[3:], b.documents[:1].with_columns(document_id=pl.lit("x"))]
            )
        },
        "row 6, column `stream`",
    ),
    "no text": (lambda b: {"documents": at(b.documents, 4, "text", "  ")}, "row 4, column `text`"),
    "too long": (lambda b: {"documents": at(b.documents, 4, "tokens", 21)}, "row 4, column `tokens`"),
    "no documents": (lambda b: {"documents": b.documents.clear()}, "documents.parquet: no rows"),
    "null text": (lambda b: {"documents": at(b.documents, 5, "text", None)}, "row 5, column `text`"),
    "a column less": (lambda b: {"documents": b.documents.drop("tokens")}, "no column `tokens`"),
    "a column more": (lambda b: {"probes": b.probes.with_columns(answer=pl.lit("x"))}, "unknown column `answer`"),
    "wrong type": (
        lambda b: {"gold": b.gold.with_columns(pl.col("phase").cast(pl.Int64))},
        "column `phase`.*\n.*Int32\n.*Int64",
    ),
    "a probe twice": (lambda b: {"probes": at(b.probes, 1, "probe_id", "a_q0@0")}, "row 0, column `probe_id`"),
    "unknown stream": (lambda b: {"probes": at(b.probes, 3, "stream", "c")}, "row 3, column `stream`"),
    "no such position": (
        lambda b: {"probes": at(at(b.probes, 2, "position", 3), 2, "probe_id", "a_q0@3")},
        "row 2, column `position`",
    ),
    "an id with its answer": (
        lambda b: {
            "probes": b.probes.with_columns(pl.col("probe_id", "question_id").str.replace("a_q0", "a_Here2")),
            "gold": b.gold.with_columns(
                pl.col("probe_id").str.replace("a_q0", "a_Here2"),
                answers=pl.Series([["here"]] * 3 + [["B"]] * 3),
                outdated=pl.Series([[]] * 6, dtype=pl.List(pl.String)),
                phase=pl.lit(0, pl.Int32),
            ),
        },
        "row 0, column `question_id`: the id tells the answer",
    ),
    "wrong probe id": (lambda b: {"probes": at(b.probes, 2, "probe_id", "a_q0@1x")}, "row 2, column `probe_id`"),
    "out of order": (
        lambda b: {"probes": b.probes[[1, 0, 2, 3, 4, 5]], "gold": b.gold[[1, 0, 2, 3, 4, 5]]},
        "row 1, column `position`",
    ),
    "another text": (lambda b: {"probes": at(b.probes, 2, "question", "Where was Ann?")}, "column `question_id`"),
    "unknown form": (lambda b: {"probes": at(b.probes, 0, "form", "essay")}, "row 0, column `form`"),
    "one option": (lambda b: {"probes": at(b.probes, 3, "options", ["one"])}, "row 3, column `options`"),
    "same options": (lambda b: {"probes": at(b.probes, 3, "options", ["one", "one"])}, "row 3, column `options`"),
    "options of an open question": (
        lambda b: {"probes": at(b.probes, 0, "options", ["x", "y"])},
        "row 0, column `options`",
    ),
    "no gold": (lambda b: {"gold": b.gold[:5]}, "probes.parquet, row 5, column `probe_id`"),
    "gold of nothing": (
        lambda b: {"gold": pl.concat([b.gold, b.gold[:1].with_columns(probe_id=pl.lit("z@0"))])},
        "gold.parquet, row 6, column `probe_id`",
    ),
    "gold shuffled": (lambda b: {"gold": b.gold.reverse()}, "gold.parquet, row 0, column `probe_id`"),
    "no answer": (lambda b: {"gold": at(b.gold, 1, "answers", [])}, "row 1, column `answers`"),
    "empty answer": (lambda b: {"gold": at(b.gold, 1, "answers", [""])}, "row 1, column `answers`"),
    "letter beyond": (lambda b: {"gold": at(b.gold, 3, "answers", ["C"])}, "row 3, column `answers`"),
    "no letter": (lambda b: {"gold": at(b.gold, 4, "answers", ["two"])}, "row 4, column `answers`"),
    "outdated and right": (lambda b: {"gold": at(b.gold, 2, "outdated", ["here"])}, "row 2, column `outdated`"),
    "unknown evidence": (lambda b: {"gold": at(b.gold, 2, "evidence", ["a_c9"])}, "row 2, column `evidence`"),
    "evidence elsewhere": (lambda b: {"gold": at(b.gold, 2, "evidence", ["b_c0"])}, "row 2, column `evidence`"),
    "evidence to come": (lambda b: {"gold": at(b.gold, 1, "evidence", ["a_c2"])}, "row 1, column `evidence`"),
    "phase missed": (lambda b: {"gold": at(b.gold, 2, "phase", 1)}, "row 2, column `phase`"),
    "phase not from zero": (lambda b: {"gold": at(b.gold, 0, "phase", 1)}, "row 0, column `phase`"),
    "empty slice": (lambda b: {"gold": at(b.gold, 5, "slice_changes", "")}, "row 5, column `slice_changes`"),
    "a subset of two slices": (
        lambda b: {"gold": b.gold.with_columns(pl.col("slice_changes").alias("slice_more"))},
        "column `slice_more`: one name for two subsets\n.*\n.*a value of column `slice_changes`",
    ),
    "a subset called as the whole": (
        lambda b: {"gold": at(b.gold, 5, "slice_changes", "all")},
        "column `slice_changes`: one name for two subsets\n.*\n.*'all'",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_the_rows_is_refused_with_its_place(tmp_path: Path, fault: str) -> None:
    """The card is made to fit, so that only the rule itself can notice."""
    change, message = FAULTS[fault]
    built = small()
    broken = dataclasses.replace(built, **change(built))
    with pytest.raises(UpkeepError) as raised:
        checking.check(broken, broken.chunk_tokens, "d")
    assert re.search(message, str(raised.value)), raised.value
    if not broken.documents.is_empty() and set(broken.gold["probe_id"]) == set(broken.probes["probe_id"]):
        with pytest.raises(UpkeepError):
            validate(write(tmp_path / "d", broken))


def test_a_changed_file_is_refused_with_both_hashes(tmp_path: Path) -> None:
    folder = write(tmp_path / "d", small())
    card = verify_dataset(folder)
    content = (folder / "gold.parquet").read_bytes()
    (folder / "gold.parquet").write_bytes(content[:-1] + b"?")
    with pytest.raises(UpkeepError, match="not the file that was written") as raised:
        validate(folder)
    assert card.files["gold.parquet"].sha256 in str(raised.value)
    assert hash_file(folder / "gold.parquet") in str(raised.value)


@pytest.mark.parametrize("name", ["documents.parquet", "probes.parquet", "gold.parquet", "pairs.jsonl", "card.json"])
def test_a_missing_file_is_refused(tmp_path: Path, name: str) -> None:
    folder = write(tmp_path / "d", small())
    (folder / name).unlink()
    with pytest.raises(UpkeepError, match=re.escape(name)):
        validate(folder)


@pytest.mark.parametrize("field", ["streams", "documents", "probes", "questions", "pairs", "content"])
def test_a_card_that_does_not_fit_the_rows_is_refused(tmp_path: Path, field: str) -> None:
    folder = write(tmp_path / "d", small())
    card = verify_dataset(folder)
    other = card.content | {"slices": "0" * 64} if field == "content" else getattr(card, field) + 1
    write_sealed(folder / "card.json", msgspec.structs.replace(card, **{field: other}))
    with pytest.raises(UpkeepError, match=field):
        validate(folder)


@pytest.mark.parametrize(
    "line", [b'{"question":"q"}\n', b'{"question":"q","answer":1}\n', b"{\n", b'{"question":"\xff"}\n']
)
def test_a_line_that_is_no_pair_is_refused_with_its_number(tmp_path: Path, line: bytes) -> None:
    folder = write(tmp_path / "d", small())
    good = (folder / "pairs.jsonl").read_bytes()
    (folder / "pairs.jsonl").write_bytes(good + line)
    with pytest.raises(UpkeepError, match="line 2"):
        store.load(folder)


def test_a_file_that_is_no_parquet_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "d", small())
    (folder / "gold.parquet").write_bytes(b"PAR1 nonsense")
    with pytest.raises(UpkeepError, match="not readable as Parquet"):
        store.load(folder)


def test_a_description_sets_the_papers_numbers_beside_our_own(tmp_path: Path) -> None:
    text = describing.describe(
        verify_dataset(write(tmp_path / "d", small())), {"questions": 1224.0, "only theirs": 7.5}
    )
    assert "own" in text and "phases_per_question" in text
    assert re.search(r"^questions +2 +1,224$", text, re.MULTILINE)
    assert re.search(r"^only theirs +7.5$", text, re.MULTILINE)


def test_building_is_atomic_and_replaces(tmp_path: Path) -> None:
    where = tmp_path / "data.json"
    where.write_text(json.dumps(BABI))
    known = catalog(tmp_path / "r", spec(), {"d": str(where)})
    out = tmp_path / "out" / "d"
    build_dataset(known, "d", out)
    (out / "leftover").touch()
    first = build_dataset(known, "d", out)
    assert validate(out) == first
    assert [path.name for path in out.parent.iterdir()] == ["d"]
    assert not (out / "leftover").exists()
    where.write_text("[]")
    with pytest.raises(UpkeepError, match="no questions"):
        build_dataset(known, "d", out)
    assert validate(out) == first


def test_importing_what_builds_loads_no_polars() -> None:
    code = "import sys, upkeep.building.build; assert not {'polars', 'tokenizers', 'numpy'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": str(ROOT / "src")})


def test_an_unknown_builder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UpkeepError, match="unknown builder 'nothing'"):
        build_dataset(catalog(tmp_path, spec(builder="nothing")), "d", tmp_path / "out")


# ---------------------------------------------------------------- the official release

BABI: list[dict[str, Any]] = [
    {
        "meta": {"bid": "P1", "num_chunks": 4, "num_qas": 2},
        "data": {
            "chunks": {"0": "Once.", "1": "Mary went to the hall.", "2": "Mary moved to the attic.", "3": "The end."},
            "facts": {"1": ["Mary went to the hall."], "2": ["Mary moved to the attic."]},
            "qas": {
                "Where is Mary?": {
                    "question_id": "P1_q0",
                    "question_type": "simple_facts",
                    "chunk_to_answer": {"0": ["Unknown"], "1": ["hall"], "2": ["attic"], "3": ["attic"]},
                },
                "How many times has Mary moved?": {
                    "question_id": "P1_q1",
                    "question_type": "counting",
                    "chunk_to_answer": {
                        "0": ["Unknown", "0"],
                        "1": ["1", "once"],
                        "2": ["2", "twice"],
                        "3": ["2", "twice"],
                    },
                },
            },
        },
    }
]
NONE = "We cannot answer this question at this point."
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


# ---------------------------------------------------------------- the small stories


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory) -> store.Dataset:
    folder = tmp_path_factory.mktemp("stories")
    fields = spec_of("oaks_novel_mini")
    build_dataset(catalog(folder, fields), "d", folder / "out")
    validate(folder / "out")
    return store.load(folder / "out")


def asked(data: store.Dataset) -> pl.DataFrame:
    return data.probes.join(data.gold, on="probe_id")


def test_stories_are_small_and_have_every_bin(stories: store.Dataset) -> None:
    assert len(stories.probes) <= 320 and stories.documents["tokens"].max() <= stories.card.chunk_tokens  # type: ignore[operator]
    assert stories.card.slices["changes"].keys() == {"sparse", "moderate", "frequent"}
    for _, rows in asked(stories).group_by("question_id"):
        phases = rows["phase"].max() + 1  # type: ignore[operator]
        assert rows["slice_changes"][0] == ("sparse" if phases <= 3 else "moderate" if phases <= 4 else "frequent")


def test_cannot_answer_is_right_only_before_the_first_answer(stories: store.Dataset) -> None:
    places = set()
    for _, rows in asked(stories).group_by("question_id"):
        options = rows["options"][0].to_list()
        none = oaks_novel.LETTERS[options.index(NONE)]
        places.add(none)
        assert 5 <= len(options) <= 6
        right = [answers[0] == none for answers in rows.sort("position")["answers"].to_list()]
        assert right == sorted(right, reverse=True) and not right[-1]
        assert all(len(answers) == 1 for answers in rows["answers"].to_list())
    assert len(places) > 2


def test_a_story_tells_of_its_states_and_flashbacks_change_none(stories: store.Dataset) -> None:
    """A second reading: the last sentence of an aspect, in the words in which changes are told, gives the answer."""
    recalled = 0
    for _, rows in asked(stories).group_by("question_id"):
        question = rows["question"][0]
        for aspect in oaks_novel.ASPECTS:
            match = re.fullmatch(re.escape(aspect.question).replace(r"\{0\}", "(\\w+)"), question)
            if match is None:
                continue
            hero = match[1] if match.groups() else r"\w+"
            told = [re.escape(t).replace(r"\{0\}", hero).replace(r"\{1\}", "(.+?)") for t in aspect.told]
            for row in rows.iter_rows(named=True):
                seen = stories.documents.filter(
                    (pl.col("stream") == row["stream"]) & (pl.col("position") <= row["position"])
                )
                found = [next(filter(None, m.groups())) for m in re.finditer("|".join(told), "\n".join(seen["text"]))]
                right = row["options"][oaks_novel.LETTERS.index(row["answers"][0])]
                assert right == (found[-1] if found else NONE), (row["probe_id"], question)
            past = re.escape(aspect.recalled).replace(r"\{0\}", hero).replace(r"\{1\}", ".+?")
            recalled += len(re.findall(past, "\n".join(stories.documents["text"])))
    assert recalled > 0


def test_the_town_of_the_last_handing_over_follows_the_order_of_the_text() -> None:
    def event(chunk: int, aspect: oaks_novel.Aspect, state: str) -> oaks_novel.Event:
        return oaks_novel.Event(chunk, aspect, state, "")

    events = [
        event(0, oaks_novel.LETTER, "x"),
        event(1, oaks_novel.TOWN, "A"),
        event(2, oaks_novel.LETTER, "y"),
        event(2, oaks_novel.TOWN, "B"),
        event(4, oaks_novel.LETTER, "z"),
    ]
    line = dict(oaks_novel.timelines(events, 5))[None]
    assert [state.value for state in line] == [None, None, "A", "A", "B"]
    assert [state.evidence for state in line] == [(), (), (1, 2), (1, 2), (2, 4)]


# ---------------------------------------------------------------- ids


@pytest.mark.parametrize(
    ("id", "stream", "answers", "tells"),
    [
        ("code_numpy.linalg.Vecdot", "releases", ["vecdot"], True),
        ("aws_q0001.yes2", "aws", ["yes"], True),
        ("q_northern_sea_4", "s", ["Northern Sea"], True),
        ("aws_q0001", "aws", ["AWS"], False),  # the stream is named anyway
        ("babi_q3", "s", ["3", "three"], False),
        ("yesterday_q1", "s", ["yes"], False),
        ("s_q1", "other", ["Q"], False),
        ("q1", "s", ["--"], False),
    ],
)
def test_an_id_tells_an_answer_by_whole_words(id: str, stream: str, answers: list[str], tells: bool) -> None:
    assert leaks.named(id, stream, answers) is tells


def test_unlabelled_items_tell_nothing_by_their_ids_or_their_order() -> None:
    slices = {"family": "x"}
    items = [
        assembling.Item(
            id=f"{family}_{n}", stream="a", text=f"{family} {n}?", answers=[family], slices=slices, position=at
        )
        for family in ("known", "absent")
        for n in range(50)
        for at in (0, 1)
    ]
    drawn = assembling.unlabelled(items, 0)
    assert drawn == assembling.unlabelled(items, 0) != assembling.unlabelled(items, 1)
    assert sorted(item.text for item in drawn) == sorted(item.text for item in items)
    new = {item.text: item.id for item in drawn}
    assert all(new[item.text] == item.id for item in drawn), "one id a question"
    assert sorted(new.values()) == [f"q{n:04d}" for n in range(100)]
    early = [text for text, id in new.items() if id < "q0050"]
    assert 15 < sum(text.startswith("known") for text in early) < 35


def test_texts_without_a_word_are_all_alike_and_others_differ() -> None:
    assert (embedding._lsa(["...", "!?"]) == 1).all()
    assert embedding._lsa(["...", "one word"]).shape[0] == 2


def indented(text: str, first: str, after: str) -> str:
    """The code of a page from the line `first` to the line before `after`."""
    return textwrap.dedent(text[text.index(first) : text.index(after)])


def test_the_builder_of_the_docs_runs_as_it_is_written(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "add-a-dataset.md").read_text()
    folder = tmp_path / "datasets" / "chairs"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(indented(page, '    """Who chairs what', "With `config/config.yaml`"))
    (folder / "dataset.yaml").write_text(indented(page, "    label: My chairs", "Inputs of your own are named"))
    shutil.copytree(ROOT / "papers" / "evowiki", tmp_path / "papers" / "evowiki")
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "config.yaml").write_text(f"data: {{chairs.articles: {tmp_path / 'articles.jsonl'}}}")
    article = '{{"date": "{}", "text": "{}"}}\n'
    (tmp_path / "articles.jsonl").write_text(
        article.format("8 May 2024", "Lena Orwick chairs the harbour board. " * 40)
        + "broken\n"
        + article.format("2024-06-01", "Ann Tell chairs the school board, and Ben Roe chairs the harbour board.")
    )
    prompt = tmp_path / "papers/evowiki/prompts/chairs.yaml"
    prompt.write_text(indented(page, "    # My wording.", "An edit runs the cells"))
    repository = Catalog(tmp_path)
    assert repository.prompt("chairs").closed.endswith("you know. End with a line `Answer: <a name>`.")
    card = build_dataset(repository, "chairs", tmp_path / "out")
    data = store.load(tmp_path / "out")
    assert card.faults == {"broken_record": 1}
    assert {*data.documents["timestamp"]} == {"2024-05-08", "2024-06-01"}
    gold = {answers[0]: outdated for answers, outdated in data.gold.select("answers", "outdated").iter_rows()}
    assert gold == {"Ben Roe": ["Lena Orwick"], "Ann Tell": []}
    assert "3,819" in describe(repository, card)
