"""The latest documents only."""

from upkeep.cell import LLM, Answer, Context, Method, Probe, Seen


class RollingWindow(Method):
    async def answer(self, probe: Probe, seen: Seen, llm: LLM) -> Answer:
        return await self.read(probe, llm, Context(recent=seen.latest(self.parameters["window"])))
