"""Embedders behind the gateway: a text's vector is its own, and computed once."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from conftest import ROOT
from gateway_machine import ENGINE, assert_disconnected, nobody, patient
from upkeep.catalog import Catalog
from upkeep.cell import wire
from upkeep.cell.embedder import RemoteEmbedder
from upkeep.cell.lockstep import EngineDied
from upkeep.gateway.cells import Gateway
from upkeep.gateway.record import Replies
from upkeep.gateway.upstream import SOCKET
from upkeep.serving.embedder import serve as served
from upkeep.serving.embedding import SentenceEmbedder, load_embedder

TEXTS = [
    "The lamp is in the attic.",
    "rain " * 400,
    "",
    "a",
    "Where is the lamp?",
    "The lamp is in the attic.",
    "日本語 🙂",
]
EMBEDDER = Catalog(ROOT).model("minilm")


@pytest.fixture(scope="module")
def minilm() -> SentenceEmbedder:
    return load_embedder(EMBEDDER, None)


@contextlib.contextmanager
def embedding(minilm: SentenceEmbedder, folder: Path, *, fresh: bool = False) -> Iterator[tuple[Gateway, str]]:
    """The way to an embedder whose replies are kept in `folder`; it is served by a thread."""
    place = folder / "embedder"
    place.mkdir(exist_ok=True)
    (place / SOCKET).unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    here = Path.cwd()
    os.chdir(place)  # a socket's path may have 107 bytes
    listener.bind(SOCKET)
    os.chdir(here)
    listener.listen()

    def work() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection:
                    served(minilm, connection, wire.Ready("st", "1", 256, {}))

    threading.Thread(target=work, daemon=True).start()
    replies = Replies(folder / "record", ENGINE, "minilm")
    gateway = Gateway("embedder", replies, lambda given_up: Path(os.path.relpath(place)), patient(), fresh=fresh)
    with gateway as reached:
        yield gateway, str(reached / SOCKET)
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    replies.close()


# ---------------------------------------------------------------- embedders


def test_vectors_are_those_of_each_text_alone_whoever_asks(minilm: SentenceEmbedder, tmp_path: Path) -> None:
    alone = np.concatenate([minilm.documents([text]) for text in TEXTS])
    assert np.array_equal(minilm.documents(TEXTS), alone)
    with embedding(minilm, tmp_path) as (gateway, path):
        embedder = RemoteEmbedder(path, EMBEDDER)
        assert np.array_equal(embedder.documents(TEXTS), alone) and embedder.documents(TEXTS).dtype == np.float32
        assert gateway.tally.asked == len(set(TEXTS)), "equal texts are embedded once"
        assert len(embedder.documents([])) == 0
        assert all(embedder.windows(text) == minilm.windows(text) for text in TEXTS)
        many = [f"Sentence number {n}." for n in range(150)]
        assert np.array_equal(embedder.queries(many), minilm.queries(many))


def test_a_text_is_embedded_once_for_ever(minilm: SentenceEmbedder, tmp_path: Path) -> None:
    with embedding(minilm, tmp_path) as (_, path):
        first = RemoteEmbedder(path, EMBEDDER).documents(TEXTS[:3])
    with embedding(minilm, tmp_path) as (gateway, path):
        again = RemoteEmbedder(path, EMBEDDER).documents(TEXTS)
        assert np.array_equal(again[:3], first) and gateway.tally.asked == len(set(TEXTS)) - 3
    with Gateway("embedder", Replies(tmp_path / "record", ENGINE, "minilm"), nobody, patient()) as folder:
        embedder = RemoteEmbedder(str(folder / SOCKET), EMBEDDER)
        assert np.array_equal(embedder.documents(TEXTS), again)
        with pytest.raises(EngineDied, match="no engine may be asked"):
            embedder.documents(["something new"])


@pytest.mark.parametrize(
    "question", [wire.CountTokens("a"), wire.Step([], []), {"type": "Embed", "texts": [1]}, {"type": "Cuts"}]
)
def test_an_embedder_is_asked_for_vectors_and_nothing_else(
    minilm: SentenceEmbedder, tmp_path: Path, question: object
) -> None:
    with embedding(minilm, tmp_path) as (_, path):
        assert_disconnected(path, question)
        assert len(RemoteEmbedder(path, EMBEDDER).documents(["a"])) == 1
