"""A model that searches the documents itself before it answers, by a tool or by lines of text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from upkeep.cell.interface import LLM, Answer, Context, Message, Reply, Seen, ToolCall
from upkeep.cell.method import Method, Tools
from upkeep.cell.prompts import entry
from upkeep.cell.retrieval import Hybrid
from upkeep.contract import ContextUse, Document, Probe, Retrieved

NAME = "search"
SEARCH = {
    "type": "function",
    "function": {
        "name": NAME,
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
NO_TOOL = f"There is no such tool: the only one is `{NAME}`."
NO_JSON = "The arguments are no JSON."
NO_QUERY = "The search has no query."
MARGIN = 16
"""Tokens that a template may put around a message."""


class Searching(Method):
    """Up to `k` searches before the answer, each of which finds `each` documents that were not found before."""

    each = 1
    rules = RULES

    def __init__(self, parameters: dict[str, Any], tools: Tools) -> None:
        super().__init__(parameters, tools)
        self.index = Hybrid(tools.embedder)

    async def arrive(self, stream: str, documents: Sequence[Document], llm: LLM) -> None:
        self.index.add(documents)

    async def answer(self, probe: Probe, seen: Seen, llm: LLM) -> Answer:
        limit: int = self.parameters["k"]
        native = self.tools.calls_tools
        messages = self.tools.prompt.messages(probe, Context(retrieved=()))
        rules = self.rules.format(k=limit) + ("" if native else IN_TEXT)
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
            for call, query, fault in asked:
                lines, searches = ["No search is left: answer now."], searches + 1
                if searches <= limit:
                    lines, documents = ([fault], []) if fault else self.searched(probe, query, seen, found)
                    for document in documents:
                        text = entry(document)
                        fitting = fits([*messages, told(call, "\n".join([*lines, text]))], llm, native=native)
                        lines.append(
                            text if fitting else f"Document {document.position} does not fit into your context."
                        )
                        shown += fitting
                messages.append(told(call, "\n".join(lines)))
        return Answer(reply.text, found, ContextUse(documents=shown, dropped=len(found) - shown))

    def searched(
        self, probe: Probe, query: str, seen: Seen, found: list[Retrieved]
    ) -> tuple[list[str], list[Document]]:
        """What a search says where it finds nothing, and the documents that it adds to `found`."""
        known = {one.id for one in found}
        ranked = self.index.search(replace(probe, question=query), len(found) + self.each)
        new = [one for one in ranked if one.id not in known][: self.each]
        found += [replace(one, rank=rank) for rank, one in enumerate(new, start=len(found) + 1)]
        return [] if new else ["Nothing else is there."], seen.pick(one.id for one in new)


def queries(reply: Reply, *, native: bool) -> list[tuple[str | None, str, str]]:
    """The searches that a reply asks for: the call that each answers to (None in text), its query, and what the model
    is told where it is malformed, else nothing."""
    if native:
        return [(call.id, *_query(call)) for call in reply.tool_calls]
    lines = (line.strip() for line in reply.text.splitlines())
    asked = [line[len(MARK) :].strip() for line in lines if line.lower().startswith(MARK)]
    return [(None, asked[0], "" if asked[0] else NO_QUERY)] if asked else []


def _query(call: ToolCall) -> tuple[str, str]:
    if call.name != NAME:
        return "", NO_TOOL
    try:
        arguments = json.loads(call.arguments)
    except ValueError:
        return "", NO_JSON
    query = arguments.get("query") if isinstance(arguments, dict) else None
    query = query.strip() if isinstance(query, str) else ""
    return query, "" if query else NO_QUERY


def told(call: str | None, result: str) -> Message:
    """The message with what a search has found."""
    if call is None:
        return Message(role="user", parts=[result])
    return Message(role="tool", parts=[result], tool_call_id=call)


def fits(messages: Sequence[Message], llm: LLM, *, native: bool) -> bool:
    """Whether a chat leaves room for tools and answer."""
    room = llm.context_length - llm.sampling.max_tokens - llm.count(json.dumps(SEARCH)) * native
    return llm.count_prompt(messages) + MARGIN <= room
