"""An OpenAI-compatible endpoint on this machine that does what a test asks of it, and a repository with a model behind
it."""

from __future__ import annotations

import contextlib
import json
import shutil
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT
from host_fakes import make_repository, write_toy
from upkeep.catalog import Catalog
from upkeep.gateway.endpoints import client as client_module
from upkeep.gateway.endpoints import pace
from upkeep.jobs import Cell

KEY = "sk-secret-0123456789abcdef"
VARIABLE = "FAKE_ENDPOINT_KEY"
MODEL = "there"
"""The model's id in the suite."""
NAME = "fake-1"
"""Its name at the endpoint."""
CELL = Cell("toy", "ask", "a", MODEL)
USD_A_TOKEN = 0.001

METHOD = """
from upkeep.cell import Method
from upkeep.cell.method import Context

class Ask(Method):
    async def answer(self, probe, seen, llm):
        return await self.read(probe, llm, Context(recent=seen.documents))
"""
CARD = """label: There
summary: s
source: endpoint
location: {url}
engine: endpoint
context_length: 4000
sampling: {{max_tokens: 20}}
endpoint:
  model: {name}
  key: {variable}
  price: {{prompt: 1000, completion: 1000}}
{more}
"""

Act = Callable[[int, dict[str, Any]], str]
"""What to do, by the number of the request (from 0) and its body."""


class FakeEndpoint(ThreadingHTTPServer):
    """Answers `act(number, body)`; counts what it would charge."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, act: Act) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.act = act
        self.lock = threading.Lock()
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.times: list[float] = []
        self.charged = 0.0
        self.dearest = 0.0
        self.latency_s = 0.0
        self.at_once = self.most_at_once = 0
        self.closing = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def charge(self, usage: dict[str, int]) -> None:
        usd = USD_A_TOKEN * (usage["prompt_tokens"] + usage["completion_tokens"])
        with self.lock:
            self.charged += usd
            self.dearest = max(self.dearest, usd)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that are killed break their connections."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FakeEndpoint

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["content-length"]))
        body, server = json.loads(raw), self.server
        with server.lock:
            number = len(server.bodies)
            server.bodies.append(body)
            server.headers.append(dict(self.headers))
            server.times.append(time.monotonic())
            server.at_once += 1
            server.most_at_once = max(server.most_at_once, server.at_once)
        try:
            self.serve(number, body, len(raw))
        finally:
            with server.lock:
                server.at_once -= 1

    def serve(self, number: int, body: dict[str, Any], size: int) -> None:
        server = self.server
        what, _, detail = server.act(number, body).partition(":")
        if server.latency_s:
            server.closing.wait(server.latency_s)
        self.do(what, detail, body, size)

    def do(self, what: str, detail: str, body: dict[str, Any], size: int) -> None:
        text = f"I think.\n## Answer: {zlib.crc32(json.dumps(body['messages']).encode())}"
        usage = {"prompt_tokens": size // 4, "completion_tokens": 5, "total_tokens": size // 4 + 5}
        truth = dict(usage)
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        answer: dict[str, Any] = {"id": "chat-1", "model": NAME, "choices": [choice], "usage": usage, "object": "x"}
        match what:
            case "good":
                pass
            case "version":
                answer["system_fingerprint"] = detail
            case "status":
                status, _, rest = detail.partition(":")
                name, _, value = rest.partition("=")
                said = json.dumps({"error": {"message": f"no, and your key is {KEY}"}}).encode()
                return self.reply(int(status), said, {name: value} if name else {})
            case "silent":
                self.server.closing.wait(60)
                return None
            case "reset":
                self.connection.close()
                self.close_connection = True
                return None
            case "nonsense":
                return self.reply(200, b'{"choices": [{"mess')
            case "empty":
                return self.reply(200, b"")
            case "html":
                return self.reply(200, b"<html>\xff</html>")
            case "other":
                answer["model"] = detail
            case "keyed":
                answer["choices"][0]["message"]["content"] = f"Your header was {self.headers['authorization']}"
                answer["choices"][0]["message"]["reasoning_content"] = KEY.replace("-", "\\u002d")
                raw = json.dumps(answer).replace("\\\\u002d", "\\u002d").encode()
                self.server.charge(truth)
                return self.reply(200, raw, {"x-request-id": KEY})
            case "set":
                for path, value in json.loads(detail).items():
                    place: Any = answer
                    *parents, last = path.split(".")
                    for name in parents:
                        place = place[int(name) if name.isdigit() else name]
                    place[last] = value
        raw = json.dumps(answer).encode()
        self.server.charge(truth)
        if what == "large":
            raw = raw + b" " * int(detail)
        if what == "half":
            with contextlib.suppress(OSError):
                self.send_response(200)
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw[: len(raw) // 2])
            self.close_connection = True
            return None
        return self.reply(200, raw, {"x-request-id": f"req-{len(self.server.bodies)}"})

    def reply(self, status: int, raw: bytes, headers: dict[str, str] | None = None) -> None:
        with contextlib.suppress(OSError):  # the client may have given up
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)


@contextlib.contextmanager
def fake_endpoint(act: Act = lambda number, body: "good") -> Iterator[FakeEndpoint]:
    server = FakeEndpoint(act)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.closing.set()
        server.shutdown()
        thread.join()
        server.server_close()


def be_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is a key, and nobody waits long."""
    monkeypatch.setenv(VARIABLE, KEY)
    monkeypatch.setattr(pace, "BACKOFF_S", 0.001)
    monkeypatch.setattr(client_module, "GRACE_S", 0.2)
    monkeypatch.setattr(client_module, "WAIT_S", 0.01)


def make_endpoint_repository(root: Path, url: str, more: str = "", budget: str = "1000.0", trials: int = 1) -> Catalog:
    """A repository with the dataset `toy`, the method `ask`, and a model behind the endpoint at `url`.

    Args:
        more: further lines of the card's `endpoint`.
        budget: US dollars; none where it is empty.
    """
    make_repository(root, trials=trials)
    dataset = root / "datasets/toy/dataset.yaml"
    dataset.write_text(dataset.read_text().replace("prompt: short", "prompt: oaks_babi"))
    shutil.copy(ROOT / "papers/oaks/prompts/oaks_babi.yaml", root / "papers/toy/prompts")
    granted = f"{MODEL}: {budget}" if budget else ""
    (root / "config/config.yaml").write_text(f"{{runtime: process, budget: {{{granted}}}}}")
    for place in ("methods/ask", f"models/{MODEL}"):
        (root / place).mkdir(parents=True, exist_ok=True)
    card = (root / "methods/echo/method.yaml").read_text().replace("model: false", "model: true")
    (root / "methods/ask/method.yaml").write_text(card)
    (root / "methods/ask/method.py").write_text(METHOD)
    write_card(root, url, more)
    catalog = Catalog(root)
    write_toy(catalog)
    return catalog


def write_card(root: Path, url: str, more: str = "") -> None:
    lines = [line for line in more.splitlines() if line]
    given = {line.partition(":")[0] for line in lines}
    lines += [line for line in ("timeout_s: 5", "retries: 3") if line.partition(":")[0] not in given]
    indented = "\n".join(f"  {line}" for line in lines)
    text = CARD.format(url=url, name=NAME, variable=VARIABLE, more=indented)
    card = root / f"models/{MODEL}/model.yaml"
    card.parent.mkdir(parents=True, exist_ok=True)
    card.write_text(text)
