"""Of processes that are gone: what is below them ends, what they made is removed, and nobody else's is."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from upkeep.errors import UpkeepError
from upkeep.execution import handle as handles
from upkeep.execution.watch import kind_of_status
from upkeep.file_locks import locked
from upkeep.machine import lifeline, resource_watchdog
from upkeep.machine.lifeline import HEAD, has_ended, leading, this_process
from upkeep.machine.scratch import Scratch, place_for_socket

FOLLOWER = """
import time
from upkeep.machine.lifeline import followed
try:
    with followed():
        print("up", flush=True)
        time.sleep(60)
except KeyboardInterrupt:
    print("stopped", flush=True)
"""


def start(code: str, *, stdin: int | None = None, **variables: str) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": str(Path(handles.__file__).parents[2])} | variables
    command = [sys.executable, "-c", code]
    return subprocess.Popen(command, env=environment, stdin=stdin, stdout=subprocess.PIPE, text=True)


# ---------------------------------------------------------------- the head


@pytest.mark.parametrize("victim", ["the head", "a process between"])
def test_a_command_stops_when_the_head_or_a_process_between_is_killed(victim: str) -> None:
    between = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {FOLLOWER!r}])"
    head = f"""
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {between!r}], env=os.environ | {{"{HEAD}": str(os.getpid())}})
print(child.pid, flush=True)
child.wait()
import time; time.sleep(60)
"""
    process = start(head)
    assert process.stdout is not None
    middle = int(process.stdout.readline())
    assert process.stdout.readline() == "up\n"
    os.kill(process.pid if victim == "the head" else middle, signal.SIGKILL)
    assert process.stdout.readline() == "stopped\n"
    process.kill()
    process.communicate()


def test_a_command_goes_on_while_its_head_lives_and_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifeline, "PERIOD_S", 0.05)
    quick = FOLLOWER.replace("60", "2").replace('print("stopped"', 'print("wrongly stopped"')
    for variables in ({HEAD: str(os.getpid())}, {}):
        assert start(quick, **variables).communicate(timeout=60)[0] == "up\n"


def test_a_head_is_alone_in_its_results_and_names_itself_to_what_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with leading(tmp_path):
        assert os.environ[HEAD] == str(os.getpid()) and lifeline.patience_s() > 0
        with pytest.raises(UpkeepError, match=f"another run .*\n.*process {os.getpid()} on"), leading(tmp_path):
            pass
    assert HEAD not in os.environ and lifeline.patience_s() == 0


def test_a_head_waits_for_what_it_has_started_and_no_more(tmp_path: Path) -> None:
    with leading(tmp_path):
        orphan = start("import time; time.sleep(1.5)")
        lifeline.await_orphans()
        assert orphan.wait(1) == 0
    orphan.communicate()


def test_a_cell_that_an_orphan_holds_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HEAD, str(os.getpid()))
    holder = "import sys, time; from pathlib import Path; from upkeep.file_locks import locked\n"
    holder += f"with locked(Path({str(tmp_path)!r})): print('held', flush=True); time.sleep(1)"
    process = start(holder)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    with locked(tmp_path, lifeline.patience_s()):
        assert process.wait(10) == 0
    process.communicate()


# ---------------------------------------------------------------- scratch folders

KEEPS = """
import signal
from pathlib import Path
from upkeep.machine.scratch import Scratch
with Scratch(Path({place!r})) as folder:
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "deep" / "er" / "file").write_text("x")
    (folder / "deep").chmod(0)
    print(folder, flush=True)
    signal.pause()
"""


def test_a_folder_of_a_killed_process_is_removed_by_the_next_and_a_live_ones_is_not(tmp_path: Path) -> None:
    killed, live = (start(KEEPS.format(place=str(tmp_path))) for _ in range(2))
    assert killed.stdout is not None and live.stdout is not None
    left, kept = (Path(process.stdout.readline().strip()) for process in (killed, live) if process.stdout)
    killed.kill()
    killed.communicate()
    assert left.is_dir() and kept.is_dir()
    with Scratch(tmp_path) as folder:
        assert not left.exists() and kept.is_dir() and folder.is_dir()
    live.kill()
    live.communicate()
    with Scratch(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


GIVES = """
import os, subprocess, sys
from pathlib import Path
from upkeep.machine.scratch import Scratch
scratch = Scratch(Path({place!r}))
# As Snakemake does before each of its jobs: where the folder is gone, it is made again.
again = "import os, sys; sys.stdin.readline(); os.makedirs(sys.argv[1] + '/tmp', exist_ok=True); "
again += "print('made', flush=True); sys.stdin.readline()"
command = [sys.executable, "-c", again, str(scratch.path)]
program = subprocess.Popen(command, pass_fds=(scratch.descriptor,))
print(program.pid, flush=True)
print(scratch.path, flush=True)
os.kill(os.getpid(), 9)
"""


def test_a_folder_that_a_program_was_given_is_removed_once_the_program_has_ended_too(tmp_path: Path) -> None:
    process = start(GIVES.format(place=str(tmp_path)), stdin=subprocess.PIPE)
    assert process.stdout is not None and process.stdin is not None
    program = psutil.Process(int(process.stdout.readline()))
    given = Path(process.stdout.readline().strip())
    process.wait()
    with Scratch(tmp_path):
        assert given.is_dir(), "its maker was killed, the program lives"
        process.stdin.write("go on\n")
        process.stdin.flush()
        assert process.stdout.readline() == "made\n"
        process.stdin.close()
        program.wait(10)
    assert list(tmp_path.iterdir()) == [], "removed by what was begun before, at its end"


def test_what_others_made_under_such_a_name_is_left_alone(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "mine").mkdir(parents=True)
    place = tmp_path / "place"
    (place / "upkeep-mine").mkdir(parents=True)
    (place / "upkeep-link").symlink_to(elsewhere)
    (place / "upkeep-link.lock").touch()
    (place / "upkeep-other.lock").symlink_to(elsewhere / "mine")
    with Scratch(place):
        pass
    assert (place / "upkeep-mine").is_dir(), "it has no lock"
    assert (elsewhere / "mine").is_dir(), "links are not followed"


def test_a_folder_in_use_is_locked_from_its_first_moment(tmp_path: Path) -> None:
    with Scratch(tmp_path) as folder:
        (lock,) = tmp_path.glob("*.lock")
        assert lock.with_suffix("") == folder
        with lock.open() as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


# ---------------------------------------------------------------- owners of containers


def test_a_process_is_gone_for_sure_only_where_it_could_be_seen() -> None:
    me = this_process()
    here, pid, start_time = me.rsplit(".", 2)
    assert not has_ended(me)
    assert has_ended(f"{here}.{pid}.{int(start_time) - 1}"), "its number was given to another"
    process = start("print(__import__('upkeep.machine.lifeline').machine.lifeline.this_process(), flush=True); input()")
    assert process.stdout is not None
    other = process.stdout.readline().strip()
    process.kill()
    process.communicate()
    assert has_ended(other)
    user, boot, space = here.split(".")
    for elsewhere in (f"{int(user) + 1}.{boot}.{space}", f"{user}.other.{space}", f"{user}.{boot}.1"):
        assert not has_ended(f"{elsewhere}.{other.split('.', 3)[3]}")
    assert not has_ended("") and not has_ended("<no value>")


# ---------------------------------------------------------------- what is said


@pytest.mark.parametrize(
    ("starved", "says", "kind"),
    [(True, "most likely out of memory (limit 4 GB)", "memory"), (False, "from outside", "interrupted")],
)
def test_a_sigkill_is_put_down_to_memory_where_something_was_killed_for_it(starved: bool, says: str, kind: str) -> None:
    from container_launches import containers
    from upkeep.contract import Resources

    for status in (137, -9):
        said = containers().explain(status, Resources(memory_gb=4), starved)
        assert says in said and ("memory (limit" in said) is starved
        assert kind_of_status(status, starved) == kind
    both = containers().explain(137, Resources(memory_gb=4), None)
    assert "out of memory" in both and "from outside" in both


@pytest.mark.parametrize(("counts", "starved"), [((3, 3), False), ((3, 4), True), ((None, None), None)])
def test_the_kernel_is_asked_whether_it_ended_anything_for_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counts: tuple[int | None, int | None], starved: bool | None
) -> None:
    told = iter(counts)
    monkeypatch.setattr(handles, "oom_kills", lambda: next(told))
    process = subprocess.Popen(["sleep", "60"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    handle = handles.Handle(process, tmp_path / "log", process.kill)
    process.kill()
    assert handle.wait(10) == -signal.SIGKILL and handle.starved is starved


def test_the_kernels_count_is_read_where_there_is_one() -> None:
    has_count = "oom_kill " in Path("/proc/vmstat").read_text()
    assert (resource_watchdog.oom_kills() is not None) is has_count


def test_a_socket_has_room_for_its_path_however_long_that_of_temporary_files_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for deep, near in ((tmp_path / ("x" * 80), False), (Path("/var/tmp"), True)):
        deep.mkdir(exist_ok=True)
        monkeypatch.setattr(tempfile, "tempdir", str(deep))
        with Scratch(place_for_socket("engine/engine.sock")) as folder, socket.socket(socket.AF_UNIX) as listener:
            (folder / "engine").mkdir()
            listener.bind(str(folder / "engine" / "engine.sock"))
            assert (folder.parent == deep) is near
