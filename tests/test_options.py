"""Claims about what a chat may ask for: tools, constraints, stop strings and log-probabilities."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from transformers import AutoModelForCausalLM

from engine_models import SAMPLED, chat, engine, spec, together
from upkeep.cell import wire
from upkeep.cell.interface import Message, Reply, ToolCall
from upkeep.cell.lockstep import Engine, Handle, lockstep
from upkeep.contract import EngineSettings, ModelSpec, Sampling
from upkeep.gateway import cells, questions
from upkeep.gateway.prompts import reply_key
from upkeep.gateway.record import key_of
from upkeep.gateway.upstream import SOCKET
from upkeep.serving.make_model import tiny_llama

SRC = Path(__file__).resolve().parents[1] / "src"
LOOK_UP = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Say what a word means.",
        "parameters": {
            "type": "object",
            "properties": {"word": {"enum": ["lamp", "coin"]}, "long": {"$ref": "#/$defs/flag"}},
            "required": ["word", "long"],
            "additionalProperties": False,
            "$defs": {"flag": {"type": "boolean"}},
        },
    },
}
GO = {"type": "function", "function": {"name": "go"}}
SCHEMA = {
    "type": "object",
    "properties": {"place": {"enum": ["kitchen", "garden"]}, "sure": {"type": "boolean"}},
    "required": ["place", "sure"],
    "additionalProperties": False,
}
TEMPLATE = (
    "{% if tools %}<|system|>{{ tools | tojson }}<|end|>{% endif %}"
    "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}<|end|>\n{% endfor %}"
    "<|assistant|>\n"
)
QUESTION: list[Message] = [{"role": "user", "parts": ["Where is the coin?"]}]
CALLED: list[Message] = [
    *QUESTION,
    {"role": "assistant", "parts": [""], "tool_calls": [ToolCall("1", "look_up", '{"word": "lamp"}')]},
    {"role": "tool", "parts": ["a light"], "tool_call_id": "1"},
]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    tiny_llama(folder)
    return folder


def calling(**changes: object) -> ModelSpec:
    return spec(**({"chat_template": TEMPLATE, "tool_calls": "hermes", "sampling": Sampling(max_tokens=80)} | changes))


def started(tiny: Path, card: ModelSpec) -> Engine:
    from upkeep.serving.transformers_engine import TransformersEngine

    return TransformersEngine(str(tiny), card, EngineSettings(name="transformers"))


def ask(model: Engine, card: ModelSpec, messages: Sequence[Message] = QUESTION, **options: Any) -> Reply:
    with lockstep(model) as loop:
        return loop.run(Handle(model, card, 0, "p").chat(messages, **options))


# ---------------------------------------------------------------- what the model reads


@pytest.mark.parametrize(
    ("messages", "tools", "what"),
    [(QUESTION, [GO], "tools"), (CALLED[:2], [], "calls of tools"), (CALLED, [], "calls of tools")],
)
def test_a_template_that_passes_over_tools_is_an_error(
    tiny: Path, messages: list[Message], tools: list[dict[str, Any]], what: str
) -> None:
    model = engine(tiny)  # its own template knows no tools
    with pytest.raises(ValueError, match=f"passes over {what}"):
        model.tokens.prompt(messages, tools)


def test_a_model_reads_tools_calls_and_their_results(tiny: Path) -> None:
    tokens = started(tiny, calling()).tokens
    text = tokens.tokenizer.decode(tokens.prompt(CALLED, [LOOK_UP]).ids())  # type: ignore[attr-defined]
    for part in ("Say what a word means.", '<tool_call>{"name": "look_up", "arguments": {"word": "lamp"}}', "a light"):
        assert part in text
    with pytest.raises(ValueError, match="no JSON object"):
        tokens.prompt([{"role": "assistant", "parts": [""], "tool_calls": [ToolCall("1", "go", "[1]")]}])


# ---------------------------------------------------------------- what the model writes


@pytest.mark.parametrize("sampling", [Sampling(max_tokens=80), Sampling(temperature=1.0, max_tokens=80)])
@pytest.mark.parametrize("form", ["hermes", "json"])
@pytest.mark.parametrize("choice", ["required", "look_up"])
def test_a_required_call_is_well_formed_though_the_model_knows_nothing(
    tiny: Path, form: str, choice: str, sampling: Sampling
) -> None:
    card = calling(tool_calls=form)
    reply = ask(started(tiny, card), card, tools=[GO, LOOK_UP], tool_choice=choice, sampling=sampling)
    if reply.finish_reason == "stop":
        assert reply.tool_calls and reply.text == ""
    for call in reply.tool_calls:
        arguments = json.loads(call.arguments)
        assert call.name in ("go", "look_up") and (choice == "required" or call.name == choice)
        assert call.name == "go" or (arguments["word"] in ("lamp", "coin") and isinstance(arguments["long"], bool))
    if choice == "look_up" and form == "json":
        assert reply.tool_calls, "one call, and it fits"


def test_an_answer_is_of_the_schema_that_was_asked_for(tiny: Path) -> None:
    card = calling()
    model = started(tiny, card)
    for options in ({}, {"tools": [LOOK_UP]}, {"tools": [LOOK_UP], "tool_choice": "none"}):
        reply = ask(model, card, schema=SCHEMA, **options)
        assert reply.tool_calls or json.loads(reply.text)["place"] in ("kitchen", "garden")


def test_a_schema_that_cannot_be_followed_fails_alone(tiny: Path) -> None:
    card = calling()
    model = started(tiny, card)

    async def both() -> list[Any]:
        handles = [Handle(model, card, 0, str(n)) for n in range(2)]
        asked = [h.chat(QUESTION, schema=s) for h, s in zip(handles, ({"type": "nonsense"}, SCHEMA), strict=True)]
        return await asyncio.gather(*asked, return_exceptions=True)

    with lockstep(model) as loop:
        bad, good = loop.run(both())
    assert isinstance(bad, ValueError) and "nonsense" in str(bad)
    assert json.loads(good.text)["place"]


def test_an_answer_ends_before_its_first_stop_string_and_goes_no_further(tiny: Path) -> None:
    model, card = engine(tiny), spec(sampling=Sampling(max_tokens=40))
    whole = ask(model, card, chat(1, "Who?"))
    for start, length in ((0, 1), (12, 9), (30, 3), (len(whole.text) - 4, 4)):
        stop = whole.text[start : start + length]
        reply = ask(model, card, chat(1, "Who?"), stop=["never there", stop])
        assert reply.text == whole.text[: whole.text.index(stop)] and reply.finish_reason == "stop"
        assert start > 30 or reply.completion_tokens < whole.completion_tokens
    assert ask(model, card, chat(1, "Who?"), stop=["never there"]).text == whole.text


def test_probabilities_of_generated_tokens_are_those_of_the_given_text(tiny: Path) -> None:
    model, card = engine(tiny), spec(sampling=Sampling(max_tokens=12))
    reply = ask(model, card, chat(1, "Who?"), top_logprobs=3)
    assert len(reply.logprobs) == reply.completion_tokens == 12
    assert all(one.logprob == one.top[0][1] and one.text == one.top[0][0] for one in reply.logprobs), "greedy"
    assert all([v for _, v in one.top] == sorted((v for _, v in one.top), reverse=True) for one in reply.logprobs)
    ids = model.tokens.prompt(chat(1, "Who?")).ids()
    plain = AutoModelForCausalLM.from_pretrained(tiny)
    for one in reply.logprobs:
        with torch.inference_mode():
            logits = plain(torch.tensor([ids])).logits[0, -1].log_softmax(-1)
        assert logits.max().item() == pytest.approx(one.logprob, abs=1e-3)
        ids.append(int(logits.argmax()))


def test_options_change_no_other_answer_and_are_not_changed_by_others(tiny: Path) -> None:
    card = calling()
    model = started(tiny, card)
    chats = [chat(n, "Who?", 40) for n in range(1, 7)]
    alone = together(model, chats, SAMPLED)
    options: list[dict[str, Any]] = [{"schema": SCHEMA}, {"stop": ["e"]}, {"top_logprobs": 2}, {"tools": [LOOK_UP]}]
    single = [ask(model, card, sampling=SAMPLED, **one) for one in options]

    async def mixed() -> list[Reply]:
        plain = [Handle(model, spec(), 0, m[-1]["parts"][-1]).chat(m, SAMPLED) for m in chats]
        special = [Handle(model, card, 0, "p").chat(QUESTION, SAMPLED, **one) for one in options]
        return await asyncio.gather(*plain, *special)

    with lockstep(model) as loop:
        found = loop.run(mixed())
    assert [reply.text for reply in found[:6]] == alone
    assert [(r.text, r.tool_calls, r.finish_reason) for r in found[6:]] == [
        (r.text, r.tool_calls, r.finish_reason) for r in single
    ]


# ---------------------------------------------------------------- what replies are kept by


def test_requests_without_options_are_kept_by_what_they_always_were() -> None:
    frame = msgspec.msgpack.encode(wire.Chat(3, [("system", ["s"]), ("user", ["a", "b"])]))
    question = msgspec.msgpack.decode(frame, type=questions.Chat)
    prompt = key_of("chat", bytes(question.messages))
    request = wire.Generate(1, 2, Sampling(max_tokens=8, temperature=0.5), 7)
    sent = msgspec.msgpack.decode(msgspec.msgpack.encode(request), type=wire.Generate)
    assert prompt.hex() == "fb3e7954f491eea4f6ee88fee3395863ed8a69ef731ead7da60ad8962fb72fd6"
    assert reply_key(prompt, sent).hex() == "d7efc00128f7320974122fb9dbf6e38b7c7f1a65c82b1b92d635525e48dd0a40"


def test_every_option_is_part_of_what_a_reply_is_kept_by() -> None:
    others = [
        wire.Options(stop=["a"]),
        wire.Options(stop=["b"]),
        wire.Options(grammar="a"),
        wire.Options(top_logprobs=1),
    ]
    assert {name for one in others for name in msgspec.to_builtins(one)} == set(wire.Options.__struct_fields__)
    keys = [reply_key(b"p", wire.Generate(0, 0, Sampling(), 0, one)) for one in (None, wire.Options(), *others)]
    assert keys[0] == keys[1] and len(set(keys)) == 5


ASKED: list[tuple[list[Message], dict[str, Any]]] = [
    (QUESTION, {}),
    (QUESTION, {"tools": [LOOK_UP], "tool_choice": "required"}),
    (QUESTION, {"tools": [LOOK_UP]}),
    (CALLED, {"tools": [LOOK_UP]}),
    (CALLED, {}),
    (QUESTION, {"schema": SCHEMA}),
    (QUESTION, {"stop": ["e", "a"]}),
    (QUESTION, {"top_logprobs": 2}),
]


def test_options_pass_through_the_gateway_and_are_answered_from_the_record(tiny: Path, tmp_path: Path) -> None:
    from gateway_machine import ENGINE, nobody, patient
    from test_share import serving
    from upkeep.cell.remote import RemoteEngine
    from upkeep.gateway.record import Replies

    card = calling()
    own = started(tiny, card)
    replies = [ask(own, card, messages, **options) for messages, options in ASKED]
    assert replies[1].tool_calls and replies[7].logprobs and replies[6].finish_reason == "stop"
    (tmp_path / "engine").mkdir()

    def told(path: str) -> list[Reply]:
        remote = RemoteEngine(path)
        found = [ask(remote, card, messages, **options) for messages, options in ASKED]
        with pytest.raises(RuntimeError, match="no JSON object"):
            ask(remote, card, [{"role": "assistant", "parts": [""], "tool_calls": [ToolCall("1", "go", "[1]")]}])
        remote.close()
        return found

    def untimed(found: Sequence[Reply]) -> list[object]:
        return [
            (r.text, r.finish_reason, r.tool_calls, r.logprobs, r.prompt_tokens, r.completion_tokens) for r in found
        ]

    with serving(started(tiny, card), tmp_path / "engine") as path:
        (tmp_path / "engine" / SOCKET).symlink_to((Path.cwd() / path).resolve())
        gateway = cells.Gateway(
            "reader", Replies(tmp_path / "record", ENGINE, "m"), lambda _: tmp_path / "engine", patient()
        )
        with gateway as folder:
            assert untimed(told(str(folder / SOCKET))) == untimed(replies)
            assert gateway.tally.asked == len(ASKED)
    with cells.Gateway("reader", Replies(tmp_path / "record", ENGINE, "m"), nobody, patient()) as folder:
        remote = RemoteEngine(str(folder / SOCKET))
        assert untimed([ask(remote, card, m, **o) for m, o in ASKED]) == untimed(replies)


# ---------------------------------------------------------------- vLLM


@pytest.mark.vllm
def test_vllm_does_what_transformers_does(tiny: Path, tmp_path: Path, vllm_python: Path) -> None:
    card = calling(context_length=2000)
    own = started(tiny, card)
    (tmp_path / "card.json").write_bytes(msgspec.json.encode(card))
    program = """
import sys, json, asyncio, msgspec
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from upkeep.serving import vllm_prefixes
from upkeep.serving.vllm_engine import VllmEngine
from upkeep.cell.lockstep import Handle, lockstep
from upkeep.contract import EngineSettings, ModelSpec
vllm_prefixes.LONG = 0  # of short prompts, too, what was hashed before is not hashed again
if __name__ == "__main__":
    from dataclasses import asdict
    card = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=ModelSpec)
    engine = VllmEngine(sys.argv[2], card, EngineSettings(name="vllm", options={"kv_cache_gib": 0.25}))
    asked = json.loads(Path(sys.argv[4]).read_text())
    async def main():
        handle = Handle(engine, card, 0, "p")
        replies = [asdict(await handle.chat(m, **o)) for m, o in asked]
        scores = [[asdict(s) for s in await handle.logprobs("", "The house was old.")]]
        scores.append([asdict(s) for s in await handle.logprobs(asked[0][0], "in the house")])
        return replies, scores
    with lockstep(engine) as loop:
        found = loop.run(main())
    Path(sys.argv[5]).write_text(json.dumps(found))
"""
    (tmp_path / "program.py").write_text(program)
    plain = [(m, o) for m, o in ASKED if m is QUESTION]
    (tmp_path / "asked.json").write_text(json.dumps(plain))
    subprocess.run(
        [
            *(vllm_python, tmp_path / "program.py", tmp_path / "card.json", tiny, SRC),
            *(tmp_path / "asked.json", tmp_path / "found.json"),
        ],
        env=os.environ | {"PYTHONPATH": str(SRC)},
        check=True,
    )
    replies, scores = json.loads((tmp_path / "found.json").read_text())
    for (messages, options), found in zip(plain, replies, strict=True):
        reply = ask(own, card, messages, **options)
        assert (found["text"], found["finish_reason"]) == (reply.text, reply.finish_reason), options
        assert [(c["name"], c["arguments"]) for c in found["tool_calls"]] == [
            (c.name, c.arguments) for c in reply.tool_calls
        ]
        assert [one["logprob"] for one in found["logprobs"]] == pytest.approx(
            [one.logprob for one in reply.logprobs], abs=1e-3
        )

    async def scored() -> list[Any]:
        handle = Handle(own, card, 0, "p")
        return [await handle.logprobs("", "The house was old."), await handle.logprobs(QUESTION, "in the house")]

    with lockstep(own) as loop:
        for mine, other in zip(loop.run(scored()), scores, strict=True):
            assert [(s.start, s.end) for s in mine] == [(s["start"], s["end"]) for s in other]
            assert [s.logprob or 0 for s in mine] == pytest.approx([s["logprob"] or 0 for s in other], abs=1e-4)
