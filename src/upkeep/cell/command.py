"""A method that is a program: what it is told and what it says, in JSON lines on its standard input and output.

The program is started once, in its method's folder. Its first line is `Start`. For what a stream gained it gets
`Documents` and says `Arrived` when it may be asked; for a probe it gets `Ask` and says `Answered` or `Failed`. Several
probes may be open at a time, unless the card says `one_at_a_time: true`. The end of its input is its end.
"""

from __future__ import annotations

import asyncio
import contextlib
from asyncio.subprocess import Process, SubprocessStreamProtocol
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from upkeep.cell.door import Address
from upkeep.cell.interface import LLM, Answer, Context, Message, Seen
from upkeep.cell.lockstep import EngineDied
from upkeep.cell.method import Method, Tools
from upkeep.contract import MAX_LINE_BYTES, ContextUse, Count, Document, Form, Probe, Retrieved

END_S = 10.0
"""How long a program may take to end after its input has ended."""
EXCERPT = 200
"""Bytes of a line that are shown where it is refused."""

Key = tuple[str, str, int]
"""What is open: `documents`, a stream and a position; or `probe`, an id and a trial."""


class ProgramFailed(EngineDied):
    """The program ended early or broke the rules. That concerns all that it was asked, so the cell must end."""


class _Told(Struct, frozen=True, kw_only=True):
    """Base of what a program is told."""


class Start(_Told, frozen=True, kw_only=True, tag="start"):
    """The first line."""

    version: int = 1
    """Of these lines."""
    parameters: dict[str, Any]
    """The variant's."""
    seed: int
    """For what the program itself draws."""


class ChatMessage(Struct, frozen=True):
    """A message of a chat, as OpenAI-compatible servers take it."""

    role: str
    content: str


class Documents(_Told, frozen=True, kw_only=True, tag="documents"):
    """What a stream gained; to be acknowledged by `Arrived`, then probes about it follow."""

    stream: str
    position: int
    """Of the last one, from 0."""
    documents: list[Document]
    """Oldest first."""
    base_url: str
    """Where model calls for what is kept of them go: OpenAI-compatible, until they are taken in."""
    api_key: str


class Ask(_Told, frozen=True, kw_only=True, tag="probe"):
    """A probe to answer by `Answered` or `Failed`, when the documents up to `position` have been told."""

    id: str
    trial: int
    question_id: str
    stream: str
    position: int
    question: str
    options: list[str] | None
    form: Form
    messages: list[ChatMessage]
    """The dataset's prompt for it, without any document."""
    base_url: str
    """Where its model calls go: OpenAI-compatible, until it is answered."""
    api_key: str


class _Said(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Base of what a program says."""


class Arrived(_Said, frozen=True, kw_only=True, tag="arrived"):
    """Documents are taken in."""

    stream: str
    position: Count

    @property
    def key(self) -> Key:
        return ("documents", self.stream, self.position)


class Found(Struct, forbid_unknown_fields=True, frozen=True):
    """A retrieved document."""

    id: str
    score: float


class Answered(_Said, frozen=True, kw_only=True, tag="answer"):
    """The answer to a probe."""

    id: str
    trial: Count
    response: str | None
    """The raw text, out of which the answer is read as the dataset demands."""
    retrieved: list[Found] = []
    """Best first."""
    context: ContextUse = ContextUse()
    values: dict[str, float] = {}
    """Numbers that the program measured, by name."""

    @property
    def key(self) -> Key:
        return ("probe", self.id, self.trial)


class Failed(_Said, frozen=True, kw_only=True, tag="failed"):
    """A probe has no answer; it counts as wrong."""

    id: str
    trial: Count
    error: str

    @property
    def key(self) -> Key:
        return ("probe", self.id, self.trial)


Said = Arrived | Answered | Failed
_SAID: Any = Said


class CommandMethod(Method):
    """Runs a program as a method.

    Args:
        command: in words.
        folder: the method's, where the program is started.
    """

    def __init__(self, parameters: dict[str, Any], tools: Tools, command: Sequence[str], folder: Path) -> None:
        super().__init__(parameters, tools)
        self._command, self._folder = command, folder
        self._process: Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._open: dict[Key, asyncio.Future[Said]] = {}
        self._ending = False
        self._failure: ProgramFailed | None = None

    async def arrive(self, stream: str, documents: Sequence[Document], llm: LLM) -> None:
        position = documents[-1].position
        async with self.tools.door.open(llm) as address:
            told = Documents(
                stream=stream,
                position=position,
                documents=[*documents],
                base_url=address.base_url,
                api_key=address.api_key,
            )
            await self._exchange(("documents", stream, position), told)

    async def answer(self, probe: Probe, seen: Seen, llm: LLM) -> Answer:
        messages = self.tools.prompt.messages(probe, Context())
        async with self.tools.door.open(llm) as address:
            said = await self._exchange(("probe", probe.id, llm.trial), _ask(probe, llm.trial, messages, address))
        if isinstance(said, Failed):
            raise RuntimeError(said.error)
        assert isinstance(said, Answered)
        found = [Retrieved(id=one.id, score=one.score, rank=rank) for rank, one in enumerate(said.retrieved, start=1)]
        return Answer(said.response, found, said.context, said.values)

    async def close(self) -> None:
        """Close the program's input and wait for its end.

        Raises:
            ProgramFailed: it failed, or says something more.
        """
        if self._process is None or self._reading is None:
            return
        assert self._process.stdin is not None
        self._ending = True
        self._process.stdin.close()
        await asyncio.wait([self._reading], timeout=END_S)
        if not self._reading.done():
            self._fail(f"it did not end within {END_S:g} s after its input had ended")
        if self._failure is not None:
            raise self._failure

    # ------------------------------------------------------------ the program

    async def _exchange(self, key: Key, told: _Told) -> Said:
        """Tell the program something and wait for what it says to it."""
        stdin = await self._started()
        if self._failure is not None:
            raise self._failure
        said: asyncio.Future[Said] = asyncio.get_running_loop().create_future()
        self._open[key] = said
        with contextlib.suppress(OSError):  # it has ended: its reader knows how
            stdin.write(msgspec.json.encode(told) + b"\n")
            await stdin.drain()
        return await said

    async def _started(self) -> asyncio.StreamWriter:
        async with self._starting:
            if self._process is None:
                self._process = await self._start()
        assert self._process.stdin is not None
        return self._process.stdin

    async def _start(self) -> Process:
        loop = asyncio.get_running_loop()
        limits = partial(SubprocessStreamProtocol, limit=MAX_LINE_BYTES, loop=loop)
        try:
            transport, protocol = await loop.subprocess_exec(limits, *self._command, cwd=self._folder, stderr=None)
        except OSError as error:
            raise ProgramFailed(f"{self._name} cannot be started: {error}") from None
        process = Process(transport, protocol, loop)
        assert process.stdin is not None
        process.stdin.write(msgspec.json.encode(Start(parameters=self.parameters, seed=self.tools.seed)) + b"\n")
        self._reading = asyncio.create_task(self._read(process, transport))
        return process

    async def _read(self, process: Process, transport: asyncio.SubprocessTransport) -> None:
        """Take in what the program says, to its end."""
        assert process.stdout is not None
        decoder = msgspec.json.Decoder(_SAID)
        number, line = 1, b""
        try:
            while line := await process.stdout.readline():
                said = decoder.decode(line)
                if (waiting := self._open.pop(said.key, None)) is None:
                    return self._fail(f"line {number} of its output: {said.key} is not asked, or was answered before")
                if not waiting.done():  # else its unit was ended
                    waiting.set_result(said)
                number, line = number + 1, b""
            status = await process.wait()
            waits = any(not waiting.done() for waiting in self._open.values())
            if status or waits or not self._ending:
                self._fail(f"it ended with status {status}" + ("" if self._ending else " before its input"))
        except ValueError as error:  # no JSON, no such line, or an endless one
            self._fail(f"line {number} of its output: {error}; found {line[:EXCERPT] or 'no end of it'!r}")
        finally:
            transport.close()  # and with it what has not ended
            while process.returncode is None:
                with contextlib.suppress(asyncio.CancelledError):
                    await process.wait()

    def _fail(self, problem: str) -> None:
        """Let all that waits for the program know that it failed."""
        self._failure = self._failure or ProgramFailed(f"{self._name}: {problem}")
        for waiting in self._open.values():
            if not waiting.done():
                waiting.set_exception(self._failure)
        self._open.clear()

    @property
    def _name(self) -> str:
        return f"the method's program ({' '.join(self._command)})"


def _ask(probe: Probe, trial: int, messages: Sequence[Message], address: Address) -> Ask:
    return Ask(
        id=probe.id,
        trial=trial,
        question_id=probe.question_id,
        stream=probe.stream,
        position=probe.position,
        question=probe.question,
        options=probe.options,
        form=probe.form,
        messages=[ChatMessage(message["role"], "".join(message["parts"])) for message in messages],
        base_url=address.base_url,
        api_key=address.api_key,
    )
