"""A model behind an OpenAI-compatible endpoint, as a cell sees it.

The container has no network and no key. What it wants is asked of a gateway on the host, through a Unix socket; the
gateway decides what is sent, waits, tries again, pays and keeps the answers (`upkeep.gateway.endpoints.server`). Many
requests are in flight at a time and are answered as they come.

A frame is its length (8 bytes, big-endian) and a message in MessagePack. The cell sends `Ask`; the gateway answers each
with `Told` or `Refused`, in any order, or ends the cell with `Failed`.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NoReturn, TypeVar

import msgspec
from msgspec import Meta, Struct

from upkeep.cell import toolcalls, wire
from upkeep.cell.interface import GeneratedToken, Message, Reply, ScoredToken, ToolCall
from upkeep.cell.lockstep import EngineDied, Handle, split_reasoning
from upkeep.contract import Count, ModelSpec, Sampling

T = TypeVar("T")

Seed = Annotated[int, Meta(ge=0, le=2**63 - 1)]
"""As `lockstep.call_seed` makes them."""
MESSAGE_TOKENS = 16
"""What a chat template adds to a message at most, by estimate."""


class More(Struct, forbid_unknown_fields=True, frozen=True):
    """The options of `upkeep.cell.interface.LLM.chat`, where any is given."""

    tools: list[dict[str, Any]]
    tool_choice: str
    schema: dict[str, Any] | None
    stop: list[str]
    top_logprobs: int

    def check(self) -> None:
        """Raises ValueError where they are not what they should be."""
        toolcalls.check(self.tools, self.tool_choice, self.schema, self.stop, self.top_logprobs)


class Ask(Struct, forbid_unknown_fields=True, frozen=True):
    """An answer to a chat is wanted. Model, key and further fields are not the container's to choose."""

    number: Count
    """The cell's own number for it."""
    messages: list[tuple[Literal["system", "user", "assistant", "tool"], list[str]]]
    """Role and parts of each; the parts are joined as they are."""
    sampling: Sampling
    seed: Seed
    about: list[wire.About] = []
    """Of the messages with calls of tools or their results."""
    more: More | None = None

    def __post_init__(self) -> None:
        if any(one.place >= len(self.messages) for one in self.about):
            raise ValueError("something is said of a message that is not there")

    @property
    def texts(self) -> list[tuple[str, str]]:
        """Role and text of each message, as it is sent."""
        return [(role, "".join(parts)) for role, parts in self.messages]


class Told(Struct, tag=True, frozen=True):
    """The model's answer."""

    number: Count
    text: str
    reasoning: str | None
    """What the endpoint sets apart as reasoning; null where it does not."""
    finish_reason: Literal["stop", "length"]
    prompt: Count
    completion: Count
    """Tokens, reasoning included."""
    cached: Count
    """Prompt tokens from the provider's prefix cache."""
    key: str
    """What the host keeps the answer by."""
    tool_calls: list[wire.Call] = []
    tokens: list[wire.Token] = []
    """Where log-probabilities were asked for."""


class Refused(Struct, tag=True, frozen=True):
    """The endpoint does not answer this request (a content filter, a prompt too long): the model's own failure."""

    number: Count
    reason: str
    key: str
    """As `Told` has it."""


class Failed(Struct, tag=True, frozen=True):
    """The endpoint does not answer at all, or the budget is spent: the cell ends, and the same command continues it."""

    reason: str


_ANSWERS: Any = Told | Refused | Failed


class EndpointRefused(RuntimeError):
    """The endpoint refused one request."""

    def __init__(self, refused: Refused) -> None:
        super().__init__(refused.reason)
        self.key = refused.key


def frame(message: object) -> bytes:
    """A message as it is sent."""
    data = msgspec.msgpack.encode(message)
    return len(data).to_bytes(wire.HEAD, "big") + data


async def receive(reader: asyncio.StreamReader, kind: type[T], limit: int = wire.MAX_FRAME) -> T | None:
    """Read one frame; None where the other side has closed the connection.

    Args:
        limit: bytes; a longer frame is refused before it is read.

    Raises:
        wire.Breach: the frame is too long, torn, or no message of this kind.
        OSError: the connection is lost.
    """
    try:
        head = await reader.readexactly(wire.HEAD)
    except asyncio.IncompleteReadError as torn:
        if torn.partial:
            raise wire.Breach("a torn frame") from None
        return None
    if (size := int.from_bytes(head, "big")) > limit:
        raise wire.Breach(f"a frame of {size:,} bytes; at most {limit:,} are read")
    try:
        return msgspec.msgpack.decode(await reader.readexactly(size), type=kind)
    except asyncio.IncompleteReadError:
        raise wire.Breach("a torn frame") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise wire.Breach(str(error)) from None


class Endpoint:
    """The way to the endpoint, shared by all probes of a cell. Used where an engine would be (`lockstep.Worker`).

    Where the endpoint fails for good, no request fails by itself, for that would count as a wrong answer: the cell ends
    as it does when an engine dies.

    Args:
        path: the gateway's socket (`CellDescription.socket`).
    """

    name = "endpoint"
    version = ""

    def __init__(self, path: str) -> None:
        self.dead = False
        self._path = path
        self._numbers = itertools.count()
        self._open: dict[int, asyncio.Future[Told]] = {}
        self._failure: str | None = None
        self._connecting = asyncio.Lock()
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        """Whether there is a failure to raise: it is looked at when no coroutine can go on."""
        return self._failure is not None

    def advance(self) -> NoReturn:
        """Raises EngineDied."""
        self.dead = True
        raise EngineDied(str(self._failure))

    async def ask(self, messages: Sequence[Message], sampling: Sampling, seed: int, more: More | None = None) -> Told:
        """Ask the model.

        Raises:
            EndpointRefused: it refused this request.
            msgspec.ValidationError, UnicodeEncodeError: it is no request: a role or a sampling parameter is wrong.
        """
        number = next(self._numbers)
        said, about = wire.said(messages)
        question = frame(Ask(number, said, sampling, seed, about, more))  # type: ignore[arg-type]
        msgspec.msgpack.decode(question[wire.HEAD :], type=Ask)
        answer: asyncio.Future[Told] = asyncio.get_running_loop().create_future()
        self._open[number] = answer
        try:
            writer = await self._connect()
            writer.write(question)
            await writer.drain()
        except OSError as error:
            self._failure = self._failure or f"the way to the endpoint is cut: {error}"
        try:
            return await answer
        finally:
            del self._open[number]

    async def _connect(self) -> asyncio.StreamWriter:
        async with self._connecting:
            if self._writer is None:
                reader, self._writer = await asyncio.open_unix_connection(self._path)
                self._reading = asyncio.create_task(self._read(reader))
        return self._writer

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while (answer := await receive(reader, _ANSWERS)) is not None:
                if isinstance(answer, Failed):
                    self._failure = answer.reason
                    return
                future = self._open.get(answer.number)
                if future is None or future.done():  # given up by its coroutine
                    continue
                if isinstance(answer, Told):
                    future.set_result(answer)
                else:
                    future.set_exception(EndpointRefused(answer))
            self._failure = "the way to the endpoint is cut"
        except (OSError, wire.Breach) as error:
            self._failure = f"the way to the endpoint is cut: {error}"


@dataclass(slots=True, kw_only=True)
class EndpointHandle(Handle):
    """A model behind an endpoint as one probe's coroutine sees it (`upkeep.cell.LLM`).

    Its tokenizer is not here and often not public: tokens are estimated from bytes, from above
    (`endpoint.tokens_per_byte` of the card), so that a prompt that is sent fits. What is booked is what the provider
    counts.
    """

    endpoint: Endpoint

    async def chat(
        self,
        messages: Sequence[Message],
        sampling: Sampling | None = None,
        *,
        tools: Sequence[dict[str, Any]] = (),
        tool_choice: str = "auto",
        schema: dict[str, Any] | None = None,
        stop: Sequence[str] = (),
        top_logprobs: int = 0,
    ) -> Reply:
        spec, sampling = self._spec(), sampling or self.sampling
        more = More(list(tools), tool_choice, schema, stop if isinstance(stop, str) else list(stop), top_logprobs)  # type: ignore[arg-type]
        more.check()
        shown = tools and tool_choice != "none"
        self._check(self.count_prompt(messages) + self.count(json.dumps(tools)) * bool(shown), sampling.max_tokens)
        call = self._begin()
        seed = self._seed_of(call, [messages, sampling, more])
        asked = more if shown or schema or stop or top_logprobs else None
        try:
            told = await self.endpoint.ask(messages, sampling, seed, asked)
        except EndpointRefused as refused:
            self.answered[call] = refused.key
            raise
        self.answered[call] = told.key
        text, reasoning = told.text, told.reasoning
        if reasoning is None:
            # An endpoint may keep the reasoning to itself, so the text of a model that thinks need not hold any.
            text, reasoning = split_reasoning(text, spec.thinking_tags, thinks=False)
        self.prompt_tokens += told.prompt
        self.completion_tokens += told.completion
        self.cached_tokens += told.cached
        self.finish_reason, self.reasoning = told.finish_reason, reasoning
        return Reply(
            text=text,
            reasoning=reasoning,
            finish_reason=told.finish_reason,
            prompt_tokens=told.prompt,
            completion_tokens=told.completion,
            cached_tokens=told.cached,
            tool_calls=tuple(ToolCall(call.id, call.name, call.arguments) for call in told.tool_calls),
            logprobs=tuple(GeneratedToken(one.text, one.logprob, tuple(one.top)) for one in told.tokens),
        )

    async def logprobs(self, prompt: str | Sequence[Message], continuation: str) -> list[ScoredToken]:
        raise TypeError(
            "an endpoint gives no log-probabilities of a given text; run this method on a model with weights at hand"
        )

    def count(self, text: str) -> int:
        return estimate(text, self._spec())

    def count_prompt(self, messages: Sequence[Message]) -> int:
        spec = self._spec()
        return sum(MESSAGE_TOKENS + estimate("".join(message["parts"]), spec) for message in messages)

    def _spec(self) -> ModelSpec:
        assert self.spec is not None
        return self.spec


def estimate(text: str, spec: ModelSpec) -> int:
    """Tokens of a text, from above."""
    assert spec.endpoint is not None
    return math.ceil(len(text.encode(errors="surrogatepass")) * spec.endpoint.tokens_per_byte)
