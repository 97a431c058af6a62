"""A memory for each question, rewritten with every document; the question is answered from it alone."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from upkeep.cell import LLM, Answer, Context, Message, Method, Probe, Seen, Tools
from upkeep.cell.budget import cut, pieces
from upkeep.cell.interface import PromptTooLong

UPDATE = """\
A question is to be answered from a long text, of which you read one section after the other. Here are the question, \
your memory of the sections so far, and the next section. Write the memory anew: keep what it says that helps to \
answer the question, and add what the section says about it. Write the memory and nothing else."""

NOTHING = "(nothing yet)"
MEMORY = 1024
"""Tokens of a memory at most (Yu et al., MemAgent)."""


class MemAgent(Method):
    def __init__(self, parameters: dict[str, Any], tools: Tools) -> None:
        super().__init__(parameters, tools)
        self.budget: int = parameters.get("budget", MEMORY)
        self.kept: dict[tuple[str, int], tuple[int, str]] = {}
        """Of a question and trial: how many documents have been read, and the memory of them."""

    async def answer(self, probe: Probe, seen: Seen, llm: LLM) -> Answer:
        key = probe.question_id, llm.trial
        read, memory = self.kept.get(key, (0, ""))
        for document in seen.documents[read:]:
            memory = await self.rewritten(memory, document.text, probe, llm)
            self.kept[key] = document.position + 1, memory
        return await self.read(probe, llm, Context(memory=memory))

    async def rewritten(self, memory: str, text: str, probe: Probe, llm: LLM) -> str:
        """The memory after one more document.

        Raises:
            ValueError: the model wrote nothing. Upstream goes on with an empty memory.
        """
        sampling = replace(llm.sampling, max_tokens=self.budget)
        room = llm.context_length - 2 * self.budget - llm.count_prompt(update("", "", probe)) - 16
        if room < 1:
            raise PromptTooLong(f"a memory of {self.budget} tokens cannot be kept in {llm.context_length} of context")
        for section in pieces(text, room, llm):
            reply = await llm.chat(update(memory, section, probe), sampling)
            if not (written := reply.text.strip()):
                raise ValueError("the memory came back empty")
            memory = cut(written, self.budget, llm)
        return memory


def update(memory: str, section: str, probe: Probe) -> list[Message]:
    """The chat that has a memory rewritten with a section."""
    question = "\n".join([probe.question, *(f"- {option}" for option in probe.options or ())])
    parts = [
        f"{UPDATE}\n\n# Question\n{question}",
        f"\n\n# Memory\n{memory or NOTHING}",
        f"\n\n# Section\n{section}",
    ]
    return [Message(role="user", parts=parts)]
