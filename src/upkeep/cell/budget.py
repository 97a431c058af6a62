"""Texts within a number of tokens: what summaries and memories are read from, and kept to."""

from __future__ import annotations

import bisect
from collections.abc import Iterator

from upkeep.cell.interface import LLM
from upkeep.contract import Document


def supervised(document: Document, supervision: str) -> Iterator[str]:
    """What a variant is given of a document: its text with C, the training pairs made of it with Q, in this order."""
    if "C" in supervision:
        yield document.text
    if "Q" in supervision and document.pairs:
        yield "\n\n".join(f"Question: {pair.question}\nAnswer: {pair.answer}" for pair in document.pairs)


def pieces(text: str, room: int, llm: LLM) -> list[str]:
    """The text in as few halves of halves as fit into `room` tokens each, cut between words where it can be."""
    if len(text) <= 1 or llm.count(text) <= room:
        return [text]
    middle = text.rfind(" ", 1, len(text) // 2 + 1)
    middle = middle if middle > 0 else len(text) // 2
    return pieces(text[:middle], room, llm) + pieces(text[middle:], room, llm)


def cut(text: str, budget: int, llm: LLM) -> str:
    """The longest beginning of a text that is within `budget` tokens."""
    if llm.count(text) <= budget:
        return text
    fits = bisect.bisect_right(range(len(text)), budget, key=lambda n: llm.count(text[:n]))
    return text[: max(0, fits - 1)]
