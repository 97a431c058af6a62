"""Cells as plain processes: their environment, their bounds, and their end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from threading import Thread

import msgspec
import pytest

from container_launches import RECORD, ROOT, launch, process, script, until
from upkeep.catalog import Catalog
from upkeep.errors import UpkeepError
from upkeep.execution import handle as handles
from upkeep.execution.handle import Handle
from upkeep.execution.process import Process
from upkeep.execution.runtimes import Launch, Prepared

__all__ = ["launch", "process"]


# ---------------------------------------------------------------- a plain process


def test_a_process_reads_rounds_and_ends_when_they_end(process: tuple[Process, Prepared], launch: Launch) -> None:
    runtime, prepared = process
    handle = runtime.start(prepared, script(launch, "import sys\nfor line in sys.stdin: print('got', line, end='')"))
    handle.stdin.write(b"one\n")
    handle.stdin.close()
    assert handle.wait(30) == 0
    assert handle.tail() == "got one"


def test_nothing_of_the_hosts_environment_reaches_a_process(
    process: tuple[Process, Prepared], launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setenv("PYTHONSTARTUP", "x")
    runtime, prepared = process
    handle = runtime.start(prepared, script(launch, "import json, os; print(json.dumps(dict(os.environ)))"))
    assert handle.wait(30) == 0
    seen = json.loads(handle.tail())
    assert not seen.keys() & {"HF_TOKEN", "PYTHONSTARTUP"}
    assert seen["UPKEEP_METHODS"] == str(ROOT / "methods")
    assert not Path(seen["HOME"]).exists()  # removed with the end of the cell


def test_killing_a_process_kills_what_it_started(process: tuple[Process, Prepared], launch: Launch) -> None:
    runtime, prepared = process
    handle = runtime.start(
        prepared,
        script(
            launch,
            f"""
            import subprocess, sys
            child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
            open({str(launch.output / "pid")!r}, "w").write(str(child.pid))
            child.wait()
            """,
        ),
    )
    pid = launch.output / "pid"
    until(handle, lambda: pid.exists() and pid.read_text() != "")
    assert runtime.explain(handle.kill(), launch.resources).startswith("killed")
    # The signal is sent when `kill` returns; the system may take a moment to end the process.
    deadline = time.monotonic() + 20
    while alive(int(pid.read_text())):
        assert time.monotonic() < deadline


def alive(pid: int) -> bool:
    """Whether a process runs (a dead one that nobody has waited for does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except FileNotFoundError:
        return False


def test_a_process_outlives_the_thread_that_asked_for_it(process: tuple[Process, Prepared], launch: Launch) -> None:
    """As an engine does that a cell asked first, for the cells after it."""
    runtime, prepared = process
    found: list[Handle] = []

    def ask() -> None:
        code = f"open({str(launch.output / 'there')!r}, 'w').close(); print(input())"
        found.append(runtime.start(prepared, script(launch, code)))
        until(found[0], (launch.output / "there").exists)

    asking = Thread(target=ask)
    asking.start()
    asking.join()
    handle = found[0]
    with pytest.raises(subprocess.TimeoutExpired):
        handle.process.wait(1)
    handle.stdin.write(b"still here\n")
    handle.stdin.close()
    assert handle.wait(30) == 0 and handle.tail() == "still here"


def test_a_process_ends_with_the_host(launch: Launch, tmp_path: Path) -> None:
    """The host is killed while its cell is busy and does not read its input."""
    host = subprocess.Popen(
        [
            sys.executable,
            "-c",
            textwrap.dedent(
                f"""
                import sys; sys.path.insert(0, {str(ROOT / "src")!r}); sys.path.insert(0, {str(ROOT / "tests")!r})
                from pathlib import Path
                import container_launches as t
                made = t.EnvironmentRecord(Path(sys.executable), (), Path("/"), "0"*64, "0"*64, {{}}, "3.11")
                launch = t.Launch(name="x", inputs={{"cell": Path({str(tmp_path / "cell")!r})}},
                    output=Path({str(launch.output)!r}), log=Path({str(launch.log)!r}),
                    arguments=("-c", "import signal; signal.pause()"))
                handle = t.Process(t.Catalog(t.ROOT), "").start(t.Prepared(t.RECORD, made), launch)
                print(handle.pid, flush=True)
                handle.wait()
                """
            ),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert host.stdout is not None
    cell = int(host.stdout.readline())
    assert alive(cell)
    host.kill()
    host.wait()
    fd = os.pidfd_open(cell) if alive(cell) else None
    if fd is not None:
        import select

        assert select.select([fd], [], [], 30)[0]  # readable when it has ended
    assert not alive(cell)


def test_endless_output_fills_neither_disk_nor_memory(
    process: tuple[Process, Prepared], launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handles, "LOG_BYTES", 1000)
    runtime, prepared = process
    handle = runtime.start(prepared, script(launch, "import sys\nfor _ in range(5000): print('x' * 99)"))
    assert handle.wait(30) == 0
    assert launch.log.stat().st_size < 1100
    assert launch.log.read_text().endswith("[output above 1000 bytes is left out]\n")


def test_a_tail_shows_no_control_characters(process: tuple[Process, Prepared], launch: Launch) -> None:
    runtime, prepared = process
    handle = runtime.start(prepared, script(launch, r"import sys; sys.stdout.buffer.write(b'a\x1b[31m\xff\nb\n')"))
    handle.wait(30)
    assert handle.tail() == "a�[31m�\nb"


def test_a_file_larger_than_the_limit_cannot_be_written(process: tuple[Process, Prepared], launch: Launch) -> None:
    runtime, prepared = process
    target = str(launch.output / "big")
    code = f"open({target!r}, 'wb').truncate(2**30 + 1)"
    handle = runtime.start(prepared, script(launch, code))
    assert handle.wait(30) != 0
    assert (launch.output / "big").stat().st_size == 0


def test_a_tool_that_fails_shows_what_it_said(process: tuple[Process, Prepared], launch: Launch) -> None:
    runtime, prepared = process
    with pytest.raises(UpkeepError, match=r"exit status 3(.|\n)*because"):
        runtime.run_tool(prepared, ["-c", "print('because'); raise SystemExit(3)"], output=launch.output)


def test_a_record_is_rewritten_only_where_it_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = Process(Catalog(ROOT), "")
    runtime.catalog.results = tmp_path
    record = msgspec.structs.replace(RECORD, runtime="process")
    monkeypatch.setattr(runtime, "_prepare", lambda *_: Prepared(record))
    runtime.prepare("null", "base")
    path = tmp_path / "images" / "null.base.json"
    os.utime(path, (1, 1))
    runtime.prepare("null", "base")
    assert path.stat().st_mtime == 1
    record = msgspec.structs.replace(record, python="3.11.9")
    runtime.prepare("null", "base")
    assert json.loads(path.read_text())["python"] == "3.11.9"
