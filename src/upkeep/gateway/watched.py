"""The connection of a gateway with its engine, which is ended where it hangs."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from upkeep.cell import wire
from upkeep.cell.lockstep import EngineDied
from upkeep.cell.remote import Connection
from upkeep.errors import UpkeepError
from upkeep.machine.resource_watchdog import processor_s

T = TypeVar("T")

LOOK_S = 1.0
"""How often it is looked whether an engine that owes a reply works; more often where patience is short."""
WORK_SHARE = 0.01
"""Of a processor's time: what an engine that works takes at least. One that waits for its GPU takes all of it."""


@dataclass(frozen=True, slots=True)
class Patience:
    """With an engine that owes a reply."""

    seconds: float
    """Without any sign of work."""
    hung: Callable[[], UpkeepError]
    """Ends an engine that hangs, and gives what there is to say of it."""


class WatchedConnection(Connection):
    """The socket of an engine, which is ended where it owes a reply and shows no sign of work: where its processes take
    no processor time. What works may take as long as it takes.

    Args:
        given_up: whether nobody waits any more.

    Raises:
        EngineDied: it is gone, or hung, which is then said.
    """

    def __init__(self, path: str, patience: Patience, given_up: Callable[[], bool]) -> None:
        self._patience, self._given_up = patience, given_up
        self._hung: UpkeepError | None = None
        self.aborted = False
        """Whether it was ended, whatever it waited for."""
        self.asked: float | None = time.monotonic()
        """When it was asked what it owes a reply to, by the monotonic clock; None where it owes none."""
        self._over = threading.Event()
        self._watching = threading.Thread(target=self._watch, name="watch over an engine", daemon=True)
        self._watching.start()
        try:
            super().__init__(path)
        except EngineDied as error:
            raise self._died(error) from error
        self.asked = None

    def ask(self, question: wire.Question | wire.EmbedderQuestion, kind: type[T]) -> T:
        self.asked = time.monotonic()
        try:
            return super().ask(question, kind)
        except EngineDied as error:
            raise self._died(error) from error
        finally:
            self.asked = None

    def close(self) -> None:
        self._over.set()
        super().close()

    def _died(self, error: EngineDied) -> EngineDied:
        """Why it died, which the watch knows where it ended the engine."""
        self._over.set()
        self._watching.join()
        return error if self._hung is None else EngineDied(str(self._hung))

    def _watch(self) -> None:
        every = min(LOOK_S, self._patience.seconds / 10)
        asked, before, quiet = None, 0.0, 0.0
        # Looks are counted, not time: who was suspended together with the engine has not waited for it.
        while not self._over.wait(every):
            if self._given_up():
                self.abort()
            elif self.asked is not None and (spent := self._spent()) is not None:
                if self.asked != asked or spent - before >= WORK_SHARE * self._patience.seconds:
                    asked, before, quiet = self.asked, spent, 0.0
                elif (quiet := quiet + every) >= self._patience.seconds:
                    self._hung = self._patience.hung()
                    self.abort()
                    return

    def abort(self) -> None:
        self.aborted = True
        with contextlib.suppress(AttributeError):  # it is not there yet; the next look is soon
            super().abort()

    def _spent(self) -> float | None:
        """Processor time of the engine, in seconds; None where nobody can tell."""
        with contextlib.suppress(AttributeError, OSError):  # not there yet, or no more
            told = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            pid = struct.unpack("3i", told)[0]  # of who listens; 0 where it is none of this machine's
            return processor_s(pid) if pid else None
        return None
