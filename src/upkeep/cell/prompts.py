"""What a prompt does: how a probe and its documents become a chat, and what is left out when they do not fit.

The texts are data in their papers' folders (`papers/<paper>/prompts/`). One prompt a dataset, the same for every method
(OAKS, C.1.5).
"""

from __future__ import annotations

import bisect
import itertools
import re
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from upkeep.cell.interface import LLM, Context, Message
from upkeep.contract import Document, Form, Pair, Probe, PromptCard, Rules

SLACK = 2
"""Tokens that joining two parts may add at most: a tokenizer can split differently where they meet."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """How a dataset's probes are put to a model."""

    card: PromptCard
    examples: Sequence[Pair] = ()
    """Worked examples, shown in the order given to questions of their language (PRELUDE, C.2)."""

    @property
    def form(self) -> Form:
        """The usual form of an answer, and that of training pairs."""
        return self.card.form

    @property
    def marker(self) -> str:
        """What the reply is to put before the answer."""
        return self.card.marker

    def messages(self, probe: Probe, context: Context) -> list[Message]:
        """The chat that asks `probe` over `context`.

        The user message has the heading, then one part a document, then the question: prompts of one interval differ
        in the last part alone, and those of the next interval extend the documents.
        """
        question = self._question(probe, head_index=context.retrieved is not None)
        if not context:
            return [_message("system", self._rules(probe, closed=True)), _message("user", question)]
        heading = _line(self.card.headings.context)
        return [
            _message("system", self._rules(probe, closed=False)),
            _message("user", heading, *_parts(context), f"\n\n{question}"),
        ]

    def target(self, answer: str) -> str:
        """The reply that gives `answer` in the form the prompt asks for."""
        return f"{self.marker} {answer}"

    def _rules(self, probe: Probe, *, closed: bool) -> str:
        chinese = _is_chinese(probe.question)
        rules: Rules = self.card.chinese if self.card.chinese and chinese else self.card
        shown = [e for e in self.examples if _is_chinese(e.question) == chinese]
        examples = (
            f"\n\n<example_{n}>\n{e.question}\n{e.answer}\n</example_{n}>" for n, e in enumerate(shown, start=1)
        )
        return "".join([rules.closed if closed else rules.system, self.card.asks.get(probe.form, ""), *examples])

    def _question(self, probe: Probe, head_index: bool) -> str:
        # The paper names the index of the present chunk wherever chunks are shown with theirs (OAKS, C.1.3).
        head = f"Current Head Index : {probe.position}, question: " if head_index and self.card.indexed else ""
        text = f"{_line(self.card.headings.question)}{head}{probe.question}"
        if probe.options is None:
            return text
        if probe.form == "label":
            return f"{text}\n\n## Labels:\n{', '.join(probe.options)}" if "label" in self.card.asks else text
        if len(probe.options) > len(string.ascii_uppercase):
            raise ValueError(f"{probe.id}: {len(probe.options)} options, at most 26 have a letter")
        lettered = zip(string.ascii_uppercase, probe.options, strict=False)
        options = "\n".join(f"{letter}. {option}" for letter, option in lettered)
        return f"{text}\n\n## Options:\n{options}"


_CHINESE = re.compile(r"[\u4e00-\u9fff]")


def _is_chinese(text: str) -> bool:
    """Whether most of a text's letters are Chinese; a Chinese name in an English question is not enough."""
    return 2 * len(_CHINESE.findall(text)) > sum(map(str.isalpha, text))


def _line(heading: str) -> str:
    return f"{heading}\n" if heading else ""


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
        shown = context.retrieved
        if context.by_arrival:
            shown = sorted(shown, key=lambda document: document.position)
        yield from (f"\n{entry(document)}" for document in shown)
        if context.recent is not None:
            yield "\n\n# Recent Chunks: "
            gap = ""
    for document in context.recent or ():
        yield f"{gap}{document.text}"
        gap = "\n"


def _message(role: str, *parts: str) -> Message:
    return Message(role=role, parts=list(parts))
