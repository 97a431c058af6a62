"""One connection of a container with its gateway: its questions are answered from the record, or by the engine.

Of requests that are equal, one is sent. What is sent is sent in the order in which it was asked, step for step, so an
engine whose record is empty sees what it would see without the gateway. Prompts that a reply is wanted to are kept, too
(`prompts`), and the container is told the key of each.

Containers are hostile: what they send is bounded and typed, and whoever breaks the rules is disconnected.
"""

from __future__ import annotations

import contextlib
import socket
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from upkeep.cell import wire
from upkeep.cell.lockstep import EngineDied
from upkeep.errors import UpkeepError, kind_of
from upkeep.gateway.prompts import prompt_key, reply_key
from upkeep.gateway.questions import Chat, CountTokens, Decode, Held, ScoredChat, ScoredText
from upkeep.gateway.record import NotRecorded, key_of
from upkeep.gateway.shared_connection import Share
from upkeep.gateway.upstream import Upstream

MAX_HELD_BYTES = 2 * 2**30
"""Of the prompts that a container holds at a time."""
MAX_KEPT = 4_000_000
"""Answers about lengths and tokens that are kept for one container."""
_FINISHED = msgspec.msgpack.Decoder(wire.Finished)


@dataclass(slots=True)
class _Prompt:
    """A prompt that a container holds."""

    content: bytes
    """What it is known by."""
    question: Held | None
    """As it was asked; None once the engine holds it and a reply was wanted."""
    size: int
    """Bytes that are held here."""
    length: int
    """In tokens."""
    sent: int | None = None
    """The engine's key of it; None where the engine does not hold it."""


class Session(ABC):
    """One connection of a container."""

    questions: Any
    """What may be asked."""

    def __init__(self, upstream: Upstream, connection: socket.socket) -> None:
        self._upstream, self._connection, self._tally = upstream, connection, upstream.tally
        self._engine: Share | None = None
        self._kept = 0

    @abstractmethod
    def _answer(self, question: Any) -> bytes:
        """The answer to a question, in MessagePack.

        Raises:
            wire.Breach: the container breaks the rules.
            EngineDied: the engine cannot be asked.
            RuntimeError: a text cannot be read.
        """

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()

    def run(self) -> None:
        """Answer until the container has gone, or breaks the rules, or the engine has failed."""
        try:
            wire.send(self._connection, self._ready())
            while True:
                question = wire.receive(self._connection, self.questions)
                try:
                    value = self._answer(question)
                except (wire.Breach, EngineDied):
                    raise
                except RuntimeError as refused:  # a text that cannot be tokenised
                    wire.send(self._connection, wire.Refused(str(refused)))
                else:
                    computed = self._engine.computed if self._engine is not None else 0
                    wire.send(self._connection, wire.Answer(msgspec.Raw(value), computed))
        except (OSError, EOFError):
            return  # it has gone
        except wire.Breach as breach:
            print(f"a container was disconnected from its engine: {breach}", file=sys.stderr, flush=True)
        except EngineDied as died:
            self._died(died)
        except Exception as error:
            problem = f"the gateway to an engine failed: {type(error).__name__}: {error}"
            self._upstream.failure = UpkeepError(problem, kind=kind_of(error))
            self._died(error)

    def _died(self, error: Exception) -> None:
        with contextlib.suppress(OSError):
            wire.send(self._connection, wire.Died(str(error)))

    def _ready(self) -> dict[str, Any]:
        found = self._upstream.ready()
        return found if found is not None else msgspec.to_builtins(self._ask_engine().ready)

    def _ask_engine(self) -> Share:
        if self._engine is None:
            self._engine = self._upstream.connect()
        return self._engine

    def _simple(self, kind: str, question: Any, content: bytes) -> bytes:
        """The answer to a question by itself: kept, or from the engine."""
        key = key_of(kind, content)
        if (known := self._upstream.known(key)) is not None:
            return known
        value = bytes(self._ask_engine().ask(question, msgspec.Raw))
        self._kept += 1
        if self._kept <= MAX_KEPT:
            self._upstream.keep(key, value)
        return value


class ModelSession(Session):
    """With a language model. To the engine, prompts and requests have numbers of the connection's own: whatever numbers
    a container gives twice, no reply is taken for another request's."""

    questions: Any = Held | CountTokens | Decode | wire.Step

    def __init__(self, upstream: Upstream, connection: socket.socket) -> None:
        super().__init__(upstream, connection)
        self._prompts: dict[int, _Prompt] = {}
        self._held_bytes = 0
        self._waiting: dict[bytes, list[int]] = {}
        """Numbers of the requests that wait for a reply, by what it will be kept by."""
        self._sent: dict[int, bytes] = {}
        """What the replies that the engine owes will be kept by, by the gateway's numbers."""
        self._next: list[wire.Generate | wire.Score] = []
        """Requests for the engine's next step."""
        self._forget: list[int] = []
        self._keeper = upstream.keeper()

    def close(self) -> None:
        if self._engine is not None:
            held = [prompt.sent for prompt in self._prompts.values() if prompt.sent is not None]
            keep = {number: partial(self._upstream.keep_finished, key) for number, key in self._sent.items()}
            self._engine.close([*held, *self._forget], keep)

    def _answer(self, question: Any) -> bytes:
        match question:
            case Chat() | ScoredChat() | ScoredText():
                return self._hold(question)
            case CountTokens(content):
                return self._simple("count", question, bytes(content))
            case Decode(content):
                return self._simple("decode", question, bytes(content))
            case wire.Step():
                return self._step(question)
            case _:
                raise AssertionError(question)

    def _hold(self, question: Held) -> bytes:
        contents = question.contents
        size = sum(map(len, contents))
        if len(self._prompts) >= wire.MAX_HELD or self._held_bytes + size > MAX_HELD_BYTES:
            raise wire.Breach(f"more than {wire.MAX_HELD:,} prompts, or {MAX_HELD_BYTES:,} bytes, are held")
        key = prompt_key(question.kind, *contents)
        value = self._upstream.known(key)
        prompt = _Prompt(key, question, size, 0)
        if value is None:
            value = self._send(prompt)
            self._upstream.keep(key, value)
        prompt.length = _length(question, value)
        self._drop(question.key)
        self._prompts[question.key] = prompt
        self._held_bytes += prompt.size
        return value

    def _drop(self, key: int) -> None:
        if (gone := self._prompts.pop(key, None)) is not None:
            self._held_bytes -= gone.size
            if gone.sent is not None:
                self._forget.append(gone.sent)

    def _send(self, prompt: _Prompt, wanted: bytes = b"") -> bytes:
        """Have the engine hold a prompt, too.

        Args:
            wanted: the key of the reply that is wanted to it, where one is.
        """
        assert prompt.question is not None
        try:
            engine = self._ask_engine()
        except EngineDied:
            if isinstance(why := self._upstream.failure, NotRecorded):
                asked = prompt.question
                self._keeper.miss(str(why.where), prompt.content, asked.kind, asked.contents, wanted)
            raise
        number = next(engine.numbers)
        question: Any = msgspec.structs.replace(prompt.question, key=number)
        value = bytes(engine.ask(question, msgspec.Raw))
        prompt.sent = number
        return value

    def _step(self, step: wire.Step) -> bytes:
        if sum(map(len, self._waiting.values())) + len(step.requests) > wire.MAX_HELD:
            raise wire.Breach(f"more than {wire.MAX_HELD:,} requests are open")
        finished = [done for request in step.requests if (done := self._take(request)) is not None]
        for key in step.forget:
            self._drop(key)
        if not finished and self._waiting:
            finished = self._work()
        return msgspec.msgpack.encode(finished)

    def _take(self, request: wire.Generate | wire.Score) -> wire.Answered | None:
        """The reply to a request, if it is kept; else it is put down for the engine."""
        if (prompt := self._prompts.get(request.prompt)) is None:
            raise wire.Breach(f"no prompt {request.prompt}")
        key = reply_key(prompt.content, request)
        if (question := prompt.question) is not None:
            self._keeper.keep_prompt(prompt.content, question.kind, question.contents)
        self._keeper.keep(key, prompt.content, request)
        if (known := self._upstream.known(key, sampled=True)) is not None:
            self._tally.recorded += 1
            return _answered(_FINISHED.decode(known), request.number, key)
        waiting = self._waiting.setdefault(key, [])
        waiting.append(request.number)
        if len(waiting) == 1:
            if prompt.sent is None:
                self._send(prompt, key)
            assert prompt.sent is not None
            room = request.sampling.max_tokens if isinstance(request, wire.Generate) else len(request.continuation)
            if prompt.length + room > self._ask_engine().ready.context_length:  # others may share the connection
                raise wire.Breach("the prompt and its answer do not fit into the model's context")
            self._held_bytes -= prompt.size
            prompt.question, prompt.size = None, 0
            number = next(self._ask_engine().numbers)
            self._sent[number] = key
            self._next.append(msgspec.structs.replace(request, number=number, prompt=prompt.sent))
        return None

    def _work(self) -> list[wire.Answered]:
        """Have the engine do a step; the replies that it brings, also to those who asked the same."""
        requests, forget = self._next[:], self._forget[:]
        self._next.clear()
        self._forget.clear()
        finished = []
        for done in self._ask_engine().step(requests, forget, self._sent.keys()):
            key = self._sent.pop(done.number)
            self._tally.asked += 1
            self._upstream.keep_finished(key, done)
            finished += [_answered(done, number, key) for number in self._waiting.pop(key)]
        return finished


class EmbedderSession(Session):
    """With an embedder."""

    questions: Any = wire.EmbedderQuestion

    def _answer(self, question: Any) -> bytes:
        if isinstance(question, wire.Cuts):
            return self._simple("cuts", question, question.text.encode())
        keys = [key_of("embed", text.encode()) for text in question.texts]
        known = {key: self._upstream.known(key, sampled=True) for key in keys}
        new = {key: text for key, text in zip(keys, question.texts, strict=True) if known[key] is None}
        if new:
            vectors = self._ask_engine().ask(wire.Embed(list(new.values())), list[bytes])
            for key, vector in zip(new, vectors, strict=True):
                self._upstream.keep(key, vector)
                known[key] = vector
        self._tally.asked += len(new)
        self._tally.recorded += len(keys) - len(new)
        return msgspec.msgpack.encode([known[key] for key in keys])


def _length(question: Held, value: bytes) -> int:
    """Tokens of a prompt, by what the engine said when it took it."""
    if isinstance(question, Chat):
        return msgspec.msgpack.decode(value, type=int)
    return msgspec.msgpack.decode(value, type=wire.Scorable).length


def _answered(done: wire.Finished, number: int, key: bytes) -> wire.Answered:
    """A reply for the container's own number, with what it is kept by."""
    return wire.Answered(**msgspec.structs.asdict(done) | {"number": number, "key": key})
