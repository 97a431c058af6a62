"""10,000 damaged files: none is accepted wrongly, none crashes or hangs what reads it.

What is right is decided independently: by the standard library's JSON, `jsonschema` over `schema/*.json`, and the rule
that a file holds each record of its scope exactly once. A published folder is right where it says what was published.
"""

from __future__ import annotations

import functools
import json
import math
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator, validators

from conftest import ROOT
from upkeep.contract import (
    Attempt,
    ContextUse,
    Environment,
    Manifest,
    Measured,
    Prediction,
    Retrieved,
    Usage,
)
from upkeep.errors import UpkeepError
from upkeep.execution.publish import publish_cell
from upkeep.integrity import verify_folder
from upkeep.record_files import check_file
from upkeep.scope import Answers

# Two streams of two documents, a probe after each.
DOCUMENTS = ["s_c0", "s_c1", "t_c0", "t_c1"]
PROBES = ["s0@0", "s0@1", "t0@0", "t0@1"]
FIRST, END = [0, 0, 2, 2], [1, 2, 3, 4]
ANSWERS = Answers(PROBES, 2, DOCUMENTS, FIRST, END)
TEXTS = ["x", "größer \U0001f600", 'a "quoted"\\ line\n\ttab', "\u2028\x7f", "", "NaN", "}{"]


def prediction(probe: int, trial: int) -> Prediction:
    number = 2 * probe + trial
    return Prediction(
        probe_id=PROBES[probe],
        trial=trial,
        response=TEXTS[number % len(TEXTS)],
        reasoning=None if trial else "because",
        finish_reason="stop",
        retrieved=[Retrieved(id=DOCUMENTS[d], score=1.5 / (r + 1), rank=r + 1) for r, d in enumerate(reach(probe))],
        usage=Usage(prompt=10, completion=2, calls=1),
        context=ContextUse(documents=1),
        error="broken" if number == 7 else None,
        measured=Measured(latency_s=0.25, cached=4) if trial else None,
    )


def reach(probe: int) -> range:
    return range(FIRST[probe], END[probe])


# ---------------------------------------------------------------- damage

Rng = random.Random
TOKENS = [
    *(b"\x00", b"\xef\xbb\xbf", b"\r\n", b"\r", b"\n", b"\n\n", b"\x1b[31m", b"\xff", b"\xc0\x80", b"\xed\xa0\x80"),
    *(b"\\ud800", b"\\u0000", b"\\u0061", b"NaN", b"-Infinity", b"1e999", b"1e-999", b"-0", b"0.1", b"1E2", b"01"),
    *(b"9007199254740993", b"1" + b"0" * 400, b"null", b"true", b"{}", b"[]", b"[" * 2000, b'{"a":' * 300, b'"', b"\\"),
    *(b",", b":", b"}", b"]", b" ", b"\t", b"/**/", b"0x1", "\u200b".encode(), "＂".encode()),
]  # fmt: skip
LOOKALIKES = str.maketrans({"s": "ѕ", "0": "０", "o": "о", "a": "а", "e": "е", "@": "＠", "_": "＿", "1": "１"})
VALUES: list[Any] = [
    *(None, True, False, 0, -1, 1, 2, 1.0, -0.0, 0.5, 2**31, 2**53 - 1, 2**53, 2**64, 10**30, 1e300, float("nan")),
    *(float("inf"), "", "x", "none", "stop", "0", "x" * 401, "x" * 100_001, "\ud800", "\x00", [], {}, [1], {"id": 1}),
]  # fmt: skip


def damage_bytes(data: bytes, rng: Rng) -> bytes:
    at = rng.randrange(len(data))
    end = min(len(data), at + rng.choice((1, 1, 2, 5, 40, 400)))
    match rng.randrange(6):
        case 0:
            return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]
        case 1:
            return data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
        case 2:
            return data[:at]
        case 3:
            return data[:at] + data[end:]
        case 4:
            return data[:end] + data[at:end] + data[end:]
        case _:
            return data[:at] + rng.choice(TOKENS) + data[rng.choice((at, at, end)) :]


def damage_lines(data: bytes, rng: Rng) -> bytes:
    lines = data.splitlines(keepends=True)
    one, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    match rng.randrange(6):
        case 0:
            lines[one], lines[other] = lines[other], lines[one]
        case 1:
            lines.insert(one, lines[other])
        case 2:
            del lines[one]
        case 3:
            lines[one] = lines[one].rstrip(b"\n")
        case 4:
            lines[one] = rng.choice((b"\n", b" \n", b"{}\n", b"null\n", b"[]\n", b"\xef\xbb\xbf" + lines[one]))
        case _:
            rng.shuffle(lines)
    return b"".join(lines)


def damage_json(line: bytes, rng: Rng) -> bytes:
    """Change a value, a name or the layout of one object, or have a key twice."""
    record = json.loads(line)
    places = list(walk(record))
    parent, key = rng.choice(places)
    match rng.randrange(8):
        case 0:
            parent[key] = rng.choice(VALUES)
        case 1:
            del parent[key]
        case 2 if isinstance(parent, dict):
            names = [key.upper(), key + " ", key[:-1], key.translate(LOOKALIKES), "x" + key]
            parent[rng.choice(names)] = parent.pop(key)
        case 3 if isinstance(parent[key], str):
            text = parent[key]
            parent[key] = rng.choice((text.translate(LOOKALIKES), text + "\x00", text.upper(), text[:-1], text[::-1]))
        case 4 if isinstance(parent[key], int | float) and not isinstance(parent[key], bool):
            parent[key] += rng.choice((1, -1, 0.0, 0.5))
        case 5 if isinstance(parent, dict):
            mark = f"@{rng.random()}@"
            value, parent[mark] = parent[key], rng.choice((parent[key], rng.choice(VALUES)))
            assert value is not mark
            return dump(record, rng).replace(json.dumps(mark).encode(), json.dumps(key).encode())
        case 6:
            value = parent[key]
            for _ in range(rng.choice((1, 3, 500))):
                value = [value]
            parent[key] = value
        case _:
            pass  # the layout alone
    return dump(record, rng)


def dump(record: object, rng: Rng) -> bytes:
    text = json.dumps(
        record, ensure_ascii=rng.random() < 0.5, separators=rng.choice(((",", ":"), (", ", ": "), (" ,\t", "  :  ")))
    )
    return text.encode("utf-8", "surrogatepass")


def walk(value: Any) -> Any:
    """Every (container, key) in a JSON value."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from walk(value[key])


def damage(data: bytes, rng: Rng) -> bytes:
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        kind = rng.randrange(5)
        if kind < 2 or not data:
            data = damage_bytes(data or b" ", rng)
        elif kind == 2:
            data = damage_lines(data, rng)
        else:
            lines = data.split(b"\n")
            at = rng.randrange(len(lines))
            try:
                lines[at] = damage_json(lines[at], rng)
            except (ValueError, TypeError, IndexError, AttributeError, RecursionError):
                continue  # damaged already, so that there is nothing to walk
            data = b"\n".join(lines)
    return data


# ---------------------------------------------------------------- what is right


class Wrong(Exception):
    pass


def strict_validator(name: str) -> Any:
    """JSON Schema calls 1.0 an integer; the records do not."""
    schema = json.loads((ROOT / "schema" / f"{name}.schema.json").read_text())
    checker = Draft202012Validator.TYPE_CHECKER.redefine("integer", lambda _, value: type(value) is int)
    return validators.extend(Draft202012Validator, type_checker=checker)(schema)


def single(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise Wrong("a key twice")
    return dict(pairs)


def plain(text: bytes) -> Any:
    """JSON by the standard library, with nothing that other readers read otherwise."""

    def constant(name: str) -> None:
        raise Wrong(name)

    try:
        # The library takes a byte order mark for none of its business only in text.
        value = json.loads(text.decode(), object_pairs_hook=single, parse_constant=constant)
        json.dumps(value, ensure_ascii=False).encode()  # no lone surrogates
    except (ValueError, RecursionError) as error:
        raise Wrong(str(error)) from None
    for parent, key in [([value], 0), *walk(value)] if isinstance(value, dict | list) else []:
        if isinstance(parent[key], float) and not math.isfinite(parent[key]):
            raise Wrong("infinite")
    return value


@functools.lru_cache(maxsize=4096)
def line_of(schema: str, line: bytes) -> str:
    """A line as canonical JSON. Raises Wrong where it breaks the schema."""
    value = plain(line)
    if not VALIDATORS[schema].is_valid(value):
        raise Wrong("schema")
    return json.dumps(value)


VALIDATORS = {name: strict_validator(name) for name in ("prediction", "manifest")}


def right(schema: str, data: bytes, key: Callable[[dict[str, Any]], Any], keys: set[Any]) -> dict[Any, Any]:
    """The records of a file by key. Raises Wrong where it is not one of each."""
    *lines, rest = data.split(b"\n")
    if rest:
        raise Wrong("torn")
    found: dict[Any, Any] = {}
    for line in lines:
        record = json.loads(line_of(schema, line))
        if key(record) in found:
            raise Wrong("twice")
        found[key(record)] = record
    if found.keys() != keys:
        raise Wrong("others")
    return found


def key_of_prediction(record: dict[str, Any]) -> tuple[str, int]:
    if record["probe_id"] in PROBES:
        allowed = {DOCUMENTS[d] for d in reach(PROBES.index(record["probe_id"]))}
        for rank, one in enumerate(record["retrieved"], 1):
            if one["rank"] != rank or one["id"] not in allowed:
                raise Wrong("retrieved")
    return record["probe_id"], record["trial"]


def same(record: Any, plain: Any) -> bool:
    """Whether a decoded record says what the plain JSON says, fields left out being their defaults."""
    if isinstance(plain, dict):
        return all(same(record[name], value) for name, value in plain.items())
    if isinstance(plain, list):
        return len(plain) == len(record) and all(map(same, record, plain))
    if isinstance(record, float) and isinstance(plain, int):
        return record == float(plain)  # a number with many digits is read as the nearest that there is
    return bool(record == plain)


# ---------------------------------------------------------------- the tests

SUBJECTS: dict[str, tuple[type[Any], Any, list[Any], Callable[[dict[str, Any]], Any], set[Any]]] = {
    "prediction": (
        Prediction, ANSWERS, [prediction(p, t) for p in range(4) for t in range(2)], key_of_prediction,
        {(p, t) for p in PROBES for t in range(2)},
    ),
}  # fmt: skip


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("kind", "seed"), [("prediction", s) for s in range(5)])
def test_damaged_file_is_accepted_only_where_an_independent_reader_finds_it_whole(
    kind: str, seed: int, tmp_path: Path
) -> None:
    record, scope, records, key, keys = SUBJECTS[kind]
    original = b"".join(msgspec.json.encode(r) + b"\n" for r in records)
    path, rng, accepted = tmp_path / "file.jsonl", random.Random(f"{kind}{seed}"), 0
    for number in range(1000):
        data = damage(original, rng)
        path.write_bytes(data)
        try:
            expected = right(kind, data, key, keys)
        except Wrong:
            expected = None
        try:
            index = check_file(path, record, scope)
            index.require_complete()
        except UpkeepError as error:
            assert expected is None, f"number {number} is whole, but: {error}"
            assert error.remedy and len(str(error)) < 2000 and str(error).replace("\n", "").isprintable()
            continue
        assert expected is not None, f"number {number} is accepted"
        for line in index.lines_in_order():
            found = msgspec.to_builtins(msgspec.json.decode(line, type=record))
            assert same(found, expected[key(found)]), f"number {number} is read as something else"
        accepted += 1
    assert 20 < accepted < 500, "both happen: damage that matters, and change that does not"


@pytest.fixture
def published(tmp_path: Path) -> Path:
    source = tmp_path / "predictions.jsonl"
    source.write_bytes(b"".join(msgspec.json.encode(prediction(p, t)) + b"\n" for p in range(4) for t in range(2)))
    environment = Environment(
        runtime="docker", isolated=True, image="upkeep/x-base:0", digest="sha256:" + "0" * 64, engine="none",
        engine_version="", packages={"python": "3.11"}, hardware={"cores": 2, "cpu": "größer"},
    )  # fmt: skip
    draft = Manifest(
        cell="d/m/v/none", identity="0" * 64, identity_parts={"prompt": "ours"}, environment=environment, seed=0,
        start="2026-01-01T00:00:00Z", end="2026-01-01T00:01:00Z",
        attempts=[Attempt(start="2026-01-01T00:00:00Z", end=None, outcome="killed", reason="x", lines=3)],
        probes=0, trials=2, outcomes={}, usage=Usage(), measured={}, files={},
    )  # fmt: skip
    target = tmp_path / "out"
    publish_cell(source, ANSWERS, draft, tmp_path / "staging", target, 1 << 20)
    return target


def meaning(value: Any, schema: Any, root: dict[str, Any]) -> Any:
    """A JSON value with the defaults of its schema where fields are left out, and 1 as 1.0 where it takes both."""
    schema = schema if isinstance(schema, dict) else {}
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rpartition("/")[2]]
    if isinstance(value, list):
        return [meaning(each, schema.get("items"), root) for each in value]
    if isinstance(value, dict):
        fields, others = schema.get("properties", {}), schema.get("additionalProperties")
        defaults = {name: field["default"] for name, field in fields.items() if "default" in field}
        return {name: meaning(each, fields.get(name, others), root) for name, each in (defaults | value).items()}
    return float(value) if schema.get("type") == "number" else value


@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", range(3))
def test_damaged_publication_is_accepted_only_where_it_says_what_was_published(published: Path, seed: int) -> None:
    schema = json.loads((ROOT / "schema" / "manifest.schema.json").read_text())
    originals = {path.name: path.read_bytes() for path in published.iterdir()}

    def said(value: Any) -> str:
        return json.dumps(meaning(value, schema, schema), sort_keys=True)

    meant = said(json.loads(originals["manifest.json"]))
    rng, accepted = random.Random(f"published{seed}"), 0
    for number in range(1000):
        name = rng.choice(["manifest.json"] * 8 + ["predictions.jsonl", "measured.parquet"])
        data = damage_manifest(originals[name], rng) if name == "manifest.json" else damage_bytes(originals[name], rng)
        (published / name).write_bytes(data)
        if name == "manifest.json":
            try:
                value = plain(data)
                expected = VALIDATORS["manifest"].is_valid(value) and said(value) == meant
            except (Wrong, RecursionError):
                expected = False
        else:
            expected = data == originals[name]
        try:
            verify_folder(published)
        except UpkeepError as error:
            assert not expected, f"number {number} says what was published, but: {error}"
        else:
            assert expected, f"number {number} is accepted"
            accepted += 1
        (published / name).write_bytes(originals[name])
    assert 20 < accepted < 500


def damage_manifest(data: bytes, rng: Rng) -> bytes:
    if rng.random() < 0.4:
        return damage_bytes(data, rng)
    if rng.random() < 0.2:
        # One digit of one hash.
        at = rng.choice([m.start() for m in re.finditer(rb"[0-9a-f](?=[0-9a-f]{20})", data)])
        return data[:at] + rng.choice(b"0123456789abcdefAF").to_bytes() + data[at + 1 :]
    return damage_json(data, rng)
