"""Feeds of every form give what their world gives, and what is wrong in one is named and spoils nothing else."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from evolveqa import (
    feeds,
)
from evolveqa.feeds import Entry
from evolveqa_worlds import Build, build, json_lines, rss
from upkeep.building.reading import Faults
from upkeep.errors import UpkeepError

__all__ = ["build"]

SKIPPED = dict.fromkeys(
    ["broken_record", "encoding", "missing_date", "bad_date", "duplicate_id", "empty_text", "too_long", "unread_reply"],
    "skip",
)


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
