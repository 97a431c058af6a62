"""A method that attacks: the host and the cell beside it are unharmed, its own cell fails and says of what, nothing is
published or left running, and the next run of the same cell succeeds.

Each attack of `hostile/attacks/` runs as a real cell: real supervisor, real container; attempts of which each fails by
itself share one. `docs/hostile.md` holds what is found here; a test compares the two.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from conftest import CACHE, ROOT, copy_repository
from hostile.attacks import ATTACKS, TOGETHER
from hostile_trials import CANARY, Trial
from ordinary_user import ordinary_user  # noqa: F401
from upkeep.files import remove_tree

Outcome = Literal["stopped", "bounded", "refused", "not stopped", "not tried"]
"""The attempt fails; the cell is ended at a bound; what it wrote is refused; it succeeds; it would hurt the tester."""


@dataclass(frozen=True, slots=True)
class Case:
    what: str
    """As the documentation's table has it."""
    words: str
    """What the error says (a pattern)."""
    kind: str
    outcome: Outcome
    process: Outcome
    """The same for a plain process."""
    process_words: str | None = None
    beside: bool = False
    """Whether another cell runs at the same time."""
    stall_s: float = 20.0
    minutes_s: float = 3600.0


def stopped(what: str, words: str, process: Outcome = "not tried", **more: object) -> Case:
    return Case(what, words, "method", "stopped", process, **more)  # type: ignore[arg-type]


def bounded(what: str, words: str, kind: str, process: Outcome = "not tried", **more: object) -> Case:
    return Case(what, words, kind, "bounded", process, **more)  # type: ignore[arg-type]


def refused(what: str, words: str, **more: object) -> Case:
    return Case(what, words, "output", "refused", "refused", **more)  # type: ignore[arg-type]


def replaced(name: str, how: str, found: str) -> Case:
    words = "the output was replaced" if name == "predictions" else "engine.json: cannot be read"
    return refused(f"{how} in place of `{name}.json{'l' if name == 'predictions' else ''}`", rf"{words}(.|\n)*{found}")


SLOW = {"minutes_s": 5.0, "stall_s": 3600.0}
STALLED = {"stall_s": 4.0}
CROSS = "Invalid cross-device link"
AHEAD = "nothing of what comes"
WHOLE = {"stall_s": 120.0}
"""Time to read all of an image."""
CASES = {
    "reads_ahead": stopped("reading its input ahead of time", "temporarily unavailable.*nothing more", "stopped"),
    "search_at_a_probe": stopped("looking for a later document everywhere", AHEAD, "not stopped", **WHOLE),
    "search_as_documents_arrive": stopped("the same as documents arrive", AHEAD, "not stopped", **WHOLE),
    "search_by_a_program": stopped("the same by a program (`command:`)", AHEAD, "not stopped", **WHOLE),
    "network": stopped("TCP and UDP, to the host and elsewhere", "unreachable|refused", "not stopped"),
    "names": stopped("DNS", "name resolution|not known"),
    "raw_sockets": stopped("raw sockets", "Operation not permitted"),
    "listening": stopped("a listening socket", "timed out", "not stopped"),
    "read_host": stopped("reading the answer key, another cell, the record, the home", "No such file", "not stopped"),
    "secrets": stopped("tokens in the environment of others", "no secret", "not stopped"),
    "write_outside": stopped("writing outside its folder", "Read-only file system|Permission denied", "not stopped"),
    "write_inputs": stopped("writing to its inputs", "Read-only file system", "not stopped"),
    "kill_others": stopped("killing and tracing other processes", "No such process", "not stopped"),
    "mount": stopped("mounting, chroot", "Operation not permitted"),
    "namespaces": stopped("namespaces of its own, to get out by", "not permitted|Read-only|unreachable|refused"),
    "clock": stopped("setting the clock", "Operation not permitted"),
    "privileges": stopped("becoming root, raising limits, loading modules", "not permitted"),
    "devices": stopped("making and opening devices", "Operation not permitted"),
    "engine_socket": stopped("the container engine's socket", "No such file|not permitted|denied"),
    "fork_bomb": bounded("fork bomb", "unavailable|tasks|processes", "time|memory|method", beside=True, **SLOW),
    "memory_bomb": bounded("memory bomb", "out of memory|memory|Cannot allocate", "memory|method", beside=True),
    "memory_files": bounded("memory by way of /tmp and /dev/shm", "memory|/tmp", "memory|method|disk", beside=True),
    "many_threads": stopped("thousands of threads", "can't start new thread|tasks|processes"),
    "processor_hog": bounded("taking every processor", "not done in time", "time", beside=True, **SLOW),
    "disk_one_file": stopped("one file larger than allowed", "File too large", "stopped", beside=True),
    "disk_sparse": bounded("files with holes", "the writable folder is too large", "disk", "bounded"),
    "disk_beyond_the_end": bounded("blocks after a file's end", "the writable folder is too large", "disk", "bounded"),
    "disk_deleted": bounded(
        "files that have no name any more", "the writable folder is too large", "disk", "not stopped",
        process_words="nothing new for 4 s", **STALLED,
    ),
    "many_files": bounded("tens of thousands of files", r"too large(.|\n)*files or more", "disk", "bounded"),
    "deep_folders": bounded("folders deeper than a path can name", "folders too deep", "disk", "bounded"),
    "unreadable_folders": bounded(
        "folders that nobody may enter", "left: folders|cannot be entered", "method|output", "bounded"
    ),
    "hidden_folders": bounded(
        "writing on in such a folder", "cannot be entered|nothing new for 4 s", "output|method", "bounded", **STALLED
    ),
    "odd_names": bounded("names in no encoding, escape sequences in messages", "left: .*names", "method", "bounded"),
    "endless_printing": bounded("endless printing", "nothing new for 4 s", "method", "bounded", beside=True, **STALLED),
    "never_answers": bounded("never answering", "not done in time", "time", "bounded", **SLOW),
    "ignores_signals": bounded("ignoring all signals", "not done in time", "time", "bounded", **SLOW),
    "stops_itself": bounded("stopping itself", "nothing new for 4 s", "method", "bounded", **STALLED),
    "daemons": bounded("children that leave their session", "left: a process", "method", "bounded"),
    "closes_its_input": bounded("not reading its input", "nothing new for 4 s", "method", "bounded", **STALLED),
    "hangs_after_the_last_record": bounded("not ending", "did not end within 1 s", "", "bounded"),
    "predictions_as_link": replaced("predictions", "a link", "a symbolic link"),
    "predictions_as_pipe": replaced("predictions", "a FIFO", "a pipe"),
    "predictions_as_socket": replaced("predictions", "a socket", "a socket"),
    "predictions_as_folder": replaced("predictions", "a folder", "a folder"),
    "predictions_as_loop": replaced("predictions", "a link to itself", "a symbolic link"),
    "predictions_as_nothing": replaced("predictions", "nothing", "No such file"),
    "predictions_as_device": stopped(
        "a device in place of `predictions.jsonl`", "not permitted", "refused", process_words="a device|not permitted"
    ),
    "predictions_as_hard_link": stopped(
        "a hard link to an input in place of `predictions.jsonl`", CROSS, "refused", process_words="another file"
    ),
    "engine_as_link": replaced("engine", "a link", "a symbolic link"),
    "engine_as_pipe": replaced("engine", "a FIFO", "a pipe"),
    "engine_as_socket": replaced("engine", "a socket", "a socket"),
    "engine_as_folder": replaced("engine", "a folder", "a folder"),
    "engine_as_loop": replaced("engine", "a link to itself", "a symbolic link"),
    "engine_as_device": stopped(
        "a device in place of `engine.json`", "not permitted", "refused", process_words="a device|not permitted"
    ),
    "engine_as_hard_link": stopped(
        "a hard link to an input in place of `engine.json`", CROSS, "refused", process_words="field `"
    ),
    "engine_as_lease": refused("a lease on `engine.json`", "a lease on it"),
    "engine_without_end": refused("an `engine.json` of 64 MB", "file too large"),
    "engine_beyond_numbers": refused("numbers of 4,000 digits, deep nesting in it", "field `hardware"),
    "shrinking": refused("output that shrinks", "has shrunk"),
    "rewriting": refused("output that changes after it was checked", "changed after it was read"),
    "line_without_end": refused("a line without end", "line too long"),
    "hole_of_two_gigabytes": stopped("a line of 2 GB, made of nothing", "File too large", "stopped"),
    "endless_predictions": refused("endless predictions", "a second line for probe"),
    "exit_with_nothing": refused("exit status 0 with nothing done", "with 0 of 30 records(.|\n)*exit status 0"),
    "forged_publication": refused("exit status 0 with a forged manifest", "with 0 of 30 records(.|\n)*exit status 0"),
    "probe_not_asked": refused("a prediction for a later probe", "not asked yet"),
    "probe_of_another_cell": refused("a prediction for another cell's probe", "unknown probe"),
    "trial_not_asked": refused("a trial too many", "no such trial"),
    "document_of_the_future": refused("a retrieved document of the future", "had not arrived"),
    "not_a_number": refused("NaN", "not a number"),
    "infinity": refused("infinity", "not a number"),
    "error_of_10_mb": refused("an error's text of 10 MB", "field `error`: wrong value|line too long"),
    "error_of_1_mb": refused("an error's text of 1 MB of escape sequences", "field `error`: wrong value"),
    "escape_sequences": refused("escape sequences in an id", r"unknown probe(.|\n)*x1b\]0;owned"),
    "invalid_utf8": refused("invalid UTF-8", "invalid UTF-8 at byte"),
    "duplicate_keys": refused("a key twice in a line", "field `response` is there twice"),
    "nesting": refused("nesting without end", "field `probe_id`: wrong type"),
    "same_probe_twice": refused("the same probe twice", "a second line for probe 'a0@0'"),
}  # fmt: skip
KNOWN_HARMLESS = {"engine_as_nothing"}
"""A cell that says nothing of its machine is published without it."""


class Driver:
    """`hostile_trials.py`, in a process of its own, as whom cells of that runtime are run."""

    def __init__(self, runtime: str, process: subprocess.Popen[str]) -> None:
        self.runtime, self.process = runtime, process
        self._together: Trial | None = None
        self._say(json.dumps([*CASES, "together"]))
        assert self._hear() == "ready"

    def trial(self, attack: str) -> Trial:
        if self.runtime == "process" or attack not in TOGETHER:
            return self._trial(attack, CASES[attack])
        self._together = self._together or self._trial("together", stopped("", "", stall_s=60.0))
        return msgspec.structs.replace(self._together, text=self._together.said.get(attack, "nothing was told of it"))

    def _trial(self, attack: str, case: Case) -> Trial:
        options = {"stall_s": case.stall_s, "minutes_s": case.minutes_s, "beside": case.beside}
        self._say(json.dumps({"attack": attack} | options))
        while (trial := msgspec.json.decode(self._hear(), type=Trial)).attack != attack:
            pass  # of a trial that a test had no patience with
        return trial

    def _say(self, line: str) -> None:
        assert self.process.stdin is not None
        print(line, file=self.process.stdin, flush=True)

    def _hear(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the host of the attacks is no more"
        return line.rstrip("\n")


@contextlib.contextmanager
def driver(request: pytest.FixtureRequest, runtime: str) -> Iterator[Driver]:
    folder = Path(tempfile.mkdtemp(prefix="upkeep-hostile-"))  # not in pytest's, which its user alone can enter
    folder.chmod(0o755)
    # The folder's name marks all processes of these cells; see `Repository._left`.
    root = copy_repository(folder).rename(folder / folder.name)
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    if runtime == "apptainer":
        user = request.getfixturevalue("ordinary_user")
        user.own(folder)
        paths = f"{user.clone / 'src'}:{user.clone / 'tests'}"
        command = [user.venv / "bin" / "python", user.clone / "tests" / "hostile_trials.py", root, runtime]
        process = user.start(*command, env={CANARY: "1", "PYTHONPATH": paths}, **streams)
    else:
        environment = os.environ | {CANARY: "1", "UPKEEP_CACHE": str(CACHE)}
        environment["PYTHONPATH"] = f"{ROOT / 'src'}:{ROOT / 'tests'}"
        command = [sys.executable, ROOT / "tests" / "hostile_trials.py", root, runtime]
        process = subprocess.Popen(command, text=True, env=environment, **streams)  # type: ignore[call-overload]
    try:
        yield Driver(runtime, process)
    finally:
        process.stdin.close()
        process.wait(60)
        remove_tree(folder)


@pytest.fixture(scope="module")
def host_of(request: pytest.FixtureRequest) -> Iterator[Callable[[str], Driver]]:
    """One host for all attacks of a runtime, made when the first of them comes."""
    with contextlib.ExitStack() as until_the_end:

        @functools.cache
        def made(runtime: str) -> Driver:
            return until_the_end.enter_context(driver(request, runtime))

        yield made


def test_every_attack_is_tried() -> None:
    assert set(CASES) | KNOWN_HARMLESS == set(ATTACKS)
    assert {CASES[attack].outcome for attack in TOGETHER} == {"stopped"}


TRIED = {
    "docker": CASES,
    "podman": TOGETHER,  # in one container; what a cell writes is looked at on the host, whatever its engine
    "apptainer": CASES,
    "process": [attack for attack, case in CASES.items() if case.process != "not tried"],
}
TRIALS = [
    pytest.param(runtime, attack, marks=() if runtime == "process" else getattr(pytest.mark, runtime))
    for runtime, attacks in TRIED.items()
    for attack in attacks
]


@pytest.mark.parametrize(("runtime", "attack"), TRIALS)
def test_attack(host_of: Callable[[str], Driver], runtime: str, attack: str) -> None:
    host, case = host_of(runtime), CASES[attack]
    expected = case.process if host.runtime == "process" else case.outcome
    trial = host.trial(attack)
    told = f"{trial}"
    assert trial.crash is None, told
    assert all(c.isprintable() or c in "\n\t" for c in trial.text), "a message does nothing to a terminal"
    if expected == "not stopped":
        assert trial.published or trial.left or trial.harm or case.process_words, told
        return
    words = case.process_words if host.runtime == "process" and case.process_words else case.words
    assert re.search(words, trial.text), told
    assert not trial.left, told
    assert not trial.harm, told
    if attack == "hangs_after_the_last_record":
        assert trial.published, "what it has answered is good"
        return
    assert not trial.published, told
    assert "BREACH" not in trial.text
    if host.runtime != "process":
        assert re.fullmatch(case.kind, str(trial.kind)) or attack in ("exit_with_nothing", "forged_publication"), told


def table() -> str:
    """The table of docs/hostile.md."""
    rows = [f"| {c.what} | {c.outcome} | {c.process} |" for c in CASES.values()]
    return "\n".join(["| what it tries | Docker, Apptainer | plain process |", "| --- | --- | --- |", *rows])


def test_the_documentation_says_what_is_found_here() -> None:
    assert table() in (ROOT / "docs" / "hostile.md").read_text()
