"""What a method sees and says: documents, a model, and its answer (`upkeep.cell.method` is what it is itself)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NotRequired, Protocol, TypedDict

from upkeep.contract import ContextUse, Document, Gold, Retrieved, Sampling

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a function that a model asks for."""

    id: str
    """What the message with the result refers to (`tool_call_id`); unique within one probe."""
    name: str
    arguments: str
    """A JSON object."""


class Message(TypedDict):
    """One chat message. The parts are joined as they are.

    Where one part ends and the next begins tells the engine where prompts are likely to share a prefix (documents in
    order of arrival, then the question); it never changes what the model reads.
    """

    role: str
    """`system`, `user`, `assistant`, or `tool` for what a call gave."""
    parts: list[str]
    tool_calls: NotRequired[Sequence[ToolCall]]
    """Of an assistant: the calls that it asked for, after its text."""
    tool_call_id: NotRequired[str]
    """Of the role `tool`: the call that this is the result of."""


@dataclass(frozen=True, slots=True)
class GeneratedToken:
    """A token of an answer with its probability among the tokens that were permitted (`schema`, `tool_choice`), before
    penalties and temperature."""

    text: str
    """By itself; a character that several tokens make up is U+FFFD in each of them."""
    logprob: float
    """Natural logarithm."""
    top: tuple[tuple[str, float], ...]
    """The likeliest tokens at this place with their log-probabilities, likeliest first."""


@dataclass(frozen=True, slots=True)
class ScoredToken:
    """A token of a given text with its probability after all that stands before it."""

    start: int
    end: int
    """The characters of the continuation that it covers. The first token's `start` is negative where it begins in the
    prompt: then it covers the prompt's last characters, too."""
    logprob: float | None
    """Natural logarithm; None for a text's very first token where the model puts nothing before a text."""


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
    tool_calls: tuple[ToolCall, ...] = ()
    logprobs: tuple[GeneratedToken, ...] = ()
    """Of every generated token (reasoning, stop strings and the end token included), where they were asked for."""


class LLM(Protocol):
    """A model, as a method sees it. Usage of every call is booked on the probe that the handle was made for."""

    context_length: int
    """Tokens, prompt and answer together."""
    sampling: Sampling
    """The model's decoding parameters; a call overrides them explicitly."""
    trial: int
    """Which repetition of its probe it is for, from 0."""

    async def chat(
        self,
        messages: Sequence[Message],
        sampling: Sampling | None = None,
        *,
        tools: Sequence[dict[str, Any]] = (),
        tool_choice: str = "auto",
        schema: dict[str, Any] | None = None,
        stop: Sequence[str] = (),
        top_logprobs: int = 0,
    ) -> Reply:
        """Generate an answer to a chat.

        Args:
            tools: functions that the model may ask for: `{"type": "function", "function": {"name", "description",
                "parameters"}}`, with `parameters` a JSON schema.
            tool_choice: `auto`; `none`, which leaves the tools out; `required`: one call at least; or the name of the
                function to call.
            schema: JSON schema of the answer, which is constrained to it; with tools and `auto`, to it or to calls.
            stop: strings that end the answer; what is generated from the first of them on is cut off. Reasoning counts
                as generated.
            top_logprobs: how many of the likeliest tokens to give for each generated one, 0 to 20; with 0 no
                log-probabilities are given.

        Raises:
            PromptTooLong: the prompt and `max_tokens` do not fit into `context_length`.
            ValueError: an option is malformed, or the model cannot do it; the message says why.
            RuntimeError: the engine cannot do it: the chat template passes tools over, say.
        """
        ...

    async def logprobs(self, prompt: str | Sequence[Message], continuation: str) -> list[ScoredToken]:
        """The probability of each token of a given text after a prompt.

        Prompt and continuation are tokenised together, as the model would read them; what is returned are the tokens
        that cover any of the continuation. After a chat template that ends in a special token none of them covers any
        of the prompt; after plain text the first one may (`ScoredToken.start`), and its probability is that of the
        whole token after the tokens before it.

        Args:
            prompt: plain text, or a chat, which the continuation answers: it begins after the template's generation
                prompt. Before plain text stands what the tokenizer puts there (a beginning-of-text token, or nothing).
                Without it the first token of a text, after an empty prompt, has no probability under the model: its
                `logprob` is None, and a mean over a text's tokens (min-k%, evolveQA B.4) leaves it out.

        Raises:
            PromptTooLong: both together do not fit into `context_length`.
            TypeError: the model is behind an endpoint.
        """
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


def quoted(words: Iterable[str], stream: str) -> list[Document]:
    """The very words that a question was made from (`Gold.context`), as documents."""
    return [
        Document(id=f"context {n}", stream=stream, position=n, timestamp=None, text=text)
        for n, text in enumerate(words)
    ]


@dataclass(frozen=True, slots=True)
class Seen:
    """What has arrived when a probe is asked: the documents of the probe's stream up to its position, oldest first.

    There is no way from here to a later document: the host sends it only when this probe has been answered.
    """

    documents: Sequence[Document]
    gold: Gold | None = None
    """For methods whose card says that they see it (`sees`): controls, and what measures."""
    _by_id: dict[str, Document] = field(default_factory=dict, repr=False, compare=False)
    """Filled when first needed, and shared by all who see the same."""

    def latest(self, n: int) -> Sequence[Document]:
        """The last `n` documents, oldest first; fewer where fewer have arrived."""
        return self.documents[-n:] if n > 0 else ()

    @property
    def evidence(self) -> list[Document]:
        """The very words that the question was made from, or else the documents that hold it, oldest first.

        Raises:
            LookupError: the method's card does not say that it sees any.
        """
        if self.gold is None:
            raise LookupError("no evidence was handed in")
        if not self.gold.context:
            evidence = set(self.gold.evidence)
            return [document for document in self.documents if document.id in evidence]
        return quoted(self.gold.context, self.documents[0].stream)

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
    by_arrival: bool = False
    """Whether retrieved documents are shown oldest first. Which are left out goes by rank all the same."""

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
    values: dict[str, float] = field(default_factory=dict)
    """Numbers that the method measured, by name: a score of the document, the probability of a word."""
