"""Control: no answer. Must score 0, or the dataset or a scorer is broken."""

from upkeep.cell import LLM, Answer, Method, Probe, Seen


class Null(Method):
    async def answer(self, probe: Probe, seen: Seen, llm: LLM) -> Answer:
        return Answer(None)
