"""Schemas and records accept and refuse the same, and `upkeep validate` checks whatever it is given."""

from __future__ import annotations

import json
import math
import re
import shutil
from pathlib import Path

import msgspec
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator, validators

from conftest import ROOT
from prediction_lines import BASE, SCOPE, lines
from upkeep.contract import BOUNDARY, Prediction
from upkeep.errors import UpkeepError
from upkeep.lines import Refused, decode
from upkeep.operations.validate import validate_path
from upkeep.schemas import render, schema, write

# ---------------------------------------------------------------- schemas


def test_schema_files_are_those_of_the_records(tmp_path: Path) -> None:
    folder = Path(__file__).resolve().parents[1] / "schema"
    assert {p.name for p in folder.iterdir()} == {p.name for p in write(tmp_path)}
    for name in BOUNDARY:
        assert (folder / f"{name}.schema.json").read_bytes() == render(name), "run `./upkeep schema`"
        Draft202012Validator.check_schema(schema(name))


# JSON Schema calls 1.0 an integer; the records do not. All else must agree.
STRICT = validators.extend(
    Draft202012Validator,
    type_checker=Draft202012Validator.TYPE_CHECKER.redefine(
        "integer", lambda _, value: isinstance(value, int) and not isinstance(value, bool)
    ),
)(schema("prediction"))
DECODER = msgspec.json.Decoder(Prediction)
SAMPLE = json.loads(lines()[0])
PLACES = [
    (key,) for key in [*SAMPLE, "other"]
] + [("usage", "prompt"), ("usage", "x"), ("retrieved", 0), ("retrieved", 0, "rank"), ("retrieved", 0, "score"),
     ("retrieved", 0, "id"), ("context", "dropped"), ("measured", "latency_s"), ("measured", "cached")]  # fmt: skip
VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([2**31, 2**53 - 1, 2**53, 2**64, 10**30, -(10**30), 0.5, -0.5, 0.0, 1e300, 1e9, 1.1e9])
    | st.sampled_from(["", "x", "stop", "length", "none", "whole", "x" * 400, "x" * 401, "é" * 400, "\U0001f600" * 400])
    | st.sampled_from(["x" * 10_001, "x" * 100_001, "x" * 1_000_001])
    | st.lists(st.integers(0, 1), max_size=1)
    | st.dictionaries(st.sampled_from(["prompt", "calls", "id", "zzz"]), st.integers(-1, 1), max_size=2)
)


@settings(max_examples=400, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(PLACES), VALUES | st.just(...)), min_size=1, max_size=2))
def test_schema_and_records_accept_and_refuse_the_same(mutations: list[tuple[tuple[object, ...], object]]) -> None:
    record = json.loads(json.dumps(SAMPLE))
    for place, value in mutations:
        parent = record
        for step in place[:-1]:
            parent = parent.get(step) if isinstance(parent, dict) else parent[step] if parent else None
            if not isinstance(parent, dict | list) or not parent:
                return
        if isinstance(parent, list) != isinstance(place[-1], int):
            return
        if value is ...:
            if isinstance(parent, list) or place[-1] in parent:
                del parent[place[-1]]
        else:
            parent[place[-1]] = value
    line = json.dumps(record).encode()
    try:
        DECODER.decode(line)
        accepted = True
    except msgspec.DecodeError:
        accepted = False
    assert accepted == STRICT.is_valid(json.loads(line))


@settings(max_examples=300, deadline=None)
@given(st.integers(0, len(BASE) - 1), st.binary(max_size=3), st.integers(0, 3))
def test_no_damaged_byte_leads_to_another_error_than_a_refusal(at: int, put: bytes, cut: int) -> None:
    line = BASE[:at] + put + BASE[at + cut :]
    try:
        record = decode(line, DECODER)
        SCOPE.key(record)
    except Refused as refused:
        assert refused.fault.problem
        return
    assert all(math.isfinite(r.score) for r in record.retrieved)


# ---------------------------------------------------------------- `upkeep validate`


def test_predictions_by_themselves_are_checked_against_the_schema(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_bytes(b"".join(lines()))
    assert re.match(r"12 predictions; .* unknown", validate_path(path))
    path.write_bytes(b"".join([*lines(), lines()[0]]))
    with pytest.raises(UpkeepError, match="a second line") as caught:
        validate_path(path)
    assert caught.value.where == f"{path}:13"


def test_yaml_cards_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "method.yaml"
    path.write_text("label: x\nvariants: {a: {}}\n")
    with pytest.raises(UpkeepError, match="papers"):
        validate_path(path)
    path.write_text("{label: x, papers: [], summary: s, reference: r, variants: {a: {}}}")
    assert validate_path(path) == "method.yaml: a valid method"
    assert validate_path(tmp_path) == "method.yaml: a valid method"


@pytest.mark.parametrize("paper", sorted(path.parent.name for path in ROOT.glob("papers/*/tables.yaml")))
def test_a_paper_is_checked_with_its_published_numbers(paper: str, tmp_path: Path) -> None:
    folder = shutil.copytree(ROOT / "papers" / paper, tmp_path / "papers" / paper)
    told = validate_path(folder)
    numbers = sum(len(pl.read_csv(path)) for path in (folder / "reference").glob("*.csv"))
    assert f"with {numbers:,} published numbers" in told and "the published numbers give what each says" in told

    changed = set()
    for claims in (folder / "claims").iterdir():
        text = claims.read_text()
        for change, problem in (
            (("published: holds", "published: fails"), "another outcome"),
            (("      rows: ", "      rows: 7"), "other numbers of cases"),
            (("select ", "selekt "), "query of a check fails"),
        ):
            if change[0] in text and change not in changed:
                changed.add(change)
                claims.write_text(text.replace(*change, 1))
                for told in (folder, claims):
                    with pytest.raises(UpkeepError, match=problem) as caught:
                        validate_path(told)
                    assert str(caught.value.where).startswith(f"{claims}:")
        claims.write_text(text)
    assert len(changed) == 3
    for name in ("tables.yaml", "figures.yaml"):
        assert f"with {numbers:,} published numbers" in validate_path(folder / name)
    next((folder / "reference").glob("table_*.csv")).unlink()
    with pytest.raises(UpkeepError, match="no published numbers"):
        validate_path(folder)


def test_what_cannot_be_checked_is_said(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(UpkeepError, match="do not know how to check"):
        validate_path(tmp_path / "notes.txt")
    with pytest.raises(UpkeepError, match="no such file"):
        validate_path(tmp_path / "nothing")
    with pytest.raises(UpkeepError, match="nothing that can be checked"):
        validate_path(tmp_path)
