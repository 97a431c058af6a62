"""Claims about documents and questions as JSON lines, and about `upkeep new dataset`, which begins with these."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from conftest import CACHE, ROOT, copy_repository
from test_families import COMMON, family
from upkeep.building import store
from upkeep.building.build import build_dataset
from upkeep.building.builders import jsonl
from upkeep.catalog import Catalog
from upkeep.errors import UpkeepError
from upkeep.families import read_family
from upkeep.new import TEMPLATES, new_dataset

DOCUMENTS = [
    {"id": "d1", "stream": "a", "text": "Ann is chair.", "timestamp": "8 May 2024"},
    {"id": "e1", "stream": "b", "text": "It rains."},
    {"id": "d2", "stream": "a", "text": "Ben is chair now.", "timestamp": "2024-06-01"},
]
QUESTIONS: list[dict[str, Any]] = [
    {"question": "Who?", "stream": "a", "after": "d1", "answers": ["Ann"], "evidence": ["d1"], "slices": {"k": "x"}},
    {"question": "Who?", "stream": "a", "answers": ["Ben"], "outdated": ["Ann"], "slices": {"k": "y"}},
    {"question": "Which?", "stream": "b", "after": 0, "options": ["sun", "rain"], "answers": ["rain"],
     "outdated": ["sun"], "slices": {"k": "x"}},
    {"question": "Does it rain?", "stream": "b", "options": ["yes", "no"], "form": "label", "answers": ["yes"],
     "slices": {"k": "y"}},
]  # fmt: skip


def lines(rows: list[Any]) -> str:
    return "".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows)


def written(root: Path, documents: list[Any], questions: list[Any], **fields: Any) -> Catalog:
    catalog = family(root, "news", COMMON | {"label": "N", "builder": "jsonl"} | fields)
    (root / "datasets/news/documents.jsonl").write_text(lines(documents))
    (root / "datasets/news/questions.jsonl").write_text(lines(questions))
    return catalog


def test_what_is_written_down_is_what_is_asked(tmp_path: Path) -> None:
    build_dataset(written(tmp_path, DOCUMENTS, QUESTIONS), "news", tmp_path / "out")
    card = store.validate(tmp_path / "out")
    data = store.load(tmp_path / "out")
    columns = ["document_id", "stream", "position", "timestamp"]
    assert data.documents.select(columns).rows() == [
        ("d1", "a", 0, "2024-05-08"), ("d2", "a", 1, "2024-06-01"), ("e1", "b", 0, None),
    ]  # fmt: skip
    rows = data.probes.join(data.gold, on="probe_id", maintain_order="left")
    found = {
        (row["question"], row["position"]): (
            row["form"],
            row["answers"],
            row["outdated"],
            row["evidence"],
            row["phase"],
        )
        for row in rows.iter_rows(named=True)
    }
    assert found == {
        ("Who?", 0): ("short", ["Ann"], [], ["d1"], 0),
        ("Who?", 1): ("short", ["Ben"], ["Ann"], [], 1),
        ("Which?", 0): ("choice", ["B"], ["A"], [], 0),
        ("Does it rain?", 0): ("label", ["yes"], [], [], 0),
    }
    assert card.questions == 3 and card.probes == 4 and set(card.inputs) == {"documents.jsonl", "questions.jsonl"}


def test_variants_of_a_family_may_read_other_files(tmp_path: Path) -> None:
    catalog = written(
        tmp_path, DOCUMENTS, QUESTIONS, variants={"full": {}, "few": {"options": {"questions": "few.jsonl"}}}
    )
    (tmp_path / "datasets/news/few.jsonl").write_text(lines(QUESTIONS[:1]))
    assert build_dataset(catalog, "news_few", tmp_path / "few").probes == 1
    assert build_dataset(catalog, "news", tmp_path / "full").probes == 4


def asks(**fields: Any) -> dict[str, Any]:
    return QUESTIONS[0] | fields


WRONG: dict[str, tuple[str, Any, str]] = {
    "not JSON": ("questions", "{", "not a record"),
    "an unknown field": ("questions", asks(answer="x"), "answer"),
    "no question": ("questions", asks(question=" "), "no text"),
    "no stream": ("questions", asks(stream="c"), "a stream without documents"),
    "an unknown document": ("questions", asks(after="d9"), "`after` names no document"),
    "a document of another stream": ("questions", asks(after="e1"), "`after` names no document"),
    "a place beyond the end": ("questions", asks(after=2), "`after` names no document"),
    "a place before the beginning": ("questions", asks(after=-1), "`after` names no document"),
    "a place that is no number": ("questions", asks(after=True), "after"),
    "evidence of another stream": ("questions", asks(evidence=["e1"]), "`evidence` names no document"),
    "evidence from the future": ("questions", asks(evidence=["d2"]), "has not arrived"),
    "no answer": ("questions", asks(answers=[]), "no answer"),
    "an empty answer": ("questions", asks(answers=[""]), "an empty one"),
    "one option": ("questions", asks(options=["Ann"]), "different options"),
    "an empty option": ("questions", asks(options=["Ann", ""]), "different options"),
    "an option twice": ("questions", asks(options=["Ann", "Ann"]), "different options"),
    "a label without options": ("questions", asks(form="label"), "different options"),
    "options of an open question": ("questions", asks(options=["Ann", "Ben"], form="short"), "an open question"),
    "an answer that is no option": ("questions", asks(options=["Cid", "Ben"]), "none of the options"),
    "an outdated one that is none": ("questions", asks(options=["Ann", "x"], outdated=["Cid"]), "none of the options"),
    "an unknown form": ("questions", asks(form="long"), "form"),
    "other slices": ("questions", asks(slices={}), "other slices"),
    "a slice without value": ("questions", asks(slices={"k": ""}), "slice"),
    "a subset of all": ("questions", asks(slices={"k": "all"}), "`all`"),
    "asked twice at once": ("questions", asks(), "asked twice"),
    "a question that tells": ("questions", asks(question="Is Ann chair?"), "holds its answer"),
    "an id twice": ("documents", {"id": "d1", "stream": "b", "text": "x"}, "id given before"),
    "an empty document": ("documents", {"id": "d3", "stream": "b", "text": " "}, "no text"),
    "a document without id": ("documents", {"id": "", "stream": "b", "text": "x"}, "without id"),
    "a document without stream": ("documents", {"id": "d3", "text": "x"}, "stream"),
    "an unclear date": ("documents", {"id": "d3", "stream": "b", "text": "x", "timestamp": "05/08/2024"}, "date"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_every_fault_is_told_by_file_and_line_or_skipped_and_counted(tmp_path: Path, what: str) -> None:
    file, row, word = WRONG[what]
    documents = [*DOCUMENTS, row] if file == "documents" else DOCUMENTS
    questions = [*QUESTIONS, row] if file == "questions" else QUESTIONS
    with pytest.raises(UpkeepError) as error:
        build_dataset(written(tmp_path / "strict", documents, questions), "news", tmp_path / "out")
    number = len(documents if file == "documents" else questions)
    assert str(error.value.where) == f"{tmp_path / 'strict/datasets/news' / file}.jsonl, line {number}"
    assert word in error.value.problem, error.value

    kinds = ("broken_record", "duplicate_id", "empty_text", "bad_date", "missing_date")
    lenient = written(tmp_path / "lenient", documents, questions, faults=dict.fromkeys(kinds, "skip"))
    card = build_dataset(lenient, "news", tmp_path / "out")
    assert sum(card.faults.values()) == 1 and card.probes == 4 and card.documents == 3


def test_a_value_of_two_slices_is_told_by_line(tmp_path: Path) -> None:
    questions = [one | {"slices": {"k": "x", "l": "y"}} for one in QUESTIONS[:1]]
    questions += [one | {"slices": {"k": "y", "l": "z"}} for one in QUESTIONS[1:]]
    with pytest.raises(UpkeepError, match="another's") as error:
        build_dataset(written(tmp_path, DOCUMENTS, questions), "news", tmp_path / "out")
    assert str(error.value.where).endswith("questions.jsonl, line 2")


@pytest.mark.parametrize("file", ["documents", "questions"])
@pytest.mark.parametrize("empty", [True, False])
def test_a_file_that_is_missing_or_empty_is_named(tmp_path: Path, file: str, empty: bool) -> None:
    catalog = written(tmp_path, DOCUMENTS, QUESTIONS)
    path = tmp_path / "datasets/news" / f"{file}.jsonl"
    path.write_text("") if empty else path.unlink()
    with pytest.raises(UpkeepError) as error:
        build_dataset(catalog, "news", tmp_path / "out")
    assert error.value.where == path


# ---------------------------------------------------------------- upkeep new dataset


def test_a_new_dataset_is_built_and_answered_at_once(tmp_path: Path) -> None:
    root = copy_repository(tmp_path)
    environment = os.environ | {
        "UPKEEP_RUNTIME": "process",
        "UPKEEP_CACHE": str(CACHE),
        "PYTHONPATH": str(root / "src"),
    }

    def upkeep(*words: str) -> str:
        command = [sys.executable, "-m", "upkeep", "--root", str(root), *words]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=root)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert "town/documents.jsonl" in upkeep("new", "dataset", "town")
    assert "town" in upkeep("list", "datasets")
    assert "valid dataset" in upkeep("validate", str(root / "datasets/town/dataset.yaml"))
    upkeep("dataset", "build", "town")
    data = store.load(root / "results/datasets/town")
    assert (len(data.documents), len(data.probes)) == (5, 10)
    assert {*data.probes["form"]} == {"short", "choice", "label"}
    assert sum(map(len, data.gold["outdated"].to_list())) >= 5
    upkeep("cell", "town/gold/default/none")
    answers = (root / "results/cells/town/gold/default/none/predictions.jsonl").read_text().splitlines()
    given = {one["probe_id"]: one["response"] for one in map(json.loads, answers)}
    accepted = dict(data.gold.select("probe_id", "answers").iter_rows())
    assert given.keys() == accepted.keys() and all(
        given[id] in accepted[id][0] or accepted[id][0] in given[id] for id in given
    )


def test_the_example_can_be_answered_from_its_documents(tmp_path: Path) -> None:
    shutil.copytree(TEMPLATES / "dataset", tmp_path / "datasets/new_dataset")
    (tmp_path / "config").mkdir()
    (tmp_path / "config/config.yaml").write_text("{}")
    build_dataset(Catalog(tmp_path), "new_dataset", tmp_path / "out")
    data = store.load(tmp_path / "out")
    texts = dict(data.documents.select("document_id", "text").iter_rows())
    rows = data.probes.join(data.gold, on="probe_id").filter(pl.col("form") == "short")
    for row in rows.iter_rows(named=True):
        assert any(answer in texts[id] for answer in row["answers"] for id in row["evidence"]), row


@pytest.mark.parametrize(
    "name", ["", "2x", "My", "a-b", "../x", "class", "x" * 61, "é", "a\n", "_a", "on", "true", "null"]
)
def test_a_bad_name_is_refused_and_nothing_written(tmp_path: Path, name: str) -> None:
    family(tmp_path, "news", COMMON | {"label": "N"})
    before = set(tmp_path.rglob("*"))
    with pytest.raises(UpkeepError, match="no name for a dataset"):
        new_dataset(tmp_path, name)
    assert set(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("name", ["news", "news_mini"])
def test_the_name_of_a_dataset_that_is_there_is_refused(tmp_path: Path, name: str) -> None:
    family(tmp_path, "news", COMMON | {"label": "N", "variants": {"full": {}, "mini": {}}})
    with pytest.raises(UpkeepError, match="there already"):
        new_dataset(tmp_path, name)
    assert not (tmp_path / "datasets/news_mini").exists()


def test_a_new_dataset_is_named_throughout(tmp_path: Path) -> None:
    family(tmp_path, "news", COMMON | {"label": "N"})
    for path in new_dataset(tmp_path, "town"):
        assert "new_dataset" not in path.read_text(), path
    assert read_family(tmp_path / "datasets/town/dataset.yaml")["town"].label == "town"


def test_the_page_describes_every_field_of_both_files() -> None:
    page = (ROOT / "docs/add-a-dataset.md").read_text()
    for record in (jsonl.Document, jsonl.Asked):
        assert all(f"`{name}`" in page for name in record.__struct_fields__), record


def test_pairs_are_read_from_the_file_that_is_named(tmp_path: Path) -> None:
    catalog = written(tmp_path, DOCUMENTS, QUESTIONS, options={"pairs": "pairs.jsonl"})
    path = tmp_path / "datasets/news/pairs.jsonl"
    path.write_text(lines([{"question": "Who was first?", "answer": "Ann", "document": "d1"}]))
    card = build_dataset(catalog, "news", tmp_path / "out")
    (pair,) = store.load(tmp_path / "out").pairs
    assert card.pairs == 1 and (pair.answer, pair.document) == ("Ann", "d1")
    path.write_text(lines([{"question": "Who was first?", "answer": "Ann", "document": "d7"}]))
    with pytest.raises(UpkeepError, match=r"pairs.jsonl, line 1: a training pair of a document that there is not"):
        build_dataset(Catalog(tmp_path), "news", tmp_path / "again")
