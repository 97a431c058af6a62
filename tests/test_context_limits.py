"""What methods that work through the context keep to, whatever their model says: roles of their calls, what comes of
malformed replies, and budgets over a hundred documents, in tokens of a real tokenizer."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from method_fakes import FakeLLM, document, json_said, probe
from method_runs import make
from test_a_mem import kind
from test_context_methods import Scripted, led, searching
from upkeep.building.tokens import DEFAULT, load
from upkeep.cell import Answer, Message, Method, Reply, Sampling, Seen, ToolCall

# ---------------------------------------------------------------- roles

TOLD = ["system", "user"]
ROLES = {
    ("a_mem", "k3", False): [TOLD] * 5,
    ("chunked_summary", "budget32", False): [TOLD] * 2,
    ("document_summary", "budget32", False): [TOLD] * 3,
    ("few_shot", "five", False): [TOLD],
    ("hipporag2", "k1", False): [TOLD] * 6,
    ("many_shot", "all", False): [TOLD],
    ("memagent", "budget64", False): [["user"], ["user"], TOLD],
    ("memory_scaffold", "budget256", False): [TOLD] * 3,
    ("rag_agentic", "k1", True): [TOLD, [*TOLD, "assistant", "tool"]],
    ("rag_agentic", "k1", False): [TOLD, [*TOLD, "assistant", "user"]],
    ("deep_research", "k3", True): [TOLD, *([*TOLD, *["assistant", "tool"] * n] for n in (1, 2, 3))],
    ("self_critique", "bm25_k2", False): [TOLD] * 2,
}
"""Of two documents that arrive together and one question: the roles of each call, in order. MemAgent's own prompt has
no system message; the dataset's, which asks for every method's answer, has one."""


@pytest.mark.parametrize(("method", "variant", "native"), ROLES)
def test_calls_have_the_roles_that_the_paper_gives_them(method: str, variant: str, native: bool) -> None:
    def script(prompt: str) -> Any:
        return json_said(prompt) or (searching("Mira") if native else "Search: Mira")

    llm = Scripted(script)
    led(method, variant, llm, [(0, 1)], calls_tools=native)
    assert [re.findall(r"^<(\w+)>", prompt, re.MULTILINE) for prompt in llm.prompts] == ROLES[method, variant, native]


# ---------------------------------------------------------------- malformed replies

MALFORMED = {
    "nothing": "",
    "no JSON": "I would rather not.",
    "half a JSON object": '{"entities": ["Mira", {"note": 0}, "at',
    "half a tool call": '<tool_call>\n{"name": "search", "arguments": {"query": "Mi',
    "JSON of another form": '[{"name": "search"}]',
    "an endless loop": "so ",
}
COUNTED = {
    ("a_mem", "k3"): {"unread_notes": 5, "unread_query": 1},
    ("hipporag2", "k2"): {"unread_documents": 5, "unread_filter": 0},
    ("self_critique", "bm25_k2"): {"corrected": 0, "unread_verdict": 1},
}
"""Methods that ask for a form, and how they count that there is none."""
WRITING = {
    ("chunked_summary", "budget32"): "a summary came back empty",
    ("document_summary", "budget32"): "a summary came back empty",
    ("memagent", "budget64"): "the memory came back empty",
    ("memory_scaffold", "budget256"): "the memory came back empty",
}
"""Methods that ask for a text, of whatever form, and what they say where there is none."""
SEARCHING = [("deep_research", "k3"), ("rag_agentic", "k3")]


class Looping(Scripted):
    """Says one thing, an endless loop as long as it may."""

    def __init__(self, said: str) -> None:
        super().__init__(lambda _: said * (self.longest[-1] if said == MALFORMED["an endless loop"] else 1))


@pytest.mark.parametrize("reply", MALFORMED)
@pytest.mark.parametrize(("method", "variant"), COUNTED)
def test_a_reply_in_no_form_is_counted_and_the_answer_is_what_the_model_said(
    method: str, variant: str, reply: str
) -> None:
    llm = Looping(MALFORMED[reply])
    _, (answer,) = led(method, variant, llm, [(0, 1, 2, 3, 4)])
    assert answer.values == COUNTED[method, variant]
    assert (answer.response or "").startswith(MALFORMED[reply])


@pytest.mark.parametrize("reply", MALFORMED)
@pytest.mark.parametrize(("method", "variant"), WRITING)
def test_an_empty_memory_or_summary_fails_and_any_other_text_is_one(method: str, variant: str, reply: str) -> None:
    llm = Looping(MALFORMED[reply])
    if not MALFORMED[reply]:
        with pytest.raises(ValueError, match=WRITING[method, variant]):
            led(method, variant, llm, [(0, 1, 2, 3, 4)])
        return
    _, (answer,) = led(method, variant, llm, [(0, 1, 2, 3, 4)])
    assert f"- Memory:\n{MALFORMED[reply]}".strip() in llm.prompts[-1]
    assert (answer.response or "").startswith(MALFORMED[reply])


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("reply", MALFORMED)
@pytest.mark.parametrize(("method", "variant"), SEARCHING)
def test_what_is_no_call_is_the_answer_and_nothing_is_searched(
    method: str, variant: str, reply: str, native: bool
) -> None:
    llm = Looping(MALFORMED[reply])
    _, (answer,) = led(method, variant, llm, [(0, 1, 2, 3, 4)], calls_tools=native)
    assert (answer.retrieved, len(llm.prompts)) == ([], 1)
    assert (answer.response or "").startswith(MALFORMED[reply])


@pytest.mark.parametrize("line", ["Search:", "search:  ", "- thinking\nSEARCH:"])
@pytest.mark.parametrize(("method", "variant"), SEARCHING)
def test_half_a_search_in_text_is_told_so_counts_and_ends_at_the_limit(method: str, variant: str, line: str) -> None:
    llm = Scripted(lambda _: line)
    _, (answer,) = led(method, variant, llm, [(0, 1, 2, 3, 4)])
    assert len(llm.prompts) == 4 and llm.prompts[-1].count("The search has no query.") == 3
    assert (answer.retrieved, answer.response) == ([], line), "what it says then is no answer, and is not replaced"


@pytest.mark.parametrize(("method", "variant"), SEARCHING)
def test_a_call_of_a_tool_that_there_is_not_is_told_so_finds_nothing_and_counts(method: str, variant: str) -> None:
    llm = Scripted(lambda _: ToolCall("c0", "look_up", '{"query": "Mira"}'))
    _, (answer,) = led(method, variant, llm, [(0, 1, 2, 3, 4)], calls_tools=True)
    assert llm.offered == [True, True, True, False] and not answer.retrieved
    assert llm.prompts[-1].count("There is no such tool") == 3 and "no query" not in llm.prompts[-1]


@pytest.mark.parametrize(("method", "variant"), SEARCHING)
def test_a_model_that_searches_for_ever_is_ended_after_as_many_searches_as_it_may(method: str, variant: str) -> None:
    llm = Scripted(lambda prompt: searching(f"Mira {len(prompt)}"))
    _, (answer,) = led(method, variant, llm, [(0, 1, 2, 3, 4)], calls_tools=True)
    assert llm.offered == [True, True, True, False] and answer.response == ""


@pytest.mark.parametrize("reply", ["", "no json", '{"triples": [["Mira", "is', '{"triples": "Mira"}'])
def test_triples_that_cannot_be_read_leave_a_document_without_facts_and_are_counted(reply: str) -> None:
    _, (answer,) = led(
        "hipporag2", "k2", Scripted(lambda p: reply if "as triples" in p else '{"entities": []}'), [(0,)]
    )
    assert answer.values == {"unread_documents": 1, "unread_filter": 0}


def test_a_memory_that_comes_back_empty_fails_for_its_stream_and_names_no_other() -> None:
    method, llm = make("memory_scaffold", "budget256"), Scripted(lambda p: "" if "sentinel0xt" in p else "kept")
    with pytest.raises(ValueError, match="the memory came back empty"):
        asyncio.run(method.arrive("t", [document(0, stream="t")], llm))
    asyncio.run(method.arrive("s", [document(0)], llm))
    assert vars(method)["memories"] == {"s": "kept"}


# ---------------------------------------------------------------- budgets

LONG = [document(p, " ".join(f"Mira took train {p} to room {p * n}." for n in range(9))) for p in range(100)]
TOKENS = load(DEFAULT)


def count(text: str) -> int:
    return TOKENS.count([text])[0]


class Verbose(FakeLLM):
    """Writes more tokens than it may into whatever it is asked for, as an endpoint does that heeds no limit."""

    def __init__(self) -> None:
        super().__init__(context_length=8000, max_tokens=64, count=count)
        self.longest: list[int] = []

    async def chat(self, messages: Sequence[Message], sampling: Sampling | None = None, **options: Any) -> Reply:
        await super().chat(messages, sampling)
        most = (sampling or self.sampling).max_tokens
        self.longest.append(most)
        return Reply(self.said(self.prompts[-1], most), None, "length", 1, most, 0)

    def said(self, prompt: str, most: int) -> str:
        words = "Zoë's zebra " * max(1, most // 4)
        match kind(prompt):
            case "analysis" | "query":
                return json.dumps({"keywords": words.split()[:50], "context": words[:400], "tags": ["a"]})
            case "evolution":
                change = {"note": 0, "context": words[:400], "tags": ["b"]}
                return json.dumps({"links": [4, 3, 2, 1, 0] * 30, "neighbours": [change] * 9})
        return words


def through(method: str, variant: str) -> Iterator[tuple[Method, Verbose, Answer]]:
    """The method after each of a hundred documents, with the answer that follows it."""
    led, llm = make(method, variant), Verbose()
    with asyncio.Runner() as runner:
        for position, one in enumerate(LONG):
            runner.run(led.arrive("s", [one], llm))
            answer = runner.run(led.answer(probe(position), Seen(LONG[: position + 1]), llm))
            yield led, llm, answer
            llm.prompts.clear()
            llm.longest.clear()


@pytest.mark.parametrize(("variant", "budget"), [("budget256", 256), ("ratio32", None), ("ratio64", None)])
def test_a_scaffolds_memory_is_within_its_budget_after_each_of_a_hundred_documents(
    variant: str, budget: int | None
) -> None:
    arrived = 0
    for n, (method, llm, _) in enumerate(through("memory_scaffold", variant)):
        arrived += count(LONG[n].text)
        most = budget or max(1, arrived // int(variant.removeprefix("ratio")))
        assert count(vars(method)["memories"]["s"]) <= most
        assert llm.longest[0] == min(2 * most, 8192)


@pytest.mark.parametrize(("variant", "budget"), [("budget256", 256), ("budget64", 64)])
def test_memagents_memory_is_within_its_budget_after_each_of_a_hundred_documents(variant: str, budget: int) -> None:
    for method, llm, _ in through("memagent", variant):
        ((_, memory),) = vars(method)["kept"].values()
        assert 0 < count(memory) <= budget and llm.longest[0] == budget


def test_a_chunks_summary_is_within_its_budget_and_chunks_are_as_full_as_the_model_reads() -> None:
    for method, llm, _ in through("chunked_summary", "budget32"):
        chunks, summaries = vars(method)["chunks"]["s"], vars(method)["summaries"]["s"]
        assert len(chunks) == len(summaries)
        assert all(0 < count(summary) <= 40 for summary in summaries)
        sizes = [sum(count(text) + 2 for text in chunk) for chunk in chunks]
        room = vars(type(method))["room"](method, llm)
        assert max(sizes) <= room and all(size + count(LONG[-1].text) > room * 0.9 for size in sizes[:-1])
    assert len(chunks) > 1


def test_a_documents_summary_is_within_its_budget() -> None:
    for n, (method, _, _) in enumerate(through("document_summary", "budget32")):
        assert len(vars(method)["summaries"]["s"]) == n + 1
        assert 0 < count(vars(method)["summaries"]["s"][-1]) <= 40


def test_a_note_is_linked_to_its_nearest_five_at_most_and_thirty_are_read() -> None:
    for n, (method, llm, answer) in enumerate(through("a_mem", "default")):
        new = vars(method)["notes"]["s"][-1]
        assert len(new.links) == len(set(new.links)) == min(n, 5) and n not in new.links
        assert len(answer.retrieved) == len({one.id for one in answer.retrieved}) <= 30
        assert answer.context.documents + answer.context.dropped == len(answer.retrieved)
        assert max(llm.longest) == 1000
    assert len(answer.retrieved) == 30
