"""A summary of each document, or of the training pairs made of it, and all of them together before every question."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from upkeep.cell import LLM, Answer, Context, Document, Message, Method, Probe, Seen, Tools
from upkeep.cell.asking import instructed
from upkeep.cell.budget import cut, pieces, supervised
from upkeep.cell.interface import PromptTooLong

SYSTEM = """\
You summarise one text for somebody who will answer questions about it without seeing it. Keep names, numbers, dates \
and identifiers as they are written, and what replaced what. Use about {budget} tokens at most. Write the summary and \
nothing else."""

FEATURE = 172
"""Tokens of a feature's summary. No target is printed: these are the 2,600 of a mean feature divided by the compression
of 15.1 (ImprintBench, Table 13)."""


class DocumentSummary(Method):
    def __init__(self, parameters: dict[str, Any], tools: Tools) -> None:
        super().__init__(parameters, tools)
        self.budget: int = parameters.get("budget", FEATURE)
        self.supervision: str = parameters.get("supervision", "C")
        self.summaries: dict[str, list[str]] = {}

    async def arrive(self, stream: str, documents: Sequence[Document], llm: LLM) -> None:
        given = ("\n\n".join(supervised(document, self.supervision)) for document in documents)
        written = await asyncio.gather(*(self.summary(text, llm) for text in given if text))
        self.summaries.setdefault(stream, []).extend(written)

    async def summary(self, text: str, llm: LLM) -> str:
        """What stands for a document; for each of its pieces, where the model cannot read it whole.

        Raises:
            ValueError: the model wrote nothing.
        """
        sampling = replace(llm.sampling, max_tokens=self.budget * 3 // 2)
        room = llm.context_length - sampling.max_tokens - llm.count_prompt(self.request("")) - 16
        if room < 1:
            raise PromptTooLong(f"no text to summarise fits into {llm.context_length} tokens of context")
        replies = [await llm.chat(self.request(piece), sampling) for piece in pieces(text, room, llm)]
        if not all(reply.text.strip() for reply in replies):
            raise ValueError("a summary came back empty")
        return "\n".join(cut(reply.text.strip(), self.budget * 5 // 4, llm) for reply in replies)

    def request(self, text: str) -> list[Message]:
        """The chat that asks for a text's summary."""
        return instructed(SYSTEM.format(budget=self.budget), f"# Text\n{text}")

    async def answer(self, probe: Probe, seen: Seen, llm: LLM) -> Answer:
        return await self.read(probe, llm, Context(memory="\n\n".join(self.summaries[probe.stream])))
