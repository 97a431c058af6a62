"""The k documents nearest to the question by dense embeddings.

They are shown best first; with the parameter `order: arrival` in the order in which they arrived.
"""

from collections.abc import Sequence
from typing import Any

from upkeep.cell import LLM, Answer, Context, Document, Method, Probe, Seen, Tools
from upkeep.cell.retrieval import Dense


class RagDense(Method):
    def __init__(self, parameters: dict[str, Any], tools: Tools) -> None:
        super().__init__(parameters, tools)
        if (order := parameters.get("order", "relevance")) not in ("relevance", "arrival"):
            raise ValueError(f"order: expected `relevance` or `arrival`, found {order!r}")
        self.by_arrival = order == "arrival"
        self.index = Dense(tools.embedder)

    async def arrive(self, stream: str, documents: Sequence[Document], llm: LLM) -> None:
        self.index.add(documents)

    async def answer(self, probe: Probe, seen: Seen, llm: LLM) -> Answer:
        found = self.index.search(probe, self.parameters["k"])
        context = Context(retrieved=seen.pick(r.id for r in found), by_arrival=self.by_arrival)
        return await self.read(probe, llm, context, found)
