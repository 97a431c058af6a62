"""How a probe and its documents become a chat, and what is left out when they do not fit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from host_fakes import make_repository
from method_fakes import PROMPTS, ROOT, FakeLLM, document, probe, text_of
from upkeep.catalog import Catalog
from upkeep.cell import Context
from upkeep.cell.prompts import Prompt, fit
from upkeep.contract import Document, Pair
from upkeep.errors import UpkeepError
from upkeep.identity import describe
from upkeep.jobs import Cell

BABI = PROMPTS["oaks_babi"]


def user(context: Context, **other: object) -> list[str]:
    return BABI.messages(probe(7, **other), context)[-1]["parts"]


def test_plain_documents_are_joined_by_newlines_and_the_question_comes_last() -> None:
    documents = [document(0, "a"), document(1, "b")]
    assert "".join(user(Context(recent=documents))) == (
        "## Context:\nsentinel0xs a\nsentinel1xs b\n\n## Question:\nWhere is Mira?"
    )


def test_retrieved_documents_show_their_index_and_the_question_the_head_index() -> None:
    assert "".join(user(Context(retrieved=[document(5, "b"), document(2, "a")]))) == (
        "## Context:\n- Retrieved context:\n# chunk index : 5, context: sentinel5xs b\n"
        "# chunk index : 2, context: sentinel2xs a\n\n## Question:\nCurrent Head Index : 7, question: Where is Mira?"
    )


def test_retrieved_and_recent_documents_stand_in_two_blocks() -> None:
    assert "".join(user(Context(retrieved=[document(2, "a")], recent=[document(6, "b"), document(7, "c")]))) == (
        "## Context:\n- Retrieved context:\n# chunk index : 2, context: sentinel2xs a\n\n"
        "# Recent Chunks: sentinel6xs b\nsentinel7xs c\n\n"
        "## Question:\nCurrent Head Index : 7, question: Where is Mira?"
    )


def test_without_any_block_there_is_no_context_and_no_rule_to_rely_on_one() -> None:
    system, asked = BABI.messages(probe(7), Context())
    assert asked["parts"] == ["## Question:\nWhere is Mira?"]
    assert "text" not in "".join(system["parts"])


def test_an_empty_block_is_still_a_context() -> None:
    system, asked = BABI.messages(probe(7), Context(recent=[]))
    assert system["parts"] == [BABI.card.system]
    assert asked["parts"][0] == "## Context:\n"


def test_a_later_prompt_extends_the_parts_of_an_earlier_one() -> None:
    documents = [document(p) for p in range(9)]
    shorter, longer = user(Context(recent=documents[:5])), user(Context(recent=documents))
    assert longer[: len(shorter) - 1] == shorter[:-1]
    assert len(shorter) == 1 + 5 + 1, "heading, one part a document, question"


def test_questions_of_one_interval_differ_in_the_last_part_alone() -> None:
    context = Context(recent=[document(0), document(1)])
    assert user(context, question="Who?")[:-1] == user(context, question="How many?")[:-1]


def test_options_get_letters_in_their_order() -> None:
    prompt = PROMPTS["oaks_novel"]
    asked = prompt.messages(probe(0, options=["the attic", "the hall"], form="choice"), Context(recent=[]))[-1]
    assert asked["parts"][-1].endswith("\n\n## Options:\nA. the attic\nB. the hall")


def test_more_options_than_letters_are_refused() -> None:
    with pytest.raises(ValueError, match="27 options"):
        BABI.messages(probe(0, options=["x"] * 27), Context(recent=[]))


@pytest.mark.parametrize("name", sorted({Catalog(ROOT).dataset(one).prompt for one in Catalog(ROOT).datasets}))
def test_a_users_text_is_taken_word_for_word(name: str, tmp_path: Path) -> None:
    own, config = tmp_path / "own.txt", tmp_path / "config.yaml"
    own.write_text(" {my} text \n")
    config.write_text(yaml.safe_dump({"prompts": {name: str(own)}}))
    catalog = Catalog(ROOT, config)
    dataset = next(one for one in catalog.datasets if catalog.dataset(one).prompt == name)
    told = describe(catalog, Cell(dataset, "closed_book", "default", "tiny"), 1).prompt
    assert told.marker == PROMPTS[name].marker
    for context in (Context(), Context(recent=[document(0)])):
        for question in ("Who?", "谁？"):
            assert Prompt(told).messages(probe(0, question), context)[0]["parts"] == [" {my} text \n"]


@pytest.mark.parametrize("prompt", PROMPTS.values(), ids=PROMPTS)
def test_every_prompt_demands_its_marker_with_and_without_a_context_and_for_every_form(prompt: Prompt) -> None:
    for form in prompt.card.asks or [prompt.form]:
        for context in (Context(), Context(recent=[document(0)])):
            rules = "".join(prompt.messages(probe(0, options=["yes", "no"], form=form), context)[0]["parts"])
            assert f"{prompt.marker} <" in rules


def test_labels_are_shown_where_the_rules_do_not_name_them() -> None:
    asked = PROMPTS["imprint_news"].messages(probe(0, options=["yes", "no"], form="label"), Context())[-1]
    assert asked["parts"][-1].endswith("## Labels:\nyes, no")


def test_examples_are_shown_in_the_language_of_the_question_alone() -> None:
    examples = [Pair(question="An item", answer="Answer: Contradict"), Pair(question="一条设定", answer="Answer: 一致")]
    prompt = Prompt(PROMPTS["prelude"].card, examples)
    english = "".join(prompt.messages(probe(0, "The item"), Context())[0]["parts"])
    chinese = "".join(prompt.messages(probe(0, "设定：某事"), Context())[0]["parts"])
    assert "<example_1>\nAn item\nAnswer: Contradict\n</example_1>" in english and "一条设定" not in english
    assert "<example_1>\n一条设定\nAnswer: 一致\n</example_1>" in chinese and "An item" not in chinese


def test_braces_in_documents_and_questions_are_left_as_they_are() -> None:
    assert "{context} %s {0}" in text_of(
        BABI.messages(probe(0, "{question}"), Context(recent=[document(0, "{context} %s {0}")]))
    )


# ---------------------------------------------------------------- fit


def shown(context: Context, budget: int, llm: FakeLLM | None = None) -> Context:
    llm = llm or FakeLLM(max_tokens=10)
    llm.context_length = budget + llm.sampling.max_tokens
    messages, kept = fit(BABI, probe(99), context, llm)
    assert BABI.messages(probe(99), kept) == messages
    return kept


def size(context: Context) -> int:
    return FakeLLM().count_prompt(BABI.messages(probe(99), context))


def test_what_fits_is_shown_whole_and_counted_once() -> None:
    llm = FakeLLM()
    context = Context(recent=[document(p) for p in range(20)])
    assert fit(BABI, probe(99), context, llm)[1] == context
    assert llm.exact_counts == 1, "long prompts are not tokenised again for every probe"


def test_the_oldest_plain_documents_go_first() -> None:
    documents = [document(p) for p in range(20)]
    kept = shown(Context(recent=documents), size(Context(recent=documents[13:])))
    assert kept.recent == documents[13:]


def test_the_lowest_ranked_retrieved_documents_go_first() -> None:
    ranked = [document(p) for p in (5, 17, 3, 8, 1)]
    assert shown(Context(retrieved=ranked), size(Context(retrieved=ranked[:2]))).retrieved == ranked[:2]


def test_by_arrival_the_oldest_is_shown_first_and_the_lowest_ranked_is_left_out_first() -> None:
    ranked = [document(p) for p in (5, 17, 3, 8, 1)]
    whole = Context(retrieved=ranked, by_arrival=True)
    asked = "".join(BABI.messages(probe(99), whole)[-1]["parts"])
    assert re.findall(r"# chunk index : (\d+), context", asked) == ["1", "3", "5", "8", "17"]
    assert shown(whole, size(Context(retrieved=ranked[:2]))) == Context(retrieved=ranked[:2], by_arrival=True)


def test_retrieved_documents_go_before_recent_ones() -> None:
    ranked, recent = [document(p) for p in (5, 2, 3)], [document(p) for p in (10, 11, 12)]
    whole = Context(retrieved=ranked, recent=recent)
    assert shown(whole, size(Context(retrieved=ranked[:1], recent=recent))) == Context(
        retrieved=ranked[:1], recent=recent
    )
    assert shown(whole, size(Context(retrieved=[], recent=recent[1:]))) == Context(retrieved=[], recent=recent[1:])


def test_memory_is_never_cut() -> None:
    context = Context(memory="much to remember " * 50, retrieved=[document(p) for p in range(5)])
    assert shown(context, size(context) - 1).memory == context.memory
    assert shown(context, 1).retrieved == []


def test_a_document_longer_than_the_limit_leaves_an_empty_context() -> None:
    assert shown(Context(recent=[document(0, "word " * 5000)]), 300).recent == []


def odd_tokens(text: str) -> int:
    """A tokenizer that joins what stands side by side: words with the space before them, runs of newlines."""
    return len(re.findall(r"\n+| ?\w|[^\w\s]", text))


@given(
    st.lists(st.text(alphabet="ab \n.", max_size=12), max_size=25),
    st.lists(st.text(alphabet="ab \n.", max_size=12), max_size=10),
    st.integers(0, 900),
)
def test_as_many_documents_as_fit_are_shown_and_not_one_more(recent: list[str], ranked: list[str], budget: int) -> None:
    llm = FakeLLM(count=odd_tokens)
    context = Context(
        recent=[plain(p, text) for p, text in enumerate(recent)],
        retrieved=[plain(p, text) for p, text in enumerate(ranked)],
    )
    kept = shown(context, budget, llm)
    order = [*reversed(ranked), *recent]
    fitting = [n for n in range(len(order) + 1) if llm.count_prompt(messages_without(context, n)) <= budget]
    assert len(kept) == len(order) - min(fitting, default=len(order))


def plain(position: int, text: str) -> Document:
    return Document(id=str(position), stream="s", position=position, timestamp=None, text=text)


def messages_without(context: Context, n: int) -> list:  # type: ignore[type-arg]
    ranked = len(context.retrieved or ())
    return BABI.messages(
        probe(99),
        Context(
            retrieved=(context.retrieved or [])[: max(0, ranked - n)],
            recent=(context.recent or [])[max(0, n - ranked) :],
        ),
    )


def test_a_thousand_documents_take_few_exact_counts() -> None:
    llm = FakeLLM()
    documents = [document(p) for p in range(1000)]
    shown(Context(recent=documents), 3000, llm)
    assert llm.exact_counts <= 12


def test_a_text_for_a_prompt_that_there_is_not_is_told(tmp_path: Path) -> None:
    catalog = make_repository(tmp_path)
    config = tmp_path / "own.yaml"
    config.write_text(yaml.safe_dump({"prompts": {"shart": "mine.txt"}}))
    with pytest.raises(UpkeepError, match="unknown prompt 'shart'") as caught:
        Catalog(catalog.root, config).check(Cell("toy", "echo", "a", "none"))
    assert "did you mean short" in str(caught.value.remedy)
