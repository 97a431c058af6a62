"""The door: an OpenAI-compatible server on the loopback interface of a method's container, for code from elsewhere.

What is asked here is asked of the model of a handle, as by `llm.chat`, and booked on it. A unit of work (a probe in a
trial, a stream at a position) is a handle; while it is open it has an address and a token of its own. The server runs
in the cell's own event loop, so the engine works whenever nobody here can go on, and new requests are noticed between
its steps.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import itertools
import re
import secrets
from collections.abc import AsyncIterator, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Any, NamedTuple, TypeVar

import msgspec

from upkeep.cell.door.http import HOST, Head, Refusal, Respond, Response, Server
from upkeep.cell.door.openai import ChatRequest, EmbeddingRequest, completion, embeddings, models, read
from upkeep.cell.interface import LLM, Embedder, PromptTooLong, Reply
from upkeep.cell.lockstep import EngineDied
from upkeep.contract import DoorRole

T = TypeVar("T")

MAX_CALLS = 10_000
"""That a unit may make, where its method's card does not say."""
MAX_THREADS = 256
"""Threads for upstream code, as many as probes that are answered at a time."""

_PATH = re.compile(r"/([0-9]{1,15})/v1(/.*)?")


class TooManyCalls(RuntimeError):
    """A unit went on calling beyond its limit."""


class Address(NamedTuple):
    """Where a unit's model is, as OpenAI-compatible clients want to know it."""

    base_url: str
    api_key: str


@dataclass(eq=False, slots=True)
class _Unit:
    """A unit of work that is open."""

    llm: LLM
    owner: asyncio.Task[Any]
    calls: int = 0
    requests: int = 0
    running: set[asyncio.Task[Any]] = field(default_factory=set)
    drawn: dict[bytes, asyncio.Task[Reply]] = field(default_factory=dict)
    """Replies to requests with a seed of the client's."""
    failure: Exception | None = None
    """What ends the unit, whatever its code makes of the answers that it gets."""
    closed: bool = False

    def close(self) -> None:
        self.closed = True
        for task in tuple(self.running):
            task.cancel()

    def fail(self, error: Exception) -> None:
        if self.failure is None:
            self.failure = error
            self.owner.cancel()

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begin a call; it is given up when the unit is closed."""
        task = asyncio.create_task(work)
        self.running.add(task)
        task.add_done_callback(self.running.discard)
        return task


class Door:
    """The server, as a method sees it (`self.tools.door`).

    Args:
        embedder: the cell's, if it has one.
        aliases: further names of models, for code that insists on them.
        max_calls: that a unit may make; what calls beyond it fails.
        one_at_a_time: whether all units have one address, and one at a time is open: for code that keeps one client.
    """

    def __init__(
        self,
        embedder: Embedder | None = None,
        aliases: Mapping[str, DoorRole] | None = None,
        *,
        max_calls: int = MAX_CALLS,
        one_at_a_time: bool = False,
    ) -> None:
        self._embedder, self._max_calls, self._one_at_a_time = embedder, max_calls, one_at_a_time
        self._models: dict[str, DoorRole] = {"reader": "reader"}
        if embedder is not None:
            self._models |= {"embedder": "embedder", "embedder_query": "embedder_query"}
        self._models |= aliases or {}
        self._secret = secrets.token_bytes(32)
        self._numbers = itertools.count()
        self._units: dict[int, _Unit] = {}
        self._server: Server | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def address(self) -> Address:
        """Of whatever unit is open.

        Raises:
            ValueError: each has its own.
        """
        if not self._one_at_a_time:
            raise ValueError("each unit has an address of its own, unless the method's card says `one_at_a_time: true`")
        return self._address(0)

    @property
    def environment(self) -> dict[str, str]:
        """`address`, as packages look for it in their environment."""
        url, key = self.address
        return {"OPENAI_BASE_URL": url, "OPENAI_API_BASE": url, "OPENAI_API_KEY": key}

    @asynccontextmanager
    async def open(self, llm: LLM) -> AsyncIterator[Address]:
        """The address at which code from elsewhere reaches the model of `llm`, until the block ends.

            async with self.tools.door.open(llm) as (base_url, api_key):
                text = await asyncio.to_thread(upstream, base_url, api_key)

        Raises:
            TooManyCalls: the code went on calling beyond the limit; the block is cancelled.
            RuntimeError: one unit at a time is to be open, and one is.
        """
        owner = asyncio.current_task()
        assert owner is not None
        if self._one_at_a_time and self._units:
            raise RuntimeError("another unit is open, and the method's card says `one_at_a_time: true`")
        await self._listen()
        number = 0 if self._one_at_a_time else next(self._numbers)
        unit = self._units[number] = _Unit(llm, owner)
        caught: BaseException | None = None
        try:
            yield self._address(number)
        except (Exception, asyncio.CancelledError) as error:
            if unit.failure is None:
                raise
            caught = error
        finally:
            del self._units[number]
            unit.close()
        if unit.failure is not None:
            others = owner.uncancel()  # who wants it to end, too
            raise caught if others and caught is not None else unit.failure

    # ------------------------------------------------------------ the server

    def _address(self, number: int) -> Address:
        if self._server is None:
            self._server = Server(self._admit)
        return Address(f"http://{HOST}:{self._server.port}/{number}/v1", self._token(number))

    def _token(self, number: int) -> str:
        return hmac.new(self._secret, str(number).encode(), hashlib.sha256).hexdigest()

    async def _listen(self) -> None:
        if self._loop is not None:
            return
        self._loop = asyncio.get_running_loop()
        self._loop.set_default_executor(_Threads(MAX_THREADS, thread_name_prefix="upstream"))
        self._address(0)
        assert self._server is not None
        await self._server.start()

    def _admit(self, head: Head) -> Respond:
        """What answers a request; refused are strangers, and what there is not."""
        if (found := _PATH.fullmatch(head.path)) is None:
            raise Refusal(HTTPStatus.NOT_FOUND, "no such address; expected the base URL of a unit, which ends in /v1")
        number = int(found[1])
        scheme, _, token = head.headers.get("authorization", "").partition(" ")
        right = hmac.compare_digest(token.strip().encode("latin-1"), self._token(number).encode())
        if scheme.lower() != "bearer" or not right:
            raise Refusal(HTTPStatus.UNAUTHORIZED, "not the API key of this base URL", "invalid_api_key")
        if (unit := self._units.get(number)) is None:
            raise _over()
        match head.method, found[2]:
            case "GET", "/models":
                return self._list
            case "POST", "/chat/completions":
                return partial(self._chat, unit)
            case "POST", "/embeddings":
                return partial(self._embed, unit)
        raise Refusal(
            HTTPStatus.NOT_FOUND,
            f"no {head.method} {found[2]}; there are POST /chat/completions, POST /embeddings and GET /models",
        )

    # ------------------------------------------------------------ what is answered

    async def _list(self, _: bytes) -> Response:
        return models(list(self._models))

    async def _chat(self, unit: _Unit, body: bytes) -> Response:
        asked = read(body, ChatRequest)
        self._role(asked.model, "reader")
        choices = asked.n or 1
        self._count(unit, choices)
        number = unit.requests
        unit.requests += 1
        calls = [self._call(unit, asked, place) for place in range(choices)]
        return completion(asked, [await self._outcome(unit, call) for call in calls], number)

    async def _embed(self, unit: _Unit, body: bytes) -> Response:
        asked = read(body, EmbeddingRequest)
        role = self._role(asked.model, "embedder", "embedder_query")
        assert self._embedder is not None
        self._count(unit, 1)
        encode = self._embedder.queries if role == "embedder_query" else self._embedder.documents

        async def call() -> Response:
            return embeddings(asked, encode(asked.texts))

        return await self._outcome(unit, unit.start(call()))

    def _role(self, name: str, *wanted: DoorRole) -> DoorRole:
        role = self._models.get(name)
        if role is None or role not in wanted or (role != "reader" and self._embedder is None):
            there = ", ".join(n for n, r in self._models.items() if r in wanted) or "none"
            raise Refusal(
                HTTPStatus.NOT_FOUND,
                f"no model {name!r} for this; there are: {there} (`aliases` in method.yaml gives them further names)",
                "model_not_found",
                "model",
            )
        return role

    def _count(self, unit: _Unit, calls: int) -> None:
        if unit.closed:
            raise _over()
        unit.calls += calls
        if unit.calls > self._max_calls:
            problem = f"more than {self._max_calls:,} model calls for one probe, or one stream at one position"
            unit.fail(TooManyCalls(f"{problem} (`max_calls` in method.yaml)"))
            raise Refusal(HTTPStatus.TOO_MANY_REQUESTS, problem, "too_many_calls")

    def _call(self, unit: _Unit, asked: ChatRequest, place: int) -> asyncio.Task[Reply]:
        """The call behind one choice. Within a unit, equal requests with equal seeds of the client's are one call."""
        messages, sampling, options = asked.chat(), asked.sampling(unit.llm.sampling), asked.options()
        if asked.seed is None or not sampling.temperature:
            return unit.start(unit.llm.chat(messages, sampling, **options))
        key = hashlib.sha256(msgspec.msgpack.encode((asked.messages, sampling, options, asked.seed, place))).digest()
        if key not in unit.drawn:
            unit.drawn[key] = unit.start(unit.llm.chat(messages, sampling, **options))
        return unit.drawn[key]

    async def _outcome(self, unit: _Unit, call: asyncio.Task[T]) -> T:
        """What a call gives.

        Raises:
            Refusal: it failed, or the unit was closed meanwhile.
        """
        await asyncio.wait([call])
        if call.cancelled():
            raise _over()
        error = call.exception()
        if error is None:
            return call.result()
        if not isinstance(error, Exception):
            raise error
        if isinstance(error, EngineDied):
            unit.fail(error)
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, f"the model is gone: {error}")
        code = "context_length_exceeded" if isinstance(error, PromptTooLong) else type(error).__name__
        raise Refusal(HTTPStatus.BAD_REQUEST, f"{type(error).__name__}: {error}", code)


def _over() -> Refusal:
    return Refusal(HTTPStatus.GONE, "this unit is over: its answer is given", "unit_over")


class _Threads(ThreadPoolExecutor):
    """Threads that nobody waits for at the end: what was begun for a unit may go on when the unit is over."""

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        super().shutdown(wait=False, cancel_futures=True)
