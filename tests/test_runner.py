"""Claims about the runner: what a method sees, what is written, and what survives being killed."""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from host_fakes import answer_of
from method_fakes import PROMPTS
from test_engines import Recorder
from upkeep.cell.loading import load_method
from upkeep.cell.runner import Log, describe, run
from upkeep.cell.tokens import ChatTokens
from upkeep.cell.training import Checkpoints
from upkeep.contract import (
    CellDescription,
    Document,
    EngineSettings,
    Gold,
    MethodCard,
    ModelSpec,
    Pair,
    Prediction,
    Probe,
    Round,
    Sampling,
    Spent,
    Usage,
)
from upkeep.execution.rounds import BuiltDataset, tasks
from upkeep.serving.alone import load
from upkeep.serving.make_model import tiny_llama
from upkeep.yaml_files import read_yaml

ROOT = Path(__file__).resolve().parents[1]
SRC = ROOT / "src"

HEADER = """
import asyncio
from upkeep.cell import Answer, Method, Message
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
    def __init__(self, parameters, tools):
        super().__init__(parameters, tools)
        self.notes = {}

    async def arrive(self, stream, documents, llm):
        for document in documents:
            if document.id in self.parameters.get("fail", []):
                raise RuntimeError("no note")
            text = f"{document.id} {document.text} {self.notes.get(stream, '')}"
            reply = await llm.chat([Message(role="user", parts=[text])])
            self.notes[stream] = f"{self.notes.get(stream, '')} {document.id}: {reply.text}"[-300:]

    async def answer(self, probe, seen, llm):
        answer = await self.read(probe, llm, Context(memory=self.notes[probe.stream]))
        return Answer(f"{self.notes[probe.stream]} {answer.response}", context=answer.context)
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
            "prompt": PROMPTS["oaks_babi"].card,
            "output": str(self.output),
        }
        return CellDescription(**(fields | changes))

    def run(self, rounds: Iterable[Round], **changes: Any) -> None:
        lines = b"".join(msgspec.json.encode(r) + b"\n" for r in rounds)
        run(self.cell(**changes), self.methods, io.BytesIO(lines), load)

    def again(self, work: Iterable[Round], kept: Sequence[Prediction], **changes: Any) -> list[Prediction]:
        """Predictions of a container that starts again, in an empty folder, after the host has accepted some of them;
        with those."""
        there = {(p.probe_id, p.trial) for p in kept}
        trials = range(changes.get("trials", 1))
        fed = []
        for round in work:
            left = [p for p in round.probes if any((p.id, trial) not in there for trial in trials)]
            done = [(p.id, trial) for p in left for trial in trials if (p.id, trial) in there]
            fed.append(msgspec.structs.replace(round, probes=left, done=done))
        self.empty()
        self.run(fed, **changes)
        return [*kept, *self.predictions()]

    def empty(self) -> None:
        shutil.rmtree(self.output)
        self.output.mkdir()

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


# ---------------------------------------------------------------- the package

FIRST = """
import importlib, sys
for name in sys.argv[1:]:
    for known in [known for known in sys.modules if known.partition(".")[0] == "upkeep"]:
        del sys.modules[known]
    importlib.import_module(name)
"""


def test_every_module_of_a_container_can_be_the_first_that_is_imported() -> None:
    """Then none imports another in a circle. Those of engines that are not installed here are left out."""
    paths = sorted(path for part in ("cell", "serving") for path in (SRC / "upkeep" / part).rglob("*.py"))
    names = [".".join(path.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__") for path in paths]
    names = [name for name in names if not name.endswith("__main__") and "vllm" not in name]
    subprocess.run([sys.executable, "-c", FIRST, *names], check=True, env=os.environ | {"PYTHONPATH": str(SRC)})


# ---------------------------------------------------------------- what a method sees


def test_a_method_sees_the_documents_up_to_its_probe_and_no_later_one(bench: Bench) -> None:
    bench.method(ECHO)
    bench.run(rounds(3))
    seen = {p.probe_id: answer_of(p) for p in bench.predictions()}
    assert seen["sa@0"] == "s0"
    assert seen["sb@2"] == "s0,s1,s2"


def test_a_probe_about_the_past_does_not_see_what_arrived_since(bench: Bench) -> None:
    bench.method(ECHO)
    bench.run([Round(documents=documents(range(4)), probes=probes(1) + probes(3))])
    seen = {p.probe_id: answer_of(p) for p in bench.predictions()}
    assert (seen["sa@1"], seen["sa@3"]) == ("s0,s1", "s0,s1,s2,s3")


def test_a_method_sees_its_own_stream_alone(bench: Bench) -> None:
    bench.method(ECHO)
    bench.run([Round(documents=documents([0]) + documents([0], "t"), probes=probes(0) + probes(0, stream="t"))])
    assert {p.probe_id: answer_of(p) for p in bench.predictions()}["ta@0"] == "t0"


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
    assert {p.probe_id: answer_of(p) for p in bench.predictions()} == {"sa@0": "park", "sb@0": "nothing"}


def test_documents_arrive_before_their_probes_are_answered(bench: Bench) -> None:
    bench.method(
        """
class Count(Method):
    n = 0
    async def arrive(self, stream, documents, llm):
        self.n += len(documents)
    async def answer(self, probe, seen, llm):
        return Answer(f"## Answer: {self.n}")
"""
    )
    bench.run(rounds(3, ["a"]))
    assert [answer_of(p) for p in bench.predictions()] == ["1", "2", "3"]


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
    assert (failed.response, failed.finish_reason) == (None, "none")
    assert (fine.error, fine.response) == (None, "## Answer: park")


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
    assert answer_of(line) is None


def test_numbers_that_a_method_measured_are_in_its_prediction(bench: Bench) -> None:
    bench.method("""
class Values(Method):
    async def answer(self, probe, seen, llm):
        return Answer(None, values={"score": -2.5, "bad": float(self.parameters["bad"])})
""")
    bench.run(rounds(1), parameters={"bad": "7"})
    assert {tuple(p.values.items()) for p in bench.predictions()} == {(("score", -2.5), ("bad", 7.0))}
    (bench.output / "predictions.jsonl").unlink()
    for bad in ("nan", "inf"):
        bench.run(rounds(1), parameters={"bad": bad})
        assert all("values" in (p.error or "") and not p.values for p in bench.predictions()), bad
        (bench.output / "predictions.jsonl").unlink()


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
    assert answer_of(bench.predictions()[-1]) == "4"


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


@pytest.mark.parametrize("trials", [1, 3])
def test_what_is_done_is_not_done_again(bench: Bench, trials: int) -> None:
    bench.method(ECHO)
    bench.run(rounds(3), trials=trials)
    whole = bench.predictions()
    for seed in range(10):
        kept = random.Random(seed).sample(whole, len(whole) // 2)
        found = bench.again(rounds(3), kept, trials=trials)
        assert len(found) == len(whole)
        assert unmeasured(found) == unmeasured(whole)
    assert len(bench.again(rounds(3), whole, trials=trials)) == len(whole)
    assert bench.predictions() == []


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
    bench.run(rounds(4), **setup)
    undisturbed = unmeasured(bench.predictions())
    assert len({p.response for p in bench.predictions()}) > 1

    kept = bench.predictions()[::3]
    assert unmeasured(bench.again(rounds(4), kept, **setup)) == undisturbed

    bench.empty()
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
    command = [sys.executable, "-m", "upkeep.serving.alone", str(bench.output / "cell.json")]
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
    path.write_bytes(path.read_bytes()[: path.read_bytes().rindex(b"\n") + 1])
    kept = bench.predictions()
    assert 1 <= len(kept) <= 3
    assert unmeasured(bench.again(work, kept, **model(tiny))) == undisturbed


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
    assert (found.response, found.error) == ("", None)
    assert found.reasoning


def test_a_prompt_that_cannot_fit_is_a_failure_of_its_probe(bench: Bench, tiny: Path) -> None:
    bench.method(CHAT)
    bench.run(rounds(1, ["a"]), **model(tiny, context_length=20))
    assert (bench.predictions()[0].error or "").startswith("PromptTooLong")


# ---------------------------------------------------------------- documents that arrive


CALLED = """
class Called(Method):
    def __init__(self, parameters, tools):
        super().__init__(parameters, tools)
        self.calls, self.now, self.most = [], 0, 0

    async def arrive(self, stream, documents, llm):
        self.calls.append([stream, [document.id for document in documents]])
        self.now += 1
        self.most = max(self.most, self.now)
        for _ in range(5):
            await asyncio.sleep(0)
        self.now -= 1

    async def answer(self, probe, seen, llm):
        assert not self.now, "no probe is asked while documents are taken in"
        return Answer(json.dumps([self.calls, self.most]))
"""


def test_each_stream_that_gains_documents_is_told_of_them_once_a_round(bench: Bench) -> None:
    bench.method("import json" + CALLED)
    s, t, u = documents(range(3)), documents(range(2), "t"), documents([0], "u")
    bench.run([
        Round(documents=[s[0], t[0], s[1]], probes=probes(1, "a")),
        Round(documents=[], probes=probes(0, "b", "t")),
        Round(documents=[t[1]], probes=[]),
        Round(documents=[u[0], s[2]], probes=probes(2, "a")),
    ])  # fmt: skip
    found = [json.loads(p.response or "")[0] for p in bench.predictions()]
    first = [["s", ["s0", "s1"]], ["t", ["t0"]]]
    assert found == [first, first, [*first, ["t", ["t1"]], ["u", ["u0"]], ["s", ["s2"]]]]


@pytest.mark.parametrize("most", [3, 256])
def test_streams_take_their_documents_in_side_by_side(bench: Bench, most: int) -> None:
    bench.method("import json" + CALLED)
    streams = [f"s{n}" for n in range(8)]
    arriving = [d for stream in streams for d in documents(range(2), stream)]
    engine = EngineSettings(name="none", max_in_flight=most)
    bench.run([Round(documents=arriving, probes=probes(1, "a", "s0"))], engine=engine)
    assert json.loads(bench.predictions()[0].response or "")[1] == min(most, 8)


def answered(bench: Bench) -> dict[str, str | None]:
    return {p.probe_id: p.error for p in bench.predictions()}


def test_a_document_that_cannot_be_taken_in_fails_the_later_probes_of_its_stream_and_no_others(
    bench: Bench, tiny: Path
) -> None:
    bench.method(REMEMBER)
    work = [
        Round(documents=documents([n]) + documents([n], "t"), probes=probes(n) + probes(n, stream="t"))
        for n in range(4)
    ]
    reason = "LookupError: document 's1' could not be taken in: RuntimeError: no note"
    bench.run(work, parameters={"fail": ["s1"]}, **model(tiny))
    found = answered(bench)
    assert {key for key, error in found.items() if error} == {f"s{q}@{n}" for q in "ab" for n in (1, 2, 3)}
    assert {error for error in found.values() if error} == {reason}
    lost = [p for p in bench.predictions() if p.error]
    assert all(p.usage == Usage() and p.response is None for p in lost)
    fine = unmeasured(p for p in bench.predictions() if not p.error)
    bench.empty()
    bench.run(work, **model(tiny))
    others = (p for p in bench.predictions() if p.probe_id.startswith("t") or p.probe_id.endswith("@0"))
    assert unmeasured(others) == fine, "the other stream is as if nothing had failed"


def test_a_memory_beyond_the_models_context_is_a_failure_of_its_stream(bench: Bench, tiny: Path) -> None:
    bench.method(REMEMBER)
    bench.run(rounds(1), **model(tiny, context_length=20))
    assert all((error or "").startswith("LookupError: document 's0'") for error in answered(bench).values())
    assert all("PromptTooLong" in (error or "") for error in answered(bench).values())


def arrival(bench: Bench) -> Usage:
    return msgspec.json.decode((bench.output / "usage.json").read_bytes(), type=Spent).arrival


def test_what_is_asked_as_documents_arrive_is_booked_apart_from_the_predictions(bench: Bench, tiny: Path) -> None:
    bench.method(REMEMBER)
    work = [
        Round(documents=documents([n]) + documents([n], "t"), probes=probes(n) + probes(n, stream="t"))
        for n in range(3)
    ]
    bench.run(work, **model(tiny))
    spent = arrival(bench)
    assert (spent.calls, spent.completion) == (6, 36) and spent.prompt > 6 * 50
    assert all(p.usage.calls == 1 and p.usage.completion == 6 for p in bench.predictions())
    assert len(bench.again(work, bench.predictions(), **model(tiny))) == 12
    assert arrival(bench) == spent, "a container that starts again asks it again, and the record answers"
    bench.method(CHAT)
    bench.empty()
    bench.run(work, **model(tiny))
    assert arrival(bench) == Usage()


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_method_that_asks_as_documents_arrive_gives_the_same_predictions_however_it_is_interrupted(
    bench: Bench, tiny: Path, temperature: float
) -> None:
    bench.method(REMEMBER)
    streams = {"s": 4, "t": 3, "u": 2}
    corpus = BuiltDataset(
        Path(),
        [d for stream, n in streams.items() for d in documents(range(n), stream)],
        [p for stream, n in streams.items() for at in range(n) for p in probes(at, stream=stream)],
    )
    setup = model(tiny, sampling=Sampling(temperature=temperature, max_tokens=6)) | {"trials": 2}

    def fed(done: Sequence[int]) -> list[Round]:
        return [task.round for task in tasks(corpus, 2, done, min_streams=2, min_probes=4)]

    size = 2 * len(corpus.probes)
    bench.run(fed(bytes(size)), **setup)
    whole = bench.predictions()
    keys = {(p.id, trial): 2 * n + trial for n, p in enumerate(corpus.probes) for trial in range(2)}
    assert (
        len(whole) == size
        and len({p.response for p in whole}) > (5 if temperature else 1)
        and not any(p.error for p in whole)
    )
    for seed in range(4):
        kept = random.Random(seed).sample(whole, size * (seed + 1) // 5)
        done = bytearray(size)
        for one in kept:
            done[keys[one.probe_id, one.trial]] = 1
        bench.empty()
        bench.run(fed(done), **setup)
        assert unmeasured([*kept, *bench.predictions()]) == unmeasured(whole)


def test_a_memory_does_not_depend_on_later_documents(bench: Bench, tiny: Path) -> None:
    bench.method(REMEMBER)
    bench.run(rounds(2), **model(tiny))
    short = unmeasured(bench.predictions())
    bench.empty()
    bench.run(rounds(5), **model(tiny))
    assert unmeasured(bench.predictions()[:4]) == short


class Asked(Recorder):
    """Answers all that is asked of it at once; when it is reset, nothing is lost."""

    def reset(self) -> None:
        pass


EXTRACT = """
class Extract(Method):
    def __init__(self, parameters, tools):
        super().__init__(parameters, tools)
        self.facts = {}

    async def arrive(self, stream, documents, llm):
        asked = [llm.chat([Message(role="user", parts=[document.text])]) for document in documents]
        self.facts.setdefault(stream, []).extend(reply.text for reply in await asyncio.gather(*asked))

    async def answer(self, probe, seen, llm):
        return Answer("; ".join(self.facts[probe.stream]))
"""
EACH_QUESTION = """
class EachQuestion(Method):
    def __init__(self, parameters, tools):
        super().__init__(parameters, tools)
        self.read_until, self.notes = {}, {}

    async def answer(self, probe, seen, llm):
        key = probe.question_id
        for document in seen.documents[self.read_until.get(key, 0) :]:
            reply = await llm.chat([Message(role="user", parts=[self.notes.get(key, ""), document.text])])
            self.notes[key] = reply.text
        self.read_until[key] = len(seen.documents)
        return Answer(self.notes[key])
"""


@pytest.mark.parametrize("method", ["a memory", "extraction", "a memory for each question"])
def test_the_engine_is_kept_busy(bench: Bench, tiny: Path, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """How many requests are in flight, at each step of the engine at least."""
    parameters: dict[str, Any] = {}
    match method:
        case "a memory":
            streams = [f"s{n}" for n in range(8)]
            held = [d for stream in streams for d in documents(range(4), stream)]
            asked = [p for stream in streams for at in range(4) for p in probes(at, "a", stream)]
            card = read_yaml(ROOT / "methods/memory_scaffold/method.yaml", MethodCard)
            # A round is full with one stream's probes, as where each has many questions.
            fed = tasks(BuiltDataset(Path(), held, asked), 1, bytes(len(asked)), min_streams=card.streams, min_probes=1)
            work, least, parameters = [task.round for task in fed], 4, {"budget": 16}
            shutil.copytree(ROOT / "methods/memory_scaffold", bench.methods / "m")
        case "extraction":
            bench.method(EXTRACT)
            work, least = [Round(documents=documents(range(64)), probes=[])], 16
        case _:
            bench.method(EACH_QUESTION)
            work, least = rounds(4, [f"q{n}" for n in range(20)]), 8
    setup = model(tiny)
    engine = Asked(ChatTokens(str(tiny), setup["model_spec"]))
    monkeypatch.setattr("upkeep.serving.alone.load_engine", lambda _: engine)
    bench.run(work, parameters=parameters, **setup)
    assert not any(p.error for p in bench.predictions())
    sizes = [len(batch) for batch in engine.batches]
    assert sizes and min(sizes) >= least, sizes


# ---------------------------------------------------------------- training


TRAINER = """
class Trainer(Method):
    def train(self, t):
        t.output.mkdir()
        known = t.checkpoints.latest.name if t.checkpoints.latest else None
        t.checkpoints.save(9 if known else 7, lambda folder: (folder / "state").write_text("x"))
        pairs, documents = [p.answer for p in t.pairs], [d.text for d in t.documents]
        (t.output / "log").write_text(f"{t.spec.label} {t.weights.name} {pairs} {documents} {known}")
"""


def lines_of(path: Path, records: Iterable[msgspec.Struct]) -> str:
    path.write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in records))
    return str(path)


def test_training_gets_what_it_is_to_learn_and_a_place_for_the_new_model(
    bench: Bench, tiny: Path, tmp_path: Path
) -> None:
    bench.method(TRAINER)
    given = {
        "pairs": lines_of(tmp_path / "pairs.jsonl", [Pair(question="q", answer=a) for a in "xy"]),
        "documents": lines_of(tmp_path / "documents.jsonl", documents([0])),
    }
    log = bench.output / "model" / "log"
    for known in ("None", "step-000000000007"):
        bench.run([], task="train", **given, **model(tiny))
        assert log.read_text() == f"tiny {tiny.name} ['x', 'y'] ['{documents([0])[0].text}'] {known}"
        shutil.rmtree(log.parent)
    assert (bench.output / "engine.json").is_file()


ASKING = """
class Trainer(Method):
    def train(self, t):
        async def study(llm):
            replies = [await llm.chat([{"role": "user", "parts": [d.text]}]) for d in t.documents]
            return [r.text for r in replies]
        t.output.mkdir()
        (t.output / "log").write_text("\\n--\\n".join(t.ask(study)))
"""


def test_a_training_that_does_not_say_so_asks_no_model(bench: Bench, tiny: Path, tmp_path: Path) -> None:
    bench.method(ASKING)
    given = {name: lines_of(tmp_path / name, []) for name in ("pairs", "documents")}
    with pytest.raises(ValueError, match="its card does not say"):
        bench.run([], task="train", **given, **model(tiny))


def test_a_checkpoint_is_whole_or_not_there(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path / "checkpoints")
    kept.save(1, lambda folder: (folder / "state").write_text("one"))

    def fails(folder: Path) -> None:
        (folder / "state").write_text("tw")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        kept.save(2, fails)
    again = Checkpoints(tmp_path / "checkpoints")
    assert again.latest is not None and (again.latest / "state").read_text() == "one"
    again.save(10, lambda folder: (folder / "state").write_text("ten"))
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["step-000000000010"]


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
    runs: list[list[Prediction]] = []
    for attempt in ("first", "second", "resumed"):
        kept = bench.predictions()[::3] if attempt == "resumed" else []
        path.unlink()
        done = {p.probe_id for p in kept}
        fed = [msgspec.structs.replace(r, probes=[p for p in r.probes if p.id not in done]) for r in work]
        subprocess.run(
            [vllm_python, "-m", "upkeep.serving.alone", str(bench.output / "cell.json"), str(bench.methods)],
            input=b"".join(msgspec.json.encode(r) + b"\n" for r in fed),
            env=os.environ | {"PYTHONPATH": str(SRC)},
            check=True,
        )
        runs.append([*kept, *bench.predictions()])
    first, second, resumed = runs
    assert unmeasured(first) == unmeasured(second) == unmeasured(resumed)
    assert [p.measured.cached for p in first if p.measured] == [p.measured.cached for p in second if p.measured]
    same = sum(reference[p.probe_id] == p.response for p in first)
    assert same >= 0.8 * len(first)
    prompt = sum(p.usage.prompt for p in first)
    cached = sum(p.measured.cached for p in first if p.measured)
    assert cached > 0.6 * prompt
