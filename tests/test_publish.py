"""What is published was read afresh, is complete, is made of the records alone, and appears at once or not at all."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import msgspec
import polars as pl
import pytest

from upkeep.contract import ContextUse, Environment, Fingerprint, Manifest, Measured, Prediction, Usage
from upkeep.errors import UpkeepError
from upkeep.execution import publish
from upkeep.execution.publish import publish_cell, publish_model
from upkeep.integrity import verify_folder, write_sealed
from upkeep.operations.validate import validate_path
from upkeep.scope import Answers

SCOPE = Answers([f"q{i}@0" for i in range(6)], 2)
LIMIT = 1 << 20


def draft() -> Manifest:
    environment = Environment(
        runtime="process", isolated=False, image=None, digest=None, engine="none", engine_version="", packages={},
        hardware={},
    )  # fmt: skip
    return Manifest(
        cell="d/m/v/none", identity="0" * 64, identity_parts={}, environment=environment, seed=0, start="", end="",
        attempts=[], probes=0, trials=2, outcomes={}, usage=Usage(), measured={}, files={},
    )  # fmt: skip


def prediction(probe: str, trial: int, latency: float = 0.5) -> Prediction:
    return Prediction(
        probe_id=probe, trial=trial, response="x", reasoning=None,
        finish_reason="stop", retrieved=[], usage=Usage(prompt=10, completion=2, calls=1), context=ContextUse(),
        error="broken" if probe == "q5@0" else None, measured=Measured(latency_s=latency, cached=4),
    )  # fmt: skip


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "predictions.jsonl"
    write(path, seed=0)
    return path


def write(path: Path, seed: int) -> None:
    """The predictions in some order, with some latencies, in some layout of JSON."""
    rng = random.Random(seed)
    records = [prediction(p, t, rng.random()) for p in SCOPE.probes for t in (0, 1)]
    rng.shuffle(records)
    lines = [json.dumps(msgspec.to_builtins(r), indent=None, separators=(", ", " : ")) for r in records]
    path.write_text("\n".join(lines) + "\n")


def run(source: Path, target: Path) -> Manifest:
    return publish_cell(source, SCOPE, draft(), target.parent / "staging", target, LIMIT)


def test_published_predictions_do_not_depend_on_order_layout_or_latency(source: Path, tmp_path: Path) -> None:
    run(source, tmp_path / "one")
    write(source, seed=1)
    run(source, tmp_path / "two")
    first, second = ((tmp_path / name / "predictions.jsonl").read_bytes() for name in ("one", "two"))
    assert first == second
    keys = [(p["probe_id"], p["trial"]) for p in map(json.loads, first.splitlines())]
    assert keys == [(probe, trial) for probe in SCOPE.probes for trial in (0, 1)]


def test_what_was_measured_is_kept_apart(source: Path, tmp_path: Path) -> None:
    manifest = run(source, tmp_path / "out")
    lines = (tmp_path / "out/predictions.jsonl").read_bytes().splitlines()
    assert all(json.loads(line)["measured"] is None for line in lines)
    measured = pl.read_parquet(tmp_path / "out/measured.parquet")
    assert measured["probe_id"].to_list() == [p for p in SCOPE.probes for _ in (0, 1)]
    assert measured["cached"].sum() == manifest.measured["cached_prompt_tokens"] == 48
    assert manifest.measured["computed_prompt_tokens"] == 120 - 48
    assert manifest.measured["latency_s"] == pytest.approx(measured["latency_s"].sum())


def test_prediction_without_measurements_is_published_too(source: Path, tmp_path: Path) -> None:
    records = [msgspec.structs.replace(prediction(p, t), measured=None) for p in SCOPE.probes for t in (0, 1)]
    source.write_bytes(msgspec.json.Encoder().encode_lines(records))
    assert run(source, tmp_path / "out").measured["cached_prompt_tokens"] == 0
    assert pl.read_parquet(tmp_path / "out/measured.parquet")["latency_s"].null_count() == 12


def test_manifest_counts_outcomes_and_hashes_files(source: Path, tmp_path: Path) -> None:
    manifest = run(source, tmp_path / "out")
    assert manifest.outcomes == {"answered": 10, "error": 2}
    assert manifest.usage == Usage(prompt=120, completion=24, calls=12)
    assert (manifest.probes, manifest.trials) == (6, 2)
    assert verify_folder(tmp_path / "out") == manifest
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
        "manifest.json",
        "measured.parquet",
        "predictions.jsonl",
    ]


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda data: data[:-20], "truncated last line"),
        (lambda data: data.rpartition(b"\n{")[0] + b"\n", "1 of 12 records are missing"),
        (lambda data: data + data.splitlines(keepends=True)[3], "a second line"),
        (lambda data: data.replace(b'"q3@0"', b'"q7@0"'), "unknown probe"),
        (lambda data: data.replace(b'"x"', b'"\xff"', 1), "invalid UTF-8"),
        (lambda data: data.replace(b" : 10", b" : NaN", 1), "not a number"),
        (lambda data: data.replace(b" : 10", b' : "10"', 1), "wrong type"),
        (lambda data: data + b" " * 2 * LIMIT, "file too large"),
    ],
)  # fmt: skip
def test_malformed_file_publishes_nothing_and_leaves_what_was_published(
    source: Path, tmp_path: Path, damage: object, problem: str
) -> None:
    run(source, tmp_path / "out")
    before = {p.name: p.read_bytes() for p in (tmp_path / "out").iterdir()}
    source.write_bytes(damage(source.read_bytes()))  # type: ignore[operator]
    for target in ("out", "new"):
        with pytest.raises(UpkeepError, match=problem) as caught:
            run(source, tmp_path / target)
        assert "predictions.jsonl" in str(caught.value.where)
    assert {p.name: p.read_bytes() for p in (tmp_path / "out").iterdir()} == before
    assert not (tmp_path / "new").exists()


def test_link_and_pipe_are_not_published(source: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(source)
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe"):
        with pytest.raises(UpkeepError, match="cannot be read"):
            run(tmp_path / name, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_output_that_changes_after_it_was_copied_does_not_matter(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = publish.check_file

    def check_then_change(*arguments: object) -> object:
        index = original(*arguments)  # type: ignore[arg-type]
        source.write_text("something else\n")
        return index

    run(source, tmp_path / "honest")
    monkeypatch.setattr(publish, "check_file", check_then_change)
    run(source, tmp_path / "out")
    assert (tmp_path / "out/predictions.jsonl").read_bytes() == (tmp_path / "honest/predictions.jsonl").read_bytes()


def test_published_folder_is_replaced_as_a_whole(source: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/stale").touch()
    run(source, tmp_path / "out")
    assert not (tmp_path / "out/stale").exists()
    assert not (tmp_path / "staging").exists()


def test_counts_beyond_all_measure_are_refused(source: Path, tmp_path: Path) -> None:
    source.write_bytes(source.read_bytes().replace(b" : 10", b" : 9007199254740991"))
    with pytest.raises(UpkeepError, match="totals beyond"):
        run(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_manifest_that_does_not_agree_with_its_files_is_refused(source: Path, tmp_path: Path) -> None:
    folder = tmp_path / "results/cells/d/m/v/none"
    run(source, folder)
    assert "completeness unchecked" in validate_path(folder)
    (folder / "extra").touch()
    with pytest.raises(UpkeepError, match="that nothing names"):
        validate_path(folder)
    (folder / "extra").unlink()
    data = (folder / "predictions.jsonl").read_bytes()
    (folder / "predictions.jsonl").write_bytes(data.replace(b'"x"', b'"y"', 1))
    with pytest.raises(UpkeepError, match="not the file that was written") as caught:
        validate_path(folder)
    assert caught.value.expected != caught.value.found
    (folder / "predictions.jsonl").unlink()
    (folder / "predictions.jsonl").symlink_to("/etc/passwd")
    with pytest.raises(UpkeepError, match="cannot be read"):
        validate_path(folder)


def test_manifest_cannot_name_files_elsewhere(source: Path, tmp_path: Path) -> None:
    run(source, tmp_path / "out")
    path = tmp_path / "out/manifest.json"
    forged = msgspec.json.decode(path.read_bytes(), type=Manifest)
    forged.files["../predictions.jsonl"] = Fingerprint(size=0, sha256="0" * 64)
    write_sealed(path, forged)
    with pytest.raises(UpkeepError, match="outside the folder"):
        verify_folder(tmp_path / "out")


def test_model_larger_than_allowed_is_not_published(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    (model / "model.safetensors").write_bytes(b"x" * 1000)
    (model / "part").mkdir()
    (model / "part" / "tokenizer.json").write_text("{}")
    with pytest.raises(UpkeepError, match="file too large"):
        publish_model(model, [], draft(), tmp_path / "staging", tmp_path / "out", 500)
    assert not (tmp_path / "out").exists()
    manifest = publish_model(model, [], draft(), tmp_path / "staging", tmp_path / "out", 5000)
    assert set(manifest.files) == {"model/config.json", "model/model.safetensors", "model/part/tokenizer.json"}
