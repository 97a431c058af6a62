"""What a prompt wants a reply to look like, where the number of a method's further calls hangs on that."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from typing import Any

from upkeep.cell.interface import Message
from upkeep.cell.tokens import Scorable, TokenPrompt

JSON = re.compile(r"Write JSON and nothing else: (\{.*\})\s*$", re.DOTALL)
"""How methods ask for JSON (`upkeep.cell.asking`): with an example of it at the end of the rules."""
LINE = re.compile(r"up to (\d+) times.* reply with one line `([^`<]*)<[^`]*`", re.DOTALL)
"""How a method asks for a line in place of a tool's call, and how often there may be one."""
REPEATED = 3
"""Items of a list in which the example has more to come (`...`)."""


class FormTokens:
    """A tokenizer that remembers what form a prompt asks its reply for.

    Args:
        tokens: does the work.
        tool_calls: the form in which the model calls tools.
    """

    def __init__(self, tokens: Any, tool_calls: str | None) -> None:
        self._tokens, self._tool_calls = tokens, tool_calls
        self._forms: dict[int, str] = {}

    def prompt(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]] = ()) -> TokenPrompt:
        prompt: TokenPrompt = self._tokens.prompt(messages, tools)
        form = called(tools[0], self._tool_calls) if tools else asked(messages)
        if form is None:
            self._forms.pop(id(prompt), None)
        else:
            self._forms[id(prompt)] = form
        return prompt

    def form(self, prompt: TokenPrompt) -> str | None:
        """What a reply to it begins with, `...` for each text; None where any words will do. It is told once."""
        return self._forms.pop(id(prompt), None)

    def scorable(self, prompt: str | Sequence[Message], continuation: str) -> Scorable:
        scorable: Scorable = self._tokens.scorable(prompt, continuation)
        return scorable

    def count(self, text: str) -> int:
        return int(self._tokens.count(text))

    def encode(self, text: str) -> Sequence[int]:
        ids: Sequence[int] = self._tokens.encode(text)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._tokens.decode(ids))


def asked(messages: Sequence[Message]) -> str | None:
    """The form that a chat's rules ask for."""
    rules = "".join(messages[0]["parts"])
    if found := JSON.search(rules):
        return json.dumps(_blank(json.loads(re.sub(r"(\[\[.*?\]|\"\.\.\.\"), \.\.\.\]", r"\1]", found[1]))))
    if (found := LINE.search(rules)) and sum(m["role"] == "assistant" for m in messages) < int(found[1]):
        return f"{found[2]}..."
    return None


def called(tool: dict[str, Any], form: str | None) -> str:
    """A call of a tool, in the form of a model's card."""
    function = tool["function"]
    arguments = dict.fromkeys(function.get("parameters", {}).get("required", ()), "...")
    if form == "hermes":
        return f"<tool_call>\n{json.dumps({'name': function['name'], 'arguments': arguments})}\n</tool_call>"
    return json.dumps({"name": function["name"], "parameters": arguments}) + "\n"


def filled(form: str, words: Sequence[str], draw: random.Random) -> str:
    """A form with two words for each of its texts."""
    return re.sub(r"\.\.\.", lambda _: " ".join(draw.choices(words, k=2)), form)


def _blank(value: Any) -> Any:
    """An example with `...` for each of its texts, and further items in lists of lists."""
    match value:
        case dict():
            return {key: _blank(one) for key, one in value.items()}
        case list() if value and isinstance(value[0], list):
            return [_blank(value[0])] * REPEATED
        case list():
            return [_blank(one) for one in value]
        case str():
            return "..."
    return value
