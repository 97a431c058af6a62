"""The model answers with one context, and judges and corrects its answer with another."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from upkeep.cell import LLM, Answer, Context, Document, Message, Method, Probe, Retrieved, Seen, Tools
from upkeep.cell.retrieval import Bm25, Dense

CHECK = """\
A student has answered a question. Say whether the answer is right; if it is not, give the right one. Write two lines \
and nothing else:
Yes: why it is right, or No: why it is not
The correct answer: the student's answer, if it is right, or else the right one"""

VERDICT = re.compile(r"^\W*(yes|no)\b", re.IGNORECASE | re.MULTILINE)
CORRECTED = re.compile(r"the correct answer\W*:\s*(.+)", re.IGNORECASE)


class SelfCritique(Method):
    def __init__(self, parameters: dict[str, Any], tools: Tools) -> None:
        super().__init__(parameters, tools)
        used = {parameters["answer"], parameters["check"]}
        self.indices: dict[str, Bm25 | Dense] = {}
        if "rag_bm25" in used:
            self.indices["rag_bm25"] = Bm25()
        if "rag_dense" in used:
            self.indices["rag_dense"] = Dense(tools.embedder)

    async def arrive(self, stream: str, documents: Sequence[Document], llm: LLM) -> None:
        for index in self.indices.values():
            index.add(documents)

    async def answer(self, probe: Probe, seen: Seen, llm: LLM) -> Answer:
        context, found = self.context("answer", probe, seen)
        first = await self.read(probe, llm, context, found)
        said = (first.response or "").rpartition(self.tools.prompt.marker)[2].strip()
        context, _ = self.context("check", probe, seen)
        reply = (await llm.chat(checking(probe, said, context, llm))).text
        verdict, corrected = VERDICT.search(reply), CORRECTED.findall(reply)
        unread = verdict is None or not corrected
        wrong = not unread and verdict is not None and verdict[1].lower() == "no"
        if wrong:
            first.response = self.tools.prompt.target(corrected[-1].strip())
        first.values = {"corrected": float(wrong), "unread_verdict": float(unread)}
        return first

    def context(self, step: str, probe: Probe, seen: Seen) -> tuple[Context, list[Retrieved]]:
        """What the model reads when it answers, or when it checks; and what was retrieved for that."""
        match self.parameters[step]:
            case "memory":
                return Context(), []
            case "oracle":
                return Context(recent=seen.evidence), []
            case name:
                found = self.indices[name].search(probe, self.parameters["k"])
                return Context(retrieved=seen.pick(one.id for one in found)), found


def checking(probe: Probe, answer: str, context: Context, llm: LLM) -> list[Message]:
    """The chat that has an answer judged: as many documents as fit, the question, the answer (EvoWiki, E.5)."""
    documents = [*(context.recent or ()), *(context.retrieved or ())]
    while True:
        shown = ["# Context", *(f"\n{document.text}" for document in documents), "\n\n"] if documents else []
        parts = [*shown, f"# Question\n{probe.question}\n\n# Student's answer\n{answer}"]
        messages = [Message(role="system", parts=[CHECK]), Message(role="user", parts=parts)]
        if not documents or llm.count_prompt(messages) + llm.sampling.max_tokens <= llm.context_length:
            return messages
        documents.pop()
