"""The model searches for documents itself, one a search, before it answers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from upkeep.cell import (
    LLM,
    Answer,
    Context,
    ContextUse,
    Document,
    Message,
    Method,
    Probe,
    Reply,
    Retrieved,
    Seen,
    Tools,
)
from upkeep.cell.prompts import entry
from upkeep.cell.retrieval import Hybrid

SEARCH = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Finds the document that fits a query best among those that were not found before.",
        "parameters": {
            "type": "object",
            "properties": {"query": {"type": "string", "description": "What to look for, in words."}},
            "required": ["query"],
        },
    },
}
RULES = "\n\nYou may search for documents up to {k} times before you answer; each search finds one."
IN_TEXT = " To search, reply with one line `Search: <query>` and nothing else."
MARK = "search:"
MARGIN = 16
"""Tokens that a template may put around a message."""


class RagAgentic(Method):
    def __init__(self, parameters: dict[str, Any], tools: Tools) -> None:
        super().__init__(parameters, tools)
        self.index = Hybrid(tools.embedder)

    async def arrive(self, stream: str, documents: Sequence[Document], llm: LLM) -> None:
        self.index.add(documents)

    async def answer(self, probe: Probe, seen: Seen, llm: LLM) -> Answer:
        limit: int = self.parameters["k"]
        native = self.tools.calls_tools
        messages = self.tools.prompt.messages(probe, Context(retrieved=()))
        rules = RULES.format(k=limit) + ("" if native else IN_TEXT)
        messages[0] = Message(role="system", parts=[*messages[0]["parts"], rules])
        found: list[Retrieved] = []
        searches = shown = 0
        while True:
            searching = searches < limit
            reply = await llm.chat(messages, tools=[SEARCH]) if native and searching else await llm.chat(messages)
            asked = queries(reply, native=native) if searching else []
            if not asked:
                break
            messages.append(Message(role="assistant", parts=[reply.text], tool_calls=reply.tool_calls))
            for call, query in asked:
                result, searches = "No search is left: answer now.", searches + 1
                if searches <= limit:
                    result, document = self.searched(probe, query, seen, found)
                    if document is not None and not fits([*messages, told(call, result)], llm, native=native):
                        result = f"Document {document.position} does not fit into your context."
                    shown += document is not None and result == entry(document)
                messages.append(told(call, result))
        return Answer(reply.text, found, ContextUse(documents=shown, dropped=len(found) - shown))

    def searched(
        self, probe: Probe, query: str | None, seen: Seen, found: list[Retrieved]
    ) -> tuple[str, Document | None]:
        """What a search says, and the document that it adds to `found`."""
        if not query:
            return "The search has no query.", None
        known = {one.id for one in found}
        ranked = self.index.search(replace(probe, question=query), len(found) + 1)
        best = next((one for one in ranked if one.id not in known), None)
        if best is None:
            return "Nothing else is there.", None
        found.append(replace(best, rank=len(found) + 1))
        (document,) = seen.pick([best.id])
        return entry(document), document


def queries(reply: Reply, *, native: bool) -> list[tuple[str | None, str | None]]:
    """The searches that a reply asks for: the call that each answers to (None in text), and its query (None where it is
    malformed)."""
    if native:
        return [(call.id, _query(call.arguments)) for call in reply.tool_calls]
    lines = (line.strip() for line in reply.text.splitlines())
    asked = [line[len(MARK) :].strip() for line in lines if line.lower().startswith(MARK)]
    return [(None, asked[0])] if asked else []


def _query(arguments: str) -> str | None:
    try:
        query = json.loads(arguments)["query"]
    except (ValueError, KeyError, TypeError):
        return None
    return query.strip() if isinstance(query, str) else None


def told(call: str | None, result: str) -> Message:
    """The message with what a search has found."""
    if call is None:
        return Message(role="user", parts=[result])
    return Message(role="tool", parts=[result], tool_call_id=call)


def fits(messages: Sequence[Message], llm: LLM, *, native: bool) -> bool:
    """Whether a chat leaves room for tools and answer."""
    room = llm.context_length - llm.sampling.max_tokens - llm.count(json.dumps(SEARCH)) * native
    return llm.count_prompt(messages) + MARGIN <= room
