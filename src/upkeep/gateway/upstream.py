"""The way of a gateway to its engine.

What is asked has one answer, whoever asks: how many tokens a prompt has, what the tokens of a text are, how a prompt
goes on. So every answer is kept by the content of the question.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from upkeep.cell.lockstep import EngineDied
from upkeep.cell.wire import Finished
from upkeep.errors import UpkeepError
from upkeep.gateway.prompts import Keeper
from upkeep.gateway.record import Replies
from upkeep.gateway.shared_connection import Share, SharedConnections

SOCKET = "engine.sock"
"""In the folder that an engine or a gateway is reached through."""
Load = Callable[[Callable[[], bool]], Path]
"""Gives the folder with an engine's socket, after loading it; the argument says whether nobody waits any more."""


@dataclass
class Tally:
    """What was asked of a gateway."""

    recorded: int = 0
    """Requests that the record answered."""
    asked: int = 0
    """Requests that the engine answered."""


class Upstream:
    """What is kept of an engine, and the engine itself, loaded when there is first something that only it can answer.

    Args:
        replies: of the engine.
        load: gives the folder of the engine itself.
        connections: with the engine.
        fresh: ask the engine, whatever is kept; its replies are kept in place of the earlier ones.
    """

    def __init__(self, replies: Replies, load: Load, connections: SharedConnections, *, fresh: bool = False) -> None:
        self._replies, self._load, self._connections, self._fresh = replies, load, connections, fresh
        self.failure: UpkeepError | None = None
        """Why the engine could not be asked."""
        self.tally = Tally()
        self.ended = False
        self._connection: Share | None = None
        self._connecting = False

    def end(self, *, with_all: bool) -> None:
        """Wait for nothing any more.

        Args:
            with_all: nor are others to, that share the connection.
        """
        self.ended = True
        if self._connection is not None:
            self._connection.abort(all_of_it=with_all)  # it may be at work for minutes

    @property
    def lost(self) -> bool:
        """Whether its connection ended before it had done with it."""
        return self._connection is not None and self._connection.lost

    @property
    def owes(self) -> bool:
        """Whether the engine has not answered yet what it was asked."""
        return self._connecting or (self._connection is not None and self._connection.owed)

    def connect(self) -> Share:
        """A connection to the engine; where no other cell has one, it is new to the engine.

        Raises:
            EngineDied: it cannot be asked; why is `failure`.
        """
        self.failure = None
        try:
            folder = self._load(lambda: self.ended)
            self._connecting = True
            self._connection = found = self._connections.join(str(folder / SOCKET), lambda: self.ended)
        except UpkeepError as error:
            self.failure = error
            raise EngineDied(str(error)) from error
        except EngineDied as died:
            self.failure = UpkeepError(str(died), kind="engine")
            raise
        finally:
            self._connecting = False
        ready = msgspec.to_builtins(found.ready)
        if self._replies.ready() != ready:
            self._replies.say_ready(ready)
        return found

    def ready(self) -> dict[str, Any] | None:
        """What the engine said of itself, if that is kept and counts."""
        return None if self._fresh else self._replies.ready()

    def keep(self, key: bytes, value: bytes) -> None:
        """Keep an answer.

        Raises:
            EngineDied: there is no room; why is `failure`.
        """
        try:
            self._replies.put(key, value)
        except UpkeepError as error:
            self.failure = error
            raise EngineDied(str(error)) from error

    def keep_finished(self, key: bytes, done: Finished) -> None:
        """Keep a reply, unless it is an error."""
        if done.error is None:
            self.keep(key, msgspec.msgpack.encode(msgspec.structs.replace(done, number=0)))

    def known(self, key: bytes, *, sampled: bool = False) -> bytes | None:
        """The kept answer; of a reply of the model's none where the model is to be asked again."""
        return None if sampled and self._fresh else self._replies.get(key)

    def keeper(self) -> Keeper:
        """What keeps the prompts of a connection."""
        return Keeper(self._replies.get, self.keep, again=self._fresh)
