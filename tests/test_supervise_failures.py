"""Containers that die, stand still or take too long are ended and continued, or not."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from host_fakes import ScriptedRuntime, write_toy
from supervised_cells import ECHO, RECORDS, assert_nothing_published, catalog, predictions, status
from upkeep.catalog import Catalog
from upkeep.errors import UpkeepError
from upkeep.execution import job as supervised
from upkeep.execution import rounds
from upkeep.execution.supervise import run_cell
from upkeep.execution.watch import Limits

__all__ = ["catalog"]


# ---------------------------------------------------------------- a container that fails


def test_container_that_dies_is_continued_after_its_last_whole_line(catalog: Catalog) -> None:
    runtime = ScriptedRuntime("die", 23, once=True)
    manifest = run_cell(catalog, ECHO, runtime=runtime)
    assert runtime.starts == 2
    assert [(a.outcome, a.lines) for a in manifest.attempts] == [("failed", 23), ("complete", RECORDS)]
    assert "exit status 9\nsomething broke" in str(manifest.attempts[0].reason)
    assert len(predictions(catalog)) == RECORDS


def test_container_that_dies_without_progress_is_not_tried_again(catalog: Catalog) -> None:
    runtime = ScriptedRuntime("die", 0)
    with pytest.raises(UpkeepError, match=r"ended early, with 0 of 60 records done") as caught:
        run_cell(catalog, ECHO, runtime=runtime)
    assert runtime.starts == 1
    assert "something broke" in str(caught.value.found)
    assert "continues" in str(caught.value.remedy)
    assert_nothing_published(catalog)
    assert status(catalog) == "failed"


def test_next_command_continues_where_a_failed_one_stood(catalog: Catalog) -> None:
    with pytest.raises(UpkeepError):
        run_cell(catalog, ECHO, runtime=ScriptedRuntime("die", 40), retries=0)
    manifest = run_cell(catalog, ECHO, runtime=ScriptedRuntime("die", 10, once=True))
    assert [a.lines for a in manifest.attempts] == [40, 50, RECORDS]


WATCHED = """
log = open({log!r}, "a", buffering=1)
log.write("started\\n")
rounds = sys.stdin
ids = lambda line: json.dumps([d["id"] for d in json.loads(line)["documents"]])
sys.stdin = (log.write(ids(line) + "\\n") and line for line in rounds)
"""


@pytest.mark.parametrize("most", [1, 1000])
@pytest.mark.parametrize("at", [1, 23, 59])
def test_container_that_starts_again_is_fed_from_the_first_document_on_in_the_same_portions(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int, most: int
) -> None:
    monkeypatch.setattr(rounds, "MAX_DOCUMENTS", most)
    monkeypatch.setattr(rounds.stranded, "__defaults__", (4, 1))  # a round is soon full
    log = tmp_path / "fed"
    watched = WATCHED.format(log=str(log))
    run_cell(catalog, ECHO, runtime=ScriptedRuntime(extra=watched))
    (whole,) = fed(log)
    assert len(whole) > 3
    log.unlink()
    manifest = run_cell(catalog, ECHO, force=True, runtime=ScriptedRuntime("die", at, extra=watched, once=True))
    assert [a.lines for a in manifest.attempts] == [at, RECORDS]
    first, second = fed(log)
    assert second == whole, "also what has all its predictions"
    assert first == whole[: len(first)]


def fed(log: Path) -> list[list[str]]:
    """What each container was given, a line a round."""
    return [part.splitlines() for part in log.read_text().split("started\n")[1:]]


PLANTING = """
given = [cell["output"], os.path.dirname(sys.argv[1])]
for folder in given:
    for parent, _, names in os.walk(folder):
        for name in names:
            text = open(os.path.join(parent, name)).read()
            if "planted" in text or "probe_id" in text:
                print("found", os.path.join(parent, name), flush=True)
                os._exit(7)
os.makedirs(os.path.join(cell["output"], ".hidden", "deep"))
for place in ("usage.json", "notes", ".hidden/notes", ".hidden/deep/predictions.jsonl"):
    open(os.path.join(cell["output"], place), "w").write("planted")
os.symlink(path, os.path.join(cell["output"], "link"))
USED = os.path.join(cell["output"], "usage.json")
"""


@pytest.mark.parametrize("how", ["the same supervisor", "another supervisor"])
def test_container_that_starts_again_finds_no_trace_of_the_one_before(catalog: Catalog, how: str) -> None:
    """What it could find, it could answer from; so its folders are as a first container's."""
    planting = {"extra": PLANTING, "after": "os.unlink(USED)"}
    first = ScriptedRuntime("die", 23, once=True, **planting)
    if how == "another supervisor":
        with pytest.raises(UpkeepError):
            run_cell(catalog, ECHO, runtime=first, retries=0)
        first = ScriptedRuntime(**planting)
    manifest = run_cell(catalog, ECHO, runtime=first)
    assert [(a.outcome, a.lines) for a in manifest.attempts] == [("failed", 23), ("complete", RECORDS)]


def test_line_for_what_an_earlier_container_has_answered_is_refused(catalog: Catalog) -> None:
    with pytest.raises(UpkeepError):
        run_cell(catalog, ECHO, runtime=ScriptedRuntime("die", 23), retries=0)
    other = "json.dumps(record | {'probe_id': 'a0@0', 'trial': 0, 'response': 'better', 'retrieved': []}).encode()"
    with pytest.raises(UpkeepError, match="a second line for probe 'a0@0', trial 0") as caught:
        run_cell(catalog, ECHO, runtime=ScriptedRuntime("raw", 0, raw=other + " + b'\\n'"))
    assert str(caught.value.where).endswith("predictions.jsonl:1")
    assert_nothing_published(catalog)
    run_cell(catalog, ECHO, runtime=ScriptedRuntime())
    assert not any(p["response"] == "better" for p in predictions(catalog))


def test_container_whose_model_answers_does_not_stand_still(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """As while documents are taken in, when no prediction comes for long."""
    slow = "time.sleep(1.2)"
    with pytest.raises(UpkeepError, match=r"nothing new for 0\.4 s"):
        run_cell(catalog, ECHO, runtime=ScriptedRuntime(extra=slow), limits=Limits(stall_s=0.4))
    monkeypatch.setattr(supervised.SupervisedJob, "progress", property(lambda _: int(10 * time.monotonic())))
    manifest = run_cell(catalog, ECHO, runtime=ScriptedRuntime(extra=slow), limits=Limits(stall_s=0.4))
    assert manifest.attempts[-1].outcome == "complete"


SPENT = """
spent = {"cpu_s": 1, "wall_s": 2, "peak_memory_mb": 3, "arrival": {"prompt": 50, "completion": 6, "calls": CALLS}}
json.dump(spent, open(os.path.join(cell["output"], "usage.json"), "w"))
"""


@pytest.mark.parametrize("calls", [0, 4])
def test_what_was_asked_as_documents_arrived_is_in_the_manifest_and_no_predictions(
    catalog: Catalog, calls: int
) -> None:
    manifest = run_cell(catalog, ECHO, runtime=ScriptedRuntime(after=SPENT.replace("CALLS", str(calls))))
    found = {name: value for name, value in manifest.measured.items() if name.startswith("arrival_")}
    assert found == ({"arrival_prompt": 50, "arrival_completion": 6, "arrival_calls": 4} if calls else {})
    assert manifest.usage.calls == RECORDS


def test_what_a_container_says_it_has_used_is_validated(catalog: Catalog) -> None:
    with pytest.raises(UpkeepError) as caught:
        run_cell(catalog, ECHO, runtime=ScriptedRuntime(after=SPENT.replace("CALLS", "-1")))
    assert "usage.json" in str(caught.value.where)
    assert_nothing_published(catalog)


def test_work_of_another_identity_is_not_continued(catalog: Catalog) -> None:
    with pytest.raises(UpkeepError):
        run_cell(catalog, ECHO, runtime=ScriptedRuntime("die", 40), retries=0)
    write_toy(catalog, "other text")
    manifest = run_cell(catalog, ECHO, runtime=ScriptedRuntime())
    assert [a.lines for a in manifest.attempts] == [RECORDS]
    assert all("other text" in str(p["response"]) for p in predictions(catalog))


def test_exit_code_zero_proves_nothing(catalog: Catalog) -> None:
    with pytest.raises(UpkeepError, match="ended early, with 0 of 60"):
        run_cell(catalog, ECHO, runtime=ScriptedRuntime(extra="sys.exit(0)"))
    assert_nothing_published(catalog)


def test_exit_code_after_the_last_record_is_on_record_and_no_failure(catalog: Catalog) -> None:
    manifest = run_cell(catalog, ECHO, runtime=ScriptedRuntime(after="sys.exit(4)"))
    assert "exit status 4" in str(manifest.attempts[0].reason)


def test_container_that_does_not_end_is_ended(catalog: Catalog) -> None:
    runtime = ScriptedRuntime(after="time.sleep(3600)")
    manifest = run_cell(catalog, ECHO, runtime=runtime, limits=Limits(exit_s=0.05))
    assert "did not end" in str(manifest.attempts[0].reason)


def test_container_that_stands_still_is_ended_and_continued(catalog: Catalog) -> None:
    runtime = ScriptedRuntime("hang", 12, once=True)
    manifest = run_cell(catalog, ECHO, runtime=runtime, limits=Limits(stall_s=0.5))
    assert "nothing new for 0.5 s" in str(manifest.attempts[0].reason)
    assert manifest.attempts[0].lines == 12


def test_container_that_takes_too_long_is_ended(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = ScriptedRuntime("hang", 12)
    monkeypatch.setattr(supervised, "MINUTE_S", 0.002)
    with pytest.raises(UpkeepError, match="not done in time") as caught:
        run_cell(catalog, ECHO, runtime=runtime)
    assert "240 minutes" in str(caught.value.expected)
    assert_nothing_published(catalog)
