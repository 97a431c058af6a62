"""One connection with an engine, for the containers of several cells.

An engine serves who connects until the connection is closed, and is to the next one as if newly started. Cells that
are asked side by side share one, so that what one of them has had computed is there for the next. Each is given its
own replies, whoever has the engine do a step.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeVar

from upkeep.cell import wire
from upkeep.cell.lockstep import EngineDied
from upkeep.gateway.watched import Patience, WatchedConnection

POLL_S = 0.1
T = TypeVar("T")
Keep = Callable[[wire.Finished], None]


@dataclass(eq=False)
class _Line:
    """A connection, and what its shares have in common."""

    connection: WatchedConnection
    shares: list[Share]
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while the engine is asked."""
    numbers: itertools.count[int] = field(default_factory=itertools.count)
    replies: dict[int, wire.Finished] = field(default_factory=dict)
    """To other shares than those that had the engine do the steps, by number of the request."""
    forget: list[int] = field(default_factory=list)
    """Prompts of shares that have gone."""
    left: dict[int, Keep] = field(default_factory=dict)
    """Requests of shares that have gone, with what keeps the replies."""
    lost: bool = False
    """Whether it has ended before its shares had gone."""


@contextlib.contextmanager
def held(lock: threading.Lock, given_up: Callable[[], bool]) -> Iterator[None]:
    """Hold a lock that others may hold for long.

    Raises:
        EngineDied: nobody waits for it any more.
    """
    while not lock.acquire(timeout=POLL_S):
        if given_up():
            raise EngineDied("nobody waits for the engine any more")
    try:
        yield
    finally:
        lock.release()


class SharedConnections:
    """The connections with an engine, by the path of its socket.

    Args:
        patience: with the engine.
    """

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._lock = threading.Lock()
        """Held for moments alone."""
        self._joining = threading.Lock()
        """Held while somebody connects; the others wait for it."""
        self._lines: dict[str, _Line] = {}

    def join(self, path: str, given_up: Callable[[], bool]) -> Share:
        """A share in the connection that there is, or in a new one.

        Args:
            given_up: whether nobody waits for the share's replies any more.

        Raises:
            EngineDied: nobody answers there.
        """
        with held(self._joining, given_up):
            with self._lock:
                line = self._lines.get(path)
                if line is not None and not line.connection.aborted:  # as one that was lost is, too
                    return self._share(line, given_up)
            shares: list[Share] = []

            def nobody_waits() -> bool:
                return all(share.given_up() for share in [*shares]) if shares else given_up()

            line = _Line(WatchedConnection(path, self._patience, nobody_waits), shares)
            with self._lock:
                self._lines[path] = line
                return self._share(line, given_up)

    def _share(self, line: _Line, given_up: Callable[[], bool]) -> Share:
        line.shares.append(share := Share(self, line, given_up))
        return share

    def leave(self, share: Share, line: _Line) -> bool:
        """Take a share away; whether others are left. A connection that nobody shares any more is closed."""
        with self._lock:
            line.shares.remove(share)
            if line.shares:
                return True
            for path in [path for path, known in self._lines.items() if known is line]:
                del self._lines[path]
        line.connection.close()
        return False


class Share:
    """One cell's part in a connection."""

    def __init__(self, shared: SharedConnections, line: _Line, given_up: Callable[[], bool]) -> None:
        self._shared, self._line, self.given_up = shared, line, given_up
        self.ready, self.numbers = line.connection.ready, line.numbers
        self.computed = 0
        """Prompt tokens that the engine has computed while this share asked it."""
        self.owed = False
        """Whether the engine has not answered yet what this share has asked."""

    @property
    def lost(self) -> bool:
        """Whether the connection ended before this share had left it."""
        return self._line.lost

    def ask(self, question: wire.Question | wire.EmbedderQuestion, kind: type[T]) -> T:
        """The answer to a question of this share.

        Raises:
            EngineDied: the engine is gone, or says that it failed.
            RuntimeError: a text cannot be tokenised.
        """
        with self._owing():
            return self._asked(question, kind)

    def step(
        self, requests: list[wire.Generate | wire.Score], forget: list[int], waiting: Collection[int]
    ) -> list[wire.Finished]:
        """Replies to this share's requests: those that others' steps have brought, or those that the next one brings.

        Args:
            waiting: the numbers of all requests of this share that have no reply yet.

        Raises:
            EngineDied: the engine is gone, or says that it failed.
        """
        line = self._line
        with self._owing():
            mine = [line.replies.pop(number) for number in [*line.replies] if number in waiting]
            if mine and not requests and not forget:
                return mine
            forget, line.forget = [*forget, *line.forget], []
            for done in self._asked(wire.Step(requests, forget), list[wire.Finished]):
                if done.number in waiting:
                    mine.append(done)
                elif (keep := line.left.pop(done.number, None)) is not None:
                    keep(done)
                else:
                    line.replies[done.number] = done
            return mine

    @contextlib.contextmanager
    def _owing(self) -> Iterator[None]:
        """Have the engine to itself; it owes an answer until the end."""
        self.owed = True
        try:
            with self._line.lock:
                yield
        finally:
            self.owed = False

    def _asked(self, question: wire.Question | wire.EmbedderQuestion, kind: type[T]) -> T:
        connection = self._line.connection
        before = connection.computed
        try:
            return connection.ask(question, kind)
        except EngineDied:
            self._line.lost = True
            connection.abort()  # others do not wait there, either
            raise
        finally:
            self.computed += connection.computed - before

    def close(self, prompts: Iterable[int] = (), requests: Mapping[int, Keep] = MappingProxyType({})) -> None:
        """Leave the connection.

        Args:
            prompts: that the engine holds for this share.
            requests: that it has not answered, with what keeps the replies that it gives while others ask it.
        """
        line = self._line
        if self._shared.leave(self, line):
            with line.lock:
                line.forget += prompts
                for number, keep in requests.items():
                    if (done := line.replies.pop(number, None)) is not None:
                        keep(done)
                    else:
                        line.left[number] = keep

    def abort(self, *, all_of_it: bool) -> None:
        """End what it waits for. Where others share the connection, that is an answer or a step, which has its end.

        Args:
            all_of_it: whatever others wait for.
        """
        if all_of_it or all(share is self or share.given_up() for share in [*self._line.shares]):
            self._line.connection.abort()
