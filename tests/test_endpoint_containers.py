"""Containers ask an endpoint through a socket of the host: what they get, and what becomes of who breaks the rules."""

from __future__ import annotations

import asyncio
import shutil
import time
from pathlib import Path

import msgspec
import pytest

from conftest import CACHE
from endpoint_cells import _quick, asks, handle, kept, no_key_under, record_of, server
from endpoint_fakes import (
    MODEL,
    FakeEndpoint,
    make_endpoint_repository,
    write_card,
)
from upkeep.building.build import build_dataset
from upkeep.catalog import Catalog
from upkeep.cell import wire
from upkeep.cell.endpoint import (
    Ask,
    Endpoint,
    EndpointHandle,
    Failed,
    Refused,
    Told,
    frame,
    receive,
)
from upkeep.cell.interface import PromptTooLong
from upkeep.contract import Prediction, Sampling
from upkeep.errors import UpkeepError
from upkeep.execution.supervise import run_cell
from upkeep.gateway.endpoints.server import gateway
from upkeep.gateway.endpoints.terms import spent
from upkeep.jobs import Cell
from upkeep.layout import Layout

__all__ = ["_quick", "server"]


def talk(catalog: Catalog, *frames: bytes, answers: int = 1) -> list[Told | Refused | Failed | None]:
    """Send frames as a container might, and read answers; None is the end of the connection."""

    async def converse(folder: Path) -> list[Told | Refused | Failed | None]:
        reader, writer = await asyncio.open_unix_connection(folder / "engine.sock")
        for one in frames:
            writer.write(one)
        got: list[Told | Refused | Failed | None] = []
        try:
            while len(got) < answers:
                got.append(await receive(reader, Told | Refused | Failed))  # type: ignore[arg-type]
                if got[-1] is None:
                    break
        except OSError:
            got.append(None)
        writer.close()
        return got

    with gateway(catalog, MODEL, record_of(catalog)) as folder:
        return asyncio.run(asyncio.wait_for(converse(folder), 30))


# ---------------------------------------------------------------- the gateway


def test_containers_are_served_through_a_socket_that_nobody_else_reaches(tmp_path: Path, server: FakeEndpoint) -> None:
    catalog = make_endpoint_repository(tmp_path, server.url)
    with gateway(catalog, MODEL, record_of(catalog)) as folder:
        path = folder / "engine.sock"
        assert len(str(path)) < 100
        assert folder.stat().st_mode & 0o777 == 0o755
        assert folder.parent.stat().st_mode & 0o777 == 0o700
        assert path.stat().st_mode & 0o777 == 0o666
    assert not folder.parent.exists()


def test_a_long_temporary_folder_does_not_break_the_socket(
    tmp_path: Path, server: FakeEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = make_endpoint_repository(tmp_path, server.url)
    long = tmp_path / ("x" * 120)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    assert isinstance(talk(catalog, frame(asks(1)[0]))[0], Told)


HOSTILE = {
    "an endless frame": (1 << 62).to_bytes(8, "big"),
    "a frame beyond the limit": (64 << 20).to_bytes(8, "big") + b"x",
    "no message": frame("hello"),
    "another model": frame({"number": 0, "messages": [], "sampling": {}, "seed": 0, "model": "gpt-dear"}),
    "a key": frame({"number": 0, "messages": [], "sampling": {}, "seed": 0, "key": "x"}),
    "a strange role": frame({"number": 0, "messages": [["wizard", ["x"]]], "sampling": {}, "seed": 0}),
    "a call in no message": frame(
        {"number": 0, "messages": [], "sampling": {}, "seed": 0, "about": [[0, [["c", "go", "{}"]], None]]}
    ),
    "a negative seed": frame({"number": 0, "messages": [], "sampling": {}, "seed": -1}),
    "fields in the sampling": frame({"number": 0, "messages": [], "sampling": {"n": 99}, "seed": 0}),
    "nesting": (100_000).to_bytes(8, "big") + b"\x91" * 100_000,
    "no text": frame({"number": 0, "messages": [["user", [b"\xff"]]], "sampling": {}, "seed": 0}),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_container_that_breaks_the_rules_is_disconnected_and_nothing_is_sent(
    tmp_path: Path, server: FakeEndpoint, what: str
) -> None:
    catalog = make_endpoint_repository(tmp_path, server.url)
    assert talk(catalog, HOSTILE[what]) == [None]
    assert not server.bodies


def test_a_prompt_beyond_the_context_is_not_sent(tmp_path: Path, server: FakeEndpoint) -> None:
    catalog = make_endpoint_repository(tmp_path, server.url)
    long = Ask(0, [("user", ["x" * 20_000])], Sampling(max_tokens=20), 0)
    greedy = Ask(1, [("user", ["x"])], Sampling(max_tokens=10**9), 0)
    found = talk(catalog, frame(long), frame(greedy), answers=2)
    assert all(isinstance(one, Refused) for one in found)
    assert not server.bodies


def test_more_requests_than_are_worked_on_are_not_taken_in(tmp_path: Path, server: FakeEndpoint) -> None:
    server.latency_s = 0.01
    catalog = make_endpoint_repository(tmp_path, server.url, more="max_in_flight: 2")
    found = talk(catalog, *map(frame, asks(60)), answers=60)
    assert sorted(one.number for one in found if isinstance(one, Told)) == list(range(60))


def test_the_endpoints_failure_takes_the_place_of_the_cells(tmp_path: Path, server: FakeEndpoint) -> None:
    server.act = lambda number, body: "status:404"
    catalog = make_endpoint_repository(tmp_path, server.url)

    async def converse(folder: Path) -> None:
        reader, writer = await asyncio.open_unix_connection(folder / "engine.sock")
        for one in asks(3):
            writer.write(frame(one))
        for _ in range(3):
            assert isinstance(await receive(reader, Told | Refused | Failed), Failed)  # type: ignore[arg-type]

    with pytest.raises(UpkeepError, match="does not know"), gateway(catalog, MODEL, record_of(catalog)) as folder:
        asyncio.run(converse(folder))
        raise UpkeepError("the container ended early")


def test_what_was_sent_when_the_job_failed_is_still_kept(tmp_path: Path, server: FakeEndpoint) -> None:
    server.latency_s = 0.5
    server.act = lambda number, body: "good"
    catalog = make_endpoint_repository(tmp_path, server.url)

    async def send(folder: Path) -> None:
        _, writer = await asyncio.open_unix_connection(folder / "engine.sock")
        for one in asks(5):
            writer.write(frame(one))
        while len(server.bodies) < 5:
            await asyncio.sleep(0.01)
        writer.close()

    with pytest.raises(UpkeepError, match="early"), gateway(catalog, MODEL, record_of(catalog)) as folder:
        asyncio.run(asyncio.wait_for(send(folder), 30))
        raise UpkeepError("the container ended early")
    assert len(kept(catalog)) == 5
    assert spent(catalog.results, MODEL).reserved == 0


def test_an_interrupted_job_does_not_wait_for_answers(tmp_path: Path, server: FakeEndpoint) -> None:
    server.act = lambda number, body: "silent"
    catalog = make_endpoint_repository(tmp_path, server.url)

    async def send(folder: Path) -> None:
        _, writer = await asyncio.open_unix_connection(folder / "engine.sock")
        writer.write(frame(asks(1)[0]))
        while not server.bodies:
            await asyncio.sleep(0.01)

    with pytest.raises(KeyboardInterrupt), gateway(catalog, MODEL, record_of(catalog)) as folder:
        asyncio.run(asyncio.wait_for(send(folder), 30))
        begun = time.monotonic()
        raise KeyboardInterrupt
    assert time.monotonic() - begun < 4.5, "less than the endpoint's timeout"
    found = spent(catalog.results, MODEL)
    assert found.total > 0, "it may have been charged"


PROBER = """
import os, socket
from upkeep.cell import Answer, Method
from upkeep.cell.method import Context

class Prober(Method):
    async def answer(self, probe, seen, llm):
        reached = []
        for place in (("127.0.0.1", PORT), ("203.0.113.1", 443)):
            try:
                socket.create_connection(place, timeout=2).close()
                reached.append(place)
            except OSError:
                pass
        secrets = [name for name, value in os.environ.items() if "sk-secret" in value]
        answer = await self.read(probe, llm, Context())
        return Answer(f"reached {reached}, secrets {secrets}, told {answer.response}")
"""


@pytest.mark.docker
def test_a_container_without_network_and_key_gets_its_answers(
    repository: Path, server: FakeEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UPKEEP_RUNTIME", "docker")
    monkeypatch.setenv("UPKEEP_CACHE", str(CACHE))
    shutil.copytree(repository / "methods/closed_book", repository / "methods/prober")
    (repository / "methods/prober/method.py").write_text(PROBER.replace("PORT", server.url.split(":")[2].split("/")[0]))
    write_card(repository, server.url)
    (repository / "config/config.yaml").write_text(f"{{budget: {{{MODEL}: 1000}}}}")
    catalog, cell = Catalog(repository), Cell("oaks_babi_mini", "prober", "default", MODEL)
    build_dataset(catalog, cell.dataset, Layout(catalog.results).dataset(cell.dataset))
    manifest = run_cell(catalog, cell)
    assert manifest.environment.isolated and manifest.outcomes["error"] == 0
    folder = Layout(catalog.results).cell(cell)
    for line in (folder / "predictions.jsonl").read_bytes().splitlines():
        found = msgspec.json.decode(line, type=Prediction).response
        assert found and found.startswith("reached [], secrets [], told I think.")
    assert len(server.bodies) == manifest.probes
    no_key_under(repository)


# ---------------------------------------------------------------- the container's side


def test_a_handle_counts_what_the_provider_counts_and_estimates_from_above(
    tmp_path: Path, server: FakeEndpoint
) -> None:
    server.act = lambda number, body: (
        'set:{"usage": {"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}},'
        ' "choices.0.message": {"content": "yes", "reasoning": "because"}, "choices.0.finish_reason": "length"}'
    )
    catalog = make_endpoint_repository(tmp_path, server.url)

    async def chat(llm: EndpointHandle) -> None:
        reply = await llm.chat([{"role": "user", "parts": ["one ", "two"]}])
        assert (reply.text, reply.reasoning, reply.finish_reason) == ("yes", "because", "length")
        assert (reply.prompt_tokens, reply.completion_tokens, reply.cached_tokens) == (9, 3, 4)
        with pytest.raises(PromptTooLong):
            await llm.chat([{"role": "user", "parts": ["x" * 20_000]}])
        with pytest.raises(msgspec.ValidationError):
            await llm.chat([{"role": "wizard", "parts": ["x"]}])
        with pytest.raises(msgspec.ValidationError):
            await llm.chat([{"role": "user", "parts": ["x"]}], Sampling(temperature=-1.0, max_tokens=4))
        with pytest.raises(TypeError, match="log-probabilities"):
            await llm.logprobs("a", "b")

    with gateway(catalog, MODEL, record_of(catalog)) as folder:
        llm = handle(catalog, folder)
        asyncio.run(chat(llm))
    assert (llm.usage.prompt, llm.usage.completion, llm.cached_tokens, llm.finish_reason) == (9, 3, 4, "length")
    assert server.bodies[0]["messages"] == [{"role": "user", "content": "one two"}]
    assert llm.count("x" * 100) == 35
    assert llm.count("ü" * 100) == 70
    assert llm.count_prompt([{"role": "user", "parts": ["x"] * 100}]) == 35 + 16


def test_a_gateway_that_is_gone_ends_the_cell(tmp_path: Path, server: FakeEndpoint) -> None:
    catalog = make_endpoint_repository(tmp_path, server.url)
    endpoint = Endpoint(str(tmp_path / "nowhere.sock"))
    llm = EndpointHandle(None, catalog.model(MODEL), 0, "p", endpoint=endpoint)

    async def chat() -> None:
        task = asyncio.create_task(llm.chat([{"role": "user", "parts": ["x"]}]))
        while not endpoint.busy:
            await asyncio.sleep(0.001)
        task.cancel()

    asyncio.run(chat())
    with pytest.raises(RuntimeError, match="cut"):
        endpoint.advance()


def test_frames_are_read_whole_or_refused() -> None:
    async def read_from(data: bytes, limit: int = 100) -> object:
        reader = asyncio.StreamReader()
        reader.feed_data(data)
        reader.feed_eof()
        return await receive(reader, list[int], limit)

    whole = frame([1, 2])
    assert asyncio.run(read_from(whole)) == [1, 2]
    assert asyncio.run(read_from(b"")) is None
    for place in range(1, len(whole)):
        with pytest.raises(wire.Breach):
            asyncio.run(read_from(whole[:place]))
    with pytest.raises(wire.Breach, match="at most 2"):
        asyncio.run(read_from(whole, 2))
