"""A model of `models/` as the assistant of a dataset's builder (`upkeep.building.assistant`)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

import msgspec

from upkeep.building.assistant import Assistant, Given, Reply, Step, Tally, read_reply
from upkeep.building.context import Context
from upkeep.building.reading import Faults
from upkeep.cell.interface import Message
from upkeep.execution.host_model import HostModel, Question, Said
from upkeep.files import digest


class Annotator:
    """Answers steps with a model. Use as a context manager."""

    def __init__(self, model: HostModel, faults: Faults) -> None:
        self._model, self._faults = model, faults
        self.tallies: dict[str, Tally] = {}

    def __enter__(self) -> Annotator:
        self._model.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._model.__exit__(kind, error, trace)
        if used := list(self.tallies.values()):
            tokens = sum(tally.prompt_tokens + tally.completion_tokens for tally in used)
            cost = f", {sum(tally.usd for tally in used):.4f} US dollars" if self._model.spec.endpoint else ""
            replies = sum(tally.requests for tally in used)
            print(f"{self._model.model}: {replies} replies; {tokens:,} tokens{cost}", file=sys.stderr)

    def ask(self, step: Step[Given, Reply], given: Sequence[Given], trial: int = 0) -> list[Reply | None]:
        """See `Assistant.ask`.

        Raises:
            UpkeepError: the model cannot be had, its budget is spent, or an unreadable reply is refused.
        """
        questions = [self._question(step, one, trial) for one in given]
        asked = {question.key: question for question in questions}
        said = dict(zip(asked, self._model.ask(list(asked.values())), strict=True))
        tally = self.tallies.setdefault(step.name, Tally())
        return [self._read(step, number, said[one.key], tally) for number, one in enumerate(questions, 1)]

    def _question(self, step: Step[Given, Any], given: Given, trial: int) -> Question:
        chat, sampling, spec = _conversation(step, given), step.sampling, self._model.spec
        decoding = [spec.thinking, spec.template_options, spec.chat_template, spec.dtype]
        key = digest([self._model.weights, chat, msgspec.to_builtins(sampling), trial, decoding])
        return Question(chat, sampling, key, trial)

    def _read(self, step: Step[Any, Reply], number: int, said: Said, tally: Tally) -> Reply | None:
        tally.requests += 1
        tally.prompt_tokens += said.prompt
        tally.completion_tokens += said.completion
        if (endpoint := self._model.spec.endpoint) is not None:
            price = endpoint.price
            of_cache = price.prompt if price.cached is None else price.cached
            fresh = (said.prompt - said.cached) * price.prompt + said.cached * of_cache
            tally.usd += (fresh + said.completion * price.completion) / 1e6
        problem = said.error
        if said.text is not None:
            try:
                return read_reply(said.text, step.reply)
            except msgspec.MsgspecError as error:
                problem = str(error)
        tally.unread += 1
        self._faults("unread_reply", f"{self._model.model}, {step.name} {number}", str(problem), said.text)
        return None


def _conversation(step: Step[Given, Reply], given: Given) -> list[Message]:
    asked = step.prompt(given)
    turns = [("user", asked)] if isinstance(asked, str) else list(asked)
    if step.system:
        turns.insert(0, ("system", step.system))
    return [Message(role=role, parts=[text]) for role, text in turns]


def hire(context: Context, model: str) -> AbstractContextManager[Assistant]:
    """A model of `models/` as an assistant: local weights in a container, or an endpoint with its budget.

    Nothing is started before the first request that is not on record. A reply in another form than demanded is a fault
    (`unread_reply`) and gives None where these are skipped.

    Raises:
        UpkeepError: there is no such model, or it is an embedder.
    """
    return Annotator(HostModel(context.catalog, model, "datasets", context.name), context.faults)
