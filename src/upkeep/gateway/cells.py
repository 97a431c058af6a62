"""Serves one container: its questions to an engine are answered from the record, or by the engine, which is loaded when
there is first something that only it can answer.

A container speaks to the gateway as it would to an engine (`upkeep.cell.wire`). What it asks has one answer,
whoever asks: how many tokens a prompt has, what the tokens of a text are, how a prompt goes on. So every answer is kept
by the content of the question. Of requests that are equal, one is sent. What is sent is sent in the order in which it
was asked, step for step, so an engine whose record is empty sees what it would see without the gateway. Prompts that a
reply is wanted to are kept, too (`prompts`), and the container is told the key of each.

Containers are hostile: what they send is bounded and typed, and whoever breaks the rules is disconnected.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import msgspec
from msgspec import Struct

from upkeep.cell import wire
from upkeep.cell.lockstep import EngineDied
from upkeep.cell.remote import Connection
from upkeep.contract import Count, Role
from upkeep.errors import UpkeepError, kind_of
from upkeep.gateway.prompts import Keeper, prompt_key, reply_key
from upkeep.gateway.record import NotRecorded, Replies, key_of
from upkeep.machine.scratch import folder_for_socket

SOCKET = "engine.sock"
Load = Callable[[Callable[[], bool]], Path]
"""Gives the folder with an engine's socket, after loading it; the argument says whether nobody waits any more."""
MAX_HELD_BYTES = 2 * 2**30
"""Of the prompts that a container holds at a time."""
MAX_KEPT = 4_000_000
"""Answers about lengths and tokens that are kept for one container."""


# ---------------------------------------------------------------- what a container asks, as far as it is looked into


_NOTHING = msgspec.Raw(msgspec.msgpack.encode([]))


class _Chat(Struct, tag="Chat", forbid_unknown_fields=True, frozen=True):
    key: Count
    messages: msgspec.Raw
    about: msgspec.Raw = _NOTHING
    tools: msgspec.Raw = _NOTHING
    kind: ClassVar = "chat"

    @property
    def contents(self) -> list[bytes]:
        more = [] if self.about == self.tools == _NOTHING else [self.about, self.tools]
        return [bytes(one) for one in (self.messages, *more)]


class _ScoredChat(Struct, tag="ScoredChat", forbid_unknown_fields=True, frozen=True):
    key: Count
    messages: msgspec.Raw
    continuation: msgspec.Raw
    about: msgspec.Raw = _NOTHING
    kind: ClassVar = "scored chat"

    @property
    def contents(self) -> list[bytes]:
        return [bytes(self.messages), bytes(self.continuation), bytes(self.about)]


class _ScoredText(Struct, tag="ScoredText", forbid_unknown_fields=True, frozen=True):
    key: Count
    text: msgspec.Raw
    continuation: msgspec.Raw
    kind: ClassVar = "scored text"

    @property
    def contents(self) -> list[bytes]:
        return [bytes(self.text), bytes(self.continuation)]


class _CountTokens(Struct, tag="CountTokens", forbid_unknown_fields=True, frozen=True):
    text: msgspec.Raw


class _Decode(Struct, tag="Decode", forbid_unknown_fields=True, frozen=True):
    ids: msgspec.Raw


_Held = _Chat | _ScoredChat | _ScoredText
"""A question whose prompt the engine holds from then on."""
_FINISHED = msgspec.msgpack.Decoder(wire.Finished)


@dataclass
class Tally:
    """What was asked of a gateway."""

    recorded: int = 0
    """Requests that the record answered."""
    asked: int = 0
    """Requests that the engine answered."""


class Gateway:
    """The way from one container to one engine. Use as a context manager, which gives the folder with the socket.

    Args:
        role: what the engine is to the container.
        replies: of the engine.
        load: gives the folder of the engine itself.
        fresh: ask the engine, whatever is kept; its replies are kept in place of the earlier ones.
    """

    def __init__(self, role: Role, replies: Replies, load: Load, *, fresh: bool = False) -> None:
        self._role: Role = role
        self._replies, self._load, self._fresh = replies, load, fresh
        self.failure: UpkeepError | None = None
        """Why the engine could not be asked."""
        self.tally = Tally()
        self._ended = False
        self._made = contextlib.ExitStack()
        self._connection: socket.socket | None = None
        self._upstream: Connection | None = None

    def __enter__(self) -> Path:
        folder = self._made.enter_context(folder_for_socket(SOCKET))
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / SOCKET))
        (folder / SOCKET).chmod(0o666)
        self._listener.listen()
        self._thread = threading.Thread(target=self._run, name="gateway", daemon=True)
        self._thread.start()
        return folder

    def __exit__(self, *_: object) -> None:
        self._ended = True
        for one in (self._listener, self._connection):
            if one is not None:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
        if self._upstream is not None:
            self._upstream.abort()  # it may be at work for minutes
        self._thread.join()
        self._listener.close()
        self._made.close()

    # ------------------------------------------------------------ in its own thread

    def _run(self) -> None:
        while not self._ended:
            try:
                self._connection, _ = self._listener.accept()
            except OSError:
                return
            with self._connection as connection, contextlib.closing(self._session(connection)) as session:
                session.run()

    def _session(self, connection: socket.socket) -> _Session:
        return (_EmbedderSession if self._role == "embedder" else _ModelSession)(self, connection)

    def connect(self) -> Connection:
        """A connection to the engine, which is new to it.

        Raises:
            EngineDied: it cannot be asked; why is `failure`.
        """
        try:
            folder = self._load(lambda: self._ended)
            self._upstream = found = Connection(str(folder / SOCKET))
        except UpkeepError as error:
            self.failure = error
            raise EngineDied(str(error)) from error
        ready = msgspec.to_builtins(found.ready)
        if self._replies.ready() != ready:
            self._replies.say_ready(ready)
        return found

    def ready(self) -> dict[str, Any] | None:
        """What the engine said of itself, if that is kept and counts."""
        return None if self._fresh else self._replies.ready()

    def keep(self, key: bytes, value: bytes) -> None:
        """Keep an answer.

        Raises:
            EngineDied: there is no room; why is `failure`.
        """
        try:
            self._replies.put(key, value)
        except UpkeepError as error:
            self.failure = error
            raise EngineDied(str(error)) from error

    def known(self, key: bytes, *, sampled: bool = False) -> bytes | None:
        """The kept answer; of a reply of the model's none where the model is to be asked again."""
        return None if sampled and self._fresh else self._replies.get(key)

    def keeper(self) -> Keeper:
        """What keeps the prompts of a connection."""
        return Keeper(self._replies.get, self.keep, again=self._fresh)


@dataclass(slots=True)
class _Prompt:
    """A prompt that a container holds."""

    content: bytes
    """What it is known by."""
    question: _Held | None
    """As it was asked; None once the engine holds it and a reply was wanted."""
    size: int
    """Bytes that are held here."""
    sent: int | None = None
    """The engine's key of it; None where the engine does not hold it."""


class _Session(ABC):
    """One connection of a container."""

    questions: Any
    """What may be asked."""

    def __init__(self, gateway: Gateway, connection: socket.socket) -> None:
        self._gateway, self._connection, self._tally = gateway, connection, gateway.tally
        self._engine: Connection | None = None
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
            self._gateway.failure = UpkeepError(problem, kind=kind_of(error))
            self._died(error)

    def _died(self, error: Exception) -> None:
        with contextlib.suppress(OSError):
            wire.send(self._connection, wire.Died(str(error)))

    def _ready(self) -> dict[str, Any]:
        found = self._gateway.ready()
        return found if found is not None else msgspec.to_builtins(self._ask_engine().ready)

    def _ask_engine(self) -> Connection:
        if self._engine is None:
            self._engine = self._gateway.connect()
        return self._engine

    def _simple(self, kind: str, question: Any, content: bytes) -> bytes:
        """The answer to a question by itself: kept, or from the engine."""
        key = key_of(kind, content)
        if (known := self._gateway.known(key)) is not None:
            return known
        value = bytes(self._ask_engine().ask(question, msgspec.Raw))
        self._kept += 1
        if self._kept <= MAX_KEPT:
            self._gateway.keep(key, value)
        return value


class _ModelSession(_Session):
    """With a language model. To the engine, prompts and requests have numbers of the gateway's own: whatever numbers a
    container gives twice, no reply is taken for another request's."""

    questions: Any = _Held | _CountTokens | _Decode | wire.Step

    def __init__(self, gateway: Gateway, connection: socket.socket) -> None:
        super().__init__(gateway, connection)
        self._prompts: dict[int, _Prompt] = {}
        self._held_bytes = 0
        self._waiting: dict[bytes, list[int]] = {}
        """Numbers of the requests that wait for a reply, by what it will be kept by."""
        self._numbers = itertools.count()
        self._sent: dict[int, bytes] = {}
        """What the replies that the engine owes will be kept by, by the gateway's numbers."""
        self._next: list[wire.Generate | wire.Score] = []
        """Requests for the engine's next step."""
        self._forget: list[int] = []
        self._keeper = gateway.keeper()

    def _answer(self, question: Any) -> bytes:
        match question:
            case _Chat() | _ScoredChat() | _ScoredText():
                return self._hold(question)
            case _CountTokens(content):
                return self._simple("count", question, bytes(content))
            case _Decode(content):
                return self._simple("decode", question, bytes(content))
            case wire.Step():
                return self._step(question)
            case _:
                raise AssertionError(question)

    def _hold(self, question: _Held) -> bytes:
        contents = question.contents
        size = sum(map(len, contents))
        if len(self._prompts) >= wire.MAX_HELD or self._held_bytes + size > MAX_HELD_BYTES:
            raise wire.Breach(f"more than {wire.MAX_HELD:,} prompts, or {MAX_HELD_BYTES:,} bytes, are held")
        key = prompt_key(question.kind, *contents)
        value = self._gateway.known(key)
        prompt = _Prompt(key, question, size)
        if value is None:
            value = self._send(prompt)
            self._gateway.keep(key, value)
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
            if isinstance(why := self._gateway.failure, NotRecorded):
                asked = prompt.question
                self._keeper.miss(str(why.where), prompt.content, asked.kind, asked.contents, wanted)
            raise
        number = next(self._numbers)
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
        if (known := self._gateway.known(key, sampled=True)) is not None:
            self._tally.recorded += 1
            return _answered(_FINISHED.decode(known), request.number, key)
        waiting = self._waiting.setdefault(key, [])
        waiting.append(request.number)
        if len(waiting) == 1:
            if prompt.sent is None:
                self._send(prompt, key)
            assert prompt.sent is not None
            self._held_bytes -= prompt.size
            prompt.question, prompt.size = None, 0
            number = next(self._numbers)
            self._sent[number] = key
            self._next.append(msgspec.structs.replace(request, number=number, prompt=prompt.sent))
        return None

    def _work(self) -> list[wire.Answered]:
        """Have the engine do a step; the replies that it brings, also to those who asked the same."""
        requests, forget = self._next[:], self._forget[:]
        self._next.clear()
        self._forget.clear()
        finished = []
        for done in self._ask_engine().ask(wire.Step(requests, forget), list[wire.Finished]):
            key = self._sent.pop(done.number)
            self._tally.asked += 1
            if done.error is None:
                self._gateway.keep(key, msgspec.msgpack.encode(msgspec.structs.replace(done, number=0)))
            finished += [_answered(done, number, key) for number in self._waiting.pop(key)]
        return finished


class _EmbedderSession(_Session):
    """With an embedder."""

    questions: Any = wire.EmbedderQuestion

    def _answer(self, question: Any) -> bytes:
        if isinstance(question, wire.Cuts):
            return self._simple("cuts", question, question.text.encode())
        keys = [key_of("embed", text.encode()) for text in question.texts]
        known = {key: self._gateway.known(key, sampled=True) for key in keys}
        new = {key: text for key, text in zip(keys, question.texts, strict=True) if known[key] is None}
        if new:
            vectors = self._ask_engine().ask(wire.Embed(list(new.values())), list[bytes])
            for key, vector in zip(new, vectors, strict=True):
                self._gateway.keep(key, vector)
                known[key] = vector
        self._tally.asked += len(new)
        self._tally.recorded += len(keys) - len(new)
        return msgspec.msgpack.encode([known[key] for key in keys])


def _answered(done: wire.Finished, number: int, key: bytes) -> wire.Answered:
    """A reply for the container's own number, with what it is kept by."""
    return wire.Answered(**msgspec.structs.asdict(done) | {"number": number, "key": key})
