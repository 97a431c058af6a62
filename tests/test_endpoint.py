"""Models behind endpoints: nothing is paid twice, the budget holds, no key leaves, and no fault of the endpoint becomes
a wrong answer."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

import upkeep
from conftest import CACHE
from endpoint_fakes import (
    CELL,
    KEY,
    MODEL,
    NAME,
    USD_A_TOKEN,
    VARIABLE,
    Act,
    FakeEndpoint,
    be_quick,
    fake_endpoint,
    make_endpoint_repository,
    write_card,
)
from host_fakes import RunnerRuntime, answer_of
from upkeep import identity
from upkeep.building.build import build_dataset
from upkeep.catalog import Catalog
from upkeep.cell import wire
from upkeep.cell.endpoint import (
    Ask,
    Endpoint,
    EndpointHandle,
    EndpointRefused,
    Failed,
    More,
    Refused,
    Told,
    frame,
    receive,
)
from upkeep.cell.interface import GeneratedToken, Message, PromptTooLong, ToolCall
from upkeep.contract import Endpoint as Terms
from upkeep.contract import Prediction, Sampling
from upkeep.errors import UpkeepError
from upkeep.execution.fetch import fetch
from upkeep.execution.supervise import run_cell
from upkeep.execution.watch import Limits
from upkeep.gateway import transfer
from upkeep.gateway.calls import Calls
from upkeep.gateway.endpoints import client as client_module
from upkeep.gateway.endpoints import ledger as ledger_module
from upkeep.gateway.endpoints import pace, transport
from upkeep.gateway.endpoints.client import Client
from upkeep.gateway.endpoints.ledger import Ledger
from upkeep.gateway.endpoints.pace import Pace
from upkeep.gateway.endpoints.record import Request, read
from upkeep.gateway.endpoints.replies import Replies, Reply, parts_of
from upkeep.gateway.endpoints.server import gateway
from upkeep.gateway.endpoints.terms import require_endpoint, spent
from upkeep.gateway.record import Replies as Record
from upkeep.jobs import Cell
from upkeep.layout import Layout

DEFAULT_TIMEOUT_S = next(f.default for f in msgspec.structs.fields(Terms) if f.name == "timeout_s")
TESTS, SRC = Path(__file__).parent, Path(upkeep.__file__).parents[1]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    be_quick(monkeypatch)


@pytest.fixture
def server() -> Iterator[FakeEndpoint]:
    with fake_endpoint() as server:
        yield server


def asks(n: int, text: str = "question") -> list[Ask]:
    return [Ask(i, [("user", [f"{text} ", str(i)])], Sampling(max_tokens=20), seed=i) for i in range(n)]


def record_of(catalog: Catalog) -> Path:
    return Layout(catalog.results).requests(MODEL, "cells", CELL)


def ask_all(catalog: Catalog, questions: Sequence[Ask]) -> list[Reply | BaseException]:
    async def run() -> list[Reply | BaseException]:
        async with Client(catalog, MODEL, record_of(catalog)) as client:
            return await asyncio.gather(*map(client.answer, questions), return_exceptions=True)

    return asyncio.run(run())


def requests(catalog: Catalog) -> list[Request]:
    return read(record_of(catalog))


def predictions(catalog: Catalog) -> bytes:
    return (Layout(catalog.results).cell(CELL) / "predictions.jsonl").read_bytes()


def lines(catalog: Catalog) -> list[Prediction]:
    return [msgspec.json.decode(line, type=Prediction) for line in predictions(catalog).splitlines()]


def no_key_under(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            assert KEY.encode() not in data and KEY.replace("-", "\\u002d").encode() not in data, path


def run(catalog: Catalog, **options: Any) -> Any:
    return run_cell(catalog, CELL, runtime=RunnerRuntime(), **options)


# ---------------------------------------------------------------- whole cells


def test_a_cell_is_answered_by_the_endpoint_and_says_what_it_cost(tmp_path: Path, server: FakeEndpoint) -> None:
    catalog = make_endpoint_repository(tmp_path, server.url)
    manifest = run(catalog)
    assert manifest.outcomes == {"answered": 30, "error": 0}
    assert manifest.environment.engine == "endpoint"
    assert manifest.environment.engine_version == f"{NAME} at {server.url.split('/')[2]}"
    assert manifest.measured["cost_usd"] == pytest.approx(server.charged)
    assert (manifest.measured["requests"], manifest.measured["retries"]) == (30, 0)
    assert manifest.usage.calls == 30
    assert spent(catalog.results, MODEL).total == pytest.approx(server.charged)
    assert {(line.finish_reason, line.error) for line in lines(catalog)} == {("stop", None)}
    assert all(answer_of(line) and answer_of(line).isdigit() for line in lines(catalog))


def test_each_prediction_leads_to_what_the_endpoint_was_asked_and_to_what_it_answered(
    tmp_path: Path, server: FakeEndpoint
) -> None:
    catalog = make_endpoint_repository(tmp_path, server.url)
    run(catalog)
    calls = Calls(catalog, CELL)
    bodies = [[(one["role"], one["content"]) for one in body["messages"]] for body in server.bodies]
    asked = []
    for line in lines(catalog):
        (key,) = line.calls
        call = calls.find(key)
        assert call is not None and call.messages is not None and MODEL in call.source
        assert (call.answer, call.prompt, call.completion) == (line.response, line.usage.prompt, line.usage.completion)
        asked.append([(role, "".join(parts)) for role, parts in call.messages])
    assert sorted(asked) == sorted(bodies) and len(asked) == 30
    record = Layout(catalog.results).record
    before, size = predictions(catalog), sum(path.stat().st_size for path in record.rglob("*"))
    run(catalog, force=True)
    assert predictions(catalog) == before and sum(path.stat().st_size for path in record.rglob("*.log")) <= size
    shutil.rmtree(record)
    assert Calls(catalog, CELL).find(lines(catalog)[0].calls[0]) is None


def test_a_refused_request_can_be_shown(tmp_path: Path, server: FakeEndpoint) -> None:
    server.act = lambda number, body: "status:400" if number % 3 == 2 else "good"
    catalog = make_endpoint_repository(tmp_path, server.url)
    run(catalog)
    calls = Calls(catalog, CELL)
    failed = [calls.find(line.calls[0]) for line in lines(catalog) if line.error]
    assert failed and all(call and call.messages and call.ended.startswith("refused: ") for call in failed)


def test_what_is_asked_again_costs_nothing_and_gives_the_same_bytes(tmp_path: Path, server: FakeEndpoint) -> None:
    catalog = make_endpoint_repository(tmp_path, server.url, trials=2)
    run(catalog)
    first, cost, asked = predictions(catalog), server.charged, len(server.bodies)
    manifest = run(catalog, force=True)
    assert predictions(catalog) == first
    assert (server.charged, len(server.bodies)) == (cost, asked)
    assert manifest.measured["cost_usd"] == 0.0
    assert manifest.measured["cached_replies"] == 60
    assert {request.source for request in requests(catalog)[-60:]} == {"cache"}


def test_trials_of_one_probe_are_asked_separately(tmp_path: Path, server: FakeEndpoint) -> None:
    run(make_endpoint_repository(tmp_path, server.url, more="omit: [seed]", trials=3))
    assert len(server.bodies) == 90
    assert len({json.dumps(body) for body in server.bodies}) == 30


def test_a_cell_whose_endpoint_fails_for_good_is_no_wrong_answer_and_continues(
    tmp_path: Path, server: FakeEndpoint
) -> None:
    catalog = make_endpoint_repository(tmp_path, server.url)
    server.act = lambda number, body: "good" if number < 10 else "status:503"
    with pytest.raises(UpkeepError, match="503") as error:
        run(catalog)
    assert error.value.kind == "endpoint"
    assert KEY not in str(error.value)
    assert not Layout(catalog.results).cell(CELL).exists()
    # 10 answers, and what was in flight four times each.
    assert len(server.bodies) <= 10 + 4 * 16
    server.act, before = lambda number, body: "good", len(server.bodies)
    manifest = run(catalog)
    assert manifest.outcomes == {"answered": 30, "error": 0}
    assert len(server.bodies) - before <= 20
    assert manifest.measured["retries"] > 0


def test_a_refused_probe_is_an_error_line_and_stays_one(tmp_path: Path, server: FakeEndpoint) -> None:
    catalog = make_endpoint_repository(tmp_path, server.url)
    bad = "status:400"
    server.act = lambda number, body: bad if "Question 2?" in body["messages"][-1]["content"] else "good"
    manifest = run(catalog)
    assert manifest.outcomes == {"answered": 24, "error": 6}
    refused = [line for line in lines(catalog) if line.error]
    assert all("HTTP 400" in str(line.error) and KEY not in str(line.error) for line in refused)
    first, asked = predictions(catalog), len(server.bodies)
    run(catalog, force=True)
    assert (predictions(catalog), len(server.bodies)) == (first, asked)


def test_an_endpoint_that_refuses_everything_fails_the_cell(tmp_path: Path, server: FakeEndpoint) -> None:
    catalog = make_endpoint_repository(tmp_path, server.url)
    server.act = lambda number, body: "status:400"
    with pytest.raises(UpkeepError, match="refuses every request") as error:
        run(catalog)
    assert "`omit`" in str(error.value.remedy)
    server.act = lambda number, body: "good"
    write_card(tmp_path, server.url)
    assert run(catalog).outcomes["error"] == 0


def test_a_spent_budget_ends_the_cell_and_a_larger_one_continues_it(tmp_path: Path, server: FakeEndpoint) -> None:
    catalog = make_endpoint_repository(tmp_path, server.url, budget="6.0")
    with pytest.raises(UpkeepError, match="could pass its budget") as error:
        run(catalog)
    assert error.value.kind == "budget"
    assert "$6.0000" in str(error.value) and "spent" in str(error.value) and f"budget: {{{MODEL}" in str(error.value)
    assert 0 < server.charged <= 6.0
    paid = len(server.bodies)
    (tmp_path / "config/config.yaml").write_text(f"{{runtime: process, budget: {{{MODEL}: 1000}}}}")
    assert run(Catalog(tmp_path)).outcomes["answered"] == 30
    assert paid < 30 and len(server.bodies) == 30, "nothing that was answered is asked again"


@pytest.mark.parametrize(
    ("variable", "budget", "names"),
    [("", "9", VARIABLE), ("short", "9", VARIABLE), (KEY, "", f"budget: {{{MODEL}")],
)
def test_without_a_key_or_a_budget_nothing_is_sent(
    tmp_path: Path,
    server: FakeEndpoint,
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    budget: str,
    names: str,
) -> None:
    monkeypatch.setenv(VARIABLE, variable)
    catalog = make_endpoint_repository(tmp_path, server.url, budget=budget)
    with pytest.raises(UpkeepError) as error:
        run(catalog)
    assert names in str(error.value)
    assert not server.bodies


def test_a_published_cell_is_reused_without_a_key(
    tmp_path: Path, server: FakeEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = make_endpoint_repository(tmp_path, server.url)
    first = run(catalog)
    monkeypatch.delenv(VARIABLE)
    assert run(catalog) == first


def test_an_endpoint_that_costs_nothing_and_asks_for_no_key_needs_neither(
    tmp_path: Path, server: FakeEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE)
    catalog = make_endpoint_repository(tmp_path, server.url, budget="")
    card = tmp_path / f"models/{MODEL}/model.yaml"
    text = card.read_text().replace(f"key: {VARIABLE}", "key: null").replace("1000", "0")
    card.write_text(text)
    catalog = Catalog(tmp_path)
    assert run(catalog).measured["cost_usd"] == 0.0
    assert all("Authorization" not in headers for headers in server.headers)
    assert not Layout(catalog.results).ledger(MODEL).exists()


NOTES = """
from upkeep.cell import Answer, Method

class Notes(Method):
    def __init__(self, parameters, tools):
        super().__init__(parameters, tools)
        self.notes = {}

    async def arrive(self, stream, documents, llm):
        for document in documents:
            reply = await llm.chat([{"role": "user", "parts": [self.notes.get(stream, ""), document.text]}])
            self.notes[stream] = self.notes.get(stream, "")[-100:] + reply.text

    async def answer(self, probe, seen, llm):
        return Answer(self.notes[probe.stream])
"""


def test_an_endpoint_is_asked_as_documents_arrive_too_and_once_for_all_cells(
    tmp_path: Path, server: FakeEndpoint
) -> None:
    catalog = make_endpoint_repository(tmp_path, server.url)
    (tmp_path / "methods/echo/method.py").write_text(NOTES)
    card = tmp_path / "methods/echo/method.yaml"
    card.write_text(card.read_text().replace("model: false", "model: true"))
    first, second = (Cell("toy", "echo", variant, MODEL) for variant in "ab")
    manifest = run_cell(Catalog(tmp_path), first, runtime=RunnerRuntime())
    assert manifest.outcomes["error"] == 0 and manifest.usage.calls == 0
    assert manifest.measured["arrival_calls"] == 15
    assert manifest.measured["cost_usd"] == pytest.approx(server.charged)
    data = (Layout(catalog.results).cell(first) / "predictions.jsonl").read_bytes()
    assert all("Answer" in str(msgspec.json.decode(line, type=Prediction).response) for line in data.splitlines())
    charged = server.charged
    again = run_cell(Catalog(tmp_path), second, runtime=RunnerRuntime())
    assert again.measured["arrival_calls"] == 15 and again.measured["cost_usd"] == 0.0
    assert server.charged == charged
    assert (Layout(catalog.results).cell(second) / "predictions.jsonl").read_bytes() == data


# ---------------------------------------------------------------- faults of the endpoint

FAULTS = {
    "status:429:Retry-After=0": "429",
    "status:408": "408",
    "status:409": "409",
    "status:500": "500",
    "status:529": "529",
    "half": "broke off",
    "reset": "broke off",
    "nonsense": "not a chat completion",
    "empty": "not a chat completion",
    "html": "not a chat completion",
    "other:fake-2": "fake-2",
    "other:fake-1-2025-04-14": "answers_as",
    "silent": "no whole answer within",
    'set:{"choices": []}': "not a chat completion",
    'set:{"usage": null}': "not a chat completion",
    'set:{"usage.prompt_tokens": -1}': "not a chat completion",
    'set:{"usage.prompt_tokens": 1000000}': "impossible usage",
    'set:{"usage.completion_tokens": 1000000}': "impossible usage",
    'set:{"usage.total_tokens": 1000000}': "impossible usage",
    'set:{"usage.completion_tokens": 1e300}': "not a chat completion",
    'set:{"usage.prompt_tokens_details": {"cached_tokens": 1000}}': "impossible usage",
    'set:{"choices.0.finish_reason": null}': "not a chat completion",
    'set:{"choices.0.message": "hello"}': "not a chat completion",
    'set:{"model": null}': "not a chat completion",
    f"large:{4 * 2**20}": "bytes",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_tried_again_on_record_and_bounded(
    tmp_path: Path, server: FakeEndpoint, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setattr(transport, "MAX_REPLY_BYTES", 2**20)
    catalog = make_endpoint_repository(tmp_path, server.url, more="timeout_s: 0.3" if fault == "silent" else "")
    server.act = lambda number, body: fault if number < 2 else "good"
    (reply,) = ask_all(catalog, asks(1))
    assert isinstance(reply, Reply) and reply.text
    (request,) = requests(catalog)
    assert [attempt.problem is None for attempt in request.attempts] == [False, False, True]
    assert FAULTS[fault] in str(request.attempts[0].problem)
    assert request.outcome == "answered" and request.request_id == "req-3"

    server.act = lambda number, body: fault
    before = len(server.bodies)
    (failed,) = ask_all(catalog, asks(1, "another"))
    assert isinstance(failed, UpkeepError) and failed.kind == "endpoint" and FAULTS[fault] in str(failed)
    assert len(server.bodies) - before == 4, "as often as the card says, and no more"
    assert requests(catalog)[-1].outcome == "failed"
    assert spent(catalog.results, MODEL).total >= server.charged - 1e-9, "what may have been charged counts"
    assert spent(catalog.results, MODEL).reserved == 0
    no_key_under(catalog.results)


@pytest.mark.parametrize(
    ("act", "says"),
    [
        ("status:401", "refuses the key"),
        ("status:403", "refuses the key"),
        ("status:404", "does not know"),
        ("status:302:Location=http://example.invalid/", "302"),
        ("status:429:Retry-After=86400", "86,400"),
    ],
)
def test_what_trying_again_cannot_mend_fails_at_once(tmp_path: Path, server: FakeEndpoint, act: str, says: str) -> None:
    server.act = lambda number, body: act
    (failed,) = ask_all(make_endpoint_repository(tmp_path, server.url), asks(1))
    assert isinstance(failed, UpkeepError) and says in str(failed) and KEY not in str(failed)
    assert len(server.bodies) == 1


def test_retry_after_is_honoured(tmp_path: Path, server: FakeEndpoint) -> None:
    server.act = lambda number, body: "status:429:Retry-After=1" if number == 0 else "good"
    ask_all(make_endpoint_repository(tmp_path, server.url), asks(1))
    assert server.times[1] - server.times[0] >= 1.0


def test_an_endpoint_that_is_not_there_costs_nothing(tmp_path: Path) -> None:
    with fake_endpoint() as gone:
        url = gone.url
    catalog = make_endpoint_repository(tmp_path, url)
    (failed,) = ask_all(catalog, asks(1))
    assert isinstance(failed, UpkeepError) and "no connection" in str(failed)
    assert spent(catalog.results, MODEL).total == 0


def test_a_snapshot_that_the_card_names_is_accepted_and_on_record(tmp_path: Path, server: FakeEndpoint) -> None:
    server.act = lambda number, body: "other:fake-1-2025-04-14"
    catalog = make_endpoint_repository(tmp_path, server.url, more="answers_as: [fake-1-2025-04-14]")
    (reply,) = ask_all(catalog, asks(1))
    assert isinstance(reply, Reply) and reply.text
    assert requests(catalog)[0].model == "fake-1-2025-04-14"


@pytest.mark.openssl
def test_a_server_that_cannot_prove_its_name_is_not_talked_to(tmp_path: Path, server: FakeEndpoint) -> None:
    names = ("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1")
    files = ("-keyout", tmp_path / "key.pem", "-out", tmp_path / "cert.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", *names, *files],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    catalog = make_endpoint_repository(tmp_path / "root", server.url.replace("http:", "https:"), more="retries: 1")
    (failed,) = ask_all(catalog, asks(1))
    assert isinstance(failed, UpkeepError) and "CERTIFICATE_VERIFY_FAILED" in str(failed)
    assert not server.bodies


def test_proxies_of_the_environment_are_not_taken(
    tmp_path: Path, server: FakeEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    catalog = make_endpoint_repository(tmp_path, server.url)
    assert isinstance(ask_all(catalog, asks(1))[0], Reply)
    config = tmp_path / "config/config.yaml"
    config.write_text(config.read_text().replace("{runtime", "{proxy: 'http://127.0.0.1:9', runtime"))
    (failed,) = ask_all(Catalog(tmp_path), asks(1, "through the proxy"))
    assert isinstance(failed, UpkeepError) and "no connection" in str(failed)


def test_an_offline_suite_sends_nothing_to_another_machine(tmp_path: Path) -> None:
    catalog = make_endpoint_repository(tmp_path, "https://example.invalid/v1")
    config = tmp_path / "config/config.yaml"
    config.write_text(config.read_text().replace("{runtime", "{offline: true, runtime"))
    (failed,) = ask_all(Catalog(tmp_path), asks(1))
    assert isinstance(failed, UpkeepError) and "offline" in str(failed)
    assert spent(catalog.results, MODEL).total == 0


def test_an_endpoint_that_stays_silent_is_given_up_in_time(
    tmp_path: Path, server: FakeEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Limits().stall_s > client_module.PATIENCE_S + pace.LONGEST_PAUSE_S + DEFAULT_TIMEOUT_S
    monkeypatch.setattr(client_module, "PATIENCE_S", 0.5)
    server.act = lambda number, body: "silent"
    catalog = make_endpoint_repository(tmp_path, server.url, more="timeout_s: 0.2\nretries: 1000")
    (failed,) = ask_all(catalog, asks(1))
    assert isinstance(failed, UpkeepError) and failed.kind == "endpoint"
    assert 2 <= len(server.bodies) <= 5


@pytest.mark.parametrize("reason", ["content_filter", "safety"])
def test_a_content_filter_is_the_models_own_failure_and_paid_once(
    tmp_path: Path, server: FakeEndpoint, reason: str
) -> None:
    server.act = lambda number, body: f'set:{{"choices.0.finish_reason": "{reason}"}}'
    catalog = make_endpoint_repository(tmp_path, server.url)
    for _ in range(2):
        (reply,) = ask_all(catalog, asks(1))
        assert isinstance(reply, Reply) and reply.refused and reason in reply.refused
    assert len(server.bodies) == 1
    assert spent(catalog.results, MODEL).settled == pytest.approx(server.charged)


def test_reasoning_that_is_charged_beside_the_completion_is_counted(tmp_path: Path, server: FakeEndpoint) -> None:
    server.act = lambda number, body: 'set:{"usage": {"prompt_tokens": 30, "completion_tokens": 2, "total_tokens": 45}}'
    (reply,) = ask_all(make_endpoint_repository(tmp_path, server.url), asks(1))
    assert isinstance(reply, Reply) and (reply.prompt, reply.completion) == (30, 15)
    assert reply.usd == pytest.approx(45 * USD_A_TOKEN)


# ---------------------------------------------------------------- what is sent


def test_every_parameter_is_sent_but_those_that_the_provider_refuses(tmp_path: Path, server: FakeEndpoint) -> None:
    more = "omit: [top_k, seed]\nlimit_field: max_completion_tokens\nfields: {reasoning_effort: low}"
    catalog = make_endpoint_repository(tmp_path, server.url, more)
    ask_all(catalog, [Ask(0, [("system", ["s"]), ("user", ["u"])], Sampling(max_tokens=7, temperature=0.5), 2**40 + 3)])
    assert server.bodies == [
        {
            "model": NAME,
            "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}],
            "max_completion_tokens": 7,
            "temperature": 0.5,
            "top_p": 1.0,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "presence_penalty": 0.0,
            "stream": False,
            "reasoning_effort": "low",
        }
    ]
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"


TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}
OPTIONS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "tools": ({"tools": [TOOL]}, {"tools": [TOOL], "tool_choice": "auto"}),
    "a tool": (
        {"tools": [TOOL], "tool_choice": "look_up"},
        {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "look_up"}}},
    ),
    "no tool": ({"tools": [TOOL], "tool_choice": "none"}, {}),
    "schema": (
        {"schema": {"type": "object"}},
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "answer", "schema": {"type": "object"}, "strict": True},
            }
        },
    ),
    "stop": ({"stop": ["a", "b"]}, {"stop": ["a", "b"]}),
    "probabilities": ({"top_logprobs": 2}, {"logprobs": True, "top_logprobs": 2}),
}


def test_options_are_fields_of_the_request_and_part_of_what_its_reply_is_kept_by(
    tmp_path: Path, server: FakeEndpoint
) -> None:
    catalog = make_endpoint_repository(tmp_path, server.url)
    server.act = lambda number, body: 'set:{"choices.0.logprobs": {"content": []}}' if "logprobs" in body else "answer"
    nothing = {"tools": [], "tool_choice": "auto", "schema": None, "stop": [], "top_logprobs": 0}
    for more in (None, *({**nothing, **given} for given, _ in OPTIONS.values())):
        (reply,) = ask_all(catalog, [Ask(0, [("user", "u")], Sampling(max_tokens=7), 0, [], more and More(**more))])
        assert isinstance(reply, Reply) and reply.refused is None
    plain, *others = server.bodies
    wanted = [sent for name, (_, sent) in OPTIONS.items() if name != "no tool"]  # that is the plain request
    assert others == [plain | sent for sent in wanted]
    assert not set(plain) & {"tools", "tool_choice", "response_format", "stop", "logprobs", "top_logprobs"}


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ('{"id": "c1", "function": {"name": "look_up", "arguments": "{\\"a\\": 1}"}}', ("c1", "look_up", '{"a": 1}')),
        ('{"id": "c1", "function": {"name": "look_up", "arguments": "torn {"}}', None),
    ],
)
def test_calls_of_tools_come_back_and_malformed_ones_are_the_models_failure(
    tmp_path: Path, server: FakeEndpoint, said: str, found: tuple[str, str, str] | None
) -> None:
    server.act = lambda number, body: (
        'set:{"choices.0.message": {"content": null, "tool_calls": [' + said + "]}, "
        '"choices.0.finish_reason": "tool_calls"}'
    )
    catalog = make_endpoint_repository(tmp_path, server.url)
    before: list[Message] = [
        {"role": "user", "parts": ["u"]},
        {"role": "assistant", "parts": [""], "tool_calls": [ToolCall("c0", "look_up", "{}")]},
        {"role": "tool", "parts": ["a light"], "tool_call_id": "c0"},
    ]
    with gateway(catalog, MODEL, record_of(catalog)) as folder:
        llm = handle(catalog, folder)
        if found is None:
            with pytest.raises(EndpointRefused, match="no JSON object"):
                asyncio.run(llm.chat(before, tools=[TOOL]))
        else:
            reply = asyncio.run(llm.chat(before, tools=[TOOL]))
            assert (reply.tool_calls, reply.text, reply.finish_reason) == ((ToolCall(*found),), "", "stop")
    assert server.bodies[0]["messages"] == [
        {"role": "user", "content": "u"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "c0", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}],
        },
        {"role": "tool", "content": "a light", "tool_call_id": "c0"},
    ]


def test_an_endpoint_that_gives_no_probabilities_refuses_who_asks_for_them(
    tmp_path: Path, server: FakeEndpoint
) -> None:
    catalog = make_endpoint_repository(tmp_path, server.url)
    with gateway(catalog, MODEL, record_of(catalog)) as folder:
        llm = handle(catalog, folder)
        messages: list[Message] = [{"role": "user", "parts": ["u"]}]
        with pytest.raises(ValueError, match="0 to 20"):
            asyncio.run(llm.chat(messages, top_logprobs=21))
        with pytest.raises(EndpointRefused, match="no log-probabilities"):
            asyncio.run(llm.chat(messages, top_logprobs=2))
    told = '{"content": [{"token": "a", "logprob": -1.5, "top_logprobs": [{"token": "b", "logprob": -1.0}]}]}'
    server.act = lambda number, body: 'set:{"choices.0.logprobs": ' + told + "}"
    with gateway(catalog, MODEL, record_of(catalog)) as folder:
        reply = asyncio.run(handle(catalog, folder).chat(messages, top_logprobs=1))
    assert reply.logprobs == (GeneratedToken("a", -1.5, (("b", -1.0),)),)


def test_seeds_are_sent_and_different_seeds_are_different_requests(tmp_path: Path, server: FakeEndpoint) -> None:
    catalog = make_endpoint_repository(tmp_path, server.url)
    same = [Ask(i, [("user", ["u"])], Sampling(max_tokens=7), seed) for i, seed in enumerate((5, 6, 5, 2**62 + 9))]
    ask_all(catalog, same)
    assert sorted(body["seed"] for body in server.bodies) == [5, 6, 9]
    assert sorted(request.source for request in requests(catalog)) == ["cache", "endpoint", "endpoint", "endpoint"]


def test_a_parameter_that_the_endpoint_does_not_take_is_not_dropped_unseen(
    tmp_path: Path, server: FakeEndpoint
) -> None:
    catalog = make_endpoint_repository(tmp_path, server.url, more="omit: [top_k]")
    (reply,) = ask_all(catalog, [Ask(0, [("user", ["u"])], Sampling(max_tokens=7, top_k=4), 0)])
    assert isinstance(reply, Reply) and reply.refused == "the endpoint takes no top_k"
    assert not server.bodies


def test_no_more_are_in_flight_than_the_card_allows(tmp_path: Path, server: FakeEndpoint) -> None:
    server.latency_s = 0.02
    ask_all(make_endpoint_repository(tmp_path, server.url, more="max_in_flight: 3"), asks(20))
    assert server.most_at_once == 3


def test_requests_and_tokens_are_spread_over_the_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    async def take(pace: Pace, amounts: Sequence[int]) -> list[float]:
        waited.clear()
        for amount in amounts:
            await pace.take(amount)
        return waited

    monkeypatch.setattr(asyncio, "sleep", sleep)
    assert asyncio.run(take(Pace(60), [1, 1, 1])) == pytest.approx([0, 1, 2], abs=0.1)
    assert asyncio.run(take(Pace(6000), [300, 100, 1])) == pytest.approx([0, 3, 4], abs=0.1)
    assert asyncio.run(take(Pace(None), [300, 100])) == pytest.approx([0, 0], abs=0.1)


# ---------------------------------------------------------------- the budget


def act_slowly(server: FakeEndpoint) -> Act:
    server.latency_s = 0.02
    return lambda number, body: "good"


@pytest.mark.parametrize("budget", [0.0, 0.5, 1.5, 2.0, 5.0])
def test_the_budget_is_never_passed_with_sixteen_in_flight(tmp_path: Path, server: FakeEndpoint, budget: float) -> None:
    server.act = act_slowly(server)
    catalog = make_endpoint_repository(tmp_path, server.url, budget=str(budget))
    replies = ask_all(catalog, asks(100))
    assert server.charged <= budget
    refused = [reply for reply in replies if isinstance(reply, UpkeepError)]
    assert refused and all(error.kind == "budget" for error in refused)
    found = spent(catalog.results, MODEL)
    assert found.settled == pytest.approx(server.charged) and found.reserved == 0
    # Whatever is left is less than the most that one request can cost.
    assert budget - server.charged < 2.0


def test_the_budget_is_never_passed_by_two_processes(tmp_path: Path, server: FakeEndpoint) -> None:
    server.act = act_slowly(server)
    catalog = make_endpoint_repository(tmp_path, server.url, budget="3.0")
    script = (
        "import sys; from pathlib import Path; import test_endpoint as t; from upkeep.catalog import Catalog\n"
        "catalog = Catalog(Path(sys.argv[1]))\n"
        "t.record_of = lambda catalog: Path(sys.argv[1]) / sys.argv[2]\n"
        "t.ask_all(catalog, t.asks(40, sys.argv[2]))\n"
    )
    both = [start(script, tmp_path, name) for name in ("one", "two")]
    assert [process.wait(60) for process in both] == [0, 0]
    assert 0 < server.charged <= 3.0
    assert spent(catalog.results, MODEL).settled == pytest.approx(server.charged)
    assert {Path(tmp_path / name).exists() for name in ("one", "two")} == {True}


def start(script: str, *arguments: object) -> subprocess.Popen[bytes]:
    paths = os.pathsep.join([str(TESTS), str(SRC)])
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)], env=os.environ | {"PYTHONPATH": paths}
    )


def test_a_lying_endpoint_is_counted_by_what_it_says(tmp_path: Path, server: FakeEndpoint) -> None:
    server.act = lambda number, body: 'set:{"usage.completion_tokens": 3000}'
    catalog = make_endpoint_repository(tmp_path, server.url)
    ask_all(catalog, asks(1))
    assert spent(catalog.results, MODEL).settled >= 4 * 3000 * USD_A_TOKEN


def test_a_reservation_of_a_killed_process_counts_for_good(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    assert Ledger(path, "m", 10.0, patience_s=0.0).reserve(6.0)
    again = Ledger(path, "m", 10.0, patience_s=0.0)
    with pytest.raises(UpkeepError, match=r"\$6.0000 reserved"):
        again.reserve(5.0)
    number = again.reserve(4.0)
    assert number is not None
    again.settle(number, 1.0)
    assert ledger_module.read(path) == ledger_module.Spent(1.0, 6.0)


def test_a_request_waits_for_the_room_that_others_hold(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl", "m", 10.0, patience_s=60.0)
    number = ledger.reserve(6.0)
    assert number is not None
    assert ledger.reserve(5.0) is None
    ledger.settle(number, 2.0)
    assert ledger.reserve(5.0) is not None


@pytest.mark.parametrize("cut", range(1, 40, 6))
def test_a_torn_last_line_of_the_ledger_is_cut_off(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path, "m", 10.0, 60.0)
    number = ledger.reserve(2.0)
    assert number is not None
    ledger.settle(number, 1.0)
    whole = path.read_bytes()
    path.write_bytes(whole + whole.splitlines(keepends=True)[0][:cut])
    assert ledger_module.read(path).total == 1.0
    assert Ledger(path, "m", 10.0, 60.0).reserve(3.0)
    assert ledger_module.read(path).total == 4.0


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[5:],
        lambda data: data.replace(b"settled", b"stolen"),
        lambda data: data + data.splitlines(keepends=True)[1],
        lambda data: data.replace(b'"usd":1.0', b'"usd":-1.0'),
        lambda data: b"\xff\n" + data,
    ],
)
def test_a_damaged_ledger_stops_all_spending(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path, "m", 10.0, 60.0)
    number = ledger.reserve(2.0)
    assert number is not None
    ledger.settle(number, 1.0)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(UpkeepError, match="damaged"):
        Ledger(path, "m", 10.0, 60.0).reserve(1.0)


def test_a_ledger_that_shrinks_under_a_running_job_stops_it(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl", "m", 10.0, 60.0)
    ledger.reserve(1.0)
    ledger.reserve(1.0)
    ledger.path.write_bytes(b"")
    with pytest.raises(UpkeepError, match="gone"):
        ledger.reserve(1.0)


# ---------------------------------------------------------------- what is kept


def kept(catalog: Catalog) -> set[str]:
    """Keys of the replies that are on record and whole."""
    found = set()
    for _, key, value in Record(Layout(catalog.results).record, parts_of(MODEL), MODEL).entries():
        with contextlib.suppress(msgspec.MsgspecError):
            if msgspec.msgpack.decode(value, type=Reply).key == key.hex():
                found.add(key.hex())
    return found


@pytest.mark.parametrize(
    "damage",
    [lambda d: b"", lambda d: d[:-20], lambda d: d.replace(b"Answer", b"answer")],
    ids=["gone", "torn", "other"],
)
def test_a_damaged_reply_is_asked_again(tmp_path: Path, server: FakeEndpoint, damage: Callable[[bytes], bytes]) -> None:
    catalog = make_endpoint_repository(tmp_path, server.url)
    (first,) = ask_all(catalog, asks(1))
    (log,) = Layout(catalog.results).record.rglob("*.log")
    log.write_bytes(damage(log.read_bytes()))
    (again,) = ask_all(catalog, asks(1))
    assert isinstance(first, Reply) and isinstance(again, Reply) and again.text == first.text
    assert len(server.bodies) == 2 and kept(catalog) == {first.key}


def test_what_another_job_was_answered_meanwhile_is_not_paid_again(
    tmp_path: Path, server: FakeEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("upkeep.gateway.endpoints.replies.LOOK_S", 0.0)
    catalog = make_endpoint_repository(tmp_path, server.url)
    ours = Replies(Layout(catalog.results).record, MODEL)
    (theirs,) = ask_all(catalog, asks(1))
    assert isinstance(theirs, Reply) and ours.get(theirs.key) == theirs


def test_what_was_paid_for_goes_to_another_machine_and_is_never_pruned(tmp_path: Path, server: FakeEndpoint) -> None:
    catalog = make_endpoint_repository(tmp_path / "ours", server.url)
    run(catalog)
    asked, answers = len(server.bodies), predictions(catalog)
    assert not list(transfer.prune(catalog))
    list(transfer.export(catalog, tmp_path / "record.tar"))
    there = make_endpoint_repository(tmp_path / "theirs", server.url)
    list(transfer.take_in(there, tmp_path / "record.tar"))
    (line,) = transfer.listing(there)
    assert MODEL in line and "in use" in line
    run(there)
    assert predictions(there) == answers and len(server.bodies) == asked


RUN_CELL = """
import sys
from pathlib import Path
import test_endpoint as t
from upkeep.catalog import Catalog
t.run(Catalog(Path(sys.argv[1])))
"""


@pytest.mark.parametrize("at", [3, 11, 19, 27])
def test_killed_at_any_moment_no_kept_reply_is_paid_again(tmp_path: Path, server: FakeEndpoint, at: int) -> None:
    server.latency_s = 0.02
    catalog = make_endpoint_repository(tmp_path, server.url, more="max_in_flight: 3")
    process = start(RUN_CELL, tmp_path)
    deadline = time.monotonic() + 60
    while len(kept(catalog)) < at and time.monotonic() < deadline:
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before, asked = kept(catalog), len(server.bodies)
    assert at <= len(before) <= asked
    manifest = run(catalog)
    assert manifest.outcomes["answered"] == 30
    assert len(server.bodies) == asked + 30 - len(before), "each answer that was not kept is asked for, and no other"
    assert asked - len(before) <= 3, "and those were in flight"
    found = spent(catalog.results, MODEL)
    assert found.total >= server.charged - 1e-9
    assert found.total > found.settled or asked == len(before)


# ---------------------------------------------------------------- the key


def test_the_key_is_in_no_file_and_no_output(
    tmp_path: Path, server: FakeEndpoint, capfd: pytest.CaptureFixture[str]
) -> None:
    acts = ["keyed", "status:400", "status:500", "nonsense", f"other:{KEY}", "good"]
    server.act = lambda number, body: acts[number % len(acts)]
    catalog = make_endpoint_repository(tmp_path, server.url, more="retries: 9")
    run(catalog)
    assert any("[key]" in str(line.response) for line in lines(catalog))
    assert any("[key]" in str(line.reasoning) for line in lines(catalog))
    server.act = lambda number, body: "status:401"
    (failed,) = ask_all(catalog, asks(1))
    assert KEY not in str(failed)
    no_key_under(tmp_path)
    assert KEY not in "".join(capfd.readouterr())


def test_a_key_that_is_no_header_is_refused_without_being_shown(
    tmp_path: Path, server: FakeEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = make_endpoint_repository(tmp_path, server.url)
    for key in ("sk-secret\nX-Other: 1", "sk-sécret-0123", "sk secret 0123", "sk-\x07secret-012"):
        monkeypatch.setenv(VARIABLE, key)
        with pytest.raises(UpkeepError) as error:
            require_endpoint(catalog, MODEL)
        assert "secret" not in str(error.value) and "sécret" not in str(error.value)


# ---------------------------------------------------------------- the gateway


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


def handle(catalog: Catalog, path: Path) -> EndpointHandle:
    return EndpointHandle(None, catalog.model(MODEL), 0, "p", endpoint=Endpoint(str(path / "engine.sock")))


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


# ---------------------------------------------------------------- cards and identity


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("engine: endpoint", "engine: vllm", "half an endpoint"),
        ("source: endpoint", "source: hub", "half an endpoint"),
        ("engine: endpoint", "engine: endpoint\ngpus: 1", "GPU"),
        ("engine: endpoint", "engine: endpoint\nrole: embedder", "generates"),
        ("http://127.0.0.1", "http://example.com", "base URL"),
        ("http://127.0.0.1", "ftp://127.0.0.1", "base URL"),
        ("http://127", "http://user:secret@127", "base URL"),
        ("/v1", "/v1?key=secret", "base URL"),
        ("retries: 3", "fields: {model: other}", "model"),
        ("retries: 3", "fields: {seed: 1, stream: true}", "seed, stream"),
        ("retries: 3", "omit: [max_tokens]", "omit"),
    ],
)
def test_a_card_that_cannot_be_meant_is_refused(
    tmp_path: Path, server: FakeEndpoint, old: str, new: str, says: str
) -> None:
    make_endpoint_repository(tmp_path, server.url)
    card = tmp_path / f"models/{MODEL}/model.yaml"
    card.write_text(card.read_text().replace(old, new))
    with pytest.raises(UpkeepError, match=says) as error:
        Catalog(tmp_path).model(MODEL)
    assert "user" not in str(error.value) and "key=" not in str(error.value)


def test_a_model_behind_an_endpoint_cannot_be_trained(tmp_path: Path, server: FakeEndpoint) -> None:
    catalog = make_endpoint_repository(tmp_path, server.url)
    card = (tmp_path / "methods/ask/method.yaml").read_text()
    (tmp_path / "methods/trainer/method.yaml").write_text(card + "trains: true\nsupervision: Q\n")
    catalog = Catalog(tmp_path)
    with pytest.raises(UpkeepError, match="cannot be trained"):
        catalog.check(Cell("toy", "ask", "a", f"{MODEL}+trainer.a"))


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("prompt: 1000,", "prompt: 2000,", True),
        ("retries: 3", "retries: 9", True),
        ("timeout_s: 5", "timeout_s: 50", True),
        ("retries: 3", "max_in_flight: 2\n  requests_per_minute: 7\n  tokens_per_minute: 8", True),
        (f"key: {VARIABLE}", "key: OTHER_KEY", True),
        (f"model: {NAME}", "model: fake-2", False),
        ("/v1", "/v2", False),
        ("retries: 3", "fields: {reasoning_effort: low}", False),
        ("retries: 3", "omit: [seed]", False),
        ("retries: 3", "answers_as: [fake-1-2025]", False),
        ("retries: 3", "tokens_per_byte: 0.5", False),
        ("max_tokens: 20", "max_tokens: 21", False),
    ],
)
def test_the_identity_is_what_is_asked_and_not_on_which_terms(
    tmp_path: Path, server: FakeEndpoint, old: str, new: str, same: bool
) -> None:
    catalog = make_endpoint_repository(tmp_path, server.url)
    before = identity.identity(catalog, CELL)[0], identity.plan_identity(catalog, CELL)
    fetched = fetch(catalog, MODEL)
    card = tmp_path / f"models/{MODEL}/model.yaml"
    assert old in card.read_text()
    card.write_text(card.read_text().replace(old, new))
    changed = Catalog(tmp_path)
    assert (identity.identity(changed, CELL)[0] == before[0]) is same
    assert (identity.plan_identity(changed, CELL) == before[1]) is same
    assert fetched.path is None
    if "max_tokens" not in old:
        assert (fetch(changed, MODEL).sha256 == fetched.sha256) is same
