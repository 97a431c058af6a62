"""Predictions are hostile until validated: every way to be malformed is refused with file, line, field and remedy."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prediction_lines import BASE, PROBES, SCOPE, lines, prediction
from upkeep import record_files
from upkeep.contract import MAX_LINE_BYTES, Prediction
from upkeep.errors import UpkeepError
from upkeep.lines import read_lines
from upkeep.record_files import check_file, read_predictions


def changed(line: bytes, **fields: object) -> bytes:
    return json.dumps({**json.loads(line), **fields}).encode() + b"\n"


def without(line: bytes, field: str) -> bytes:
    record = json.loads(line)
    del record[field]
    return json.dumps(record).encode() + b"\n"


def check(path: Path, content: list[bytes]) -> None:
    path.write_bytes(b"".join(content))
    check_file(path, Prediction, SCOPE).require_complete()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "predictions.jsonl"


def test_complete_predictions_come_back_in_the_order_of_the_probes(file: Path) -> None:
    shuffled = lines()
    random.Random(1).shuffle(shuffled)
    file.write_bytes(b"".join(shuffled))
    assert [p.probe_id for p in read_predictions(file, PROBES)] == PROBES


def test_each_trial_of_each_probe_is_expected_once(file: Path) -> None:
    both = [prediction(p, trial) for trial in (1, 0) for p in PROBES]
    file.write_bytes(b"".join(msgspec.json.encode(p) + b"\n" for p in both))
    assert [(p.probe_id, p.trial) for p in read_predictions(file, PROBES, 2)] == [
        (p, t) for p in PROBES for t in (0, 1)
    ]


MALFORMED = {
    "truncated": (BASE[:-30], "truncated last line", "newline"),
    "no newline at the end": (BASE[:-1], "truncated last line", "newline"),
    "invalid utf-8": (BASE.replace(b"kitchen.", b"kit\xffhen."), "field `response`: invalid UTF-8", "UTF-8"),
    "invalid utf-8 in a key": (BASE.replace(b'"trial"', b'"tr\xc3al"'), "invalid UTF-8", "UTF-8"),
    "lone surrogate": (BASE.replace(b"kitchen.", b"\\ud800"), "field `response`: not JSON", "JSON"),
    "no json": (b"Traceback (most recent call last):\n", "not JSON", "one JSON object"),
    "two objects": (BASE[:-1] + BASE, "not JSON", "one JSON object"),
    "byte order mark": (b"\xef\xbb\xbf" + BASE, "not JSON", "one JSON object"),
    "empty line": (b"\n", "empty line", "one JSON object"),
    "array": (b"[]\n", "not an object", "object"),
    "null": (b"null\n", "not an object", "object"),
    "nan": (BASE.replace(b"1.5", b"NaN"), "field `score`: not a number", "finite"),
    "infinity": (BASE.replace(b"1.5", b"-Infinity"), "field `score`: not a number", "finite"),
    "overflowing number": (BASE.replace(b"1.5", b"1e999"), "field `retrieved[0].score`", "Number out of range"),
    "boundless integer": (BASE.replace(b'"calls":1', b'"calls":1' + b"0" * 400), "field `usage.calls`", None),
    "million digits": (BASE.replace(b'"calls":1', b'"calls":1' + b"0" * 1_000_000), "field `usage.calls`", None),
    "wrong type": (changed(BASE, trial="0"), "field `trial`: wrong type", "int"),
    "float for an integer": (changed(BASE, trial=0.0), "field `trial`: wrong type", "int"),
    "true for an integer": (changed(BASE, trial=True), "field `trial`: wrong type", "int"),
    "negative trial": (changed(BASE, trial=-1), "field `trial`: wrong value", ">= 0"),
    "trial out of range": (changed(BASE, trial=1), "field `trial`: no such trial", "0 to 0"),
    "unknown field": (changed(BASE, note="x"), "field `note` is unknown", "schema"),
    "unknown nested field": (changed(BASE, usage={"prmpt": 1}), "field `usage.prmpt` is unknown", "schema"),
    "missing field": (without(BASE, "response"), "field `response` is missing", "schema"),
    "value beyond all numbers": (
        changed(BASE, values={"a": 1}).replace(b'{"a": 1}', b'{"a": 1e999}'),
        "field `values",
        "out of range",
    ),
    "value that is no number": (changed(BASE, values={"a": "1"}), "field `values", "float"),
    "value without a name": (changed(BASE, values={"": 1}), "in `$.values`", None),
    "too many values": (changed(BASE, values={str(n): 0 for n in range(65)}), "field `values", "<= 64"),
    "unknown choice": (changed(BASE, finish_reason="guess"), "field `finish_reason`", "Invalid enum value 'guess'"),
    "null answer key": (changed(BASE, probe_id=None), "field `probe_id`: wrong type", "str"),
    "unknown probe": (changed(BASE, probe_id="q9@9"), "field `probe_id`: unknown probe", "'q9@9'"),
    "duplicate": (lines()[1], "a second line for probe 'q1@0', trial 0", "the first one is line 2"),
    "unknown document": (
        msgspec.json.encode(prediction(PROBES[4], retrieved=("d0", "zzz"))) + b"\n",
        "field `retrieved[1].id`: unknown document",
        "'zzz'",
    ),
    "document that comes later": (
        msgspec.json.encode(prediction(PROBES[4], retrieved=("d2",))) + b"\n",
        "had not arrived",
        "up to its position",
    ),
    "document of another stream": (
        msgspec.json.encode(prediction(PROBES[4], retrieved=("d5",))) + b"\n",
        "had not arrived",
        "the probe's stream",
    ),
    "rank from zero": (
        changed(BASE, retrieved=[{"id": "d0", "score": 1, "rank": 0}]),
        "field `retrieved[0].rank`",
        ">= 1",
    ),
    "rank gap": (changed(BASE, retrieved=[{"id": "d0", "score": 1, "rank": 2}]), "ranks must count up from 1", "1"),
    "deep nesting": (b'{"retrieved":' + b"[" * 100_000 + b"\n", "field `retrieved[0]`", "object"),
    "long error": (changed(BASE, error="x" * 10_001), "field `error`: wrong value", "length <= 10000"),
}


@pytest.mark.parametrize("kind", MALFORMED)
def test_malformed_line_is_refused_with_file_line_field_and_remedy(file: Path, kind: str) -> None:
    line, problem, detail = MALFORMED[kind]
    content = lines()
    content[4] = line
    if not line.endswith(b"\n"):
        del content[5:]
    with pytest.raises(UpkeepError) as caught:
        check(file, content)
    error = caught.value
    assert error.where == f"{file}:5"
    assert problem in error.problem
    assert detail is None or detail in f"{error.problem}\n{error.expected}\n{error.found}"
    assert error.expected is not None
    assert error.remedy
    assert len(str(error)) < 1000, "a message stays readable whatever is in the file"
    assert str(error).isprintable() or str(error).replace("\n", "").isprintable()


def test_missing_prediction_is_refused_with_number_and_names(file: Path) -> None:
    with pytest.raises(UpkeepError, match=r"5 of 12 records are missing") as caught:
        check(file, lines()[:7])
    assert "probe 'q1@2', trial 0; probe 'q2@2', trial 0; probe 'q0@3', trial 0; ..." in str(caught.value)


def test_empty_file_lacks_everything(file: Path) -> None:
    with pytest.raises(UpkeepError, match="12 of 12"):
        check(file, [])


def test_line_of_two_gigabytes_is_refused_without_reading_it(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = 0

    class Counting:
        def __init__(self, inner: object) -> None:
            self.inner = inner

        def __getattr__(self, name: str) -> object:
            return getattr(self.inner, name)

        def __enter__(self) -> Counting:
            return self

        def __exit__(self, *_: object) -> None:
            self.inner.close()  # type: ignore[attr-defined]

        def readline(self, limit: int) -> bytes:
            nonlocal read
            line: bytes = self.inner.readline(limit)  # type: ignore[attr-defined]
            read += len(line)
            return line

    original = record_files.open_regular
    monkeypatch.setattr(record_files, "open_regular", lambda *a: Counting(original(*a)))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    with file.open("wb") as out:
        out.writelines(lines()[:4])
        out.truncate(2 * 1024**3)
    with pytest.raises(UpkeepError, match="line too long") as caught:
        check_file(file, Prediction, SCOPE)
    assert caught.value.where == f"{file}:5"
    assert read < 3 * MAX_LINE_BYTES


def test_overlong_line_is_refused_by_parallel_readers_too(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})
    with file.open("wb") as out:
        out.writelines(lines()[:4])
        out.truncate(2 * 1024**3)
    with pytest.raises(UpkeepError, match="line too long") as caught:
        check_file(file, Prediction, SCOPE)
    assert caught.value.where == f"{file}:5"


@pytest.mark.parametrize("fault", [None, 0, 5, 11, "twice"])
def test_parallel_readers_find_the_same_as_one(file: Path, monkeypatch: pytest.MonkeyPatch, fault: object) -> None:
    content = lines()
    if isinstance(fault, int):
        content[fault] = b"{}\n"
    elif fault == "twice":
        content[10] = content[2]
    file.write_bytes(b"".join(content))

    def outcome() -> object:
        try:
            return list(check_file(file, Prediction, SCOPE).offsets)
        except UpkeepError as error:
            return str(error)

    alone = outcome()
    monkeypatch.setattr(record_files, "PARALLEL_BYTES", 1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})
    assert outcome() == alone


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 40), max_size=30), st.integers(1, 9))
def test_ranges_cut_a_file_between_lines_and_lose_nothing(
    tmp_path_factory: object, sizes: list[int], parts: int
) -> None:
    path = tmp_path_factory.mktemp("ranges") / "file"  # type: ignore[attr-defined]
    content = [b"x" * size + b"\n" for size in sizes]
    path.write_bytes(b"".join(content))
    found = []
    for start, end in record_files._ranges(path, None, parts):
        with record_files.open_regular(path) as file:
            file.seek(start)
            found += list(read_lines(file, end))
    assert found == content


def test_links_pipes_folders_and_devices_are_no_predictions(tmp_path: Path) -> None:
    real, link, pipe = tmp_path / "real", tmp_path / "link", tmp_path / "pipe"
    real.write_bytes(b"".join(lines()))
    link.symlink_to(real)
    os.mkfifo(pipe)
    for path, kind in (
        (link, "a symbolic link"),
        (pipe, "a pipe"),
        (tmp_path, "a folder"),
        (Path("/dev/zero"), "device"),
    ):
        with pytest.raises(UpkeepError, match="cannot be read") as caught:
            check_file(path, Prediction, SCOPE)
        assert kind in str(caught.value.found)


def test_file_over_its_bound_is_not_read(file: Path) -> None:
    file.write_bytes(b"".join(lines()))
    with pytest.raises(UpkeepError, match="file too large"):
        check_file(file, Prediction, SCOPE, max_bytes=100)
