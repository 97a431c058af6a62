"""Claims about decoding side by side: answers that do not depend on the company."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from engine_models import (
    CHATS,
    QUESTIONS,
    SAMPLED,
    answers,
    chat,
    engine,
    let_rows_differ,
    moving,
    spec,
    tiny,
    together,
)
from upkeep.cell.lockstep import (
    Generate,
    Handle,
    Score,
    lockstep,
)
from upkeep.contract import Sampling
from upkeep.serving import keys, llama, transformers_engine
from upkeep.serving.drafts import Answers
from upkeep.serving.lanes import BEGINNING_TOKENS, DRAFTED, ROWS, of_last

__all__ = ["tiny"]


# ---------------------------------------------------------------- transformers


@pytest.mark.parametrize(
    "sampling", [None, SAMPLED, Sampling(repetition_penalty=1.3, presence_penalty=0.5, max_tokens=8)]
)
def test_an_answer_is_the_same_whatever_was_asked_before(tiny: Path, sampling: Sampling | None) -> None:
    warm = engine(tiny)
    forward = [text for text, _, _ in answers(warm, CHATS, sampling)]
    backward = [text for text, _, _ in answers(warm, CHATS[::-1], sampling)][::-1]
    cold = [text for text, _, _ in answers(engine(tiny, prefix_cache=False), CHATS, sampling)]
    assert forward == backward == cold
    assert len(set(forward)) > 3


@pytest.mark.parametrize(
    "sampling", [None, SAMPLED, Sampling(repetition_penalty=1.3, presence_penalty=0.5, max_tokens=8)]
)
@pytest.mark.parametrize("beginning", [BEGINNING_TOKENS, 30])
def test_an_answer_is_the_same_whatever_is_decoded_beside_it(
    beginning: int, tiny: Path, sampling: Sampling | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "BEGINNING_TOKENS", beginning)
    chats = [chat(n, q) for n in (1, 2, 3, 4, 5, 6, 7) for q in QUESTIONS]
    model: Any = engine(tiny)
    assert model.lanes >= 8
    single = [text for text, _, _ in answers(model, chats, sampling)]
    used: list[int] = []
    step = model._step
    monkeypatch.setattr(model, "_step", lambda lanes: (used.append(len(lanes)), step(lanes))[1])
    assert together(model, chats, sampling) == single
    assert max(used) == model.lanes
    assert together(engine(tiny), chats[::-1], sampling) == single[::-1]
    plain: Any = engine(tiny)
    plain._drafted = 0  # none is answered in a single step
    assert together(plain, chats, sampling, given_up=5) == single[5:]
    assert not plain.busy
    assert len(set(single)) > 3


def test_what_waiting_prompts_share_is_computed_once_in_whatever_order_they_come(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where nothing is kept but the latest prompt."""
    monkeypatch.setattr(transformers_engine, "KEPT_TOKENS", 0)
    mixed = [CHATS[n] for n in (4, 0, 6, 1, 3, 7, 2, 8, 5)]
    waiting, grouped, one_by_one = engine(tiny), engine(tiny), engine(tiny)

    async def at_once() -> list[str]:
        asked = [Handle(waiting, spec(), 0, messages[-1]["parts"][-1]).chat(messages) for messages in mixed]
        return [reply.text for reply in await asyncio.gather(*asked)]

    with lockstep(waiting) as loop:
        found = loop.run(at_once())
    assert found == [text for text, _, _ in answers(one_by_one, mixed)]
    answers(grouped, CHATS)
    assert waiting.computed == grouped.computed < one_by_one.computed


@pytest.mark.parametrize("begun", [0, 30, BEGINNING_TOKENS, BEGINNING_TOKENS + 1, 1500])
def test_rows_of_a_step_do_not_depend_on_each_other_or_on_their_number(
    begun: int, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How many agree is the machine's matter; where none do, answers are decoded alone."""
    monkeypatch.setattr(keys, "BEGINNING_TOKENS", 30)
    model: Any = engine(tiny)
    assert model._rows and {*model._rows} <= {*ROWS}
    ids = [n % 250 for n in range(begun)]

    def step(lanes: list[list[int]]) -> list[torch.Tensor]:
        model._held_in_lanes.empty()
        for lane, _ in enumerate(lanes):
            model._held_in_lanes.fill(lane, model._layers, [array("i", ids)], begun, begun + 1 + DRAFTED)
        logits = model._step([(lane, begun, tokens) for lane, tokens in enumerate(lanes)])
        return [*logits[: sum(map(len, lanes))].split([*map(len, lanes)])]

    with torch.inference_mode():
        model._pass([ids or [0]], keep=1)
        model._crop(begun)
        alone = {new: step([[7, *range(1, new)]])[0] for new in range(1, 2 + DRAFTED)}
        for new, wanted in alone.items():
            for lanes in range(1, model.lanes + 1):
                tokens = [[7, *range(1, new)], *[[n, *range(n % (1 + DRAFTED))] for n in range(1, lanes)]]
                for place in (0, lanes // 2, lanes - 1):
                    mixed = step([*tokens[1 : 1 + place], tokens[0], *tokens[1 + place :]])
                    assert torch.equal(mixed[place], wanted)
                    assert sum(torch.equal(found, wanted) for found in mixed) == 1


@pytest.mark.parametrize("begun", [30, 64, 190, 250, BEGINNING_TOKENS - 1, 700, 1500])
@pytest.mark.parametrize("beginning", [None, 30], ids=["alone", "after a beginning"])
def test_a_token_has_the_same_bits_whichever_of_a_step_it_is(
    begun: int, beginning: int | None, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it is no matter what was drafted before it, or whether anything was."""
    monkeypatch.setattr(keys, "BEGINNING_TOKENS", beginning or 10_000)
    model: Any = engine(tiny)
    assert model._held_in_lanes.steady
    ids, leading = [n % 250 for n in range(begun)], begun // 2
    following = [7, *(n % 50 for n in range(1, 40))]

    def filled(lane: int, tokens: int) -> None:
        model._crop(tokens)
        model._held_in_lanes.fill(
            lane, model._layers, [array("i", ids[:leading])], min(leading, tokens), tokens + len(following)
        )

    def decoded(drafted: int) -> torch.Tensor:
        """Of all that follows, in steps of up to so many tokens and one, which end in what is not picked; where there
        are any, in a lane that was another's, beside shorter sequences."""
        model._held_in_lanes.empty()
        beside = [(1 + n, begun - 3 * n, [9] * (1 + n)) for n in range(3 if drafted else 0)]
        for lane, tokens, _ in beside:
            filled(lane, tokens)
        if drafted:
            filled(0, begun)
            model._step([(0, begun, [5] * model._held_in_lanes.most(0, begun))])
        filled(0, begun)
        found, n = list[torch.Tensor](), 0
        while n < len(following):
            tokens = [*following[n : n + 1 + drafted // 2], *range(60, 60 + drafted - drafted // 2)]
            tokens = tokens[: model._held_in_lanes.most(0, begun + n)]
            right = min(len(tokens), 1 + drafted // 2, len(following) - n)
            others = [(lane, at, new[: model._held_in_lanes.most(lane, at)]) for lane, at, new in beside]
            found += model._step([(0, begun + n, tokens), *others])[:right]
            n += right
        return torch.stack(found)

    with torch.inference_mode():
        model._pass([ids], keep=1)
        expected = decoded(0)
        assert all(torch.equal(decoded(drafted), expected) for drafted in range(1, 1 + DRAFTED))


@pytest.mark.parametrize("before", [0, 40])
@pytest.mark.parametrize("sizes", [(1,), (3, 2), (40, 6), (9, 7, 8), (9, 8, 7), (100, 50, 60)])
def test_a_last_layer_that_ends_early_changes_no_bit(
    sizes: Sequence[int], before: int, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither of what comes out for the last token, nor of what later ones attend to."""
    model: Any = engine(tiny)
    assert sum(sizes) <= max(model._pass_rows)
    segments = [[n * 7 % 250 for n in range(size)] for size in sizes]

    def computed(keep: int | None) -> tuple[torch.Tensor, list[torch.Tensor]]:
        model._crop(0)
        if before:
            model._pass([[*range(before)]], keep=None)
        logits, end = model._pass(segments, keep=keep), before + sum(sizes)
        return logits, [held[:, :, :end].clone() for one in model._layers for held in (one.keys, one.values)]

    monkeypatch.setattr(model._llama, "logits", lambda states: states)
    with torch.inference_mode():
        last, held = computed(1)
        nothing, held_too = computed(None)
        every, expected = computed(0)
    assert torch.equal(last, every[-1:]) and len(every) == sum(sizes) and not len(nothing)
    assert all(map(torch.equal, held, expected)) and all(map(torch.equal, held_too, expected))


def test_the_end_of_a_last_layer_is_of_the_fewest_rows_that_agree_and_hold_what_is_wanted() -> None:
    assert of_last([8, 16], 16, 12, 1) == slice(4, 12)
    assert of_last([8, 16], 8, 3, 1) == slice(0, 8), "rows without a token make up the number"
    assert of_last([8, 16], 900, 900, 1) == slice(892, 900)
    assert of_last([16, 32], 32, 20, 1) == slice(4, 20)
    assert of_last([8, 16], 16, 12, 0) == of_last([], 16, 12, 1) == slice(0, 16)


@pytest.mark.parametrize("beginning", [30, BEGINNING_TOKENS])
def test_what_another_sequence_left_in_a_lane_has_no_part_in_an_answer(
    beginning: int, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even numbers that are none, which would spoil whatever they are multiplied with."""
    monkeypatch.setattr(keys, "BEGINNING_TOKENS", beginning)
    model: Any = engine(tiny)
    for sampling in (None, *(Sampling(max_tokens=n) for n in (1, 40, 64, 130))):
        expected = together(engine(tiny), CHATS, sampling)
        together(model, CHATS, sampling)
        model.reset()
        with torch.inference_mode():
            model._held_in_lanes._held.fill_(torch.nan)
        assert together(model, CHATS, sampling) == expected


def test_where_its_place_in_a_step_has_a_part_a_draft_is_of_its_own_sequence(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = llama.by_tokens

    def differing(found: torch.Tensor, ratio: int) -> torch.Tensor:
        tokens = plain(found, ratio)
        return tokens * (1 - 0.1 * torch.arange(tokens.shape[1])[:, None, None])

    monkeypatch.setattr(keys, "by_tokens", differing)
    model: Any = engine(tiny)
    assert model._rows and not model._held_in_lanes.steady and model._answers is None
    forward = together(model, CHATS, SAMPLED)
    assert together(model, CHATS[::-1], SAMPLED)[::-1] == forward
    model._answers = Answers()
    together(model, CHATS, SAMPLED)
    assert together(model, CHATS, SAMPLED) != forward


@pytest.mark.parametrize("why", ["bits that depend on how many attend", "a GPU"])
def test_where_attending_together_is_not_exact_no_beginning_is_attended_to_apart(
    why: str, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chats = [chat(n, q, 600) for n in (1, 2) for q in QUESTIONS]
    divided: list[int] = []

    def counted(*given: Any) -> torch.Tensor:
        divided.append(size := given[-1])
        return llama.attention_divided(*given) + (size if why.startswith("bits") else 0)

    monkeypatch.setattr(keys, "attention_divided", counted)
    if why == "a GPU":
        monkeypatch.setattr(keys.Lanes, "_on_a_cpu", property(lambda _: False))
    model: Any = engine(tiny)
    assert model._rows
    assert bool(divided) == (why != "a GPU")
    divided.clear()
    together(model, chats, None)
    assert not divided


def test_lanes_continue_as_the_plain_model_does(tiny: Path) -> None:
    from transformers import AutoModelForCausalLM

    model: Any = engine(tiny)
    prompts = [model.tokens.encode(text) for text in ("the captain took", "nobody in the old house", "a coin")]
    plain = AutoModelForCausalLM.from_pretrained(tiny)
    with torch.inference_mode():
        for n, ids in enumerate(prompts):
            model._crop(0)
            model._pass([ids], keep=1)
            model._held_in_lanes.fill(n, model._layers, [], 0, len(ids) + 8)
        for step in range(3):
            new = [[50 + n + step, *range(n)] for n in range(len(prompts))]
            logits = model._step([(n, len(ids), new[n]) for n, ids in enumerate(prompts)])
            for ids, tokens in zip(prompts, new, strict=True):
                wanted = plain(torch.tensor([[*ids, *tokens]])).logits[0, len(ids) :]
                assert torch.allclose(logits[: len(tokens)], wanted, atol=1e-3)
                logits = logits[len(tokens) :]
                ids.append(tokens[0])  # what comes after it is given up


@pytest.mark.parametrize("tokens", [BEGINNING_TOKENS, BEGINNING_TOKENS + 37, 1100])
def test_attention_to_a_beginning_does_not_depend_on_who_has_it_too(tokens: int, tiny: Path) -> None:
    sizes = engine(tiny)._rows  # type: ignore[attr-defined]
    torch.manual_seed(tokens)
    held = torch.randn(2, 1, 2, tokens, 32)
    asked, own = torch.randn(2, 16, 4, 32)
    sums = torch.randn(16, 4)
    alone = [llama.attention_divided(*(x[n : n + 1] for x in (asked, own, sums)), *held, sizes[0]) for n in range(16)]
    for size in sizes:
        for number in range(1, 1 + min(16, size)):
            found = llama.attention_divided(asked[:number], own[:number], sums[:number], *held, size)
            assert torch.equal(found, torch.cat(alone[:number]))


@pytest.mark.parametrize("why", ["long", "a machine whose rows differ"])
def test_what_takes_no_lane_is_answered_alone(tiny: Path, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    expected = [text for text, _, _ in answers(engine(tiny), CHATS)]
    if why == "long":
        monkeypatch.setattr(transformers_engine, "LANE_TOKENS", 100)
    else:
        let_rows_differ(monkeypatch, steps=True)
    model: Any = engine(tiny)
    assert (model.lanes > 1) == (why == "long")
    monkeypatch.setattr(type(model), "_step", None)
    assert together(model, CHATS, None) == expected
    assert not model.busy


@pytest.mark.parametrize("why", ["long", "scores"])
def test_what_takes_no_lane_is_answered_request_by_request(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    if why == "long":
        monkeypatch.setattr(transformers_engine, "LANE_TOKENS", 100)
    model = engine(tiny)

    async def main() -> None:
        future = asyncio.get_running_loop().create_future
        prompt = model.tokens.prompt(CHATS[0])
        for _ in range(3):
            if why == "long":
                model.add(Generate(prompt, Sampling(max_tokens=4), 0, future()))
            else:
                model.add(Score(prompt, array("i", [1, 2]), future()))
        assert [len(list(model.step())) for _ in range(3)] == [1, 1, 1]

    asyncio.run(main())
    assert not model.busy


def test_a_queue_of_all_kinds_gives_what_each_gives_alone(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transformers_engine, "LANE_TOKENS", 1000)
    model = engine(tiny)
    lengths = {model.tokens.prompt(messages).length > 1000 for messages in CHATS}
    assert lengths == {True, False}

    async def ask(n: int) -> object:
        if n % 3 == 2:
            return await Handle(model, spec(), 0, str(n)).logprobs("the captain took", f" a coin and {n} more")
        return (await Handle(model, spec(), 0, str(n)).chat(CHATS[n % len(CHATS)], SAMPLED)).text

    async def at_once() -> list[object]:
        return list(await asyncio.gather(*map(ask, range(24))))

    async def one_by_one() -> list[object]:
        return [await ask(n) for n in range(24)]

    with lockstep(model) as loop:
        assert loop.run(at_once()) == loop.run(one_by_one())


def test_an_engine_that_is_reset_in_mid_answer_is_as_new(tiny: Path) -> None:
    model = engine(tiny)

    async def begin() -> None:
        future = asyncio.get_running_loop().create_future
        for n in range(12):
            prompt = model.tokens.prompt(CHATS[n % len(CHATS)])
            model.add(Generate(prompt, Sampling(max_tokens=2 + 5 * n), 0, future()))
        assert len(list(model.step())) == 1

    asyncio.run(begin())
    assert model.busy
    model.reset()
    assert not model.busy
    assert answers(model, CHATS) == answers(engine(tiny), CHATS)
    assert model.computed == sum(prompt - cached for _, prompt, cached in answers(engine(tiny), CHATS))


def test_positions_that_depend_on_the_longest_sequence_take_no_lanes(tiny: Path, tmp_path: Path) -> None:
    assert engine(tiny).lanes >= 8 > engine(moving(tiny, tmp_path)).lanes == 1
