"""An engine behind the gateway, with a machine to ask it through, for tests."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from test_share import answers, own_engine, serving
from upkeep.cell import wire
from upkeep.cell.remote import RemoteEngine
from upkeep.contract import Sampling
from upkeep.errors import UpkeepError
from upkeep.gateway.cells import Gateway
from upkeep.gateway.record import Replies
from upkeep.gateway.shared_connection import SharedConnections
from upkeep.gateway.upstream import SOCKET
from upkeep.gateway.watched import Patience
from upkeep.serving.make_model import tiny_llama

ENGINE = {"weights": "a"}
WARM = Sampling(temperature=1.0, max_tokens=8)


def hung() -> UpkeepError:
    raise AssertionError("no engine hangs here")


def patient() -> SharedConnections:
    """Connections with an engine that does not hang."""
    return SharedConnections(Patience(3600.0, hung))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gateway")
    tiny_llama(folder)
    return folder


class Machine:
    """A record, an engine that is loaded when it is asked, and the way to both."""

    def __init__(self, model: Path, folder: Path) -> None:
        self.record, self.engine, self.folder = folder / "record", own_engine(model), folder
        self.loaded = 0
        self.stack = contextlib.ExitStack()

    def load(self, given_up: Callable[[], bool]) -> Path:
        self.loaded += 1
        if self.loaded == 1:
            place = self.folder / "engine"
            place.mkdir()
            path = Path(self.stack.enter_context(serving(self.engine, place)))
            (place / SOCKET).symlink_to((Path.cwd() / path).resolve())
        return self.folder / "engine"

    @contextlib.contextmanager
    def open(self, parts: dict[str, str] = ENGINE, *, fresh: bool = False) -> Iterator[tuple[Gateway, str]]:
        replies = Replies(self.record, parts, "m")
        gateway = Gateway("reader", replies, self.load, patient(), fresh=fresh)
        with gateway as folder:
            yield gateway, str(folder / SOCKET)
        replies.close()

    def ask(self, n: int = 6, sampling: Sampling | None = None, *, fresh: bool = False) -> tuple[list[object], int]:
        """What `n` probes are answered, and how many requests the engine saw."""
        with self.open(fresh=fresh) as (gateway, path):
            return list(answers(RemoteEngine(path), n, sampling)), gateway.tally.asked


@pytest.fixture
def machine(model: Path, tmp_path: Path) -> Iterator[Machine]:
    made = Machine(model, tmp_path)
    with made.stack:
        yield made


def nobody(given_up: Callable[[], bool]) -> Path:
    raise UpkeepError("no engine may be asked")


def assert_disconnected(path: str, question: object) -> None:
    """Whoever asks this gets no answer."""
    with socket.socket(socket.AF_UNIX) as hostile:
        hostile.connect(path)
        wire.receive(hostile, wire.Ready)
        wire.send(hostile, question)
        hostile.settimeout(30)
        with contextlib.suppress(ConnectionResetError):
            assert hostile.recv(1) == b""
