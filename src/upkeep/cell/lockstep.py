"""Engines that work in lock-step with the coroutines they serve.

A coroutine asks (`await llm.chat(...)`) and sleeps. When no coroutine can go on without an answer, the engine does one
step of work and wakes those whose answers are ready, and so on. What is in a batch, and in which order, therefore
depends on the order of the probes alone and never on time: greedy output is the same from run to run.

"No coroutine can go on" is known exactly, without a look into asyncio's internals: it is the moment when the event
loop asks its selector to wait. So the engine works inside the selector's `select`.
"""

from __future__ import annotations

import asyncio
import hashlib
import selectors
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import msgspec

from upkeep.cell import toolcalls
from upkeep.cell.interface import GeneratedToken, Message, PromptTooLong, Reply, ScoredToken, ToolCall
from upkeep.cell.tokens import Scorable, Segment, TokenPrompt
from upkeep.cell.wire import NO_OPTIONS, Options
from upkeep.contract import Finish, ModelSpec, Sampling, Usage


class EngineDied(RuntimeError):
    """The engine failed in a way that concerns more than one request. The process must end."""


@dataclass(frozen=True, slots=True)
class Generated:
    """What an engine made of a prompt."""

    ids: Sequence[int]
    """Generated tokens; the stop token included where there was one."""
    finish_reason: Literal["stop", "length"]
    cached: int
    """Prompt tokens that were not computed anew."""
    tokens: Sequence[GeneratedToken] = ()
    """Of `ids`, where log-probabilities were asked for."""


@dataclass(eq=False, slots=True)
class Generate:
    """Ask for a continuation."""

    prompt: TokenPrompt
    sampling: Sampling
    seed: int
    future: asyncio.Future[Generated]
    options: Options = NO_OPTIONS
    key: str | None = None
    """What a gateway keeps it and its reply by, once it is answered; None where none stands between."""


@dataclass(eq=False, slots=True)
class Score:
    """Ask for the log-probability of each token of a given continuation."""

    prompt: TokenPrompt
    continuation: Segment[int]
    future: asyncio.Future[list[float]]
    key: str | None = None


Request = Generate | Score
Outcome = Generated | list[float] | Exception


class Tokens(Protocol):
    """What a handle asks of a model's tokenizer (`upkeep.cell.tokens.ChatTokens`)."""

    def prompt(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]] = ()) -> TokenPrompt: ...

    def scorable(self, prompt: str | Sequence[Message], continuation: str) -> Scorable: ...

    def count(self, text: str) -> int: ...

    def decode(self, ids: Sequence[int]) -> str: ...


class Engine(ABC):
    """A model that answers requests step by step.

    `step` returns an exception in place of an outcome where one request alone is at fault; where it raises, the engine
    is dead.
    """

    name: str
    version: str

    def __init__(self, tokens: Tokens, context_length: int) -> None:
        self.tokens = tokens
        self.context_length = context_length
        self.dead = False
        self.lanes: int | None = None
        """Rows that a step of decoding has at most; None where nothing bounds them."""
        self.computed = 0
        """Prompt tokens computed so far, over all requests."""

    @abstractmethod
    def add(self, request: Request) -> None:
        """Queue a request; does no work."""

    @abstractmethod
    def step(self) -> Iterable[tuple[Request, Outcome]]:
        """Do the next piece of work; return what it finished, in a fixed order."""

    @property
    @abstractmethod
    def busy(self) -> bool:
        """Whether any request is unfinished."""

    @abstractmethod
    def reset(self) -> None:
        """Forget all requests, and everything kept from earlier ones that could change an answer or a count."""

    def advance(self) -> None:
        """Do a step and wake the coroutines whose requests it finished.

        Raises:
            EngineDied: the step failed.
        """
        try:
            finished = list(self.step())
        except Exception as error:
            self.dead = True
            raise EngineDied(f"{type(error).__name__}: {error}") from error
        for request, outcome in finished:
            if isinstance(outcome, Generated):
                self.computed += request.prompt.length - outcome.cached
            if request.future.done():  # given up by its coroutine
                continue
            if isinstance(outcome, Exception):
                request.future.set_exception(outcome)
            else:
                request.future.set_result(outcome)  # type: ignore[arg-type]


class Worker(Protocol):
    """What works when no coroutine can go on."""

    @property
    def dead(self) -> bool: ...

    @property
    def busy(self) -> bool: ...

    def advance(self) -> None:
        """Do a step of work.

        Raises:
            EngineDied: it failed for good.
        """


class _Idle(selectors.DefaultSelector):
    """A selector that lets the engine work whenever the event loop has nothing else to do."""

    def __init__(self, engine: Worker | None) -> None:
        super().__init__()
        self._engine = engine

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        # The loop passes 0 where callbacks are ready, else None or the time until its next timer.
        engine = self._engine
        if timeout != 0 and engine is not None and engine.busy and not engine.dead:
            engine.advance()
            timeout = 0
        return super().select(timeout)


def lockstep(engine: Worker | None) -> asyncio.Runner:
    """An asyncio runner whose coroutines are served by `engine`."""
    return asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(_Idle(engine)))


def call_seed(seed: int, key: str, trial: int, call: int | str) -> int:
    """A seed (63 bits) for one model call, the same in every run, whatever else runs.

    Args:
        call: its number, or what tells it from the others of its key.
    """
    digest = hashlib.blake2b(f"{seed}\x1f{key}\x1f{trial}\x1f{call}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def split_reasoning(text: str, tags: tuple[str, str] | None, *, thinks: bool) -> tuple[str, str | None]:
    """Answer and reasoning of a raw output.

    The opening tag may be missing, because some templates put it at the end of the prompt. Where reasoning was opened
    and never closed (the output ran out of tokens), there is no answer; of a model that always thinks, an output
    without the closing tag is all reasoning, whether or not the opening one is in it.

    Args:
        tags: the strings around the reasoning; None where the text is all answer.
        thinks: whether the model reasons before it answers (`thinking: "on"`).
    """
    if tags is None:
        return text, None
    opening, closing = tags
    reasoning, closed, answer = text.partition(closing)
    if closed:
        return answer.lstrip("\n"), reasoning.strip().removeprefix(opening).strip()
    if thinks:
        return "", text.strip().removeprefix(opening).strip()
    before, opened, reasoning = text.partition(opening)
    return (before.strip(), reasoning.strip()) if opened else (text, None)


def cut(text: str, stop: Sequence[str]) -> tuple[str, bool]:
    """A text up to the first of some strings, and whether there is any."""
    places = [place for one in stop if (place := text.find(one)) >= 0]
    return (text[: min(places)], True) if places else (text, False)


@dataclass(slots=True)
class Handle:
    """The model as one probe's coroutine sees it (`upkeep.cell.LLM`); books what the probe used.

    Args:
        engine: None for a method that calls no model.
        key, trial: what the seeds of its calls are made of, with the cell's seed.
    """

    engine: Engine | None
    spec: ModelSpec | None
    seed: int
    key: str
    trial: int = 0
    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    finish_reason: Finish = "none"
    reasoning: str | None = None
    started: float | None = None
    """Clock of the first call, in seconds."""
    answered: dict[int, str] = field(default_factory=dict)
    """What the host keeps each call by that was answered, by the call's number."""
    asked_before: Counter[str] | None = None
    """How often each content was asked, where seeds go by content: then what is asked has the same seed in whatever
    order coroutines come to ask. None where they go by the order of calls."""
    sampling: Sampling = field(init=False)
    context_length: int = field(init=False)

    def __post_init__(self) -> None:
        self.sampling = self.spec.sampling if self.spec else Sampling()
        self.context_length = self.spec.context_length if self.spec else 0

    @property
    def usage(self) -> Usage:
        return Usage(prompt=self.prompt_tokens, completion=self.completion_tokens, calls=self.calls)

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
        engine, spec = self._model()
        asked = toolcalls.asked(spec, tools, tool_choice, schema, stop, top_logprobs)
        sampling = sampling or self.sampling
        prompt = engine.tokens.prompt(messages, asked.tools)
        self._check(prompt.length, sampling.max_tokens)
        call = self._begin()
        future: asyncio.Future[Generated] = asyncio.get_running_loop().create_future()
        seed = self._seed_of(call, [messages, sampling, asked])
        generated = await self._answer(engine, call, Generate(prompt, sampling, seed, future, asked.options))
        decoded, stopped = cut(engine.tokens.decode(generated.ids), stop)
        text, reasoning = split_reasoning(decoded, spec.thinking_tags, thinks=spec.thinking == "on")
        self.prompt_tokens += prompt.length
        self.completion_tokens += len(generated.ids)
        self.cached_tokens += generated.cached
        self.finish_reason, self.reasoning = "stop" if stopped else generated.finish_reason, reasoning
        calls: tuple[ToolCall, ...] = ()
        if asked.tools and spec.tool_calls:
            text, calls = toolcalls.read(text, spec.tool_calls, asked.tools, call)
        return Reply(
            text=text,
            reasoning=reasoning,
            finish_reason=self.finish_reason,
            prompt_tokens=prompt.length,
            completion_tokens=len(generated.ids),
            cached_tokens=generated.cached,
            tool_calls=calls,
            logprobs=tuple(generated.tokens),
        )

    async def logprobs(self, prompt: str | Sequence[Message], continuation: str) -> list[ScoredToken]:
        engine, _ = self._model()
        text = engine.tokens.scorable(prompt, continuation)
        self._check(text.prompt.length, len(text.ids))
        scores: list[float] = []
        if text.ids:
            call = self._begin()
            future: asyncio.Future[list[float]] = asyncio.get_running_loop().create_future()
            scores = await self._answer(engine, call, Score(text.prompt, text.ids, future))
            self.prompt_tokens += text.prompt.length + len(text.ids)
        unknown = [None] * (len(text.spans) - len(text.ids))
        return [ScoredToken(*span, score) for span, score in zip(text.spans, [*unknown, *scores], strict=True)]

    def count(self, text: str) -> int:
        return self._model()[0].tokens.count(text)

    def count_prompt(self, messages: Sequence[Message]) -> int:
        return self._model()[0].tokens.prompt(messages).length

    def _model(self) -> tuple[Engine, ModelSpec]:
        if self.engine is None or self.spec is None:
            raise TypeError("this method is declared to call no model (`model: false` in its method.yaml)")
        return self.engine, self.spec

    @property
    def keys(self) -> list[str]:
        """What the host keeps its calls by, in the order in which they began."""
        return [self.answered[call] for call in sorted(self.answered)]

    async def _answer(self, engine: Engine, call: int, request: Request) -> Any:
        """What an engine says to a request."""
        engine.add(request)
        try:
            return await request.future
        finally:
            if request.key is not None:
                self.answered[call] = request.key

    def _seed_of(self, call: int, asked: object) -> int:
        """The seed of a call, by its number or by what it asks."""
        if self.asked_before is None:
            return call_seed(self.seed, self.key, self.trial, call)
        content = hashlib.blake2b(msgspec.json.encode(asked), digest_size=16).hexdigest()
        self.asked_before[content] += 1
        return call_seed(self.seed, self.key, self.trial, f"{content}#{self.asked_before[content]}")

    def _begin(self) -> int:
        if self.started is None:
            self.started = time.monotonic()
        self.calls += 1
        return self.calls - 1

    def _check(self, prompt: int, room: int) -> None:
        if prompt + room > self.context_length:
            raise PromptTooLong(
                f"{prompt} prompt tokens and {room} to come, but the model's context is {self.context_length}"
            )
