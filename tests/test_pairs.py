"""Training pairs given to methods that answer: when they come, to whom, and what is made of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain

import msgspec
import pytest

from host_fakes import STREAMS
from method_fakes import PROMPTS, FakeLLM, document, probe
from method_runs import make, sentinels
from trainings import built, catalog
from upkeep.building.assembling import Built
from upkeep.catalog import Catalog
from upkeep.cell import Answer, Seen
from upkeep.contract import Document, Pair
from upkeep.errors import UpkeepError
from upkeep.execution.rounds import BuiltDataset, answering, tasks
from upkeep.execution.trained_on import with_pairs
from upkeep.identity import identity
from upkeep.jobs import Cell
from upkeep.layout import Layout

__all__ = ["catalog"]

GIVEN = Cell("toy", "echo", "b", "none")


def given(catalog: Catalog, supervision: str = "Q") -> Catalog:
    """With pairs for the variant b of `echo`, and none for its variant a."""
    card = catalog.root / "methods/echo/method.yaml"
    card.write_text(card.read_text().replace("b: {n: 2}", f"b: {{n: 2, supervision: {supervision}}}"))
    return Catalog(catalog.root)


def corpus(catalog: Catalog, cell: Cell = GIVEN) -> tuple[BuiltDataset, dict[str, int]]:
    return with_pairs(catalog, cell, BuiltDataset.read(Layout(catalog.results).dataset("toy")))


def unnamed(one: Built) -> Built:
    first, *others = one.pairs
    return replace(one, pairs=[msgspec.structs.replace(first, document=None), *others])


# ---------------------------------------------------------------- on the host


def test_a_pair_is_in_the_container_when_its_document_is_and_not_before(catalog: Catalog) -> None:
    found, cutoff = corpus(given(catalog))
    assert cutoff == {}
    arrived: set[str] = set()
    for task in chain(*tasks(found, [answering(found)], 1, bytes(len(found.probes)))):
        arrived |= {one.id for one in task.round.documents}
        told = {pair.document for one in task.round.documents for pair in one.pairs}
        assert told == {one.id for one in task.round.documents} <= arrived


def test_a_variant_without_q_is_given_no_pair_and_is_asked_everything(catalog: Catalog) -> None:
    found, cutoff = corpus(given(catalog), Cell("toy", "echo", "a", "none"))
    assert (cutoff, any(one.pairs for one in found.documents)) == ({}, False)
    assert b"pairs" not in msgspec.json.encode(found.documents[0]), "a program is told what it was told before"


def test_a_pair_of_no_document_comes_at_a_streams_end_and_nothing_is_asked_before(catalog: Catalog) -> None:
    built(catalog, "toy", unnamed)
    found, cutoff = corpus(given(catalog))
    assert cutoff == {stream: length - 1 for stream, (length, _) in STREAMS.items()}
    late = {one.id for one in found.documents if any(pair.document is None for pair in one.pairs)}
    assert late == {f"{stream}_c{end}" for stream, end in cutoff.items()}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda one: replace(one, pairs=[]), "'toy' has no training pairs, and echo/b is given some"),
        (
            lambda one: unnamed(replace(one, probes=one.probes.head(1), gold=one.gold.head(1))),
            "asked before its stream has ended",
        ),
    ],
)
def test_pairs_that_are_not_there_or_come_too_late_are_refused(
    catalog: Catalog, change: Callable[[Built], Built], problem: str
) -> None:
    built(catalog, "toy", change)
    with pytest.raises(UpkeepError, match=problem):
        corpus(given(catalog))


def test_a_cell_is_stale_by_the_pairs_that_it_is_given(catalog: Catalog) -> None:
    catalog = given(catalog)
    cells = Cell("toy", "echo", "a", "none"), GIVEN
    before = [identity(catalog, cell)[0] for cell in cells]
    built(catalog, "toy", lambda one: replace(one, pairs=one.pairs[1:]))
    after = [identity(Catalog(catalog.root), cell)[0] for cell in cells]
    assert [one == other for one, other in zip(before, after, strict=True)] == [True, False]


def test_a_supervision_that_is_none_is_refused(catalog: Catalog) -> None:
    with pytest.raises(UpkeepError, match="variant 'b': supervision 'X'"):
        given(catalog, "X").method("echo")


# ---------------------------------------------------------------- examples


PAIRS = [Pair(question=f"Where is sentinel{n}xs?", answer=f"room {n}") for n in range(9)]


def with_examples(*positions: Sequence[int]) -> list[Document]:
    """Documents, each with the pairs of these numbers."""
    return [
        msgspec.structs.replace(document(place, "", "other"), pairs=[PAIRS[n] for n in numbers])
        for place, numbers in enumerate(positions)
    ]


def asked(method: str, documents: Sequence[Document], llm: FakeLLM, seed: int = 0, prompt: str = "oaks_babi") -> Answer:
    one = make(method, {"few_shot": "five", "many_shot": "all"}[method], seed=seed, prompt=PROMPTS[prompt])
    return asyncio.run(one.answer(probe(len(documents) - 1), Seen(documents), llm))


@pytest.mark.parametrize(("method", "shown"), [("few_shot", 5), ("many_shot", 9)])
def test_the_examples_are_pairs_that_have_arrived_in_one_order_with_the_answer_as_it_is_demanded(
    method: str, shown: int
) -> None:
    llm = FakeLLM()
    answer = asked(method, with_examples(range(9)), llm)
    asked(method, with_examples(range(4, 9), range(4)), llm)
    assert answer.values == {"shots": shown, "left_out": 0}
    rules, question = llm.prompts[0].split("\n<user>")
    assert len(sentinels(rules)) == rules.count("<example>") == shown and not sentinels(question)
    assert f"xs?\n{PROMPTS['oaks_babi'].marker} room " in rules
    assert llm.prompts[0] == llm.prompts[1], "whichever way they came"
    asked(method, with_examples(range(9)), llm, seed=1)
    assert llm.prompts[2] != llm.prompts[0]


def test_what_does_not_fit_is_left_out_from_the_end_and_counted() -> None:
    free, tight = FakeLLM(), FakeLLM()
    asked("many_shot", with_examples(range(9)), free)
    tight.context_length = free.count(free.prompts[0]) - 20
    answer = asked("many_shot", with_examples(range(9)), tight)
    n = int(answer.values["shots"])
    assert 0 < n < 9 and answer.values["left_out"] == 9 - n
    kept = tight.prompts[0].split("\n<user>")[0]
    assert free.prompts[0].startswith(kept)
    assert free.count(free.prompts[0][len(kept) :].split("\n\n<example>")[1]) + free.count(tight.prompts[0]) > (
        tight.context_length - tight.sampling.max_tokens - 20
    ), "another one would not have fitted"


def test_a_datasets_own_worked_examples_are_the_five() -> None:
    own = replace(PROMPTS["prelude"], examples=[Pair(question=f"Q{n}", answer="Answer: Consistent") for n in range(5)])
    llm = FakeLLM()
    for method, variant in (("few_shot", "five"), ("closed_book", "default")):
        asyncio.run(make(method, variant, prompt=own).answer(probe(0), Seen(with_examples(range(9))), llm))
    assert llm.prompts[0] == llm.prompts[1] and "<example_5>" in llm.prompts[0]


# ---------------------------------------------------------------- summaries


@pytest.mark.parametrize(
    ("method", "variant", "texts", "pairs"),
    [
        ("chunked_summary", "budget128", True, False),
        ("chunked_summary", "budget128_q", False, True),
        ("chunked_summary", "budget128_cq", True, True),
        ("document_summary", "budget128", True, False),
        ("document_summary", "per_feature_q", False, True),
    ],
)
def test_a_summary_is_made_of_documents_of_pairs_or_of_both(
    method: str, variant: str, texts: bool, pairs: bool
) -> None:
    llm, documents = FakeLLM(), with_examples([0, 1], [], [2])
    one = make(method, variant)

    async def lead() -> None:
        for arrived in documents:
            await one.arrive("other", [arrived], llm)
        await one.answer(probe(2, stream="other"), Seen(documents), llm)

    asyncio.run(lead())
    *written, read = llm.prompts
    together = "".join(written)
    assert [f"sentinel{n}xother" in together for n in range(3)] == [texts] * 3
    assert sentinels(together) == ({0, 1, 2} if pairs else set())
    assert "Question: Where is sentinel0xs?\nAnswer: room 0" in together or not pairs
    assert not sentinels(read)
    if texts and pairs:
        assert written[0].index("sentinel0xother") < written[0].index("Question:"), "pairs after their document"
