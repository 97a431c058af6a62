"""A model that reads an audit's sample with its evidence and without: what is suspicious is told, and asked once."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from endpoint_fakes import KEY, MODEL, VARIABLE, FakeEndpoint, be_quick, fake_endpoint, make_endpoint_repository
from host_fakes import write_toy
from test_dataset_audit import HOSTILE, Read
from upkeep import cli
from upkeep.building.assembling import Built
from upkeep.building.store import load, write
from upkeep.catalog import Catalog
from upkeep.errors import UpkeepError
from upkeep.identity import plan_dataset
from upkeep.inputs import dataset
from upkeep.layout import Layout
from upkeep.normal_form import SCHEMAS, TABLES
from upkeep.operations.audit.readings import Reading, read, suspicious_first, told
from upkeep.operations.audit.sample import Item, draw

FOUND = {(False, True): 6, (False, False): 4, (True, True): 10, (True, False): 10}
"""What `reader` makes of the 30 probes of `toy`: (right with the evidence, right without) -> how many."""


def reader(number: int, body: dict[str, Any]) -> str:
    """Reads question 0 of the streams a and b; knows the answers 1 and 2 by heart, and is confused on 2 by evidence."""
    asked = "".join(message["content"] for message in body["messages"] if message["role"] == "user")
    shown, which = re.search(r"text ([abc])\d+\.", asked), int(asked[asked.rindex("Question ") + 9])
    said = f"answer {which}"
    if shown and which != 1:
        said = shown.group() if which == 0 and shown.group(1) != "c" else HOSTILE
    return "set:" + json.dumps({"choices.0.message.content": f"So.\n## Answer: {said}"})


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeEndpoint]:
    be_quick(monkeypatch)
    with fake_endpoint(reader) as server:
        yield server


def repository(root: Path, server: FakeEndpoint, budget: str = "1000.0") -> Catalog:
    catalog = make_endpoint_repository(root, server.url, budget=budget)
    card = root / "datasets/toy/dataset.yaml"
    card.write_text(card.read_text().replace("exact", "short_answer"))
    write_toy(catalog := Catalog(catalog.root))
    return catalog


def readings(catalog: Catalog) -> tuple[list[Item], dict[str, Reading]]:
    items = draw(Layout(catalog.results).dataset("toy"), 30, 0)
    return items, read(catalog, dataset(catalog, "toy"), items, MODEL)


def changed(catalog: Catalog, table: str, **columns: pl.Expr) -> Catalog:
    """`toy` with other columns in a table."""
    folder, spec = Layout(catalog.results).dataset("toy"), catalog.dataset("toy")
    built = load(folder)
    tables = {name: getattr(built, name) for name in TABLES} | {table: getattr(built, table).with_columns(**columns)}
    anew = Built(**tables, pairs=[], tokenizer="words", chunk_tokens=3, source="ours", statistics={})
    write(folder, anew, "toy", spec, plan_dataset(catalog, "toy"))
    return Catalog(catalog.root)


def without_evidence(catalog: Catalog, of: pl.Expr) -> Catalog:
    """`toy` without the evidence of these probes."""
    nothing = pl.lit([], SCHEMAS["gold"]["evidence"])
    return changed(catalog, "gold", evidence=pl.when(of).then(nothing).otherwise("evidence"))


def audit(root: Path, monkeypatch: pytest.MonkeyPatch, *more: str) -> bool:
    monkeypatch.setattr("sys.argv", ["upkeep", "--root", str(root), "dataset", "audit", "toy", *more])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return bool(ended.value.code)


def test_each_probe_is_asked_with_its_evidence_and_without_and_what_is_suspicious_stands_first(
    tmp_path: Path, server: FakeEndpoint
) -> None:
    items, found = readings(repository(tmp_path, server))
    assert Counter(reading.finding for reading in found.values()) == FOUND
    of = [found[item.probe_id].finding for item in suspicious_first(items, found)]
    assert of == [finding for finding, count in FOUND.items() for _ in range(count)]
    lines = list(told(found, 30, MODEL))
    assert [line.split()[0] for line in lines[1:]] == [str(count) for count in FOUND.values()]


def test_a_second_time_nothing_is_asked_though_there_is_neither_key_nor_budget(
    tmp_path: Path, server: FakeEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    items, found = readings(repository(tmp_path, server))
    asked = len(server.bodies)
    monkeypatch.delenv(VARIABLE)
    (tmp_path / "config/config.yaml").write_text("{runtime: process}")
    assert readings(Catalog(tmp_path)) == (items, found) and len(server.bodies) == asked
    assert not any(KEY.encode() in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def test_without_a_budget_nothing_is_asked(tmp_path: Path, server: FakeEndpoint) -> None:
    with pytest.raises(UpkeepError, match="budget"):
        readings(repository(tmp_path, server, ""))
    assert not server.bodies


def test_a_probe_without_evidence_is_not_asked_and_counted_and_stands_last(
    tmp_path: Path, server: FakeEndpoint
) -> None:
    catalog = repository(tmp_path, server)
    items, found = readings(without_evidence(catalog, pl.col("probe_id").str.starts_with("a")))
    assert len(found) == 12 and not any(probe.startswith("a") for probe in found)
    assert all(item.stream == "a" for item in suspicious_first(items, found)[12:])
    assert "18 not asked" in list(told(found, 30, MODEL))[-1]


def test_a_dataset_that_names_no_evidence_is_refused_before_anything_is_asked(
    tmp_path: Path, server: FakeEndpoint
) -> None:
    catalog = without_evidence(repository(tmp_path, server), pl.lit(value=True))
    with pytest.raises(UpkeepError, match="names no evidence") as refused:
        readings(catalog)
    assert "./upkeep dataset audit toy" in str(refused.value) and not server.bodies


def test_evidence_that_is_too_long_is_left_out_and_told(tmp_path: Path, server: FakeEndpoint) -> None:
    longer = pl.when(pl.col("stream") == "a").then(pl.lit("x " * 9000)).otherwise("text")
    _, found = readings(changed(repository(tmp_path, server), "documents", text=longer))
    assert Counter(reading.left_out for reading in found.values()) == {1: 18, 0: 12}
    assert "of 18 the model could not read all of the evidence" in list(told(found, 30, MODEL))[-1]


def test_what_a_failed_request_says_is_shown_and_counts_as_wrong(tmp_path: Path, server: FakeEndpoint) -> None:
    answered = server.act
    server.act = lambda number, body: "status:400" if "Question 1" in str(body["messages"]) else answered(number, body)
    _, found = readings(repository(tmp_path, server))
    failed = [reading for probe, reading in found.items() if probe[1] == "1"]
    assert {reading.finding for reading in failed} == {(False, False)} and all(one.given.response for one in failed)


def test_the_command_writes_the_page_with_what_the_model_said_as_text_and_tells_the_counts(
    tmp_path: Path, server: FakeEndpoint, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    repository(tmp_path, server)
    assert not audit(tmp_path, monkeypatch, "--model", MODEL)
    assert f"{MODEL} read 30 of 30 probes" in capsys.readouterr().out
    read = Read(page := (tmp_path / "results/audits/toy.html").read_text())
    assert read.tags["script"] == 1 and read.tags["img"] == 0 and not read.handlers and HOSTILE in read.text
    assert page.index("wrong with its evidence, right without") < page.index("right with its evidence alone")
    assert not audit(tmp_path, monkeypatch)
    bare = (tmp_path / "results/audits/toy.html").read_text()
    hashes = [re.search(r'data-probes="(\w+)"', text) for text in (page, bare)]
    assert all(hashes) and len({found.group() for found in hashes if found}) == 1, "marks are of the same words"


@pytest.mark.parametrize(
    ("more", "match"),
    [(("--model", "nobody"), "nobody"), (("--model", MODEL, "--marks", "m.json"), "--marks and --model")],
)
def test_what_cannot_be_asked_is_refused(
    tmp_path: Path,
    server: FakeEndpoint,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    more: tuple[str, ...],
    match: str,
) -> None:
    repository(tmp_path, server)
    assert audit(tmp_path, monkeypatch, *more)
    assert match in capsys.readouterr().err and not server.bodies
