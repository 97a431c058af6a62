"""Every answer of an endpoint, kept by the content of its request: what was paid for once is not asked again."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from upkeep.cell import wire
from upkeep.cell.endpoint import Ask
from upkeep.contract import Count
from upkeep.gateway.prompts import Keeper, prompt_key
from upkeep.gateway.record import Replies as Record

LOOK_S = 10.0
"""How often it is looked, at most, whether another job has been answered what this one is about to ask."""


class Reply(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What an endpoint answered to one request."""

    key: str
    """SHA-256 of the address, the request's body and its seed (`key_of`)."""
    model: str
    """As the answer names it."""
    text: str = ""
    reasoning: str | None = None
    finish_reason: Literal["stop", "length"] = "stop"
    refused: str | None = None
    """Why it did not answer, in place of a text."""
    prompt: Count = 0
    completion: Count = 0
    """Tokens, reasoning included."""
    cached: Count = 0
    """Prompt tokens from the provider's prefix cache."""
    usd: float = 0.0
    request_id: str | None = None
    """The provider's."""
    version: str | None = None
    """What the provider calls what answered (`system_fingerprint`): it may put other weights behind the same name."""
    at: str = ""
    tool_calls: list[wire.Call] = []
    tokens: list[wire.Token] = []
    """Where log-probabilities were asked for."""
    parameters: dict[str, Any] = {}
    """The request's body without its messages."""


def key_of(url: str, body: bytes, seed: int) -> str:
    """What a request's answer is kept by. The seed counts even where the provider takes none: trials differ."""
    return hashlib.sha256(b"\0".join((url.encode(), str(seed).encode(), body))).hexdigest()


_REPLY = msgspec.msgpack.Decoder(Reply)


def parts_of(model: str) -> dict[str, str]:
    """What stands in the record for a model's endpoint, as its parts do for an engine."""
    return {"endpoint": model}


class Replies:
    """What a model's endpoint was asked and answered, in the record of replies. For one thread of one process."""

    def __init__(self, record: Path, model: str) -> None:
        self._kept = Record(record, parts_of(model), model)
        self._keeper = Keeper(self._kept.get, self._kept.put)
        self._named = self._kept.ready() is not None
        self._looked = time.monotonic()

    def get(self, key: str) -> Reply | None:
        """The answer to a request; None where there is none."""
        value = self._kept.get(bytes.fromhex(key))
        if value is None and time.monotonic() - self._looked > LOOK_S:
            self._kept.refresh()
            self._looked = time.monotonic()
            value = self._kept.get(bytes.fromhex(key))
        return None if value is None else _REPLY.decode(value)

    def put(self, reply: Reply) -> None:
        """Keep an answer, on disk when this returns: it is paid for.

        Raises:
            UpkeepError: there is no room.
        """
        if not self._named:
            self._kept.say_ready({"name": "endpoint"})
            self._named = True
        self._kept.put(bytes.fromhex(reply.key), msgspec.msgpack.encode(reply), durable=True)

    def keep_request(self, key: str, ask: Ask) -> None:
        """Keep in its parts what is asked, unless it is kept.

        Raises:
            UpkeepError: there is no room.
        """
        beside = [] if not ask.about and ask.more is None else [ask.about, ask.more or []]
        contents = [msgspec.msgpack.encode(one) for one in (ask.messages, *beside)]
        request = wire.Generate(0, 0, ask.sampling, ask.seed)
        self._keeper.keep_prompt(prompt := prompt_key("chat", *contents), "chat", contents)
        self._keeper.keep(bytes.fromhex(key), prompt, request)

    def close(self) -> None:
        """Bring everything to disk and let go of the files."""
        self._kept.close()
