"""evolveQA: what is right at a cut-off is what the feed had said by then, and nothing later."""

from __future__ import annotations

import contextlib
import csv
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import date, timedelta
from html import escape
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import msgspec.yaml
import polars as pl
import pytest

import evolveqa
from conftest import ROOT
from evolveqa import (
    phrasing,
    program,
    questions,
    synthetic,
)
from evolveqa.feeds import Entry
from evolveqa.workshop import CUTOFFS, Options
from evolveqa_worlds import FAMILY, MINIS, Build, Made, build, html, json_lines, minis, rss, world_of
from upkeep import card_numbers
from upkeep.building import annotator, assembling, describing, leaks
from upkeep.building.assistant import Scripted
from upkeep.building.context import Context
from upkeep.building.names import Names, is_held_out

__all__ = ["build", "minis"]

FULL = sorted(FAMILY.keys() - MINIS)


# ---------------------------------------------------------------- the small datasets


def test_there_is_one_small_dataset_at_least_of_each_kind() -> None:
    assert {"evolveqa_aws_mini", "evolveqa_who_mini", "evolveqa_aws_control_mini"} <= set(MINIS)
    assert {f"evolveqa_{d}{k}" for d in ("aws", "azure", "who") for k in ("", "_control", "_hints")} == set(FULL)


@pytest.mark.parametrize("name", MINIS)
def test_a_small_dataset_is_small_and_no_answer_prevails(minis: dict[str, Made], name: str) -> None:
    made = minis[name]
    assert made.card.stands_for in FULL
    assert 60 < made.card.probes < 300 and made.card.documents <= 60 and made.card.streams == 1
    assert made.data.documents["tokens"].max() <= 128
    for form in {row["form"] for row in made.rows}:
        answers = Counter(tuple(row["answers"]) for row in made.rows if row["form"] == form)
        assert max(answers.values()) <= 0.6 * answers.total(), (form, answers.most_common(1))


@pytest.mark.parametrize("name", MINIS)
def test_the_answer_at_a_cutoff_is_what_the_world_had_told_by_then(minis: dict[str, Made], name: str) -> None:
    made = minis[name]
    small = world_of(made)
    lines = {line.question: line for line in (*small.lines, *small.calm)}
    known = {row["question_id"]: row["question"].rpartition("\n")[2] for row in made.rows if row["form"] == "short"}
    seen = set()
    for row in made.rows:
        id = row["question_id"].split(".")[0]
        line = lines[next(question for other, question in known.items() if other.split(".")[0] == id)]
        told = [v for v in (line.before, *line.changes) if v.date.isoformat() <= row["slice_cutoff"]]
        now = [told[0].value]
        for version in told[1:]:
            now = [*now, version.value] if version.adds else [version.value]
        seen.add((line.question, row["slice_cutoff"]))
        wrong = {version.value for version in told} - set(now)
        right = " and ".join(now)
        if row["form"] == "short":
            assert row["answers"] == [right] and set(row["outdated"]) == wrong
            assert row["slice_change"].endswith(
                "static" if line in small.calm else "superseding" if wrong else "additive"
            )
        elif row["form"] == "choice":
            options = dict(zip("ABCD", row["options"], strict=True))
            assert options[row["answers"][0]] == right
            assert {options[letter] for letter in row["outdated"]} == wrong & set(row["options"])
            assert not wrong or row["outdated"], "an outdated answer is among the options where there is one"
        else:
            holds = row["question"] == line.claim(right)
            assert row["answers"] == [row["slice_polarity"]] == ["yes" if holds else "no"]
    # Whatever has changed by a cut-off is asked at it, and nothing else is.
    if "control" not in name:
        for line in small.lines:
            for cutoff in CUTOFFS:
                values = {v.value for v in (line.before, *line.changes) if v.date.isoformat() <= cutoff}
                assert ((line.question, cutoff) in seen) == (len(values) > 1)


@pytest.mark.parametrize("name", MINIS)
def test_the_evidence_has_arrived_and_holds_the_answer(minis: dict[str, Made], name: str) -> None:
    made = minis[name]
    for row in made.rows:
        assert all(made.dates[document] <= row["slice_cutoff"] for document in row["evidence"])
        evidence = " ".join(made.texts[document] for document in row["evidence"])
        gold = next(
            other["answers"][0]
            for other in made.rows
            if other["form"] == "short"
            and other["slice_cutoff"] == row["slice_cutoff"]
            and other["question_id"].split(".")[0] == row["question_id"].split(".")[0]
        )
        for part in gold.split(" and "):
            assert leaks.tells(evidence, [part])
            assert any(leaks.tells(text, [part]) for text in row["context"])


@pytest.mark.parametrize("name", MINIS)
def test_a_question_is_asked_after_the_last_document_up_to_its_cutoff(minis: dict[str, Made], name: str) -> None:
    made = minis[name]
    stamps = made.data.documents["timestamp"].to_list()
    assert stamps == sorted(stamps)
    for row in made.rows:
        assert stamps[row["position"]] <= row["slice_cutoff"]
        assert all(stamp > row["slice_cutoff"] for stamp in stamps[row["position"] + 1 :])


@pytest.mark.parametrize("name", MINIS)
def test_a_question_keeps_its_id_over_the_cutoffs_while_text_and_gold_answer_are_the_same(
    minis: dict[str, Made], name: str
) -> None:
    made = minis[name]
    gold = {
        (r["question_id"].split(".")[0], r["slice_cutoff"]): r["answers"] for r in made.rows if r["form"] == "short"
    }
    ids: dict[tuple[Any, ...], set[str]] = {}
    for row in made.rows:
        stem, cutoff = row["question_id"].split(".")[0], row["slice_cutoff"]
        version = () if row["form"] == "short" else tuple(gold[stem, cutoff])
        asked = (stem, row["question"], tuple(row["options"] or ()), row["slice_polarity"], version)
        ids.setdefault(asked, set()).add(row["question_id"].partition(".at.")[0])
    assert all(len(found) == 1 for found in ids.values())


def test_two_cutoffs_without_a_document_between_them_are_two_questions(build: Build) -> None:
    cutoffs = ["2024-08-30", "2024-08-31", "2030-01-01"]
    made = build("evolveqa_aws_mini", cutoffs=cutoffs)
    rows = [row for row in made.rows if row["slice_format"] == "open_ended"]
    positions = {row["slice_cutoff"]: row["position"] for row in rows}
    assert positions["2024-08-30"] == positions["2024-08-31"] < positions["2030-01-01"]
    for cutoff in cutoffs:
        at = [row["question_id"] for row in rows if row["slice_cutoff"] == cutoff]
        assert len(at) == 12 == made.card.statistics[f"open_ended, {cutoff}"]
        assert all(id.endswith(".at.2024-08-31") == (cutoff == "2024-08-31") for id in at)


def test_a_pair_is_found_by_its_ids_and_both_of_it_are_asked(minis: dict[str, Made]) -> None:
    sides: set[tuple[str, str]] = set()
    for made in minis.values():
        pairs: dict[str, set[str]] = {}
        for row in made.rows:
            if row["form"] == "label":
                found = re.fullmatch(r"(.+\.pair\d+)([ab])(.*)", row["probe_id"])
                assert found, row["probe_id"]
                pairs.setdefault(f"{found[1]}{found[3]}", set()).add(row["slice_polarity"])
                sides.add((found[2], row["slice_polarity"]))
        assert all(both == {"yes", "no"} for both in pairs.values())
    assert len(sides) == 4, "the id of a question tells its answer"


def test_choices_and_pairs_are_made_anew_when_the_answer_changes(minis: dict[str, Made]) -> None:
    versions: dict[str, dict[str, set[str]]] = {}
    for row in minis["evolveqa_aws_mini"].rows:
        if row["form"] == "choice":
            stem, _, number = row["question_id"].partition(".mcq")
            answer = row["options"]["ABCD".index(row["answers"][0])]
            versions.setdefault(stem, {}).setdefault(number.split(".")[0], set()).add(answer)
    assert all(len(answers) == 1 for numbers in versions.values() for answers in numbers.values())
    assert any(len(numbers) > 1 for numbers in versions.values())


def test_a_right_answer_of_two_values_stands_among_wrong_ones_of_two(minis: dict[str, Made]) -> None:
    double = 0
    for made in minis.values():
        for row in made.rows:
            if row["form"] == "choice":
                kinds = {" and " in option for option in row["options"]}
                assert len(kinds) == 1, row["options"]
                double += kinds == {True}
        asked = {row["slice_polarity"] for row in made.rows if row["form"] == "label" and " and " in row["question"]}
        assert asked in (set(), {"yes", "no"})
    assert double


def test_phases_count_the_changes_of_an_open_question(minis: dict[str, Made]) -> None:
    last: dict[str, tuple[int, list[str]]] = {}
    for row in minis["evolveqa_aws_mini"].rows:
        before = last.get(row["question_id"])
        wanted = 0 if before is None else before[0] + (before[1] != row["answers"])
        assert row["phase"] == wanted
        last[row["question_id"]] = wanted, row["answers"]
    assert max(phase for phase, _ in last.values()) >= 1


def test_a_judge_finds_tuple_and_dated_answers_up_to_the_cutoff(minis: dict[str, Made]) -> None:
    for made in minis.values():
        for row in made.rows:
            heads = [text.partition(": ")[0] for text in row["context"]]
            assert heads[:3] == ["Entity", "Concept", "Attribute"]
            assert heads[3:] == sorted(heads[3:]) and heads[3] <= heads[-1] <= row["slice_cutoff"]


def test_statistics_count_what_is_asked_by_format_and_cutoff(minis: dict[str, Made]) -> None:
    made = minis["evolveqa_who_mini"]
    for format in ("open_ended", "mcq", "verifiable"):
        for cutoff in CUTOFFS:
            mine = [r for r in made.rows if (r["slice_format"], r["slice_cutoff"]) == (format, cutoff)]
            assert made.card.statistics[f"{format}, {cutoff}"] == len(mine) / (2 if format == "verifiable" else 1)


def test_entities_that_are_no_virus_are_dropped_from_who(minis: dict[str, Made]) -> None:
    made = minis["evolveqa_who_mini"]
    assert made.card.statistics["left out: entities that are no virus"] == 1
    assert all(row["context"][0].endswith(" virus") for row in made.rows)


@pytest.mark.parametrize("name", [name for name in MINIS if "control" in name])
def test_control_questions_are_from_documents_that_no_changing_fact_is_in(minis: dict[str, Made], name: str) -> None:
    made = minis[name]
    changing = {line.entity for line in world_of(made).lines}
    assert all(row["context"][0].removeprefix("Entity: ") not in changing for row in made.rows)
    assert all(not row["outdated"] and row["phase"] == 0 for row in made.rows)
    assert made.card.statistics["control: concepts left out"] == 2
    assert made.card.statistics["control: documents drawn"] == 12
    growing = [made.card.statistics[f"open_ended, {cutoff}"] for cutoff in CUTOFFS]
    assert growing == sorted(growing) and growing[-1] == 12


def test_hints_hold_the_tuple_and_a_date_that_suits(minis: dict[str, Made]) -> None:
    made = minis["evolveqa_aws_hints_mini"]
    plain = [row for row in minis["evolveqa_aws_mini"].rows if row["form"] == "short"]
    for hint in ("context", "date", "both"):
        rows = [row for row in made.rows if row["slice_hints"] == hint]
        assert [(r["slice_cutoff"], r["answers"]) for r in rows] == [(r["slice_cutoff"], r["answers"]) for r in plain]
        for row, bare in zip(rows, plain, strict=True):
            *told, question = row["question"].split("\n")
            assert question == bare["question"]
            if hint != "date":
                parts = told.pop(0).removesuffix(".").split(". ")
                assert parts == row["context"][:3]
            if hint != "context":
                today = told.pop(0).removeprefix("Current date: ").removesuffix(".")
                assert max(made.dates[document] for document in row["evidence"]) <= today <= row["slice_cutoff"]
            assert not told


# ---------------------------------------------------------------- describe, determinism


def test_describe_prints_every_number_of_tables_3_and_4_beside_our_own(minis: dict[str, Made]) -> None:
    frames = [pl.read_csv(ROOT / f"papers/evolveqa/reference/table_{n}.csv", infer_schema=False) for n in (3, 4)]
    printed = pl.concat(frames).filter(~pl.col("dataset").str.contains("+", literal=True))
    assert len(printed) == 18 * 3 + 6 * 3
    for name in (n for n in FULL if not n.endswith("_hints")):
        numbers = card_numbers.published(FAMILY[name], ROOT / "papers")
        assert numbers == {
            f"{row['subset']}, {row['setting'].removeprefix('cutoff=')}": float(row["value"])
            for row in printed.filter(pl.col("dataset") == name).iter_rows(named=True)
        }
        card = minis[f"{name}_mini"].card
        lines = dict(
            re.split(r"\s{2,}", line, maxsplit=1)
            for line in describing.describe(card, numbers).splitlines()
            if "  " in line
        )
        for statistic, number in numbers.items():
            own, paper = lines[statistic].split()
            assert (float(own), float(paper)) == (card.statistics[statistic], number)


def test_a_second_build_gives_the_same_content(build: Build, minis: dict[str, Made]) -> None:
    assert build("evolveqa_aws_mini").card.content == minis["evolveqa_aws_mini"].card.content
    assert build("evolveqa_aws_mini", seed=5).card.content != minis["evolveqa_aws_mini"].card.content


def test_a_world_tells_the_old_state_apart_and_its_names_are_of_one_half() -> None:
    for half in (True, False):
        rng = Random(3)
        small = synthetic.generate(rng, Names(rng, held_out=half), "cloud", synthetic.Sizes())
        for line in small.lines:
            assert line.before.date < date(2022, 1, 1) and len(line.changes) == 3
            assert all(a.value != b.value for a, b in zip((line.before, *line.changes), line.changes, strict=False))
            assert is_held_out(line.entity) == half


# ---------------------------------------------------------------- feeds


def table(entries: Sequence[Entry], file: Path) -> Path:
    with file.open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out)
        writer.writerow(["Date", "title", "id", "text"])
        for entry in entries:
            written = date.fromisoformat(str(entry.date)).strftime("%d %B %Y")
            writer.writerow([written, entry.title, entry.id, html(entry)])
    return file


def atom(entries: Sequence[Entry], file: Path) -> Path:
    items = "".join(
        f"<entry><title>{escape(entry.title)}</title><id>{entry.id}</id><published>{entry.date}T09:00:00Z</published>"
        f'<updated>2030-01-01T00:00:00Z</updated><content type="html">{escape(html(entry))}</content></entry>'
        for entry in entries
    )
    file.write_text(f'<?xml version="1.0"?><feed xmlns="http://www.w3.org/2005/Atom"><title>x</title>{items}</feed>')
    return file


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Callable[[synthetic.World, int], None]:
    """Lets the assistant of any model be a program that knows a world."""

    def hire(small: synthetic.World, seed: int) -> None:
        @contextlib.contextmanager
        def hired(context: Context, model: str) -> Iterator[Scripted]:
            assert (context.name, model) in {("evolveqa_aws", "tiny"), ("evolveqa_who", "tiny")}
            yield Scripted(program.script(small, seed))

        monkeypatch.setattr(annotator, "hire", hired)

    return hire


@pytest.mark.parametrize(
    ("name", "write", "file"),
    [
        ("evolveqa_aws_mini", table, "feed.csv"),
        ("evolveqa_aws_mini", rss, "feed.rss"),
        ("evolveqa_aws_mini", atom, "feed.xml"),
        ("evolveqa_who_mini", json_lines, "feed.json"),
        ("evolveqa_who_mini", rss, "feed.xml"),
    ],
)
def test_every_kind_of_feed_gives_what_its_world_gives(
    build: Build,
    minis: dict[str, Made],
    tmp_path: Path,
    scripted: Callable[[synthetic.World, int], None],
    name: str,
    write: Callable[[Sequence[Entry], Path], Path],
    file: str,
) -> None:
    small = world_of(minis[name])
    scripted(small, minis[name].spec["options"]["seed"])
    feed = write(small.entries(), tmp_path / file)
    domain = minis[name].spec["options"]["domain"]
    made = build(name, {f"evolveqa_{domain}.feed": feed}, source="files", assistant="tiny")
    assert made.card.content == minis[name].card.content
    assert list(made.card.inputs) == [file]


# ---------------------------------------------------------------- questions


def test_questions_without_two_answers_before_the_first_cutoff_come_later(minis: dict[str, Made]) -> None:
    counts = [minis["evolveqa_aws_mini"].card.statistics[f"open_ended, {cutoff}"] for cutoff in CUTOFFS]
    assert counts == sorted(counts) and counts[0] < counts[-1]


def test_the_hint_is_left_out_where_it_would_tell(minis: dict[str, Made]) -> None:
    item = assembling.Item(id="q", stream="s", text="What is it?", answers=["a limit"], slices={"hints": "none"})
    answer = questions.Answer(0, "2024-01-01", "a limit", 0)
    state = questions.State("2024-01-31", "a limit", (answer,), (answer,), ())
    options = msgspec.convert({"domain": "aws"}, Options)
    for concept, told in (("Change of a limit", None), ("Change", "q.context")):
        question = questions.Question(phrasing.Topic("E", concept, "A"), item.text, (0,), (state,))
        made = evolveqa._hinted(item, "context", "q", question, state, options)
        assert (None if made is None else made.id) == told
    dated = evolveqa._hinted(item, "date", "q", question, state, options)
    assert dated is not None and dated.id == "q.date.2024-01-31"
    day = date.fromisoformat(dated.text.split()[2].removesuffix("."))
    assert date(2024, 1, 1) <= day <= date(2024, 1, 1) + timedelta(days=30)
    assert replace(dated, text="", id="", slices={}) == replace(item, text="", id="", slices={})
