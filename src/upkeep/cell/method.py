"""The interface between a method and the suite.

A method answers one probe in one coroutine. It sees the documents that have arrived and talks to a model:

    class LongContext(Method):
        async def answer(self, probe: Probe, seen: Seen, llm: LLM) -> Answer:
            return await self.read(probe, llm, Context(recent=seen.documents))

Everything else (batching, seeds, reading the answer, usage, errors, order, resuming) is the runner's work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from upkeep.cell.door import Door
from upkeep.cell.interface import LLM, Answer, Context, Embedder, Seen
from upkeep.cell.prompts import Prompt, fit
from upkeep.cell.training import Training
from upkeep.contract import ContextUse, Course, Document, Probe, Retrieved


@dataclass(frozen=True, slots=True)
class Tools:
    """What a method may use besides the model."""

    prompt: Prompt
    """The dataset's prompt, the same for every method (OAKS, C.1.5)."""
    embedder: Embedder | None = None
    seed: int = 0
    threads: int = 1
    calls_tools: bool = False
    """Whether the model's `chat` takes tools."""
    door: Door = field(default_factory=Door)
    """For code from elsewhere, which asks models as OpenAI-compatible clients do."""


class Method:
    """Base of all methods. Subclass it once in `methods/<method>/method.py`."""

    def __init__(self, parameters: dict[str, Any], tools: Tools) -> None:
        """`parameters` are the variant's, from `method.yaml`."""
        self.parameters = parameters
        self.tools = tools

    async def arrive(self, stream: str, documents: Sequence[Document], llm: LLM) -> None:
        """Take notice of what a stream has gained since it was last asked about, before any probe about it: the place
        to grow an index, or to keep a memory with the help of a model.

        Those of several streams run side by side, and beside answers about other streams; of one stream, one ends
        before the next begins. Documents that arrive together may be worked on together. What is kept is kept in this
        object: a container that starts again is fed the same documents in the same portions, and what its model has
        been asked is answered from the record.

        An exception makes all later probes of this stream fail; other streams go on.
        """

    async def answer(self, probe: Probe, seen: Seen, llm: LLM) -> Answer:
        """Answer one probe."""
        raise TypeError(f"{type(self).__name__} answers no probes; other methods run on the model that it trains")

    async def close(self) -> None:
        """End what the method started. Called once, when the last round is done."""

    def train(self, training: Training) -> Course | None:
        """Write a new model to `training.output`, made of the one in `training.weights`; tell how it went, where that
        is known.

        A kill or the end of a job's time may come at any moment: the method then begins anew in another container, with
        the latest of its `training.checkpoints`.
        """
        raise TypeError(f"{type(self).__name__} trains no model")

    async def read(self, probe: Probe, llm: LLM, context: Context, retrieved: Sequence[Retrieved] = ()) -> Answer:
        """Ask the model the probe's question over a context, in the dataset's prompt.

        Documents that do not fit into the model's context, with room for the answer, are left out as
        `upkeep.cell.prompts.fit` says (OAKS, C.1.3) and counted in the answer.

        Args:
            retrieved: what the retriever found, best first, for the record.

        Raises:
            PromptTooLong: it does not fit even without any document.
        """
        messages, shown = fit(self.tools.prompt, probe, context, llm)
        reply = await llm.chat(messages)
        return Answer(reply.text, retrieved, ContextUse(documents=len(shown), dropped=len(context) - len(shown)))
