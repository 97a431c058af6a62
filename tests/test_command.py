"""Claims about methods that are programs: any program can be one, gets what a method gets, and hides no failure."""

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

from door_clients import ALIASES, HELLO, closed_book, post
from host_fakes import answer_of
from test_runner import SRC, Bench, bench, documents, model, probes, rounds, tiny, unmeasured
from upkeep.catalog import Catalog
from upkeep.cell import command as module
from upkeep.cell.command import ProgramFailed
from upkeep.cell.door import Address
from upkeep.contract import EngineSettings, Prediction, Round, Sampling
from upkeep.errors import UpkeepError

__all__ = ["bench", "tiny"]

SHELL = r"""
# The question alone, asked with curl; jq reads and writes the lines.
while read -r line; do
    case $(printf %s "$line" | jq -r .type) in
    documents)
        printf %s "$line" | jq -c '{type: "arrived", stream, position}'
        ;;
    probe)
        text=$(printf %s "$line" | jq '{model: "reader", messages}' |
            curl -sS --fail-with-body -H "Authorization: Bearer $(printf %s "$line" | jq -r .api_key)" \
                -H 'Content-Type: application/json' --data-binary @- \
                "$(printf %s "$line" | jq -r .base_url)/chat/completions" | jq .choices[0].message.content)
        printf %s "$line" | jq -c --argjson text "$text" '{type: "answer", id, trial, response: $text}'
        ;;
    esac
done
"""
NODE = r"""
// The question alone; as many probes at a time as there are.
const lines = require('readline').createInterface({ input: process.stdin })
const say = (line) => console.log(JSON.stringify(line))
lines.on('line', async (text) => {
  const line = JSON.parse(text)
  if (line.type === 'documents') say({ type: 'arrived', stream: line.stream, position: line.position })
  if (line.type !== 'probe') return
  const asked = await fetch(`${line.base_url}/chat/completions`, {
    method: 'POST',
    headers: { Authorization: `Bearer ${line.api_key}`, 'Content-Type': 'application/json' },
    body: JSON.stringify({ model: 'gpt-4o-mini', messages: line.messages }),
  })
  const reply = await asked.json()
  if (!asked.ok) return say({ type: 'failed', id: line.id, trial: line.trial, error: reply.error.message })
  say({ type: 'answer', id: line.id, trial: line.trial, response: reply.choices[0].message.content })
})
"""
PYTHON = """
import json, os, sys

def lines():
    for line in sys.stdin:
        yield json.loads(line)

def say(**line):
    print(json.dumps(line), flush=True)

def arrived(line):
    say(type="arrived", stream=line["stream"], position=line["position"])

def answer(line, response, **more):
    say(type="answer", id=line["id"], trial=line["trial"], response=response, **more)
"""


def program(bench: Bench, code: str, name: str = "m.py") -> list[str]:
    """Write a method's program; gives its command."""
    folder = bench.methods / "m"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(PYTHON + code if name == "m.py" else code)
    return [{".sh": "sh", ".js": "node", ".py": sys.executable}[Path(name).suffix], name]


LOOP = """
for line in lines():
    if line["type"] == "documents":
        arrived(line)
    if line["type"] == "probe":
        answer(line, "## Answer: " + line["question"])
"""


# ---------------------------------------------------------------- the same answers


@pytest.mark.parametrize(("name", "code"), [("m.sh", SHELL), ("m.js", NODE)], ids=["shell", "node"])
@pytest.mark.parametrize("one_at_a_time", [False, True])
def test_a_program_in_another_language_gives_the_bytes_of_closed_book(
    bench: Bench, tiny: Path, name: str, code: str, one_at_a_time: bool
) -> None:
    setup = model(tiny, sampling=Sampling(temperature=0.8, max_tokens=6)) | {"trials": 2}
    work = rounds(2, ["q0", "q1"])
    expected = closed_book(bench, setup, work)
    bench.run(work, **setup, **ALIASES, command=program(bench, code, name), one_at_a_time=one_at_a_time)
    assert unmeasured(bench.predictions()) == expected


def test_a_program_is_told_what_arrives_in_order_and_what_it_says_is_recorded(bench: Bench) -> None:
    command = program(
        bench,
        """
seen = {}
start = next(lines())
for line in lines():
    if line["type"] == "documents":
        seen.setdefault(line["stream"], []).extend(d["id"] for d in line["documents"])
        arrived(line)
    else:
        first = seen[line["stream"]][0]
        answer(
            line,
            f"## Answer: {start['parameters']['k']} {start['seed']} {seen[line['stream']]} {line['trial']}",
            retrieved=[{"id": first, "score": 0.5}],
            context={"documents": 1, "dropped": 2},
            values={"sure": 0.25},
        )
""",
    )
    both = Round(documents=documents([0]) + documents([0, 1], "t"), probes=probes(0, ["a"]) + probes(1, ["a"], "t"))
    later = Round(documents=documents([1]), probes=probes(1, ["a"]))
    bench.run([both, later], command=command, seed=7, trials=2, parameters={"k": 3})
    found = {(p.probe_id, p.trial): p for p in bench.predictions()}
    assert {key: answer_of(p) for key, p in found.items() if key[1] == 1} == {
        ("sa@0", 1): "3 7 ['s0'] 1",
        ("ta@1", 1): "3 7 ['t0', 't1'] 1",
        ("sa@1", 1): "3 7 ['s0', 's1'] 1",
    }
    one = found["ta@1", 0]
    assert [(r.id, r.score, r.rank) for r in one.retrieved] == [("t0", 0.5, 1)]
    assert (one.context.documents, one.context.dropped, one.values) == (1, 2, {"sure": 0.25})


def test_a_probe_is_asked_when_the_program_has_taken_in_what_arrived_and_not_before(bench: Bench) -> None:
    command = program(
        bench,
        """
import select, time
for line in lines():
    if line["type"] == "documents":
        time.sleep(0.2)
        early = bool(select.select([sys.stdin], [], [], 0)[0])
        arrived(line)
    if line["type"] == "probe":
        answer(line, f"## Answer: {early}")
""",
    )
    bench.run(rounds(2, ["a"]), command=command)
    assert [answer_of(p) for p in bench.predictions()] == ["False", "False"]


@pytest.mark.parametrize(("one_at_a_time", "most"), [(False, "4"), (True, "1")])
def test_several_probes_are_open_at_a_time_unless_the_card_says_otherwise(
    bench: Bench, one_at_a_time: bool, most: str
) -> None:
    command = program(
        bench,
        """
import select
waiting = []
while line := os.read(0, 1 << 20):
    for line in map(json.loads, line.splitlines()):
        if line["type"] == "documents":
            arrived(line)
        if line["type"] == "probe":
            waiting.append(line)
    if not select.select([0], [], [], 0.3)[0]:
        n = len(waiting)
        for line in waiting:
            answer(line, f"## Answer: {n}")
        waiting.clear()
""",
    )
    settings = EngineSettings(name="none", max_in_flight=4)
    bench.run(rounds(1, ["a", "b", "c", "d"]), command=command, engine=settings, one_at_a_time=one_at_a_time)
    assert {answer_of(p) for p in bench.predictions()} == {most}


def test_a_program_with_one_client_finds_it_in_its_environment_and_each_probe_is_booked(
    bench: Bench, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_BASE_URL", "OPENAI_API_BASE", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, "")  # put back afterwards
    command = program(
        bench,
        """
import openai
client = openai.OpenAI()
for line in lines():
    if line["type"] == "documents":
        arrived(line)
    if line["type"] == "probe":
        for _ in range(int(line["question_id"][-1])):
            reply = client.chat.completions.create(model="reader", messages=line["messages"])
        answer(line, reply.choices[0].message.content)
""",
    )
    bench.run(rounds(1, ["1", "2", "3"]), **model(tiny), command=command, one_at_a_time=True)
    assert [p.usage.calls for p in bench.predictions()] == [1, 2, 3]
    assert all(p.error is None for p in bench.predictions())


def test_a_program_may_ask_models_as_documents_arrive_and_only_until_it_has_taken_them_in(
    bench: Bench, tiny: Path
) -> None:
    command = program(
        bench,
        """
import openai

def ask(line):
    client = openai.OpenAI(base_url=line["base_url"], api_key=line["api_key"], max_retries=0)
    messages = [{"role": "user", "content": "Sum up."}]
    return client.chat.completions.create(model="reader", messages=messages).choices[0].message.content

for line in lines():
    if line["type"] == "documents":
        notes, last = ask(line), line
        arrived(line)
    if line["type"] == "probe":
        try:
            ask(last)
        except openai.APIStatusError as error:
            answer(line, f"## Answer: {error.status_code} {len(notes) > 0}")
""",
    )
    bench.run(rounds(2, ["a"]), **model(tiny), command=command)
    assert [(answer_of(p), p.usage.calls) for p in bench.predictions()] == [("410 True", 0)] * 2
    assert json.loads((bench.output / "usage.json").read_text())["arrival"]["calls"] == 2


# ---------------------------------------------------------------- failures of one probe


def test_a_probe_that_the_program_gives_up_is_a_failure_with_its_words(bench: Bench) -> None:
    command = program(
        bench,
        """
for line in lines():
    if line["type"] == "documents":
        arrived(line)
    if line["type"] == "probe" and line["question_id"] == "sa":
        say(type="failed", id=line["id"], trial=0, error="no idea")
    elif line["type"] == "probe":
        answer(line, "## Answer: park")
""",
    )
    bench.run(rounds(2), command=command)
    assert {(p.probe_id, answer_of(p)) for p in bench.predictions() if p.error is None} == {
        ("sb@0", "park"),
        ("sb@1", "park"),
    }
    assert all(p.error.startswith("RuntimeError: no idea") for p in bench.predictions() if p.error is not None)
    assert len(bench.predictions()) == 4


def test_calls_beyond_the_limit_end_the_probe_and_a_late_answer_changes_nothing(bench: Bench, tiny: Path) -> None:
    command = program(
        bench,
        """
import openai
for line in lines():
    if line["type"] == "documents":
        arrived(line)
    if line["type"] == "probe":
        client = openai.OpenAI(base_url=line["base_url"], api_key=line["api_key"])
        try:
            for _ in range(3 if line["question_id"] == "sa" else 2):
                client.chat.completions.create(model="reader", messages=line["messages"])
        except openai.APIStatusError:
            pass
        answer(line, "## Answer: park")
""",
    )
    bench.run(rounds(2), **model(tiny), command=command, max_calls=2)
    errors = {p.probe_id: p.error for p in bench.predictions()}
    assert errors["sb@0"] is None and errors["sb@1"] is None
    assert str(errors["sa@0"]).startswith("TooManyCalls") and str(errors["sa@1"]).startswith("TooManyCalls")


# ---------------------------------------------------------------- failures of all

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


# ---------------------------------------------------------------- somebody else on the machine

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


# ---------------------------------------------------------------- the card

CARD = "label: M\npapers: []\nsummary: s\nreference: r\nvariants: {default: {}}\n"


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


def test_every_line_of_the_page_is_one_that_the_code_speaks() -> None:
    page = (Path(__file__).resolve().parents[1] / "docs/bring-your-repository.md").read_text()
    lines = [json.loads(line) for line in page.splitlines() if line.startswith('{"type"')]
    kinds: dict[str, Any] = {
        kind.__struct_config__.tag: kind
        for kind in (module.Start, module.Documents, module.Ask, module.Arrived, module.Answered, module.Failed)
    }
    assert {line["type"] for line in lines} == set(kinds)
    for line in lines:
        found = msgspec.convert(line, kinds[line["type"]], strict=True)
        assert set(line) <= {"type", *found.__struct_fields__}
    assert msgspec.json.schema(Prediction)
