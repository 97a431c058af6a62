"""As many training pairs as the model reads as examples before the question, and no document."""

from typing import Any

from upkeep.cell import LLM, Answer, Context, Method, Probe, Seen, Tools
from upkeep.cell.examples import Examples


class ManyShot(Method):
    def __init__(self, parameters: dict[str, Any], tools: Tools) -> None:
        super().__init__(parameters, tools)
        self.examples = Examples(tools.prompt, tools.seed)

    async def answer(self, probe: Probe, seen: Seen, llm: LLM) -> Answer:
        pairs = self.examples.given(seen.documents)
        messages, shown = self.examples.shown(self.tools.prompt.messages(probe, Context()), pairs, llm)
        reply = await llm.chat(messages)
        return Answer(reply.text, values={"shots": shown, "left_out": len(pairs) - shown})
