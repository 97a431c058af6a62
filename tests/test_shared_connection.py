"""Claims about the connection that the containers of several cells share with an engine: each is given its own replies,
and what ends it ends it for all."""

from __future__ import annotations

import socket
import threading
from asyncio import Future, new_event_loop
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from gateway_machine import ENGINE, Machine, machine, model, patient
from test_share import answers as answers_of
from test_share import chat, own_engine
from upkeep.cell import wire
from upkeep.cell.lockstep import Engine, EngineDied, Generate
from upkeep.cell.remote import RemoteEngine
from upkeep.contract import Sampling
from upkeep.gateway.cells import Gateway
from upkeep.gateway.record import Replies
from upkeep.gateway.upstream import SOCKET

__all__ = ["machine", "model"]


def test_several_containers_share_a_connection_and_each_is_given_its_own_replies(model: Path, machine: Machine) -> None:
    """Whichever of them has the engine do a step; one goes without waiting for what it has asked."""

    def texts(engine: Engine, n: int) -> list[object]:
        return [answer[0] if isinstance(answer, tuple) else answer for answer in answers_of(engine, n)]

    sizes = (3, 6, 9)
    alone = [texts(own_engine(model), n) for n in sizes]
    connections = patient()
    with ExitStack() as stack:
        replies = Replies(machine.record, ENGINE, "m")
        stack.callback(replies.close)
        gateways = [Gateway("reader", replies, machine.load, connections, fresh=True) for _ in range(4)]
        first, *others = [RemoteEngine(str(stack.enter_context(gateway) / SOCKET)) for gateway in gateways]
        held = first.tokens.prompt(chat(2, "What?"))
        for most in (2, 60):
            first.add(Generate(held, Sampling(max_tokens=most), 0, Future(loop=new_event_loop())))
        assert len([*first.step()]) == 1, "the other is not done yet"
        with ThreadPoolExecutor() as pool:
            asked = [pool.submit(texts, engine, n) for engine, n in zip(others, sizes, strict=True)]
            first.close()
            assert [one.result() for one in asked] == alone
        assert [gateway.tally.asked for gateway in gateways[1:]] == [n + 1 for n in sizes]
    # Who comes next finds nothing of theirs.
    assert texts(own_engine(model), 6) == [
        answer[0] if isinstance(answer, tuple) else answer for answer in machine.ask(6, fresh=True)[0]
    ]


def test_a_connection_that_is_lost_is_lost_for_all_and_the_next_one_is_new(tmp_path: Path) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "s"))
    listener.listen()
    accepted: list[socket.socket] = []

    def serve() -> None:
        for _ in range(2):
            accepted.append(listener.accept()[0])
            wire.send(accepted[-1], wire.Ready("e", "1", 64, {}))

    thread = threading.Thread(target=serve)
    thread.start()
    connections = patient()
    one, other = (connections.join(str(tmp_path / "s"), lambda: False) for _ in range(2))
    assert len(accepted) == 1
    accepted[0].close()
    for share in (one, other):
        with pytest.raises(EngineDied):
            share.ask(wire.CountTokens("x"), int)
    third = connections.join(str(tmp_path / "s"), lambda: False)
    thread.join()
    assert len(accepted) == 2
    for share in (one, other, third):
        share.close()
    assert accepted[1].recv(1) == b"", "the last one closes it"
    listener.close()
