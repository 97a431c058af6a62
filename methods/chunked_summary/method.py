"""Documents, or training pairs made of them, packed into chunks; a summary of each, all together before a question."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from upkeep.cell import LLM, Answer, Context, Document, Message, Method, Probe, Seen, Tools
from upkeep.cell.budget import cut, pieces, supervised
from upkeep.cell.interface import PromptTooLong

SYSTEM = """\
You summarise texts for somebody who will answer questions about them without seeing them. Keep names, numbers, dates \
and identifiers as they are written, what replaced what, and in which order. Leave out what no question would ask. Use \
about {budget} tokens at most. Write the summary and nothing else."""

CHUNK = 32_768
"""Tokens of a chunk (ImprintBench 3.1)."""
GAP = 2
"""Tokens between two texts."""


class ChunkedSummary(Method):
    def __init__(self, parameters: dict[str, Any], tools: Tools) -> None:
        super().__init__(parameters, tools)
        self.budget: int = parameters["budget"]
        self.supervision: str = parameters.get("supervision", "C")
        self.chunks: dict[str, list[list[str]]] = {}
        """Of each stream: the texts of each chunk. The last one is not full yet."""
        self.summaries: dict[str, list[str]] = {}

    async def arrive(self, stream: str, documents: Sequence[Document], llm: LLM) -> None:
        chunks, summaries = self.chunks.setdefault(stream, [[]]), self.summaries.setdefault(stream, [])
        last, texts = len(chunks) - 1, len(chunks[-1])
        room = self.room(llm)
        filled = sum(llm.count(text) + GAP for text in chunks[-1])
        given = (one for document in documents for one in supervised(document, self.supervision))
        for text in (piece for one in given for piece in pieces(one, room - GAP, llm)):
            size = llm.count(text) + GAP
            if chunks[-1] and filled + size > room:
                chunks.append([])
                filled = 0
            chunks[-1].append(text)
            filled += size
        changed = last if len(chunks[last]) > texts else last + 1
        summaries[changed:] = await asyncio.gather(*(self.summary(chunk, llm) for chunk in chunks[changed:]))

    def room(self, llm: LLM) -> int:
        """Tokens of a chunk: the paper's, or as many as the model can read."""
        longest = llm.context_length - self.budget * 3 // 2 - llm.count_prompt(self.request([])) - 16
        if longest <= GAP:
            raise PromptTooLong(f"no text to summarise fits into {llm.context_length} tokens of context")
        return min(CHUNK, longest)

    async def summary(self, chunk: Sequence[str], llm: LLM) -> str:
        """What stands for a chunk: at most 1.25 of the budget, of at most 1.5 that were written (Table 12).

        Raises:
            ValueError: the model wrote nothing.
        """
        sampling = replace(llm.sampling, max_tokens=self.budget * 3 // 2)
        reply = await llm.chat(self.request(chunk), sampling)
        if not (text := reply.text.strip()):
            raise ValueError("a summary came back empty")
        return cut(text, self.budget * 5 // 4, llm)

    def request(self, chunk: Sequence[str]) -> list[Message]:
        """The chat that asks for a chunk's summary."""
        parts = ["# Texts", *(f"\n\n{text}" for text in chunk)]
        return [
            Message(role="system", parts=[SYSTEM.format(budget=self.budget)]),
            Message(role="user", parts=parts),
        ]

    async def answer(self, probe: Probe, seen: Seen, llm: LLM) -> Answer:
        return await self.read(probe, llm, Context(memory="\n\n".join(self.summaries[probe.stream])))
