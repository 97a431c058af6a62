"""What the builders of datasets stand on, under attack: readers, leak checks, names, splitting, replies, the store."""

from __future__ import annotations

import bz2
import codecs
import dataclasses
import gzip
import itertools
import lzma
import re
import tracemalloc
import unicodedata
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from random import Random
from typing import Any, get_args

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from upkeep import card_numbers
from upkeep.building import (
    annotator,
    answering,
    assembling,
    assistant,
    checking,
    context,
    leaks,
    names,
    reading,
    store,
    tokens,
)
from upkeep.building.build import build_dataset, describe
from upkeep.building.content import content
from upkeep.building.reading import Faults
from upkeep.building.store import validate
from upkeep.catalog import Catalog
from upkeep.contract import DatasetCard, FaultKind, Pair
from upkeep.errors import UpkeepError

ROOT = Path(__file__).resolve().parents[1]
KINDS: tuple[FaultKind, ...] = get_args(FaultKind)
EVERY = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


def skipping(*kinds: FaultKind) -> Faults:
    """Faults of these kinds (all, where none is named) are skipped."""
    return Faults(dict.fromkeys(kinds or KINDS, "skip"), Path("dataset.yaml"))


class Row(msgspec.Struct):
    a: int
    b: str = ""


def rows(path: Path, faults: Faults) -> list[int]:
    return [row.a for _, row in reading.records(path, Row, faults)]


def put(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


# ---------------------------------------------------------------- lines and records

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
        with pytest.raises(UpkeepError, match=r"b'\\xefve'"):
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


# ---------------------------------------------------------------- leaks


@pytest.mark.parametrize(
    ("question", "answer", "held"),
    [
        ("Who leads Acme?", "Acme", True),
        ("Who leads ACME Corp.?", "acme corp", True),
        ("Who leads Acmes?", "Acme", False),
        ("Is it the café?", "cafe\u0301", True),
        ("Which release had ｎｕｍｐｙ．ｐａｄ in it?", "numpy.pad", True),
        ("Did it end?", "Yes", False),
        ("Was it yes or no?", "yes", False),
        ("Is Ann or Bob here?", "Bob", False),
        ("What is it?", "!!!", False),
        ("What is it?", "", False),
        ("他住在青石镇吗？", "青石镇", True),
        ("他住在青石镇吗？", "青石村", False),
    ],
)
def test_a_question_that_holds_its_answer_is_told_apart(question: str, answer: str, held: bool) -> None:
    assert leaks.tells(question, ["something else", answer]) is held
    assert leaks.tells(unicodedata.normalize("NFD", question), [answer]) is held


@given(EVERY, EVERY, EVERY)
def test_an_answer_between_any_two_texts_is_found(before: str, after: str, answer: str) -> None:
    words = leaks.key(answer)
    around = f" {leaks.key(before)} ", f" {leaks.key(after)} "
    if words and words not in leaks.OPEN and not any(" or " in f"{text}" for text in (*around, f" {words} ")):
        assert leaks.tells(f"{before} {answer.upper()} {after}", [answer]) or leaks.key(answer.upper()) != words


@given(EVERY)
def test_a_key_is_its_own_key_and_knows_no_case_or_punctuation(text: str) -> None:
    key = leaks.key(text)
    assert leaks.key(key) == key
    assert leaks.key(f"«{text}» ...") == key


def test_shared_questions_are_found_by_place() -> None:
    shown = ["What is A?", "what  is -- a", "What is B?", "", "What is A"]
    assert leaks.shared(["WHAT IS A?!", "What is C?"], shown) == [0, 1, 4]
    many = [f"Question number {n}?" for n in range(50_000)]
    assert leaks.shared(many[:49_999], many[1:]) == list(range(49_998))


# ---------------------------------------------------------------- names

DRAWN = ("person", "first", "family", "place", "thing", "word")


def drawn(seed: object, held_out: bool | None, count: int = 300) -> list[str]:
    source = names.Names(Random(f"{seed}"), held_out, taken=["Stone"])
    return [getattr(source, kind)() for _ in range(count) for kind in DRAWN]


def test_the_two_halves_of_the_names_share_no_word_and_each_comes_once() -> None:
    halves = [drawn(1, held_out) for held_out in (True, False)]
    words = [[word.lower() for name in half for word in name.split()] for half in halves]
    assert not set(words[0]) & set(words[1])
    for half, held_out in zip(words, (True, False), strict=True):
        assert len(half) == len(set(half)) == 300 * 7
        assert all(names.is_held_out(word) is held_out for word in half)
        assert "stone" not in half and all(re.fullmatch("[a-z]{4,}", word) for word in half)


def test_names_are_the_same_for_the_same_seed_alone() -> None:
    assert drawn(1, True) == drawn(1, True) != drawn(2, True)
    assert names.Names(Random("upkeep")).person() == names.Names(Random("upkeep")).person()


def test_a_kind_without_new_names_stops_instead_of_searching_for_ever() -> None:
    source = names.Names(Random(1), True)
    with pytest.raises(UpkeepError, match="no new name is left"):
        for _ in range(40_000):
            source.place()


# ---------------------------------------------------------------- splitting

MEASURE = tokens.load()
PIECES = st.one_of(
    st.characters(exclude_categories=["Cs"]),
    st.sampled_from(
        ["the ", "Tricis ", "house", "\n\n", "\u3000", "中文字", "。", "👩‍👩‍👧", "é", "e\u0301", "\0", "\u200b"]
    ),
)


def bare(text: str) -> str:
    return "".join(text.split())


@settings(max_examples=400, deadline=None)
@given(st.lists(st.lists(PIECES, max_size=70).map("".join), max_size=3), st.integers(1, 24))
def test_pieces_keep_the_limit_and_lose_nothing_but_white_space(texts: list[str], limit: int) -> None:
    split = list(tokens.split(texts, limit, MEASURE))
    assert len(split) == len(texts)
    for text, pieces in zip(texts, split, strict=True):
        assert bare("".join(pieces)) == bare(text)
        place = 0
        for piece, count in zip(pieces, MEASURE.count(pieces), strict=True):
            assert piece and piece == piece.strip()
            assert count <= limit or len(piece) == 1
            place = text.index(piece, place) + len(piece)


def test_it_is_known_where_pieces_lie_and_which_of_them_hold_a_passage() -> None:
    text = "  " + "  ".join(f"The {n}th ship came in." for n in range(40)) + "\n"
    (pieces,) = tokens.split([text], 24, MEASURE)
    places = tokens.spans(text, pieces)
    assert len(pieces) > 10 and [text[start:end] for start, end in places] == pieces
    for at, character in enumerate(text):
        found = tokens.holding(places, at, at + 1)
        assert len(found) == 1 or (not found and character.isspace())
    last = len(places) - 1
    assert tokens.holding(places, 0, len(text)) == [*range(last + 1)]
    assert tokens.holding(places, places[3][1] - 1, places[5][0] + 1) == [3, 4, 5]
    assert tokens.holding(places, places[last][1], len(text)) == tokens.holding(places, 5, 5) == []


def test_words_stay_whole_and_pieces_are_nearly_full() -> None:
    words = [names.Names(Random(n)).person() + " walked home." for n in range(900)]
    text = " ".join(words)
    (pieces,) = tokens.split([text], 50, MEASURE)
    assert " ".join(pieces) == text
    counts = MEASURE.count(pieces)
    assert max(counts) <= 50
    assert min(counts[:-1]) > 35  # a name is of some ten tokens


@pytest.mark.parametrize("unit", ["word ", "x", "中", "中文。", "👩‍👩‍👧", "Tricis ", "a\n"])
def test_every_script_is_split_at_characters_and_filled(unit: str) -> None:
    (pieces,) = tokens.split([unit * 3000], 64, MEASURE)
    assert bare("".join(pieces)) == bare(unit * 3000)
    counts = MEASURE.count(pieces)
    assert max(counts) <= 64
    assert min(counts[:-1]) >= 32 - max(MEASURE.count([unit]))


def test_a_text_of_white_space_has_no_piece_and_a_short_one_is_one() -> None:
    assert list(tokens.split(["", " \n\t", "  one two  ", "x"], 8, MEASURE)) == [[], [], ["one two"], ["x"]]


def test_splitting_takes_linear_work(monkeypatch: pytest.MonkeyPatch) -> None:
    worked = 0

    def count(self: tokens.Tokens, texts: Sequence[str]) -> list[int]:
        nonlocal worked
        worked += sum(map(len, texts))
        return [len(e) for e in self.tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]

    monkeypatch.setattr(tokens.Tokens, "count", count)
    work = []
    for size in (10_000, 40_000):
        for unit in ("Tricis ", "中", "x "):
            worked = 0
            list(tokens.split([unit * (size // len(unit))], 50, MEASURE))
            work.append(worked)
    assert all(large <= 4.2 * small for small, large in zip(work[:3], work[3:], strict=True))


def test_counting_many_texts_holds_few_of_them_at_once() -> None:
    batches = list(tokens._batches("x" * 50_000 for _ in range(500)))
    assert sum(map(len, batches)) == 500 and max(map(len, batches)) < 50
    assert MEASURE.count(["one two", "", "three"] * 3000) == MEASURE.count(["one two", "", "three"]) * 3000
    assert list(MEASURE.stream(iter(["one two", ""]))) == [("one two", 2), ("", 0)]


# ---------------------------------------------------------------- replies


class Verdict(msgspec.Struct):
    label: str
    reasons: list[str] = []


WANTED = Verdict("yes", ["a", "b"])
PLAIN = '{"label": "yes", "reasons": ["a", "b"]}'


@pytest.mark.parametrize(
    "reply",
    [
        PLAIN,
        f"Sure! Here it is: {PLAIN} I hope that helps.",
        f"```json\n{PLAIN}\n```",
        f"```\n{PLAIN}\n```\nand\n```json\n{{}}\n```",
        f"First {{not json}} and [1, 2], then {PLAIN}",
        f"<think>is it [a] or {{b}}?</think>\n{PLAIN}",
        f"see [1 for the list. {PLAIN}",
        f"a bracket ] and }} before, {PLAIN} and after ]}}",
        f'an inch [5" wide\n{PLAIN}',
        '{"label": "yes", "extra": {"deep": [[{"x": "]}"}]]}, "reasons": ["a", "b"]}',
        '{"label": "yes", "reasons": ["a", "b"], "note": "a \\" quote, a } brace, a \\\\"}',
        '{"label": "no"} is wrong'.replace('"no"', "7") + f"; {PLAIN}",
        PLAIN.replace(" ", "\n\t"),
        f"{PLAIN} {PLAIN.replace('yes', 'no')}",
        f"\ud800 {PLAIN}",
    ],
)
def test_a_reply_is_read_out_of_whatever_is_around_it(reply: str) -> None:
    assert assistant.read_reply(reply, Verdict) == WANTED


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "yes",
        "{",
        PLAIN[:-1],
        PLAIN.replace('"yes"', "1"),
        '{"label": "yes",}',
        "[" * 300_000,
        "[" * 300_000 + "]" * 300_000,
        "{[" * 200_000 + "}]" * 200_000,
        '{"' * 200_000,
        '[{"label": ' * 50_000,
        "\\" * 100_000,
        "\0",
    ],
)
def test_a_reply_without_the_form_is_an_error_of_one_kind(reply: str) -> None:
    with pytest.raises(msgspec.MsgspecError):
        assistant.read_reply(reply, Verdict)


def test_free_text_is_taken_as_it_is() -> None:
    assert assistant.read_reply("  {not} json\n", str) == "{not} json"


@settings(max_examples=500, deadline=None)
@given(st.text(st.sampled_from('{}[]",:\\a1\n ')), st.text(st.sampled_from("}]:a1\n ,")))
def test_any_reply_is_read_or_refused_and_a_value_on_its_own_line_is_found(before: str, after: str) -> None:
    with_value = f"{before}\n{PLAIN}{after}"
    spans = assistant._values(with_value)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
    opened = before.count("{") + before.count("[")
    try:
        assert assistant.read_reply(with_value, Verdict) == WANTED
    except msgspec.MsgspecError:
        assert opened  # an open bracket before it may have found its partner behind it


def test_brackets_are_matched_in_one_pass() -> None:
    seen = 0

    class Watched(str):
        def __getitem__(self, key: Any) -> str:
            nonlocal seen
            seen += 1
            return super().__getitem__(key)

    for attack in ("[" * 50_000 + "}" * 50_000, "{[" * 30_000 + "}" * 30_000, "[{}" * 30_000 + "]" * 30_000):
        seen = 0
        assistant._values(Watched(attack))
        assert seen <= len(attack)


class Given(msgspec.Struct):
    n: int


def test_a_script_answers_each_request_in_order_and_counts_it() -> None:
    step = assistant.Step("double", int, lambda given: f"Double {given.n}.")
    helper = assistant.Scripted({"double": lambda given: given.n * 2 if given.n else None})
    assert helper.ask(step, [Given(2), Given(0), Given(5)]) == [4, None, 10]
    assert helper.ask(step, []) == []
    assert assistant.statistics(helper) == {"asked: double": 3}
    with pytest.raises(UpkeepError, match=r"(?s)no script for the step 'halve'.*double"):
        helper.ask(assistant.Step("halve", int, lambda given: ""), [Given(1)])


def test_a_model_that_is_named_answers_before_the_worlds_program_and_without_either_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = context.Context("d", None, tmp_path / "dataset.yaml", None, skipping())  # type: ignore[arg-type]
    hired = assistant.Scripted({})
    monkeypatch.setattr(
        annotator, "hire", lambda of, model: nullcontext(hired if (of, model) == (given, "m") else None)
    )
    with answering.by(given, "m", {"double": lambda given: 2}) as helper:
        assert helper is hired
    with answering.by(given, None, {"double": lambda given: 2}) as helper:
        assert helper.ask(assistant.Step("double", int, str), [Given(1)]) == [2]
    with pytest.raises(UpkeepError, match=r"(?s)dataset.yaml: options.assistant: no assistant.*models/"):
        answering.by(given, None)
    assert [answering.named(model) for model in ("m", None)] == ["m", "a program that knows the world"]


# ---------------------------------------------------------------- the store's rules


def item(**fields: Any) -> assembling.Item:
    base: dict[str, Any] = {
        "id": "q",
        "stream": "s",
        "text": "Does it agree?",
        "answers": ["yes"],
        "options": ["yes", "no"],
        "form": "label",
        "slices": {"kind": "x"},
    }
    return assembling.Item(**(base | fields))


STREAM = assembling.Stream("s", ["Ann came.", "Ann left.", "Bob came."])


def built(*items: assembling.Item, streams: Sequence[assembling.Stream] = (STREAM,), **fields: Any) -> assembling.Built:
    tables = assembling.collect(list(streams), list(items), MEASURE)
    base: dict[str, Any] = {
        "pairs": [],
        "tokenizer": str(MEASURE),
        "chunk_tokens": 20,
        "source": "here",
        "statistics": {},
    }
    return assembling.Built(*tables, **(base | fields))


def check(data: assembling.Built) -> None:
    checking.check(data, data.chunk_tokens, "here")


def test_items_are_collected_in_order_of_stream_and_position_with_phases() -> None:
    other = assembling.Stream("r", ["Once."])
    items = [
        item(id="b", position=2, answers=["no"], outdated=["yes", "no"], context=["Bob came."], evidence=["s_c2"]),
        item(id="z", stream="r"),
        item(id="b", position=0),
        item(id="a", position=2),
        item(id="b", position=1),
    ]
    data = built(*items, streams=[STREAM, other])
    check(data)
    assert data.probes["probe_id"].to_list() == ["b@0", "b@1", "b@2", "a@2", "z@0"]
    assert data.gold["phase"].to_list() == [0, 0, 1, 0, 0]
    assert data.gold["outdated"].to_list() == [[], [], ["yes"], [], []]
    assert data.gold["context"].to_list() == [[], [], ["Bob came."], [], []]
    assert data.gold["slice_kind"].to_list() == ["x"] * 5


def test_the_column_context_is_there_only_where_an_item_has_one(tmp_path: Path) -> None:
    assert "context" not in built(item()).gold.columns
    data = built(item(context=["Ann came."]))
    spec = Catalog(ROOT).dataset("prelude_mini")
    (tmp_path / "d").mkdir()
    store.write(tmp_path / "d", data, "d", spec)
    validate(tmp_path / "d")
    assert store.load(tmp_path / "d").gold["context"].to_list() == [["Ann came."]]


SHORT: dict[str, Any] = {"form": "short", "options": None}
WRONG: dict[str, tuple[Callable[[], assembling.Built], str]] = {
    "an answer that is no label": (lambda: built(item(answers=["maybe"])), "row 0, column `answers`"),
    "a label in other case": (lambda: built(item(answers=["Yes"])), "not one of the options"),
    "one right answer, one unlisted": (lambda: built(item(answers=["yes", "si"])), "not one of the options"),
    "no label": (lambda: built(item(options=None)), "too few or too many options"),
    "one label": (lambda: built(item(options=["yes"])), "too few or too many options"),
    "a label twice": (lambda: built(item(options=["yes", "no", "yes"])), "an option twice"),
    "a letter as label": (lambda: built(item(answers=["A"])), "not one of the options"),
    "a label as letter": (lambda: built(item(form="choice")), "not the letter of an option"),
    "labels of an open question": (lambda: built(item(form="short")), "options of an open question"),
    "two lists of labels": (
        lambda: built(item(position=0), item(position=1, options=["yes", "never"])),
        "one id for two questions",
    ),
    "an answer in the question": (
        lambda: built(item(**SHORT, text="Did Ann come?", answers=["she", "ann"])),
        "the question holds it",
    ),
    "an empty passage": (lambda: built(item(context=[""])), "row 0, column `context`"),
    "no answer": (lambda: built(item(answers=[])), "no accepted answer"),
    "evidence of nothing": (lambda: built(item(evidence=["s_c9"])), "unknown document"),
    "evidence from the future": (lambda: built(item(position=0, evidence=["s_c1"])), "evidence from the future"),
    "a position before the stream": (lambda: built(item(position=-1)), "no document at this position"),
    "a position behind the stream": (lambda: built(item(position=3)), "no document at this position"),
    "an empty slice": (lambda: built(item(slices={"kind": ""})), "empty slice"),
    "an item twice": (lambda: built(item(), item()), "id given more than once"),
    "an example that is asked": (
        lambda: built(item(), examples=[Pair(question="?", answer="x"), Pair(question="does it AGREE", answer="x")]),
        r"examples\.jsonl, line 2: a question of the evaluation",
    ),
    "a pair that is asked": (
        lambda: built(item(), pairs=[Pair(question="Does  it agree?", answer="x")]),
        r"pairs\.jsonl, line 1: a question of the evaluation",
    ),
    "a pair of no document": (
        lambda: built(item(), pairs=[Pair(question="Who?", answer="x", document="elsewhere")]),
        r"pairs\.jsonl, line 1",
    ),
    "a document that is too long": (lambda: built(item(), chunk_tokens=2), "row 0, column `tokens`"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_breaks_a_rule_is_refused_with_its_place(name: str) -> None:
    make, problem = WRONG[name]
    check(built(item()))
    with pytest.raises(UpkeepError, match=problem):
        check(make())


def test_items_of_no_stream_or_with_other_slices_are_refused() -> None:
    with pytest.raises(UpkeepError, match="unknown stream"):
        built(item(stream="t"))
    with pytest.raises(UpkeepError, match="other slices"):
        built(item(), item(id="r", slices={"kind": "x", "more": "y"}))


def test_a_shown_question_changes_the_content_hash() -> None:
    data = built(item(), pairs=[Pair(question="a", answer="b")])
    moved = dataclasses.replace(data, pairs=[], examples=data.pairs)
    hashes = {
        tuple(content(d.documents, d.probes, d.gold, d.pairs, d.examples).values())
        for d in (data, moved, dataclasses.replace(data, pairs=[]))
    }
    assert len(hashes) == 3


# ---------------------------------------------------------------- all datasets of the repository

DATASETS = Catalog(ROOT).datasets
MINIS = [name for name in DATASETS if name.endswith("_mini")]
ONE_EACH = sorted({Catalog(ROOT).family_of(name): name for name in MINIS}.values())
"""A small dataset of each family."""


@pytest.mark.parametrize("name", DATASETS)
def test_every_published_number_of_a_dataset_is_found_in_its_paper(name: str) -> None:
    spec = Catalog(ROOT).dataset(name)
    assert card_numbers.published(spec, ROOT / "papers").keys() == spec.published.keys()


@pytest.mark.parametrize("name", DATASETS)
def test_every_dataset_is_on_its_familys_page_and_has_a_prompt(name: str) -> None:
    from upkeep.grading.matching import EQUIVALENCES

    spec = Catalog(ROOT).dataset(name)
    page = (ROOT / "datasets" / Catalog(ROOT).family_of(name) / "README.md").read_text(encoding="utf-8")
    assert f"`{name}`" in page and len(page.split()) > 30
    assert spec.prompt in Catalog(ROOT).prompts and spec.equivalence in EQUIVALENCES
    assert spec.stands_for is None or spec.stands_for in DATASETS


def test_every_dataset_of_the_suite_says_its_provenance() -> None:
    found: dict[str, set[str]] = {}
    for name in DATASETS:
        found.setdefault(Catalog(ROOT).dataset(name).provenance, set()).add(name)
    assert found["release"] == {"oaks_novel", "prelude", "prelude_long_chunks", "prelude_human_study"}
    assert found["own"] == {"oaks_novel_changes", "evowiki_legislators"}
    assert found["stand_in"] == {*MINIS, "oaks_babi_stream"}
    assert {"oaks_babi", "evowiki", "imprint_news", "evolveqa_aws", "evolveqa_who_control"} < found["rebuild"]


@pytest.mark.parametrize("where", ["{metric: nothing}", "{}"])
def test_a_published_number_that_is_none_or_several_is_refused(where: str) -> None:
    spec = Catalog(ROOT).dataset("prelude")
    wrong = {"x": {"table": "table_2", "where": yaml.safe_load(where)}}
    changed = msgspec.convert(msgspec.to_builtins(spec) | {"published": wrong}, type(spec))
    with pytest.raises(UpkeepError, match=r"`published: x` does not name one number"):
        card_numbers.published(changed, ROOT / "papers")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[DatasetCard, Path]]:
    """Builds a small dataset once for all tests of this file."""
    made: dict[str, tuple[DatasetCard, Path]] = {}

    def get(name: str) -> tuple[DatasetCard, Path]:
        if name not in made:
            folder = tmp_path_factory.mktemp(name) / name
            made[name] = build_dataset(Catalog(ROOT), name, folder), folder
        return made[name]

    return get


Small = Callable[[str], tuple[DatasetCard, Path]]


@pytest.mark.parametrize("name", MINIS)
def test_a_small_dataset_builds_is_small_and_keeps_all_rules(name: str, small: Small) -> None:
    card, folder = small(name)
    validate(folder)
    assert 0 < card.probes <= 320
    assert card.stands_for == name.removesuffix("_mini") and not card.faults
    data = store.load(folder)
    assert data.documents["tokens"].max() <= 128
    assert data.documents.group_by("stream").len()["len"].max() <= 60
    assert describe(Catalog(ROOT), card).count("\n") > 10


def test_the_many_stories_build_and_are_asked_of_every_bin(small: Small) -> None:
    card, folder = small("oaks_novel_changes")
    validate(folder)
    assert card.stands_for is None and card.questions > 400 and not card.faults
    assert min(card.slices["changes"].values()) > 80


@pytest.mark.parametrize("name", ONE_EACH)
def test_a_small_dataset_is_the_same_when_it_is_built_again(name: str, small: Small, tmp_path: Path) -> None:
    card, _ = small(name)
    again = build_dataset(Catalog(ROOT), name, tmp_path / "again")
    assert again.content == card.content
    assert again.statistics == card.statistics and again.notes == card.notes


@pytest.mark.parametrize("name", MINIS)
def test_no_answer_of_a_small_dataset_is_that_of_most_questions(name: str, small: Small) -> None:
    data = store.load(small(name)[1])
    rows = data.gold.join(data.probes.select("probe_id", "form"), on="probe_id")
    for (form,), of_form in rows.group_by("form"):
        first = of_form["answers"].list.first().value_counts(sort=True)
        assert len(of_form) < 5 or first["count"][0] <= 0.6 * len(of_form), (form, first)


@pytest.mark.parametrize("name", [name for name in MINIS if not name.startswith("oaks")])
def test_what_a_small_dataset_asks_can_be_read_in_its_documents(name: str, small: Small) -> None:
    """An open answer, or each part of one, stands in the evidence or the context, unless it is that nothing is told."""
    data = store.load(small(name)[1])
    texts = dict(data.documents.select("document_id", "text").iter_rows())
    rows = data.gold.join(data.probes.select("probe_id", "form"), on="probe_id").filter(form="short")
    for row in rows.iter_rows(named=True):
        read = f" {leaks.key(' '.join([*(texts[id] for id in row['evidence']), *row.get('context', [])]))} "
        parts = [re.split(" and |, ", answer) for answer in row["answers"]]
        told = any(all(f" {leaks.key(part)} " in read for part in answer) for answer in parts)
        assert told or any("no information" in answer for answer in row["answers"]), row
