"""`./upkeep status` and `./upkeep logs`: what is said of a suite is true, whatever lies under the results."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from conftest import ROOT
from host_fakes import ScriptedRuntime, make_repository
from upkeep.batches import batches
from upkeep.catalog import Catalog
from upkeep.errors import KINDS, UpkeepError
from upkeep.execution.status import HEARTBEAT_S, Reporter, Status, read, read_all
from upkeep.execution.supervise import run_cell
from upkeep.jobs import Cell
from upkeep.layout import Layout
from upkeep.machine.ask import ask
from upkeep.machine.clock import now
from upkeep.operations import logs
from upkeep.operations.status import queue
from upkeep.operations.status.queue import Queue, Waiting
from upkeep.operations.status.states import JobView, Survey
from upkeep.operations.status.survey import survey
from upkeep.operations.status.terminal import Shown
from upkeep.report import waiting
from upkeep.text import printable, short

ECHO = Cell("toy", "echo", "a", "none")
NO_QUEUE = Queue(there=False)
SUITE = "{label: l, summary: s, papers: [], cells: [{datasets: [toy], methods: [echo, guided], models: [none]}]}"


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    """Cells echo/{a,b} and guided/{a,b,c}."""
    make_repository(tmp_path)
    (tmp_path / "config/suites/mini.yaml").write_text(SUITE)
    return Catalog(tmp_path)


def look(catalog: Catalog, queue: Queue = NO_QUEUE) -> Survey:
    return survey(catalog, "mini", queue)


def view(found: Survey, cell: object = ECHO, of: str = "cells") -> JobView:
    (one,) = [job for job in found.jobs if job.name == str(cell) and job.of == of]
    return one


def drawn(found: Survey, each: bool = False) -> str:
    console = Console(width=300, color_system=None, force_terminal=False)
    with console.capture() as text:
        console.print(Shown(found, each=each))
    return text.get()


def ago(seconds: float) -> str:
    return (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat(timespec="milliseconds")


def write(catalog: Catalog, cell: Cell = ECHO, **fields: object) -> Path:
    """A status as a job of this process would leave it, but for some fields."""
    status = Status(
        name=str(cell), state="running", done=0, total=100, started=now(), updated=now(), pid=os.getpid(),
        node=platform.node(),
    )  # fmt: skip
    path = Layout(catalog.results).status("cells", cell)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(status, **fields)))
    return path


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
    layout.report.parent.mkdir(parents=True)
    layout.report.write_text("<html>")
    layout.scores_record.parent.mkdir(parents=True)
    for text, said in (
        ('{"suite": "mini"}', f"{layout.report} "),
        ('{"suite": "another"}', "./upkeep run mini "),
        ("{", "./upkeep run mini "),
    ):
        layout.scores_record.write_text(text)
        assert look(catalog).next[0].startswith(said), text
    layout.scores_record.write_text('{"suite": "mini"}')
    os.utime(layout.report, (1, 1))
    assert look(catalog).next[0].startswith("./upkeep run mini "), "a cell was run again since"


# ---------------------------------------------------------------- what failed


@pytest.mark.parametrize(
    ("runtime", "kind"),
    [
        (ScriptedRuntime("die", 10), "method"),
        (ScriptedRuntime("fill", 10), "disk"),
        (ScriptedRuntime("raw", 10, raw="b'{}\\n'"), "output"),
        (ScriptedRuntime("shrink", 10), "output"),
    ],
)
def test_a_failure_has_its_kind(catalog: Catalog, runtime: ScriptedRuntime, kind: str) -> None:
    with pytest.raises(UpkeepError) as raised:
        run_cell(catalog, ECHO, runtime=runtime, retries=0)
    assert raised.value.kind == kind
    found = view(look(catalog))
    assert (found.state, found.kind) == ("failed", kind)
    assert found.reason and str(ECHO) not in found.reason


def test_a_kill_from_outside_is_no_failure_of_the_method(catalog: Catalog) -> None:
    with pytest.raises(UpkeepError) as raised:
        run_cell(catalog, ECHO, runtime=ScriptedRuntime(extra="os.kill(os.getpid(), 9)"), retries=0)
    assert raised.value.kind == "interrupted"
    assert view(look(catalog)).state == "interrupted"


def test_a_missing_input_is_a_failure_of_that_kind(catalog: Catalog) -> None:
    (Layout(catalog.results).dataset("toy") / "card.json").unlink()
    with pytest.raises(UpkeepError):
        run_cell(catalog, ECHO, runtime=ScriptedRuntime())
    assert view(look(catalog)).kind == "input"


def test_a_mistake_of_the_suite_is_of_no_other_kind(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = ScriptedRuntime()
    monkeypatch.setattr(runtime, "start", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run_cell(catalog, ECHO, runtime=runtime)
    assert view(look(catalog)).kind == "other"


def test_failures_with_one_reason_are_shown_together_and_each_where_asked(catalog: Catalog) -> None:
    for name in ("a", "b"):
        cell = Cell("toy", "echo", name, "none")
        write(catalog, cell, state="failed", kind="memory", message=f"{cell}: killed\n  found: x")
    found = look(catalog)
    together, each = drawn(found), drawn(found, each=True)
    assert together.count("killed") == 1 and "2 jobs" in together
    assert each.count("killed") == 2 and "toy/echo/b/none" in each
    assert "resources.memory_gb in methods/echo/method.yaml" in together and "models/" not in together


def test_advice_names_the_card_that_a_preset_is_in(tmp_path: Path) -> None:
    make_repository(tmp_path)
    (tmp_path / "config/suites/mini.yaml").write_text(SUITE.replace("none", "m-p").replace(", guided", ""))
    method = tmp_path / "methods/echo/method.yaml"
    method.write_text(method.read_text().replace("model: false", "model: true"))
    card = tmp_path / "models/m/model.yaml"
    card.parent.mkdir(parents=True)
    card.write_text(
        "{label: M, summary: s, source: path, location: w, context_length: 9, presets: {p: {sampling: {}}}}"
    )
    catalog = Catalog(tmp_path)
    write(catalog, cell := Cell("toy", "echo", "a", "m-p"), state="failed", kind="memory", message=f"{cell}: killed")
    assert "methods/echo/method.yaml or models/m/model.yaml" in " ".join(look(catalog).next)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_advice_that_names_the_cell_it_is_about(catalog: Catalog, kind: str) -> None:
    state = "stopped" if kind == "interrupted" else "failed"
    write(catalog, state=state, kind=kind, message="x")
    found = look(catalog)
    assert view(found).state == ("interrupted" if kind == "interrupted" else "failed")
    assert found.next and all("{" not in line.replace("{none: US dollars}", "") for line in found.next)


def test_what_a_method_wrote_neither_styles_nor_steers_the_terminal(catalog: Catalog) -> None:
    write(catalog, state="failed", kind="method", message="[red]x[/red] [/] \x1b[2J\x1b]0;title\x07 \x9b31m \u202e")
    text = drawn(look(catalog), each=True)
    assert "[red]x[/red] [/]" in text
    assert not any(c in text for c in "\x1b\x07\x9b\u202e") and "title" not in text


def test_the_report_names_the_kind_too(catalog: Catalog) -> None:
    write(catalog, state="failed", kind="memory", message=f"{ECHO}: killed\x1b[31m")
    assert waiting._reason(catalog, ECHO, None) == f"failed (memory): {ECHO}: killed"


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "content",
    [
        *(b"", b'{"state": "fai', b"[]", b"7", b"null", b"{}", b"\xff", b"[" * 200_000, b'{"name":' * 200_000),
        *(b'{"state": "failed", "message": 5}', b'{"state": "failed", "message": "x"}', "pipe", "folder", "nowhere"),
    ],
    ids=lambda content: repr(content[:36]),
)
def test_a_status_that_is_none_tells_nothing_and_stops_nothing(catalog: Catalog, content: bytes | str) -> None:
    path = write(catalog)
    path.unlink()
    match content:
        case bytes():
            path.write_bytes(content)
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case _:
            path.symlink_to("/nowhere/at/all")
    assert read(path) is None and list(read_all(path.parent)) == []
    assert view(look(catalog)).state == "not begun"
    assert waiting._reason(catalog, ECHO, None).startswith(("not run", "dataset not available"))
    assert all(job.status is None for job in logs.logs_of(catalog, str(ECHO)))


def test_a_fresh_publication_counts_more_than_a_failure_of_before(catalog: Catalog) -> None:
    run_cell(catalog, ECHO, runtime=ScriptedRuntime())
    write(catalog, state="failed", kind="machine", message="disk full")
    assert view(look(catalog)).state == "done"


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


def upkeep(catalog: Catalog, *arguments: str, cwd: Path = Path("/")) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "upkeep", "--root", str(catalog.root), *arguments]
    return subprocess.run(
        command, cwd=cwd, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True, timeout=120
    )


def test_the_command_works_from_any_folder_for_people_and_for_programs(catalog: Catalog) -> None:
    write(catalog, state="failed", kind="time", message="not done in time")
    told, data = upkeep(catalog, "status"), upkeep(catalog, "status", "--json")
    assert told.returncode == data.returncode == 0, told.stderr + data.stderr
    assert "1 failed" in told.stdout and "\x1b" not in told.stdout
    assert not any(line != line.rstrip() for line in told.stdout.splitlines())
    assert msgspec.json.decode(data.stdout, type=Survey).counts["failed"] == 1


# ---------------------------------------------------------------- logs


def leave_log(catalog: Catalog, content: bytes, cell: object = ECHO, of: str = "cells") -> Path:
    log = Layout(catalog.results).log(of, cell)
    path = log.with_name(f"{log.stem}.container.log")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def shown(catalog: Catalog, cell: str = str(ECHO), full: bool = False) -> list[str]:
    return list(logs.show(catalog, cell, full=full, following=False))


def test_logs_say_where_they_lie_and_how_they_end(catalog: Catalog) -> None:
    with pytest.raises(UpkeepError):
        run_cell(catalog, ECHO, runtime=ScriptedRuntime("die", 10), retries=0)
    lines = shown(catalog)
    assert "failed" in lines[0] and "method:" in lines[0]
    assert any(line.endswith("none.container.log") for line in lines)
    assert lines[-1] == "something broke"


def test_escape_sequences_of_a_log_do_not_reach_the_terminal(catalog: Catalog) -> None:
    hostile = b"\x1b[31mred\x1b[0m \x1b]0;title\x07 \x1b]52;c;cGF3bmVk\x1b\\ \x9b2J"
    hostile += b"\x00\x08\x7f \xe2\x80\xae \xff\n10%\r20%\n"
    leave_log(catalog, hostile)
    for text in (
        "\n".join(shown(catalog)),
        "\n".join(shown(catalog, full=True)),
        upkeep(catalog, "logs", "echo/a").stdout,
    ):
        assert "red" in text and "20%" in text
        assert all(c.isprintable() or c in "\n\t" for c in text)
        assert "pawned" not in text and "cGF3" not in text and "title" not in text


def test_the_end_of_a_huge_log_is_shown_without_reading_it_all(catalog: Catalog) -> None:
    path = leave_log(catalog, b"first\n" + b"x" * 10_000_000 + b"\nlast\n")
    with path.open("ab") as file:
        file.truncate(50_000_000_000)  # sparse
    assert len("".join(logs.tail(path))) <= logs.BLOCK_BYTES


def test_the_whole_log_is_whole_whatever_its_lines(catalog: Catalog) -> None:
    content = b"a" * 200_000 + b"\n" + b"b\n" * 100_000 + b"\n\n" + b"c" * 70_000
    path = leave_log(catalog, content)
    assert "".join(logs.tail(path, None)).encode() == content.replace(b"\n", b"")


def test_a_part_of_a_name_is_enough_where_it_fits_one_alone(catalog: Catalog) -> None:
    leave_log(catalog, b"x", "toy/gone/a/none")
    assert logs.find(catalog, "toy/echo/a/none") == "toy/echo/a/none"
    assert logs.find(catalog, "echo/b") == "toy/echo/b/none"
    assert logs.find(catalog, "toy/gone") == "toy/gone/a/none"
    with pytest.raises(UpkeepError, match="2 jobs match"):
        logs.find(catalog, "echo")
    with pytest.raises(UpkeepError, match="did you mean toy/echo/a/none"):
        logs.find(catalog, "toy/ecoh/a/none")
    with pytest.raises(UpkeepError, match="6 jobs match"):
        logs.find(catalog, "")


def test_a_name_that_is_a_suffix_of_one_cell_means_that_cell(catalog: Catalog) -> None:
    leave_log(catalog, b"x", "toy/echo/a/none+sft.q")
    assert logs.find(catalog, "echo/a/none") == "toy/echo/a/none"


def test_a_cell_and_a_training_of_one_name_are_both_shown(catalog: Catalog) -> None:
    leave_log(catalog, b"of the cell\n", "toy/trainer/a/none")
    leave_log(catalog, b"of the training\n", "toy/trainer/a/none", "trained")
    lines = shown(catalog, "toy/trainer/a/none")
    assert "of the cell" in lines and "of the training" in lines


def test_a_cell_that_was_not_begun_says_so(catalog: Catalog) -> None:
    with pytest.raises(UpkeepError, match="not been begun"):
        shown(catalog)


def test_the_logs_of_batch_engine_and_slurm_job_are_shown(catalog: Catalog) -> None:
    layout = Layout(catalog.results)
    (batch,) = batches(catalog, catalog.cells(catalog.suite("mini")))
    slurm = catalog.root / ".snakemake/slurm_logs/rule_batch x/17.log"
    for path, text in (
        (layout.log("batches", batch.name), "of the batch"),
        (layout.log("engines", batch.name), "of the engine"),
        (slurm, "of the SLURM job"),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    write(catalog, state="failed", job="17")
    assert {"of the batch", "of the engine", "of the SLURM job"} <= set(shown(catalog))


def test_following_ends_with_the_job_and_misses_nothing(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "POLL_S", 0.01)
    path = leave_log(catalog, b"before\n")
    write(catalog)
    lines: list[str] = []
    seen = threading.Event()

    def read_on(source: Iterator[str]) -> None:
        for line in source:
            lines.append(line)
            if line in ("before", "one", "anew"):
                seen.set()

    thread = threading.Thread(
        target=read_on, args=(logs.show(catalog, str(ECHO), full=False, following=True),), daemon=True
    )
    thread.start()
    for step in (b"one\n", None, b"last"):
        assert seen.wait(30)
        seen.clear()
        if step is None:
            path.write_bytes(b"anew\n")  # the next attempt begins the log anew
        else:
            with path.open("ab") as file:
                file.write(step)
    write(catalog, state="done")
    thread.join(30)
    assert not thread.is_alive()
    assert [line for line in lines if line in ("before", "one", "anew", "last")] == ["before", "one", "anew", "last"]


# ---------------------------------------------------------------- text


def test_printable_text_has_nothing_but_characters() -> None:
    every = "".join(map(chr, range(0x300))) + "".join(map(chr, range(0x2000, 0x2100)))
    assert all(c.isprintable() or c in "\n\t" for c in printable(every))
    assert printable("Grüße, 世界\tend\r\nnext") == "Grüße, 世界\tend\nnext"


def test_a_long_reason_is_cut_and_an_empty_one_is_said() -> None:
    assert len(short("x" * 10_000)) == 400
    assert short("") == short("\n \n") == "no reason given"
    assert short("first\n  found: last\n  remedy:   mend it") == "first (found: last)"


def test_json_of_a_survey_is_read_back(catalog: Catalog) -> None:
    write(catalog, done=1)
    found = look(catalog)
    assert msgspec.convert(json.loads(msgspec.json.encode(found)), Survey) == found
