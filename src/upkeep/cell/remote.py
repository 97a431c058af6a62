"""An engine in another container, which the cells of a batch share one after the other.

The cell sends what an engine of its own would be given, step for step, so the engine sees the same batches in the same
order and answers the same bytes. Prompts are tokenised there, too: a cell loads neither weights nor tokenizer.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import socket
import weakref
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from upkeep.cell import wire
from upkeep.cell.interface import GeneratedToken, Message
from upkeep.cell.lockstep import Engine, EngineDied, Generate, Generated, Outcome, Request
from upkeep.cell.tokens import Scorable, TokenPrompt

T = TypeVar("T")

_ANSWERS: Any = wire.Answer | wire.Refused | wire.Died
_BESIDE = tuple[list[wire.About], list[dict[str, Any]]]


@dataclass(frozen=True, eq=False)
class HeldPrompt(TokenPrompt):
    """A prompt that the engine holds; here it is a number and a length."""

    key: int


class Connection:
    """The socket of an engine.

    Raises:
        EngineDied: the engine is gone, or says that it failed.
        RuntimeError: a text cannot be tokenised.
    """

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self.computed = 0
        try:
            self._socket.connect(path)
            self.ready = wire.receive(self._socket, wire.Ready)
        except (OSError, EOFError, wire.Breach) as error:
            raise EngineDied(f"no engine at {path}: {error}") from error

    def close(self) -> None:
        self._socket.close()

    def abort(self) -> None:
        """End it from another thread, whatever it waits for."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def ask(self, question: wire.Question | wire.EmbedderQuestion, kind: type[T]) -> T:
        try:
            wire.send(self._socket, question)
            answer = wire.receive(self._socket, _ANSWERS)
        except (OSError, EOFError, wire.Breach) as error:
            raise EngineDied(f"the shared engine is gone: {error}") from error
        if isinstance(answer, wire.Died):
            raise EngineDied(answer.reason)
        if isinstance(answer, wire.Refused):
            raise RuntimeError(answer.reason)
        self.computed = answer.computed
        return msgspec.msgpack.decode(answer.value, type=kind)


class RemoteTokens:
    """The model's tokenizer and template, on the engine's side."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._keys = itertools.count()
        self.forgotten: list[int] = []
        """Prompts that nothing here refers to any more."""
        self._count = functools.lru_cache(maxsize=4096)(lambda text: connection.ask(wire.CountTokens(text), int))
        self._prompt = functools.lru_cache(maxsize=16)(self._prompt_uncached)

    def prompt(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]] = ()) -> TokenPrompt:
        said, about = wire.said(messages)
        texts = tuple((role, tuple(parts)) for role, parts in said)  # of long ones no copy is made
        return self._prompt(texts, msgspec.msgpack.encode((about, tools)))

    def _prompt_uncached(self, texts: tuple[tuple[str, tuple[str, ...]], ...], beside: bytes) -> TokenPrompt:
        key = next(self._keys)
        about, tools = msgspec.msgpack.decode(beside, type=_BESIDE)
        question = wire.Chat(key, [(role, list(parts)) for role, parts in texts], about, tools)
        return self._held(key, self._connection.ask(question, int))

    def scorable(self, prompt: str | Sequence[Message], continuation: str) -> Scorable:
        key = next(self._keys)
        question: wire.ScoredText | wire.ScoredChat
        if isinstance(prompt, str):
            question = wire.ScoredText(key, prompt, continuation)
        else:
            messages, about = wire.said(prompt)
            question = wire.ScoredChat(key, messages, continuation, about)
        found = self._connection.ask(question, wire.Scorable)
        return Scorable(self._held(key, found.length), array("i", found.ids), found.spans)

    def _held(self, key: int, length: int) -> TokenPrompt:
        prompt = HeldPrompt((), length, key)
        weakref.finalize(prompt, self.forgotten.append, key)
        return prompt

    def count(self, text: str) -> int:
        return self._count(text)

    def decode(self, ids: Sequence[int]) -> str:
        return self._connection.ask(wire.Decode(list(ids)), str)


class RemoteEngine(Engine):
    """The engine behind a Unix socket.

    Args:
        path: the socket (`CellDescription.socket`).

    Raises:
        EngineDied: there is none.
    """

    def __init__(self, path: str) -> None:
        self._connection = Connection(path)
        ready = self._connection.ready
        self.name, self.version = ready.name, ready.version
        self._remote_tokens = RemoteTokens(self._connection)
        super().__init__(self._remote_tokens, ready.context_length)
        self._numbers = itertools.count()
        self._new: list[Request] = []
        self._open: dict[int, Request] = {}
        self._counted = 0

    def add(self, request: Request) -> None:
        self._new.append(request)

    @property
    def busy(self) -> bool:
        return bool(self._new or self._open)

    def close(self) -> None:
        """Let the next cell have the engine; the end of this process does it, too."""
        self._connection.close()

    def reset(self) -> None:
        raise TypeError("a shared engine is reset when a cell connects")

    def step(self) -> Iterable[tuple[Request, Outcome]]:
        """Send what was added and have the engine do one step."""
        requests = []
        for request in self._new:
            if not request.future.cancelled():
                number = next(self._numbers)
                self._open[number] = request
                requests.append(_asked(number, request))
        self._new.clear()
        forget = self._remote_tokens.forgotten[:]
        del self._remote_tokens.forgotten[: len(forget)]
        finished = self._connection.ask(wire.Step(requests, forget), list[wire.Answered])
        # What the engine counts itself; the rest is counted here, as for an engine of one's own.
        self.computed += self._connection.computed - self._counted
        self._counted = self._connection.computed
        answered = [(self._open.pop(one.number), one) for one in finished]
        for request, one in answered:
            request.key = one.key.hex() if one.key is not None else None
        return [(request, _outcome(one)) for request, one in answered]


def _asked(number: int, request: Request) -> wire.Generate | wire.Score:
    assert isinstance(request.prompt, HeldPrompt)
    if isinstance(request, Generate):
        options = request.options if request.options != wire.NO_OPTIONS else None
        return wire.Generate(number, request.prompt.key, request.sampling, request.seed, options)
    return wire.Score(number, request.prompt.key, list(request.continuation))


def _outcome(finished: wire.Finished) -> Outcome:
    if finished.error is not None:
        return (ValueError if finished.refused else RuntimeError)(finished.error)
    if finished.scores is not None:
        return finished.scores
    told = [GeneratedToken(one.text, one.logprob, tuple(one.top)) for one in finished.tokens or ()]
    return Generated(finished.ids or [], finished.finish_reason, finished.cached, told)
