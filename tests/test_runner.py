"""Claims about the runner: what a method sees, what is written, and what survives being killed."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from upkeep.cell.make_model import tiny_llama
from upkeep.cell.runner import Log, describe, load_method, run
from upkeep.contract import (
    CellDescription,
    Document,
    EngineSettings,
    Gold,
    Memory,
    ModelSpec,
    Pair,
    Prediction,
    Probe,
    Round,
    Sampling,
    Usage,
)

SRC = Path(__file__).resolve().parents[1] / "src"

HEADER = """
import asyncio
from upkeep.cell import Answer, Method, Message, Memory
from upkeep.cell.method import Context
"""
ECHO = """
class Echo(Method):
    async def answer(self, probe, seen, llm):
        return Answer("## Answer: " + ",".join(d.id for d in seen.documents))
"""
CHAT = """
class Chat(Method):
    async def answer(self, probe, seen, llm):
        return await self.read(probe, llm, Context(recent=seen.documents))
"""
REMEMBER = """
class Notes(Method):
    async def remember(self, memory, document, llm):
        if document.position in self.parameters.get("fail", []):
            raise RuntimeError("no note")
        return memory + document.id + ";"
"""


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    tiny_llama(folder)
    return folder


class Bench:
    """A methods' folder, an output folder, and a cell between them."""

    def __init__(self, folder: Path) -> None:
        self.methods = folder / "methods"
        self.output = folder / "out"
        self.output.mkdir()

    def method(self, code: str) -> None:
        path = self.methods / "m" / "method.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(HEADER + code)

    def cell(self, **changes: Any) -> CellDescription:
        fields: dict[str, Any] = {
            "task": "answer",
            "dataset": "d",
            "method": "m",
            "variant": "v",
            "model": "none",
            "parameters": {},
            "model_spec": None,
            "model_path": None,
            "engine": EngineSettings(name="none"),
            "chunk_tokens": 100,
            "prompt": "oaks_babi",
            "output": str(self.output),
        }
        return CellDescription(**(fields | changes))

    def run(self, rounds: Iterable[Round], **changes: Any) -> None:
        lines = b"".join(msgspec.json.encode(r) + b"\n" for r in rounds)
        run(self.cell(**changes), self.methods, io.BytesIO(lines))

    def predictions(self) -> list[Prediction]:
        data = (self.output / "predictions.jsonl").read_bytes()
        assert not data or data.endswith(b"\n")
        return [msgspec.json.decode(line, type=Prediction) for line in data.splitlines()]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def documents(positions: Iterable[int], stream: str = "s") -> list[Document]:
    return [
        Document(
            id=f"{stream}{i}", stream=stream, position=i, timestamp=None, text=f"Part {i}. " + "They went home. " * 30
        )
        for i in positions
    ]


def probes(position: int, questions: Sequence[str] = ("a", "b"), stream: str = "s") -> list[Probe]:
    return [
        Probe(
            id=f"{stream}{q}@{position}",
            question_id=f"{stream}{q}",
            stream=stream,
            position=position,
            question=f"Where is {q}?",
            options=None,
            form="short",
        )
        for q in questions
    ]


def rounds(intervals: int, questions: Sequence[str] = ("a", "b")) -> list[Round]:
    return [Round(documents=documents([t]), probes=probes(t, questions)) for t in range(intervals)]


def model(tiny: Path, **changes: Any) -> dict[str, Any]:
    spec = ModelSpec(
        label="tiny",
        summary="",
        source="rule",
        location="tiny_llama",
        context_length=30_000,
        sampling=Sampling(max_tokens=6),
    )
    return {
        "model": "tiny",
        "model_spec": msgspec.structs.replace(spec, **changes),
        "model_path": str(tiny),
        "engine": EngineSettings(name="transformers"),
    }


def unmeasured(predictions: Iterable[Prediction]) -> list[bytes]:
    """Predictions as published: without what a machine measured, in a fixed order."""
    return sorted(msgspec.json.encode(msgspec.structs.replace(p, measured=None)) for p in predictions)


# ---------------------------------------------------------------- what a method sees


def test_a_method_sees_the_documents_up_to_its_probe_and_no_later_one(bench: Bench) -> None:
    bench.method(ECHO)
    bench.run(rounds(3))
    seen = {p.probe_id: p.answer for p in bench.predictions()}
    assert seen["sa@0"] == "s0"
    assert seen["sb@2"] == "s0,s1,s2"


def test_a_probe_about_the_past_does_not_see_what_arrived_since(bench: Bench) -> None:
    bench.method(ECHO)
    bench.run([Round(documents=documents(range(4)), probes=probes(1) + probes(3))])
    seen = {p.probe_id: p.answer for p in bench.predictions()}
    assert (seen["sa@1"], seen["sa@3"]) == ("s0,s1", "s0,s1,s2,s3")


def test_a_method_sees_its_own_stream_alone(bench: Bench) -> None:
    bench.method(ECHO)
    bench.run([Round(documents=documents([0]) + documents([0], "t"), probes=probes(0) + probes(0, stream="t"))])
    assert {p.probe_id: p.answer for p in bench.predictions()}["ta@0"] == "t0"


def test_the_next_round_is_read_when_the_predictions_of_this_one_are_on_disk(bench: Bench) -> None:
    bench.method(ECHO)
    path = bench.output / "predictions.jsonl"
    on_disk = []

    class Host(io.BytesIO):
        def readline(self, size: int | None = -1, /) -> bytes:
            on_disk.append(path.read_bytes().count(b"\n"))
            return super().readline(size)

    lines = b"".join(msgspec.json.encode(r) + b"\n" for r in rounds(3))
    run(bench.cell(), bench.methods, Host(lines))
    assert on_disk == [0, 2, 4, 6]


def test_a_probe_about_a_document_that_has_not_arrived_stops_the_cell(bench: Bench) -> None:
    bench.method(ECHO)
    with pytest.raises(ValueError, match="1 documents"):
        bench.run([Round(documents=documents([0]), probes=probes(1))])
    assert bench.predictions() == []


def test_documents_out_of_order_stop_the_cell(bench: Bench) -> None:
    bench.method(ECHO)
    with pytest.raises(ValueError, match="position 2"):
        bench.run([Round(documents=documents([0, 2]), probes=[])])


def test_the_answer_key_reaches_only_the_probe_it_belongs_to(bench: Bench) -> None:
    bench.method(
        """
class Key(Method):
    async def answer(self, probe, seen, llm):
        return Answer("## Answer: " + (seen.gold.answers[0] if seen.gold else "nothing"))
"""
    )
    gold = Gold(probe_id="sa@0", answers=["park"], outdated=[], evidence=[])
    bench.run([Round(documents=documents([0]), probes=probes(0), gold=[gold])])
    assert {p.probe_id: p.answer for p in bench.predictions()} == {"sa@0": "park", "sb@0": "nothing"}


def test_a_memory_from_the_future_is_refused(bench: Bench) -> None:
    bench.method(ECHO)
    memory = Memory(stream="s", position=1, text="later", usage=Usage())
    with pytest.raises(ValueError, match="memory of stream"):
        bench.run([Round(documents=documents([0, 1]), probes=probes(0), memories=[memory])])


def test_documents_arrive_before_their_probes_are_answered(bench: Bench) -> None:
    bench.method(
        """
class Count(Method):
    n = 0
    async def arrive(self, documents):
        self.n += len(documents)
    async def answer(self, probe, seen, llm):
        return Answer(f"## Answer: {self.n}")
"""
    )
    bench.run(rounds(3, ["a"]))
    assert [p.answer for p in bench.predictions()] == ["1", "2", "3"]


# ---------------------------------------------------------------- what is written


def test_a_method_that_raises_gives_a_line_with_its_error_and_the_cell_goes_on(bench: Bench) -> None:
    bench.method(
        """
class Broken(Method):
    async def answer(self, probe, seen, llm):
        if probe.question_id == "sa":
            raise KeyError("lamp \\ud800")
        return Answer("## Answer: park")
"""
    )
    bench.run(rounds(1))
    failed, fine = bench.predictions()
    assert failed.error is not None
    assert failed.error.startswith("KeyError:")
    assert (failed.response, failed.answer, failed.parse, failed.finish_reason) == (None, None, "none", "none")
    assert (fine.error, fine.answer, fine.parse) == (None, "park", "marker")


@pytest.mark.parametrize(
    "answer",
    [
        "None",
        "Answer(5)",
        'Answer("\\ud800")',
        "Answer('x', retrieved=[Retrieved(id='s0', score=float('nan'), rank=1)])",
        "Answer('x', retrieved=[Retrieved(id='s0', score=1.0, rank=0)])",
        "Answer('x' * 1_000_001)",
    ],
)
def test_an_answer_that_breaks_the_contract_is_a_failure_with_a_line(bench: Bench, answer: str) -> None:
    bench.method(
        f"""
from upkeep.cell import Retrieved
class Odd(Method):
    async def answer(self, probe, seen, llm):
        return {answer}
"""
    )
    bench.run(rounds(1, ["a"]))
    (line,) = bench.predictions()
    assert line.error
    assert line.answer is None


def test_every_probe_is_answered_in_every_trial(bench: Bench) -> None:
    bench.method(ECHO)
    bench.run(rounds(2), trials=3)
    keys = [(p.probe_id, p.trial) for p in bench.predictions()]
    assert len(keys) == len(set(keys)) == 12


def test_predictions_are_in_the_order_of_the_round(bench: Bench) -> None:
    bench.method(ECHO)
    names = [f"q{i}" for i in range(40)]
    bench.run(rounds(1, names), engine=EngineSettings(name="none", max_in_flight=3))
    assert [p.probe_id for p in bench.predictions()] == [f"s{n}@0" for n in names]


def test_no_more_probes_are_in_flight_than_allowed(bench: Bench) -> None:
    bench.method(
        """
class Busy(Method):
    now = most = 0
    async def answer(self, probe, seen, llm):
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0)
        self.now -= 1
        return Answer(f"## Answer: {self.most}")
"""
    )
    bench.run(rounds(1, [f"q{i}" for i in range(20)]), engine=EngineSettings(name="none", max_in_flight=4))
    assert bench.predictions()[-1].answer == "4"


def test_environment_is_on_record(bench: Bench) -> None:
    bench.method(ECHO)
    bench.run([])
    found = json.loads((bench.output / "engine.json").read_text())
    assert found["engine"] == "none"
    assert "msgspec" in found["packages"]
    assert found["hardware"]["cores"] >= 1


def test_an_error_is_cut_to_what_the_contract_allows() -> None:
    assert len(describe(ValueError("x" * 50_000))) == 10_000


@pytest.mark.parametrize("code", ["", ECHO + ECHO.replace("Echo", "Again")])
def test_a_method_file_defines_exactly_one_method(bench: Bench, code: str) -> None:
    bench.method(code)
    with pytest.raises(ValueError, match="one subclass"):
        load_method(bench.methods, "m")


# ---------------------------------------------------------------- resuming


def test_a_torn_last_line_is_cut_off_and_done_again(bench: Bench) -> None:
    bench.method(ECHO)
    bench.run(rounds(2))
    whole = bench.predictions()
    path = bench.output / "predictions.jsonl"
    data = path.read_bytes()
    for cut in (len(data) - 1, len(data) - 40, data.index(b"\n"), data.index(b"\n") + 1, 3, 0):
        path.write_bytes(data[:cut])
        bench.run(rounds(2))
        assert unmeasured(bench.predictions()) == unmeasured(whole)


def test_what_is_done_is_not_done_again(bench: Bench) -> None:
    bench.method(ECHO)
    bench.run(rounds(2))
    before = (bench.output / "predictions.jsonl").read_bytes()
    bench.run(rounds(2))
    assert (bench.output / "predictions.jsonl").read_bytes() == before


def test_a_probe_named_twice_in_a_round_is_answered_once(bench: Bench) -> None:
    bench.method(ECHO)
    bench.run([Round(documents=documents([0]), probes=probes(0) + probes(0))])
    assert len(bench.predictions()) == 2


def test_a_whole_line_that_is_no_prediction_stops_the_cell(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_bytes(b'{"probe_id": 1}\n')
    with pytest.raises(msgspec.DecodeError):
        Log(tmp_path / "p.jsonl", Prediction)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_order_and_interruption_never_change_a_prediction(bench: Bench, tiny: Path, temperature: float) -> None:
    bench.method(CHAT)
    setup = model(tiny, sampling=Sampling(temperature=temperature, max_tokens=6))
    path = bench.output / "predictions.jsonl"
    bench.run(rounds(4), **setup)
    undisturbed = unmeasured(bench.predictions())
    assert len({p.response for p in bench.predictions()}) > 1

    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[::3]) + lines[1][:20])  # some lines, and a torn one
    bench.run(rounds(4), **setup)
    assert unmeasured(bench.predictions()) == undisturbed

    path.unlink()
    shuffled = EngineSettings(name="transformers", shuffle=True, max_in_flight=3)
    everything = Round(documents=documents(range(4)), probes=[p for t in range(4) for p in probes(t)])
    bench.run([everything], **(setup | {"engine": shuffled}))
    assert unmeasured(bench.predictions()) == undisturbed


def test_a_cell_killed_at_any_moment_ends_with_the_same_predictions(bench: Bench, tiny: Path) -> None:
    bench.method(CHAT)
    work = rounds(3, ["a", "b", "c"])
    bench.run(work, **model(tiny))
    path = bench.output / "predictions.jsonl"
    undisturbed = unmeasured(bench.predictions())
    path.unlink()

    (bench.output / "cell.json").write_bytes(msgspec.json.encode(bench.cell(**model(tiny))))
    command = [sys.executable, "-m", "upkeep.cell", str(bench.output / "cell.json")]
    environment = os.environ | {"PYTHONPATH": str(SRC), "UPKEEP_METHODS": str(bench.methods)}
    process = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment)
    assert process.stdin is not None
    process.stdin.write(msgspec.json.encode(work[0]) + b"\n")
    process.stdin.flush()
    while not path.exists() or not path.read_bytes().count(b"\n"):
        assert process.poll() is None
    process.kill()
    process.wait()
    process.stdin.close()
    assert 1 <= path.read_bytes().count(b"\n") <= 3

    lines = b"".join(msgspec.json.encode(r) + b"\n" for r in work)
    subprocess.run(command, input=lines, env=environment, check=True)
    assert unmeasured(bench.predictions()) == undisturbed


def test_a_cell_that_is_asked_to_end_ends_at_once(bench: Bench) -> None:
    bench.method(ECHO)
    (bench.output / "cell.json").write_bytes(msgspec.json.encode(bench.cell()))
    command = [sys.executable, "-m", "upkeep.cell", str(bench.output / "cell.json"), str(bench.methods)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(SRC)})
    assert process.stdin is not None
    process.stdin.write(msgspec.json.encode(rounds(1)[0]) + b"\n")
    process.stdin.flush()
    path = bench.output / "predictions.jsonl"
    while not path.exists() or path.read_bytes().count(b"\n") < 2:
        assert process.poll() is None
    process.terminate()
    assert process.wait() == 143
    process.stdin.close()


# ---------------------------------------------------------------- models


def test_usage_and_finish_reason_are_booked(bench: Bench, tiny: Path) -> None:
    bench.method(CHAT)
    bench.run(rounds(2), **model(tiny))
    found = bench.predictions()
    assert all(p.usage.calls == 1 and p.usage.completion == 6 and p.finish_reason == "length" for p in found)
    assert all(p.context.documents == int(p.probe_id[-1]) + 1 for p in found)
    measured = [p.measured for p in found if p.measured is not None]
    assert [m.cached > 0 for m in measured] == [False, True, True, True]
    assert all(m.latency_s > 0 for m in measured)


def test_reasoning_is_kept_apart(bench: Bench, tiny: Path) -> None:
    bench.method(CHAT)
    bench.run(rounds(1, ["a"]), **model(tiny))
    text = bench.predictions()[0].response or ""
    tag = text[2:4]
    (bench.output / "predictions.jsonl").unlink()
    bench.run(rounds(1, ["a"]), **model(tiny, thinking_tags=("<none>", tag)))
    (found,) = bench.predictions()
    assert found.reasoning == text.partition(tag)[0].strip()
    assert found.response == text.partition(tag)[2].lstrip("\n")


def test_reasoning_that_did_not_end_is_no_answer(bench: Bench, tiny: Path) -> None:
    bench.method(CHAT)
    bench.run(rounds(1, ["a"]), **model(tiny, thinking="on", thinking_tags=("<none>", "</none>")))
    (found,) = bench.predictions()
    assert (found.response, found.answer, found.parse, found.error) == ("", None, "none", None)
    assert found.reasoning


def test_a_prompt_that_cannot_fit_is_a_failure_of_its_probe(bench: Bench, tiny: Path) -> None:
    bench.method(CHAT)
    bench.run(rounds(1, ["a"]), **model(tiny, context_length=20))
    assert (bench.predictions()[0].error or "").startswith("PromptTooLong")


# ---------------------------------------------------------------- memories and training


def memories(bench: Bench) -> list[Memory]:
    lines = (bench.output / "memory.jsonl").read_bytes().splitlines()
    return [msgspec.json.decode(line, type=Memory) for line in lines]


def test_a_memory_grows_document_by_document_in_each_stream(bench: Bench) -> None:
    bench.method(REMEMBER)
    bench.run([Round(documents=documents([0, 1]) + documents([0], "t"), probes=[])], task="remember")
    found = {(m.stream, m.position): m.text for m in memories(bench)}
    assert found == {("s", 0): "s0;", ("s", 1): "s0;s1;", ("t", 0): "t0;"}


def test_a_memory_does_not_depend_on_later_documents(bench: Bench) -> None:
    bench.method(REMEMBER)
    bench.run(rounds(2), task="remember")
    short = memories(bench)
    (bench.output / "memory.jsonl").unlink()
    bench.run(rounds(5), task="remember")
    assert memories(bench)[:2] == short


def test_a_memory_goes_on_after_the_last_whole_line(bench: Bench) -> None:
    bench.method(REMEMBER)
    bench.run(rounds(4), task="remember")
    whole = memories(bench)
    path = bench.output / "memory.jsonl"
    data = path.read_bytes()
    path.write_bytes(data[: data.index(b"\n") + 9])
    bench.run(rounds(4), task="remember")
    assert memories(bench) == whole


def test_a_failed_note_is_visible_and_leaves_the_memory_as_it_was(bench: Bench) -> None:
    bench.method(REMEMBER)
    bench.run(rounds(3), task="remember", parameters={"fail": [1]})
    assert [(m.text, m.error) for m in memories(bench)] == [
        ("s0;", None),
        ("s0;", "RuntimeError: no note"),
        ("s0;s2;", None),
    ]


def test_training_gets_model_pairs_and_a_place_for_the_new_model(bench: Bench, tiny: Path, tmp_path: Path) -> None:
    bench.method(
        """
class Trainer(Method):
    def train(self, model, weights, pairs, output):
        output.mkdir()
        (output / "log").write_text(f"{model.label} {weights.name} {[p.answer for p in pairs]}")
"""
    )
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_bytes(b"".join(msgspec.json.encode(Pair(question="q", answer=a)) + b"\n" for a in "xy"))
    bench.run([], task="train", pairs=str(pairs), **model(tiny))
    assert (bench.output / "model" / "log").read_text() == f"tiny {tiny.name} ['x', 'y']"
    assert (bench.output / "engine.json").is_file()


# ---------------------------------------------------------------- vLLM


@pytest.mark.vllm
def test_vllm_is_deterministic_shares_prefixes_and_agrees_with_transformers(
    bench: Bench, tiny: Path, vllm_python: Path
) -> None:
    bench.method(CHAT)
    work = rounds(4, [f"q{i}" for i in range(6)])
    path = bench.output / "predictions.jsonl"
    bench.run(work, **model(tiny))
    reference = {p.probe_id: p.response for p in bench.predictions()}

    setup = model(tiny) | {"engine": EngineSettings(name="vllm", options={"kv_cache_gib": 0.25})}
    (bench.output / "cell.json").write_bytes(msgspec.json.encode(bench.cell(**setup)))
    lines = b"".join(msgspec.json.encode(r) + b"\n" for r in work)
    runs: list[list[Prediction]] = []
    path.unlink()
    for attempt in ("first", "second", "resumed"):
        if attempt == "second":
            path.unlink()
        if attempt == "resumed":
            kept = path.read_bytes().splitlines(keepends=True)
            path.write_bytes(b"".join(kept[::3]) + kept[1][:20])
        subprocess.run(
            [vllm_python, "-m", "upkeep.cell", str(bench.output / "cell.json"), str(bench.methods)],
            input=lines,
            env=os.environ | {"PYTHONPATH": str(SRC)},
            check=True,
        )
        runs.append(bench.predictions())
    first, second, resumed = runs
    assert unmeasured(first) == unmeasured(second) == unmeasured(resumed)
    assert [p.measured.cached for p in first if p.measured] == [p.measured.cached for p in second if p.measured]
    same = sum(reference[p.probe_id] == p.response for p in first)
    assert same >= 0.8 * len(first)
    prompt = sum(p.usage.prompt for p in first)
    cached = sum(p.measured.cached for p in first if p.measured)
    assert cached > 0.6 * prompt
