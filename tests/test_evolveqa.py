"""evolveQA: what is right at a cut-off is what the feed had said by then, and nothing later."""

from __future__ import annotations

import contextlib
import csv
import gzip
import itertools
import json
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from html import escape
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import msgspec.yaml
import numpy as np
import polars as pl
import pytest
import yaml

import evolveqa
from conftest import ROOT, put_dataset, spec_of
from evolveqa import (
    fact_steps,
    facts,
    feeds,
    format_steps,
    phrasing,
    program,
    question_steps,
    questions,
    synthetic,
    workshop,
)
from evolveqa.feeds import Entry
from evolveqa.workshop import CUTOFFS, Options, Workshop
from upkeep import card_numbers
from upkeep.building import annotator, assembling, assistant, describing, embedding, leaks, store
from upkeep.building.assistant import Scripted, Step, Tally
from upkeep.building.build import build_dataset
from upkeep.building.context import Context
from upkeep.building.names import Names, is_held_out
from upkeep.building.reading import Faults
from upkeep.building.store import validate
from upkeep.catalog import Catalog
from upkeep.contract import DatasetCard
from upkeep.errors import UpkeepError

FAMILY = {name: spec for name, spec in Catalog(ROOT).family("evolveqa").items() if "membership" not in name}
"""Those that ask about facts; of the others, tests/test_membership.py."""
MINIS = sorted(name for name in FAMILY if name.endswith("_mini"))
FULL = sorted(FAMILY.keys() - MINIS)
SKIPPED = dict.fromkeys(
    ["broken_record", "encoding", "missing_date", "bad_date", "duplicate_id", "empty_text", "too_long", "unread_reply"],
    "skip",
)


@dataclass(frozen=True)
class Made:
    """A built dataset with a row a probe."""

    card: DatasetCard
    data: store.Dataset
    rows: list[dict[str, Any]]
    spec: dict[str, Any]

    @property
    def dates(self) -> dict[str, str]:
        return dict(self.data.documents.select("document_id", "timestamp").iter_rows())

    @property
    def texts(self) -> dict[str, str]:
        return dict(self.data.documents.select("document_id", "text").iter_rows())


def repository(folder: Path, name: str, data: Mapping[str, Path] | None = None, **changed: Any) -> Catalog:
    """A repository with one dataset under other options; `faults` is its policy."""
    spec = spec_of(name)
    spec["faults"] = changed.pop("faults", spec.get("faults", {}))
    spec["options"] |= changed
    put_dataset(folder, name, spec)
    (folder / "config").mkdir()
    config = {"data": {key: str(path) for key, path in (data or {}).items()}}
    (folder / "config/config.yaml").write_text(yaml.safe_dump(config))
    (folder / "papers").symlink_to(ROOT / "papers")
    return Catalog(folder)


Build = Callable[..., Made]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    def built(name: str, data: Mapping[str, Path] | None = None, **changed: Any) -> Made:
        folder = tmp_path_factory.mktemp("repository")
        catalog = repository(folder, name, data, **changed)
        build_dataset(catalog, name, folder / "built")
        card, loaded = validate(folder / "built"), store.load(folder / "built")
        rows = loaded.probes.join(loaded.gold, on="probe_id", maintain_order="left").to_dicts()
        return Made(card, loaded, rows, msgspec.to_builtins(catalog.dataset(name)))

    return built


@pytest.fixture(scope="module")
def minis(build: Build) -> dict[str, Made]:
    return {name: build(name) for name in MINIS}


def world_of(made: Made) -> synthetic.World:
    """The world that a mini dataset was made from, generated again."""
    options = msgspec.convert(made.spec["options"], Options)
    rng = Random(f"evolveqa {options.domain} {options.seed}")
    flavour: synthetic.Flavour = "outbreak" if options.domain == "who" else "cloud"
    return synthetic.generate(rng, Names(rng, held_out=True), flavour, options.sizes)


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
            value = row["question"].removeprefix("Is ").partition(" the ")[0]
            assert row["answers"] == [row["slice_polarity"]] == ["yes" if value == right else "no"]
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


def json_lines(entries: Sequence[Entry], file: Path) -> Path:
    file.write_bytes(msgspec.json.Encoder().encode_lines(entries))
    return file


def html(entry: Entry) -> str:
    return "".join(
        f"<h2>{escape(s.title)}</h2><p>{escape(s.text)}</p>" if s.title else f"<p>{escape(s.text)}</p>"
        for s in entry.sections or []
    )


def table(entries: Sequence[Entry], file: Path) -> Path:
    with file.open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out)
        writer.writerow(["Date", "title", "id", "text"])
        for entry in entries:
            written = date.fromisoformat(str(entry.date)).strftime("%d %B %Y")
            writer.writerow([written, entry.title, entry.id, html(entry)])
    return file


def rss(entries: Sequence[Entry], file: Path) -> Path:
    items = "".join(
        f"<item><title>{escape(entry.title)}</title><guid>{entry.id}</guid>"
        f"<pubDate>{date.fromisoformat(str(entry.date)).strftime('%a, %d %b %Y')} 09:00:00 +0000</pubDate>"
        f"<description>{escape(html(entry))}</description></item>"
        for entry in entries
    )
    file.write_text(f'<?xml version="1.0"?><rss version="2.0"><channel><title>x</title>{items}</channel></rss>')
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


def read(
    path: Path, policy: Mapping[str, str] = SKIPPED, most: int = 200, by_section: bool = False
) -> tuple[list[feeds.Document], Faults]:
    faults = Faults(policy, path)  # type: ignore[arg-type]
    return feeds.read(path, by_section, most, faults)[0], faults


def test_faults_of_a_json_feed_are_named_by_line_and_spoil_nothing_else(tmp_path: Path) -> None:
    good = [{"id": n, "date": f"2024-01-0{n}", "title": f"T{n}", "text": f"Text {n}."} for n in range(1, 4)]
    raw = [
        json.dumps(good[2]).encode(),
        b'{"id": 9, "date": "2024-01-01", "text": "broken',
        b'{"id": 10, "date": "2024-01-01", "text": "\xff\xfe"}',
        json.dumps(good[0]).encode(),
        json.dumps({"id": 11, "text": "No date."}).encode(),
        json.dumps({"id": 12, "date": "05/08/2024", "text": "Unclear date."}).encode(),
        json.dumps({**good[0], "text": "Again."}).encode(),
        json.dumps({"id": 13, "date": "2024-01-01", "text": " "}).encode(),
        json.dumps({"id": 14, "date": "2024-01-01", "text": "long " * 50}).encode(),
        json.dumps({**good[1], "date": "January 2, 2024"}).encode(),
    ]
    path = tmp_path / "feed.jsonl"
    path.write_bytes(b"\n".join(raw))
    documents, faults = read(path)
    assert [(d.id, d.date, d.text) for d in documents] == [
        (str(n), f"2024-01-0{n}", f"T{n}\nText {n}.") for n in (1, 2, 3)
    ]
    places = {kind: [place.split(": ")[0] for place in found] for kind, found in faults.places.items()}
    lines = {
        "broken_record": 2,
        "encoding": 3,
        "missing_date": 5,
        "bad_date": 6,
        "duplicate_id": 7,
        "empty_text": 8,
        "too_long": 9,
    }
    assert places == {kind: [f"{path}, line {line}"] for kind, line in lines.items()}
    for kind, line in lines.items():
        with pytest.raises(UpkeepError, match=f"line {line}"):
            read(path, {**SKIPPED, kind: "refuse"})


def test_what_a_feed_leaves_null_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "feed.json"
    path.write_text(
        '[\n{"id": 1, "date": "2024-01-01", "title": null, "text": "One.", "sections": null},\n'
        '{"id": "", "date": "2024-01-02", "text": null},\n{"date": null, "text": "Three."}\n]\n'
    )
    documents, faults = read(path)
    assert [(d.id, d.text) for d in documents] == [("1", "One.")]
    assert faults.counts == {"empty_text": 1, "missing_date": 1}


def test_faults_of_a_csv_feed_are_named_by_line_and_spoil_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "feed.csv"
    path.write_bytes(
        b"id,date,text\n1,2024-01-01,One.\n2,2024-01-02\n3,2024-01-03,\xe9t\xe9\n"
        b'4,2024-01-04,"Two\nlines."\n5,2024-01-05,"a"b\n6,8 May 2024,Six.\n'
    )
    documents, faults = read(path)
    assert [(d.id, d.date, d.text) for d in documents] == [
        ("1", "2024-01-01", "One."),
        ("4", "2024-01-04", "Two\nlines."),
        ("6", "2024-05-08", "Six."),
    ]
    assert [place.split(": ")[0] for place in faults.places["broken_record"]] == [f"{path}, line {n}" for n in (3, 7)]
    assert [place.split(": ")[0] for place in faults.places["encoding"]] == [f"{path}, line 4"]
    path.write_text("id,text\n1,x\n")
    with pytest.raises(UpkeepError, match="no column date"):
        read(path)


def test_faults_of_an_xml_feed_are_named(tmp_path: Path) -> None:
    path = rss(
        [Entry(id="a", date="2024-01-01", title="A", text="x", sections=[feeds.Section("", "One.")])],
        tmp_path / "feed.rss",
    )
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"</item>", b"</item>\n<item><title>B</item>"))
    documents, faults = read(path)
    assert documents[0].text == "A\nOne." and faults.counts["broken_record"] == 1
    assert "line 2" in faults.places["broken_record"][0]
    path.write_bytes(
        whole.replace(b'version="1.0"?', b'version="1.0" encoding="utf-8"?').replace(b"One.", b"\xe9t\xe9.")
    )
    _, faults = read(path)
    assert faults.counts["encoding"] == 1


@pytest.mark.parametrize("suffix", ["csv", "xml", "jsonl"])
def test_a_packed_feed_that_ends_early_is_named(tmp_path: Path, suffix: str) -> None:
    feed = tmp_path / f"feed.{suffix}.gz"
    text = "".join(["date,text\n", *(f"2024-01-01,text {n}\n" for n in range(5000))])
    feed.write_bytes(gzip.compress(text.encode())[:-20])
    faults = Faults({"broken_record": "skip"}, tmp_path)
    with pytest.raises(UpkeepError, match=f"feed.{suffix}.gz: damaged"):
        feeds.read(feed, False, 10**6, faults)


def test_a_folder_of_packed_files_is_one_feed_in_order_of_date(tmp_path: Path) -> None:
    folder = tmp_path / "feed"
    folder.mkdir()
    (folder / "b.csv").write_text("date,text\n2024-03-01,March.\n2024-01-01,January.\n")
    (folder / "a.jsonl.gz").write_bytes(gzip.compress(b'{"date": "2024-02-01", "text": "February."}\n'))
    (folder / "notes.txt").write_text("no feed")
    documents, faults = read(folder)
    assert [document.text for document in documents] == ["January.", "February.", "March."]
    assert len({document.id for document in documents}) == 3 and not faults.counts
    with pytest.raises(UpkeepError, match="no feed here"):
        read(folder / "notes.txt")


def test_html_becomes_lines_and_its_headings_divide_sections(tmp_path: Path) -> None:
    text = "<p>Lead &amp; <b>more</b>.</p><h3>Advice</h3><li>One.</li><li>Two.</li><script>x()</script><h3>Empty</h3>"
    path = json_lines([Entry(id="a", date="2024-01-01", title="T", text=text)], tmp_path / "feed.json")
    assert [d.text for d in read(path)[0]] == ["T\nLead & more.\nAdvice\nOne.\nTwo."]
    assert [(d.id, d.text) for d in read(path, by_section=True)[0]] == [
        ("a#0", "T\nLead & more."),
        ("a#1", "T: Advice\nOne.\nTwo."),
    ]
    plain = json_lines([Entry(id="a", date="2024-01-01", text="If a < b & b > c, &amp; stays.")], tmp_path / "p.json")
    assert read(plain)[0][0].text == "If a < b & b > c, &amp; stays."


def test_without_a_feed_or_an_assistant_the_message_says_what_to_set(build: Build, tmp_path: Path) -> None:
    with pytest.raises(UpkeepError, match=r"evolveqa_aws\.feed: PATH"):
        build("evolveqa_aws_control_mini", source="files")
    feed = json_lines([Entry(id="a", date="2024-01-01", text="Text.")], tmp_path / "feed.json")
    with pytest.raises(UpkeepError, match="no assistant"):
        build("evolveqa_aws_mini", {"evolveqa_aws.feed": feed}, source="files")
    for cutoffs in ([], ["2024-01-01", "2023-01-01"], ["2024-1-1"], ["soon"]):
        with pytest.raises(UpkeepError, match="wrong cut-offs"):
            build("evolveqa_aws_mini", cutoffs=cutoffs)


# ---------------------------------------------------------------- the assistant's steps


@dataclass
class Wordy:
    """Knows a world, writes its replies as a model does, and now and then something unreadable."""

    script: assistant.Script
    spoiled: int = 0
    """Of a hundred replies."""
    tallies: dict[str, Tally] = field(default_factory=dict)

    def ask(self, step: Step[Any, Any], given: Sequence[Any], trial: int = 0) -> list[Any]:
        replies = []
        for one in given:
            turns = step.prompt(one)
            text = turns if isinstance(turns, str) else turns[-1][1]
            assert isinstance(turns, str) or [role for role, _ in turns] == ["user", "assistant", "user"]
            assert "JSON" in text and "{{" not in text
            if zlib.crc32(f"{step.name} {turns}".encode()) % 100 < self.spoiled:
                replies.append(None)
                continue
            written = f"Sure:\n```json\n{msgspec.json.encode(self.script[step.name](one)).decode()}\n```"
            replies.append(assistant.read_reply(written, step.reply))
        return replies


def test_every_reply_can_be_read_from_a_models_text(
    build: Build, minis: dict[str, Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assistant, "Scripted", Wordy)
    made = build("evolveqa_who_mini")
    assert made.card.content == minis["evolveqa_who_mini"].card.content


def test_unreadable_replies_cost_their_items_alone(
    build: Build, minis: dict[str, Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assistant, "Scripted", lambda script: Wordy(script, 10))
    made = build("evolveqa_aws_control_mini")
    assert 0 < made.card.probes < minis["evolveqa_aws_control_mini"].card.probes


def test_a_question_whose_earlier_answers_nobody_judged_is_not_taken_for_one_without_outdated_ones(
    build: Build, minis: dict[str, Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    silent: list[int] = []

    def scripted(script: dict[str, Callable[[Any], Any]]) -> Scripted:
        def stale(given: question_steps.Older) -> question_steps.Stale | None:
            silent.append(len(silent))
            return None if len(silent) % 3 == 0 else script["stale"](given)

        return Scripted(script | {"stale": stale})

    monkeypatch.setattr(assistant, "Scripted", scripted)
    made, whole = build("evolveqa_aws_mini"), minis["evolveqa_aws_mini"]
    assert made.card.statistics["left out: earlier answers not judged"] == len(silent) // 3 > 0
    kinds = {row["probe_id"]: row["slice_change"] for row in whole.rows if row["form"] == "short"}
    assert all(kinds[row["probe_id"]] == row["slice_change"] for row in made.rows if row["form"] == "short")


def test_every_step_asks_for_what_it_is_given() -> None:
    about = phrasing.Topic("E1", "C1", "A1")
    evidence = question_steps.Evidence(about, (phrasing.Dated("2020-01-01", "P1"), phrasing.Dated("2021-01-01", "P2")))
    turns = question_steps.QUESTION.prompt(question_steps.Changed(evidence, "because"))
    assert not isinstance(turns, str)
    for word in ("E1", "C1", "A1", "[2020-01-01] P1\n[2021-01-01] P2"):
        assert word in turns[0][1]
    assert assistant.read_reply(turns[1][1], question_steps.Change) == question_steps.Change("yes", "because")
    text = question_steps.FINAL.prompt(
        question_steps.Answers(
            "Q?",
            (question_steps.Found(1, "2021-01-01", "new", "W2"), question_steps.Found(0, "2020-01-01", "old", "W1")),
        )
    )
    assert isinstance(text, str) and text.index("[1] 2021-01-01: new") < text.index("[0] 2020-01-01: old")


# ---------------------------------------------------------------- clusters and concepts


def shop(
    monkeypatch: pytest.MonkeyPatch,
    script: Mapping[str, Callable[[Any], Any]],
    vectors: Mapping[str, Sequence[float]] = {},
    **options: Any,
) -> Workshop:
    """A workshop with vectors of our own."""

    def embed(context: Any, embedder: str, texts: Sequence[str]) -> np.ndarray:
        if not texts:
            return np.zeros((0, 8), np.float32)
        found = np.array([vectors[text] for text in texts], np.float32)
        return found / np.linalg.norm(found, axis=1, keepdims=True)

    monkeypatch.setattr(embedding, "embed", embed)
    settings = msgspec.convert({"domain": "aws", **options}, Options)
    return Workshop(None, settings, Scripted(script))  # type: ignore[arg-type]


SUBJECTS = ("storage limit raised", "price lowered", "region opened")


def themed(text: str) -> str:
    return next((subject for subject in SUBJECTS if subject in text), "")


LOOP: dict[str, Callable[[Any], Any]] = {
    "coherent": lambda given: phrasing.Same("yes" if len({themed(t) for t in given.texts}) == 1 else "no"),
    "label": lambda given: fact_steps.Title(f"about {themed(given.texts[0])}"),
    "merge": lambda given: fact_steps.Merge("yes" if themed(given.first) == themed(given.second) else "no"),
    "fits": lambda given: fact_steps.Fits("yes" if themed(given.label) == themed(given.concept) else "no"),
    "place": lambda given: fact_steps.Place(
        next((n for n, label in enumerate(given.labels, 1) if themed(label) == themed(given.concept)), 0)
    ),
}
KINDS = [f"group {n}" for n in range(20)]
TITLES = [f"{subject} for {kind}" for subject in SUBJECTS for kind in KINDS]


class Near(dict[str, Sequence[float]]):
    """Vectors that lie near the axis of their subject, or on one of their own."""

    def __missing__(self, text: str) -> Sequence[float]:
        noise = np.random.default_rng(zlib.crc32(text.encode())).normal(size=8) * 0.05
        axis = SUBJECTS.index(themed(text)) if themed(text) else 7
        return (np.eye(8)[axis] + noise).tolist()


def test_concepts_of_one_theme_come_under_one_label(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = shop(monkeypatch, LOOP, Near())
    labels = facts.labelled([*TITLES, *TITLES, "something of its own"], bench)
    assert labels == {title: f"about {themed(title)}" for title in TITLES}
    assert bench.counts["concepts in no cluster"] == 1 and bench.counts["concept clusters"] == 3
    assert bench.counts["concept loop: iterations"] <= 5


def test_an_incoherent_cluster_is_dissolved_and_the_loop_ends_where_nothing_is_gained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = shop(monkeypatch, {**LOOP, "coherent": lambda given: phrasing.Same("no")}, Near())
    assert facts.labelled(TITLES, bench) == {}
    assert bench.counts["concept clusters dissolved"] >= 1
    assert bench.counts["concept loop: iterations"] == 1
    assert bench.counts["concepts in no cluster"] == len(TITLES)


def test_a_misfit_leaves_its_cluster_and_is_not_offered_that_label_again(monkeypatch: pytest.MonkeyPatch) -> None:
    offered: list[fact_steps.Loose] = []

    def place(given: fact_steps.Loose) -> fact_steps.Place:
        offered.append(given)
        return fact_steps.Place(0)

    odd = TITLES[0]
    fits = LOOP["fits"]
    script = {
        **LOOP,
        "fits": lambda given: fact_steps.Fits("no") if given.concept == odd else fits(given),
        "place": place,
    }
    labels = facts.labelled(TITLES, shop(monkeypatch, script, Near()))
    assert odd not in labels
    assert all(f"about {themed(odd)}" not in one.labels for one in offered if one.concept == odd)


def test_clusters_whose_labels_name_one_concept_are_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = shop(
        monkeypatch, LOOP, {"about price lowered": (1, 0), "a: price lowered": (1, 0.1), "region opened": (0, 1)}
    )
    merged = facts._distinct(
        [
            facts.Cluster("a: price lowered", ["x"]),
            facts.Cluster("about price lowered", ["y", "z"]),
            facts.Cluster("region opened", ["w"]),
        ],
        bench,
    )
    assert [(cluster.label, cluster.members) for cluster in merged] == [
        ("about price lowered", ["y", "z", "x"]),
        ("region opened", ["w"]),
    ]


def test_names_of_one_thing_get_the_most_frequent_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = {
        "Amber Queue": (1, 0),
        "Amber Queue Service": (1, 0.2),
        "Amber Quay": (1, 0.1),
        "Slate": (0, 1),
        "slate": (0, 1),
    }
    asked: list[phrasing.Two] = []

    def same(given: phrasing.Two) -> phrasing.Same:
        asked.append(given)
        return phrasing.Same("yes" if "Queue" in given.first and "Queue" in given.second else "no")

    named = ["Amber Queue Service", "Amber Queue", "Amber Queue Service", "Amber Quay", "slate", "Slate", "Slate"]
    assert facts.entities(named, shop(monkeypatch, {"same_entity": same}, vectors)) == {
        "Amber Queue Service": "Amber Queue Service",
        "Amber Queue": "Amber Queue Service",
        "Amber Quay": "Amber Quay",
        "Slate": "Slate",
        "slate": "Slate",
    }
    assert len(asked) == 3, "spellings of the same words are one without asking, far names are not asked about"


@pytest.mark.parametrize("points", [0, 2, 4, 5, 6, 7, 15, 16])
def test_too_few_points_for_umap_are_clustered_with_fewer_neighbours_and_counted(
    monkeypatch: pytest.MonkeyPatch, points: int
) -> None:
    bench = shop(monkeypatch, {})
    vectors = np.random.default_rng(0).normal(size=(points, 8)).astype(np.float32)
    clusters = bench.clusters(vectors, "chunks")
    assert all(len(cluster) >= 5 for cluster in clusters)
    members = [int(n) for cluster in clusters for n in cluster]
    assert len(members) == len(set(members))
    assert bench.counts["clustering chunks: too few points"] == (points < 5)
    assert bench.counts["clustering chunks: runs with fewer than 15 neighbours"] == (5 <= points <= 15)


def test_similar_pairs_are_those_of_the_whole_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workshop, "_BLOCK", 7)
    vectors = np.random.default_rng(1).normal(size=(50, 3))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    whole = vectors @ vectors.T
    wanted = [(a, b) for a in range(50) for b in range(a + 1, 50) if whole[a, b] >= 0.8]
    assert shop(monkeypatch, {}).similar(vectors) == wanted and wanted


def test_windows_are_of_three_sentences_and_share_one() -> None:
    for size in range(1, 9):
        sentences = [f"Sentence number {n} is here." for n in range(size)]
        text = "\n".join([" ".join(sentences[:4]), " ".join(sentences[4:])]).strip()
        chunks = facts.windows(text, 7)
        assert all(" ".join(text[c.start : c.end].split()) == c.text and c.document == 7 for c in chunks)
        held = [[n for n, sentence in enumerate(sentences) if sentence in chunk.text] for chunk in chunks]
        assert sorted({n for window in held for n in window}) == list(range(size))
        assert all(len(window) == 3 for window in held[:-1])
        assert all(set(a) & set(b) == {a[-1]} for a, b in itertools.pairwise(held))
    assert facts.windows("") == []


# ---------------------------------------------------------------- questions


def test_list_questions_and_repeated_ones_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [
        "What is the limit?",
        "Which regions are there?",
        "what is the limit",
        "How high is the limit?",
        "Who leads?",
    ]
    vectors = dict.fromkeys(texts, (1, 0)) | {"Who leads?": (0, 1)}
    script: dict[str, Callable[[Any], Any]] = {
        "list_question": lambda given: question_steps.Listing("yes" if "regions" in given.text else "no"),
        "same_question": lambda given: phrasing.Same("yes" if "high" in given.second else "no"),
    }
    bench = shop(monkeypatch, script, vectors)
    assert questions.cleaned(texts, bench) == [0, 4]
    assert (bench.counts["left out: list questions"], bench.counts["left out: duplicate questions"]) == (1, 2)


REPLY = format_steps.Choice(
    "Which?", {"A": "one", "B": "two", "C": "three", "D": "four"}, "C", {"A": 1, "B": 2, "D": 3}
)


@pytest.mark.parametrize(
    ("reply", "gold"),
    [
        (None, "three"),
        (format_steps.Choice(""), "three"),
        (REPLY, "two"),
        (msgspec.structs.replace(REPLY, correct="E"), "three"),
        (msgspec.structs.replace(REPLY, options={"A": "one", "C": "three"}), "three"),
        (msgspec.structs.replace(REPLY, options={**REPLY.options, "D": "One"}), "three"),
        (msgspec.structs.replace(REPLY, options={**REPLY.options, "D": " "}), "three"),
    ],
)
def test_a_choice_that_breaks_a_rule_is_left_out(reply: format_steps.Choice | None, gold: str) -> None:
    assert questions.shuffled(reply, gold, "seed") is None


def test_options_are_shuffled_and_the_right_one_keeps_the_gold_words() -> None:
    places = Counter()
    for seed in range(200):
        made = questions.shuffled(REPLY, "Three", str(seed))
        assert made is not None and sorted(made[1]) == ["Three", "four", "one", "two"] and made[1][made[2]] == "Three"
        places[made[2]] += 1
    assert len(places) == 4 and min(places.values()) > 25


def test_the_extra_number_replaces_a_distractor_that_comes_from_no_chunk_and_no_other() -> None:
    extra = msgspec.structs.replace(REPLY, additional_distractor="nine")
    made = questions.shuffled(extra, "three", "s")
    assert made is not None and "nine" not in made[1]
    loose = msgspec.structs.replace(extra, used_chunks_for_distractors={"B": 1, "D": 2})
    made = questions.shuffled(loose, "three", "s")
    assert made is not None and sorted(made[1]) == ["four", "nine", "three", "two"]


def test_an_open_question_that_holds_its_answer_is_left_out_in_all_formats(
    build: Build, minis: dict[str, Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    original = program.script

    def telling(small: synthetic.World, seed: int) -> assistant.Script:
        script = dict(original(small, seed))
        first = sorted(small.lines, key=lambda line: (line.entity, line.kind.attribute))[0]
        final = script["final"]

        def merged(given: question_steps.Answers) -> question_steps.Final:
            reply = final(given)
            return question_steps.Final(first.entity, reply.answer_ids) if given.question == first.question else reply

        return {**script, "final": merged}

    monkeypatch.setattr(program, "script", telling)
    made = build("evolveqa_aws_mini")
    assert made.card.statistics["left out: answer in question"] >= 1
    assert made.card.statistics["questions kept"] == 11
    entity = sorted(line.entity for line in world_of(made).lines)[0]
    attributes = {row["context"][2] for row in made.rows if row["context"][0] == f"Entity: {entity}"}
    assert len(attributes) == 1


def test_documents_that_are_split_still_name_the_piece_with_the_answer(build: Build) -> None:
    made = build("evolveqa_aws_mini", chunk_tokens=24)
    assert made.card.documents > 100 and made.data.documents["tokens"].max() <= 24
    found = 0
    for row in made.rows:
        if row["form"] == "short" and " and " not in row["answers"][0]:
            pieces = [made.texts[document] for document in row["evidence"]]
            assert len(pieces) <= 4
            # An answer may be cut in two itself; together the pieces hold it.
            found += leaks.tells(" ".join(pieces), row["answers"])
            assert leaks.tells(" ".join(pieces), row["answers"])
    assert found > 50


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
