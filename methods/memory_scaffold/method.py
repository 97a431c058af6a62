"""One structured memory, rewritten with every document under a token budget; questions are answered from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from upkeep.cell import LLM, Answer, Context, Document, Message, Method, Probe, Seen, Tools
from upkeep.cell.budget import cut, pieces
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
        self.k: int = parameters.get("k", 0)
        self.index = Bm25()
        self.memories: dict[str, str] = {}
        self.arrived: Counter[str] = Counter()
        """Tokens of each stream so far."""

    async def arrive(self, stream: str, documents: Sequence[Document], llm: LLM) -> None:
        if self.k:
            self.index.add(documents)
        for document in documents:
            self.arrived[stream] += llm.count(document.text)
            memory, budget = self.memories.get(stream, ""), self.budget(stream)
            self.memories[stream] = await self.rewritten(memory, document, budget, llm)

    def budget(self, stream: str) -> int:
        """Tokens of a stream's memory at most: a number, or a share of what has arrived (ImprintBench, Table 12)."""
        budget: int = self.parameters.get("budget", 0)
        return budget or max(1, self.arrived[stream] // int(self.parameters["target_ratio"]))

    async def rewritten(self, memory: str, document: Document, budget: int, llm: LLM) -> str:
        """The memory after one more document.

        Raises:
            ValueError: the model wrote nothing, which would forget all that came before.
        """
        sampling = replace(llm.sampling, max_tokens=min(2 * budget, LONGEST))
        room = llm.context_length - sampling.max_tokens - budget - llm.count_prompt(update("", "", budget)) - 16
        if room < 1:
            raise PromptTooLong(f"a memory of {budget} tokens cannot be kept in {llm.context_length} of context")
        for text in pieces(document.text, room, llm):
            reply = await llm.chat(update(memory, text, budget), sampling)
            if not (written := reply.text.strip()):
                raise ValueError("the memory came back empty")
            memory = cut(written, budget, llm)
        return memory

    async def answer(self, probe: Probe, seen: Seen, llm: LLM) -> Answer:
        memory = self.memories[probe.stream]
        if not self.k:
            return await self.read(probe, llm, Context(memory=memory))
        found = self.index.search(probe, self.k)
        context = Context(memory=memory, retrieved=seen.pick(r.id for r in found))
        return await self.read(probe, llm, context, found)


def update(memory: str, text: str, budget: int) -> list[Message]:
    """The chat that has a memory rewritten with a text."""
    return [
        Message(role="system", parts=[SYSTEM.format(budget=budget)]),
        Message(role="user", parts=[f"# Memory so far\n{memory or '(empty)'}", f"\n\n# Next text\n{text}"]),
    ]
