"""Claims about the gateway: a model is never asked the same thing twice, and never answers for another."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from engine_models import chat, spec
from gateway_machine import ENGINE, WARM, Machine, assert_disconnected, machine, model, nobody, patient
from test_share import GARBAGE, answers, own_engine
from upkeep.cell import wire
from upkeep.cell.lockstep import Engine, EngineDied, Generate, Generated, Handle, lockstep
from upkeep.cell.remote import RemoteEngine
from upkeep.contract import Sampling
from upkeep.errors import UpkeepError
from upkeep.gateway import prompts
from upkeep.gateway.cells import Gateway
from upkeep.gateway.record import Replies
from upkeep.gateway.upstream import SOCKET

__all__ = ["machine", "model"]


@pytest.mark.parametrize("sampling", [None, WARM], ids=["greedy", "sampled"])
def test_a_model_answers_and_is_counted_through_it_as_without_it(
    model: Path, machine: Machine, sampling: Sampling | None
) -> None:
    found, asked = machine.ask(sampling=sampling)
    assert found == answers(own_engine(model), sampling=sampling) and asked == 7


@pytest.mark.parametrize("sampling", [None, WARM], ids=["greedy", "sampled"])
def test_what_was_asked_is_answered_without_the_engine(machine: Machine, sampling: Sampling | None) -> None:
    before, _ = machine.ask(sampling=sampling)
    replies = Replies(machine.record, ENGINE, "m")
    with Gateway("reader", replies, nobody, patient()) as folder:
        assert answers(RemoteEngine(str(folder / SOCKET)), sampling=sampling) == before


def test_probabilities_of_a_given_text_are_those_of_the_engine_and_are_kept(model: Path, machine: Machine) -> None:
    texts = [
        ("", "The house"),
        ("the captain took ", "a coin"),
        (chat(1, "Who?"), "a coin"),
        (chat(1, "Who?"), " took"),
    ]

    def scores(engine: Engine) -> list[object]:
        async def main() -> list[object]:
            return [await Handle(engine, spec(), 0, "p").logprobs(*text) for text in texts]  # type: ignore[arg-type]

        with lockstep(engine) as loop:
            return loop.run(main())

    with machine.open() as (gateway, path):
        found = scores(RemoteEngine(path))
        assert found == scores(own_engine(model)) and gateway.tally.asked == len(texts)
    with Gateway("reader", Replies(machine.record, ENGINE, "m"), nobody, patient()) as folder:
        assert scores(RemoteEngine(str(folder / SOCKET))) == found


def test_only_what_is_new_is_asked(model: Path, machine: Machine) -> None:
    machine.ask(4)
    found, asked = machine.ask(6)
    assert asked == 2 and [one[0] for one in found[:6]] == [one[0] for one in answers(own_engine(model), 6)[:6]]  # type: ignore[index]


def together(path: str, handles: int, sampling: Sampling, *, same_seed: bool) -> list[str]:
    """Replies to one question that several ask at the same time."""
    engine = RemoteEngine(path)

    async def main() -> list[str]:
        probes = [Handle(engine, spec(), 0, "probe", 0 if same_seed else trial) for trial in range(handles)]
        return [r.text for r in await asyncio.gather(*(h.chat(chat(1, "Who?"), sampling) for h in probes))]

    with lockstep(engine) as loop:
        found = loop.run(main())
    engine.close()
    return found


@pytest.mark.parametrize(
    ("sampling", "same_seed", "asked"),
    [(Sampling(max_tokens=8), False, 1), (WARM, True, 1), (WARM, False, 5)],
    ids=["greedy", "sampled with one seed", "sampled with five seeds"],
)
def test_equal_requests_at_the_same_time_are_asked_once_and_trials_do_not_collapse(
    machine: Machine, sampling: Sampling, same_seed: bool, asked: int
) -> None:
    with machine.open() as (gateway, path):
        first = together(path, 5, sampling, same_seed=same_seed)
        assert gateway.tally.asked == asked and (len(set(first)) == 1) == (asked == 1)
    with machine.open() as (gateway, path):
        assert together(path, 5, sampling, same_seed=same_seed) == first and not gateway.tally.asked


OTHERS = {
    "temperature": Sampling(temperature=0.5, max_tokens=8),
    "top_p": Sampling(temperature=1.0, top_p=0.5, max_tokens=8),
    "top_k": Sampling(temperature=1.0, top_k=2, max_tokens=8),
    "min_p": Sampling(temperature=1.0, min_p=0.5, max_tokens=8),
    "repetition_penalty": Sampling(temperature=1.0, repetition_penalty=1.5, max_tokens=8),
    "presence_penalty": Sampling(temperature=1.0, presence_penalty=1.5, max_tokens=8),
    "max_tokens": Sampling(temperature=1.0, max_tokens=9),
}


def test_every_parameter_of_decoding_is_part_of_what_a_reply_is_kept_by(machine: Machine) -> None:
    assert set(OTHERS) == set(Sampling.__struct_fields__)
    for number, sampling in enumerate([WARM, *OTHERS.values()], 1):
        with machine.open() as (gateway, path):
            together(path, 1, sampling, same_seed=True)
            assert gateway.tally.asked == 1, number


def test_another_engine_is_asked_itself(machine: Machine) -> None:
    machine.ask(1)
    with machine.open({"weights": "b"}) as (gateway, path):
        answers(RemoteEngine(path), 1)
        assert gateway.tally.asked == 2 and not gateway.tally.recorded


def test_asked_afresh_the_engine_answers_and_the_earlier_replies_are_kept(machine: Machine) -> None:
    before, _ = machine.ask(3)
    entries = len(Replies(machine.record, ENGINE, "m"))
    again, asked = machine.ask(3, fresh=True)
    assert again == before and asked == 4 and len(Replies(machine.record, ENGINE, "m")) == entries + 4


def test_a_failed_request_is_not_kept(machine: Machine) -> None:
    step = machine.engine.step
    machine.engine.step = lambda: [(request, RuntimeError("no luck")) for request, _ in step()]  # type: ignore[method-assign]
    for _ in range(2):
        with machine.open() as (gateway, path), pytest.raises(RuntimeError, match="no luck"):
            together(path, 1, WARM, same_seed=True)
        assert gateway.tally.asked == 1
    machine.engine.step = step  # type: ignore[method-assign]
    with machine.open() as (gateway, path):
        assert together(path, 1, WARM, same_seed=True)


def test_an_engine_that_dies_ends_the_container_and_what_it_said_before_is_kept(machine: Machine) -> None:
    with machine.open() as (_, path):
        together(path, 1, WARM, same_seed=True)

    def fail() -> None:
        raise RuntimeError("out of memory")

    machine.engine.step = fail  # type: ignore[assignment,method-assign]
    with machine.open() as (gateway, path):
        assert together(path, 1, WARM, same_seed=True)
        with pytest.raises(EngineDied, match="out of memory"):
            together(path, 1, Sampling(max_tokens=3), same_seed=True)
        assert gateway.failure is None  # the next attempt may find another engine


def test_an_engine_that_cannot_be_loaded_is_the_reason_that_is_told(machine: Machine) -> None:
    machine.ask(1)
    replies = Replies(machine.record, ENGINE, "m")
    gateway = Gateway("reader", replies, nobody, patient())
    with gateway as folder, pytest.raises(EngineDied, match="no engine may be asked"):
        together(str(folder / SOCKET), 1, WARM, same_seed=True)
    assert gateway.failure is not None and "no engine may be asked" in str(gateway.failure)


@pytest.mark.parametrize("garbage", GARBAGE, ids=range(len(GARBAGE)))
def test_who_breaks_the_rules_is_disconnected_and_the_next_is_served(machine: Machine, garbage: bytes) -> None:
    with machine.open() as (_gateway, path):
        with socket.socket(socket.AF_UNIX) as hostile:
            hostile.connect(path)
            wire.receive(hostile, wire.Ready)
            hostile.sendall(garbage)
            hostile.settimeout(30)
            with contextlib.suppress(ConnectionResetError):
                while hostile.recv(1 << 16):
                    pass
        assert RemoteEngine(path).context_length == 20_000


def test_what_a_container_holds_is_bounded(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.ask(1)
    monkeypatch.setattr("upkeep.gateway.sessions.MAX_HELD_BYTES", 2000)
    with machine.open() as (_, path), socket.socket(socket.AF_UNIX) as hostile:
        hostile.connect(path)
        wire.receive(hostile, wire.Ready)
        text = "x" * 500
        answers: list[object] = []
        with contextlib.suppress(EOFError, OSError):
            for key in range(100):
                wire.send(hostile, wire.Chat(key, [("user", [text])]))
                answers.append(wire.receive(hostile, wire.Answer))
        assert len(answers) < 10


def test_it_ends_at_once_whatever_its_container_is_doing(machine: Machine) -> None:
    with machine.open() as (_, path):
        idle = socket.socket(socket.AF_UNIX)
        idle.connect(path)
        wire.receive(idle, wire.Ready)
    with idle:
        assert idle.recv(1) == b""


def test_it_ends_though_an_engine_is_being_loaded(machine: Machine) -> None:
    machine.ask(1)
    loading = threading.Event()

    def slow(given_up: Callable[[], bool]) -> Path:
        loading.set()
        while not given_up():
            time.sleep(0.01)
        raise UpkeepError("nobody waits")

    with (
        Gateway("reader", Replies(machine.record, ENGINE, "m"), slow, patient()) as folder,
        socket.socket(socket.AF_UNIX) as cell,
    ):
        cell.connect(str(folder / SOCKET))
        wire.receive(cell, wire.Ready)
        wire.send(cell, wire.CountTokens("never counted"))
        assert loading.wait(30)


def test_it_ends_though_the_engine_is_at_work(machine: Machine) -> None:
    working, done = threading.Event(), threading.Event()

    def endless() -> list[object]:
        working.set()
        done.wait(60)
        return []

    machine.engine.step = endless  # type: ignore[assignment,method-assign]
    with machine.open() as (_, path), socket.socket(socket.AF_UNIX) as cell:
        cell.connect(path)
        wire.receive(cell, wire.Ready)
        wire.send(cell, wire.Chat(0, [("user", ["never answered"])]))
        wire.receive(cell, wire.Answer)
        wire.send(cell, wire.Step([wire.Generate(0, 0, WARM, 0)], []))
        assert working.wait(30)
        begin = time.monotonic()
    assert time.monotonic() - begin < 10
    done.set()


def test_whatever_numbers_a_container_gives_no_reply_is_kept_for_another_request(model: Path, machine: Machine) -> None:
    """Else one that numbers two requests alike would have one's reply taken for the other's, in all cells."""
    texts = ["the captain took", "a coin of the harbour", "the captain took a coin", "of the harbour"]
    warm = Sampling(max_tokens=4)
    with machine.open() as (_, path), socket.socket(socket.AF_UNIX) as cell:
        cell.connect(path)
        wire.receive(cell, wire.Ready)

        def ask(question: object) -> None:
            wire.send(cell, question)
            wire.receive(cell, wire.Answer)

        ask(wire.Chat(0, [("user", [texts[0]])]))
        ask(wire.Chat(1, [("user", [texts[1]])]))
        ask(wire.Step([wire.Generate(7, 0, warm, 0), wire.Generate(7, 1, warm, 0)], [0]))
        for _ in range(8):
            ask(wire.Step([], []))
        ask(wire.Chat(1, [("user", [texts[2]])]))
        ask(wire.Step([wire.Generate(7, 1, warm, 0)], []))
        ask(wire.Chat(1, [("user", [texts[3]])]))
        ask(wire.Step([wire.Generate(7, 1, warm, 0)], [1, 1, 99]))
        for _ in range(8):
            ask(wire.Step([], []))
    own = own_engine(model)
    replies = Replies(machine.record, ENGINE, "m")
    with Gateway("reader", replies, machine.load, patient()) as folder:
        engine = RemoteEngine(str(folder / SOCKET))
        for text in texts:
            asked = [generated(one, text, warm) for one in (engine, own)]
            assert asked[0] == asked[1], text
        engine.close()


@pytest.mark.parametrize(
    "question",
    [
        wire.Step([wire.Generate(0, 0, WARM, 0)], []),
        wire.Step([wire.Score(0, 0, [1])], []),
        {"type": "Get", "key": prompts.prompt_key("chat", b"")},
        {"type": "Prompt", "key": 0},
        {"type": "Embed", "texts": ["The captain took a coin."]},
    ],
    ids=["its prompt", "its prompt's score", "by key", "its text", "its vectors"],
)
def test_of_what_another_container_asked_nothing_can_be_had(machine: Machine, question: object) -> None:
    """The record holds later documents, asked about in other cells: only who asks the very same is told."""
    with machine.open() as (_, path):
        with socket.socket(socket.AF_UNIX) as before:
            before.connect(path)
            wire.receive(before, wire.Ready)
            for asked in (
                wire.Chat(0, [("user", ["the captain took"])]),
                wire.Step([wire.Generate(0, 0, WARM, 0)], []),
            ):
                wire.send(before, asked)
                wire.receive(before, wire.Answer)
        assert_disconnected(path, question)


def test_a_reply_is_the_same_to_the_byte_whoever_asked_before(machine: Machine) -> None:
    """But for the count of tokens that were computed, and for the time that it takes."""

    def replies() -> list[bytes]:
        with machine.open() as (_, path), socket.socket(socket.AF_UNIX) as cell:
            cell.connect(path)
            found = [msgspec.msgpack.encode(wire.receive(cell, wire.Ready))]
            questions = [wire.CountTokens("a coin"), wire.Chat(0, [("user", ["the captain took"])])]
            for question in (*questions, wire.Step([wire.Generate(0, 0, WARM, 0)], []), *[wire.Step([], [])] * 9):
                wire.send(cell, question)
                found.append(bytes(wire.receive(cell, wire.Answer).value))
            empty = msgspec.msgpack.encode([])
            return [value for value in found if value != empty]

    computed, recorded = replies(), replies()
    assert computed == recorded and len(computed) == 4


def generated(engine: Engine, text: str, sampling: Sampling) -> list[int]:
    """The tokens with which a text goes on."""

    async def main() -> list[int]:
        future: asyncio.Future[Generated] = asyncio.get_running_loop().create_future()
        engine.add(Generate(engine.tokens.prompt([{"role": "user", "parts": [text]}]), sampling, 0, future))
        return list((await future).ids)

    with lockstep(engine) as loop:
        return loop.run(main())
