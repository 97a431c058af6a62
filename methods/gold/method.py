"""Control: the right answer. Must score 100, or the dataset or a scorer is broken."""

from upkeep.cell import LLM, Answer, Method, Probe, Seen


class Gold(Method):
    async def answer(self, probe: Probe, seen: Seen, llm: LLM) -> Answer:
        if seen.gold is None:
            raise LookupError(f"{probe.id}: no answer key was handed in")
        return Answer(self.tools.prompt.target(seen.gold.answers[0]))
