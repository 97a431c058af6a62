"""Claims about the door's units: nobody else comes in, calls are booked where they belong and have an end, and no
client harms the next."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest

from door_clients import HELLO, client, post, raw, request, sized, through
from host_fakes import answer_of
from method_fakes import FakeLLM
from runner_bench import Bench, bench, model, rounds, tiny
from upkeep.cell import Reply, Sampling
from upkeep.cell.door import Address, Door
from upkeep.cell.door import http as served_http
from upkeep.cell.door.http import MAX_BODY
from upkeep.cell.lockstep import EngineDied, lockstep

__all__ = ["bench", "tiny"]

# ---------------------------------------------------------------- who comes in


def test_only_the_token_of_an_open_unit_opens_it() -> None:
    async def main() -> list[int]:
        door, llms = Door(), [FakeLLM(), FakeLLM()]
        async with door.open(llms[0]) as first:
            async with door.open(llms[1]) as second:
                tried = [
                    first._replace(api_key=second.api_key),
                    first._replace(api_key=""),
                    first._replace(api_key=first.api_key[:-1]),
                    first._replace(api_key=first.api_key + "\u00fc"),
                    first._replace(base_url=first.base_url.replace("/0/", "/7/")),
                    first._replace(base_url=first.base_url.replace("/v1", "")),
                    second,
                ]
                found = [(await asyncio.to_thread(post, address, HELLO))[0] for address in tried]
            found.append((await asyncio.to_thread(post, second, HELLO))[0])
        assert (len(llms[0].prompts), len(llms[1].prompts)) == (0, 1)
        return found

    assert asyncio.run(main()) == [401, 401, 401, 401, 401, 404, 200, 410]


def test_no_header_at_all_is_a_stranger_and_another_scheme_too() -> None:
    def work(address: Address) -> list[int]:
        return [post(address, HELLO, Authorization=value)[0] for value in ("", "Basic eDp5", address.api_key)]

    assert through(work) == [401, 401, 401]


def test_the_door_listens_on_the_loopback_interface_alone() -> None:
    def work(address: Address) -> list[str]:
        port = int(address.base_url.split(":")[2].split("/")[0])
        lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
        assert not Path("/proc/net/tcp6").exists() or f":{port:04X} 0000" not in Path("/proc/net/tcp6").read_text()
        return [
            line.split()[1] for line in lines if line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "0A"
        ]

    (listening,) = through(work)
    assert listening.startswith("0100007F:")


def test_what_is_asked_when_the_answer_is_given_is_not_answered() -> None:
    class Slow(FakeLLM):
        async def chat(self, messages: Any, sampling: Sampling | None = None) -> Reply:
            await asyncio.sleep(3600)
            raise AssertionError

    async def main() -> tuple[int, Any]:
        async with Door().open(Slow()) as address:
            asking = asyncio.create_task(asyncio.to_thread(post, address, HELLO))
            await asyncio.sleep(0.3)
        return await asking

    status, body = asyncio.run(main())
    assert (status, body["error"]["code"]) == (410, "unit_over")


# ---------------------------------------------------------------- limits

TIRELESS = """
import openai

def ask(base_url, api_key):
    client = openai.OpenAI(base_url=base_url, api_key=api_key)
    while True:
        try:
            client.models.list()
            client.chat.completions.create(model="reader", messages=[{"role": "user", "content": "again"}])
        except openai.RateLimitError:
            pass
        except openai.APIStatusError:
            return "the unit is over"

class Tireless(Method):
    async def answer(self, probe, seen, llm):
        if probe.question_id == "sb":
            return await self.read(probe, llm, Context())
        async with self.tools.door.open(llm) as (base_url, api_key):
            return Answer(await asyncio.to_thread(ask, base_url, api_key))
"""


def test_code_that_calls_without_end_is_stopped_and_its_prediction_says_so(bench: Bench, tiny: Path) -> None:
    bench.method(TIRELESS)
    bench.run(rounds(1), **model(tiny), max_calls=20)
    tireless, other = sorted(bench.predictions(), key=lambda p: p.probe_id)
    assert tireless.error is not None and tireless.error.startswith("TooManyCalls: more than 20 model calls")
    assert tireless.usage.calls == 20
    assert other.error is None and other.usage.calls == 1


def test_the_call_beyond_the_limit_is_answered_with_429_that_no_client_repeats() -> None:
    def work(address: Address) -> None:
        found.extend(post(address, HELLO)[0] for _ in range(3))

    found: list[int] = []

    async def main() -> None:
        async with Door(max_calls=2).open(FakeLLM()) as address:
            thread = asyncio.create_task(asyncio.to_thread(work, address))
            try:
                await asyncio.shield(thread)
            finally:
                await thread

    with pytest.raises(RuntimeError, match="more than 2 model calls"):
        asyncio.run(main())
    assert found == [200, 200, 429]


class Dead(FakeLLM):
    async def chat(self, messages: Any, sampling: Sampling | None = None) -> Reply:
        raise EngineDied("out of memory")


def test_a_model_that_is_gone_ends_the_cell_whatever_the_code_makes_of_it() -> None:
    def swallow(address: Address) -> str:
        for _ in range(100):
            with contextlib.suppress(openai.APIError, OSError):
                client(address).chat.completions.create(**HELLO)  # type: ignore[call-overload]
        return "fine"

    with pytest.raises(EngineDied, match="out of memory"):
        through(swallow, Dead())


def test_whoever_cancels_a_unit_is_not_taken_for_a_failure_of_it() -> None:
    async def main() -> None:
        async with Door().open(FakeLLM()):
            await asyncio.sleep(3600)

    async def outer() -> None:
        async with asyncio.timeout(0.05):
            await main()

    with pytest.raises(TimeoutError):
        asyncio.run(outer())


class Steps:
    """A worker that takes many steps for each request, and the model that asks it."""

    dead = False

    def __init__(self) -> None:
        self.open: dict[asyncio.Future[None], int] = {}
        self.most = 0

    @property
    def busy(self) -> bool:
        return bool(self.open)

    def advance(self) -> None:
        time.sleep(0.01)
        self.most = max(self.most, len(self.open))
        for future in tuple(self.open):
            self.open[future] -= 1
            if not self.open[future]:
                del self.open[future]
                future.set_result(None)


def test_requests_are_noticed_while_the_engine_works_so_threads_share_its_steps() -> None:
    steps = Steps()

    class Model(FakeLLM):
        async def chat(self, messages: Any, sampling: Sampling | None = None) -> Reply:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            steps.open[future] = 200
            await future
            return await super().chat(messages, sampling)

    def work(address: Address) -> list[int]:
        with ThreadPoolExecutor(8) as pool:
            return [status for status, _ in pool.map(lambda _: post(address, HELLO), range(8))]

    async def main() -> list[int]:
        async with Door().open(Model()) as address:
            return await asyncio.to_thread(work, address)

    with lockstep(steps) as loop:
        assert loop.run(main()) == [200] * 8
    assert steps.most == 8


# ---------------------------------------------------------------- one client for all units

GLOBAL = """
from openai import OpenAI

client = OpenAI()  # address and key from the environment, as at import of many a package

class Global(Method):
    now = most = 0
    async def answer(self, probe, seen, llm):
        async with self.tools.door.open(llm) as address:
            assert address == self.tools.door.address
            self.now += 1
            self.most = max(self.most, self.now)
            for _ in range(len(probe.question_id)):
                await asyncio.to_thread(
                    client.chat.completions.create, model="reader", messages=[{"role": "user", "content": "x"}]
                )
            self.now -= 1
        return Answer(f"## Answer: {self.most}")
"""


def test_code_with_one_client_runs_one_unit_at_a_time_and_each_is_booked(
    bench: Bench, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_BASE_URL", "OPENAI_API_BASE", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, "")  # put back afterwards
    bench.method(GLOBAL)
    bench.run(rounds(2, ["a", "bb", "ccc"]), **model(tiny), one_at_a_time=True)
    assert {answer_of(p) for p in bench.predictions()} == {"1"}
    assert {p.probe_id: p.usage.calls for p in bench.predictions() if p.probe_id.endswith("@0")} == {
        "sa@0": 2,
        "sbb@0": 3,
        "sccc@0": 4,
    }


def test_a_second_unit_is_refused_where_one_at_a_time_is_promised() -> None:
    async def main() -> None:
        door = Door(one_at_a_time=True)
        async with door.open(FakeLLM()), door.open(FakeLLM()):
            pass

    with pytest.raises(RuntimeError, match="another unit is open"):
        asyncio.run(main())


# ---------------------------------------------------------------- hostile clients


def test_pipelined_requests_are_answered_in_their_order() -> None:
    def work(address: Address) -> bytes:
        bodies = [json.dumps(HELLO | {"n": n}).encode() for n in (1, 2, 3)]
        last = "Connection: close"
        sent = [request(address, body, sized(body), *([last] if body is bodies[-1] else [])) for body in bodies]
        return raw(address, b"".join(sent))

    said = through(work)
    assert said.count(b"HTTP/1.1 200 OK") == 3
    assert [said.index(b'"chatcmpl-%d"' % i) for i in range(3)] == sorted(
        said.index(b'"chatcmpl-%d"' % i) for i in range(3)
    )


def test_a_body_in_chunks_or_after_a_promise_is_read() -> None:
    body = json.dumps(HELLO).encode()
    chunks = b"".join(b"%x;x=y\r\n%s\r\n" % (len(part), part) for part in (body[:7], body[7:])) + b"0\r\n\r\n"

    def work(address: Address) -> tuple[bytes, bytes]:
        close = "Connection: close"
        return (
            raw(address, request(address, chunks, "Transfer-Encoding: chunked", close)),
            raw(address, request(address, body, sized(body), "Expect: 100-continue", close)),
        )

    chunked, promised = through(work)
    assert chunked.startswith(b"HTTP/1.1 200 OK")
    assert promised.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK")


BROKEN: list[tuple[str, Callable[[Address], bytes], bytes]] = [
    ("no HTTP", lambda a: b"\x16\x03\x01\r\n\r\n", b"400"),
    ("a header without a colon", lambda a: request(a, b"", "nonsense"), b"400"),
    ("two lengths", lambda a: request(a, b"", "Content-Length: 1", "Content-Length: 2"), b"400"),
    ("a negative length", lambda a: request(a, b"", "Content-Length: -1"), b"400"),
    ("a length that is none", lambda a: request(a, b"", "Content-Length: 1_0"), b"400"),
    ("a length and chunks", lambda a: request(a, b"", "Content-Length: 1", "Transfer-Encoding: chunked"), b"400"),
    ("an unknown coding", lambda a: request(a, b"", "Transfer-Encoding: gzip"), b"400"),
    ("a chunk without a size", lambda a: request(a, b"zz\r\n", "Transfer-Encoding: chunked"), b"400"),
    ("a huge chunk", lambda a: request(a, b"7fffffff\r\n", "Transfer-Encoding: chunked"), b"413"),
    ("a huge body", lambda a: request(a, b"x" * 100_000, f"Content-Length: {MAX_BODY + 1}"), b"413"),
    ("endless headers", lambda a: request(a, b"")[:-4] + b"\r\nx: " + b"y" * 200_000, b"431"),
]


@pytest.mark.parametrize(("attack", "status"), [each[1:] for each in BROKEN], ids=[each[0] for each in BROKEN])
def test_what_is_no_request_is_refused_and_the_next_client_is_served(
    attack: Callable[[Address], bytes], status: bytes
) -> None:
    def work(address: Address) -> tuple[bytes, int]:
        return raw(address, attack(address)), post(address, HELLO)[0]

    said, after = through(work)
    assert said.split(b"\r\n")[0].split(b" ")[1] == status
    assert json.loads(said.partition(b"\r\n\r\n")[2])["error"]["message"]
    assert after == 200


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"\xff\xfe", b"null", b"[" * 100_000, b'{"model": "\\ud800"}', b'{"model": 1e999}']
)
def test_a_body_that_is_no_request_is_an_error_and_the_connection_goes_on(body: bytes) -> None:
    good = json.dumps(HELLO).encode()

    def work(address: Address) -> bytes:
        first = request(address, body, sized(body))
        return raw(address, first + request(address, good, sized(good), "Connection: close"))

    said = through(work)
    assert said.startswith(b"HTTP/1.1 400 Bad Request") and b"HTTP/1.1 200 OK" in said


def test_a_stranger_s_body_is_not_read() -> None:
    def work(address: Address) -> bytes:
        stranger = address._replace(api_key="0" * 64)
        return raw(address, request(stranger, b"x" * 1000, f"Content-Length: {MAX_BODY}"))

    assert through(work).startswith(b"HTTP/1.1 401")


def test_strangers_who_take_their_time_are_sent_away_and_members_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_http, "PATIENCE_S", 0.3)

    def work(address: Address) -> tuple[list[bytes], bytes]:
        body = json.dumps(HELLO).encode()
        host, _, port = address.base_url.split("/")[2].partition(":")
        with socket.create_connection((host, int(port)), timeout=20) as member:
            member.sendall(request(address, body, sized(body)))
            assert member.recv(65536).startswith(b"HTTP/1.1 200")
            with ThreadPoolExecutor(16) as pool:
                slow = list(pool.map(lambda _: raw(address, b"POST /0/v1/models HTTP/1.1\r\nx"), range(16)))
            member.sendall(request(address, body, sized(body), "Connection: close"))
            return slow, member.recv(65536)

    slow, member = through(work)
    assert all(said.startswith(b"HTTP/1.1 408") for said in slow)
    assert member.startswith(b"HTTP/1.1 200")


def test_clients_that_go_in_the_middle_leave_nothing_behind() -> None:
    def work(address: Address) -> int:
        host, _, port = address.base_url.split("/")[2].partition(":")
        body = json.dumps(HELLO).encode()
        whole = request(address, body, sized(body))
        for end in range(0, len(whole), 7):
            with socket.create_connection((host, int(port))) as connection:
                connection.sendall(whole[:end])
        return post(address, HELLO)[0]

    assert through(work) == 200
