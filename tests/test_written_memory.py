"""The claims of `memory_scaffold`: what is written, how long it may be, and that it is written once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from method_fakes import FakeLLM, document, probe, text_of
from method_runs import Run, make, stream
from upkeep.cell import Answer, Message, Reply, Sampling, Seen
from upkeep.cell.interface import PromptTooLong
from upkeep.contract import Document


class Writer(FakeLLM):
    """Answers with a memory of the text it was given, as long as it may."""

    def __init__(self, words: int, **settings: Any) -> None:
        super().__init__(**settings)
        self.words = words
        self.samplings: list[Sampling | None] = []

    async def chat(self, messages: Sequence[Message], sampling: Sampling | None = None) -> Reply:
        await super().chat(messages, sampling)
        self.samplings.append(sampling)
        text = text_of(messages).split("# Next text")[-1]
        return Reply(" ".join((text.split() * 2000)[: self.words]), None, "stop", 1, 1, 0)


def rewritten(variant: str, memory: str, document: Document, llm: FakeLLM) -> str:
    led: Any = make("memory_scaffold", variant)
    text: str = asyncio.run(led.rewritten(memory, document, led.budget("s"), llm))
    return text


def test_the_memory_is_all_that_a_paper_variant_reads() -> None:
    run = Run("memory_scaffold", "budget256", stream(), Writer(30))
    for (after,), prompts in zip(run.asked[1:], run.prompts, strict=False):
        memory = after.split("# Memory so far\n")[1].split("\n\n# Next text")[0]
        assert len(memory.split()) == 30
        assert f"- Memory:\n{memory}\n" in prompts[-1]
        assert "chunk index" not in prompts[-1]


def test_each_document_updates_the_memory_of_the_one_before() -> None:
    llm = Writer(30)
    first = rewritten("budget256", "", document(0), llm)
    rewritten("budget256", first, document(1), llm)
    assert "(empty)" in llm.prompts[0]
    assert f"# Memory so far\n{first}\n" in llm.prompts[1]
    assert "# Next text\nsentinel1xs" in llm.prompts[1]


@pytest.mark.parametrize(("variant", "limit"), [("budget256", 512), ("budget1024", 2048), ("budget4096", 8192)])
def test_one_rewriting_may_take_twice_the_budget_and_8192_tokens_at_most(variant: str, limit: int) -> None:
    llm = Writer(30)
    rewritten(variant, "", document(0), llm)
    assert [s and s.max_tokens for s in llm.samplings] == [limit]


def test_a_memory_over_budget_is_cut_at_the_budget() -> None:
    memory = rewritten("budget256", "", document(0), Writer(500))
    assert len(memory.split()) == 256


def test_a_document_beside_which_the_memory_does_not_fit_is_given_in_pieces() -> None:
    words = " ".join(f"w{n}" for n in range(3000))
    llm = Writer(30, context_length=2000)
    rewritten("budget256", "", document(0, words), llm)
    given = [word for prompt in llm.prompts for word in prompt.split("# Next text")[1].split()]
    assert given == ["sentinel0xs", *words.split()]
    assert 1 < len(llm.prompts) <= 8


def test_a_budget_beyond_the_model_is_refused() -> None:
    with pytest.raises(PromptTooLong, match="4096 tokens"):
        rewritten("budget4096", "", document(0), FakeLLM(context_length=4096))


def test_variants_with_the_same_budget_ask_the_same_as_documents_arrive() -> None:
    runs = {v: Run("memory_scaffold", v, stream(), Writer(30)) for v in ("budget256", "budget256_k5", "budget1024")}
    assert all(len(asked) == 1 for asked in runs["budget256"].asked)
    assert runs["budget256"].asked == runs["budget256_k5"].asked != runs["budget1024"].asked
    assert len(runs["budget256_k5"].answers[-1].retrieved) == 5


def test_a_memory_is_the_same_in_whatever_portions_its_documents_come() -> None:
    async def led(portions: Sequence[Sequence[Document]]) -> tuple[list[str], Answer]:
        method, llm = make("memory_scaffold", "budget256_k5"), Writer(30)
        for portion in portions:
            await method.arrive("s", portion, llm)
        answer = await method.answer(probe(6), Seen(stream()), llm)
        return llm.prompts, answer

    documents = stream()
    one, all_at_once, some = [[d] for d in documents], [documents], [documents[:2], documents[2:]]
    assert asyncio.run(led(one)) == asyncio.run(led(all_at_once)) == asyncio.run(led(some))


@pytest.mark.parametrize(("variant", "ratio"), [("ratio32", 32), ("ratio64", 64)])
def test_a_memory_by_ratio_grows_with_what_has_arrived(variant: str, ratio: int) -> None:
    documents = [document(p, "word " * 639) for p in range(3)]  # of 640 tokens each
    llm = Writer(200)
    run = Run("memory_scaffold", variant, documents, llm)
    budgets = [640 * n // ratio for n in (1, 2, 3)]
    assert [s and s.max_tokens for s in llm.samplings if s] == [2 * budget for budget in budgets]
    for (asked,), budget in zip(run.asked, budgets, strict=True):
        assert f"Stay below {budget} tokens" in asked
    for prompts, budget in zip(run.prompts, budgets, strict=True):
        memory = prompts[-1].split("- Memory:\n")[1].split("\n\n")[0]
        assert len(memory.split()) == budget


def test_the_budget_of_a_ratio_counts_the_stream_and_no_other() -> None:
    led: Any = make("memory_scaffold", "ratio32")
    for name in ("s", "other"):
        asyncio.run(led.arrive(name, [document(0, "word " * 319, name)], Writer(30)))
    assert led.budget("s") == led.budget("other") == 10
