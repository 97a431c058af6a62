"""ImprintBench, Code Changelogs: what releases add is read from notes of any library, and what is asked is in them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest

import imprint_code
from code_worlds import NAME, asked, built, found, made, mini, on_disk, said, written
from imprint_code import questions, sources, synthetic
from upkeep.building import checking, leaks, reading, store
from upkeep.building.names import Names, is_held_out
from upkeep.errors import UpkeepError

__all__ = ["asked", "mini"]


# ---------------------------------------------------------------- the world


@pytest.mark.parametrize("seed", range(4))
def test_the_rules_find_all_that_a_world_adds_and_nothing_else(seed: int, tmp_path: Path) -> None:
    its = made(seed)
    given = its.write(tmp_path)
    features = imprint_code.find(sources.read(given, reading.Faults({}, Path("test")))).features
    assert said(features) == {f"{fact.kind} {fact.path}" for fact in its.new}
    assert {feature.version for feature in features} == {fact.version for fact in its.new}


def test_a_world_keeps_what_was_there_before_apart() -> None:
    its = made()
    assert its.old
    assert not {fact.path for fact in its.old} & {fact.path for fact in its.new}
    assert all(fact.version == "" for fact in its.old)


def test_a_world_is_held_out_or_not_as_its_names_are() -> None:
    for held_out in (True, False):
        rng = Random(3)
        its = synthetic.make(rng, Names(rng, held_out=held_out), synthetic.Sizes())
        words = {part for fact in its.new for part in fact.path.split(".")}
        assert {is_held_out(word) for word in words} == {held_out}


def test_mini_is_small_and_has_all_families(mini: store.Dataset) -> None:
    assert len(mini.probes) < 300
    assert len(mini.documents) <= 60
    assert mini.documents["tokens"].max() <= 128
    assert mini.card.slices["family"].keys() == {*imprint_code.FAMILIES, "imp_rel_unmerged", "comp_rel_no_import"}
    assert mini.card.stands_for == NAME
    checking.check(mini, mini.card.chunk_tokens, "mini")


def test_no_answer_of_mini_is_the_usual_one(asked: list[dict[str, Any]]) -> None:
    for form in ("label", "short"):
        answers = Counter(row["answers"][0] for row in asked if row["form"] == form)
        assert answers.most_common(1)[0][1] <= 0.6 * answers.total()


def test_answers_of_mini_can_be_read_in_their_evidence(asked: list[dict[str, Any]]) -> None:
    for row in asked:
        told = "\n".join(row["texts"])
        if row["slice_family"] == "bound_abs":
            assert row["answers"] == ["No"]
            assert row["evidence"] == []
        elif row["slice_family"] == "dir_acq":
            assert row["question"].split(" at ")[1].removesuffix("?") in told
        else:
            assert all(answer in told for answer in row["answers"])


def test_documents_are_in_the_order_of_releases(mini: store.Dataset) -> None:
    dates = mini.documents["timestamp"].to_list()
    assert None not in dates
    assert dates == sorted(dates)


def test_questions_that_are_merged_accept_every_name_and_are_asked_one_by_one_too(asked: list[dict[str, Any]]) -> None:
    merged = {row["question"]: row["answers"] for row in asked if row["slice_family"] == "imp_rel"}
    alone: dict[str, list[str]] = {}
    for row in asked:
        if row["slice_family"] == "imp_rel_unmerged":
            alone.setdefault(row["question"], []).extend(row["answers"])
    assert len(merged) == sum(row["slice_family"] == "imp_rel" for row in asked)
    several = {question: sorted(answers) for question, answers in merged.items() if len(answers) > 1}
    assert {question: sorted(answers) for question, answers in alone.items()} == several
    assert alone


def test_invented_names_are_new_and_look_like_the_others(mini: store.Dataset, asked: list[dict[str, Any]]) -> None:
    everything = "\n".join(mini.documents["text"]).lower()
    real = [row for row in asked if row["slice_family"] == "dir_acq"]
    invented = [row for row in asked if row["slice_family"] == "bound_abs"]
    assert len(invented) == len(real)
    for row in invented:
        assert row["question"].removesuffix("?").rpartition(".")[2].lower() not in everything
    lengths = [[len(row["question"]) for row in rows] for rows in (real, invented)]
    assert abs(sum(lengths[0]) - sum(lengths[1])) < 3 * len(real)


def test_masked_code_holds_no_name_and_no_import_variant_is_harder(asked: list[dict[str, Any]]) -> None:
    def about(row: dict[str, Any]) -> str:
        return str(row["question"]).partition("\n")[0]

    whole = {about(row): row for row in asked if row["slice_family"] == "comp_rel"}
    bare = [row for row in asked if row["slice_family"] == "comp_rel_no_import"]
    assert bare
    for row in [*whole.values(), *bare]:
        assert "<MASK>" in row["question"]
        assert not leaks.tells(row["question"], row["answers"])
    for row in bare:
        other = whole[about(row)]
        assert row["answers"] == other["answers"]
        assert len(row["question"]) < len(other["question"])
        assert "<MASK>" not in "".join(line for line in row["question"].splitlines() if "import" in line)


def test_training_pairs_ask_nothing_of_the_evaluation(mini: store.Dataset) -> None:
    asked = {leaks.key(question) for question in mini.probes["question"]}
    keys = [leaks.key(pair.question) for pair in mini.pairs]
    assert not asked & set(keys)
    assert len(set(keys)) == len(keys)
    assert mini.card.statistics["left out: pairs that are evaluation questions"] > 0


def test_building_twice_gives_the_same_content(tmp_path: Path, mini: store.Dataset) -> None:
    again = built(tmp_path, f"{NAME}_mini")
    assert again.card.content == mini.card.content
    assert built(tmp_path / "other", f"{NAME}_mini", {"seed": 1}).card.content != mini.card.content


# ---------------------------------------------------------------- options and inputs


def test_a_stream_a_library(tmp_path: Path) -> None:
    data = built(tmp_path, f"{NAME}_mini", {"streams": "library"})
    assert data.card.streams == 3
    joined = data.probes.join(data.gold, on="probe_id")
    assert (joined["stream"] == joined["slice_library"]).all()


def test_a_long_feature_is_split_and_all_its_pieces_are_evidence(tmp_path: Path) -> None:
    its = made()
    fact = next(fact for fact in its.new if fact.kind == "function")
    its.docs[f"{fact.library}/{fact.path}.md"] = "word " * 400
    data = built(tmp_path, NAME, {"chunk_tokens": 128}, data=on_disk(tmp_path / "in", its))
    asked = data.probes.filter(pl.col("question") == questions.there(fact.library, fact.kind, fact.path))
    gold = data.gold.filter(pl.col("probe_id") == asked["probe_id"].item())
    evidence = gold["evidence"].to_list()[0]
    assert len(evidence) > 3
    assert data.documents["tokens"].max() <= 128
    texts = dict(data.documents.select("document_id", "text").iter_rows())
    assert fact.path in "".join(texts[id] for id in evidence)
    assert gold["context"].to_list()[0] == list(dict.fromkeys(texts[id] for id in evidence))


def test_dates_come_from_the_notes_or_a_file_and_notes_without_one_follow_their_library(tmp_path: Path) -> None:
    files = {
        "a/1.0-notes.md": "# a 1.0 (2031-05-01)\n\n## New features\n- Added `a.one`\n",
        "a/2.0-notes.md": "# a\n\n## New features\n- Added `a.two`\n",
        "b/1.0-notes.rst": "b\n=\n\nReleased on 8 May 2031.\n\nNew features\n------------\n\n- Added `b.one`\n",
        "b/2.0-notes.md": "## New features\n- Added `b.two`\n",
        "dates.yaml": "b: {'2.0': 2031-04-02}\n",
    }
    data = built(tmp_path, NAME, data={f"{NAME}.notes": str(written(tmp_path / "notes", files))})
    order = [(text.split(".")[0], date) for text, date in data.documents.select("text", "timestamp").iter_rows()]
    assert order == [("b 2", "2031-04-02"), ("a 1", "2031-05-01"), ("a 2", None), ("b 1", "2031-05-08")]
    assert data.card.statistics["releases without a date"] == 1


def test_what_is_wrong_with_the_inputs_is_named_and_counted(tmp_path: Path) -> None:
    its = made()
    data = on_disk(tmp_path / "in", its)
    library = its.new[0].library
    folder = tmp_path / "in" / "notes" / library
    (folder / "7.0-notes.md").write_text(" \n")
    (folder / "8.0-notes.md").write_bytes(b"## New features\n- Added `x.\xff`\n")
    (folder / f"{its.new[0].version}-notes.txt").write_text("not read")
    twin = next(folder.glob(f"{its.new[0].version}-notes.*t"))
    (folder / f"{its.new[0].version}-notes.md").write_text(twin.read_text())
    (tmp_path / "in" / "notes" / "dates.yaml").write_text(f"{library}: {{'2.0': 05/08/2031, '3.0': ''}}\n")
    snippets = tmp_path / "in" / "snippets.jsonl"
    lines = snippets.read_text().splitlines()
    snippets.write_text("\n".join([lines[0], '{"library": 3', *lines[1:], json.dumps({"library": library}), ""]))
    card = built(tmp_path, NAME, data=data).card
    wanted = {"bad_date": 1, "broken_record": 2, "duplicate_id": 1, "empty_text": 1, "encoding": 1, "missing_date": 1}
    assert card.faults == wanted
    noted = "\n".join(card.notes)
    assert "snippets.jsonl, line 2" in noted
    assert "8.0-notes.md, byte" in noted
    with pytest.raises(UpkeepError, match="line 2"):
        built(tmp_path / "strict", NAME, data=data, faults={"broken_record": "refuse"})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[1, 2]", "Expected `object`"),
        ("a: [", "not readable as YAML"),
        ("a: {b: {c: d}}", r"Expected `str`.*\n.*<date>"),
    ],
)
def test_dates_of_another_form_are_refused(text: str, problem: str, tmp_path: Path) -> None:
    files = {"a/1.0-notes.md": "## New features\n- Added `a.one`\n", "dates.yaml": text}
    with pytest.raises(UpkeepError, match=rf"dates\.yaml.*{problem}"):
        found(tmp_path, files)


def test_notes_must_be_named_and_hold_something_new(tmp_path: Path) -> None:
    with pytest.raises(UpkeepError, match="files of your own"):
        built(tmp_path / "a", NAME)
    empty = written(tmp_path / "notes", {"a/README.md": "no notes"})
    with pytest.raises(UpkeepError, match="no release notes here"):
        built(tmp_path / "b", NAME, data={f"{NAME}.notes": str(empty)})
    dull = written(tmp_path / "dull", {"a/1.0-notes.md": "## New features\n- Everything is faster\n"})
    with pytest.raises(UpkeepError, match="no new feature"):
        built(tmp_path / "c", NAME, data={f"{NAME}.notes": str(dull)})
