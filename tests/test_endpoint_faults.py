"""Endpoints that fail, answer wrongly or stay silent: tried again on record, or refused at once."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import msgspec
import pytest

from endpoint_cells import _quick, ask_all, asks, no_key_under, requests, server
from endpoint_fakes import (
    KEY,
    MODEL,
    USD_A_TOKEN,
    FakeEndpoint,
    fake_endpoint,
    make_endpoint_repository,
)
from upkeep.catalog import Catalog
from upkeep.contract import Endpoint as Terms
from upkeep.errors import UpkeepError
from upkeep.execution.watch import Limits
from upkeep.gateway.endpoints import client as client_module
from upkeep.gateway.endpoints import pace, transport
from upkeep.gateway.endpoints.replies import Reply
from upkeep.gateway.endpoints.terms import spent

__all__ = ["_quick", "server"]

DEFAULT_TIMEOUT_S = next(f.default for f in msgspec.structs.fields(Terms) if f.name == "timeout_s")
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

# ---------------------------------------------------------------- faults of the endpoint


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
