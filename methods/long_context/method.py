"""All documents that have arrived, in order; the oldest are dropped when the model's limit is reached."""

from upkeep.cell import LLM, Answer, Context, Method, Probe, Seen


class LongContext(Method):
    async def answer(self, probe: Probe, seen: Seen, llm: LLM) -> Answer:
        return await self.read(probe, llm, Context(recent=seen.documents))
