"""The question alone: what the model knows without any document."""

from upkeep.cell import LLM, Answer, Context, Method, Probe, Seen


class ClosedBook(Method):
    async def answer(self, probe: Probe, seen: Seen, llm: LLM) -> Answer:
        return await self.read(probe, llm, Context())
