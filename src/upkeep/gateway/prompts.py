"""What models were asked, in the record beside what they answered: prompts as the parts that they are made of.

A document stands in thousands of prompts, so each part is kept once, compressed, by its content; a prompt is the roles
of its messages and the keys of their parts; a request is the key of its prompt and how it was decoded. All three are
entries of the engine's record (`record.Replies`), so they are verified, exported and removed with it.

From the key of a reply one comes to its request, from there to its prompt. What is read back is hashed again as the
gateway hashed it when it came: a text is the very one that was asked, or it is not given.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from upkeep.cell import wire
from upkeep.contract import Sampling
from upkeep.fields import hashed
from upkeep.gateway.record import KEY_BYTES, Replies, key_of

Asked = wire.Generate | wire.Score
Messages = list[tuple[str, list[str]]]
"""Role and parts of each; of a text without a template, one message of the role `PLAIN`."""

PLAIN = ""
BESIDE = {"chat": ("calls and results of tools", "tools"), "scored chat": ("scored", "calls and results of tools")}
"""What prompts of a kind have beside their messages, in order; shown as further messages of these roles."""
SCORED_TEXT = ("scored",)
MAX_PROMPT_BYTES = 32 * 2**20
"""A longer prompt is answered and not kept; the longest that a model reads have a few megabytes."""
MAX_LISTED = 2**16
"""Messages, and parts of a message, of a prompt that is kept."""
MAX_KNOWN, MAX_KNOWN_SIZE = 1024, 2**16
"""Parts whose keys are known without hashing them again, for they stand in one prompt after the other; and their
characters: 64 MB in all, or four times that."""
MAX_NEW_BYTES = 2 * 2**30
"""Of what is kept of one container's prompts, before it is compressed: after that no more of them are kept."""
LATELY_BYTES = 64 * 2**20
"""Of parts that were read lately, until they are forgotten."""
ENTRY_BYTES = 512
"""What an entry counts beside its value."""
_LEVEL = 6

_LISTED = Meta(max_length=MAX_LISTED)
_CHAT_TYPE: Any = Annotated[list[tuple[str, Annotated[list[str], _LISTED]]], _LISTED]
_CHAT: msgspec.msgpack.Decoder[Messages] = msgspec.msgpack.Decoder(_CHAT_TYPE)
_TEXT = msgspec.msgpack.Decoder(str)
_NOTHING = msgspec.msgpack.encode([])


class _Prompt(Struct, array_like=True, frozen=True):
    """A prompt, as it is kept."""

    kind: str
    messages: list[tuple[str, bytes]]
    """Role of each, and the keys of its parts, one after the other."""
    beside: bytes = b""
    """Keys of what it has beside its messages (`BESIDE`), as it came."""


class _Request(Struct, array_like=True, frozen=True):
    """A request, as it is kept."""

    prompt: bytes
    asked: Asked
    """Its two numbers are 0; greedy decoding has the seed 0, for all that ask get one reply."""


_PROMPT = msgspec.msgpack.Decoder(_Prompt)
_REQUEST = msgspec.msgpack.Decoder(_Request)


def prompt_key(kind: str, *contents: bytes) -> bytes:
    """What a prompt is known by: what it is, and its contents as they came (MessagePack), messages or text first."""
    return key_of(kind, *contents)


def reply_key(prompt: bytes, request: Asked) -> bytes:
    """What a reply is kept by. Greedy decoding takes no seed: all that ask get one reply."""
    if isinstance(request, wire.Score):
        return key_of("score", prompt, msgspec.msgpack.encode(request.continuation))
    seed = msgspec.msgpack.encode(_seed(request))
    more = () if request.options in (None, wire.NO_OPTIONS) else (msgspec.msgpack.encode(request.options),)
    return key_of("generate", prompt, _sampling(request.sampling), seed, *more)


@lru_cache
def _sampling(sampling: Sampling) -> bytes:
    """As records hold it; the same few are asked with again and again."""
    return msgspec.msgpack.encode(hashed(sampling))


def _seed(request: wire.Generate) -> int:
    return request.seed if request.sampling.temperature else 0


# ---------------------------------------------------------------- keeping


class Keeper:
    """Keeps what one container asks.

    Args:
        get, put: of the engine's record.
        again: look whether what is kept is whole, and keep anew what is not.
    """

    def __init__(
        self, get: Callable[[bytes], bytes | None], put: Callable[[bytes, bytes], None], *, again: bool = False
    ) -> None:
        self._get, self._put, self._again = get, put, again
        self._there: set[bytes] = set()
        """Parts and prompts that are known to be kept."""
        self._of_text = lru_cache(maxsize=MAX_KNOWN)(lambda part: self._keep_part(part.encode()))
        self._left = MAX_NEW_BYTES

    def keep(self, key: bytes, prompt: bytes, request: Asked) -> None:
        """Keep a request whose prompt is kept, unless it is there.

        Args:
            key: of its reply (`reply_key`).
            prompt: key of its prompt (`prompt_key`).
        """
        entry = key_of("request", key)
        if prompt in self._there and self._get(entry) is None:
            changed: dict[str, Any] = {"number": 0, "prompt": 0}
            if isinstance(request, wire.Generate):
                changed["seed"] = _seed(request)
            asked = msgspec.structs.replace(request, **changed)
            self._put(entry, msgspec.msgpack.encode(_Request(prompt, asked)))

    def miss(self, job: str, prompt: bytes, kind: str, contents: Sequence[bytes], wanted: bytes) -> None:
        """Keep what ended a job that may ask its model nothing new.

        Args:
            wanted: key of the reply that is not there; empty where the prompt itself is new.
        """
        self.keep_prompt(prompt, kind, contents)
        self._put(key_of("missed", job.encode()), msgspec.msgpack.encode((prompt, wanted)))

    def keep_prompt(self, prompt: bytes, kind: str, contents: Sequence[bytes]) -> bool:
        """Keep a prompt, unless it is there; whether it is now. One that is too long is not kept."""
        if prompt in self._there:
            return True
        entry = key_of("prompt", prompt)
        if not self._again and self._get(entry) is not None:
            self._there.add(prompt)
            return True
        size = sum(map(len, contents))
        if size > MAX_PROMPT_BYTES or self._left < size:
            return False
        first, *beside = contents
        try:
            messages = _CHAT.decode(first) if kind in BESIDE else [(PLAIN, [_TEXT.decode(first)])]
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return False  # the engine says what is wrong with it
        listed = [(role, b"".join(map(self._key_of_part, parts))) for role, parts in messages]
        more = b"".join(map(self._keep_part, beside))
        if self._get(entry) is None:
            self._add(entry, msgspec.msgpack.encode(_Prompt(kind, listed, more)))
        self._there.add(prompt)
        return True

    def _key_of_part(self, part: str) -> bytes:
        return self._of_text(part) if len(part) <= MAX_KNOWN_SIZE else self._keep_part(part.encode())

    def _keep_part(self, part: bytes) -> bytes:
        key = key_of("part", part)
        if key not in self._there:
            if self._get(key) is None:
                self._add(key, part, zlib.compress(part, _LEVEL))
            self._there.add(key)
        return key

    def _add(self, key: bytes, content: bytes, stored: bytes | None = None) -> None:
        self._put(key, content if stored is None else stored)
        self._left -= len(content) + ENTRY_BYTES


# ---------------------------------------------------------------- finding


class NotReadable(Exception):
    """A prompt or a request is not kept, or not whole. The message says which."""


def request(replies: Replies, key: bytes) -> tuple[bytes, Asked] | None:
    """The key of the prompt, and the request itself, that the reply with this key was given to; None where there is
    none that is whole."""
    if (value := replies.get(key_of("request", key))) is None:
        return None
    try:
        kept = _REQUEST.decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return kept.prompt, kept.asked


def missed(replies: Replies, job: str) -> tuple[bytes, bytes] | None:
    """What ended a job that might ask its model nothing new, when it was last run so: the key of a prompt, and of the
    reply that was not there, empty where the prompt itself was new. None where that is not known."""
    value = replies.get(key_of("missed", job.encode()))
    return None if value is None else msgspec.msgpack.decode(value, type=tuple[bytes, bytes])


class Lately(dict[bytes, bytes]):
    """Parts that were read lately, by key, for they stand in one prompt after the other."""

    size = 0
    """Bytes that they take."""

    def keep(self, key: bytes, part: bytes) -> None:
        """Remember a part."""
        self[key] = part
        self.size += len(part) + ENTRY_BYTES

    def trim(self) -> None:
        """Forget them all where they are many."""
        if self.size > LATELY_BYTES:
            self.clear()
            self.size = 0


def prompt(replies: Replies, key: bytes, lately: Lately | None = None) -> Messages:
    """The messages of a prompt, the very ones that were asked.

    Args:
        lately: parts of prompts that were read before, of whatever engine; they are not read again.

    Raises:
        NotReadable: it, or a part of it, is not kept or not whole.
    """
    if (value := replies.get(key_of("prompt", key))) is None:
        raise NotReadable("the prompt is not kept")
    try:
        kept = _PROMPT.decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise NotReadable("the prompt is not readable") from None
    known = Lately() if lately is None else lately
    known.trim()
    try:
        messages = [
            (role, [_part(replies, part, known).decode() for part in _split(parts)]) for role, parts in kept.messages
        ]
    except UnicodeDecodeError:
        raise NotReadable("a part of the prompt is not readable") from None
    beside = [_part(replies, part, known) for part in _split(kept.beside)]
    first: Any = messages if kept.kind in BESIDE else "".join(messages[0][1]) if messages else ""
    if prompt_key(kept.kind, msgspec.msgpack.encode(first), *beside) != key:
        raise NotReadable("what is kept is not the prompt that was asked")
    roles = BESIDE.get(kept.kind, SCORED_TEXT)  # a chat without tools has nothing beside its messages
    return messages + [(role, [_shown(one)]) for role, one in zip(roles, beside, strict=False) if one != _NOTHING]


def _shown(content: bytes) -> str:
    """What a prompt has beside its messages, in words."""
    value = msgspec.msgpack.decode(content)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)


def _split(keys: bytes) -> list[bytes]:
    return [keys[at : at + KEY_BYTES] for at in range(0, len(keys), KEY_BYTES)]


def _part(replies: Replies, key: bytes, known: Lately) -> bytes:
    if key in known:
        return known[key]
    value = replies.get(key) if len(key) == KEY_BYTES else None
    if value is None:
        raise NotReadable("a part of the prompt is not readable")
    try:
        part = zlib.decompressobj().decompress(value, MAX_PROMPT_BYTES)
    except zlib.error:
        raise NotReadable("a part of the prompt is not readable") from None
    if key_of("part", part) != key:
        raise NotReadable("a part of the prompt is not the one that was asked")
    known.keep(key, part)
    return part
