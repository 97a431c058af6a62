"""`./upkeep status`: what is said of a suite is true, whatever lies under the results."""

from __future__ import annotations

import os
import subprocess
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from host_fakes import ScriptedRuntime
from status_files import ECHO, SUITE, catalog, drawn, look, upkeep, view, write
from upkeep.batches import batches
from upkeep.catalog import Catalog
from upkeep.execution.status import HEARTBEAT_S, Reporter, read, read_all
from upkeep.execution.supervise import run_cell
from upkeep.jobs import Cell
from upkeep.layout import Layout
from upkeep.machine.ask import ask
from upkeep.machine.clock import now
from upkeep.operations.status import queue
from upkeep.operations.status.queue import Queue, Waiting
from upkeep.operations.status.states import Survey

__all__ = ["catalog"]


def ago(seconds: float) -> str:
    return (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat(timespec="milliseconds")


def dead_pid() -> int:
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


# ---------------------------------------------------------------- what is published


def test_a_suite_that_was_never_run_is_not_begun(catalog: Catalog) -> None:
    found = look(catalog)
    assert found.counts["not begun"] == 5 and sum(found.counts.values()) == 5
    assert any("./upkeep run mini" in line for line in found.next)


def test_a_published_cell_is_done_until_its_method_is_edited(catalog: Catalog) -> None:
    run_cell(catalog, ECHO, runtime=ScriptedRuntime())
    found = look(catalog)
    assert view(found).state == "done" and found.seconds > 0
    (catalog.root / "methods/echo/method.py").write_text("# edited\n")
    assert view(look(Catalog(catalog.root))).state == "stale"


def test_a_manifest_that_is_no_manifest_is_not_done(catalog: Catalog) -> None:
    run_cell(catalog, ECHO, runtime=ScriptedRuntime())
    manifest = Layout(catalog.results).cell(ECHO) / "manifest.json"
    whole = manifest.read_bytes()
    for size in (0, 1, len(whole) // 2, len(whole) - 3):
        manifest.write_bytes(whole[:size])
        found = view(look(catalog))
        assert found.state == "stale" and "manifest.json" in found.reason, "damaged, so it is made again"


def test_when_all_is_done_the_report_is_next(catalog: Catalog) -> None:
    for name in ("echo/a", "echo/b", "guided/a", "guided/b", "guided/c"):
        run_cell(catalog, Cell.parse(f"toy/{name}/none"), runtime=ScriptedRuntime())
    found = look(catalog)
    assert found.counts["done"] == 5 and {job.state for job in found.jobs} == {"done"}
    assert found.next[0].startswith("./upkeep run mini ")
    layout = Layout(catalog.results)
    page = layout.report("mini")
    page.parent.mkdir(parents=True)
    page.write_text("<html>")
    layout.scores_record("mini").parent.mkdir(parents=True)
    for text, said in (
        ('{"suite": "mini"}', f"{page} "),
        ('{"suite": "another"}', "./upkeep run mini "),
        ("{", "./upkeep run mini "),
    ):
        layout.scores_record("mini").write_text(text)
        assert look(catalog).next[0].startswith(said), text
    layout.scores_record("mini").write_text('{"suite": "mini"}')
    os.utime(page, (1, 1))
    assert look(catalog).next[0].startswith("./upkeep run mini "), "a cell was run again since"


# ---------------------------------------------------------------- what runs


def test_a_job_of_a_living_process_runs(catalog: Catalog) -> None:
    write(catalog, done=3)
    found = look(catalog)
    assert (view(found).state, view(found).done) == ("running", 3)
    assert any("--watch" in line for line in found.next)


def test_a_job_whose_process_is_gone_was_interrupted(catalog: Catalog) -> None:
    write(catalog, pid=dead_pid())
    found = view(look(catalog))
    assert (found.state, found.kind) == ("interrupted", "interrupted")
    assert "is gone" in found.reason


def test_a_process_that_was_given_the_number_later_is_another_one(catalog: Catalog) -> None:
    write(catalog, started=ago(10 * 365 * 86400))
    assert view(look(catalog)).state == "interrupted"


@pytest.mark.parametrize(
    ("state", "silent", "shown"),
    [
        ("running", 30, "running"),
        ("running", 900, "interrupted"),
        ("starting", 900, "running"),
        ("publishing", 900, "running"),
        ("starting", 86400, "interrupted"),
    ],
)
def test_a_silent_job_of_another_machine_was_interrupted(
    catalog: Catalog, state: str, silent: float, shown: str
) -> None:
    write(catalog, node="elsewhere", pid=1, state=state, updated=ago(silent))
    assert view(look(catalog)).state == shown


def test_the_queue_knows_better_than_silence(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "_squeue", lambda *_: Queue())
    write(catalog, node="elsewhere", job="17", updated=ago(900))
    assert view(look(catalog, Queue([Waiting("17", "RUNNING", "n1", "", "rule_x")]))).state == "running"
    write(catalog, node="elsewhere", job="17")
    assert view(look(catalog, Queue())).state == "interrupted"
    requeued = view(look(catalog, Queue([Waiting("17", "PENDING", "", "Priority", "rule_x")])))
    assert (requeued.state, requeued.reason) == ("queued", "Priority")


def test_jobs_of_other_users_are_asked_for_by_number(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []

    def squeue(*options: str) -> Queue:
        asked.append(options)
        return Queue([Waiting("17", "RUNNING", "n1", "", "rule_x")])

    monkeypatch.setattr(queue, "_squeue", squeue)
    write(catalog, node="elsewhere", job="17", updated=ago(900))
    assert view(look(catalog, Queue())).state == "running"
    assert asked == [("--jobs", "17")]


def test_cells_of_a_batch_that_waits_are_queued(catalog: Catalog) -> None:
    cells = catalog.cells(catalog.suite("mini"))
    (batch,) = batches(catalog, cells)
    found = look(catalog, Queue([Waiting("9", "PENDING", "", "Resources", f"rule_batch {batch.name}")]))
    assert found.counts["queued"] == 5 and found.queued_jobs == 1
    assert {job.job for job in found.jobs} == {"9"}


def test_cells_behind_the_running_one_of_a_batch_wait_for_their_turn(catalog: Catalog) -> None:
    write(catalog, Cell("toy", "echo", "b", "none"))
    found = look(catalog)
    assert view(found, ECHO).state == "not begun"
    assert [view(found, f"toy/guided/{v}/none").state for v in "abc"] == ["queued"] * 3


# ---------------------------------------------------------------- rate and time left


def test_nothing_is_foretold_before_there_is_progress(catalog: Catalog) -> None:
    for fields in ({}, {"done": 40}, {"done": 40, "first": now(), "first_done": 40}):
        write(catalog, **fields)
        assert (view(look(catalog)).per_second, view(look(catalog)).left_s) == (None, None)


def test_time_left_is_what_remains_at_the_rate_since_the_first_record(catalog: Catalog) -> None:
    write(catalog, done=60, first_done=10, first=ago(100), updated=now())
    found = view(look(catalog))
    assert found.per_second == pytest.approx(0.5, rel=0.05)
    assert found.left_s == pytest.approx(80, rel=0.1)


def test_the_rate_leaves_out_what_an_earlier_run_had_done(tmp_path: Path) -> None:
    report = Reporter(tmp_path / "s.json", "x")
    report.say("running", 50, 100)
    assert read(tmp_path / "s.json").first is None  # type: ignore[union-attr]
    report.say("running", 55, 100)
    report.end("publishing")
    status = read(tmp_path / "s.json")
    assert status is not None and status.first is not None
    assert (status.done, status.first_done) == (55, 55)


def test_a_job_that_says_much_writes_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moment = [0.0]
    monkeypatch.setattr("upkeep.execution.status.time.monotonic", lambda: moment[0])
    written: list[int] = []
    monkeypatch.setattr("upkeep.execution.status.write_atomically", lambda *_: written.append(1))
    report = Reporter(tmp_path / "s.json", "x")
    for tick in range(6000):  # a minute, a hundred times a second
        moment[0] = tick / 100
        report.say("running", tick, 6000)
    assert 25 <= len(written) <= 35
    written.clear()
    for tick in range(6000):
        moment[0] = 60 + tick / 100
        report.say("running", 6000, 6000)
    assert 60 / HEARTBEAT_S - 1 <= len(written) <= 60 / HEARTBEAT_S + 2


# ---------------------------------------------------------------- what may lie there


def test_a_status_cut_short_anywhere_is_as_none(catalog: Catalog) -> None:
    path = write(catalog, state="failed", kind="time", message="x")
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        assert read(path) is None
    for garbage in (b"\xff\xfe", b"[]", b"null", b'{"name": 1}', b"[" * 100_000):
        path.write_bytes(garbage)
        assert view(look(catalog)).state == "not begun"
    assert list(read_all(catalog.results / "status")) == []


def test_folders_and_links_in_the_place_of_files_are_nothing(catalog: Catalog) -> None:
    layout = Layout(catalog.results)
    for place, make in (
        (layout.status("cells", ECHO), Path.mkdir),
        (layout.cell(ECHO) / "manifest.json", Path.mkdir),
        (layout.status("cells", "toy/echo/b/none"), lambda p: p.symlink_to("nowhere")),
        (layout.cell("toy/echo/b/none"), lambda p: p.write_text("a file")),
    ):
        place.parent.mkdir(parents=True, exist_ok=True)
        make(place)
    counts = look(catalog).counts
    assert (counts["not begun"], counts["stale"]) == (3, 2), "what is published and no publication is made again"


def test_five_thousand_cells_cost_two_files_each(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    card = catalog.root / "methods/echo/method.yaml"
    variants = ", ".join(f"v{i}: {{}}" for i in range(5000))
    card.write_text(card.read_text().replace("{a: {n: 1}, b: {n: 2}}", f"{{{variants}}}"))
    (catalog.root / "config/suites/mini.yaml").write_text(SUITE.replace("echo, guided", "echo"))
    opened: list[Path] = []
    read_bytes = Path.read_bytes

    def counted(path: Path) -> bytes:
        opened.append(path)
        return read_bytes(path)

    fresh = Catalog(catalog.root)
    monkeypatch.setattr(Path, "read_bytes", counted)
    found = look(fresh)
    assert found.counts["not begun"] == 5000
    assert sum(path.is_relative_to(fresh.results) for path in opened) <= 2 * 5000 + 10


@pytest.mark.parametrize(
    "script",
    ["exit 1", "echo 'slurm_load_jobs error: Unable to contact controller' >&2; exit 1", "head -c 100000 /dev/urandom",
     "echo '17|RUNNING'; echo '|||||||'; echo '17|PENDING|n|r|rule_batch x'", "kill -9 $$", "exec cat /dev/zero"],
)  # fmt: skip
def test_a_broken_queue_is_said_and_does_not_stop_the_rest(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    clients = tmp_path / "bin"
    clients.mkdir()
    (clients / "squeue").write_text(f"#!/bin/sh\n{script}\n")
    (clients / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", str(clients), prepend=os.pathsep)
    found = look(catalog, Queue.ask())
    assert found.counts["not begun"] == 5
    drawn(found)


def test_a_queue_that_hangs_is_given_up_and_ended_with_all_it_started(tmp_path: Path) -> None:
    script = tmp_path / "hangs"
    script.write_text(f"#!/bin/sh\nsleep 1000 & echo $! > {tmp_path}/child\nwait\n")
    script.chmod(0o755)
    answer = ask(str(script), timeout_s=0.5)
    assert not answer and "does not answer" in str(answer.problem)
    child = int((tmp_path / "child").read_text())
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and _runs(child):
        time.sleep(0.01)
    assert not _runs(child)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


# ---------------------------------------------------------------- the command


def test_the_command_works_from_any_folder_for_people_and_for_programs(catalog: Catalog) -> None:
    write(catalog, state="failed", kind="time", message="not done in time")
    told, data = upkeep(catalog, "status"), upkeep(catalog, "status", "--json")
    assert told.returncode == data.returncode == 0, told.stderr + data.stderr
    assert "1 failed" in told.stdout and "\x1b" not in told.stdout
    assert not any(line != line.rstrip() for line in told.stdout.splitlines())
    assert msgspec.json.decode(data.stdout, type=Survey).counts["failed"] == 1
