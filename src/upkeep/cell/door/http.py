"""A small HTTP/1.1 server on the loopback interface, in the event loop that starts it.

Requests of a connection are answered one after the other (pipelined ones, too). Whoever connects is a stranger until a
request of theirs is let in by its head: strangers are given little time and little room, and no body is read for them.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from http import HTTPStatus

import msgspec

HOST = "127.0.0.1"
MAX_HEAD = 64 * 1024
"""Bytes of a request's first line and headers."""
MAX_BODY = 64 * 2**20
"""Bytes."""
MAX_CONNECTIONS = 1024
PATIENCE_S = 30.0
"""How long a stranger may take for the head of a request."""
LINGER_S = 2.0
"""How long a body is taken in after it was refused, so that its sender reads why."""

_SIZE = re.compile(rb"[0-9A-Fa-f]{1,8}")


class Fault(msgspec.Struct, frozen=True):
    """What is wrong with a request, as OpenAI-compatible servers say it."""

    message: str
    type: str
    param: str | None
    code: str | None


class Refusal(Exception):
    """A request is not answered.

    Args:
        status: of HTTP.
        message: what is wrong, what was expected, what to do.
        code: a word for programs.
        param: the field at fault.
    """

    def __init__(self, status: HTTPStatus, message: str, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        kind = "server_error" if status >= 500 else "invalid_request_error"
        self.status, self.fault = status, Fault(message, kind, param, code)

    def response(self) -> Response:
        # The same request would be refused again: clients that know this header do not repeat it.
        body = msgspec.json.encode({"error": self.fault})
        return Response(body, self.status, headers={"x-should-retry": "false"})


@dataclass(frozen=True, slots=True)
class Head:
    """First line and headers of a request."""

    method: str
    path: str
    """Without the query."""
    version: str
    headers: dict[str, str]
    """By name in lower case."""

    @property
    def keeps(self) -> bool:
        """Whether the connection may stay open for another request."""
        wish = self.headers.get("connection", "").lower()
        return "close" not in wish and (self.version == "HTTP/1.1" or "keep-alive" in wish)


@dataclass(frozen=True, slots=True)
class Response:
    """What is answered."""

    body: bytes
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)

    def encode(self, *, keep: bool) -> bytes:
        """As it is sent."""
        lines = [
            f"HTTP/1.1 {self.status.value} {self.status.phrase}",
            f"content-type: {self.content_type}",
            f"content-length: {len(self.body)}",
            f"connection: {'keep-alive' if keep else 'close'}",
            *(f"{name}: {value}" for name, value in self.headers.items()),
        ]
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + self.body


Respond = Callable[[bytes], Awaitable[Response]]
"""Answers a request, given its body."""


class Server:
    """Listens from the moment it is made; answers from `start` on, until its loop cancels its tasks.

    Args:
        admit: is given each request's head; gives what answers it, or raises Refusal.
    """

    def __init__(self, admit: Callable[[Head], Respond]) -> None:
        self._admit = admit
        self._socket = socket.create_server((HOST, 0), backlog=MAX_CONNECTIONS)
        self.port: int = self._socket.getsockname()[1]
        self._connections = 0
        self._serving: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Answer in the running loop."""
        server = await asyncio.start_server(self._connected, sock=self._socket, limit=MAX_HEAD)
        self._serving = asyncio.create_task(server.serve_forever())

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._connections >= MAX_CONNECTIONS:
            writer.close()
            return
        self._connections += 1
        try:
            await self._converse(reader, writer)
        except Refusal as refusal:
            writer.write(refusal.response().encode(keep=False))
            await _linger(reader, writer)
        except (asyncio.IncompleteReadError, OSError, asyncio.CancelledError):
            pass  # it has gone, or the loop ends
        finally:
            self._connections -= 1
            writer.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        patience: float | None = PATIENCE_S
        keep = True
        while keep:
            try:
                async with asyncio.timeout(patience):
                    head = await _head(reader)
            except TimeoutError:
                raise Refusal(HTTPStatus.REQUEST_TIMEOUT, f"no request within {PATIENCE_S:g} s") from None
            if head is None:
                return
            respond, patience, keep = self._admit(head), None, head.keeps
            body = await _body(reader, writer, head)
            try:
                response = await respond(body)
            except Refusal as refusal:
                response = refusal.response()
            writer.write(response.encode(keep=keep))
            await writer.drain()


async def _head(reader: asyncio.StreamReader) -> Head | None:
    """The next request's head; None where the other side has closed the connection."""
    try:
        data = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        problem = f"more than {MAX_HEAD:,} bytes of headers"
        raise Refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, problem) from None
    except asyncio.IncompleteReadError as torn:
        if torn.partial:
            raise
        return None
    first, *lines = data[:-4].decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or words[2] not in ("HTTP/1.0", "HTTP/1.1"):
        raise Refusal(HTTPStatus.BAD_REQUEST, "not a request of HTTP/1.1")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        known = headers.setdefault(name.lower(), value.strip())
        if not colon or not name or name != name.strip() or known != value.strip():
            raise Refusal(HTTPStatus.BAD_REQUEST, "a malformed or contradictory header")
    method, target, version = words
    return Head(method, target.partition("?")[0], version, headers)


async def _body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: Head) -> bytes:
    """A request's body, of `MAX_BODY` bytes at most."""
    coding, length = head.headers.get("transfer-encoding"), head.headers.get("content-length")
    if coding is not None and (coding.lower() != "chunked" or length is not None):
        raise Refusal(HTTPStatus.BAD_REQUEST, "a body comes with its length, or in chunks")
    if length is not None and not re.fullmatch(r"[0-9]{1,18}", length):
        raise Refusal(HTTPStatus.BAD_REQUEST, "the length of the body is no number", param="content-length")
    size = int(length or 0)
    if size > MAX_BODY:
        raise _too_large()
    if (coding or size) and "100-continue" in head.headers.get("expect", "").lower():
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    return await _chunks(reader) if coding else await reader.readexactly(size)


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    data = bytearray()
    try:
        while True:
            line = (await reader.readuntil(b"\r\n"))[:-2].partition(b";")[0].strip()
            if not _SIZE.fullmatch(line):
                raise Refusal(HTTPStatus.BAD_REQUEST, "a malformed chunk")
            if not (size := int(line, 16)):
                break
            if len(data) + size > MAX_BODY:
                raise _too_large()
            data += (await reader.readexactly(size + 2))[:-2]
        if await reader.readuntil(b"\r\n") != b"\r\n":
            raise Refusal(HTTPStatus.BAD_REQUEST, "headers after a body are not read")
    except asyncio.LimitOverrunError:
        raise Refusal(HTTPStatus.BAD_REQUEST, "a malformed chunk") from None
    return bytes(data)


def _too_large() -> Refusal:
    problem = f"a body of more than {MAX_BODY:,} bytes"
    return Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, problem, "request_too_large")


async def _linger(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Take in what is still being sent, for a while: a connection closed before would lose the answer on its way."""
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(LINGER_S):
            await writer.drain()
            writer.write_eof()
            while await reader.read(MAX_HEAD):
                pass
