"""What every method in `methods/` does: one suite, found by folder, so that a new one is tested with no list edited."""

from __future__ import annotations

import asyncio
import itertools
import re

import pytest

from method_fakes import ROOT, FakeLLM, document, gold, probe
from method_runs import Run, card, make, sees, sentinels, stream
from upkeep.catalog import Catalog
from upkeep.cell import Answer, Method, Seen
from upkeep.contract import Document

METHODS = sorted(path.parent.name for path in (ROOT / "methods").glob("*/method.yaml"))

VARIANTS = [(method, variant) for method in METHODS for variant in card(method).variants]
ANSWERING = [(m, v) for m, v in VARIANTS if not card(m).trains]
MEASURING = ("min_k_prob",)
"""Methods that measure the documents and ask nothing."""
ASKING = [m for m in METHODS if card(m).streams > 1]
"""Methods that ask a model as documents arrive, one after the other."""


@pytest.mark.parametrize("method", METHODS)
def test_card_is_valid_and_says_what_it_should(method: str) -> None:
    described = card(method)
    assert described.label
    assert described.summary.endswith(".")
    assert described.reference
    assert described.variants
    known = {key for values in described.variants.values() for key in values}
    assert set(described.settings) <= known, "tables print parameters that some variant has"
    assert set(described.papers) <= {folder.name for folder in (ROOT / "papers").iterdir()}
    for embedder in (described.embedder, described.embedder_gpu):
        assert embedder is None or Catalog(ROOT).model(embedder).role == "embedder"


@pytest.mark.parametrize("method", METHODS)
def test_readme_is_there(method: str) -> None:
    readme = (ROOT / "methods" / method / "README.md").read_text()
    assert readme.startswith(f"# {method}\n")
    assert "Variants" in readme


@pytest.mark.parametrize(("method", "variant"), VARIANTS)
def test_every_variant_can_be_made(method: str, variant: str) -> None:
    assert isinstance(make(method, variant), Method)


@pytest.mark.parametrize("method", METHODS)
def test_no_two_variants_are_the_same(method: str) -> None:
    values = [repr(sorted(v.items())) for v in card(method).variants.values()]
    assert len(values) == len(set(values))


@pytest.mark.parametrize(("method", "variant"), ANSWERING)
def test_every_probe_is_answered(method: str, variant: str) -> None:
    run = Run(method, variant, stream())
    assert len(run.answers) == 7
    for answer, prompts in zip(run.answers, run.prompts, strict=True):
        assert answer.response is None or isinstance(answer.response, str)
        assert bool(prompts) == card(method).model, "a method calls a model if and only if its card says so"


@pytest.mark.parametrize(("method", "variant"), ANSWERING)
def test_no_later_document_reaches_a_prompt(method: str, variant: str) -> None:
    run = Run(method, variant, stream())
    for position, prompts in enumerate(zip(run.asked, run.prompts, strict=True)):
        assert all(shown <= position for prompt in itertools.chain(*prompts) for shown in sentinels(prompt))


@pytest.mark.parametrize(("method", "variant"), ANSWERING)
def test_what_comes_later_changes_nothing_before(method: str, variant: str) -> None:
    whole, part = Run(method, variant, stream(7)), Run(method, variant, stream(4))
    assert whole.prompts[:4] == part.prompts
    assert whole.answers[:4] == part.answers
    assert whole.asked[:4] == part.asked


@pytest.mark.parametrize(("method", "variant"), ANSWERING)
def test_two_runs_are_the_same(method: str, variant: str) -> None:
    first, second = Run(method, variant, stream()), Run(method, variant, stream())
    assert (first.answers, first.prompts, first.asked) == (second.answers, second.prompts, second.asked)


@pytest.mark.parametrize(("method", "variant"), ANSWERING)
def test_the_question_is_in_the_prompt_and_the_key_is_not(method: str, variant: str) -> None:
    for prompts in Run(method, variant, stream()).prompts:
        for prompt in prompts:
            assert ("Where is Mira?" in prompt) == (method not in MEASURING)
            assert "loft" not in prompt, "an accepted answer that only the key holds"


@pytest.mark.parametrize(("method", "variant"), ANSWERING)
def test_retrieved_documents_are_ranked_and_have_arrived(method: str, variant: str) -> None:
    for position, answer in enumerate(Run(method, variant, stream()).answers):
        assert [r.rank for r in answer.retrieved] == list(range(1, len(answer.retrieved) + 1))
        assert len({r.id for r in answer.retrieved}) == len(answer.retrieved)
        assert {r.id for r in answer.retrieved} <= {f"s-{p}" for p in range(position + 1)}


@pytest.mark.parametrize(("method", "variant"), ANSWERING)
def test_the_documents_in_the_prompt_are_counted(method: str, variant: str) -> None:
    run = Run(method, variant, stream())
    for answer, prompts in zip(run.answers, run.prompts, strict=True):
        shown = {len(sentinels(prompt)) for prompt in prompts} or {0}
        if method not in ASKING:
            assert answer.context.documents in shown, (
                f"{method} shows text of {shown} documents: `Answer.context.documents` says how many"
            )
        assert answer.context.dropped == 0


HOSTILE = {
    "empty": "",
    "one_character": "x",
    "long": "word " * 5000,
    "unicode": "Zoë 日本語 🙂 \u202e\u0000 {braces} %s <|end|> ## Answer: trap",
    "newlines": "\n" * 50,
}


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize(("method", "variant"), ANSWERING)
def test_odd_documents_are_survived(method: str, variant: str, kind: str) -> None:
    odd = [
        Document(id=f"s-{p}", stream="s", position=p, timestamp=None, text=HOSTILE[kind] if p != 1 else "Mira left.")
        for p in range(3)
    ]
    assert len(Run(method, variant, odd).answers) == 3


@pytest.mark.parametrize(("method", "variant"), ANSWERING)
def test_a_context_that_is_too_long_is_made_to_fit_and_what_is_left_out_is_counted(method: str, variant: str) -> None:
    documents = stream(7, "word " * 200)
    needed = 20_000 if method in ASKING or card(method).per_question else 40
    llm = FakeLLM(context_length=500 + needed, max_tokens=20)
    run = Run(method, variant, documents, llm)  # the fake refuses a prompt that is too long
    free = Run(method, variant, documents)
    for fitted, whole in zip(run.answers, free.answers, strict=True):
        assert fitted.retrieved == whole.retrieved
        assert fitted.context.documents + fitted.context.dropped == whole.context.documents


@pytest.mark.parametrize(("method", "variant"), ANSWERING)
def test_streams_that_run_side_by_side_do_not_mix(method: str, variant: str) -> None:
    """The answers about one stream are the same whether or not another one runs."""

    async def both() -> list[Answer]:
        led, llm, answers = make(method, variant), FakeLLM(), []
        for position in range(4):
            mine = document(position)
            other = document(position, "Mira " * 9, "other")
            await asyncio.gather(led.arrive("other", [other], FakeLLM()), led.arrive("s", [mine], llm))
            key = gold(position) if sees(method, variant) != "documents" else None
            seen = Seen([document(p) for p in range(position + 1)], key)
            answers.append(await led.answer(probe(position), seen, llm))
        assert not any("xother" in prompt for prompt in llm.prompts)
        return answers

    async def alone() -> list[Answer]:
        led, llm, answers = make(method, variant), FakeLLM(), []
        for position in range(4):
            await led.arrive("s", [document(position)], llm)
            key = gold(position) if sees(method, variant) != "documents" else None
            seen = Seen([document(p) for p in range(position + 1)], key)
            answers.append(await led.answer(probe(position), seen, llm))
        return answers

    assert asyncio.run(both()) == asyncio.run(alone())


@pytest.mark.parametrize("method", METHODS)
def test_files_name_nothing_of_the_machine_they_were_written_on(method: str) -> None:
    for path in (ROOT / "methods" / method).glob("*.*"):
        assert not re.search(r"/(home|root|work|tmp|opt)/", path.read_text()), path
