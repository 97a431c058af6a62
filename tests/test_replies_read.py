"""Replies of models that help to build datasets: read out of what is around them, or refused."""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reading_texts import skipping
from upkeep.building import (
    annotator,
    answering,
    assistant,
    context,
)
from upkeep.errors import UpkeepError


class Verdict(msgspec.Struct):
    label: str
    reasons: list[str] = []


WANTED = Verdict("yes", ["a", "b"])
PLAIN = '{"label": "yes", "reasons": ["a", "b"]}'

# ---------------------------------------------------------------- replies


@pytest.mark.parametrize(
    "reply",
    [
        PLAIN,
        f"Sure! Here it is: {PLAIN} I hope that helps.",
        f"```json\n{PLAIN}\n```",
        f"```\n{PLAIN}\n```\nand\n```json\n{{}}\n```",
        f"First {{not json}} and [1, 2], then {PLAIN}",
        f"<think>is it [a] or {{b}}?</think>\n{PLAIN}",
        f"see [1 for the list. {PLAIN}",
        f"a bracket ] and }} before, {PLAIN} and after ]}}",
        f'an inch [5" wide\n{PLAIN}',
        '{"label": "yes", "extra": {"deep": [[{"x": "]}"}]]}, "reasons": ["a", "b"]}',
        '{"label": "yes", "reasons": ["a", "b"], "note": "a \\" quote, a } brace, a \\\\"}',
        '{"label": "no"} is wrong'.replace('"no"', "7") + f"; {PLAIN}",
        PLAIN.replace(" ", "\n\t"),
        f"{PLAIN} {PLAIN.replace('yes', 'no')}",
        f"\ud800 {PLAIN}",
    ],
)
def test_a_reply_is_read_out_of_whatever_is_around_it(reply: str) -> None:
    assert assistant.read_reply(reply, Verdict) == WANTED


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "yes",
        "{",
        PLAIN[:-1],
        PLAIN.replace('"yes"', "1"),
        '{"label": "yes",}',
        "[" * 300_000,
        "[" * 300_000 + "]" * 300_000,
        "{[" * 200_000 + "}]" * 200_000,
        '{"' * 200_000,
        '[{"label": ' * 50_000,
        "\\" * 100_000,
        "\0",
    ],
)
def test_a_reply_without_the_form_is_an_error_of_one_kind(reply: str) -> None:
    with pytest.raises(msgspec.MsgspecError):
        assistant.read_reply(reply, Verdict)


def test_free_text_is_taken_as_it_is() -> None:
    assert assistant.read_reply("  {not} json\n", str) == "{not} json"


@settings(max_examples=500, deadline=None)
@given(st.text(st.sampled_from('{}[]",:\\a1\n ')), st.text(st.sampled_from("}]:a1\n ,")))
def test_any_reply_is_read_or_refused_and_a_value_on_its_own_line_is_found(before: str, after: str) -> None:
    with_value = f"{before}\n{PLAIN}{after}"
    spans = assistant._values(with_value)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
    opened = before.count("{") + before.count("[")
    try:
        assert assistant.read_reply(with_value, Verdict) == WANTED
    except msgspec.MsgspecError:
        assert opened  # an open bracket before it may have found its partner behind it


def test_brackets_are_matched_in_one_pass() -> None:
    seen = 0

    class Watched(str):
        def __getitem__(self, key: Any) -> str:
            nonlocal seen
            seen += 1
            return super().__getitem__(key)

    for attack in ("[" * 50_000 + "}" * 50_000, "{[" * 30_000 + "}" * 30_000, "[{}" * 30_000 + "]" * 30_000):
        seen = 0
        assistant._values(Watched(attack))
        assert seen <= len(attack)


class Given(msgspec.Struct):
    n: int


def test_a_script_answers_each_request_in_order_and_counts_it() -> None:
    step = assistant.Step("double", int, lambda given: f"Double {given.n}.")
    helper = assistant.Scripted({"double": lambda given: given.n * 2 if given.n else None})
    assert helper.ask(step, [Given(2), Given(0), Given(5)]) == [4, None, 10]
    assert helper.ask(step, []) == []
    assert assistant.statistics(helper) == {"asked: double": 3}
    with pytest.raises(UpkeepError, match=r"(?s)no script for the step 'halve'.*double"):
        helper.ask(assistant.Step("halve", int, lambda given: ""), [Given(1)])


def test_a_model_that_is_named_answers_before_the_worlds_program_and_without_either_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = context.Context("d", None, tmp_path / "dataset.yaml", None, skipping())  # type: ignore[arg-type]
    hired = assistant.Scripted({})
    monkeypatch.setattr(
        annotator, "hire", lambda of, model: nullcontext(hired if (of, model) == (given, "m") else None)
    )
    with answering.by(given, "m", {"double": lambda given: 2}) as helper:
        assert helper is hired
    with answering.by(given, None, {"double": lambda given: 2}) as helper:
        assert helper.ask(assistant.Step("double", int, str), [Given(1)]) == [2]
    with pytest.raises(UpkeepError, match=r"(?s)dataset.yaml: options.assistant: no assistant.*models/"):
        answering.by(given, None)
    assert [answering.named(model) for model in ("m", None)] == ["m", "a program that knows the world"]
