"""Documents retrieved from before a window, and the window of the latest documents."""

from collections.abc import Sequence
from typing import Any

from upkeep.cell import LLM, Answer, Context, Document, Method, Probe, Seen, Tools
from upkeep.cell.retrieval import Dense


class RagRollingWindow(Method):
    def __init__(self, parameters: dict[str, Any], tools: Tools) -> None:
        super().__init__(parameters, tools)
        self.index = Dense(tools.embedder)

    async def arrive(self, stream: str, documents: Sequence[Document], llm: LLM) -> None:
        self.index.add(documents)

    async def answer(self, probe: Probe, seen: Seen, llm: LLM) -> Answer:
        recent = seen.latest(self.parameters["window"])
        older = seen.documents[: len(seen.documents) - len(recent)]
        found = self.index.search(probe, self.parameters["k"], last=older[-1].position) if older else []
        return await self.read(probe, llm, Context(recent=recent, retrieved=seen.pick(r.id for r in found)), found)
