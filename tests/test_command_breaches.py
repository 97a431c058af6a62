"""Claims about methods that are programs: none hides a failure, and nobody else gets in."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from door_clients import HELLO, post
from program_cells import program
from runner_bench import SRC, Bench, bench, model, rounds, tiny
from upkeep.catalog import Catalog
from upkeep.cell import command as module
from upkeep.cell.command import ProgramFailed
from upkeep.cell.door import Address
from upkeep.errors import UpkeepError

__all__ = ["bench", "tiny"]

LOOP = """
for line in lines():
    if line["type"] == "documents":
        arrived(line)
    if line["type"] == "probe":
        answer(line, "## Answer: " + line["question"])
"""
DOCUMENTS = 'if line["type"] == "documents": arrived(line)'
BREACHES = {
    "ends at once": ("sys.exit(3)", "ended with status 3 before its input"),
    "ends well, but early": ("", "ended with status 0 before its input"),
    "ends before a probe": (
        f"for line in lines():\n {DOCUMENTS}\n elif line['type'] == 'probe': sys.exit(4)",
        "status 4",
    ),
    "is killed": ("os.kill(os.getpid(), 9)", "status -9"),
    "prints rubbish": ("print('Loading model...', flush=True)\n" + LOOP, "line 1 of its output"),
    "prints no text": (
        "sys.stdout.buffer.write(b'\\xff\\xfe\\n'); sys.stdout.flush()\n" + LOOP,
        "line 1 of its output",
    ),
    "prints without end": ("sys.stdout.write('x' * 9_000_000); sys.stdout.flush()\n" + LOOP, "line 1 of its output"),
    "says something unknown": ("say(type='hello')\n" + LOOP, "line 1 of its output"),
    "says more than there is": (LOOP.replace('["question"])', '["question"], sure=True)'), "sure"),
    "says a rank's worth of nonsense": (LOOP.replace('["question"])', '["question"], retrieved=[{"id": 1}])'), "id"),
    "answers twice": (LOOP.replace("answer(", "answer(line, None); answer("), "was answered before"),
    "answers the future": (LOOP.replace("answer(", "answer(line | {'id': 'sa@1'}, None); answer("), "is not asked"),
    "answers another trial": (LOOP.replace("answer(", "answer(line | {'trial': 1}, None); answer("), "is not asked"),
    "takes in the future": (LOOP.replace("arrived(line)", "arrived(line | {'position': 1})"), "is not asked"),
}

# ---------------------------------------------------------------- failures of all


@pytest.mark.parametrize(("code", "said"), BREACHES.values(), ids=BREACHES)
def test_a_program_that_breaks_the_rules_ends_the_cell_and_says_how(bench: Bench, code: str, said: str) -> None:
    command = program(bench, code)
    with pytest.raises(ProgramFailed) as failed:
        bench.run(rounds(3, ["a"]), command=command)
    assert said in str(failed.value)
    assert command[1] in str(failed.value)
    path = bench.output / "predictions.jsonl"
    assert all(p.error is None for p in bench.predictions()) if path.exists() else True


def test_a_program_that_is_not_there_ends_the_cell(bench: Bench) -> None:
    program(bench, "")
    with pytest.raises(ProgramFailed, match="cannot be started"):
        bench.run(rounds(1), command=["./there-is-no-such-program"])


def test_what_is_said_after_the_last_answer_is_no_secret(bench: Bench) -> None:
    with pytest.raises(ProgramFailed, match="was answered before"):
        bench.run(rounds(1, ["a"]), command=program(bench, LOOP + "answer({'id': 'sa@0', 'trial': 0}, 'other')\n"))


def test_a_program_that_fails_at_its_end_says_so(bench: Bench) -> None:
    with pytest.raises(ProgramFailed, match="status 5"):
        bench.run(rounds(1, ["a"]), command=program(bench, LOOP + "sys.exit(5)\n"))
    assert len(bench.predictions()) == 1


def test_a_program_that_does_not_end_is_ended(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "END_S", 0.3)
    with pytest.raises(ProgramFailed, match=r"did not end within 0\.3 s"):
        bench.run(rounds(1, ["a"]), command=program(bench, LOOP + "import time\ntime.sleep(3600)\n"))


def cell_process(bench: Bench, command: Sequence[str], **more: Any) -> subprocess.Popen[bytes]:
    (bench.output / "cell.json").write_bytes(msgspec.json.encode(bench.cell(command=list(command), **more)))
    environment = os.environ | {"PYTHONPATH": str(SRC), "UPKEEP_METHODS": str(bench.methods)}
    return subprocess.Popen(
        [sys.executable, "-m", "upkeep.serving.alone", str(bench.output / "cell.json")],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    )


def test_the_container_s_log_has_the_program_s_words_and_why_it_failed_and_no_traceback(bench: Bench) -> None:
    process = cell_process(bench, program(bench, "print('no such file: notes.db', file=sys.stderr)\nsys.exit(3)"))
    _, log = process.communicate(msgspec.json.encode(rounds(1)[0]) + b"\n", timeout=60)
    assert process.returncode == 1
    assert b"no such file: notes.db" in log and b"ended with status 3" in log
    assert b"Traceback" not in log


def test_a_program_that_never_answers_keeps_the_cell_waiting_and_goes_with_it(bench: Bench) -> None:
    code = "print(os.getpid(), file=open('pid', 'w'), flush=True)\n" + LOOP.replace("answer(", "0 and answer(")
    process = cell_process(bench, program(bench, code))
    assert process.stdin is not None
    process.stdin.write(msgspec.json.encode(rounds(1)[0]) + b"\n")
    process.stdin.flush()
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(3)
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 143
    own = int((bench.methods / "m" / "pid").read_text())
    with pytest.raises(ProcessLookupError):  # its input has ended, so it has, too
        for _ in range(200):
            os.kill(own, 0)
            signal.sigtimedwait([], 0.05)
    assert not (bench.output / "predictions.jsonl").read_bytes()


STRANGER = """
import json, os, sys, urllib.error, urllib.request

base_url, process, *places = sys.argv[1:]
found = []
for place in (*places, *(f"/proc/{process}/{name}" for name in ("environ", "mem", "fd", "cwd", "root"))):
    try:
        os.listdir(place) if os.path.isdir(place) else open(place, "rb").read(1)
        found.append(place)
    except OSError as error:
        assert error.errno in (1, 13), error
for token in ("", "a", "0" * 64):
    body = json.dumps({"model": "reader", "messages": [{"role": "user", "content": "Who?"}]}).encode()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    try:
        asked = urllib.request.Request(base_url + "/chat/completions", body, headers)
        found.append(urllib.request.urlopen(asked).status)
    except urllib.error.HTTPError as error:
        assert error.code == 401, error
print(json.dumps(found))
"""

# ---------------------------------------------------------------- somebody else on the machine


@pytest.mark.root
def test_another_user_of_the_machine_finds_the_door_closed_and_its_key_nowhere(bench: Bench, tiny: Path) -> None:
    """As a plain process, which shares the machine's loopback interface; a container has one of its own."""
    code = """
for line in lines():
    if line["type"] == "documents":
        arrived(line)
    if line["type"] == "probe":
        print(json.dumps([os.getpid(), line["base_url"], line["api_key"]]), file=open("told", "w"), flush=True)
        os.rename("told", "open")
"""
    process = cell_process(bench, program(bench, code), **model(tiny), one_at_a_time=True)
    assert process.stdin is not None
    with process:
        process.stdin.write(msgspec.json.encode(rounds(1)[0]) + b"\n")
        process.stdin.flush()
        told = bench.methods / "m" / "open"
        while not told.exists():
            assert process.poll() is None
            time.sleep(0.05)
        own, base_url, api_key = json.loads(told.read_text())
        key = f"/proc/{own}/environ"
        assert api_key.encode() in Path(key).read_bytes(), "there is something to find"
        for pid, places in ((own, [str(told)]), (process.pid, [str(bench.output / "cell.json")])):
            tried = subprocess.run(
                ["/usr/bin/python3", "-c", STRANGER, base_url, str(pid), *places],
                capture_output=True, text=True, user=65534, group=65534, extra_groups=[], cwd="/",
            )  # fmt: skip
            assert (tried.stdout, tried.stderr) == ("[]\n", "")
        assert post(Address(base_url, api_key), HELLO)[0] == 200, "who has the key comes in"
        process.kill()


CARD = "label: M\npapers: []\nsummary: s\nreference: r\nvariants: {default: {}}\n"

# ---------------------------------------------------------------- the card


@pytest.mark.parametrize(
    ("card", "files", "said"),
    [
        ("command: [sh, m.sh]\ntrains: true\n", [], "nothing else"),
        ("command: [sh, m.sh]\nsees: answers\n", [], "nothing else"),
        ("command: [sh, m.sh]\n", ["method.py"], "two methods"),
        ("aliases: {gpt-4o: writer}\n", [], "writer"),
        ("aliases: {embedder: reader}\nembedder: e\n", [], "own name"),
        ("aliases: {text-embedding-3-small: embedder}\n", [], "the method has none"),
        ("max_calls: 0\n", [], "max_calls"),
    ],
)
def test_a_card_that_promises_what_cannot_be_is_refused(tmp_path: Path, card: str, files: list[str], said: str) -> None:
    folder = tmp_path / "methods" / "m"
    folder.mkdir(parents=True)
    (folder / "method.yaml").write_text(CARD + card)
    for name in files:
        (folder / name).write_text("")
    (tmp_path / "config").mkdir()
    (tmp_path / "config/config.yaml").write_text("{}")
    with pytest.raises(UpkeepError) as refused:
        Catalog(tmp_path).method("m")
    assert said in str(refused.value)
