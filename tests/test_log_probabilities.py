"""Log-probabilities are those of the plain model, token by token."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine_models import CHATS, answers, chat, document, engine, families, spec, tiny
from upkeep.cell.lockstep import (
    Engine,
    Handle,
    lockstep,
)
from upkeep.cell.tokens import ChatTokens

__all__ = ["families", "tiny"]


def test_log_probabilities_are_equal_to_the_last_bit_with_a_cold_and_a_warm_cache(tiny: Path) -> None:
    text = " ".join(document(n) for n in range(8))
    model = engine(tiny)

    async def score() -> list[Any]:
        return await Handle(model, spec(), 0, "p").logprobs(text, " and went to the harbour")

    with lockstep(model) as loop:
        first = loop.run(score())
    answers(model, CHATS[:2])
    with lockstep(model) as loop:
        again, warm = loop.run(score()), loop.run(score())
    assert first == again == warm
    assert all(one.logprob < 0 for one in first)


def test_segmented_logits_are_those_of_one_pass_over_the_whole_prompt(tiny: Path) -> None:
    from transformers import AutoModelForCausalLM

    model = engine(tiny)
    prompt = model.tokens.prompt(CHATS[-1])
    assert len(prompt.segments) > 4
    with torch.inference_mode():
        logits, _ = model._prefill(prompt.segments)  # type: ignore[attr-defined]
        reference = AutoModelForCausalLM.from_pretrained(tiny)(torch.tensor([prompt.ids()])).logits[0, -1:]
    assert torch.allclose(logits, reference, atol=1e-3)


@pytest.fixture(scope="session")
def begun(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`tiny` with a tokenizer that puts a token before each text."""
    from tokenizers import Tokenizer, processors

    folder = tmp_path_factory.mktemp("begun")
    shutil.copytree(tiny, folder, dirs_exist_ok=True)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    begin = ("<|system|>", tokenizer.token_to_id("<|system|>"))
    tokenizer.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=True),
            processors.TemplateProcessing(single=f"{begin[0]} $A", special_tokens=[begin]),
        ]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"bos_token": begin[0]}))
    return folder


SCORED_TEXTS = [
    ("the captain took", " a coin and went"),
    ("the captain took ", "a coin"),  # the space is part of the first token
    ("the capt", "ain took"),
    ("", "The house was old.\n\n Nobody  looked é 日本"),
    ("x", "y"),
    ("the captain took", ""),
    (document(1), " " + document(2)),
]


@pytest.mark.parametrize("kind", ["tiny", "begun"])
@pytest.mark.parametrize("shape", ["text", "chat"])
def test_log_probabilities_are_those_of_the_plain_model_over_the_whole_text(
    tiny: Path, begun: Path, kind: str, shape: str
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = {"tiny": tiny, "begun": begun}[kind]
    model = engine(folder)
    plain, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    prompts: list[tuple[Any, str, str]] = [(prompt, prompt, text) for prompt, text in SCORED_TEXTS]
    if shape == "chat":
        chats = [chat(n, "Who?", 60) for n in (1, 3, 3)]
        prompts = [
            (one, tokenizer.decode(model.tokens.prompt(one).ids()), text)
            for one, (_, text) in zip(chats, SCORED_TEXTS, strict=False)
        ]

    async def score() -> list[Any]:
        return [await Handle(model, spec(), 0, "p").logprobs(prompt, text) for prompt, _, text in prompts]

    with lockstep(model) as loop:
        found, again = loop.run(score()), loop.run(score())
    assert found == again, "warm"
    for scored, (_, before, text) in zip(found, prompts, strict=True):
        ids = tokenizer.encode(before + text, add_special_tokens=shape == "text")
        with torch.inference_mode():
            logits = plain(torch.tensor([ids])).logits[0].log_softmax(-1)
        wanted = [None, *(logits[i, token].item() for i, token in enumerate(ids[1:]))][len(ids) - len(scored) :]
        if not scored:
            assert not text
            continue
        assert [(one.logprob is None) for one in scored] == [value is None for value in wanted]
        assert [v.logprob or 0.0 for v in scored] == pytest.approx([value or 0.0 for value in wanted], abs=1e-4)
        whole = before + text
        pieces = [whole[len(before) + one.start : len(before) + one.end] for one in scored]
        assert scored[0].start <= 0 < scored[0].end and scored[-1].end == len(text)
        if text.isascii():
            assert [tokenizer.decode([i]) for i in ids[len(ids) - len(scored) :]] == pieces


def test_only_a_text_that_nothing_stands_before_has_a_token_without_probability(tiny: Path, begun: Path) -> None:
    async def score(model: Engine, prompt: str) -> list[object]:
        return [one.logprob for one in await Handle(model, spec(), 0, "p").logprobs(prompt, "coin")]

    for folder, prompt, unknown in ((tiny, "", True), (tiny, "a ", False), (begun, "", False)):
        model = engine(folder)
        with lockstep(model) as loop:
            found = loop.run(score(model, prompt))
        assert (found[0] is None) == unknown and None not in found[1:], (folder, prompt)


def test_a_token_that_begins_in_the_prompt_is_given_whole(tiny: Path) -> None:
    model = engine(tiny)

    async def score() -> list[Any]:
        return [
            await Handle(model, spec(), 0, "p").logprobs(*text)
            for text in (("He took a ", "coin"), ("He took a", " coin"))
        ]

    with lockstep(model) as loop:
        (inside,), (whole,) = loop.run(score())
    assert (inside.start, inside.end, whole.start, whole.end) == (-1, 4, 0, 5) and inside.logprob == whole.logprob


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(prompt=st.text(alphabet="ab é\n\t .,'s1中", max_size=90), text=st.text(alphabet="ab é\n\t .,'s1中", max_size=90))
@pytest.mark.parametrize("kind", ["tiny", "gpt2", "qwen", "metaspace", "unsplit"])
def test_prompt_and_text_are_tokenised_together(
    families: dict[str, ChatTokens], kind: str, prompt: str, text: str
) -> None:
    tokens = families[kind]
    for before in (prompt, document(1, 40) + prompt):
        found = tokens.scorable(before, text)
        assert [*found.prompt.ids(), *found.ids] == tokens.encode(before + text)
        assert all(start <= end for start, end in found.spans)
        if text and tokens.encode(before + text) and found.spans:
            assert found.spans[0][0] <= 0 < found.spans[0][1] and found.spans[-1][1] == len(text)
