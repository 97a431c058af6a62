"""The datasets' prompts, and how documents are laid out in them.

One prompt a dataset, the same for every method (OAKS, C.1.5). The wording is ours and follows the rules that the paper
gives (Prompts 3 and 4); the headings and answer forms are the paper's. The paper's own text can be put in its place by
a file of the user's (`prompts:` in `config/config.yaml`).
"""

from __future__ import annotations

import bisect
import itertools
import string
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from upkeep.cell.method import LLM, Context, Message
from upkeep.contract import Document, Probe

SLACK = 2
"""Tokens that joining two parts may add at most: a tokenizer can split differently where they meet."""

_READING = """\
You are given a text that grows as time goes by, and a question about it.
- Rely on the text alone; set aside whatever you know from elsewhere.
- What the text once said still holds until a later passage changes it.
- Answer for how things stand where the text ends now.
"""

_BABI = (
    _READING
    + """\
- Where the text does not tell, the answer is `Unknown`. Where a comparison comes out even, the answer is `Same`. \
In all other cases give one or two words.
- You may reason first. End with a line `## Answer: <short answer>`; that answer is compared word for word.

An example of the form, for the question "Where is the lamp?":
Mira put the lamp down in the attic, and nobody has touched it since.
## Answer: attic"""
)

_NOVEL = (
    _READING
    + """\
- Choose exactly one of the options. Where the text does not tell, choose the option that says that the question \
cannot be answered at this point.
- You may reason first. End with a line `## Answer: <letter>` that holds the letter of your option and no more.

An example of the form:
Mira has put the lamp down in the attic, which is option C.
## Answer: C"""
)

_BABI_CLOSED = """\
Answer from what you know, in one or two words, or `Unknown`. End with a line `## Answer: <short answer>`."""

_NOVEL_CLOSED = """\
Choose one of the options from what you know. End with a line `## Answer: <letter>`."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """How a dataset's probes are put to a model."""

    name: str
    form: Literal["short", "choice"]
    """Whether an answer is a few words or an option's letter."""
    system: str
    """The system text where the model reads a context."""
    closed: str
    """The system text where it is asked without one: a rule to rely on the text alone would forbid any answer."""

    def messages(self, probe: Probe, context: Context) -> list[Message]:
        """The chat that asks `probe` over `context`.

        The user message has the heading, then one part a document, then the question: prompts of one interval differ
        in the last part alone, and those of the next interval extend the documents.
        """
        question = self._question(probe, head_index=context.retrieved is not None)
        if not context:
            return [_message("system", self.closed), _message("user", question)]
        return [
            _message("system", self.system),
            _message("user", "## Context:\n", *_parts(context), f"\n\n{question}"),
        ]

    def target(self, answer: str) -> str:
        """The reply that gives `answer` in the form the prompt asks for."""
        return f"## Answer: {answer}"

    def _question(self, probe: Probe, head_index: bool) -> str:
        # The paper names the index of the present chunk wherever chunks are shown with theirs (OAKS, C.1.3).
        head = f"Current Head Index : {probe.position}, question: " if head_index else ""
        text = f"## Question:\n{head}{probe.question}"
        if probe.options is None:
            return text
        if len(probe.options) > len(string.ascii_uppercase):
            raise ValueError(f"{probe.id}: {len(probe.options)} options, at most 26 have a letter")
        lettered = zip(string.ascii_uppercase, probe.options, strict=False)
        options = "\n".join(f"{letter}. {option}" for letter, option in lettered)
        return f"{text}\n\n## Options:\n{options}"


PROMPTS = {
    prompt.name: prompt
    for prompt in (
        Prompt("oaks_babi", "short", _BABI, _BABI_CLOSED),
        # OAKS prints two answer forms for OAKS-N; we always demand the marked line and read both (open point 6).
        Prompt("oaks_novel", "choice", _NOVEL, _NOVEL_CLOSED),
    )
}


def get_prompt(name: str, text: str | None = None) -> Prompt:
    """The prompt of that name.

    Args:
        text: a system text of the user's, taken word for word in place of ours, with and without context.

    Raises:
        ValueError: there is no such prompt.
    """
    if name not in PROMPTS:
        raise ValueError(f"unknown prompt {name!r}; there are {', '.join(PROMPTS)}")
    prompt = PROMPTS[name]
    return prompt if text is None else replace(prompt, system=text, closed=text)


def entry(document: Document) -> str:
    """A document with its index, as it is indexed and shown (OAKS, C.1.3)."""
    return f"# chunk index : {document.position}, context: {document.text}"


def fit(prompt: Prompt, probe: Probe, context: Context, llm: LLM) -> tuple[list[Message], Context]:
    """The chat over as many documents as the model can read, with room for `max_tokens` of answer.

    Documents are left out whole, in this order: retrieved ones from the lowest rank up, then recent ones from the
    oldest on (OAKS, 4 and C.1.3). Question and memory are never cut.

    Returns:
        The messages, and the context that they show.
    """
    budget = llm.context_length - llm.sampling.max_tokens
    bare = llm.count_prompt(prompt.messages(probe, _without(context, len(context))))
    sizes = [llm.count(entry(document)) for document in reversed(context.retrieved or ())]
    sizes += [llm.count(document.text) for document in context.recent or ()]
    if bare + sum(sizes) + SLACK * len(sizes) <= budget:
        return prompt.messages(probe, context), context

    # Between the bounds of what joining can add or save, count exactly: how rough the bounds are must not show.
    first = _first_fit(bare, [max(0, size - SLACK) for size in sizes], budget)
    last = _first_fit(bare, [size + SLACK for size in sizes], budget)
    n = bisect.bisect_left(
        range(last),
        True,
        lo=first,
        key=lambda n: llm.count_prompt(prompt.messages(probe, _without(context, n))) <= budget,
    )
    shown = _without(context, n)
    return prompt.messages(probe, shown), shown


def _first_fit(bare: int, sizes: list[int], budget: int) -> int:
    """The least number of leading `sizes` to leave out so that `bare` and the others are within `budget`."""
    total = itertools.accumulate(reversed(sizes), initial=bare)
    return len(sizes) - max(0, sum(tokens <= budget for tokens in total) - 1)


def _without(context: Context, n: int) -> Context:
    """The context with `n` documents left out, in the order that `fit` gives."""
    ranked = len(context.retrieved or ())
    return replace(
        context,
        retrieved=None if context.retrieved is None else context.retrieved[: max(0, ranked - n)],
        recent=None if context.recent is None else context.recent[max(0, n - ranked) :],
    )


def _parts(context: Context) -> Iterator[str]:
    """The context, a part a document. Separators lead a part, so that a longer context extends a shorter one."""
    gap = ""
    if context.memory is not None:
        yield f"- Memory:\n{context.memory}"
        gap = "\n\n"
    if context.retrieved is not None:
        yield f"{gap}- Retrieved context:"
        yield from (f"\n{entry(document)}" for document in context.retrieved)
        if context.recent is not None:
            yield "\n\n# Recent Chunks: "
            gap = ""
    for document in context.recent or ():
        yield f"{gap}{document.text}"
        gap = "\n"


def _message(role: str, *parts: str) -> Message:
    return Message(role=role, parts=list(parts))
