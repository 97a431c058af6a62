"""The ways from a job's container to its model: a folder with a socket is all that a container gets of it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from upkeep.catalog import Catalog, Job
from upkeep.contract import Attempt
from upkeep.errors import UpkeepError
from upkeep.gateway.cells import EngineGateway, Tally
from upkeep.gateway.engines import engine_parts
from upkeep.gateway.record import Asking, NotRecorded
from upkeep.host.endpoints.record import measured
from upkeep.host.gpus import require_gpus
from upkeep.host.share import SharedEngine, Wanted
from upkeep.paths import Layout


class Way(Protocol):
    """How one job reaches its model."""

    @property
    def lost(self) -> bool:
        """Whether the model has ended, or ends at this moment, by itself."""

    def open(self) -> contextlib.AbstractContextManager[Path | None]:
        """Gives the folder with `engine.sock`, for as long as the job runs; None where it asks no model.

        Raises:
            UpkeepError: the model cannot be asked; also in place of the error that ends the block, if that was why.
        """

    def measured(self, attempts: list[Attempt]) -> dict[str, float]:
        """What was asked, for the manifest."""


class NoModel:
    """Of a method that calls none."""

    lost = False

    def open(self) -> contextlib.AbstractContextManager[Path | None]:
        return contextlib.nullcontext()

    def measured(self, attempts: list[Attempt]) -> dict[str, float]:
        return {}


@dataclass
class ToEndpoint:
    """To a model behind an endpoint; `record` takes a line for every request."""

    catalog: Catalog
    model: str
    record: Path
    ask: Asking
    lost = False

    @contextlib.contextmanager
    def open(self) -> Iterator[Path | None]:
        from upkeep.host.gateway import gateway

        with gateway(self.catalog, self.model, self.record, self.ask) as folder:
            yield folder

    def measured(self, attempts: list[Attempt]) -> dict[str, float]:
        """What the endpoint was asked for, over all attempts, and what it cost."""
        return measured(self.record, attempts[0].start) if attempts else {}


@dataclass
class ToEngine:
    """To an engine of the suite's, through its record.

    Args:
        shared: the batch's.
        alone: makes one for this job, where it is in no batch.
    """

    catalog: Catalog
    job: Job
    wanted: Wanted
    ask: Asking
    shared: SharedEngine | None
    alone: Callable[[], SharedEngine]
    tally: Tally = field(default_factory=Tally)

    @property
    def lost(self) -> bool:
        return self.shared is not None and self.shared.lost

    @contextlib.contextmanager
    def open(self) -> Iterator[Path | None]:
        with contextlib.ExitStack() as stack:
            if self.shared is None:
                self.shared = stack.enter_context(self.alone())
            parts = engine_parts(self.catalog, self.job, self.wanted.description.engine)
            replies = self.shared.replies(Layout(self.catalog.results).record, parts, self.job.model)
            gateway = EngineGateway(replies, self._load, fresh=self.ask == "everything")
            self.tally = gateway.tally
            if replies.ready() is None or self.ask == "everything":
                self._load()  # it takes long, and is no part of what the container is waited for
            try:
                yield stack.enter_context(gateway)
            except UpkeepError as error:
                if gateway.failure is not None:
                    raise gateway.failure from error
                raise

    def _load(self, given_up: Callable[[], bool] = lambda: False) -> Path:
        if self.ask == "nothing":
            raise NotRecorded(self.job.model, self.job)
        require_gpus(self.wanted.gpus, f"the model {self.job.model!r}")
        assert self.shared is not None
        return self.shared.folder(self.wanted, given_up)

    def measured(self, attempts: list[Attempt]) -> dict[str, float]:
        """How many requests the record answered, and how many the engine, since this supervisor began."""
        return {"recorded_replies": float(self.tally.recorded), "new_replies": float(self.tally.asked)}
