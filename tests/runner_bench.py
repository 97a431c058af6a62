"""A bench on which tests run cells in processes: small methods, rounds of documents and probes, and a tiny model."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from method_fakes import PROMPTS
from upkeep.cell.runner import run
from upkeep.contract import (
    CellDescription,
    Document,
    EngineSettings,
    ModelSpec,
    Prediction,
    Probe,
    Round,
    Sampling,
)
from upkeep.serving.alone import load
from upkeep.serving.make_model import tiny_llama

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
