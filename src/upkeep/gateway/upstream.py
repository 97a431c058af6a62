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
from upkeep.errors import UpkeepError
from upkeep.gateway.prompts import Keeper
from upkeep.gateway.record import Replies
from upkeep.gateway.watched import Patience, WatchedConnection

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
        patience: with the engine.
        fresh: ask the engine, whatever is kept; its replies are kept in place of the earlier ones.
    """

    def __init__(self, replies: Replies, load: Load, patience: Patience, *, fresh: bool = False) -> None:
        self._replies, self._load, self._patience, self._fresh = replies, load, patience, fresh
        self.failure: UpkeepError | None = None
        """Why the engine could not be asked."""
        self.tally = Tally()
        self.ended = False
        self._connection: WatchedConnection | None = None
        self._connecting = False

    def end(self) -> None:
        """Wait for nothing any more."""
        self.ended = True
        if self._connection is not None:
            self._connection.abort()  # it may be at work for minutes

    @property
    def owes(self) -> bool:
        """Whether the engine has not answered yet what it was asked."""
        return self._connecting or (self._connection is not None and self._connection.asked is not None)

    def connect(self) -> WatchedConnection:
        """A connection to the engine, which is new to it.

        Raises:
            EngineDied: it cannot be asked; why is `failure`.
        """
        self.failure = None
        try:
            folder = self._load(lambda: self.ended)
            self._connecting = True
            self._connection = found = WatchedConnection(str(folder / SOCKET), self._patience, lambda: self.ended)
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

    def known(self, key: bytes, *, sampled: bool = False) -> bytes | None:
        """The kept answer; of a reply of the model's none where the model is to be asked again."""
        return None if sampled and self._fresh else self._replies.get(key)

    def keeper(self) -> Keeper:
        """What keeps the prompts of a connection."""
        return Keeper(self._replies.get, self.keep, again=self._fresh)
