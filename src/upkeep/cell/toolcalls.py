"""How models are told of tools and write calls of them, and what constrains what a model writes.

A model's card names its form (`tool_calls`), which is the form that its chat template shows it:

    hermes    <tool_call>
              {"name": "look_up", "arguments": {"word": "lamp"}}
              </tool_call>
    json      {"name": "look_up", "parameters": {"word": "lamp"}}

Constraints are grammars in the Lark form that llguidance reads; both engines have it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from upkeep.cell.interface import ToolCall
from upkeep.cell.wire import MAX_STOPS, MAX_TOP, Options
from upkeep.contract import ModelSpec

MAX_TOOLS = 128
CHOICES = ("auto", "none", "required")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_HERMES = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
_PLAIN_JSON = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""JSON without room for endless blanks."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a call of the model asks for beside its messages."""

    tools: Sequence[dict[str, Any]]
    """That the model is shown."""
    options: Options


def asked(
    spec: ModelSpec,
    tools: Sequence[dict[str, Any]],
    tool_choice: str,
    schema: dict[str, Any] | None,
    stop: Sequence[str],
    top_logprobs: int,
) -> Asked:
    """The options of `upkeep.cell.interface.LLM.chat`, checked, for a model whose weights are at hand.

    Raises:
        ValueError: they are malformed, or the model cannot do it.
    """
    check(tools, tool_choice, schema, stop, top_logprobs)
    shown = () if tool_choice == "none" else tools
    if shown and spec.tool_calls is None:
        raise ValueError(f"{spec.label} cannot call tools: its card does not say in which form (`tool_calls`)")
    grammar = _grammar(spec.tool_calls or "", shown, tool_choice, schema)
    if grammar is not None and spec.thinking == "on":
        raise ValueError(
            f"{spec.label} thinks before it answers, and what it writes cannot be constrained then: leave out "
            '`schema`, and let `tool_choice` be "auto"'
        )
    return Asked(shown, Options(stop=list(stop), grammar=grammar, top_logprobs=top_logprobs))


def check(
    tools: Sequence[dict[str, Any]],
    tool_choice: str,
    schema: dict[str, Any] | None,
    stop: Sequence[str],
    top_logprobs: int,
) -> None:
    """See whether the options of `upkeep.cell.interface.LLM.chat` are what they should be.

    Raises:
        ValueError: they are not.
    """
    names = [_name(tool) for tool in tools]
    if len(names) > MAX_TOOLS or len(set(names)) < len(names) or not set(names).isdisjoint(CHOICES):
        raise ValueError(f"tools: expected at most {MAX_TOOLS}, each with a name of its own, but none of {CHOICES}")
    if tool_choice not in (*CHOICES, *names):
        raise ValueError(f"tool_choice: expected one of {CHOICES} or a tool's name, found {tool_choice!r}")
    if tool_choice == "required" and not names:
        raise ValueError("tool_choice: a call is required, but there are no tools")
    if schema is not None and not isinstance(schema, dict):
        raise ValueError(f"schema: expected a JSON schema as a dictionary, found {type(schema).__name__}")
    if isinstance(stop, str) or len(stop) > MAX_STOPS or not all(isinstance(s, str) and s for s in stop):
        raise ValueError(f"stop: expected a sequence of at most {MAX_STOPS} strings, none of them empty")
    if isinstance(top_logprobs, bool) or not isinstance(top_logprobs, int) or not 0 <= top_logprobs <= MAX_TOP:
        raise ValueError(f"top_logprobs: expected a number from 0 to {MAX_TOP}, found {top_logprobs!r}")


def _name(tool: Any) -> str:
    function = tool.get("function") if isinstance(tool, dict) and tool.get("type") == "function" else None
    if not isinstance(function, dict) or not isinstance(function.get("parameters", {}), dict):
        raise ValueError(
            'tools: expected {"type": "function", "function": {"name", "description", "parameters"}}, with '
            f"`parameters` a JSON schema; found {tool!r:.200}"
        )
    name = function.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"tools: a name has 1 to 64 letters, digits and `_.-`; found {name!r:.100}")
    return name


# ---------------------------------------------------------------- what the template is given


def templated(role: str, parts: Sequence[str], calls: Sequence[ToolCall], answered: str | None) -> dict[str, Any]:
    """A message as chat templates take it.

    Args:
        answered: the call that it is the result of.

    Raises:
        ValueError: the arguments of a call are no JSON object.
    """
    found: dict[str, Any] = {"role": role, "content": "".join(parts)}
    if calls:
        found["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": _arguments(call)}}
            for call in calls
        ]
    if answered is not None:
        found["tool_call_id"] = answered
    return found


def is_object(text: str) -> bool:
    """Whether a text is a JSON object."""
    return isinstance(_loaded(text), dict)


def _arguments(call: ToolCall) -> dict[str, Any]:
    found = _loaded(call.arguments)
    if not isinstance(found, dict):
        raise ValueError(f"the call {call.id!r}: its arguments are no JSON object: {call.arguments!r:.200}")
    return found


# ---------------------------------------------------------------- reading calls


def read(text: str, form: str, tools: Sequence[dict[str, Any]], call: int) -> tuple[str, tuple[ToolCall, ...]]:
    """Text and calls of an answer. What is no well-formed call of one of the tools stays text.

    Args:
        form: the card's `tool_calls`.
        call: number of the model call, which makes the calls' ids unique: nine letters and digits, as the strictest
            templates want them.
    """
    names = [_name(tool) for tool in tools]
    if form == "hermes":
        parts = _HERMES.split(text)
        found = [_call(part, names) for part in parts[1::2]]
        if found and all(found):
            return "".join(parts[::2]).strip(), _numbered([one for one in found if one], call)
        return text, ()
    whole = _loaded(text)
    listed = whole if isinstance(whole, list) else [whole]
    calls = [_as_call(one, names) for one in listed]
    return ("", _numbered([one for one in calls if one], call)) if calls and all(calls) else (text, ())


def _numbered(calls: Sequence[tuple[str, str]], call: int) -> tuple[ToolCall, ...]:
    return tuple(ToolCall(f"{call:05x}{n:04x}", name, arguments) for n, (name, arguments) in enumerate(calls))


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _call(text: str, names: Sequence[str]) -> tuple[str, str] | None:
    return _as_call(_loaded(text), names)


def _as_call(found: Any, names: Sequence[str]) -> tuple[str, str] | None:
    if not isinstance(found, dict) or found.get("name") not in names:
        return None
    arguments = found.get("arguments", found.get("parameters", {}))
    return (found["name"], json.dumps(arguments, ensure_ascii=False)) if isinstance(arguments, dict) else None


# ---------------------------------------------------------------- constraints


def _grammar(form: str, tools: Sequence[dict[str, Any]], tool_choice: str, schema: dict[str, Any] | None) -> str | None:
    """The grammar of an answer; None where any text is one."""
    forced = bool(tools) and tool_choice != "auto"
    if schema is None and not forced:
        return None
    kinds, rules = [], []
    if tools:
        called = [tool["function"] for tool in tools if tool_choice in (*CHOICES, tool["function"]["name"])]
        opening, closing = ("<tool_call>\n", "\n</tool_call>") if form == "hermes" else ("", "")
        key = "arguments" if form == "hermes" else "parameters"
        kinds.append("calls")
        rules.append('calls: call ("\\n" call)*' if form == "hermes" else "calls: call")
        rules.append("call: " + " | ".join(f"call_{n}" for n in range(len(called))))
        for n, function in enumerate(called):
            before = f'{opening}{{"name": {json.dumps(function["name"])}, "{key}": '
            parameters = function.get("parameters") or {"type": "object", "properties": {}}
            rules.append(f"call_{n}: {_literal(before)} {_json(parameters)} {_literal('}' + closing)}")
    if schema is not None and not forced:
        kinds.append("answer")
        rules.append(f"answer: {_json(schema)}")
    return "\n".join([f"start: {' | '.join(kinds)}", *rules])


def _literal(text: str) -> str:
    return json.dumps(text)


def _json(schema: dict[str, Any]) -> str:
    return f"%json {json.dumps({**schema, 'x-guidance': _PLAIN_JSON})}"
