"""The calls of methods that make the model work on the context, over a stream of five documents: how many, in which
order, with what in them; and what comes of replies that are not what was asked for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from method_fakes import FakeLLM, document, probe, text_of
from method_runs import make, sees, sentinels
from upkeep.cell import Answer, Context, Message, Method, Reply, Sampling, Seen, ToolCall

DOCUMENTS = [document(p) for p in range(5)]


class Scripted(FakeLLM):
    """Replies what a script says to a prompt, and keeps each prompt with the tokens that might be written."""

    def __init__(self, script: Callable[[str], str | ToolCall | Sequence[ToolCall]], **settings: Any) -> None:
        super().__init__(**settings)
        self.script, self.longest = script, list[int]()
        self.offered: list[bool] = []
        """Of each call: whether tools were."""

    async def chat(self, messages: Sequence[Message], sampling: Sampling | None = None, **options: Any) -> Reply:
        assert set(options) <= {"tools"}
        await super().chat(messages, sampling)
        self.longest.append((sampling or self.sampling).max_tokens)
        self.offered.append(bool(options.get("tools")))
        said = self.script(text_of(messages))
        calls = () if isinstance(said, str) else (said,) if isinstance(said, ToolCall) else tuple(said)
        return Reply(said if isinstance(said, str) else "", None, "stop", 1, 1, 0, tool_calls=calls)


def led(
    name: str,
    variant: str,
    llm: FakeLLM,
    portions: Sequence[Sequence[int]] = ((0,), (1,), (2,), (3,), (4,)),
    reader: FakeLLM | None = None,
    **tools: Any,
) -> tuple[Method, list[Answer]]:
    """The method, and what it answers after each portion of documents; `llm` reads, too, where there is no `reader`."""
    method = make(name, variant, **tools)

    async def lead() -> tuple[Method, list[Answer]]:
        answers = []
        for portion in portions:
            await method.arrive("s", [DOCUMENTS[p] for p in portion], llm)
            seen = Seen(DOCUMENTS[: portion[-1] + 1])
            answers.append(await method.answer(probe(portion[-1]), seen, reader or llm))
        return method, answers

    return asyncio.run(lead())


# ---------------------------------------------------------------- memagent


def remembered(prompt: str) -> str:
    """A memory of all that was remembered and read, or the answer that it gives."""
    if "# Section" not in prompt:
        return f"## Answer: {sorted(sentinels(prompt))}"
    return " ".join(f"sentinel{p}xs" for p in sorted(sentinels(prompt)))


def test_memagent_reads_each_document_once_for_a_question_and_answers_from_the_memory() -> None:
    llm = Scripted(remembered)
    _, answers = led("memagent", "default", llm)
    assert len(llm.prompts) == 10, "five times: the memory, then the answer"
    for position, (update, final) in enumerate(zip(llm.prompts[::2], llm.prompts[1::2], strict=True)):
        read = update.split("# Section\n")[1]
        assert sentinels(read) == {position}
        assert sentinels(update) == set(range(position + 1))
        assert "Where is Mira?" in update and update.startswith("<user>") and update.count("<user>") == 1
        assert ("(nothing yet)" in update) == (position == 0)
        assert DOCUMENTS[position].text not in final, "the document itself is not there"
        assert answers[position].response == f"## Answer: {list(range(position + 1))}"
    assert llm.longest[::2] == [1024] * 5


def test_memagent_asked_late_reads_one_document_after_the_other() -> None:
    llm = Scripted(remembered)
    led("memagent", "default", llm, [(0, 1, 2, 3, 4)])
    assert [sentinels(p.split("# Section\n")[1]) for p in llm.prompts[:-1]] == [{n} for n in range(5)]


def test_memagent_keeps_a_memory_for_each_question_and_trial() -> None:
    llm, method = Scripted(remembered), make("memagent", "default")
    seen = Seen(DOCUMENTS[:1])

    async def asked() -> None:
        for trial, question in ((0, "Where is Mira?"), (1, "Where is Mira?"), (1, "Who left?")):
            llm.trial = trial
            await method.answer(replace(probe(0, question), question_id=question), seen, llm)

    asyncio.run(asked())
    assert sum("(nothing yet)" in prompt for prompt in llm.prompts) == 3


def test_an_empty_memory_is_a_failure_and_the_next_interval_goes_on_from_the_one_before() -> None:
    said = iter(["kept", "## Answer: a", "  ", "kept anew", "kept all", "## Answer: b"])
    llm, method = Scripted(lambda _: next(said)), make("memagent", "default")

    async def lead() -> None:
        await method.answer(probe(0), Seen(DOCUMENTS[:1]), llm)
        with pytest.raises(ValueError, match="memory came back empty"):
            await method.answer(probe(1), Seen(DOCUMENTS[:2]), llm)
        await method.answer(probe(2), Seen(DOCUMENTS[:3]), llm)

    asyncio.run(lead())
    assert "# Memory\nkept\n" in llm.prompts[3] and "sentinel1xs" in llm.prompts[3]


# ---------------------------------------------------------------- summaries


def summarised(prompt: str) -> str:
    if "You summarise" not in prompt:
        return "## Answer: x"
    return " ".join(f"sum{p}" for p in sorted(sentinels(prompt)))


def test_a_summary_of_each_document_and_all_of_them_before_the_question() -> None:
    llm = Scripted(summarised)
    led("document_summary", "budget128", llm, [(0, 1, 2), (3,), (4,)])
    asked = [prompt for prompt in llm.prompts if "You summarise" in prompt]
    assert [sentinels(prompt) for prompt in asked] == [{p} for p in range(5)]
    assert "- Memory:\nsum0\n\nsum1\n\nsum2\n\nsum3\n\nsum4\n" in llm.prompts[-1]
    assert "sentinel" not in llm.prompts[-1]


def pairs_read() -> int:
    """The context of a model whose chunks hold two of the documents."""
    method: Any = make("chunked_summary", "budget32")
    return FakeLLM().count_prompt(method.request([])) + 48 + 16 + 20


@pytest.mark.parametrize(
    ("portions", "asked"),
    [
        ([(0,), (1,), (2,), (3,), (4,)], [{0}, {0, 1}, {2}, {2, 3}, {4}]),
        ([(0, 1, 2, 3, 4)], [{0, 1}, {2, 3}, {4}]),
        ([(0, 1, 2), (3, 4)], [{0, 1}, {2}, {2, 3}, {4}]),
    ],
)
def test_documents_are_packed_into_chunks_and_only_the_open_one_is_summarised_again(
    portions: Sequence[Sequence[int]], asked: list[set[int]]
) -> None:
    writer, reader = Scripted(summarised, context_length=pairs_read()), Scripted(summarised)
    led("chunked_summary", "budget32", writer, portions, reader)
    assert [sentinels(prompt) for prompt in writer.prompts] == asked
    assert "- Memory:\nsum0 sum1\n\nsum2 sum3\n\nsum4\n" in reader.prompts[-1]


@pytest.mark.parametrize(("name", "variant"), [("chunked_summary", "budget32"), ("document_summary", "budget32")])
def test_a_summary_may_take_half_more_than_its_target_and_is_cut_at_a_quarter_more(name: str, variant: str) -> None:
    llm = Scripted(lambda prompt: "zzz " * 48 if "You summarise" in prompt else "## Answer: x")
    led(name, variant, llm, [(0,)])
    assert llm.longest[0] == 48
    assert llm.prompts[-1].count("zzz") == 40


@pytest.mark.parametrize(("name", "variant"), [("chunked_summary", "budget32"), ("document_summary", "budget32")])
def test_an_empty_summary_is_an_error(name: str, variant: str) -> None:
    with pytest.raises(ValueError, match="summary came back empty"):
        led(name, variant, Scripted(lambda _: " \n"))


@pytest.mark.parametrize(("name", "variant"), [("chunked_summary", "budget32"), ("document_summary", "budget32")])
def test_a_text_longer_than_the_model_reads_is_summarised_in_pieces(name: str, variant: str) -> None:
    llm, method = Scripted(summarised, context_length=200), make(name, variant)
    text = " ".join(f"sentinel{n}xs" for n in range(300))
    asyncio.run(method.arrive("s", [document(0, text)], llm))
    assert len(llm.prompts) > 1
    assert set().union(*map(sentinels, llm.prompts)) == set(range(300))


# ---------------------------------------------------------------- rag_agentic


def searching(query: str, number: str = "c0") -> ToolCall:
    return ToolCall(number, "search", json.dumps({"query": query}))


def agent(
    script: Callable[[str], Any], variant: str = "k3", *, native: bool = True, **settings: Any
) -> tuple[Scripted, Answer]:
    llm = Scripted(script, **settings)
    _, answers = led("rag_agentic", variant, llm, [(0, 1, 2, 3, 4)], calls_tools=native)
    return llm, answers[-1]


def always(_: str) -> ToolCall:
    return searching("Mira room")


@pytest.mark.parametrize(("variant", "k"), [("k1", 1), ("k3", 3)])
def test_a_model_that_never_ends_searching_is_asked_without_the_tool_after_k_searches(variant: str, k: int) -> None:
    llm, answer = agent(always, variant)
    assert llm.offered == [True] * k + [False]
    assert len(answer.retrieved) == answer.context.documents == k, "each search finds another document"
    assert [one.rank for one in answer.retrieved] == list(range(1, k + 1))
    assert len(sentinels(llm.prompts[-1])) == k


def test_a_model_that_does_not_search_answers_at_once() -> None:
    llm, answer = agent(lambda _: "## Answer: attic")
    assert (len(llm.prompts), answer.response, answer.retrieved) == (1, "## Answer: attic", [])


def test_the_document_that_a_search_finds_is_the_one_for_its_query() -> None:
    llm, answer = agent(lambda p: "## Answer: 3" if "sentinel3xs Mira" in p else searching("sentinel3xs room 3"))
    assert [one.id for one in answer.retrieved] == ["s-3"]
    assert "<tool># chunk index : 3, context: sentinel3xs" in llm.prompts[-1]


def test_a_model_without_tools_searches_by_a_line_of_text() -> None:
    llm, answer = agent(
        lambda p: "## Answer: 3" if "sentinel3xs Mira" in p else "Search: sentinel3xs room 3", native=False
    )
    assert [one.id for one in answer.retrieved] == ["s-3"]
    assert "`Search: <query>`" in llm.prompts[0] and not any(llm.offered)
    assert "<assistant>Search: sentinel3xs room 3\n<user># chunk index : 3" in llm.prompts[-1]


@pytest.mark.parametrize("arguments", ["", "no json", "[]", "{}", '{"query": 3}', '{"query": " "}'])
def test_a_malformed_call_is_told_so_and_counts(arguments: str) -> None:
    llm, answer = agent(lambda _: ToolCall("c0", "search", arguments), "k3")
    assert llm.offered == [True, True, True, False]
    fault = "The arguments are no JSON." if arguments in ("", "no json") else "The search has no query."
    assert llm.prompts[-1].count(fault) == 3
    assert (answer.retrieved, answer.context.documents) == ([], 0)


def test_of_several_calls_in_one_reply_those_beyond_k_are_told_that_none_is_left() -> None:
    llm, answer = agent(lambda _: [searching("Mira", f"c{n}") for n in range(5)], "k3")
    assert len(answer.retrieved) == 3
    assert llm.prompts[-1].count("No search is left") == 2
    assert llm.offered == [True, False]


def test_a_document_that_does_not_fit_is_told_so_and_counted_as_dropped() -> None:
    free, _ = agent(always, "k1")
    room = free.count_prompt([Message(role="user", parts=[free.prompts[0]])])
    llm, answer = agent(always, "k1", context_length=room + 60)
    assert "does not fit" in llm.prompts[-1]
    assert (answer.context.documents, answer.context.dropped) == (0, 1)


@pytest.mark.parametrize("native", [True, False])
def test_research_finds_five_documents_a_search_and_ends_when_the_model_does(native: bool) -> None:
    said = iter([searching("Mira room") if native else "Search: Mira room", "## Answer: attic"])
    llm = Scripted(lambda _: next(said))
    _, answers = led("deep_research", "k3", llm, [(0, 1, 2, 3, 4)], calls_tools=native)
    assert answers[-1].response == "## Answer: attic"
    assert (len(answers[-1].retrieved), answers[-1].context.documents, len(llm.prompts)) == (5, 5, 2)
    assert sentinels(llm.prompts[-1]) == {0, 1, 2, 3, 4} and "up to 3 times" in llm.prompts[0]


# ---------------------------------------------------------------- self_critique


RIGHT, WRONG = "Yes: it is\nThe correct answer: attic", "No: it moved\nThe correct answer: cellar"


def critic(verdict: str) -> Callable[[str], str]:
    return lambda prompt: verdict if "A student has" in prompt else "So:\n## Answer: attic"


@pytest.mark.parametrize(
    ("verdict", "response", "corrected", "unread"),
    [
        (RIGHT, "So:\n## Answer: attic", 0, 0),
        (WRONG, "## Answer: cellar", 1, 0),
        (f"# Answer\n{WRONG}", "## Answer: cellar", 1, 0),
        ("", "So:\n## Answer: attic", 0, 1),
        ("No: it moved", "So:\n## Answer: attic", 0, 1),
        ("The correct answer: cellar", "So:\n## Answer: attic", 0, 1),
        ("Nobody knows.\nThe correct answer: cellar", "So:\n## Answer: attic", 0, 1),
    ],
)
def test_an_answer_counts_after_a_yes_and_the_corrected_one_after_a_no(
    verdict: str, response: str, corrected: int, unread: int
) -> None:
    _, (answer,) = led("self_critique", "bm25_k2", Scripted(critic(verdict)), [(0,)])
    assert answer.response == response
    assert answer.values == {"corrected": corrected, "unread_verdict": unread}


@pytest.mark.parametrize(
    ("variant", "first", "second"),
    [("bm25_memory", 5, 0), ("bm25_bm25", 5, 5), ("contriever_bm25", 5, 5), ("contriever_memory", 5, 0)],
)
def test_the_answer_is_given_with_one_context_and_judged_with_the_other(variant: str, first: int, second: int) -> None:
    llm = Scripted(critic(RIGHT))
    led("self_critique", variant, llm, [(0, 1, 2, 3, 4)])
    answered, checked = llm.prompts
    assert (len(sentinels(answered)), len(sentinels(checked))) == (first, second)
    assert "# Question\nWhere is Mira?\n\n# Student's answer\nattic" in checked
    assert ("# Context" in checked) == bool(second)


def test_the_first_call_is_that_of_the_method_whose_context_it_has() -> None:
    critique, alone = Scripted(critic(RIGHT)), Scripted(critic(RIGHT))
    led("self_critique", "bm25_k2", critique)
    led("rag_bm25", "k2", alone)
    assert critique.prompts[::2] == alone.prompts


def test_documents_that_do_not_fit_beside_an_answer_to_be_judged_are_left_out_from_the_last_on() -> None:
    checking = type(make("self_critique", "bm25_k2")).answer.__globals__["checking"]
    best_first = [DOCUMENTS[n] for n in (3, 1, 4)]

    def shown(context_length: int) -> set[int]:
        llm = FakeLLM(context_length)
        return sentinels(text_of(checking(probe(4), "attic", Context(retrieved=best_first), llm)))

    whole = next(length for length in range(1000) if shown(length) == {1, 3, 4})
    assert shown(whole - 1) == {1, 3}
    assert shown(1) == set(), "an answer is judged, or found too long, without a document"


@pytest.mark.parametrize(("variant", "given"), [("oracle_memory", "evidence"), ("bm25_bm25", "documents")])
def test_only_variants_with_the_golden_sentence_are_given_it(variant: str, given: str) -> None:
    assert sees("self_critique", variant) == given
