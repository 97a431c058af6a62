"""Training pairs as examples before a question: as many as the model can read."""

from __future__ import annotations

import bisect
import hashlib
from collections.abc import Iterable, Sequence

from upkeep.cell.interface import LLM, Message
from upkeep.cell.prompts import SLACK, Prompt
from upkeep.contract import Document, Pair

KEPT = 64
"""Texts whose tokens are remembered: the same examples stand before many questions."""


class Examples:
    """Puts training pairs behind a prompt's rules, each with its question as it is and the answer as a reply gives it.

    Args:
        seed: which order they are in; it is the same for every question.
    """

    def __init__(self, prompt: Prompt, seed: int) -> None:
        self._prompt, self._seed = prompt, seed
        self._sizes: dict[str, int] = {}

    def given(self, documents: Iterable[Document]) -> list[Pair]:
        """The pairs that came with documents, each once, in an order that does not change as others come."""
        pairs = {(pair.question, pair.answer): pair for document in documents for pair in document.pairs}
        return [pairs[key] for key in sorted(pairs, key=self._place)]

    def _place(self, key: tuple[str, str]) -> bytes:
        return hashlib.sha256("\n".join([str(self._seed), *key]).encode()).digest()

    def shown(self, messages: Sequence[Message], pairs: Sequence[Pair], llm: LLM) -> tuple[list[Message], int]:
        """A chat with as many of the first pairs as fit beside it and the answer, and how many these are."""
        rules, *rest = messages
        texts = [self._text(pair) for pair in pairs]
        room = llm.context_length - llm.sampling.max_tokens - llm.count_prompt(messages) - SLACK
        n = bisect.bisect_right(range(1, len(texts) + 1), room, key=lambda n: self._size("".join(texts[:n]), llm))
        return [Message(role=rules["role"], parts=[*rules["parts"], *texts[:n]]), *rest], n

    def _text(self, pair: Pair) -> str:
        return f"\n\n<example>\n{pair.question}\n{self._prompt.target(pair.answer)}\n</example>"

    def _size(self, text: str, llm: LLM) -> int:
        if text not in self._sizes:
            if len(self._sizes) == KEPT:
                self._sizes.clear()
            self._sizes[text] = llm.count(text)
        return self._sizes[text]
