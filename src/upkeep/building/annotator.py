"""A model of `models/` as the assistant of a dataset's builder (`upkeep.building.assistant`).

The engine is that of the cells: local weights run in a container, an endpoint is reached through the gateway, with its
limits, its budget and its cache. Each reply is on disk before the next step begins.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from upkeep.building.assistant import Assistant, Given, Reply, Step, Tally, read_reply
from upkeep.building.context import Context
from upkeep.building.reading import Faults
from upkeep.catalog import Catalog
from upkeep.cell.endpoint import Endpoint, EndpointHandle, EndpointRefused
from upkeep.cell.interface import Message, PromptTooLong
from upkeep.cell.lockstep import EngineDied, Handle, lockstep
from upkeep.cell.remote import RemoteEngine
from upkeep.cell.runner import Log
from upkeep.contract import CellDescription, Count, EngineSettings, Headings, ModelSpec, PromptCard, Record, Resources
from upkeep.errors import UpkeepError
from upkeep.execution.detection import detect
from upkeep.execution.fetch import fetch
from upkeep.execution.share import SharedEngine, Wanted
from upkeep.files import digest, exclusive
from upkeep.gateway.endpoints.server import gateway
from upkeep.gateway.upstream import SOCKET
from upkeep.layout import Layout

AT_ONCE = 256
"""Requests that an engine is given at a time: replies are on disk after each such portion at the latest."""


class Kept(Record, frozen=True, kw_only=True):
    """A line of a file of kept replies."""

    key: str
    """Hash of the model, the conversation, how it is decoded, and the trial."""
    step: str
    text: str | None
    """Reasoning removed; null where the model was not able to answer."""
    error: str | None = None
    prompt: Count = 0
    completion: Count = 0
    cached: Count = 0


class Hired:
    """Answers steps with a model. Use as a context manager.

    Args:
        dataset: the replies are for.
        model: id of a card in `models/`.

    Raises:
        UpkeepError: there is no such model, or it is an embedder.
    """

    def __init__(self, catalog: Catalog, dataset: str, model: str, faults: Faults) -> None:
        self._catalog, self._dataset, self._model, self._faults = catalog, dataset, model, faults
        self._spec = catalog.model(model)
        if self._spec.role != "generator":
            raise UpkeepError(f"{model!r} is an {self._spec.role}", expected="a model that generates text")
        self.tallies: dict[str, Tally] = {}
        self._path = catalog.cache / "replies" / dataset / f"{model}.jsonl"
        self._stack = contextlib.ExitStack()
        self._kept: dict[str, Kept] = {}
        self._asked = 0

    def __enter__(self) -> Hired:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # Two builds of one dataset would ask, and pay, for everything twice: the second waits and finds the replies.
        self._stack.enter_context(exclusive(self._path.with_suffix(".lock")))
        try:
            self._log = Log(self._path, Kept)
        except msgspec.MsgspecError as error:
            raise UpkeepError(
                f"damaged: {error}", where=self._path, remedy="remove the file; its replies are asked for again"
            ) from None
        self._kept = {reply.key: reply for reply in self._log.before}
        self._weights = fetch(self._catalog, self._model)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)
        if self._asked:
            used = [self.tallies[name] for name in self.tallies]
            tokens = sum(t.prompt_tokens + t.completion_tokens for t in used)
            cost = f", {sum(t.usd for t in used):.4f} US dollars" if self._spec.endpoint else ""
            requests = sum(tally.requests for tally in used)
            print(
                f"{self._model}: {requests} replies, {self._asked} of them asked for now; {tokens:,} tokens{cost}",
                file=sys.stderr,
            )

    # ------------------------------------------------------------ asking

    def ask(self, step: Step[Given, Reply], given: Sequence[Given], trial: int = 0) -> list[Reply | None]:
        """See `Assistant.ask`.

        Raises:
            UpkeepError: the model cannot be had, its budget is spent, or an unreadable reply is refused.
        """
        chats = [_conversation(step, one) for one in given]
        keys = [
            digest([self._weights.sha256, chat, msgspec.to_builtins(step.sampling), trial, self._decoding()])
            for chat in chats
        ]
        wanted = {key: chat for key, chat in zip(keys, chats, strict=True) if key not in self._kept}
        if wanted:
            self._fetch(step, wanted, trial)
        tally = self.tallies.setdefault(step.name, Tally())
        return [self._read(step, number, self._kept[key], tally) for number, key in enumerate(keys, 1)]

    def _read(self, step: Step[Any, Reply], number: int, kept: Kept, tally: Tally) -> Reply | None:
        tally.requests += 1
        tally.prompt_tokens += kept.prompt
        tally.completion_tokens += kept.completion
        if self._spec.endpoint is not None:
            price = self._spec.endpoint.price
            of_cache = price.prompt if price.cached is None else price.cached
            fresh = (kept.prompt - kept.cached) * price.prompt + kept.cached * of_cache
            tally.usd += (fresh + kept.completion * price.completion) / 1e6
        problem = kept.error
        if kept.text is not None:
            try:
                return read_reply(kept.text, step.reply)
            except msgspec.MsgspecError as error:
                problem = str(error)
        tally.unread += 1
        self._faults("unread_reply", f"{self._path}, {step.name} {number} ({kept.key[:12]})", str(problem), kept.text)
        return None

    def _decoding(self) -> list[Any]:
        """What of the model's card changes its replies."""
        return [self._spec.thinking, self._spec.template_options, self._spec.chat_template, self._spec.dtype]

    # ------------------------------------------------------------ the model

    def _fetch(self, step: Step[Any, Any], wanted: dict[str, list[Message]], trial: int) -> None:
        """Have the model answer what is not kept, and keep it."""
        pending = list(wanted.items())
        with self._worker() as worker:
            for start in range(0, len(pending), AT_ONCE):
                portion = pending[start : start + AT_ONCE]
                with lockstep(worker) as runner:
                    try:
                        runner.run(self._answer_all(worker, step, portion, trial))
                    except EngineDied as error:
                        raise UpkeepError(
                            f"the model {self._model!r} failed: {error}",
                            where=self._logs(),
                            remedy="the same command continues: replies are kept",
                            kind="engine",
                        ) from error

    async def _answer_all(
        self,
        worker: RemoteEngine | Endpoint,
        step: Step[Any, Any],
        portion: list[tuple[str, list[Message]]],
        trial: int,
    ) -> None:
        await asyncio.gather(*(self._answer(worker, step, key, chat, trial) for key, chat in portion))

    async def _answer(
        self, worker: RemoteEngine | Endpoint, step: Step[Any, Any], key: str, chat: list[Message], trial: int
    ) -> None:
        if isinstance(worker, Endpoint):
            handle: Handle = EndpointHandle(None, self._spec, 0, key, trial, endpoint=worker)
        else:
            handle = Handle(worker, self._spec, 0, key, trial)
        text: str | None = None
        error = None
        try:
            text = (await handle.chat(chat, step.sampling)).text
        except (PromptTooLong, EndpointRefused) as refused:
            error = str(refused)
        kept = Kept(
            key=key,
            step=step.name,
            text=text,
            error=error,
            prompt=handle.prompt_tokens,
            completion=handle.completion_tokens,
            cached=handle.cached_tokens,
        )
        self._log.append(self._log.encode(kept))
        self._kept[key] = kept
        self._asked += 1

    @contextlib.contextmanager
    def _worker(self) -> Any:
        """The engine: started for the first request, and kept until the assistant is dismissed."""
        if self._spec.engine == "endpoint":
            record = Layout(self._catalog.results).requests(self._model, "datasets", self._dataset)
            with gateway(self._catalog, self._model, record) as folder:
                yield Endpoint(str(folder / SOCKET))
            return
        engine = RemoteEngine(str(self._engine() / SOCKET))
        try:
            yield engine
        finally:
            engine.close()

    def _engine(self) -> Path:
        shared, wanted = self._shared
        return shared.folder(wanted)

    @functools.cached_property
    def _shared(self) -> tuple[SharedEngine, Wanted]:
        """The container of local weights, and what is asked of it."""
        runtime = detect(self._catalog)
        image = self._catalog.engine(self._model)
        assert self._weights.path is not None and image is not None
        resources = self._spec.resources or Resources()
        description = _description(self._dataset, self._model, self._spec, resources)
        wanted = Wanted(description, Path(self._weights.path), image, resources, self._spec.gpus)
        return self._stack.enter_context(SharedEngine(f"dataset-{self._dataset}", runtime, self._logs())), wanted

    def _logs(self) -> Path:
        return Layout(self._catalog.results).log("engines", f"dataset-{self._dataset}")


def _conversation(step: Step[Given, Any], given: Given) -> list[Message]:
    asked = step.prompt(given)
    turns = [("user", asked)] if isinstance(asked, str) else list(asked)
    if step.system:
        turns.insert(0, ("system", step.system))
    return [Message(role=role, parts=[text]) for role, text in turns]


def _description(dataset: str, model: str, spec: ModelSpec, resources: Resources) -> CellDescription:
    """What the engine's container is told: the fields of a cell that make its engine; the others say nothing to it."""
    return CellDescription(
        task="answer",
        dataset=dataset,
        method="closed_book",
        variant="default",
        model=model,
        parameters={},
        model_spec=spec,
        model_path=None,
        engine=EngineSettings(name=spec.engine, threads=resources.cpus),
        chunk_tokens=1,
        prompt=PromptCard(system="", closed="", form="short", marker=":", headings=Headings(context="", question="")),
        output="/output",
    )


def hire(context: Context, model: str) -> AbstractContextManager[Assistant]:
    """A model of `models/` as an assistant: local weights in a container, or an endpoint with its budget.

    Nothing is started before the first request without a kept reply. Replies are kept in the cache folder, by dataset
    and model. A reply in another form than demanded is a fault (`unread_reply`) and gives None where these are skipped.
    """
    return Hired(context.catalog, context.name, model, context.faults)
