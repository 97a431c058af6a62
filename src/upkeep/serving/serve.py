"""`python -m upkeep.serving.serve CELL.JSON`: an engine for several cells, one after the other.

It loads the engine that a cell's description asks for, then listens at the description's socket. A cell that connects
is served until it closes the connection; the next one finds the engine as if newly started. The end of standard input
ends it all. Exit codes: 0 asked to end, 3 the engine died.

Cells are hostile: what they send is bounded and typed, and whoever breaks the rules is disconnected.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import traceback
from array import array
from asyncio import AbstractEventLoop, Future, new_event_loop
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from upkeep.cell import wire
from upkeep.cell.interface import Message, ToolCall
from upkeep.cell.lockstep import Engine, EngineDied, Generate, Generated, Outcome, Request, Score
from upkeep.cell.machine import environment
from upkeep.cell.tokens import Scorable, TokenPrompt
from upkeep.contract import CellDescription
from upkeep.serving.loading import load_engine

_QUESTIONS: Any = wire.Question


@dataclass
class Session:
    """One cell's connection: its prompts and its requests."""

    engine: Engine
    loop: AbstractEventLoop
    """Never run; futures want one."""
    prompts: dict[int, TokenPrompt] = field(default_factory=dict)
    numbers: dict[int, int] = field(default_factory=dict)
    """Of the requests that are open, by identity of the request."""

    def answer(self, question: wire.Question) -> Any:
        """Do what is asked.

        Raises:
            wire.Breach: it breaks the rules.
        """
        tokens = self.engine.tokens
        match question:
            case wire.Chat(key, messages, about, tools):
                return self._hold(key, tokens.prompt(_messages(messages, about), tools))
            case wire.ScoredChat(key, messages, continuation, about):
                return self._scorable(key, tokens.scorable(_messages(messages, about), continuation))
            case wire.ScoredText(key, text, continuation):
                return self._scorable(key, tokens.scorable(text, continuation))
            case wire.CountTokens(text):
                return tokens.count(text)
            case wire.Decode(ids):
                return tokens.decode(ids)
            case wire.Step(requests, forget):
                return self._step(requests, forget)

    def _scorable(self, key: int, text: Scorable) -> wire.Scorable:
        return wire.Scorable(self._hold(key, text.prompt), list(text.ids), text.spans)

    def _hold(self, key: int, prompt: TokenPrompt) -> int:
        if len(self.prompts) >= wire.MAX_HELD:
            raise wire.Breach(f"more than {wire.MAX_HELD:,} prompts are held")
        self.prompts[key] = prompt
        return prompt.length

    def _step(self, requests: list[wire.Generate | wire.Score], forget: list[int]) -> list[wire.Finished]:
        if len(self.numbers) + len(requests) > wire.MAX_HELD:
            raise wire.Breach(f"more than {wire.MAX_HELD:,} requests are open")
        for asked in requests:
            request = self._request(asked)
            self.numbers[id(request)] = asked.number
            self.engine.add(request)
        for key in forget:
            self.prompts.pop(key, None)
        finished = []
        for request, outcome in self.engine.step() if self.engine.busy else ():
            finished.append(_finished(self.numbers.pop(id(request)), outcome))
        return finished

    def _request(self, asked: wire.Generate | wire.Score) -> Request:
        if (prompt := self.prompts.get(asked.prompt)) is None:
            raise wire.Breach(f"no prompt {asked.prompt}")
        room = asked.sampling.max_tokens if isinstance(asked, wire.Generate) else len(asked.continuation)
        if prompt.length + room > self.engine.context_length:
            raise wire.Breach("the prompt and its answer do not fit into the model's context")
        if isinstance(asked, wire.Generate):
            options = asked.options or wire.NO_OPTIONS
            return Generate(prompt, asked.sampling, asked.seed, Future(loop=self.loop), options)
        return Score(prompt, array("i", asked.continuation), Future(loop=self.loop))


def _messages(said: list[tuple[str, list[str]]], about: list[wire.About]) -> list[Message]:
    """Messages of what was sent.

    Raises:
        wire.Breach: something is said of a message that is not there.
    """
    messages: list[Message] = [{"role": role, "parts": parts} for role, parts in said]
    for one in about:
        if one.place >= len(messages):
            raise wire.Breach(f"there is no message {one.place}")
        messages[one.place]["tool_calls"] = [ToolCall(call.id, call.name, call.arguments) for call in one.calls]
        if one.answered is not None:
            messages[one.place]["tool_call_id"] = one.answered
    return messages


def _finished(number: int, outcome: Outcome) -> wire.Finished:
    if isinstance(outcome, Exception):
        return wire.Finished(number, error=str(outcome), refused=isinstance(outcome, ValueError))
    if isinstance(outcome, Generated):
        return wire.Finished(
            number,
            ids=list(outcome.ids),
            finish_reason=outcome.finish_reason,
            cached=outcome.cached,
            tokens=[wire.Token(one.text, one.logprob, list(one.top)) for one in outcome.tokens] or None,
        )
    return wire.Finished(number, scores=outcome)


def serve(engine: Engine, connection: socket.socket, ready: wire.Ready) -> None:
    """Serve one cell to the end of its connection.

    Raises:
        EngineDied: the engine failed; the cell was told.
    """
    engine.reset()
    session = Session(engine, new_event_loop())
    try:
        wire.send(connection, ready)
        while True:
            question = wire.receive(connection, _QUESTIONS)
            try:
                value = msgspec.Raw(msgspec.msgpack.encode(session.answer(question)))
            except wire.Breach:
                raise
            except Exception as error:
                reason = f"{type(error).__name__}: {error}"
                if isinstance(question, wire.Step):
                    wire.send(connection, wire.Died(reason))
                    raise EngineDied(reason) from error
                wire.send(connection, wire.Refused(reason))
            else:
                wire.send(connection, wire.Answer(value, engine.computed))
    except (OSError, EOFError):
        return  # it has gone
    except wire.Breach as error:
        print(f"a cell was disconnected: {error}", file=sys.stderr, flush=True)
    finally:
        session.loop.close()


def listen(path: str, serve_one: Callable[[socket.socket], None]) -> int:
    """Serve whoever connects to a Unix socket, one after the other, as long as that works.

    Args:
        path: appears when it can be connected to: that is how the host knows that the model is loaded.

    Returns:
        The exit status, where serving failed.
    """
    listener = socket.socket(socket.AF_UNIX)
    hidden = Path(path).with_name(".starting")
    listener.bind(str(hidden))
    hidden.chmod(0o666)  # the host may be another user
    listener.listen()
    hidden.rename(path)
    while True:
        connection, _ = listener.accept()
        with connection:
            try:
                serve_one(connection)
            except Exception:
                traceback.print_exc()
                return 3


def main(arguments: list[str]) -> int:
    cell = msgspec.json.decode(Path(arguments[0]).read_bytes(), type=CellDescription)
    assert cell.socket is not None
    end_with_input()
    engine = load_engine(cell)
    ready = wire.Ready(engine.name, engine.version, engine.context_length, environment(cell, engine))
    return listen(cell.socket, lambda connection: serve(engine, connection, ready))


def end_with_input() -> None:
    """End this process when its standard input ends: whoever started it has gone."""

    def wait() -> None:
        sys.stdin.buffer.read()
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stderr.flush()
    os._exit(status)  # the engine's threads and worker processes may no longer answer
