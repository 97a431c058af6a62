"""Every answer of an endpoint, kept by the content of its request: what was paid for once is not asked again."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from upkeep.cell.engines.wire import Call, Token
from upkeep.contract import Count
from upkeep.files import write_atomically


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
    at: str = ""
    tool_calls: list[Call] = []
    tokens: list[Token] = []
    """Where log-probabilities were asked for."""
    parameters: dict[str, Any] = {}
    """The request's body without its messages."""


class _Stored(Struct, frozen=True, forbid_unknown_fields=True):
    reply: Reply
    sha256: str


def key_of(url: str, body: bytes, seed: int) -> str:
    """What a request's answer is kept by. The seed counts even where the provider takes none: trials differ."""
    return hashlib.sha256(b"\0".join((url.encode(), str(seed).encode(), body))).hexdigest()


class Replies:
    """A folder of answers; written whole or not at all, checked when read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, key: str) -> Reply | None:
        """The answer to a request; None where there is none.

        A damaged file is set aside under the name `<key>.damaged`, and the request counts as not answered.
        """
        path = self._path(key)
        try:
            stored = msgspec.json.decode(path.read_bytes(), type=_Stored)
        except FileNotFoundError:
            return None
        except (msgspec.MsgspecError, UnicodeDecodeError):
            stored = None
        if stored is None or stored.reply.key != key or stored.sha256 != _digest(stored.reply):
            path.replace(path.with_suffix(".damaged"))
            return None
        return stored.reply

    def put(self, reply: Reply) -> None:
        """Keep an answer."""
        content = msgspec.json.encode(_Stored(reply, _digest(reply))) + b"\n"
        write_atomically(self._path(reply.key), content, durable=True)  # it is paid for

    def _path(self, key: str) -> Path:
        return self._folder / key[:2] / f"{key}.json"


def _digest(reply: Reply) -> str:
    """Of all fields, but for those that replies have not always had, where they are empty."""
    fields = {k: v for k, v in msgspec.structs.asdict(reply).items() if v or k not in ("tool_calls", "tokens")}
    return hashlib.sha256(msgspec.json.encode(fields, order="sorted")).hexdigest()
