"""Claims about calls of tools as models write them, and about options that are refused."""

from __future__ import annotations

from typing import Any

import pytest

from test_options import GO, LOOK_UP, SCHEMA, calling
from upkeep.cell import toolcalls


@pytest.mark.parametrize(
    ("form", "text", "rest", "calls"),
    [
        ("hermes", '<tool_call>\n{"name": "go", "arguments": {}}\n</tool_call>', "", [("go", "{}")]),
        ("hermes", 'So:\n<tool_call>{"name": "go"}</tool_call>', "So:", [("go", "{}")]),
        (
            "hermes",
            '<tool_call>{"name": "go", "arguments": {"a": "é"}}</tool_call>\n<tool_call>{"name": "look_up", '
            '"arguments": {"word": "x"}}</tool_call>',
            "",
            [("go", '{"a": "é"}'), ("look_up", '{"word": "x"}')],
        ),
        ("hermes", "no call", "no call", []),
        ("hermes", "<tool_call>{torn", "<tool_call>{torn", []),
        ("hermes", "<tool_call>{torn</tool_call>", "<tool_call>{torn</tool_call>", []),
        ("hermes", '<tool_call>{"name": "fly"}</tool_call>', '<tool_call>{"name": "fly"}</tool_call>', []),
        (
            "hermes",
            '<tool_call>{"name": "go", "arguments": [1]}</tool_call>',
            '<tool_call>{"name": "go", "arguments": [1]}</tool_call>',
            [],
        ),
        ("json", '{"name": "look_up", "parameters": {"word": "x"}}', "", [("look_up", '{"word": "x"}')]),
        ("json", '[{"name": "go"}, {"name": "go", "arguments": {}}]', "", [("go", "{}"), ("go", "{}")]),
        ("json", '{"name": ["go"]}', '{"name": ["go"]}', []),
        ("json", "[]", "[]", []),
        ("json", "[" * 100_000, "[" * 100_000, []),
    ],
)
def test_well_formed_calls_of_tools_are_read_and_all_else_stays_text(
    form: str, text: str, rest: str, calls: list[tuple[str, str]]
) -> None:
    found, read = toolcalls.read(text, form, [LOOK_UP, GO], 3)
    assert (found, [(one.name, one.arguments) for one in read]) == (rest, calls)
    assert len({one.id for one in read}) == len(read) and all(len(one.id) == 9 and one.id.isalnum() for one in read)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tools": ["look_up"]}, "tools: expected"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "letters"),
        ({"tools": [GO, GO]}, "a name of its own"),
        ({"tools": [{"type": "function", "function": {"name": "auto"}}]}, "none of"),
        ({"tools": [{"type": "function", "function": {"name": "go", "parameters": []}}]}, "JSON schema"),
        ({"tools": [GO], "tool_choice": "look_up"}, "tool_choice"),
        ({"tool_choice": "required"}, "no tools"),
        ({"schema": "{}"}, "schema"),
        ({"stop": "end"}, "stop"),
        ({"stop": [""]}, "stop"),
        ({"stop": ["x"] * 17}, "stop"),
        ({"top_logprobs": 21}, "0 to 20"),
        ({"top_logprobs": -1}, "0 to 20"),
        ({"top_logprobs": True}, "0 to 20"),
    ],
)
def test_malformed_options_are_refused_before_the_model_is_asked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        toolcalls.asked(calling(), **{**NOTHING, **options})


NOTHING: dict[str, Any] = {"tools": (), "tool_choice": "auto", "schema": None, "stop": (), "top_logprobs": 0}


@pytest.mark.parametrize(
    ("card", "options", "message"),
    [
        ({"tool_calls": None}, {"tools": [GO]}, "`tool_calls`"),
        ({"thinking": "on"}, {"schema": SCHEMA}, "thinks"),
        ({"thinking": "on"}, {"tools": [GO], "tool_choice": "required"}, "thinks"),
    ],
)
def test_what_a_model_cannot_do_is_an_error(card: dict[str, Any], options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        toolcalls.asked(calling(**card), **{**NOTHING, **options})
