"""Claims about drafted tokens: answers are what they are without them, in lanes to the last bit (alone where no two
words are as likely to the last few bits, for sums have another order), in fewer steps."""

from __future__ import annotations

import asyncio
import itertools
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from engine_models import CHATS, SAMPLED, answers, engine, moving, spec, tiny, together
from upkeep.cell.lockstep import Generate, Generated, lockstep
from upkeep.cell.tokens import TokenPrompt
from upkeep.cell.wire import NO_OPTIONS, Options
from upkeep.contract import EngineSettings, Sampling
from upkeep.serving import transformers_engine
from upkeep.serving.drafts import Answers, Drafts
from upkeep.serving.lanes import BEGINNING_TOKENS, BLOCK, DRAFTED
from upkeep.serving.transformers_engine import TransformersEngine

__all__ = ["tiny"]


def drafted(prompt: Sequence[int], answer: Sequence[int] = (), most: int = 3) -> list[int]:
    return Drafts([array("i", prompt[:2]), array("i", prompt[2:])]).after(answer, most)


@pytest.mark.parametrize(
    ("prompt", "answer", "most", "expected"),
    [
        pytest.param([1, 2, 3, 4, 5, 6, 7, 1, 2, 3], [], 3, [4, 5, 6], id="where the last three stood"),
        pytest.param([9, 2, 3, 4, 5, 6, 7, 1, 2, 3], [], 3, [4, 5, 6], id="or two"),
        pytest.param([9, 8, 3, 4, 5, 6, 7, 1, 2, 3], [], 3, [4, 5, 6], id="or one"),
        pytest.param([1, 2, 3, 4, 9, 2, 3, 5, 1, 2, 3], [], 1, [4], id="three before the later two"),
        pytest.param([2, 3, 4, 2, 3, 5, 2, 3], [], 1, [5], id="the latest place"),
        pytest.param([1, 2, 3, 4, 5], [8, 2, 3], 2, [4, 5], id="of an answer, in the prompt"),
        pytest.param([1, 5], [2, 3, 4, 2], 2, [3, 4], id="in the answer itself"),
        pytest.param([4, 7, 7], [], 3, [7], id="up to the end"),
        pytest.param([7, 7, 7, 7, 7], [], 3, [7], id="what is said again and again"),
        pytest.param([1, 2, 3, 1], [], 0, [], id="none where none may be"),
        pytest.param([1, 2, 3, 1], [], -1, [], id="nor where an answer is at its end"),
        pytest.param([1, 2, 3, 4], [], 3, [], id="nothing of what never stood before"),
        pytest.param([1], [], 3, [], id="nothing of a single token"),
        pytest.param([1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3], [], 7, [4, 5, 6, 7, 8, 9, 1], id="many after three"),
        pytest.param([0, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3], [], 7, [4, 5, 6], id="and few after two"),
        pytest.param([1, 2 << 8, 2], [], 3, [], id="bytes of two tokens are no token"),
        pytest.param([2, 6, 2 << 8, 0, 2], [], 1, [6], id="nor do they hide one"),
    ],
)
def test_a_draft_is_what_followed_before(prompt: list[int], answer: list[int], most: int, expected: list[int]) -> None:
    assert drafted(prompt, answer, most) == expected


def test_a_longer_answer_is_drafted_as_if_it_were_new() -> None:
    prompt, answer = [5, 1, 2, 3, 4, 1, 2], [3, 1, 2, 3, 4, 4, 4, 5, 1]
    drafts = Drafts([array("i", prompt)])
    for end in (0, 1, 4, 5, 9):
        assert drafts.after(answer[:end], 3) == drafted(prompt, answer[:end])


def after(earlier: Sequence[tuple[list[int], list[int]]], prompt: list[int], answer: list[int], most: int) -> list[int]:
    """What is drafted after some prompts and their answers."""
    answers = Answers()
    for one, told in earlier:
        Drafts([array("i", one)], answers).ended(told)
    return Drafts([array("i", prompt)], answers).after(answer, most)


@pytest.mark.parametrize(
    ("earlier", "prompt", "answer", "expected"),
    [
        pytest.param([([5], [1, 2, 3, 4, 6, 7])], [9], [1, 2, 3, 4], [6, 7], id="where the last four stood in one"),
        pytest.param([([5], [1, 2, 3, 6, 7])], [9], [0, 1, 2, 3], [], id="and not where three did"),
        pytest.param(
            [([5], [1, 2, 3, 4, 6]), ([5], [1, 2, 3, 4, 7])], [9], [1, 2, 3, 4], [7], id="the latest that has them"
        ),
        pytest.param(
            [([5], [8, 7, 6, 5, 1, 2, 3, 4, 6]), ([5], [1, 2, 3, 4, 7])],
            [9],
            [8, 7, 6, 5, 1, 2, 3, 4],
            [6],
            id="eight before the later four",
        ),
        pytest.param([([3, 4, 5, 6], [1, 2])], [9, 3, 4, 5, 6], [], [1, 2], id="of a prompt that ends alike"),
        pytest.param([([3, 4, 5, 6], [1, 2])], [9, 3, 4, 5, 6], [1], [2], id="and an answer that begins so"),
        pytest.param([([1, 2, 3, 4, 7], [8])], [9], [1, 2, 3, 4], [], id="nothing that a prompt said"),
        pytest.param([([5], [1, 2, 3, 4])], [9], [1, 2, 3, 4], [], id="nothing after an end"),
        pytest.param([([5], [1, 2, 3, 4, 6])], [1, 2, 3, 4, 8], [1, 2, 3, 4], [6], id="before the sequence's own"),
    ],
)
def test_a_draft_is_what_an_earlier_answer_went_on_with(
    earlier: list[tuple[list[int], list[int]]], prompt: list[int], answer: list[int], expected: list[int]
) -> None:
    assert after(earlier, prompt, answer, 3) == expected


def test_of_many_answers_the_first_are_forgotten() -> None:
    answers = Answers(room=20)
    for n in range(9):
        Drafts([array("i", [n])], answers).ended([100 + n, 1, 2, 3, 4, 5])
    drafted = [Drafts([array("i", [9])], answers).after([100 + n, 1, 2, 3], 1) for n in range(9)]
    assert drafted == [[]] * 4 + [[4]] * 5


GREEDY = Sampling(max_tokens=40)


@pytest.mark.parametrize(
    "sampling",
    [GREEDY, SAMPLED, Sampling(repetition_penalty=1.05, max_tokens=20), Sampling(max_tokens=1), Sampling(max_tokens=3)],
    ids=["greedy", "sampled", "penalty", "one", "three"],
)
@pytest.mark.parametrize("alone", [False, True], ids=["in lanes", "alone"])
def test_answers_are_what_they_are_without_drafts(
    alone: bool, sampling: Sampling, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if alone:
        monkeypatch.setattr(transformers_engine, "LANE_TOKENS", 0)
    plain: Any = engine(tiny)
    plain._drafted = 0
    assert together(engine(tiny), CHATS, sampling) == [text for text, _, _ in answers(plain, CHATS, sampling)]


def answer(model: Any, prompt: TokenPrompt, options: Options = NO_OPTIONS) -> Generated:
    async def ask() -> Generated:
        request = Generate(prompt, GREEDY, 0, asyncio.get_running_loop().create_future(), options)
        model.add(request)
        return await request.future

    with lockstep(model) as loop:
        return loop.run(ask())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_no_bit_of_an_answer_tells_what_was_drafted_or_answered_before(dtype: str, tiny: Path) -> None:
    """The probabilities of its tokens, without drafts, with those of its own sequence, and once all is known that it
    says."""
    told = []
    for drafted, times in ((0, 1), (DRAFTED, 1), (DRAFTED, 2)):
        model: Any = TransformersEngine(str(tiny), spec(dtype=dtype), EngineSettings(name="transformers"))
        model._drafted = drafted
        assert model._held_in_lanes.steady
        for _ in range(times):
            prompts = [model.chat_tokens.prompt(messages) for messages in CHATS]
            found = [answer(model, prompt, Options(top_logprobs=3)) for prompt in prompts]
        told.append([(one.ids, one.tokens) for one in found])
        model.reset()
        assert not model._answers.after(bytearray(array("i", [*prompts[0].ids(), *found[0].ids[:8]]).tobytes()), 3)
    assert told[0] == told[1] == told[2]


def steps_of(prompt: TokenPrompt, ids: list[int], answers: Answers | None) -> int:
    """After the first token, which the prompt itself gives.

    Args:
        answers: earlier ones, where the sequence is in a lane.
    """
    drafts, known, steps = Drafts(prompt.segments, answers), 1, 0
    leading = sum(map(len, prompt.segments[: -transformers_engine.OWN_SEGMENTS]))
    before = prompt.length - (leading if leading >= BEGINNING_TOKENS else 0)
    while known < len(ids):
        most = min(DRAFTED, GREEDY.max_tokens - known - 1)
        if answers is not None:
            most = min(most, BLOCK - 1 - (before + known - 1) % BLOCK)
        guessed = drafts.after(ids[:known], most)
        right = itertools.takewhile(lambda both: both[0] == both[1], zip(guessed, ids[known:], strict=False))
        known, steps = known + len([*right]) + 1, steps + 1
    drafts.ended(ids)
    return steps


@pytest.mark.parametrize("alone", [False, True], ids=["in lanes", "alone"])
def test_what_is_copied_takes_fewer_steps(alone: bool, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as the drafts that are right leave; and of a prompt, in however many passes, logits are computed once."""
    if alone:
        monkeypatch.setattr(transformers_engine, "LANE_TOKENS", 0)
    model: Any = engine(tiny, prefix_cache=False)
    model.chat_tokens.stop_ids = frozenset()
    heads: list[int] = []
    plain = model._llama.words
    monkeypatch.setattr(model._llama, "words", lambda x: (heads.append(x.shape[0]), plain(x))[1])
    earlier = None if alone else Answers()
    for messages in [*CHATS[::3], *CHATS[::3]]:
        prompt = model.chat_tokens.prompt(messages)
        heads.clear()
        ids = [*answer(model, prompt).ids]
        assert len(ids) == GREEDY.max_tokens
        assert len(heads) - 1 == steps_of(prompt, ids, earlier) < GREEDY.max_tokens - 1
    if not alone:  # what was answered before takes hardly more steps than it has drafts
        assert len(heads) - 1 <= 3 + (GREEDY.max_tokens - 1) // (1 + DRAFTED)


def test_nothing_is_drafted_where_positions_depend_on_the_longest_sequence(tiny: Path, tmp_path: Path) -> None:
    """What is given up again would have moved them."""
    model: Any = engine(moving(tiny, tmp_path))
    longest: list[int] = []
    computed = model._pass
    model._pass = lambda parts, keep: (longest.append(sum(map(len, parts))), computed(parts, keep))[1]
    answers(model, CHATS[:1], GREEDY)
    assert {*longest[-GREEDY.max_tokens + 1 :]} == {1}
