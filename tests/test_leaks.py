"""Leak checks and drawn names: no question holds its answer, no name comes twice."""

from __future__ import annotations

import re
import unicodedata
from random import Random

import pytest
from hypothesis import given

from reading_texts import EVERY
from upkeep.building import (
    leaks,
    names,
)
from upkeep.errors import UpkeepError

# ---------------------------------------------------------------- leaks


@pytest.mark.parametrize(
    ("question", "answer", "held"),
    [
        ("Who leads Acme?", "Acme", True),
        ("Who leads ACME Corp.?", "acme corp", True),
        ("Who leads Acmes?", "Acme", False),
        ("Is it the café?", "cafe\u0301", True),
        ("Which release had ｎｕｍｐｙ．ｐａｄ in it?", "numpy.pad", True),
        ("Did it end?", "Yes", False),
        ("Was it yes or no?", "yes", False),
        ("Is Ann or Bob here?", "Bob", False),
        ("What is it?", "!!!", False),
        ("What is it?", "", False),
        ("他住在青石镇吗？", "青石镇", True),
        ("他住在青石镇吗？", "青石村", False),
    ],
)
def test_a_question_that_holds_its_answer_is_told_apart(question: str, answer: str, held: bool) -> None:
    assert leaks.tells(question, ["something else", answer]) is held
    assert leaks.tells(unicodedata.normalize("NFD", question), [answer]) is held


@given(EVERY, EVERY, EVERY)
def test_an_answer_between_any_two_texts_is_found(before: str, after: str, answer: str) -> None:
    words = leaks.key(answer)
    around = f" {leaks.key(before)} ", f" {leaks.key(after)} "
    if words and words not in leaks.OPEN and not any(" or " in f"{text}" for text in (*around, f" {words} ")):
        assert leaks.tells(f"{before} {answer.upper()} {after}", [answer]) or leaks.key(answer.upper()) != words


@given(EVERY)
def test_a_key_is_its_own_key_and_knows_no_case_or_punctuation(text: str) -> None:
    key = leaks.key(text)
    assert leaks.key(key) == key
    assert leaks.key(f"«{text}» ...") == key


def test_shared_questions_are_found_by_place() -> None:
    shown = ["What is A?", "what  is -- a", "What is B?", "", "What is A"]
    assert leaks.shared(["WHAT IS A?!", "What is C?"], shown) == [0, 1, 4]
    many = [f"Question number {n}?" for n in range(50_000)]
    assert leaks.shared(many[:49_999], many[1:]) == list(range(49_998))


DRAWN = ("person", "first", "family", "place", "thing", "word")


def drawn(seed: object, held_out: bool | None, count: int = 300) -> list[str]:
    source = names.Names(Random(f"{seed}"), held_out, taken=["Stone"])
    return [getattr(source, kind)() for _ in range(count) for kind in DRAWN]


# ---------------------------------------------------------------- names


def test_the_two_halves_of_the_names_share_no_word_and_each_comes_once() -> None:
    halves = [drawn(1, held_out) for held_out in (True, False)]
    words = [[word.lower() for name in half for word in name.split()] for half in halves]
    assert not set(words[0]) & set(words[1])
    for half, held_out in zip(words, (True, False), strict=True):
        assert len(half) == len(set(half)) == 300 * 7
        assert all(names.is_held_out(word) is held_out for word in half)
        assert "stone" not in half and all(re.fullmatch("[a-z]{4,}", word) for word in half)


def test_names_are_the_same_for_the_same_seed_alone() -> None:
    assert drawn(1, True) == drawn(1, True) != drawn(2, True)
    assert names.Names(Random("upkeep")).person() == names.Names(Random("upkeep")).person()


def test_a_kind_without_new_names_stops_instead_of_searching_for_ever() -> None:
    source = names.Names(Random(1), True)
    with pytest.raises(UpkeepError, match="no new name is left"):
        for _ in range(40_000):
            source.place()
