"""What is sent to an endpoint, how fast, and what its card may say of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from endpoint_cells import _quick, ask_all, asks, handle, record_of, requests, server
from endpoint_fakes import (
    CELL,
    KEY,
    MODEL,
    NAME,
    VARIABLE,
    FakeEndpoint,
    make_endpoint_repository,
)
from upkeep import identity
from upkeep.catalog import Catalog
from upkeep.cell.endpoint import (
    Ask,
    EndpointRefused,
    More,
)
from upkeep.cell.interface import GeneratedToken, Message, ToolCall
from upkeep.contract import Sampling
from upkeep.errors import UpkeepError
from upkeep.execution.fetch import fetch
from upkeep.gateway.endpoints.pace import Pace
from upkeep.gateway.endpoints.replies import Reply
from upkeep.gateway.endpoints.server import gateway
from upkeep.jobs import Cell

__all__ = ["_quick", "server"]


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
