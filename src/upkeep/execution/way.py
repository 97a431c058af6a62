"""The ways from a job's container to its model: a folder with a socket is all that a container gets of it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import msgspec

from upkeep.catalog import Catalog
from upkeep.contract import Attempt, Reported, Role, Served
from upkeep.errors import UpkeepError
from upkeep.execution.runtimes import Prepared
from upkeep.execution.share import SharedEngine, Wanted
from upkeep.gateway.cells import Gateway
from upkeep.gateway.endpoints.record import measured
from upkeep.gateway.record import Asking, NotRecorded
from upkeep.gateway.upstream import Tally
from upkeep.layout import Layout
from upkeep.machine.gpus import require_gpus


class Way(Protocol):
    """How one job reaches its model."""

    @property
    def lost(self) -> bool:
        """Whether the model has ended, or ends at this moment, by itself."""

    @property
    def refused(self) -> bool:
        """Whether this machine has refused what asking takes, such as room for a reply: until somebody sees to it, what
        is asked is asked in vain."""

    @property
    def progress(self) -> int:
        """Grows with each request that is answered: by it one sees that a job gets on while it has no answer yet."""

    def give_up(self) -> str | None:
        """Where the model has not answered what it was asked, end it and say so in words."""

    def open(self) -> contextlib.AbstractContextManager[Path]:
        """Gives the folder with `engine.sock`, for as long as the job runs.

        Raises:
            UpkeepError: the model cannot be asked; also in place of the error that ends the block, if that was why.
        """

    def measured(self, attempts: list[Attempt]) -> dict[str, float]:
        """What was asked, for the manifest."""

    def served(self) -> Served | None:
        """What answered, for the manifest; None where it is no engine of the suite's, or nobody has spoken with it."""


@dataclass
class ToEndpoint:
    """To a model behind an endpoint; `record` takes a line for every request."""

    catalog: Catalog
    model: str
    record: Path
    ask: Asking
    lost = refused = False

    @property
    def progress(self) -> int:
        return self.record.stat().st_size if self.record.is_file() else 0

    def give_up(self) -> None:
        return None

    def open(self) -> contextlib.AbstractContextManager[Path]:
        from upkeep.gateway.endpoints.server import gateway

        return gateway(self.catalog, self.model, self.record, self.ask)

    def measured(self, attempts: list[Attempt]) -> dict[str, float]:
        """What the endpoint was asked for, over all attempts, and what it cost."""
        return measured(self.record, attempts[0].start) if attempts else {}

    def served(self) -> None:
        return None


@dataclass
class ToEngine:
    """To an engine of the suite's, through its record.

    Args:
        job: who asks, for messages.
        parts: which engine it is (`gateway.engines`).
        model: the name that it is asked by.
    """

    catalog: Catalog
    job: object
    role: Role
    model: str
    wanted: Wanted
    parts: dict[str, str]
    ask: Asking
    engine: SharedEngine
    release: bool = False
    """Whether the engine ends when the container has done with it, though the container goes on."""
    tally: Tally = field(default_factory=Tally)
    prepared: Prepared | None = None
    """What it was loaded in, if it was."""
    gateway: Gateway | None = None
    """The one that was opened last."""

    @property
    def lost(self) -> bool:
        return self.engine.lost or (self.gateway is not None and self.gateway.lost)

    @property
    def refused(self) -> bool:
        failure = self.gateway.failure if self.gateway is not None else None
        return failure is not None and failure.kind == "machine"

    @property
    def progress(self) -> int:
        return self.tally.recorded + self.tally.asked

    def give_up(self) -> str | None:
        if self.gateway is None or not self.gateway.owed:
            return None
        self.engine.release()
        return f"the engine of {self.model!r} had not answered, and was ended; its log: {self.engine.log}"

    @contextlib.contextmanager
    def open(self) -> Iterator[Path]:
        replies = self.engine.replies(Layout(self.catalog.results).record, self.parts, self.model)
        left = self.engine.release if self.release else None
        fresh = self.ask == "everything"
        self.gateway = gateway = Gateway(
            self.role, replies, self._load, self.engine.connections, fresh=fresh, left=left
        )
        self.tally = gateway.tally
        if replies.ready() is None or fresh:
            self._load()  # it takes long, and is no part of what the container is waited for
        with gateway as folder:
            try:
                yield folder
            except UpkeepError as error:
                if gateway.failure is not None:
                    raise gateway.failure from error
                raise

    def _load(self, given_up: Callable[[], bool] = lambda: False) -> Path:
        if self.ask == "nothing":
            raise NotRecorded(self.model, self.job)
        require_gpus(self.wanted.gpus, f"the model {self.model!r}")
        folder = self.engine.folder(self.wanted, given_up)
        self.prepared = self.engine.prepared
        return folder

    def measured(self, attempts: list[Attempt]) -> dict[str, float]:
        """How many requests the record answered, and how many the engine, since this supervisor began."""
        what = "vectors" if self.role == "embedder" else "replies"
        return {f"recorded_{what}": float(self.tally.recorded), f"new_{what}": float(self.tally.asked)}

    def served(self) -> Served | None:
        replies = self.engine.replies(Layout(self.catalog.results).record, self.parts, self.model)
        if (ready := replies.ready()) is None:
            return None
        try:
            told = msgspec.convert(ready.get("environment"), Reported)
        except msgspec.ValidationError as error:
            raise UpkeepError(
                f"the engine of {self.model!r} does not say what it runs with: {error}",
                where=replies.folder / "engine.json",
                expected="`ready.environment` with engine, engine_version, packages and hardware",
                remedy="remove the file, and the engine is asked again",
                kind="engine",
            ) from None
        image = self.prepared.record if self.prepared is not None else None
        return Served(
            record=replies.engine,
            image=image.tag if image is not None else None,
            digest=image.digest if image is not None else None,
            engine=str(ready.get("name")),
            engine_version=str(ready.get("version")),
            packages=told.packages,
            hardware=told.hardware,
        )
