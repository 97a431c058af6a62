"""Claims about the door: code from elsewhere asks a model as any OpenAI-compatible client does, gets what a method
would get, and what cannot be done is an error."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from door_clients import ALIASES, HELLO, UPSTREAM, client, closed_book, post, through
from method_fakes import FakeEmbedder, FakeLLM
from runner_bench import Bench, bench, model, rounds, tiny, unmeasured
from upkeep.cell import GeneratedToken, Message, Reply, Sampling, ToolCall
from upkeep.cell.door import Address

__all__ = ["bench", "tiny"]

# ---------------------------------------------------------------- the same answers


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("one_at_a_time", [False, True])
def test_a_package_that_uses_openai_gives_the_bytes_of_closed_book(
    bench: Bench, tiny: Path, temperature: float, one_at_a_time: bool
) -> None:
    setup = model(tiny, sampling=Sampling(temperature=temperature, max_tokens=6)) | {"trials": 2}
    work = rounds(2, [f"q{i}" for i in range(6)])
    expected = closed_book(bench, setup, work)
    assert len(set(expected)) == 24
    bench.method(UPSTREAM)
    bench.run(work, **setup, **ALIASES, one_at_a_time=one_at_a_time)
    assert unmeasured(bench.predictions()) == expected


def test_eight_threads_of_one_unit_get_what_each_would_get_alone_and_all_are_booked(bench: Bench, tiny: Path) -> None:
    bench.method(
        """
from concurrent.futures import ThreadPoolExecutor
from openai import OpenAI

def ask(base_url, api_key, question, threads):
    client = OpenAI(base_url=base_url, api_key=api_key)
    def one(i):
        messages = [{"role": "user", "content": f"{question} {i}"}]
        return client.chat.completions.create(model="reader", messages=messages).choices[0].message.content
    with ThreadPoolExecutor(threads) as pool:
        return repr(list(pool.map(one, range(16))))

class Threads(Method):
    async def answer(self, probe, seen, llm):
        async with self.tools.door.open(llm) as (base_url, api_key):
            threads = self.parameters["threads"]
            return Answer(await asyncio.to_thread(ask, base_url, api_key, probe.question, threads))
"""
    )
    found = []
    for threads in (1, 8):
        bench.run(rounds(1, ["a", "b", "c"]), **model(tiny), parameters={"threads": threads})
        found.append(unmeasured(bench.predictions()))
        assert [p.usage.calls for p in bench.predictions()] == [16, 16, 16]
        (bench.output / "predictions.jsonl").unlink()
    assert found[0] == found[1]


def test_what_a_call_says_of_decoding_overrides_the_card_and_nothing_else_does(bench: Bench, tiny: Path) -> None:
    bench.method(UPSTREAM)
    used = []
    for parameters in ({}, {"max_tokens": 2}, {"max_completion_tokens": 3}):
        bench.run(rounds(1, ["a"]), **model(tiny), **ALIASES, parameters=parameters)
        used.append(bench.predictions()[0].usage.completion)
        (bench.output / "predictions.jsonl").unlink()
    assert used == [6, 2, 3]


def test_a_stream_holds_the_whole_reply() -> None:
    def work(address: Address) -> tuple[str, str, int]:
        create = client(address).chat.completions.create
        messages: Any = HELLO["messages"]
        whole = create(model="reader", messages=messages).choices[0].message.content
        streamed = list(create(model="reader", messages=messages, stream=True, stream_options={"include_usage": True}))
        text = "".join(choice.delta.content or "" for event in streamed for choice in event.choices)
        assert [c.finish_reason for e in streamed for c in e.choices] == [None, "stop"]
        assert streamed[-1].usage is not None
        return str(whole), text, streamed[-1].usage.total_tokens

    whole, streamed, total = through(work)
    assert streamed == whole and "## Answer:" in whole
    assert total == 4 + 1 + 2


class Counting(FakeLLM):
    """Answers with the number of the call; `n` choices are `n` calls."""

    async def chat(self, messages: Any, sampling: Sampling | None = None) -> Reply:
        await super().chat(messages, sampling)
        return Reply(f"{len(self.prompts)} {sampling.temperature if sampling else ''}", None, "stop", 5, 2, 0)


def test_several_choices_are_several_calls_and_a_seed_makes_equal_requests_one() -> None:
    def work(address: Address) -> list[list[str | None]]:
        def ask(**more: Any) -> list[str | None]:
            found = client(address).chat.completions.create(**HELLO, **more)
            return [choice.message.content for choice in found.choices]

        return [
            ask(n=3),
            ask(temperature=0.5, seed=1),
            ask(temperature=0.5, seed=1),
            ask(temperature=0.5, seed=2),
            ask(temperature=0.6, seed=1),
            ask(temperature=0.0, seed=1),
            ask(temperature=0.0, seed=1),
        ]

    choices, *others = through(work, Counting())
    assert choices == ["1 0.0", "2 0.0", "3 0.0"]
    assert others == [["4 0.5"], ["4 0.5"], ["5 0.5"], ["6 0.6"], ["7 0.0"], ["8 0.0"]]


def test_roles_and_parts_of_messages_reach_the_model_as_they_are() -> None:
    llm = FakeLLM()
    seen: list[Any] = []
    original = llm.chat

    async def chat(messages: list[Message], sampling: Sampling | None = None) -> Reply:
        seen.extend(messages)
        return await original(messages, sampling)

    llm.chat = chat  # type: ignore[method-assign,assignment]
    messages: list[Any] = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "One. "}, {"type": "text", "text": "Two."}]},
        {"role": "assistant", "content": "Yes.", "refusal": None, "tool_calls": None, "annotations": []},
        {"role": "user", "content": "\N{SNOWMAN}"},
    ]
    assert through(lambda address: post(address, HELLO | {"messages": messages}), llm)[0] == 200
    assert [(m["role"], m["parts"]) for m in seen] == [
        ("system", ["Be brief."]),
        ("user", ["One. ", "Two."]),
        ("assistant", ["Yes."]),
        ("user", ["\N{SNOWMAN}"]),
    ]


class Able(FakeLLM):
    """Remembers what it is asked for, and gives some of all that can be had."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[list[Message], dict[str, Any]]] = []

    async def chat(self, messages: Any, sampling: Sampling | None = None, **options: Any) -> Reply:
        self.asked.append((messages, options))
        calls = (ToolCall("call_0", "find", '{"word": "key"}'),) if "tools" in options else ()
        tokens = tuple(GeneratedToken(t, -0.5, ((t, -0.5), ("no", -1.5))) for t in ("y", "\N{SNOWMAN}"))
        return Reply("" if calls else "yes", None, "stop", 5, 2, 0, calls, tokens if "top_logprobs" in options else ())


FIND: dict[str, Any] = {"name": "find", "description": "Looks.", "parameters": {"type": "object", "properties": {}}}
NAMED: dict[str, Any] = {"type": "function", "function": {"name": "f"}}


@pytest.mark.parametrize("streamed", [False, True])
def test_tools_are_offered_called_and_answered(streamed: bool) -> None:
    llm = Able()

    def work(address: Address) -> None:
        create = client(address).chat.completions.create
        asked: dict[str, Any] = HELLO | {"tools": [{"type": "function", "function": FIND}], "tool_choice": "required"}
        if streamed:
            events = list(create(**asked, stream=True))
            (call,) = events[0].choices[0].delta.tool_calls or ()
            end = events[1].choices[0].finish_reason
        else:
            choice = create(**asked).choices[0]
            (call,), end = choice.message.tool_calls or (), choice.finish_reason
            back: list[Any] = [{"role": "tool", "tool_call_id": call.id, "content": "here"}]
            create(model="reader", messages=[*HELLO["messages"], choice.message, *back])
        assert (call.id, call.function.name, call.function.arguments) == ("call_0", "find", '{"word": "key"}')
        assert end == "tool_calls"

    through(work, llm)
    offered = {"type": "function", "function": FIND}
    assert llm.asked[0][1] == {"tools": [offered], "tool_choice": "required"}
    if not streamed:
        assert llm.asked[1][0][1:] == [
            {"role": "assistant", "parts": [""], "tool_calls": [ToolCall("call_0", "find", '{"word": "key"}')]},
            {"role": "tool", "parts": ["here"], "tool_call_id": "call_0"},
        ]


@pytest.mark.parametrize(
    ("asked", "options"),
    [
        ({"stop": "\n"}, {"stop": ["\n"]}),
        ({"stop": ["a", "b"]}, {"stop": ["a", "b"]}),
        ({"response_format": {"type": "json_object"}}, {"schema": {"type": "object"}}),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"enum": [1]}}}},
            {"schema": {"enum": [1]}},
        ),
        ({"logprobs": True, "top_logprobs": 2}, {"top_logprobs": 2}),
        (
            {"tools": [NAMED], "tool_choice": NAMED},
            {
                "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
                "tool_choice": "f",
            },
        ),
    ],
)
def test_what_a_request_demands_is_demanded_of_the_model(asked: dict[str, Any], options: dict[str, Any]) -> None:
    llm = Able()
    assert through(lambda address: post(address, HELLO | asked), llm)[0] == 200
    assert [found for _, found in llm.asked] == [options]


def test_log_probabilities_are_those_of_the_tokens() -> None:
    def work(address: Address) -> list[Any]:
        create = client(address).chat.completions.create
        more: list[dict[str, Any]] = [{}, {"top_logprobs": 2}]
        return [create(**HELLO, logprobs=True, **each).choices[0].logprobs.content for each in more]

    alone, among = through(work, Able())
    assert [(t.token, t.logprob, bytes(t.bytes), t.top_logprobs) for t in alone] == [
        ("y", -0.5, b"y", []),
        ("\N{SNOWMAN}", -0.5, "\N{SNOWMAN}".encode(), []),
    ]
    assert [(a.token, a.logprob) for a in among[0].top_logprobs] == [("y", -0.5), ("no", -1.5)]


BOTH = """
import json
from openai import OpenAI

def ask(base_url, api_key, asked):
    messages = [{"role": "user", "content": "Who?"}]
    client = OpenAI(base_url=base_url, api_key=api_key)
    return client.chat.completions.create(model="reader", messages=messages, **asked).choices[0]

class Both(Method):
    async def answer(self, probe, seen, llm):
        own = await llm.chat([{"role": "user", "parts": ["Who?"]}], **self.parameters["options"])
        async with self.tools.door.open(llm) as address:
            choice = await asyncio.to_thread(ask, *address, self.parameters["asked"])
        content = choice.logprobs.content if choice.logprobs else []
        other = [(t.token, t.logprob, tuple((a.token, a.logprob) for a in t.top_logprobs)) for t in content]
        assert [own.text, own.finish_reason] == [choice.message.content, choice.finish_reason]
        assert [(t.text, t.logprob, t.top) for t in own.logprobs] == other
        return Answer(own.text)
"""
SHAPE = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}
NAMED_SHAPE = {"name": "a", "schema": SHAPE}


@pytest.mark.parametrize(
    ("asked", "options"),
    [
        ({"stop": ["e"]}, {"stop": ["e"]}),
        ({"logprobs": True, "top_logprobs": 3}, {"top_logprobs": 3}),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SHAPE}}},
            {"schema": SHAPE},
        ),
    ],
    ids=["stop", "logprobs", "schema"],
)
def test_what_an_engine_can_do_it_does_through_the_door_as_well(
    bench: Bench, tiny: Path, asked: dict[str, Any], options: dict[str, Any]
) -> None:
    bench.method(BOTH)
    setup = model(tiny, sampling=Sampling(max_tokens=40))
    bench.run(rounds(1, ["a"]), **setup, parameters={"asked": asked, "options": options})
    (line,) = bench.predictions()
    assert (line.error, line.usage.calls) == (None, 2)


def test_embeddings_are_the_embedder_s_in_both_spellings() -> None:
    texts = ["Mira went home.", "Where is Mira?"]

    def work(address: Address) -> list[Any]:
        names = ["embedder", "embedder_query", "text-embedding-3-small"]
        found = [client(address).embeddings.create(model=name, input=texts) for name in names]  # asks for base64
        floats = client(address).embeddings.create(model="embedder", input=texts, encoding_format="float")
        one = post(address, {"model": "embedder", "input": texts[0], "encoding_format": "base64"}, "/embeddings")[1]
        packed = np.frombuffer(base64.b64decode(one["data"][0]["embedding"]), "<f4")
        return [*([row.embedding for row in each.data] for each in [*found, floats]), [packed.tolist()]]

    *found, one = through(work, aliases={"text-embedding-3-small": "embedder"})
    expected = FakeEmbedder().documents(texts)
    for rows in found:
        assert np.array_equal(np.array(rows, "f4"), expected)
    assert np.array_equal(np.array(one, "f4"), expected[:1])


def test_the_models_are_the_roles_and_the_card_s_names() -> None:
    found = through(lambda address: [m.id for m in client(address).models.list()], aliases={"gpt-4o-mini": "reader"})
    assert found == ["reader", "embedder", "embedder_query", "gpt-4o-mini"]


def test_nothing_in_a_reply_tells_the_time() -> None:
    assert through(lambda a: post(a, HELLO)) == through(lambda a: post(a, HELLO))


# ---------------------------------------------------------------- what is not answered

NOT_ANSWERED: list[tuple[dict[str, Any], int, str]] = [
    ({"model": "gpt-5"}, 404, "there are: reader"),
    ({"model": "embedder"}, 404, "there are: reader"),
    ({"messages": []}, 400, "messages"),
    ({"messages": [{"role": "oracle", "content": "x"}]}, 400, "role"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, 400, "image_url"),
    ({"messages": [{"role": "user", "content": "x", "name": "Mira"}]}, 400, "name"),
    ({"messages": [{"role": "user"}]}, 400, "content"),
    ({"temperature": -1}, 400, "temperature"),
    ({"temperature": "warm"}, 400, "temperature"),
    ({"top_p": 0}, 400, "top_p"),
    ({"max_tokens": 0}, 400, "max_tokens"),
    ({"n": 0}, 400, "$.n"),
    ({"n": 1000}, 400, "$.n"),
    ({"frequency_penalty": 0.5}, 400, "frequency_penalty"),
    ({"logit_bias": {"50256": -100}}, 400, "logit_bias"),
    ({"reasoning_effort": "low"}, 400, "reasoning_effort"),
    ({"functions": []}, 400, "functions"),
    ({"tools": [{"type": "retrieval"}]}, 400, "tools"),
    ({"tools": [{"type": "function", "function": {"name": "f", "strict": True}}]}, 400, "strict"),
    ({"tool_choice": "required"}, 400, "without tools"),
    ({"parallel_tool_calls": False}, 400, "parallel_tool_calls"),
    ({"response_format": {"type": "xml"}}, 400, "response_format"),
    ({"response_format": {"type": "json_schema"}}, 400, "json_schema"),
    ({"top_logprobs": 2}, 400, "without `logprobs`"),
    ({"logprobs": True, "top_logprobs": 21}, 400, "top_logprobs"),
    ({"stop": ["x"] * 17}, 400, "stop"),
    ({"messages": [{"role": "assistant"}]}, 400, "neither content nor calls"),
    ({"messages": [{"role": "tool", "content": "x"}]}, 400, "tool_call_id"),
    ({"guided_regex": "a+"}, 400, "guided_regex"),
    ({"modalities": ["audio"]}, 400, "modalities"),
    ({"max_tokens": 10**9}, 400, "PromptTooLong"),
]


@pytest.mark.parametrize(("change", "status", "named"), NOT_ANSWERED)
def test_what_cannot_be_done_is_an_error_that_names_it_and_asks_no_model(
    change: dict[str, Any], status: int, named: str
) -> None:
    llm = FakeLLM()
    found, body = through(lambda address: post(address, HELLO | change), llm)
    assert found == status
    assert named in body["error"]["message"]
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert llm.prompts == []


@pytest.mark.parametrize(
    "harmless",
    [
        {"user": "u", "metadata": {"a": "b"}, "store": False},
        {"frequency_penalty": 0, "logit_bias": {}, "logprobs": False, "stop": None, "n": 1},
        {"tools": [], "tool_choice": "auto", "parallel_tool_calls": True, "response_format": {"type": "text"}},
        {"temperature": None, "max_tokens": None, "stream": False, "stream_options": None},
    ],
)
def test_what_changes_no_answer_is_accepted(harmless: dict[str, Any]) -> None:
    assert through(lambda address: post(address, HELLO | harmless)) == through(lambda address: post(address, HELLO))


@pytest.mark.parametrize("change", [{"input": [1, 2]}, {"input": []}, {"dimensions": 5}, {"model": "reader"}])
def test_embeddings_that_cannot_be_had_are_errors(change: dict[str, Any]) -> None:
    asked = {"model": "embedder", "input": "x"} | change
    assert through(lambda address: post(address, asked, "/embeddings"))[0] in (400, 404)


def test_a_prediction_whose_prompt_is_too_long_says_so(bench: Bench, tiny: Path) -> None:
    bench.method(UPSTREAM)
    bench.run(rounds(1, ["a"]), **model(tiny), **ALIASES, parameters={"max_tokens": 10**6})
    (line,) = bench.predictions()
    assert line.error is not None and "PromptTooLong" in line.error and line.usage.calls == 0
