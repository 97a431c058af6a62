"""A container that lies: hostile lines and outputs are refused, and nothing is published."""

from __future__ import annotations

from pathlib import Path

import pytest

from host_fakes import ScriptedRuntime
from supervised_cells import ECHO, assert_nothing_published, catalog, status
from upkeep.catalog import Catalog
from upkeep.contract import MAX_LINE_BYTES
from upkeep.errors import UpkeepError
from upkeep.execution.supervise import run_cell
from upkeep.execution.watch import Limits, Tail

__all__ = ["catalog"]

HOSTILE = {
    "invalid utf-8": ("raw.replace(b'stop', b'st\\xff')", "invalid UTF-8"),
    "not json": ("b'hello\\n'", "not JSON"),
    "nan": ("raw.replace(b'0.5', b'NaN')", "field `score`: not a number"),
    "wrong type": ("raw.replace(b'\"stop\"', b'3')", "field `finish_reason`: wrong type"),
    "duplicate": ("raw + raw", "a second line for probe"),
    "unknown probe": ('raw.replace(b\'"probe_id": "\', b\'"probe_id": "z\')', "unknown probe"),
    "later probe": (
        "json.dumps(record | {'probe_id': 'a0@5', 'retrieved': []}).encode() + b'\\n'",
        "a line for probe 'a0@5', trial 1",
    ),
    "unknown document": ("raw.replace(b'_c', b'_x', 1)", "field `retrieved[0].id`: unknown document"),
    "later document": ("raw.replace(b'_c0', b'_c3', 1)", "field `retrieved[0].id`: this document had not arrived"),
    "trial out of range": ("raw.replace(b'\"trial\": ', b'\"trial\": 9')", "no such trial"),
    "line too long": ("b' ' * (9 << 20)", "line too long"),
}

# ---------------------------------------------------------------- a container that lies


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_line_is_refused_with_file_and_line_and_nothing_is_published(catalog: Catalog, kind: str) -> None:
    raw, problem = HOSTILE[kind]
    runtime = ScriptedRuntime("raw", 7, raw=raw)
    with pytest.raises(UpkeepError) as caught:
        run_cell(catalog, ECHO, runtime=runtime)
    assert problem in caught.value.problem
    assert str(caught.value.where).endswith("predictions.jsonl:9" if kind == "duplicate" else "predictions.jsonl:8")
    assert caught.value.remedy
    assert runtime.starts == 1, "who lies is not asked again"
    assert_nothing_published(catalog)
    assert status(catalog) == "failed"


def test_a_line_that_is_too_long_is_refused_though_its_end_is_seen_at_once(tmp_path: Path) -> None:
    path = tmp_path / "predictions.jsonl"
    path.write_bytes(b"{}\n" + b" " * (MAX_LINE_BYTES // 2))
    tail = Tail(path, 2**30)
    assert tail.new() == [b"{}\n"]
    with path.open("ab") as file:
        file.write(b" " * (MAX_LINE_BYTES // 2) + b"{}\n")
    with pytest.raises(UpkeepError, match="line too long") as caught:
        tail.new()
    assert caught.value.where == f"{path}:2"


@pytest.mark.parametrize(
    ("fault", "problem"),
    [("fill", "the writable folder is too large"), ("shrink", "has shrunk"), ("long", "line too long")],
)
def test_bounds_of_the_output_are_enforced(catalog: Catalog, fault: str, problem: str) -> None:
    with pytest.raises(UpkeepError, match=problem):
        run_cell(catalog, ECHO, runtime=ScriptedRuntime(fault, 13), limits=Limits(stall_s=30))
    assert_nothing_published(catalog)


def test_output_that_becomes_a_link_is_refused_and_not_followed(catalog: Catalog) -> None:
    with pytest.raises(UpkeepError, match=r"the output was replaced(.|\n)*a symbolic link"):
        run_cell(catalog, ECHO, runtime=ScriptedRuntime("link", 13))
    assert_nothing_published(catalog)


def test_torn_line_after_the_last_record_is_refused(catalog: Catalog) -> None:
    with pytest.raises(UpkeepError, match="truncated last line"):
        run_cell(catalog, ECHO, runtime=ScriptedRuntime(after="os.write(out, b'{\"probe')"))
    assert_nothing_published(catalog)


def test_manifest_of_a_container_is_not_looked_at(catalog: Catalog) -> None:
    write = "open(os.path.join(cell['output'], 'manifest.json'), 'w').write('{}')"
    assert run_cell(catalog, ECHO, runtime=ScriptedRuntime(extra=write)).cell == str(ECHO)


@pytest.mark.parametrize("report", ["'{}'", "'x' * 2_000_000", "'{\"engine\": NaN}'"])
def test_report_about_the_machine_is_validated_too(catalog: Catalog, report: str) -> None:
    write = f"open(os.path.join(cell['output'], 'engine.json'), 'w').write({report})"
    with pytest.raises(UpkeepError) as caught:
        run_cell(catalog, ECHO, runtime=ScriptedRuntime(extra=write))
    assert "engine.json" in str(caught.value.where)
