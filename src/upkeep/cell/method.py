"""The interface between a method and the suite.

A method answers one probe in one coroutine. It sees the documents that have arrived and talks to a model:

    class LongContext(Method):
        async def answer(self, probe: Probe, seen: Seen, llm: LLM) -> Answer:
            return await self.read(probe, llm, Context(recent=seen.documents))

Everything else (batching, seeds, reading the answer, usage, errors, order, resuming) is the runner's work.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypedDict

from upkeep.contract import ContextUse, Document, Gold, Memory, ModelSpec, Pair, Probe, Retrieved, Sampling

if TYPE_CHECKING:
    import numpy as np

    from upkeep.cell.prompts import Prompt


class Message(TypedDict):
    """One chat message. The parts are joined as they are.

    Where one part ends and the next begins tells the engine where prompts are likely to share a prefix (documents in
    order of arrival, then the question); it never changes what the model reads.
    """

    role: str
    parts: list[str]


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model answered."""

    text: str
    """Reasoning removed."""
    reasoning: str | None
    finish_reason: str
    """`stop` or `length`."""
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int


class LLM(Protocol):
    """A model, as a method sees it. Usage of every call is booked on the probe that the handle was made for."""

    context_length: int
    """Tokens, prompt and answer together."""
    sampling: Sampling
    """The model's decoding parameters; a call overrides them explicitly."""

    async def chat(self, messages: Sequence[Message], sampling: Sampling | None = None) -> Reply:
        """Generate an answer to a chat.

        Raises:
            PromptTooLong: the prompt and `max_tokens` do not fit into `context_length`.
        """
        ...

    async def logprobs(self, prompt: str, continuation: str) -> list[float]:
        """Log-probability (natural log) of each token of `continuation` after `prompt`."""
        ...

    def count(self, text: str) -> int:
        """Tokens of a text by the model's tokenizer, special tokens not counted."""
        ...

    def count_prompt(self, messages: Sequence[Message]) -> int:
        """Tokens of a chat as it is sent, template included."""
        ...


class Embedder(Protocol):
    """Maps texts to unit vectors."""

    def documents(self, texts: Sequence[str]) -> np.ndarray:
        """(n, d) float32, each row of length 1."""
        ...

    def queries(self, texts: Sequence[str]) -> np.ndarray:
        """(n, d) float32, each row of length 1."""
        ...

    def windows(self, text: str) -> list[str]:
        """The text cut into pieces that the embedder reads whole."""
        ...


class PromptTooLong(ValueError):
    """A prompt that does not fit into the model's context."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What has arrived when a probe is asked: the documents of the probe's stream up to its position, oldest first.

    There is no way from here to a later document: the host sends it only when this probe has been answered.
    """

    documents: Sequence[Document]
    memory: Memory | None = None
    """For a method with a memory: its memory after the last arrived document."""
    gold: Gold | None = None
    """For the controls `gold` and `oracle` alone."""
    _by_id: dict[str, Document] = field(default_factory=dict, repr=False, compare=False)
    """Filled when first needed, and shared by all who see the same."""

    def latest(self, n: int) -> Sequence[Document]:
        """The last `n` documents, oldest first; fewer where fewer have arrived."""
        return self.documents[-n:] if n > 0 else ()

    def pick(self, ids: Iterable[str]) -> list[Document]:
        """The documents of these ids, in the order of the ids.

        Raises:
            KeyError: one has not arrived.
        """
        if not self._by_id:
            self._by_id.update((document.id, document) for document in self.documents)
        return [self._by_id[i] for i in ids]


@dataclass(frozen=True, slots=True)
class Context:
    """What a prompt shows before the question. Which blocks there are decides how they are laid out (OAKS, C.1.3).

    A block that is None is not shown. With no block at all the model is asked without any context.
    """

    recent: Sequence[Document] | None = None
    """Documents as they are, oldest first."""
    retrieved: Sequence[Document] | None = None
    """Documents with their indices, best first; the question then names the newest document's index too."""
    memory: str | None = None
    """Notes that stand for documents; never cut."""

    def __len__(self) -> int:
        """Documents in it."""
        return len(self.recent or ()) + len(self.retrieved or ())

    def __bool__(self) -> bool:
        """Whether there is any block, even an empty one."""
        return not (self.recent is None and self.retrieved is None and self.memory is None)


@dataclass(slots=True)
class Answer:
    """What a method returns. The runner reads the final answer out of `response` as the dataset asks for it."""

    response: str | None
    retrieved: Sequence[Retrieved] = ()
    context: ContextUse = field(default_factory=ContextUse)


@dataclass(frozen=True, slots=True)
class Tools:
    """What a method may use besides the model."""

    prompt: Prompt
    """The dataset's prompt, the same for every method (OAKS, C.1.5)."""
    embedder: Embedder | None = None
    seed: int = 0
    threads: int = 1


class Method:
    """Base of all methods. Subclass it once in `methods/<method>/method.py`."""

    def __init__(self, parameters: dict[str, Any], tools: Tools) -> None:
        """`parameters` are the variant's, from `method.yaml`."""
        self.parameters = parameters
        self.tools = tools

    async def arrive(self, documents: Sequence[Document]) -> None:
        """Take notice of documents the moment they arrive, before any probe about them: the place to grow an index."""

    async def answer(self, probe: Probe, seen: Seen, llm: LLM) -> Answer:
        """Answer one probe."""
        raise TypeError(f"{type(self).__name__} answers no probes; its artifact is used by other methods")

    async def remember(self, memory: str, document: Document, llm: LLM) -> str:
        """Return the memory after one more document. Called in order of arrival; `memory` is empty at the start."""
        raise TypeError(f"{type(self).__name__} keeps no memory")

    def train(self, model: ModelSpec, weights: Path, pairs: Sequence[Pair], output: Path) -> None:
        """Write a new model in the transformers format to `output`, made of the one in `weights`."""
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
        from upkeep.cell.prompts import fit

        messages, shown = fit(self.tools.prompt, probe, context, llm)
        reply = await llm.chat(messages)
        return Answer(reply.text, retrieved, ContextUse(documents=len(shown), dropped=len(context) - len(shown)))
