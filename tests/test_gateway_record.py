"""What the gateway keeps of prompts: to the token, once, bounded, and never another's."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Annotated

import msgspec
import pytest
from msgspec import Meta

from engine_models import chat, spec
from gateway_machine import ENGINE, WARM, Machine, machine, model, nobody, patient
from upkeep.cell import wire
from upkeep.cell.interface import Message
from upkeep.cell.lockstep import Handle, Request, lockstep
from upkeep.cell.remote import RemoteEngine
from upkeep.contract import Sampling
from upkeep.gateway import prompts
from upkeep.gateway.cells import Gateway
from upkeep.gateway.record import Replies, key_of
from upkeep.gateway.upstream import SOCKET

__all__ = ["machine", "model"]


def told(path: str, n: int = 4, sampling: Sampling | None = None) -> list[str]:
    """The keys that `n` probes are told, each with a call, and the first one with a second."""
    engine = RemoteEngine(path)

    async def main() -> list[str]:
        handles = [Handle(engine, spec(), 0, str(i)) for i in range(n)]
        await asyncio.gather(*(h.chat(chat(i + 1, "Who?"), sampling) for i, h in enumerate(handles)))
        await handles[0].logprobs("the captain took", " a coin")
        return [key for handle in handles for key in handle.keys]

    with lockstep(engine) as loop:
        found = loop.run(main())
    engine.close()
    return found


def kept(record: Path, key: str) -> tuple[prompts.Messages, prompts.Asked]:
    replies = Replies(record, ENGINE, "m")
    found = prompts.request(replies, bytes.fromhex(key))
    assert found is not None
    return prompts.prompt(replies, found[0]), found[1]


def messages_of(kept: prompts.Messages) -> list[Message]:
    return [Message(role=role, parts=parts) for role, parts in kept]


# ---------------------------------------------------------------- prompts


@pytest.mark.parametrize("sampling", [None, WARM], ids=["greedy", "sampled"])
def test_the_kept_prompt_is_to_the_token_what_the_engine_computed(machine: Machine, sampling: Sampling | None) -> None:
    computed: list[list[int]] = []
    add = machine.engine.add

    def noted(request: Request) -> None:
        computed.append(request.prompt.ids())
        add(request)

    machine.engine.add = noted  # type: ignore[method-assign]
    with machine.open() as (_, path):
        keys = told(path, sampling=sampling)
    tokens = machine.engine.tokens
    found = []
    for key in keys:
        messages, asked = kept(machine.record, key)
        scored = isinstance(asked, wire.Score)
        text, continuation = messages[0][1][0], messages[-1][1][0]
        prompt = tokens.scorable(text, continuation).prompt if scored else tokens.prompt(messages_of(messages))
        found.append(prompt.ids())  # type: ignore[attr-defined]
        assert scored or asked.sampling == (sampling or spec().sampling)
    assert sorted(found) == sorted(computed) and len(found) == 5
    assert messages_of(kept(machine.record, keys[-1])[0]) == chat(4, "Who?")


def test_a_document_of_many_prompts_is_kept_once_and_a_replay_adds_nothing(machine: Machine) -> None:
    with machine.open() as (_, path):
        keys = told(path, 8)
    sizes = [path.stat().st_size for path in machine.record.rglob("*.log")]
    entries = len(Replies(machine.record, ENGINE, "m"))
    for fresh in (False, True):
        with machine.open(fresh=fresh) as (gateway, path):
            assert told(path, 8) == keys and gateway.tally.asked == 9 * fresh
    parts = {part for key in keys for _, parts in kept(machine.record, key)[0] for part in parts}
    # A request, its prompt, its length, its reply and the reply's text each; a scored text's reply has no text.
    assert entries == len(parts) + 5 * 8 + 4
    assert len(Replies(machine.record, ENGINE, "m")) == entries + 9  # of which the last time were asked afresh
    asked = sum(len(part) for key in keys for _, parts in kept(machine.record, key)[0] for part in parts)
    assert 2 * sum(sizes) < asked


@pytest.mark.parametrize("most", [None, 2000])
def test_what_prompts_share_is_read_once_and_no_more_than_so_much_is_remembered(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, most: int | None
) -> None:
    with machine.open() as (_, path):
        asked = [bytes.fromhex(key) for key in told(path, 8)]
    monkeypatch.setattr(prompts, "LATELY_BYTES", most or prompts.LATELY_BYTES)
    replies, lately, read = Replies(machine.record, ENGINE, "m"), prompts.Lately(), list[bytes]()
    keys = [found[0] for key in asked if (found := prompts.request(replies, key)) is not None]
    get = replies.get
    monkeypatch.setattr(replies, "get", lambda key: (read.append(key), get(key))[1])
    alone = [prompts.prompt(replies, key) for key in keys]
    parts, apart = {key for key in read if key not in {prompts.key_of("prompt", one) for one in keys}}, len(read)
    assert [prompts.prompt(replies, key, lately) for key in keys] == alone and len(keys) == 9
    assert lately.size == sum(len(part) + prompts.ENTRY_BYTES for part in lately.values())
    if most is None:
        assert lately.keys() == parts and len(read) - apart == len(keys) + len(parts) < apart - 20
    else:
        assert lately.keys() < parts and len(parts) > 4


def test_a_record_from_before_prompts_were_kept_answers_and_is_completed(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before.setattr(prompts.Keeper, "keep_prompt", lambda *_: False)
        with machine.open() as (_, path):
            keys = told(path)
    old = {key: value for _, key, value in Replies(machine.record, ENGINE, "m").entries()}
    with Gateway("reader", replies := Replies(machine.record, ENGINE, "m"), nobody, patient()) as folder:
        assert told(str(folder / SOCKET)) == keys
    replies.close()
    new = {key: value for _, key, value in Replies(machine.record, ENGINE, "m").entries()}
    assert new.items() > old.items() and all(kept(machine.record, key) for key in keys)


def test_a_part_that_was_damaged_is_kept_again_when_the_model_is_asked_afresh(machine: Machine) -> None:
    with machine.open() as (_, path):
        keys = told(path)
    (log,) = machine.record.rglob("*.log")
    data = bytearray(log.read_bytes())
    messages, _ = kept(machine.record, keys[-1])
    part = key_of("part", messages[1][1][1].encode())
    data[data.find(part) + 40] ^= 1
    log.write_bytes(data)
    with pytest.raises(prompts.NotReadable, match="a part of the prompt"):
        kept(machine.record, keys[-1])
    with machine.open(fresh=True) as (_, path):
        told(path)
    assert kept(machine.record, keys[-1])[0] == messages


@pytest.mark.parametrize("limit", ["MAX_NEW_BYTES", "MAX_PROMPT_BYTES", "MAX_LISTED"])
def test_what_is_kept_of_a_containers_prompts_is_bounded_and_it_is_answered_all_the_same(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    if limit == "MAX_LISTED":
        few = Annotated[list[tuple[str, Annotated[list[str], Meta(max_length=1)]]], Meta(max_length=9)]
        monkeypatch.setattr(prompts, "_CHAT", msgspec.msgpack.Decoder(few))
    else:
        monkeypatch.setattr(prompts, limit, 1000)
    with machine.open() as (_, path):
        keys = told(path)
    replies = Replies(machine.record, ENGINE, "m")
    assert len(keys) == 5 and sum(prompts.request(replies, bytes.fromhex(key)) is not None for key in keys) <= 1


def test_a_prompt_in_another_spelling_is_never_given_for_the_one_that_was_asked(machine: Machine) -> None:
    """The bytes that a container sends may be longer than they need be: then they have a key of their own."""
    text = "the captain took"
    usual = msgspec.msgpack.encode([("user", [text])])
    strange = b"\xdc\x00\x01\x92\xa4user\xdc\x00\x01\xd9" + bytes([len(text)]) + text.encode()
    assert msgspec.msgpack.decode(usual) == msgspec.msgpack.decode(strange)
    with machine.open() as (gateway, path), socket.socket(socket.AF_UNIX) as cell:
        cell.connect(path)
        wire.receive(cell, wire.Ready)
        keys = []
        for number, content in enumerate((usual, strange)):
            wire.send(cell, {"type": "Chat", "key": number, "messages": msgspec.Raw(content)})
            wire.receive(cell, wire.Answer)
            asked = [wire.Generate(number, number, Sampling(max_tokens=2), 0)]
            for _ in range(8):
                wire.send(cell, wire.Step(asked, []))
                value = wire.receive(cell, wire.Answer).value
                keys += [one.key for one in msgspec.msgpack.decode(value, type=list[wire.Answered])]
                asked = []
        assert gateway.tally.asked == 2
    assert None not in keys and kept(machine.record, keys[0].hex())[0] == [("user", [text])]
    with pytest.raises(prompts.NotReadable, match="not the prompt that was asked"):
        kept(machine.record, keys[1].hex())
