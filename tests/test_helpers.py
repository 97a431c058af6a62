"""Processes that help: whatever becomes of them, what was to be done is done."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from multiprocessing import active_children
from typing import Any

import pytest

from upkeep.helpers import Begun, Helpers


@pytest.fixture(autouse=True)
def cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {*range(3)})


def sized(text: bytes) -> tuple[int, int]:
    """How long it is, and which process says so."""
    return len(text), os.getpid()


def unlike_here(of: int, how: str) -> object:
    """What fails in any process but one, or cannot be told to it."""
    if os.getpid() == of:
        return "here"
    if how == "raises":
        raise KeyError(how)
    if how == "exits":
        sys.exit(3)
    return Unreadable() if how == "cannot be read here" else lambda: None


class Unreadable(Exception):
    def __reduce__(self) -> tuple[object, ...]:
        return Unreadable, ("one too many",)

    def __init__(self) -> None:
        super().__init__()


def ends(of: int, text: bytes) -> int:
    """Ends any process but one."""
    if os.getpid() != of:
        os._exit(1)
    return len(text)


def wait_for(begun: Begun[Any]) -> None:
    while not begun.is_done:
        time.sleep(0.01)


def test_more_than_a_pipe_holds_is_done_by_others_and_some_of_it_here() -> None:
    with Helpers(2) as helpers:
        begun = [helpers.begin(sized, bytes(n * 100_000)) for n in range(30)]
        wait_for(begun[0])
        found = [one() for one in reversed(begun)][::-1]
    assert [size for size, _ in found] == [n * 100_000 for n in range(30)]
    assert found[0][1] != os.getpid()


@pytest.mark.parametrize("how", ["raises", "exits", "cannot be told", "cannot be read here"])
def test_what_fails_there_is_done_here_and_who_failed_does_more(how: str) -> None:
    with Helpers(1) as helpers:
        for _ in range(2):
            wait_for(begun := helpers.begin(unlike_here, os.getpid(), how))
            assert begun() == "here"
        wait_for(failing := helpers.begin(divmod, 1, 0))
        with pytest.raises(ZeroDivisionError):
            failing()
        wait_for(more := helpers.begin(sized, b"some"))
        assert more()[1] != os.getpid()


def test_what_cannot_be_given_to_another_process_is_done_here() -> None:
    with Helpers(1) as helpers:
        assert helpers.begin(lambda: os.getpid())() == os.getpid()


def test_whoever_is_killed_leaves_no_work_undone_however_large_it_is() -> None:
    """Also what was put into the pipe of one that is killed while it starts."""
    with Helpers(2) as helpers:
        begun = [helpers.begin(ends, os.getpid(), bytes(1_000_000)) for _ in range(8)]
        while not (children := active_children()):
            time.sleep(0.01)
        children[0].kill()
        assert [one() for one in begun] == [1_000_000] * 8
    for child in active_children():
        child.join(30)
    assert not active_children()


def test_an_interruption_ends_those_that_work_and_they_say_nothing_of_it(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt), Helpers(2) as helpers:
        busy = [helpers.begin(time.sleep, 600) for _ in range(2)]
        while len(children := active_children()) < 2:
            time.sleep(0.01)
        for child in children:
            assert child.pid is not None
            os.kill(child.pid, signal.SIGINT)
        time.sleep(1)
        assert all(child.is_alive() for child in children) and not any(one.is_done for one in busy)
        raise KeyboardInterrupt
    for child in children:
        child.join(30)
        assert not child.is_alive()
    assert capfd.readouterr().err == ""


def test_a_process_that_nobody_can_start_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise OSError(11, "no room for processes")

    monkeypatch.setattr("upkeep.helpers.get_context", none)
    with Helpers(2) as helpers:
        assert helpers.begin(sized, b"some")() == (4, os.getpid())


def test_no_program_waits_at_its_end_for_what_it_no_longer_wants() -> None:
    program = """if True:
        import os, time
        from upkeep.helpers import Helpers
        os.sched_getaffinity = lambda _: {0, 1}
        with Helpers(1) as helpers:
            [helpers.begin(time.sleep, 600) for _ in range(3)]
            time.sleep(2)
    """
    assert subprocess.run([sys.executable, "-c", program], timeout=60, check=True).returncode == 0
