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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from upkeep.cell.method import Message, PromptTooLong, Reply
from upkeep.cell.tokens import Segment, TokenPrompt
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


@dataclass(eq=False, slots=True)
class Generate:
    """Ask for a continuation."""

    prompt: TokenPrompt
    sampling: Sampling
    seed: int
    future: asyncio.Future[Generated]


@dataclass(eq=False, slots=True)
class Score:
    """Ask for the log-probability of each token of a given continuation."""

    prompt: TokenPrompt
    continuation: Segment[int]
    future: asyncio.Future[list[float]]


Request = Generate | Score
Outcome = Generated | list[float] | Exception


class Tokens(Protocol):
    """What a handle asks of a model's tokenizer (`upkeep.cell.tokens.ChatTokens`)."""

    def prompt(self, messages: Sequence[Message]) -> TokenPrompt: ...

    def plain(self, text: str) -> TokenPrompt: ...

    def segment(self, text: str) -> Segment[int]: ...

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
        """Rows that a step of decoding always has, which decides the last bits; None where it varies."""
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


def call_seed(seed: int, key: str, trial: int, call: int) -> int:
    """A seed (63 bits) for one model call, the same in every run, whatever else runs."""
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
    sampling: Sampling = field(init=False)
    context_length: int = field(init=False)

    def __post_init__(self) -> None:
        self.sampling = self.spec.sampling if self.spec else Sampling()
        self.context_length = self.spec.context_length if self.spec else 0

    @property
    def usage(self) -> Usage:
        return Usage(prompt=self.prompt_tokens, completion=self.completion_tokens, calls=self.calls)

    async def chat(self, messages: Sequence[Message], sampling: Sampling | None = None) -> Reply:
        engine, spec = self._model()
        sampling = sampling or self.sampling
        prompt = engine.tokens.prompt(messages)
        self._check(prompt.length, sampling.max_tokens)
        call = self._begin()
        future: asyncio.Future[Generated] = asyncio.get_running_loop().create_future()
        engine.add(Generate(prompt, sampling, call_seed(self.seed, self.key, self.trial, call), future))
        generated = await future
        decoded = engine.tokens.decode(generated.ids)
        text, reasoning = split_reasoning(decoded, spec.thinking_tags, thinks=spec.thinking == "on")
        self.prompt_tokens += prompt.length
        self.completion_tokens += len(generated.ids)
        self.cached_tokens += generated.cached
        self.finish_reason, self.reasoning = generated.finish_reason, reasoning
        return Reply(text, reasoning, generated.finish_reason, prompt.length, len(generated.ids), generated.cached)

    async def logprobs(self, prompt: str, continuation: str) -> list[float]:
        engine, _ = self._model()
        tokens = engine.tokens.plain(prompt)
        after = engine.tokens.segment(continuation)
        if not tokens.length:
            raise ValueError("log-probabilities need a prompt of one token at least")
        self._check(tokens.length, len(after))
        self._begin()
        future: asyncio.Future[list[float]] = asyncio.get_running_loop().create_future()
        engine.add(Score(tokens, after, future))
        scores = await future
        self.prompt_tokens += tokens.length + len(after)
        return scores

    def count(self, text: str) -> int:
        return self._model()[0].tokens.count(text)

    def count_prompt(self, messages: Sequence[Message]) -> int:
        return self._model()[0].tokens.prompt(messages).length

    def _model(self) -> tuple[Engine, ModelSpec]:
        if self.engine is None or self.spec is None:
            raise TypeError("this method is declared to call no model (`model: false` in its method.yaml)")
        return self.engine, self.spec

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
