"""One structured memory, rewritten with every document under a token budget; questions are answered from it."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from upkeep.cell import LLM, Answer, Context, Document, Message, Method, Probe, Seen, Tools
from upkeep.cell.interface import PromptTooLong
from upkeep.cell.retrieval import Bm25

SYSTEM = """\
You keep a memory of everything that matters in a stream of texts. You get the memory so far and the next text, and \
you write the memory anew. Later, questions are answered from your memory alone.

The memory has three sections, each a list of short, self-contained statements with names, numbers and order of events:
## Active
What holds now.
## Superseded
What held before and no longer does, and what took its place.
## Uncertain
What is hinted at, or contradicts itself.

Move a statement from Active to Superseded as soon as the new text changes it. Leave out what no question would ask. \
Stay below {budget} tokens. Write the memory and nothing else."""

LONGEST = 8192
"""Tokens that one rewriting may take at most (ImprintBench, Table 12)."""


class MemoryScaffold(Method):
    def __init__(self, parameters: dict[str, Any], tools: Tools) -> None:
        super().__init__(parameters, tools)
        self.budget: int = parameters["budget"]
        self.k: int = parameters.get("k", 0)
        self.index = Bm25()
        self.memories: dict[str, str] = {}

    async def arrive(self, stream: str, documents: Sequence[Document], llm: LLM) -> None:
        if self.k:
            self.index.add(documents)
        for document in documents:
            self.memories[stream] = await self.rewritten(self.memories.get(stream, ""), document, llm)

    async def rewritten(self, memory: str, document: Document, llm: LLM) -> str:
        """The memory after one more document."""
        sampling = replace(llm.sampling, max_tokens=min(2 * self.budget, LONGEST))
        room = llm.context_length - sampling.max_tokens - self.budget - llm.count_prompt(self._update("", "")) - 16
        if room < 1:
            raise PromptTooLong(f"a memory of {self.budget} tokens cannot be kept in {llm.context_length} of context")
        for text in pieces(document.text, room, llm):
            reply = await llm.chat(self._update(memory, text), sampling)
            memory = cut(reply.text.strip(), self.budget, llm)
        return memory

    def _update(self, memory: str, text: str) -> list[Message]:
        return [
            Message(role="system", parts=[SYSTEM.format(budget=self.budget)]),
            Message(role="user", parts=[f"# Memory so far\n{memory or '(empty)'}", f"\n\n# Next text\n{text}"]),
        ]

    async def answer(self, probe: Probe, seen: Seen, llm: LLM) -> Answer:
        memory = self.memories[probe.stream]
        if not self.k:
            return await self.read(probe, llm, Context(memory=memory))
        found = self.index.search(probe, self.k)
        context = Context(memory=memory, retrieved=seen.pick(r.id for r in found))
        return await self.read(probe, llm, context, found)


def pieces(text: str, room: int, llm: LLM) -> list[str]:
    """The text in as few halves of halves as fit into `room` tokens each, cut between words where it can be."""
    if len(text) <= 1 or llm.count(text) <= room:
        return [text]
    middle = text.rfind(" ", 1, len(text) // 2 + 1)
    middle = middle if middle > 0 else len(text) // 2
    return pieces(text[:middle], room, llm) + pieces(text[middle:], room, llm)


def cut(memory: str, budget: int, llm: LLM) -> str:
    """The longest beginning of a memory that is within `budget` tokens."""
    if llm.count(memory) <= budget:
        return memory
    fits = bisect.bisect_right(range(len(memory)), budget, key=lambda n: llm.count(memory[:n]))
    return memory[: max(0, fits - 1)]
