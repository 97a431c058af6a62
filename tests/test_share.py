"""Claims about engines that several cells share: the same answers, and a cell that misbehaves harms no other."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from conftest import copy_repository
from engine_models import chat, spec
from upkeep.batches import batches, find
from upkeep.catalog import Catalog
from upkeep.cell import wire
from upkeep.cell.lockstep import Engine, EngineDied, Handle, lockstep
from upkeep.cell.remote import RemoteEngine
from upkeep.contract import EngineSettings, Sampling
from upkeep.errors import UpkeepError
from upkeep.jobs import Cell
from upkeep.serving.make_model import tiny_llama
from upkeep.serving.serve import serve


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shared")
    tiny_llama(folder)
    return folder


def own_engine(model: Path) -> Engine:
    from upkeep.serving.transformers_engine import TransformersEngine

    return TransformersEngine(str(model), spec(), EngineSettings(name="transformers"))


@pytest.fixture
def shared(model: Path, tmp_path: Path) -> Iterator[str]:
    """The socket of an engine that serves one cell after the other until the test ends."""
    with serving(own_engine(model), tmp_path) as path:
        yield path


@contextlib.contextmanager
def serving(engine: Engine, folder: Path) -> Iterator[str]:
    listener = socket.socket(socket.AF_UNIX)
    here = Path.cwd()
    os.chdir(folder)  # a socket's path may have 107 bytes
    listener.bind("s")
    os.chdir(here)
    listener.listen()
    ready = wire.Ready(engine.name, engine.version, engine.context_length, {"engine": engine.name})

    def work() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection, contextlib.suppress(EngineDied):
                    serve(engine, connection, ready)

    threading.Thread(target=work, daemon=True).start()
    yield os.path.relpath(folder / "s")
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def answers(engine: Engine, n: int = 6, sampling: Sampling | None = None) -> list[tuple[object, ...]]:
    """What `n` probes of a stream are answered, with all that is booked on them."""

    async def main() -> list[tuple[object, ...]]:
        handles = [Handle(engine, spec(), 0, str(i)) for i in range(n)]
        replies = await asyncio.gather(*(h.chat(chat(i + 1, "Who?"), sampling) for i, h in enumerate(handles)))
        scores = [await handles[0].logprobs("the captain took", " a coin")]
        counts = [handles[0].count("a coin"), handles[0].count_prompt(chat(2, "Who?"))]
        return [*((r.text, r.cached_tokens, h.usage) for r, h in zip(replies, handles, strict=True)), *scores, *counts]

    with lockstep(engine) as loop:
        found = loop.run(main())
    if isinstance(engine, RemoteEngine):
        engine.close()
    return found


@pytest.mark.parametrize("sampling", [None, Sampling(temperature=1.0, max_tokens=8)], ids=["greedy", "sampled"])
def test_a_shared_engine_answers_and_counts_as_an_own_one(model: Path, shared: str, sampling: Sampling | None) -> None:
    own, other = own_engine(model), RemoteEngine(shared)
    assert answers(own, sampling=sampling) == answers(other, sampling=sampling)
    assert own.computed == other.computed


def test_a_cell_finds_the_engine_as_if_newly_started(model: Path, shared: str) -> None:
    first = answers(RemoteEngine(shared))
    assert answers(RemoteEngine(shared)) == first  # what was cached is part of it


def test_a_cell_that_was_killed_in_mid_answer_leaves_nothing_behind(model: Path, shared: str) -> None:
    with socket.socket(socket.AF_UNIX) as killed:
        killed.connect(shared)
        wire.receive(killed, wire.Ready)
        wire.send(killed, wire.Chat(0, [("user", ["the captain " * 1000])]))
        asked = [wire.Generate(n, 0, Sampling(max_tokens=2 + 20 * n), 0) for n in range(12)]
        wire.send(killed, wire.Step(asked, []))
    assert answers(RemoteEngine(shared)) == answers(own_engine(model))


GARBAGE = [
    b"\xff" * 8,  # 2^64 bytes announced
    (10).to_bytes(8, "big") + b"not a word",
    (1).to_bytes(8, "big") + b"\xc0",
    (0).to_bytes(8, "big"),
    (100).to_bytes(8, "big") + b"\x91" * 100,  # deep nesting
    *(
        len(frame).to_bytes(8, "big") + frame
        for frame in (
            msgspec.msgpack.encode({"type": "Step", "requests": [], "forget": [], "more": 1}),
            msgspec.msgpack.encode(
                wire.Step([wire.Generate(0, 99, Sampling(), 0)], [])  # a prompt that it never sent
            ),
            msgspec.msgpack.encode({"type": "Decode", "ids": ["x"]}),
            msgspec.msgpack.encode({"type": "Chat", "key": -1, "messages": []}),
        )
    ),
]


@pytest.mark.parametrize("garbage", GARBAGE, ids=range(len(GARBAGE)))
def test_who_breaks_the_rules_is_disconnected_and_the_next_cell_is_served(shared: str, garbage: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as hostile:
        hostile.connect(shared)
        wire.receive(hostile, wire.Ready)
        hostile.sendall(garbage)
        hostile.settimeout(30)
        with contextlib.suppress(ConnectionResetError):
            assert hostile.recv(1) == b""
    assert RemoteEngine(shared).context_length == 20_000


def test_a_text_that_cannot_be_tokenised_fails_alone(model: Path, tmp_path: Path) -> None:
    own = own_engine(model)
    scorable = own.tokens.scorable

    def picky(prompt: str, text: str) -> object:
        if "coin" in text:
            raise TypeError("no coins")
        return scorable(prompt, text)

    own.tokens.scorable = picky  # type: ignore[assignment,method-assign]
    with serving(own, tmp_path) as path:
        tokens = RemoteEngine(path).tokens
        with pytest.raises(RuntimeError, match="TypeError: no coins") as caught:
            tokens.scorable("", "a coin")
        assert not isinstance(caught.value, EngineDied)
        assert tokens.scorable("the captain", " took").prompt.length > 0


def test_a_request_beyond_the_context_is_refused(model: Path, shared: str) -> None:
    engine = RemoteEngine(shared)
    held = engine.tokens.prompt(chat(1, "Who?"))
    with pytest.raises(EngineDied, match="gone"):
        engine._connection.ask(wire.Step([wire.Generate(0, held.key, Sampling(max_tokens=10**9), 0)], []), list)  # type: ignore[attr-defined]


def test_a_dead_engine_is_not_taken_for_a_wrong_answer(model: Path, tmp_path: Path) -> None:
    engine = own_engine(model)

    def fail() -> None:
        raise RuntimeError("out of memory")

    engine.step = fail  # type: ignore[assignment,method-assign]
    with serving(engine, tmp_path) as path, pytest.raises(EngineDied, match="out of memory"):
        answers(RemoteEngine(path), 1)


def test_no_engine_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(EngineDied, match="no engine at"):
        RemoteEngine(str(tmp_path / "nothing"))


# ---------------------------------------------------------------- batches


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    return Catalog(copy_repository(tmp_path_factory.mktemp("batches")))


def test_every_cell_is_in_one_batch(catalog: Catalog) -> None:
    cells = catalog.cells(catalog.suite("mini"))
    assert sorted(cell for batch in batches(catalog, cells) for cell in batch.cells) == sorted(cells)


def test_a_batch_has_one_model_one_engine_and_no_more_than_it_may(catalog: Catalog) -> None:
    for suite in ("mini", "oaks"):
        for batch in batches(catalog, catalog.cells(catalog.suite(suite))):
            assert len({(cell.model, catalog.engine(cell.model)) for cell in batch.cells}) == 1
            assert len(batch.cells) <= catalog.config.cells_per_job


def test_trained_models_of_two_datasets_are_two_models(catalog: Catalog) -> None:
    cells = [Cell(d, "closed_book", "default", "tiny+sft.lora_tiny") for d in ("oaks_babi_mini", "oaks_novel_mini")]
    assert len(batches(catalog, cells)) == 2


def test_an_unknown_batch_is_refused_with_the_known_ones(catalog: Catalog) -> None:
    with pytest.raises(UpkeepError, match=r"tiny\.transformers"):
        find(catalog, "nothing")
