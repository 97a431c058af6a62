"""What a container asks an engine, as far as the gateway looks into it."""

from __future__ import annotations

from typing import ClassVar

import msgspec
from msgspec import Struct

from upkeep.contract import Count

_NOTHING = msgspec.Raw(msgspec.msgpack.encode([]))


class Chat(Struct, tag="Chat", forbid_unknown_fields=True, frozen=True):
    key: Count
    messages: msgspec.Raw
    about: msgspec.Raw = _NOTHING
    tools: msgspec.Raw = _NOTHING
    kind: ClassVar = "chat"

    @property
    def contents(self) -> list[bytes]:
        more = [] if self.about == self.tools == _NOTHING else [self.about, self.tools]
        return [bytes(one) for one in (self.messages, *more)]


class ScoredChat(Struct, tag="ScoredChat", forbid_unknown_fields=True, frozen=True):
    key: Count
    messages: msgspec.Raw
    continuation: msgspec.Raw
    about: msgspec.Raw = _NOTHING
    kind: ClassVar = "scored chat"

    @property
    def contents(self) -> list[bytes]:
        return [bytes(self.messages), bytes(self.continuation), bytes(self.about)]


class ScoredText(Struct, tag="ScoredText", forbid_unknown_fields=True, frozen=True):
    key: Count
    text: msgspec.Raw
    continuation: msgspec.Raw
    kind: ClassVar = "scored text"

    @property
    def contents(self) -> list[bytes]:
        return [bytes(self.text), bytes(self.continuation)]


class CountTokens(Struct, tag="CountTokens", forbid_unknown_fields=True, frozen=True):
    text: msgspec.Raw


class Decode(Struct, tag="Decode", forbid_unknown_fields=True, frozen=True):
    ids: msgspec.Raw


Held = Chat | ScoredChat | ScoredText
"""A question whose prompt the engine holds from then on."""
