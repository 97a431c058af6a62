"""One line that says what new_method does, as its paper would."""

from upkeep.cell import LLM, Answer, Context, Method, Probe, Seen


class NewMethod(Method):
    async def answer(self, probe: Probe, seen: Seen, llm: LLM) -> Answer:
        # `seen.documents` is all that has arrived, oldest first. `self.read` asks the question in the dataset's prompt;
        # `await llm.chat(messages)` asks anything else.
        return await self.read(probe, llm, Context(recent=seen.latest(self.parameters["window"])))
