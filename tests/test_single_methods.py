"""The claims of single methods: which documents each of them shows, and in what order."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from method_fakes import PROMPTS, FakeLLM, document, gold, load, probe
from method_runs import Run, card, make, sentinels, shown, stream
from upkeep.cell import Answer, Method, Seen, Tools
from upkeep.cell.interface import PromptTooLong
from upkeep.contract import Document

# ---------------------------------------------------------------- single methods


def test_null_answers_nothing() -> None:
    assert [a.response for a in Run("null", "default", stream()).answers] == [None] * 7


@pytest.mark.parametrize("prompt", PROMPTS)
def test_gold_gives_the_right_answer_in_the_demanded_form(prompt: str) -> None:
    from upkeep.grading.reading import read_answer

    form = PROMPTS[prompt].form
    answer = {"choice": "C", "short": "three times", "label": "Contradict"}[form]
    seen = Seen([document(0)], gold=gold(0, answers=[answer, "other"]))
    given = asyncio.run(make("gold", "default", prompt=PROMPTS[prompt]).answer(probe(0), seen, FakeLLM()))
    assert given.response is not None
    options = ["Consistent", "Contradict"] if form == "label" else None
    assert read_answer(given.response, form, options, PROMPTS[prompt].marker) == (answer, "marker")


@pytest.mark.parametrize("method", ["gold", "oracle"])
def test_a_control_without_its_key_fails_instead_of_guessing(method: str) -> None:
    with pytest.raises(LookupError, match=r"s-q@0|no evidence was handed in"):
        asyncio.run(make(method, "default").answer(probe(0), Seen([document(0)]), FakeLLM()))


def test_closed_book_shows_no_document() -> None:
    assert shown(Run("closed_book", "default", stream())) == [set()] * 7


def test_oracle_shows_the_evidence_that_has_arrived() -> None:
    assert shown(Run("oracle", "default", stream(4))) == [{0}, {0, 1}, {1, 2}, {2, 3}]


def test_long_context_shows_all_and_drops_the_oldest() -> None:
    assert shown(Run("long_context", "default", stream(4))) == [{0}, {0, 1}, {0, 1, 2}, {0, 1, 2, 3}]
    run = Run("long_context", "default", stream(4, "word " * 100), FakeLLM(context_length=500, max_tokens=20))
    assert shown(run)[-1] in ({1, 2, 3}, {2, 3})
    assert run.answers[-1].context.dropped == 4 - len(shown(run)[-1])


def test_long_context_prompts_extend_one_another() -> None:
    prompts = [p[-1].split("\n\n## Question")[0] for p in Run("long_context", "default", stream()).prompts]
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(prompts))


def test_rolling_window_shows_the_latest() -> None:
    assert shown(Run("rolling_window", "w2", stream(4))) == [{0}, {0, 1}, {1, 2}, {2, 3}]


@pytest.mark.parametrize("method", ["rag_bm25", "rag_dense", "rag_hybrid"])
def test_rag_shows_k_documents_in_order_of_score(method: str) -> None:
    run = Run(method, "k2", stream())
    for position, (answer, prompts) in enumerate(zip(run.answers, run.prompts, strict=True)):
        assert len(answer.retrieved) == min(2, position + 1)
        order = re.findall(r"# chunk index : (\d+), context", prompts[-1])
        assert [f"s-{p}" for p in order] == [r.id for r in answer.retrieved]
        assert f"Current Head Index : {position}, question: " in prompts[-1]


def test_rag_dense_shows_by_arrival_what_it_finds_by_score() -> None:
    ranked, arrived = (Run("rag_dense", f"k40_qwen3-8b{order}", stream(50)) for order in ("", "_arrival"))
    found = [r.id for r in ranked.answers[-1].retrieved]
    assert [r.id for r in arrived.answers[-1].retrieved] == found and len(found) == 40
    one, other = (re.findall(r"# chunk index : (\d+), context", run.prompts[-1][-1]) for run in (ranked, arrived))
    assert one != other == sorted(one, key=int) and [f"s-{p}" for p in one] == found


def test_rag_dense_knows_no_third_order() -> None:
    with pytest.raises(ValueError, match=r"relevance.*arrival.*random"):
        load("rag_dense")({"k": 1, "order": "random"}, make("rag_dense", "k1").tools)


@pytest.mark.parametrize("method", ["rag_bm25", "rag_dense", "rag_hybrid"])
def test_rag_finds_the_document_that_the_question_is_about(method: str) -> None:
    documents = [document(p, f"{'Zoltan hid the astrolabe' if p == 3 else 'rain fell on hills'}") for p in range(8)]
    led = make(method, "k1")

    async def ask() -> Answer:
        await led.arrive("s", documents, FakeLLM())
        return await led.answer(probe(7, "Who hid the astrolabe?"), Seen(documents), FakeLLM())

    assert [r.id for r in asyncio.run(ask()).retrieved] == ["s-3"]


def test_rag_rolling_window_retrieves_only_from_before_the_window() -> None:
    run = Run("rag_rolling_window", "k2w2", stream())
    for position, (answer, prompts) in enumerate(zip(run.answers, run.prompts, strict=True)):
        assert len(answer.retrieved) == min(2, max(0, position - 1))
        assert {r.id for r in answer.retrieved} <= {f"s-{p}" for p in range(position - 1)}
        recent = sentinels(prompts[-1].split("# Recent Chunks: ")[1])
        assert recent == {p for p in (position - 1, position) if p >= 0}


def test_settings_give_the_keys_of_the_published_tables() -> None:
    def setting(method: str, variant: str) -> str:
        values = card(method).variants[variant]
        return ";".join(f"{key}={values[key]}" for key in card(method).settings if key in values)

    assert setting("rag_dense", "k30") == "k=30"
    assert setting("rag_dense", "k40_qwen3-8b_arrival") == "k=40;order=arrival"
    assert setting("rolling_window", "w30") == "window=30"
    assert setting("rag_rolling_window", "k15w15") == "k=15;window=15"
    assert setting("long_context", "default") == ""
    assert setting("rag_hybrid", "k5") == "k=5"
    assert setting("sft", "lora") == "adapter=lora"
    assert setting("sft", "full") == ""


# ---------------------------------------------------------------- the base class


def test_documents_that_have_not_arrived_cannot_be_picked() -> None:
    with pytest.raises(KeyError):
        Seen([document(0)]).pick(["s-1"])


def test_documents_are_gone_over_once_however_many_probes_pick_from_them() -> None:
    class Counted(list[Document]):
        passes = 0

        def __iter__(self) -> Iterator[Document]:
            self.passes += 1
            return super().__iter__()

    documents = Counted(document(p) for p in range(5))
    seen = Seen(documents)
    told = replace(seen, gold=gold(0))
    for view in (seen, told, seen):
        assert [d.position for d in view.pick(["s-3", "s-0"])] == [3, 0]
    assert documents.passes == 1


def test_a_method_without_a_role_says_so() -> None:
    base = Method({}, Tools(PROMPTS["oaks_babi"]))
    with pytest.raises(TypeError, match="answers no probes"):
        asyncio.run(base.answer(probe(0), Seen([]), FakeLLM()))


def test_a_question_that_is_too_long_alone_is_an_error() -> None:
    asked = probe(0, "why " * 500)
    with pytest.raises(PromptTooLong):
        asyncio.run(make("long_context", "default").answer(asked, Seen([document(0)]), FakeLLM(context_length=300)))
