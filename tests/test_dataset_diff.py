"""What differs between two builds of a dataset is told; what is the same, however stored or numbered, is not."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from conftest import ROOT
from test_datasets import small, write
from upkeep.building.assembling import Built
from upkeep.cli import _parser
from upkeep.commands.datasets import DIFFER
from upkeep.contract import Pair
from upkeep.errors import UpkeepError
from upkeep.operations.dataset_diff import Difference, compare, lines, side


def between(tmp_path: Path, change: Callable[[Built], Built], limit: int | None = 5) -> Difference:
    """The difference between the small dataset and what it is changed to."""
    folders = write(tmp_path / "a", small()), write(tmp_path / "b", change(small()))
    return compare(side(folders[0]), side(folders[1]), limit)


def command(*words: str) -> int:
    arguments = _parser(str(ROOT)).parse_args(["dataset", *words])
    return int(arguments.run(arguments))


def mended(built: Built) -> Built:
    """One gold answer is another."""
    answers = pl.when(pl.col("probe_id") == "a_q0@1").then(pl.lit(["home"])).otherwise("answers")
    return dataclasses.replace(built, gold=built.gold.with_columns(answers=answers))


def longer(built: Built) -> Built:
    """One document more at the start of stream a, so that all others there have another id and position."""
    first = built.documents.head(1).with_columns(text=pl.lit("A new start."))
    in_a = pl.col("stream") == "a"
    moved = built.documents.with_columns(
        document_id=pl.when(in_a).then(pl.format("a_c{}", pl.col("position") + 1)).otherwise("document_id"),
        position=pl.when(in_a).then(pl.col("position") + 1).otherwise("position").cast(pl.Int32),
    )
    named = pl.col("evidence").list.eval(pl.element().replace({"a_c0": "a_c1", "a_c1": "a_c2", "a_c2": "a_c3"}))
    return dataclasses.replace(built, documents=pl.concat([first, moved]), gold=built.gold.with_columns(evidence=named))


def test_a_build_differs_in_nothing_from_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(write(tmp_path / "a", small()))
    assert command("diff", folder, folder) == 0
    assert capsys.readouterr().out == ""


def test_the_same_rows_in_other_files_differ_in_nothing(tmp_path: Path) -> None:
    found = between(tmp_path, lambda built: built)
    assert found.same and not found.found and list(lines(found)) == []


def test_a_mended_gold_answer_is_told_with_old_and_new_and_nothing_else_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = between(tmp_path, mended)
    assert found.found.keys() == {"gold: answers changed"}
    (row,) = found.found["gold: answers changed"].rows
    assert row == {"probe_id": ("a_q0@1", "a_q0@1"), "answers": (["Unknown", "away"], ["home"])}
    assert "content.answers" in found.card and "content.documents" not in found.card
    assert command("diff", str(tmp_path / "a"), str(tmp_path / "b")) == DIFFER
    assert '["Unknown","away"] -> ["home"]' in capsys.readouterr().out


def test_documents_that_a_new_one_moves_are_no_changed_documents_and_evidence_follows_them(tmp_path: Path) -> None:
    found = between(tmp_path, longer).found
    assert found.keys() == {"documents added", "documents under another id or at another position"}
    assert [row["text"] for row in found["documents added"].rows] == ["A new start."]
    assert found["documents under another id or at another position"].count == 3


def test_a_document_of_the_same_id_with_other_words_is_changed(tmp_path: Path) -> None:
    def change(built: Built) -> Built:
        return dataclasses.replace(
            built, documents=built.documents.with_columns(text=pl.col("text").replace({"Ann left.": "Ann went."}))
        )

    found = between(tmp_path, change).found
    assert found["documents: text changed"].rows == [
        {"document_id": ("a_c1", "a_c1"), "text": ("Ann left.", "Ann went.")}
    ]
    assert not any("added" in kind or "removed" in kind for kind in found)


def test_questions_drawn_under_new_ids_are_the_same_questions(tmp_path: Path) -> None:
    def change(built: Built) -> Built:
        ids = [pl.col(column).str.replace("_q0", "_q7") for column in ("probe_id", "question_id")]
        return dataclasses.replace(built, probes=built.probes.with_columns(ids), gold=built.gold.with_columns(ids[0]))

    found = between(tmp_path, change).found
    assert found.keys() == {"questions under another id"}
    assert found["questions under another id"].count == 2


def test_a_question_that_is_left_out_takes_its_probes_and_slice_along(tmp_path: Path) -> None:
    def change(built: Built) -> Built:
        kept = pl.col("probe_id").str.starts_with("a_")
        return dataclasses.replace(built, probes=built.probes.filter(kept), gold=built.gold.filter(kept), pairs=[])

    found = between(tmp_path, change, limit=1)
    assert {kind: of.count for kind, of in found.found.items()} == {
        "questions removed": 1,
        "probes removed": 3,
        "training pairs removed": 1,
    }
    assert len(found.found["probes removed"].rows) == 1
    assert found.slices == {"changes: y": (1, 0)}
    assert found.counts["probes"] == (6, 3)


def test_a_pair_that_is_there_twice_is_one_more(tmp_path: Path) -> None:
    found = between(tmp_path, lambda b: dataclasses.replace(b, pairs=[Pair(question="q", answer="a")] * 2)).found
    assert found["training pairs added"].rows == [{"question": "q", "answer": "a", "document": None}]


def test_a_column_that_one_build_lacks_is_a_difference(tmp_path: Path) -> None:
    found = between(tmp_path, lambda b: dataclasses.replace(b, gold=b.gold.with_columns(quotes=pl.lit(["so it is"]))))
    assert found.found["gold: quotes changed"].count == 6
    assert found.found["gold: quotes changed"].rows[0]["quotes"] == (None, ["so it is"])


def test_json_has_all_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def change(built: Built) -> Built:
        return dataclasses.replace(built, gold=built.gold.with_columns(answers=pl.lit(["x"])))

    between(tmp_path, change)
    assert command("diff", str(tmp_path / "a"), str(tmp_path / "b"), "--json") == DIFFER
    found = json.loads(capsys.readouterr().out)["found"]["gold: answers changed"]
    assert found["count"] == len(found["rows"]) == 6


@pytest.mark.parametrize("file", ["gold.parquet", "card.json"])
def test_a_folder_that_was_tampered_with_is_refused(tmp_path: Path, file: str) -> None:
    folder = write(tmp_path / "a", small())
    content = (folder / file).read_bytes()
    (folder / file).write_bytes(content.replace(b'"here"', b'"then"') if file == "card.json" else content[:-1] + b"x")
    with pytest.raises(UpkeepError, match=r"not the (file|record) that was written"):
        command("diff", str(folder), str(folder))


def test_an_unknown_name_gives_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UpkeepError, match="did you mean oaks_babi_mini"):
        command("diff", "oaks_babi_mni", "oaks_babi_mini")
    with pytest.raises(UpkeepError, match="is not built"):
        command("diff", f"{tmp_path}/nowhere", f"{tmp_path}/nowhere")


def test_one_dataset_alone_and_options_of_other_commands_are_refused() -> None:
    with pytest.raises(UpkeepError, match="which two"):
        command("diff", "oaks_babi_mini")
    with pytest.raises(UpkeepError, match="takes no --json"):
        command("record", "oaks_babi_mini", "--json")


def test_a_hostile_text_does_nothing_to_the_terminal(tmp_path: Path) -> None:
    hostile = pl.lit(["\x1b]0;mine\x07\x1b[2Jx"])
    found = between(tmp_path, lambda b: dataclasses.replace(b, gold=b.gold.with_columns(answers=hostile)))
    assert "\x1b" not in "".join(lines(found))
