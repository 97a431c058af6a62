"""What a cell asks an engine outside its container, and how it is answered: frames over a Unix socket.

A frame is its length (8 bytes, big-endian) and a message in MessagePack. The cell asks, the engine answers, one frame
each; the engine speaks first, once, and says what it is (`Ready`).
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from upkeep.cell import interface
from upkeep.contract import Count, Positive, Sampling

T = TypeVar("T")

HEAD = 8
"""Bytes of a frame before its message: its length."""
MAX_FRAME = 256 * 2**20
"""Bytes; a longer frame is refused before it is read. The longest prompts have a few megabytes."""
MAX_STOPS = 16
"""Stop strings of a request."""
MAX_TOP = 20
"""Alternatives of a generated token."""
MAX_HELD = 65_536
"""Prompts and requests that a cell may have open at a time."""

Key = Count
"""Number that the cell gives a prompt or a request."""


class Options(Struct, forbid_unknown_fields=True, frozen=True, omit_defaults=True):
    """What is asked of an answer beside its sampling."""

    stop: Annotated[list[Annotated[str, Meta(min_length=1, max_length=1000)]], Meta(max_length=MAX_STOPS)] = []
    """Strings that end it."""
    grammar: Annotated[str, Meta(max_length=1_000_000)] | None = None
    """What it is constrained to (`upkeep.cell.toolcalls`)."""
    top_logprobs: Annotated[int, Meta(ge=0, le=MAX_TOP)] = 0
    """How many likeliest tokens to give for each generated one; with 0 no log-probabilities are given."""


NO_OPTIONS = Options()


class Call(Struct, forbid_unknown_fields=True, frozen=True, array_like=True):
    """`upkeep.cell.interface.ToolCall`."""

    id: str
    name: str
    arguments: str


class About(Struct, forbid_unknown_fields=True, frozen=True, array_like=True):
    """What a message says besides its text."""

    place: Count
    """Of the message in its chat."""
    calls: list[Call]
    answered: str | None
    """The call that it is the result of."""


class Token(Struct, frozen=True, array_like=True):
    """`upkeep.cell.interface.GeneratedToken`."""

    text: str
    logprob: float
    top: list[tuple[str, float]]


class Message(Struct, tag=True, forbid_unknown_fields=True, frozen=True):
    """Base of what a cell asks."""


class Chat(Message, frozen=True, omit_defaults=True):
    """Read a chat as a prompt and keep it; answered with its length in tokens."""

    key: Key
    messages: list[tuple[str, list[str]]]
    """Role and parts of each."""
    about: list[About] = []
    """Of the messages with calls of tools or their results."""
    tools: list[dict[str, Any]] = []
    """That the model is shown."""


class ScoredChat(Message, frozen=True, omit_defaults=True):
    """Tokenise a text together with the chat that it answers and keep what is before it; answered with `Scorable`."""

    key: Key
    messages: list[tuple[str, list[str]]]
    continuation: str
    about: list[About] = []


class ScoredText(Message, frozen=True):
    """As `ScoredChat`, after a text without a template."""

    key: Key
    text: str
    continuation: str


class CountTokens(Message, frozen=True):
    """How many tokens a text has."""

    text: str


class Decode(Message, frozen=True):
    """The text of generated tokens."""

    ids: list[int]


class Generate(Struct, tag=True, forbid_unknown_fields=True, frozen=True, omit_defaults=True):
    """A continuation is wanted."""

    number: Key
    prompt: Key
    sampling: Sampling
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    options: Options | None = None
    """None where nothing more is asked."""


class Score(Struct, tag=True, forbid_unknown_fields=True, frozen=True):
    """The log-probabilities of a given continuation are wanted."""

    number: Key
    prompt: Key
    continuation: list[int]


class Step(Message, frozen=True):
    """Take these requests, in this order, and do one step; answered with `list[Finished]`."""

    requests: list[Generate | Score]
    forget: list[Key]
    """Prompts that are no longer needed."""


Question = Chat | ScoredChat | ScoredText | CountTokens | Decode | Step


class Embed(Message, frozen=True):
    """The vectors of texts: float32 in little-endian bytes, each of length 1 and of its text alone."""

    texts: list[str]


class Cuts(Message, frozen=True):
    """Where to cut a text so that an embedder reads each piece whole: their beginnings but the first, in characters."""

    text: str


EmbedderQuestion = Embed | Cuts


class Scorable(Struct, frozen=True):
    """`upkeep.cell.tokens.Scorable`; of the prompt its length in tokens."""

    length: Count
    ids: list[int]
    spans: list[tuple[int, int]]


class Finished(Struct, frozen=True):
    """What became of a request: one of `ids`, `scores` and `error` is there."""

    number: Key
    ids: list[int] | None = None
    finish_reason: Literal["stop", "length"] = "stop"
    cached: Count = 0
    tokens: list[Token] | None = None
    """Beside `ids`, where log-probabilities were asked for."""
    scores: list[float] | None = None
    error: str | None = None
    refused: bool = False
    """Whether the request was at fault (a ValueError) or the engine (a RuntimeError)."""


class Answered(Finished, frozen=True):
    """As the gateway passes it on to a cell."""

    key: bytes | None = None
    """What the gateway keeps the request and its reply by; null from an engine itself, which keeps nothing."""


class Ready(Struct, frozen=True):
    """The engine is loaded."""

    name: str
    version: str
    context_length: Positive
    environment: dict[str, Any]
    """What it runs on and with, as `engine.json` says it."""


class Died(Struct, tag=True, frozen=True):
    """The engine failed and ends."""

    reason: str


class Refused(Struct, tag=True, frozen=True):
    """A text that cannot be tokenised; the engine goes on."""

    reason: str


class Answer(Struct, tag=True, frozen=True):
    """What was asked for, in MessagePack."""

    value: msgspec.Raw
    computed: Count
    """The engine's own count (`Engine.computed`) since the cell connected."""


class Breach(Exception):
    """The other side breaks the rules."""


def said(messages: Sequence[interface.Message]) -> tuple[list[tuple[str, list[str]]], list[About]]:
    """Messages as they are sent: their texts, and what some of them say of tools."""
    about = [
        About(place, [Call(c.id, c.name, c.arguments) for c in m.get("tool_calls", ())], m.get("tool_call_id"))
        for place, m in enumerate(messages)
        if m.get("tool_calls") or m.get("tool_call_id") is not None
    ]
    return [(m["role"], list(m["parts"])) for m in messages], about


_ENCODER = msgspec.msgpack.Encoder()


def send(connection: socket.socket, message: object) -> None:
    """Write one frame.

    Raises:
        OSError: the other side is gone.
    """
    frame = bytearray(HEAD)
    _ENCODER.encode_into(message, frame, HEAD)
    frame[:HEAD] = (len(frame) - HEAD).to_bytes(HEAD, "big")
    connection.sendall(frame)


def receive(connection: socket.socket, kind: type[T]) -> T:
    """Read one frame.

    Raises:
        EOFError: the other side has closed the connection.
        Breach: a frame that is too long, or no message of this kind.
    """
    size = int.from_bytes(_exactly(connection, HEAD), "big")
    if size > MAX_FRAME:
        raise Breach(f"a frame of {size:,} bytes; at most {MAX_FRAME:,} are read")
    try:
        return msgspec.msgpack.decode(_exactly(connection, size), type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Breach(str(error)) from None


def _exactly(connection: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        if not (got := connection.recv_into(view)):
            raise EOFError("the connection was closed")
        view = view[got:]
    return data
