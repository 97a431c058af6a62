"""The evidence and nothing else: the very words that the question was made from, or else the documents that hold it."""

from upkeep.cell import LLM, Answer, Context, Method, Probe, Seen


class Oracle(Method):
    async def answer(self, probe: Probe, seen: Seen, llm: LLM) -> Answer:
        return await self.read(probe, llm, Context(recent=seen.evidence))
