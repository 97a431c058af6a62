"""Datasets in normal form: what is written can be read, and what is wrong is refused with its place."""

from __future__ import annotations

import dataclasses
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

from conftest import ROOT
from dataset_rows import BABI, catalog, spec
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
