"""The one way out of a cell's container: to its model's endpoint, and nowhere else.

The container has no network. It is given a folder with a Unix socket; behind it, in the supervisor's process, a thread
takes typed requests for answers to chats and has `upkeep.gateway.endpoints` answer them. Address, model's name, key and
further fields come from the model's card and the supervisor's environment; a container can choose none of them.

Containers are hostile: what they send is bounded and typed, no more of it is taken in than is being worked on, and
whoever breaks the rules is disconnected.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from upkeep.catalog import Catalog
from upkeep.cell import wire
from upkeep.cell.endpoint import Ask, Failed, Refused, Told, frame, receive
from upkeep.errors import UpkeepError, kind_of
from upkeep.gateway.endpoints.client import Client
from upkeep.gateway.endpoints.replies import Reply
from upkeep.gateway.endpoints.terms import require_endpoint
from upkeep.gateway.record import Asking
from upkeep.gateway.upstream import SOCKET
from upkeep.machine.scratch import folder_for_socket

__all__ = ["gateway", "require_endpoint"]

CONNECTIONS = 4
"""That a container may have open; ours opens one."""
AHEAD = 2
"""Requests taken in from a container, as a multiple of those in flight."""
OVERHEAD_BYTES = 1 << 20
GRACE_S = 30.0
"""How long requests that have been sent may still be answered, when the job has failed: they are paid for."""


@contextlib.contextmanager
def gateway(catalog: Catalog, model: str, record: Path, ask: Asking = "unknown") -> Iterator[Path]:
    """Serve a job's container; yields the folder with `engine.sock`.

    Args:
        record: takes a line for every request (`upkeep.gateway.endpoints.record.Request`).
        ask: what is sent: requests whose replies are not kept, all, or none.

    Raises:
        UpkeepError: there is no key or no budget; or, in place of the error that ends the block, why the endpoint
            failed, if it did.
    """
    with folder_for_socket(SOCKET) as folder:
        server = _Server(catalog, model, record, ask, folder / SOCKET)
        thread = threading.Thread(target=server.run, name=f"gateway of {model}", daemon=True)
        thread.start()
        patience = 0.0
        try:
            server.require_started()
            yield folder
            patience = GRACE_S
        except UpkeepError as error:
            patience = GRACE_S
            if server.failure is not None:
                raise server.failure from error
            raise
        finally:
            server.stop(patience)
            thread.join()


class _Server:
    """The gateway's thread."""

    def __init__(self, catalog: Catalog, model: str, record: Path, ask: Asking, socket: Path) -> None:
        if ask != "nothing":
            require_endpoint(catalog, model)
        spec = catalog.model(model)
        self.failure: UpkeepError | None = None
        self._catalog, self._model, self._record, self._socket = catalog, model, record, socket
        self._ask = ask
        assert spec.endpoint is not None
        self._limit = min(
            math.ceil(spec.context_length / spec.endpoint.tokens_per_byte) + OVERHEAD_BYTES, wire.MAX_FRAME
        )
        self._ahead = AHEAD * spec.endpoint.max_in_flight
        self._started = threading.Event()
        self._error: BaseException | None = None
        self._patience = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._connections = 0

    # ------------------------------------------------------------ from the supervisor's thread

    def run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as error:
            self._error = error
        finally:
            self._started.set()

    def require_started(self) -> None:
        """Wait until the socket is there.

        Raises:
            BaseException: what went wrong.
        """
        self._started.wait()
        if self._error is not None:
            raise self._error

    def stop(self, patience: float) -> None:
        """End it; requests that have been sent may take `patience` seconds more."""
        self._patience = patience
        if self._started.is_set() and self._error is None:
            with contextlib.suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(self._ending.set)

    # ------------------------------------------------------------ in its own thread

    async def _main(self) -> None:
        self._loop, self._ending = asyncio.get_running_loop(), asyncio.Event()
        self._room = asyncio.Semaphore(self._ahead)
        async with Client(self._catalog, self._model, self._record, self._ask) as self._client:
            server = await asyncio.start_unix_server(self._serve, self._socket, backlog=CONNECTIONS)
            self._socket.chmod(0o666)  # the container's user may be another one
            self._started.set()
            try:
                await self._ending.wait()
            finally:
                server.close()
                await self._finish()

    async def _finish(self) -> None:
        self._client.close()
        if self._patience and (paid := self._tasks & self._client.sending):
            await asyncio.wait(paid, timeout=self._patience)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection to its end."""
        self._connections += 1
        try:
            if self._connections > CONNECTIONS:
                raise wire.Breach(f"more than {CONNECTIONS} connections")
            while True:
                await self._room.acquire()
                ask = None
                try:
                    ask = await receive(reader, Ask, self._limit)
                finally:
                    if ask is None:
                        self._room.release()
                if ask is None:
                    return
                task = asyncio.create_task(self._answer(ask, writer))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        except wire.Breach as breach:
            print(f"the container of {self._model} was disconnected: {breach}", file=sys.stderr, flush=True)
        except OSError:
            pass  # it has gone
        finally:
            self._connections -= 1
            writer.close()

    async def _answer(self, ask: Ask, writer: asyncio.StreamWriter) -> None:
        """Answer one request; where the endpoint fails, that is the answer to all that come after."""
        try:
            if self.failure is None:
                try:
                    reply = await self._client.answer(ask)
                except UpkeepError as error:
                    self.failure = self.failure or error
                except Exception as error:
                    what = self._client.hide(f"{type(error).__name__}: {error}")
                    problem = f"the gateway to the model {self._model!r} failed: {what}"
                    self.failure = self.failure or UpkeepError(problem, kind=kind_of(error))
            message = _message(ask.number, reply) if self.failure is None else Failed(str(self.failure))
            with contextlib.suppress(OSError):  # it has gone; the answer is kept
                writer.write(frame(message))
                await writer.drain()
        finally:
            self._room.release()


def _message(number: int, reply: Reply) -> Told | Refused:
    if reply.refused is not None:
        return Refused(number, reply.refused, reply.key)
    return Told(
        number=number,
        text=reply.text,
        reasoning=reply.reasoning,
        finish_reason=reply.finish_reason,
        prompt=reply.prompt,
        completion=reply.completion,
        cached=reply.cached,
        key=reply.key,
        tool_calls=reply.tool_calls,
        tokens=reply.tokens,
    )
