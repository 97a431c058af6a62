"""The calls of a model behind a prediction, by the keys that the prediction names: what was asked, and what came."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from upkeep.catalog import Catalog
from upkeep.cell import wire
from upkeep.cell.lockstep import split_reasoning
from upkeep.contract import ModelSpec, Sampling
from upkeep.files import digest
from upkeep.gateway import prompts
from upkeep.gateway.engines import reader_parts
from upkeep.gateway.record import EngineRecord, Replies, engines, key_of
from upkeep.integrity import Missing
from upkeep.jobs import Cell
from upkeep.layout import Layout
from upkeep.text import printable

_FINISHED = msgspec.msgpack.Decoder(wire.Finished)
_LENGTH = msgspec.msgpack.Decoder(int | wire.Scorable)
"""Of what is kept of a prompt: its length in tokens, or that with a continuation of which the tokens are asked for."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a model."""

    source: str
    """Who was asked."""
    decoding: str
    """How, in words."""
    seed: int | None
    """Of a sampled reply."""
    messages: prompts.Messages | None
    """The prompt as the model read it, template aside; None where it is not there, and `problem` says why."""
    problem: str | None
    prompt: int | None
    """Tokens of the prompt; None where nobody knows."""
    completion: int
    """Tokens that were generated, reasoning included."""
    answer: str | None
    reasoning: str | None
    ended: str
    """How the reply ended, or why there is none."""


class Opened:
    """The records of engines and endpoints, each opened once, and parts of prompts that were read lately: what finds
    the calls of several cells has the same."""

    def __init__(self, catalog: Catalog) -> None:
        self.record = Layout(catalog.results).record
        self.lately = prompts.Lately()
        self._replies: dict[str, Replies] = {}

    def replies(self, parts: dict[str, str], model: str) -> Replies:
        """What is kept of the engine that `parts` describe."""
        if (engine := digest(parts)) not in self._replies:
            self._replies[engine] = Replies(self.record, parts, model)
        return self._replies[engine]


class Calls:
    """Finds the calls of a cell's predictions.

    Args:
        opened: what was opened for other cells; by default nothing.

    Raises:
        Damaged: a record does not say which engine it is of.
    """

    def __init__(self, catalog: Catalog, cell: Cell, opened: Opened | None = None) -> None:
        self._catalog, self._cell, self._opened = catalog, cell, opened or Opened(catalog)
        self._spec = catalog.spec(cell.model) if cell.model != "none" else None
        away = self._spec is None or self._spec.endpoint is not None
        self.records = None if away else Records(catalog, cell, self._opened)
        """Of engines; None where an endpoint is asked, or nobody."""

    def find(self, key: str) -> Call | None:
        """The call whose reply has a key; None where no such request is kept."""
        if self._spec is None:
            return None
        if self.records is None:
            return _of_endpoint(self._opened, self._cell.model, self._spec, bytes.fromhex(key))
        for found in self.records.holding(bytes.fromhex(key)):
            engine = found.engine
            own = "" if engine.engine in self.records.own else ", not the engine that answers this cell now"
            source = f"engine {engine.engine[:16]} ({engine.model}{own})"
            replies = self.records.replies(engine)
            return _of_engine(replies, source, self._spec, bytes.fromhex(key), found, self._opened.lately)
        return None


class Holding(NamedTuple):
    """An engine that was asked a request."""

    engine: EngineRecord
    prompt: bytes
    """The key of what was asked."""
    asked: prompts.Asked


class Records:
    """The records of all engines: first that of the engine that answers a cell now, then those of its model by name.

    One request may have been asked of several engines, and has one key in all of them.

    Args:
        opened: what was opened for other cells; by default nothing.
    """

    def __init__(self, catalog: Catalog, cell: Cell, opened: Opened | None = None) -> None:
        self._opened = opened or Opened(catalog)
        try:
            self.own = set(map(digest, reader_parts(catalog, cell)))
            """The engines that answer the cell as things are now; none where nobody can tell, for want of weights."""
        except Missing:
            self.own = set()
        self.known = sorted(
            engines(self._opened.record),
            key=lambda one: (one.engine not in self.own, one.model != cell.model, one.engine),
        )

    def replies(self, engine: EngineRecord) -> Replies:
        """What is kept of an engine."""
        return self._opened.replies(engine.parts, engine.model)

    def holding(self, key: bytes) -> Iterator[Holding]:
        """The engines that were asked the request whose reply has this key."""
        for engine in self.known:
            found = prompts.request(self.replies(engine), key)
            if found is not None and prompts.reply_key(*found) == key:
                yield Holding(engine, *found)


def _of_engine(
    replies: Replies, source: str, spec: ModelSpec, key: bytes, found: Holding, lately: prompts.Lately
) -> Call:
    asked = found.asked
    kept, counted = replies.get(key), replies.get(found.prompt)
    reply = None if kept is None else _FINISHED.decode(kept)
    length = None if counted is None else _LENGTH.decode(counted)
    tokens = length.length if isinstance(length, wire.Scorable) else length
    answer = reasoning = seed = None
    completion, ended = 0, "none is on record: the request failed, or its reply is damaged"
    if isinstance(asked, wire.Score):
        decoding = "the log-probability of a given continuation"
        tokens = None if tokens is None else tokens + len(asked.continuation)
        if reply is not None:
            ended = f"{sum(reply.scores or []):.4f} in all, for {len(asked.continuation):,} tokens"
    else:
        decoding, seed = decoded(asked.sampling), asked.seed if asked.sampling.temperature else None
        if reply is not None:
            ids = reply.ids or []
            completion, ended = len(ids), _ended(len(ids), reply.finish_reason)
            text = replies.get(key_of("decode", msgspec.msgpack.encode(ids)))
            if text is None:
                ended += "; its text is not on record"
            else:
                told = msgspec.msgpack.decode(text, type=str)
                answer, reasoning = split_reasoning(told, spec.thinking_tags, thinks=spec.thinking == "on")
    messages, problem = _messages(replies, found.prompt, lately)
    return Call(source, decoding, seed, messages, problem, tokens, completion, answer, reasoning, ended)


def _of_endpoint(opened: Opened, model: str, spec: ModelSpec, key: bytes) -> Call | None:
    from upkeep.gateway.endpoints.replies import Reply, parts_of

    requests = opened.replies(parts_of(model), model)
    found, value = prompts.request(requests, key), requests.get(key)
    reply = None if value is None else msgspec.msgpack.decode(value, type=Reply)
    if found is None and reply is None:
        return None
    messages, problem = (
        (None, "the prompt is not kept") if found is None else _messages(requests, found[0], opened.lately)
    )
    seed, decoding = None, "not known"
    if found is not None and isinstance(found[1], wire.Generate):
        decoding, seed = decoded(found[1].sampling), found[1].seed if found[1].sampling.temperature else None
    source = f"endpoint of {model}" + (f", which says that it is {reply.model}" if reply is not None else "")
    source += f", version {printable(reply.version)}" if reply is not None and reply.version is not None else ""
    if reply is None or reply.refused is not None:
        ended = "none is kept: the request failed" if reply is None else f"refused: {reply.refused}"
        return Call(source, decoding, seed, messages, problem, None, 0, None, None, ended)
    answer, reasoning = reply.text, reply.reasoning
    if reasoning is None:
        answer, reasoning = split_reasoning(reply.text, spec.thinking_tags, thinks=False)
    ended = _ended(reply.completion, reply.finish_reason)
    used = reply.prompt, reply.completion
    return Call(source, decoding, seed, messages, problem, *used, answer, reasoning, ended)


def _messages(replies: Replies, prompt: bytes, lately: prompts.Lately) -> tuple[prompts.Messages | None, str | None]:
    try:
        return prompts.prompt(replies, prompt, lately), None
    except prompts.NotReadable as error:
        return None, str(error)


def _ended(tokens: int, reason: str) -> str:
    return f"{tokens:,} tokens, " + ("cut off at the limit" if reason == "length" else "ended by itself")


def decoded(sampling: Sampling) -> str:
    """How a reply is decoded, in words; what has its neutral value is left out."""
    neutral = Sampling()
    fields = [name for name in Sampling.__struct_fields__ if name not in ("temperature", "max_tokens")]
    more = [f"{name} {value:g}" for name in fields if (value := getattr(sampling, name)) != getattr(neutral, name)]
    how = [f"temperature {sampling.temperature:g}" if sampling.temperature else "greedy", *more]
    return f"{', '.join(how)}, at most {sampling.max_tokens:,} tokens"
