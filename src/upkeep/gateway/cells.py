"""Serves one container: its questions to an engine are answered from the record, or by the engine, which is loaded when
there is first something that only it can answer.

A container speaks to the gateway as it would to an engine (`upkeep.cell.wire`).
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from pathlib import Path

from upkeep.contract import Role
from upkeep.errors import UpkeepError
from upkeep.gateway.record import Replies
from upkeep.gateway.sessions import EmbedderSession, ModelSession, Session
from upkeep.gateway.shared_connection import SharedConnections
from upkeep.gateway.upstream import SOCKET, Load, Tally, Upstream
from upkeep.machine.scratch import folder_for_socket


class Gateway:
    """The way from one container to one engine. Use as a context manager, which gives the folder with the socket.

    Args:
        role: what the engine is to the container.
        replies: of the engine.
        load: gives the folder of the engine itself.
        connections: with the engine, which others may share.
        fresh: ask the engine, whatever is kept; its replies are kept in place of the earlier ones.
        left: called when the container has closed a connection.
    """

    def __init__(
        self,
        role: Role,
        replies: Replies,
        load: Load,
        connections: SharedConnections,
        *,
        fresh: bool = False,
        left: Callable[[], None] | None = None,
    ) -> None:
        self._left = left
        self._session: type[Session] = EmbedderSession if role == "embedder" else ModelSession
        self._upstream = Upstream(replies, load, connections, fresh=fresh)
        self._made = contextlib.ExitStack()
        self._connection: socket.socket | None = None

    @property
    def failure(self) -> UpkeepError | None:
        """Why the engine could not be asked."""
        return self._upstream.failure

    @property
    def lost(self) -> bool:
        """Whether its connection to the engine ended before the container had done with it."""
        return self._upstream.lost

    @property
    def owed(self) -> bool:
        """Whether the engine has not answered yet what it was asked."""
        return self._upstream.owes

    @property
    def tally(self) -> Tally:
        """What was asked."""
        return self._upstream.tally

    def __enter__(self) -> Path:
        folder = self._made.enter_context(folder_for_socket(SOCKET))
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / SOCKET))
        (folder / SOCKET).chmod(0o666)
        self._listener.listen()
        self._thread = threading.Thread(target=self._run, name="gateway", daemon=True)
        self._thread.start()
        return folder

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._upstream.ended = True
        for one in (self._listener, self._connection):
            if one is not None:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
        # Whoever is interrupted waits for no step that others have the engine do: they are interrupted, too.
        self._upstream.end(with_all=kind is not None and not issubclass(kind, Exception))
        self._thread.join()
        self._listener.close()
        self._made.close()

    # ------------------------------------------------------------ in its own thread

    def _run(self) -> None:
        while not self._upstream.ended:
            try:
                self._connection, _ = self._listener.accept()
            except OSError:
                return
            with (
                self._connection as connection,
                contextlib.closing(self._session(self._upstream, connection)) as session,
            ):
                session.run()
            if self._left is not None:
                self._left()
