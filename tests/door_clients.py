"""Clients of the door, and methods around them."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
from collections.abc import Callable
from typing import Any, TypeVar

import openai

from method_fakes import ROOT, FakeEmbedder, FakeLLM
from runner_bench import Bench, unmeasured
from upkeep.cell import LLM
from upkeep.cell.door import Address, Door
from upkeep.contract import Round

T = TypeVar("T")

HELLO = {"model": "reader", "messages": [{"role": "user", "content": "Hello."}]}


def through(work: Callable[[Address], T], llm: LLM | None = None, **door: Any) -> T:
    """What code from elsewhere gives, in a thread, with one unit open."""

    async def main() -> T:
        async with Door(FakeEmbedder(), **door).open(llm or FakeLLM()) as address:
            return await asyncio.to_thread(work, address)

    return asyncio.run(main())


def client(address: Address) -> openai.OpenAI:
    return openai.OpenAI(base_url=address.base_url, api_key=address.api_key)


def post(address: Address, body: Any, path: str = "/chat/completions", **headers: str) -> tuple[int, Any]:
    """Status and body of an answer, by the standard library alone."""
    place = address.base_url.removeprefix("http://")
    host, _, base = place.partition("/")
    connection = http.client.HTTPConnection(host, timeout=30)
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {address.api_key}"} | headers
    connection.request("POST", f"/{base}{path}", data, headers)
    with contextlib.closing(connection), connection.getresponse() as response:
        return response.status, json.loads(response.read())


def raw(address: Address, data: bytes, *, patience: float = 20) -> bytes:
    """All that the server says to some bytes before it closes the connection."""
    host, _, port = address.base_url.split("/")[2].partition(":")
    with socket.create_connection((host, int(port)), timeout=patience) as connection:
        connection.sendall(data)
        said = b""
        while more := connection.recv(65536):
            said += more
    return said


def request(address: Address, body: bytes, *lines: str) -> bytes:
    path = "/" + address.base_url.split("/", 3)[3] + "/chat/completions"
    head = [f"POST {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {address.api_key}", *lines, "", ""]
    return "\r\n".join(head).encode() + body


def sized(body: bytes) -> str:
    return f"Content-Length: {len(body)}"


UPSTREAM = """
from openai import OpenAI

def ask(base_url, api_key, messages, **more):
    with OpenAI(base_url=base_url, api_key=api_key) as client:
        return client.chat.completions.create(model="gpt-4o-mini", messages=messages, **more).choices[0].message.content

class Upstream(Method):
    async def answer(self, probe, seen, llm):
        messages = [
            {"role": m["role"], "content": "".join(m["parts"])} for m in self.tools.prompt.messages(probe, Context())
        ]
        async with self.tools.door.open(llm) as (base_url, api_key):
            return Answer(await asyncio.to_thread(ask, base_url, api_key, messages, **self.parameters))
"""
ALIASES: dict[str, Any] = {"aliases": {"gpt-4o-mini": "reader"}}


def closed_book(bench: Bench, setup: dict[str, Any], work: list[Round]) -> list[bytes]:
    bench.method((ROOT / "methods/closed_book/method.py").read_text())
    bench.run(work, **setup)
    found = unmeasured(bench.predictions())
    (bench.output / "predictions.jsonl").unlink()
    return found
