"""Claims about methods that are programs: any program can be one, and gets what a method gets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from door_clients import ALIASES, closed_book
from host_fakes import answer_of
from program_cells import program
from runner_bench import Bench, bench, documents, model, probes, rounds, tiny, unmeasured
from upkeep.cell import command as module
from upkeep.contract import EngineSettings, Prediction, Round, Sampling

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
