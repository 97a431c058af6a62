"""A model of `models/` that the host asks by itself, outside any cell.

The way is that of the cells: local weights in a container, an endpoint within its limits and its budget, and what was
asked before answered from the record. So a command that was killed goes on where it was, and pays for nothing twice.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from upkeep.catalog import Catalog
from upkeep.cell.endpoint import Endpoint, EndpointHandle, EndpointRefused
from upkeep.cell.interface import LLM, Message, PromptTooLong
from upkeep.cell.lockstep import EngineDied, Handle, lockstep
from upkeep.cell.remote import RemoteEngine
from upkeep.contract import CellDescription, EngineSettings, Headings, ModelSpec, PromptCard, Resources, Sampling
from upkeep.errors import UpkeepError
from upkeep.execution.detection import detect
from upkeep.execution.fetch import fetch
from upkeep.execution.share import SharedEngine, Wanted
from upkeep.execution.watch import Limits
from upkeep.execution.way import ToEndpoint, ToEngine, Way
from upkeep.file_locks import exclusive
from upkeep.gateway.engines import host_parts, host_settings
from upkeep.gateway.record import NotRecorded
from upkeep.gateway.upstream import SOCKET
from upkeep.layout import Layout

AT_ONCE = 256
"""Requests that a model is given at a time."""


@dataclass(frozen=True)
class Question:
    """One chat that a reply is wanted to."""

    chat: Sequence[Message] | Callable[[LLM], Sequence[Message]]
    """Or what makes it, where it depends on how much the model can read."""
    sampling: Sampling
    key: str
    """What its seed is made of, with the trial."""
    trial: int = 0


@dataclass(frozen=True)
class Said:
    """What a model said to a question."""

    text: str | None
    """Reasoning removed; None where it was not able to answer."""
    error: str | None = None
    """Why not."""
    prompt: int = 0
    completion: int = 0
    cached: int = 0
    """Prompt tokens from a provider's prefix cache."""


class HostModel:
    """Use as a context manager; nothing is started before the first request that is not on record.

    Args:
        model: id of a card in `models/`.
        kind: what it is asked for, as folders of logs and of requests to endpoints are called: `datasets`, `judged`,
            `audits`.
        name: for which of these.

    Raises:
        UpkeepError: there is no such model, or it is an embedder.
    """

    def __init__(self, catalog: Catalog, model: str, kind: str, name: str) -> None:
        self._catalog, self.model, self._kind, self._name = catalog, model, kind, name
        self.spec = catalog.model(model)
        if self.spec.role != "generator":
            raise UpkeepError(f"{model!r} is an {self.spec.role}", expected="a model that generates text")
        self._layout = Layout(catalog.results)
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> HostModel:
        weights = fetch(self._catalog, self.model)
        self.weights = weights.sha256
        """Their hash."""
        self._ways = self._ways_to(weights.path)
        """One after the other, until one knows all replies. An endpoint's key and budget are asked for only where there
        is something to send; an engine is loaded so late by itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def ask(self, questions: Sequence[Question]) -> list[Said]:
        """What the model says to each, in order.

        Raises:
            UpkeepError: the model cannot be had, or its budget is spent; what it has said is on record.
        """
        if not questions:
            return []  # and no model is loaded for them
        for way in self._ways[:-1]:
            with contextlib.suppress(NotRecorded):
                return self._said(way, questions)
        return self._said(self._ways[-1], questions)

    def _said(self, way: Way, questions: Sequence[Question]) -> list[Said]:
        said: list[Said] = []
        with self._worker(way) as worker:
            for start in range(0, len(questions), AT_ONCE):
                with lockstep(worker) as runner:
                    try:
                        said += runner.run(self._all(worker, questions[start : start + AT_ONCE]))
                    except EngineDied as error:
                        raise UpkeepError(
                            f"the model {self.model!r} failed: {error}",
                            where=self._log,
                            remedy="the same command continues: replies are kept",
                            kind="engine",
                        ) from error
        return said

    async def _all(self, worker: RemoteEngine | Endpoint, questions: Sequence[Question]) -> list[Said]:
        return await asyncio.gather(*(self._one(worker, question) for question in questions))

    async def _one(self, worker: RemoteEngine | Endpoint, question: Question) -> Said:
        if isinstance(worker, Endpoint):
            handle: Handle = EndpointHandle(None, self.spec, 0, question.key, question.trial, endpoint=worker)
        else:
            handle = Handle(worker, self.spec, 0, question.key, question.trial)
        text = error = None
        try:
            chat = question.chat(handle) if callable(question.chat) else question.chat
            text = (await handle.chat(chat, question.sampling)).text
        except (PromptTooLong, EndpointRefused) as refused:
            error = str(refused)
        return Said(text, error, handle.prompt_tokens, handle.completion_tokens, handle.cached_tokens)

    # ------------------------------------------------------------ the way to it

    @contextlib.contextmanager
    def _worker(self, way: Way) -> Iterator[RemoteEngine | Endpoint]:
        with way.open() as folder:
            if self.spec.engine == "endpoint":
                yield Endpoint(str(folder / SOCKET))
                return
            with contextlib.closing(RemoteEngine(str(folder / SOCKET))) as engine:
                yield engine

    def _ways_to(self, weights: Path | None) -> list[Way]:
        catalog = self._catalog
        if (image := catalog.engine(self.model)) is None:
            requests = self._layout.requests(self.model, self._kind, self._name)
            # Two commands for the same would pay for everything twice: the second waits and finds the replies.
            self._stack.enter_context(exclusive(requests.with_suffix(".lock")))
            return [ToEndpoint(catalog, self.model, requests, ask) for ask in ("nothing", "unknown")]
        assert weights is not None
        resources = self.spec.resources or Resources()
        settings = host_settings(catalog, self.model)
        description = _description(self._name, self.model, self.spec, settings)
        wanted = Wanted(description, weights, image, resources, self.spec.gpus)
        parts = host_parts(catalog, self.model)
        engine = self._stack.enter_context(SharedEngine(self._log.stem, detect(catalog), self._log, Limits()))
        job = f"{self._kind} {self._name}"
        return [ToEngine(catalog, job, "reader", self.model, wanted, parts, "unknown", engine)]

    @property
    def _log(self) -> Path:
        return self._layout.log("engines", f"{self._kind}-{self._name}-{self.model}")


def _description(name: str, model: str, spec: ModelSpec, settings: EngineSettings) -> CellDescription:
    """What the engine's container is told: the fields of a cell that make its engine; the others say nothing to it."""
    return CellDescription(
        task="answer",
        dataset=name,
        method="closed_book",
        variant="default",
        model=model,
        parameters={},
        model_spec=spec,
        model_path=None,
        engine=settings,
        chunk_tokens=1,
        prompt=PromptCard(system="", closed="", form="short", marker=":", headings=Headings(context="", question="")),
        output="/output",
    )
