"""What the transformers engine keeps of earlier prompts: no more than there is room for, and no answer hangs on it."""

from __future__ import annotations

import itertools
from array import array
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine_models import CHATS, answers, engine, let_rows_differ, tiny
from upkeep.cell.tokens import Segment
from upkeep.serving import transformers_engine
from upkeep.serving.keys import Held, cut, extend
from upkeep.serving.segments import KeptSegments, passes

__all__ = ["tiny"]

PROMPTS = st.lists(st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=3), min_size=1, max_size=4), max_size=12)


def segments(prompt: list[list[int]]) -> list[Segment[int]]:
    return [array("i", part) for part in prompt]


@given(PROMPTS, st.integers(0, 12))
def test_what_is_found_of_a_prompt_is_of_its_own_beginning_and_never_more_than_there_is_room_for(
    prompts: list[list[list[int]]], room: int
) -> None:
    kept: KeptSegments[tuple[tuple[int, ...], ...]] = KeptSegments(room)
    beginnings = {tuple(map(tuple, one[:n])) for one in prompts for n in range(1, len(one) + 1)}
    for prompt in prompts:
        before = kept.find(segments(prompt))
        made: list[int] = []

        def of(place: int, prompt: list[list[int]] = prompt, made: list[int] = made) -> tuple[tuple[int, ...], ...]:
            made.append(place)
            return tuple(map(tuple, prompt[: place + 1]))

        kept.keep(segments(prompt), of)
        found = kept.find(segments(prompt))
        assert found == [tuple(map(tuple, prompt[: n + 1])) for n in range(len(found))]
        assert made == [*range(len(before), len(found))]
        whole = sum(map(len, prompt)) <= room
        assert whole == (len(found) == len(prompt))
        every = {one for one in beginnings if len(kept.find(segments([*map(list, one)]))) == len(one)}
        assert sum(len(one[-1]) for one in every) <= room


def test_of_what_there_is_no_room_for_that_goes_which_was_not_asked_for_longest() -> None:
    kept: KeptSegments[int] = KeptSegments(6)
    a, b, c = (segments([[0, 0], [n, n]]) for n in (1, 2, 3))
    for prompt in (a, b, a, c):
        kept.keep(prompt, lambda place: place)
    assert [len(kept.find(prompt)) for prompt in (a, b, c)] == [2, 1, 2]
    kept.clear()
    assert kept.find(a) == []


@given(st.lists(st.integers(1, 9)), st.integers(0, 12))
def test_passes_are_the_segments_in_their_order_as_many_together_as_fit(sizes: list[int], most: int) -> None:
    given_ones = [array("i", [0] * size) for size in sizes]
    found = passes(given_ones, most)
    assert [segment for together in found for segment in together] == given_ones
    lengths = [[len(segment) for segment in together] for together in found]
    assert all(sum(together) <= most or len(together) == 1 for together in lengths)
    assert all(sum(one) + other[0] > most for one, other in itertools.pairwise(lengths))


@pytest.mark.parametrize("differing", [False, True])
@torch.inference_mode()  # type: ignore[untyped-decorator]
def test_a_prompt_has_the_same_bits_whatever_of_it_was_kept(
    differing: bool, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where rows of a product feel how many there are, each segment has a pass of its own."""
    if differing:
        let_rows_differ(monkeypatch, steps=False)
    model: Any = engine(tiny)
    assert bool(model._pass_rows) != differing
    prompt = [array("i", [(n * k) % 300 for k in range(n)]) for n in (1, 300, 3, 40, 1, 70, 200, 300, 5, 90, 1, 2)]

    def computed() -> list[torch.Tensor]:
        logits, _ = model._prefill(prompt)
        return [logits, *(part for both in cut(model._layers, 0, model._layers[0].length) for part in both)]

    whole = computed()
    for n in range(1, len(prompt)):
        model.reset()
        model._crop(0)
        model._prefill([*prompt[:n], array("i", [9])])
        if n % 2:  # what comes between leaves what was kept of it
            model._prefill([array("i", [4, 5]), array("i", [9])])
        assert all(map(torch.equal, computed(), whole))


@pytest.mark.parametrize("room", [0, 40, 300, None])
def test_an_answer_is_the_same_however_much_is_kept_of_earlier_prompts(
    room: int | None, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mixed = [CHATS[n] for n in (4, 0, 6, 1, 4, 3, 0, 7, 2, 8, 5, 6)]
    expected = [text for messages in mixed for text, _, _ in answers(engine(tiny, prefix_cache=False), [messages])]
    if room is not None:
        monkeypatch.setattr(transformers_engine, "KEPT_TOKENS", room)
    assert [text for text, _, _ in answers(engine(tiny), mixed)] == expected


def test_a_prompt_of_longer_ago_is_not_computed_again_and_none_of_a_cell_before(tiny: Path) -> None:
    model = engine(tiny)
    other = [{"role": "user", "parts": ["Something else altogether, at a length at which it is cut. " * 9, "Why?"]}]
    (_, length, first), (_, _, between), (_, _, again) = answers(model, [CHATS[-1], other, CHATS[-1]])
    assert first == between == 0
    assert length - 60 < again < length
    model.reset()
    assert answers(model, [CHATS[-1]])[0][2] == 0


def test_what_was_cut_off_is_put_back_where_sizes_differ_and_a_layer_has_nothing_of_its_own() -> None:
    layers = [Held(), Held(), Held()]
    layers[0].update(torch.randn(1, 1, 5, 48), torch.randn(1, 1, 5, 8))
    layers[2].update(torch.randn(1, 2, 5, 16), torch.randn(1, 2, 5, 16))
    again = [Held(), Held(), Held()]
    extend(again, [])
    assert not any(layer.length for layer in again)
    extend(again, [cut(layers, 0, 2), cut(layers, 2, 5)])
    assert [layer.length for layer in again] == [5, 0, 5]
    for one, other in zip(layers[::2], again[::2], strict=True):
        assert torch.equal(one.keys[:, :, :5], other.keys[:, :, :5])
        assert torch.equal(one.values[:, :, :5], other.values[:, :, :5])
