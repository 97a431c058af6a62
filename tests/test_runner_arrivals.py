"""Claims about the runner: methods that are told of documents as they arrive, and engines kept busy."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine_models import Recorder
from runner_bench import CHAT, HEADER, ROOT, Bench, bench, documents, model, probes, rounds, tiny, unmeasured
from upkeep.cell.tokens import ChatTokens
from upkeep.contract import (
    EngineSettings,
    MethodCard,
    Round,
    Sampling,
    Spent,
    Usage,
)
from upkeep.execution.rounds import BuiltDataset, answering, tasks
from upkeep.yaml_files import read_yaml

__all__ = ["bench", "tiny"]

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

# ---------------------------------------------------------------- documents that arrive


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
    line = (HEADER + REMEMBER).partition("raise RuntimeError")[0].count("\n") + 1
    reason = f"LookupError: document 's1' could not be taken in: RuntimeError: no note (methods/m/method.py:{line})"
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
        (strand,) = tasks(corpus, [answering(corpus, min_probes=4, min_streams=2)], 2, done)
        return [task.round for task in strand]

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
            corpus = BuiltDataset(Path(), held, asked)
            (fed,) = tasks(corpus, [answering(corpus, min_probes=1, min_streams=card.streams)], 1, bytes(len(asked)))
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
