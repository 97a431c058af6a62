"""What bounds a cell where the kernel bounds its processes one by one: the watchdog over their sum, and the reaper."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from container_launches import launch, process, script
from upkeep.contract import Resources
from upkeep.execution.process import Process
from upkeep.execution.runtimes import Launch, Prepared
from upkeep.machine import reaper, resource_watchdog, seccomp
from upkeep.machine.resource_watchdog import Bounds, Guard, look

__all__ = ["launch", "process"]

BOUNDS = Bounds(memory_gb=1, tasks=50)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource_watchdog, "PERIOD_S", 0.05)


@pytest.fixture
def family() -> Iterator[Callable[[str, int], list[psutil.Process]]]:
    """Starts a program that forks some children, which wait until the test ends."""
    roots: list[subprocess.Popen[bytes]] = []

    def start(code: str, children: int) -> list[psutil.Process]:
        program = f"import os, signal\n{code}\nchildren = [os.fork() for _ in range({children}) if os.getpid() == me]"
        program = f"import os; me = os.getpid()\n{program}\nif os.getpid() == me: os.write(1, b'up')\nsignal.pause()"
        root = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, start_new_session=True)
        roots.append(root)
        assert root.stdout is not None and root.stdout.read(2) == b"up"
        known = psutil.Process(root.pid)
        return [known, *known.children()]

    yield start
    for root in roots:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(root.pid, signal.SIGKILL)
        root.communicate()


Family = Callable[[str, int], list[psutil.Process]]


def test_memory_that_processes_share_counts_once(family: Family) -> None:
    processes = family("x = b'x' * (400 * 2**20)", 4)
    assert sum(each.memory_info().rss for each in processes) > resource_watchdog.GB
    assert look(processes, BOUNDS) is None


def test_memory_of_all_processes_counts(family: Family) -> None:
    processes = [*family("x = b'x' * (600 * 2**20)", 0), *family("x = b'x' * (600 * 2**20)", 0)]
    passed = look(processes, BOUNDS)
    assert passed is not None and passed.signal == signal.SIGKILL
    assert "limit 1 GB" in passed.reason


def test_threads_count_as_processes_do(family: Family) -> None:
    threads = "import threading\nfor _ in range(30): threading.Thread(target=signal.pause, daemon=True).start()"
    processes = family(threads, 0)
    assert look(processes, BOUNDS) is None
    passed = look([*processes, *family(threads, 0)], BOUNDS)
    assert passed is not None and "limit 50" in passed.reason


def test_a_process_that_has_ended_meanwhile_counts_for_nothing(family: Family) -> None:
    (process,) = family("", 0)
    process.kill()
    process.wait()
    assert look([process], BOUNDS) is None


@pytest.mark.parametrize("fill", ["size", "count", "deep"])
def test_a_scratch_folder_is_bounded_in_size_and_number_of_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fill: str
) -> None:
    monkeypatch.setattr(resource_watchdog, "GB", 2**20)
    monkeypatch.setattr(resource_watchdog, "MAX_FILES", 50)
    bounds = replace(BOUNDS, scratch=tmp_path, scratch_gb=1)
    assert look([], bounds) is None
    match fill:
        case "size":
            (tmp_path / "file").write_bytes(b"x" * 2**21)
        case "count":
            for number in range(60):
                (tmp_path / str(number)).touch()
        case "deep":
            below = tmp_path
            for _ in range(60):
                (below := below / "d").mkdir()
    passed = look([], bounds)
    assert passed is not None and passed.signal == signal.SIGXFSZ


def test_a_link_out_of_a_scratch_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    (tmp_path / "big").mkdir()
    (tmp_path / "big" / "file").write_bytes(b"x" * 2**21)
    (tmp_path / "scratch" / "link").symlink_to(tmp_path / "big")
    assert look([], replace(BOUNDS, scratch=tmp_path / "scratch", scratch_gb=0)) is not None  # the folder's own block
    assert resource_watchdog._full(tmp_path / "scratch", 2**20) is None


def test_a_cell_that_cannot_be_watched_does_not_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []
    monkeypatch.setattr(resource_watchdog, "look", lambda *_: 1 / 0)
    watch = Guard(os.getpid(), BOUNDS, lambda: ended.append("x"))
    watch._thread.join(30)
    passed = watch.close()
    assert ended == ["x"] and passed is not None and "ZeroDivisionError" in passed.reason


# ---------------------------------------------------------------- a plain process


def test_a_process_tree_that_takes_too_much_memory_is_killed_and_the_reason_given(
    process: tuple[Process, Prepared], launch: Launch
) -> None:
    runtime, prepared = process
    small = replace(launch, resources=Resources(memory_gb=1))
    code = """
        import os, time
        for _ in range(2):
            if os.fork() == 0:
                x = b"x" * (600 * 2**20)
                time.sleep(60)
        time.sleep(60)
    """
    handle = runtime.start(prepared, script(small, code))
    status = handle.wait(60)
    assert "limit 1 GB" in runtime.explain(status, small.resources)
    assert "killed: out of memory" in handle.tail()


def test_what_a_process_leaves_behind_ends_with_it(process: tuple[Process, Prepared], launch: Launch) -> None:
    runtime, prepared = process
    code = f"""
        import os, signal
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                for number in (signal.SIGTERM, signal.SIGHUP):
                    signal.signal(number, signal.SIG_IGN)
                open({str(launch.output / "pid")!r}, "w").write(str(os.getpid()))
                signal.pause()
            os._exit(0)
        os.wait()
        while not os.path.exists({str(launch.output / "pid")!r}) or not open({str(launch.output / "pid")!r}).read():
            pass
    """
    handle = runtime.start(prepared, script(launch, code))
    assert handle.wait(30) == 0
    assert not psutil.pid_exists(int((launch.output / "pid").read_text()))


@pytest.mark.parametrize(("end", "status"), [("raise SystemExit(7)", 7), ("os.kill(os.getpid(), 11)", 139)])
def test_a_keeper_ends_as_its_command_does(
    process: tuple[Process, Prepared], launch: Launch, end: str, status: int
) -> None:
    runtime, prepared = process
    assert runtime.start(prepared, script(launch, f"import os\n{end}")).wait(30) == status


def test_what_a_killed_keeper_kept_ends_and_its_scratch_folder_goes(
    process: tuple[Process, Prepared], launch: Launch
) -> None:
    runtime, prepared = process
    code = f"""
        import os, signal
        if os.fork() == 0:
            open({str(launch.output / "pid")!r}, "w").write(f"{{os.getpid()}} {{os.environ['HOME']}}")
        signal.pause()
    """
    handle = runtime.start(prepared, script(launch, code))
    told = launch.output / "pid"
    deadline = time.monotonic() + 30
    while not (told.exists() and told.read_text()):
        assert time.monotonic() < deadline
    pid, home = told.read_text().split()
    left = psutil.Process(int(pid))
    handle.process.kill()
    assert handle.wait(30) == -signal.SIGKILL
    left.wait(30)
    assert not Path(home).exists()
    assert "from outside" in runtime.explain(-signal.SIGKILL, launch.resources, handle.starved)


def test_a_keeper_takes_its_scratch_folder_with_it_when_the_host_dies(launch: Launch) -> None:
    """As `test_a_process_ends_with_the_host`, looking at what lies on disk."""
    home = launch.output.parent / "home"
    home.mkdir()
    command = reaper.kept([sys.executable, "-c", "import signal; signal.pause()"], home)
    kept = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    deadline = time.monotonic() + 30
    while not psutil.Process(kept.pid).children():
        assert time.monotonic() < deadline
    kept.terminate()  # what the kernel sends at the death of the parent
    assert kept.wait(30) == 137
    assert not home.exists()
    kept.communicate()


# ---------------------------------------------------------------- system calls


def confined(code: str) -> str:
    """Output of a program under the filter of system calls."""
    program = f"import ctypes, os, seccomp\nseccomp.refuse()\n{code}"
    environment = os.environ | {"PYTHONPATH": str(Path(seccomp.__file__).parent)}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()


def test_an_ordinary_program_notices_nothing_of_the_filter() -> None:
    code = """
import subprocess, threading, multiprocessing.shared_memory as shared
thread = threading.Thread(target=print, args=("thread",)); thread.start(); thread.join()
print(subprocess.run(["/bin/echo", "program"], capture_output=True, text=True).stdout.strip())
memory = shared.SharedMemory(create=True, size=100); memory.unlink(); print("memory")
"""
    assert confined(code).split() == ["thread", "program", "memory"]


@pytest.mark.parametrize("name", sorted(seccomp.REFUSED))
def test_a_refused_call_fails_and_ends_nothing(name: str) -> None:
    call = f"ctypes.CDLL(None, use_errno=True).syscall({seccomp.REFUSED[name]}, 0, 0, 0, 0, 0)"
    assert confined(f"print({call}, os.strerror(ctypes.get_errno()))") == "-1 Operation not permitted"
