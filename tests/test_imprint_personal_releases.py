"""Personalization: PersonaMem and HorizonBench are read in every form, and what is wrong in them is counted."""

from __future__ import annotations

import csv
import gzip
import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from imprint_personal import (
    author,
    families,
    frames,
    horizonbench,
    personamem,
    personas,
    synthetic,
    tables,
)
from personal_worlds import NAME, TABLE, asked, built, from_files, made, mini, releases_on_disk
from upkeep.building import assistant, leaks, reading, tokens
from upkeep.errors import UpkeepError

__all__ = ["asked", "mini", "releases_on_disk"]


def personamem_table(folder: Path) -> tuple[Path, list[dict[str, str]]]:
    path = folder / TABLE
    with path.open(newline="", encoding="utf-8") as file:
        return path, list(csv.DictReader(file))


def rewrite(path: Path, rows: list[dict[str, str]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def read_personamem(folder: Path, count: int = 3, **policy: str) -> tuple[personas.Read, reading.Faults]:
    faults = reading.Faults(policy, Path("dataset.yaml"))  # type: ignore[arg-type]
    return personamem.read(folder, TABLE, count, 0, faults, 10_000), faults


def read_horizonbench(folder: Path, count: int = 2, **policy: str) -> tuple[personas.Read, reading.Faults]:
    faults = reading.Faults(policy, Path("dataset.yaml"))  # type: ignore[arg-type]
    return horizonbench.read(folder, count, 4, 0, faults, tokens.load(), 10_000), faults


def test_both_releases_say_what_the_world_says(releases_on_disk: dict[str, Path]) -> None:
    users = made()
    for read, known in (
        (read_personamem(releases_on_disk["personamem_v2"])[0], users.personamem),
        (read_horizonbench(releases_on_disk["horizonbench"])[0], users.horizonbench),
    ):
        assert [persona.name for persona in read.personas] == [user.name for user in known]
        for persona, user in zip(read.personas, known, strict=True):
            text = "\n".join(personas.written(session) for session in persona.sessions)
            assert all(talk.user in text and talk.assistant in text for talk in user.talks)
            assert "You help this user" not in text
            current = {fact.claim for fact in persona.facts if fact.current and not fact.hidden}
            assert {claim.split(", ")[-1] for claim in current} == {
                synthetic.claim(user.name, trait.attribute.name, trait.now) for trait in user.traits
            }
            changed = {f.claim.split("is ")[-1]: f.previous for f in persona.facts if f.previous and f.current}
            assert {t.now: t.before for t in user.traits if t.before} == {
                now: (before or "").split("is ")[-1] for now, before in changed.items()
            }


def test_the_chosen_personas_depend_on_the_seed_alone(releases_on_disk: dict[str, Path]) -> None:
    first = [persona.id for persona in read_personamem(releases_on_disk["personamem_v2"], 2)[0].personas]
    assert first == [persona.id for persona in read_personamem(releases_on_disk["personamem_v2"], 2)[0].personas]
    assert len(first) == 2 and first == sorted(first)
    with pytest.raises(UpkeepError, match="too few personas"):
        read_personamem(releases_on_disk["personamem_v2"], 4)


def test_chunks_are_in_order_and_about_as_large_as_each_other(releases_on_disk: dict[str, Path]) -> None:
    for persona in read_horizonbench(releases_on_disk["horizonbench"])[0].personas:
        assert list(persona.chunks) == sorted(persona.chunks) and set(persona.chunks) == {0, 1, 2, 3}
    assert horizonbench.divided([10] * 8, 4) == (0, 0, 1, 1, 2, 2, 3, 3)
    assert horizonbench.divided([5], 4) == (2,) and horizonbench.divided([], 4) == ()
    assert horizonbench.divided([0, 0], 1) == (0, 0)


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".parquet"])
def test_horizonbench_is_the_same_in_each_form(releases_on_disk: dict[str, Path], tmp_path: Path, suffix: str) -> None:
    folder = releases_on_disk["horizonbench"]
    rows = pl.read_parquet(folder / "mental_state_graphs" / "*.parquet").to_dicts()
    other = tmp_path / f"graphs{suffix}"
    if suffix == ".parquet":
        pl.DataFrame(rows[::-1]).write_parquet(other)
    else:
        lines = [json.dumps({k: json.loads(v) if v[:1] in "[{" else v for k, v in row.items()}) for row in rows]
        other.write_text("[\n" + ",\n".join(lines) + "\n]\n" if suffix == ".json" else "\n".join(lines))
    assert read_horizonbench(other)[0].personas == read_horizonbench(folder)[0].personas


def test_a_table_of_another_form_is_refused_with_the_columns_it_should_have(tmp_path: Path) -> None:
    faults = reading.Faults({}, Path("dataset.yaml"))
    (tmp_path / "table.csv").write_text("persona,query\n1,why\n")
    with pytest.raises(UpkeepError, match=r"no column `persona_id`"):
        list(tables.rows(tmp_path / "table.csv", ["persona_id"], faults))
    (tmp_path / "table.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(UpkeepError, match="not readable as Parquet"):
        list(tables.rows(tmp_path / "table.parquet", ["persona_id"], faults))
    (tmp_path / "table.xlsx").write_bytes(b"")
    with pytest.raises(UpkeepError, match="no table here"):
        tables.files(tmp_path / "table.xlsx")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UpkeepError, match="no table here"):
        tables.files(tmp_path / "empty")


def test_a_broken_row_in_the_middle_is_named_by_its_line_and_the_rest_is_read(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(b'id,text\n1,"two\nlines"\n2\n3,caf\xe9\n\n4,fine\n')
    faults = reading.Faults({"broken_record": "skip", "encoding": "skip"}, tmp_path / "dataset.yaml")
    assert [row["id"] for row in tables.rows(path, ["id", "text"], faults)] == ["1", "4"]
    assert faults.counts == {"broken_record": 1, "encoding": 1}
    assert f"{path}, line 4" in faults.places["broken_record"][0]
    assert f"{path}, line 5" in faults.places["encoding"][0]
    with pytest.raises(UpkeepError, match="a row of 1 fields"):
        list(tables.rows(path, ["id"], reading.Faults({}, tmp_path / "dataset.yaml")))


def test_faults_of_a_release_are_counted_once_in_the_card(
    tmp_path: Path, releases_on_disk: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, rows = personamem_table(releases_on_disk["personamem_v2"])
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:4], "no row\n", *lines[4:]]))
    table = releases_on_disk["horizonbench"] / "mental_state_graphs" / "test-00000-of-00001.parquet"
    frame = pl.read_parquet(table)
    talks = json.loads(frame["conversations"][0])
    talks[0]["date"], talks[1]["date"], talks[2]["conversation"]["turns"] = "", "05/08/2025", []
    frame[0, "conversations"] = json.dumps(talks)
    pl.concat([frame, frame[:1]]).write_parquet(table)
    data = from_files(tmp_path / "built", releases_on_disk, monkeypatch)
    assert data.card.faults == {
        "bad_date": 1,
        "broken_record": 1,
        "duplicate_id": 1,
        "empty_text": 1,
        "missing_date": 1,
    }
    assert any(f"{path}, line 5" in note for note in data.card.notes) and rows
    for kind in data.card.faults:
        with pytest.raises(UpkeepError):
            from_files(tmp_path / kind, releases_on_disk, monkeypatch, faults={kind: "refuse"})


def test_a_snippet_is_found_whatever_its_white_space_and_one_that_is_not_there_is_counted(
    releases_on_disk: dict[str, Path],
) -> None:
    folder = releases_on_disk["personamem_v2"]
    whole = read_personamem(folder)[0]
    path, rows = personamem_table(folder)
    plain = [n for n, row in enumerate(rows) if row["updated"] == "False" and row["pref_type"] == "neutral_preferences"]
    spaced, lost = plain[0], plain[1]
    rows[spaced]["related_conversation_snippet"] = rows[spaced]["related_conversation_snippet"].replace(". ", ".  ")
    rows[lost]["related_conversation_snippet"] = json.dumps([{"role": "user", "content": "never said"}])
    rewrite(path, rows)
    read = read_personamem(folder)[0]
    assert read.left_out["conversation not in the history"] == 1
    facts = {fact.claim: fact for persona in read.personas for fact in persona.facts}
    assert facts[rows[spaced]["preference"]].sessions and rows[lost]["preference"] not in facts
    assert sum(len(p.facts) for p in whole.personas) == sum(len(p.facts) for p in read.personas) + 1


def test_what_others_prefer_and_what_has_no_claim_is_no_fact_of_the_user(releases_on_disk: dict[str, Path]) -> None:
    folder = releases_on_disk["personamem_v2"]
    path, rows = personamem_table(folder)
    plain = [n for n, row in enumerate(rows) if row["pref_type"] == "neutral_preferences" and not row["prev_pref"]]
    rows[plain[0]]["who"], rows[plain[1]]["preference"] = "mother", ""
    rewrite(path, rows)
    assert read_personamem(folder)[0].left_out == {"not about the user": 1, "no claim": 1}


def test_a_missing_chat_history_is_named(releases_on_disk: dict[str, Path]) -> None:
    link = sorted((releases_on_disk["personamem_v2"] / "data" / "chat_history_32k").iterdir())[0]
    link.unlink()
    with pytest.raises(UpkeepError, match="chat history not found") as caught:
        read_personamem(releases_on_disk["personamem_v2"])
    assert str(link) in str(caught.value)


def test_a_history_may_be_a_bare_list_of_messages(releases_on_disk: dict[str, Path]) -> None:
    folder = releases_on_disk["personamem_v2"]
    before = read_personamem(folder)[0].personas
    for link in (folder / "data" / "chat_history_32k").iterdir():
        link.write_text(json.dumps(json.loads(link.read_text())["chat_history"]))
    assert read_personamem(folder)[0].personas == before


def test_a_change_that_no_session_tells_is_not_asked(releases_on_disk: dict[str, Path]) -> None:
    table = releases_on_disk["horizonbench"] / "mental_state_graphs" / "test-00000-of-00001.parquet"
    frame = pl.read_parquet(table)
    talks = json.loads(frame["conversations"][0])
    silent = [talk for talk in talks if not talk["event_id"].startswith("evolution_event")]
    frame[0, "conversations"] = json.dumps(silent)
    frame.write_parquet(table)
    read = read_horizonbench(releases_on_disk["horizonbench"])[0]
    assert read.left_out["change that no session tells"] == 4
    assert not any(fact.previous for fact in read.personas[0].facts)


def test_a_long_session_becomes_several_documents_and_the_evidence_is_the_right_one(
    tmp_path: Path, releases_on_disk: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = from_files(tmp_path / "built", releases_on_disk, monkeypatch, options={"chunk_tokens": 40})
    assert data.documents["tokens"].max() <= 40  # type: ignore[operator]
    texts = dict(data.documents.select("document_id", "text").iter_rows())
    rows = data.probes.join(data.gold, on="probe_id").filter(pl.col("slice_family").is_in(["dir_acq", "ref_res"]))
    for answers, evidence in rows.select("answers", "evidence").iter_rows():
        assert leaks.tells(" ".join(texts[id] for id in evidence), answers)


def test_files_without_a_model_or_without_a_path_are_refused_with_the_way_out(
    tmp_path: Path, releases_on_disk: dict[str, Path]
) -> None:
    with pytest.raises(UpkeepError, match="built from files of your own") as caught:
        built(tmp_path / "a", NAME)
    assert "imprint_personal.personamem" in str(caught.value)
    data = {f"{NAME}.personamem": str(releases_on_disk["personamem_v2"])}
    with pytest.raises(UpkeepError, match="no assistant"):
        built(tmp_path / "b", NAME, {"personamem": 1, "horizonbench": 0}, data=data)


def test_users_of_one_name_are_told_apart_in_questions(
    tmp_path: Path, releases_on_disk: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, rows = personamem_table(releases_on_disk["personamem_v2"])
    for row in rows:
        row["expanded_persona"] = json.dumps({"name": "Ada Byron"})
    rewrite(path, rows)
    data = from_files(tmp_path / "built", releases_on_disk, monkeypatch, options={"horizonbench": 0})
    for stream, question in data.probes.select("stream", "question").iter_rows():
        assert f"({stream})" in question


def test_a_row_that_lacks_a_field_is_a_fault_and_users_may_have_numbers(
    releases_on_disk: dict[str, Path], tmp_path: Path
) -> None:
    (source,) = tables.files(releases_on_disk["horizonbench"] / "mental_state_graphs")
    given = list(tables.rows(source, horizonbench.HORIZONBENCH_COLUMNS, reading.Faults({}, tmp_path)))
    lines = [
        {name: row[name] for name in horizonbench.HORIZONBENCH_COLUMNS} | {"user_id": n} for n, row in enumerate(given)
    ]
    del lines[1]["conversations"]
    table = tmp_path / "table.jsonl"
    table.write_text("".join(json.dumps(line) + "\n" for line in lines))
    faults = reading.Faults({"broken_record": "skip"}, tmp_path)
    read = horizonbench.read(table, len(lines) - 1, 4, 0, faults, tokens.load(), 10**6)
    assert [one.id for one in read.personas] == [f"horizonbench_{n}" for n in range(len(lines)) if n != 1]
    assert faults.counts == {"broken_record": 1}
    assert "line 2: no field `conversations`" in faults.places["broken_record"][0]


def test_a_paraphrase_with_a_banned_word_is_left_out() -> None:
    frame = frames.Frame("Ann likes tea", "favourite drink", "tea", "positive", [], "taste", [], [], ["leaf brew"])
    fact = personas.Fact("Ann likes tea", "food", "drinks", (0,))
    turn = personas.Turn("user", "I like tea.")
    ann = personas.Persona("ann", "personamem_v2", "Ann", (personas.Session((turn,)),), (fact,), (0,))
    writer = author.Author(assistant.Scripted({}), [ann], dict.fromkeys(families.FAMILIES, 1), 1, 0, 0)
    writer.frames["ann", fact.claim] = frame
    reply = author.Candidate("Which leaf brew does Ann take?", "black tea")
    assert writer.drafted([(ann, fact, "ref_res")], [reply]) == []
    assert writer.left_out == {"ref_res, surface form in question": 1}
    assert len(writer.drafted([(ann, fact, "dir_acq")], [reply])) == 1


def test_a_packed_table_that_ends_early_is_named(tmp_path: Path) -> None:
    table = tmp_path / "table.csv.gz"
    table.write_bytes(gzip.compress(b"user_id\n" + b"ann\n" * 5000)[:-20])
    with pytest.raises(UpkeepError, match=r"table\.csv\.gz: damaged"):
        list(tables._csv(table, ["user_id"], reading.Faults({}, tmp_path), None, ["user_id"]))


def test_neither_ids_nor_their_order_tell_the_family(asked: list[dict[str, Any]]) -> None:
    assert all(re.fullmatch(r"q\d{4}", row["question_id"]) for row in asked)
    first: dict[str, list[str]] = {}
    for row in asked:
        first.setdefault(row["stream"], []).append(row["slice_family"])
    assert len({tuple(dict.fromkeys(found)) for found in first.values()}) > len(first) / 2, "an order of families"
