"""Runs one cell's task inside its container: reads rounds, runs the method's coroutines, appends results.

A container starts from nothing: it is fed all documents from the first one on, and is told which probes need no answer
because an earlier container has given it. Each result depends on its probe and on what had arrived alone (seeds
included), so an interrupted run and an undisturbed one end with the same lines.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
import traceback
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Generic, TypeVar

import msgspec

from upkeep.cell import own
from upkeep.cell.endpoint import Endpoint, EndpointHandle
from upkeep.cell.interface import LLM, Answer, Seen
from upkeep.cell.loading import Load, make_method, reach_embedder, reach_engine, reach_writer
from upkeep.cell.lockstep import Engine, EngineDied, Handle, lockstep
from upkeep.cell.machine import write_environment, write_usage
from upkeep.cell.method import Method
from upkeep.cell.mistakes import answer_of, describe
from upkeep.cell.remote import RemoteEngine
from upkeep.cell.strands import Strands
from upkeep.cell.training import train
from upkeep.contract import (
    CellDescription,
    ContextUse,
    Document,
    Gold,
    Measured,
    ModelSpec,
    Prediction,
    Probe,
    Record,
    Round,
    Usage,
)

R = TypeVar("R", bound=Record)
T = TypeVar("T")

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
class AnswerTask:
    """Answers the probes of each round, each in each trial, and appends a Prediction as each is ready."""

    cell: CellDescription
    method: Method
    engine: Engine | Endpoint | None
    output: Path
    writer: Engine | Endpoint | None = None
    """What is asked as documents arrive; None where that is the engine."""
    streams: Streams = field(default_factory=Streams)
    arrivals: dict[str, Handle] = field(default_factory=dict)
    """The model of each stream's arrivals."""
    lost: dict[str, str] = field(default_factory=dict)
    """Streams whose arrivals have failed, and why."""

    def __post_init__(self) -> None:
        self.log = Log(self.output / "predictions.jsonl", Prediction)
        # Of all strands together: one at a time, where the card says so.
        self.gate = asyncio.Semaphore(1 if self.cell.one_at_a_time else self.cell.engine.max_in_flight)

    def handle(self, key: str, trial: int = 0) -> Handle:
        return _handle(self.engine, self.cell, self.cell.model_spec, key, trial)

    def arriving(self, stream: str) -> Handle:
        """The model of a stream's arrivals. Its seeds go by what is asked, so they depend neither on the portions in
        which documents come nor on the order in which replies do."""
        key = f"{stream}@"
        llm = self.handle(key) if self.writer is None else _handle(self.writer, self.cell, self.cell.writer_spec, key)
        llm.asked_before = Counter()
        return llm

    async def bounded(self, work: Sequence[Callable[[], Coroutine[Any, Any, None]]]) -> None:
        """Run coroutines, at most `max_in_flight` at a time, begun in their order."""

        async def one(start: Callable[[], Coroutine[Any, Any, None]]) -> None:
            async with self.gate:
                await start()

        died: Sequence[BaseException] = ()
        try:
            async with asyncio.TaskGroup() as group:
                for start in work:
                    group.create_task(one(start))
        except* EngineDied as group_of_them:
            died = group_of_them.exceptions
        if died:  # raised in the clause, it would be in a group again with the first releases of Python 3.11
            raise died[0]

    async def rounds(self, strands: Strands) -> None:
        """Take each strand's rounds one after the other, the strands side by side."""
        begun, under_way = strands.first(), dict[asyncio.Task[None], Round]()
        while begun or under_way:
            under_way |= {asyncio.create_task(self.round(round)): round for round in begun}
            await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
            ended = [task for task in under_way if task.done()]
            for task in ended:
                task.result()
            rounds = [under_way.pop(task) for task in ended]
            begun = strands.next([round.strand for round in rounds if not round.last])

    async def round(self, round: Round) -> None:
        gained: dict[str, list[Document]] = {}
        for document in round.documents:
            gained.setdefault(document.stream, []).append(document)
        self.streams.add(round.documents)
        await self.bounded([partial(self._arrive, *each) for each in gained.items()])
        seen = _Views(self.streams)
        gold = {g.probe_id: g for g in round.gold}
        done = set(round.done)
        pending = {
            (probe.id, trial): probe
            for probe in round.probes
            for trial in range(self.cell.trials)
            if self.cell.per_question or (probe.id, trial) not in done
        }
        order = list(pending.items())
        if self.cell.engine.shuffle:
            random.Random(self.cell.seed).shuffle(order)
        await self.bounded(
            [
                partial(self._one, p, trial, seen.of(p, gold.get(p.id)), written=(p.id, trial) in done)
                for (_, trial), p in order
            ]
        )

    async def _arrive(self, stream: str, documents: Sequence[Document]) -> None:
        """Tell the method what a stream has gained. Where it fails, the stream's later probes do."""
        if stream in self.lost:
            return
        if stream not in self.arrivals:
            self.arrivals[stream] = self.arriving(stream)
        try:
            await self.method.arrive(stream, documents, self.arrivals[stream])
        except EngineDied:
            raise
        except Exception as error:
            traceback.print_exc()
            self.lost[stream] = f"document {documents[-1].id!r} could not be taken in: {describe(error, self._code)}"

    @property
    def arrival(self) -> Usage:
        """Tokens of the model calls that were made as documents arrived."""
        used = [llm.usage for llm in self.arrivals.values()]
        return Usage(
            prompt=sum(one.prompt for one in used),
            completion=sum(one.completion for one in used),
            calls=sum(one.calls for one in used),
        )

    async def _one(self, probe: Probe, trial: int, seen: Seen, *, written: bool) -> None:
        """Answer a probe and write it down, where an earlier container has not."""
        llm = self.handle(probe.id, trial)
        try:
            if probe.stream in self.lost:
                raise LookupError(self.lost[probe.stream])
            answer = await answer_of(self.method.answer(probe, seen, llm), self._code)
            line = self.log.encode(self._prediction(probe, trial, llm, answer))
        except EngineDied:
            raise
        except Exception as error:  # a failure is a line, and counts as wrong; the cell goes on
            traceback.print_exc()
            line = self.log.encode(self._failure(probe, trial, llm, error))
        if not written:
            self.log.append(line)

    @property
    def _code(self) -> str:
        """The folder of the method's code, as it ends the path of a file."""
        return f"methods/{self.cell.method}"

    def _prediction(self, probe: Probe, trial: int, llm: Handle, answer: Answer) -> Prediction:
        return Prediction(
            probe_id=probe.id,
            trial=trial,
            response=answer.response,
            reasoning=llm.reasoning,
            finish_reason=llm.finish_reason,
            retrieved=list(answer.retrieved),
            usage=llm.usage,
            context=answer.context,
            values=answer.values,
            error=None,
            calls=llm.keys,
            measured=_measured(llm),
        )

    def _failure(self, probe: Probe, trial: int, llm: Handle, error: Exception) -> Prediction:
        return Prediction(
            probe_id=probe.id,
            trial=trial,
            response=None,
            reasoning=None,
            finish_reason="none",
            retrieved=[],
            usage=llm.usage,
            context=ContextUse(),
            error=describe(error, self._code),
            calls=llm.keys,
            measured=_measured(llm),
        )


def _handle(
    engine: Engine | Endpoint | None, cell: CellDescription, spec: ModelSpec | None, key: str, trial: int = 0
) -> Handle:
    if isinstance(engine, Endpoint):
        return EndpointHandle(None, spec, cell.seed, key, trial, endpoint=engine)
    handle = Handle(engine, spec, cell.seed, key, trial)
    if engine is not None:
        handle.context_length = engine.context_length  # less than the model's, where a prefix takes some
    return handle


class _Views:
    """What each probe of a round has seen; probes at one position of a stream share one view."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._views: dict[tuple[str, int], Seen] = {}

    def of(self, probe: Probe, gold: Gold | None) -> Seen:
        key = (probe.stream, probe.position)
        if key not in self._views:
            self._views[key] = Seen(self._streams.until(*key))
        view = self._views[key]
        return view if gold is None else replace(view, gold=gold)


def run(cell: CellDescription, methods: Path, rounds: BinaryIO, load: Load = reach_engine) -> None:
    """Run a cell's task to its end, and say what it has used.

    Args:
        methods: folder with a folder for each method.
        rounds: JSON Lines of Round; the task ends with each strand's last, or the file. Not read by `train`.
        load: how the cell comes to its model.

    Raises:
        EngineDied: the engine failed; what is on disk stays good.
    """
    output = Path(cell.output)
    method = make_method(cell, methods, reach_embedder(cell), cell.engine.threads)
    if cell.task == "train":
        write_environment(cell, None, output / "engine.json")
        train(cell, method, partial(_ask, cell, load))
        write_usage(output / "usage.json", Usage())
        return
    engine, writer = own.start(cell, method) if cell.engine.name == "own" else load(cell), reach_writer(cell)
    write_environment(cell, engine, output / "engine.json")
    task = AnswerTask(cell, method, engine, output, writer)
    with lockstep(_Models([one for one in (engine, writer) if one is not None])) as loop:
        loop.run(task.rounds(Strands(_read(rounds))))
        loop.run(method.close())
    write_usage(output / "usage.json", task.arrival)


def _ask(cell: CellDescription, load: Load, study: Callable[[LLM], Coroutine[Any, Any, T]]) -> T:
    """`training.Ask`. Seeds go by what is asked, as those of arriving documents do."""
    if cell.socket is None or (engine := load(cell)) is None:
        raise ValueError(f"method {cell.method!r} asks a model, which its card does not say (`asks: true`)")
    llm = _handle(engine, cell, cell.model_spec, "training@")
    llm.asked_before = Counter()
    try:
        with lockstep(_Models([engine])) as loop:
            return loop.run(study(llm))
    finally:
        if isinstance(engine, RemoteEngine):
            engine.close()  # by that the host sees that it may end


class _Models:
    """Several models that work in turn when no coroutine can go on (`lockstep.Worker`)."""

    def __init__(self, models: Sequence[Engine | Endpoint]) -> None:
        self._models = models

    @property
    def dead(self) -> bool:
        return any(model.dead for model in self._models)

    @property
    def busy(self) -> bool:
        return any(model.busy for model in self._models)

    def advance(self) -> None:
        for model in self._models:
            if model.busy:
                model.advance()


def _read(rounds: BinaryIO) -> Iterator[Round]:
    decoder = msgspec.json.Decoder(Round)
    for line in iter(rounds.readline, b""):
        yield decoder.decode(line)


def _measured(llm: Handle) -> Measured:
    latency = 0.0 if llm.started is None else time.monotonic() - llm.started
    return Measured(latency_s=latency, cached=llm.cached_tokens)
