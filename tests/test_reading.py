"""Readers of sources under attack: broken lines, packed files, dates, ids."""

from __future__ import annotations

import bz2
import codecs
import gzip
import lzma
import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reading_texts import EVERY, KINDS, skipping
from upkeep.building import (
    reading,
)
from upkeep.building.reading import Faults
from upkeep.contract import FaultKind
from upkeep.errors import UpkeepError


class Row(msgspec.Struct):
    a: int
    b: str = ""


def rows(path: Path, faults: Faults) -> list[int]:
    return [row.a for _, row in reading.records(path, Row, faults)]


def put(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


BROKEN: dict[str, tuple[bytes, FaultKind]] = {
    "half a record": (b'{"a": 2, "b', "broken_record"),
    "no record": (b"once upon a time", "broken_record"),
    "another type": (b'{"a": "two"}', "broken_record"),
    "a missing field": (b'{"b": 2}', "broken_record"),
    "two records": (b'{"a": 2}{"a": 3}', "broken_record"),
    "NUL bytes": (b"\0" * 64, "broken_record"),
    "NUL within": (b'{"a": 2\0}', "broken_record"),
    "not UTF-8": (b'{"b": "caf\xe9", "a": 2}', "encoding"),
    "nested without end": (b'{"c": ' + b"[" * 200_000 + b"]" * 200_000 + b', "a": 2}', "broken_record"),
    "a number too large": (b'{"a": 1e999}', "broken_record"),
}

# ---------------------------------------------------------------- lines and records


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_line_in_the_middle_is_named_by_file_and_line_and_the_rest_is_read(tmp_path: Path, name: str) -> None:
    line, kind = BROKEN[name]
    path = put(tmp_path / "a.jsonl", b'{"a": 1}\n\n' + line + b'\n{"a": 3}\n')
    faults = skipping(kind)
    assert rows(path, faults) == [1, 3]
    assert faults.counts == {kind: 1}
    assert faults.places[kind][0].startswith(f"{path}, line 3: ")
    with pytest.raises(UpkeepError, match=rf"(?s)line 3.*faults: {{{kind}: skip}}"):
        rows(path, Faults({}, Path("dataset.yaml")))


def test_a_torn_last_line_is_a_broken_record(tmp_path: Path) -> None:
    path = put(tmp_path / "a.jsonl", b'{"a": 1}\n{"a": 2}\n{"a":')
    faults = skipping()
    assert rows(path, faults) == [1, 2]
    assert "line 3" in faults.places["broken_record"][0]


@pytest.mark.parametrize("mark", [b"", codecs.BOM_UTF8])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("last", [True, False])
def test_lines_are_read_with_any_ending_byte_order_mark_and_array_brackets(
    tmp_path: Path, mark: bytes, end: bytes, last: bool
) -> None:
    plain = end.join([b'{"a": 1}', b"", b'{"a": 2}']) + (end if last else b"")
    array = end.join([b"[", b'{"a": 1},', b' {"a": 2}', b"]"]) + (end if last else b"")
    for text in (plain, array):
        assert rows(put(tmp_path / "a.json", mark + text), Faults({}, Path("d"))) == [1, 2]


def test_text_in_two_bytes_a_character_is_refused_and_not_misread(tmp_path: Path) -> None:
    path = put(tmp_path / "a.jsonl", '{"a": 1}\n{"a": 2}\n'.encode("utf-16"))
    with pytest.raises(UpkeepError, match="line 1"):
        rows(path, Faults({}, Path("d")))
    faults = skipping()
    assert rows(path, faults) == [] and faults.counts.total() == 3


def test_a_line_of_a_hundred_megabytes_is_passed_over_in_less_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with path.open("wb") as file:
        file.write(b'{"a": 1}\n{"b": "')
        for _ in range(100):
            file.write(b"x" * 2**20)
        file.write(b'", "a": 2}\n{"a": 3}\n')
    faults = skipping("broken_record")
    tracemalloc.start()
    try:
        assert rows(path, faults) == [1, 3]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 80 * 2**20
    assert faults.places["broken_record"] == [f"{path}, line 2: a line of more than {reading.MAX_LINE_BYTES} bytes"]


def test_a_line_of_just_the_limit_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_LINE_BYTES", 12)
    for ends in (b"\n", b""):
        path = put(tmp_path / "a.jsonl", b'{"a":     1}\n{"a":      2}\n{"a":     3}' + ends)
        faults = skipping("broken_record")
        assert rows(path, faults) == [1, 3]
        assert faults.places["broken_record"] == [f"{path}, line 2: a line of more than 12 bytes"]


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress)])
def test_packed_files_are_unpacked_and_damaged_ones_named(
    tmp_path: Path, suffix: str, pack: Callable[[bytes], bytes]
) -> None:
    content = b"".join(b'{"a": %d, "b": "%d"}\n' % (n, n * 7919 % 104729) for n in range(20_000))
    packed = pack(content)
    path = tmp_path / f"a.jsonl{suffix}"
    assert rows(put(path, packed), skipping()) == list(range(20_000))
    middle = len(packed) // 2
    damaged = {
        "cut": packed[:middle],
        "overwritten": packed[:middle] + b"\xff\0" * 40 + packed[middle + 80 :],
        "not packed": b'{"a": 1}\n',
    }
    for name, raw in damaged.items():
        put(path, raw)
        for read in (lambda: rows(path, skipping()), lambda: reading.text(path, skipping())):
            with pytest.raises(UpkeepError, match=rf"{re.escape(str(path))}: damaged"):
                read()
                raise AssertionError(name)


def test_a_file_that_is_none_is_named(tmp_path: Path) -> None:
    for read in (lambda p: rows(p, skipping()), lambda p: reading.text(p, skipping())):
        with pytest.raises(UpkeepError, match=r"no\.jsonl: file not found"):
            read(tmp_path / "no.jsonl")
        with pytest.raises(UpkeepError, match="cannot be opened"):
            read(tmp_path)


def test_a_text_is_utf_8_with_or_without_a_mark_or_named_with_its_byte(tmp_path: Path) -> None:
    for mark in (b"", codecs.BOM_UTF8):
        assert reading.text(put(tmp_path / "a.txt", mark + "naïve 书\n".encode()), skipping()) == "naïve 书\n"
        path = put(tmp_path / "b.txt", mark + "naïve".encode("latin-1"))
        faults = skipping("encoding")
        assert reading.text(path, faults) is None
        assert faults.places["encoding"] == [f"{path}, byte {len(mark) + 2}: not UTF-8"]
        with pytest.raises(UpkeepError, match=r"'\\xefve'"):
            reading.text(path, Faults({}, Path("d")))
    assert reading.text(put(tmp_path / "c.txt", b""), skipping()) == ""


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(st.integers(0, 9).map(lambda n: b'{"a": %d}' % n), st.binary(max_size=30)), max_size=12))
def test_no_bytes_break_the_reader_and_each_line_is_read_or_counted(
    tmp_path_factory: pytest.TempPathFactory, parts: list[bytes]
) -> None:
    content = b"\n".join(parts)
    path = put(tmp_path_factory.getbasetemp() / "any.jsonl", content)
    faults = skipping()
    found = rows(path, faults)
    blank = {b"", b"[", b"]"}
    bodies = [line.strip() for line in content.split(b"\n")]
    bodies[0] = bodies[0].removeprefix(codecs.BOM_UTF8)
    given = sum(body.rstrip(b",").strip() not in blank for body in bodies)
    assert len(found) + faults.counts.total() == given


# ---------------------------------------------------------------- dates, ids, texts


@pytest.mark.parametrize(
    "written",
    [
        "2024-05-08",
        " 2024-05-08 ",
        "2024-05-08T23:59:59Z",
        "2024-05-08 23:59:59.123456+09:00",
        "2024-05-08T10:00:00.123456789Z",
        "8 May 2024",
        "08 May 2024",
        "8 MAY 2024",
        "May 8, 2024",
        "May 08 2024",
        "08-May-2024",
        "Wed, 08 May 2024 10:00:00 GMT",
        "Wed, 08 May 2024 10:00:00 -0700",
        "8 May 2024 10:00:00 +0000",
    ],
)
def test_a_date_is_read_in_any_clear_form(written: str) -> None:
    assert reading.iso_date(written, "f, line 1", Faults({}, Path("d"))) == "2024-05-08"


@pytest.mark.parametrize(
    "written",
    [
        "05/08/2024",
        "08.05.2024",
        "5-8-2024",
        "2024/05/08",
        "20240508",
        "1715126400",
        "May 2024",
        "2024",
        "2024-02-30",
        "2024-13-01",
        "0000-01-01",
        "30 February 2024",
        "2024-05-08T25:00:00",
        "2024-05-08 and some words",
        "yesterday",
        "٢٠٢٤-٠٥-٠٨",
        "1 May 99999999999999999999",
        "Wed, 08 May 2024 10:00:00 -9999999999999999999999",
        "\0",
    ],
)
def test_an_unclear_date_is_a_fault(written: str) -> None:
    faults = skipping("bad_date")
    assert reading.iso_date(written, "f, line 4", faults) is None
    assert faults.counts == {"bad_date": 1}
    with pytest.raises(UpkeepError, match=r"(?s)f, line 4: not a date.*8 May 2024"):
        reading.iso_date(written, "f, line 4", Faults({}, Path("d")))


def test_a_missing_date_is_another_fault() -> None:
    faults = skipping("missing_date")
    assert [reading.iso_date(empty, "x", faults) for empty in (None, "", " \n")] == [None] * 3
    assert faults.counts == {"missing_date": 3}


DATE_PARTS = [
    "8",
    "05",
    "2024",
    "May",
    "Wed,",
    "10:00",
    "+0000",
    "-",
    "/",
    "T",
    "Z",
    "GMT",
    ":",
    "am",
    "9" * 14,
    "-05:00",
]


@settings(max_examples=500, deadline=None)
@given(st.one_of(EVERY, st.lists(st.sampled_from(DATE_PARTS), max_size=9).map(" ".join)))
def test_whatever_a_date_field_holds_gives_a_day_or_a_fault(written: str) -> None:
    faults = skipping()
    found = reading.iso_date(written, "x", faults)
    assert (found is None) == (faults.counts.total() == 1)
    assert found is None or re.fullmatch(r"\d{4}-\d\d-\d\d", found)


@given(st.dates())
def test_every_day_is_read_back_from_every_form(day: Any) -> None:
    month = ["January", "February", "March", "April", "May", "June", "July"]
    month += ["August", "September", "October", "November", "December"]
    name = month[day.month - 1]
    for form in (f"{day.day} {name} {day.year:04}", f"{name[:3]} {day.day}, {day.year:04}", day.isoformat()):
        assert reading.iso_date(form, "x", Faults({}, Path("d"))) == day.isoformat()


def test_ids_given_twice_empty_texts_and_too_long_ones_are_counted_and_three_of_each_are_named() -> None:
    faults = skipping()
    distinct = reading.Distinct(faults)
    fresh = [distinct(id, f"f, line {n}") for n, id in enumerate(["a", "b", "a", "A", "a", "a", "a"], 1)]
    assert fresh == [True, True, False, True, False, False, False]
    assert faults.counts["duplicate_id"] == 4
    assert faults.places["duplicate_id"] == [f"f, line {n}: id given before" for n in (3, 5, 6)]
    usable = [reading.usable(text, "x", faults, 3) for text in ("abc", "abcd", "", "\u3000\t\n")]
    assert usable == [True, False, False, False]
    assert (faults.counts["too_long"], faults.counts["empty_text"]) == (1, 2)
    assert [note.split(" left out (")[0] for note in faults.notes()] == ["4", "2", "1"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_that_the_dataset_says_nothing_about_is_refused_and_says_how_to_skip_it(kind: FaultKind) -> None:
    for policy in ({}, {kind: "refuse"}):
        with pytest.raises(UpkeepError, match=rf"(?s)f, line 2: odd.*faults: {{{kind}: skip}}.*d\.yaml"):
            Faults(policy, Path("d.yaml"))(kind, "f, line 2", "odd")
