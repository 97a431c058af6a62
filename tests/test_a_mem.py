"""`a_mem`: the calls of a stream, links, rewritten notes, and replies that are not what was asked for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from method_runs import sentinels
from test_context_methods import Scripted, led


def kind(prompt: str) -> str:
    names = {"Describe the text": "analysis", "the notes that are nearest": "evolution", "Give the words": "query"}
    return next((name for words, name in names.items() if words in prompt), "answer")


def told(prompt: str) -> str:
    """A model that links each note to the nearest, and calls that one changed."""
    match kind(prompt):
        case "analysis":
            (position,) = sentinels(prompt)
            return json.dumps({"keywords": [f"key{position}"], "context": f"about {position}", "tags": ["old"]})
        case "evolution":
            change = {"note": 0, "context": "changed", "tags": ["changed"]}
            return json.dumps({"links": [0, 99, "no"], "tags": ["new"], "neighbours": [change, {"note": 7}, "no"]})
        case "query":
            return json.dumps({"keywords": ["Mira", "room"]})
    return "## Answer: x"


def test_two_calls_a_document_but_for_the_first_and_two_a_probe() -> None:
    llm = Scripted(told)
    _, answers = led("a_mem", "default", llm)
    kinds = [kind(prompt) for prompt in llm.prompts]
    assert kinds == ["analysis", "query", "answer"] + ["analysis", "evolution", "query", "answer"] * 4
    for position, prompt in enumerate(p for p in llm.prompts if kind(p) == "analysis"):
        assert sentinels(prompt) == {position}
    for position, prompt in enumerate((p for p in llm.prompts if kind(p) == "evolution"), start=1):
        assert sentinels(prompt) == set(range(position + 1))
        assert sentinels(prompt.split("# New note")[1]) == {position}
        assert prompt.count("## Note") == min(position, 5)
    assert [answer.context.documents for answer in answers] == [1, 2, 3, 4, 5]
    assert llm.longest[0] == 1000


def test_a_new_note_is_linked_and_changes_its_neighbour() -> None:
    method: Any
    method, _ = led("a_mem", "default", Scripted(told), [(0, 1)])
    first, second = method.notes["s"]
    assert (first.context, first.tags, first.links) == ("changed", ["changed"], [])
    assert (second.context, second.tags, second.links) == ("about 1", ["new"], [0])
    assert first.described().endswith("[context: changed]\n[keywords: key0]\n[tags: changed]")


def test_a_rewritten_note_is_found_by_what_it_says_now() -> None:
    method: Any
    method, _ = led("a_mem", "default", Scripted(told), [(0, 1)])
    for note in method.notes["s"]:
        assert note.vector.tolist() == method.embedder.documents([note.described()])[0].tolist()


def test_links_are_followed_up_to_the_notes_that_are_read() -> None:
    llm = Scripted(told)
    _, answers = led("a_mem", "k1", llm, [(0, 1, 2, 3, 4)])
    assert len(answers[-1].retrieved) == 1
    _, answers = led("a_mem", "default", Scripted(told), [(0, 1, 2, 3, 4)])
    assert len({one.id for one in answers[-1].retrieved}) == 5


def test_a_reply_that_leaves_everything_as_it_is_counts_as_read() -> None:
    _, answers = led("a_mem", "default", Scripted(lambda p: "{}" if kind(p) == "evolution" else told(p)))
    assert answers[-1].values == {"unread_notes": 0, "unread_query": 0}


@pytest.mark.parametrize(
    "reply", ["", "no json", "[1]", '[{"name": "search"}]', '{"keywords": 3, "links": {}, "neighbours": 1}', '{"a": ']
)
@pytest.mark.parametrize("of", ["analysis", "evolution", "query"])
def test_a_reply_that_is_not_what_was_asked_for_changes_nothing_and_is_counted(of: str, reply: str) -> None:
    llm = Scripted(lambda prompt: reply if kind(prompt) == of else told(prompt))
    method: Any
    method, answers = led("a_mem", "default", llm)
    unread = {"analysis": 5, "evolution": 4, "query": 0}[of]
    assert answers[-1].values == {"unread_notes": unread, "unread_query": float(of == "query")}
    assert len(answers) == 5 and len(method.notes["s"]) == 5
    if of == "evolution":
        assert all(note.links == [] for note in method.notes["s"])
    if of == "query":
        assert "Mira" in llm.prompts[-2], "the question itself finds notes then"
