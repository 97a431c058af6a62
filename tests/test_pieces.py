"""Texts are split into pieces that keep their limit and lose nothing."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reading_texts import MEASURE
from upkeep.building import (
    names,
    tokens,
)

PIECES = st.one_of(
    st.characters(exclude_categories=["Cs"]),
    st.sampled_from(
        ["the ", "Tricis ", "house", "\n\n", "\u3000", "中文字", "。", "👩‍👩‍👧", "é", "e\u0301", "\0", "\u200b"]
    ),
)


def bare(text: str) -> str:
    return "".join(text.split())


# ---------------------------------------------------------------- splitting


@settings(max_examples=400, deadline=None)
@given(st.lists(st.lists(PIECES, max_size=70).map("".join), max_size=3), st.integers(1, 24))
def test_pieces_keep_the_limit_and_lose_nothing_but_white_space(texts: list[str], limit: int) -> None:
    split = list(tokens.split(texts, limit, MEASURE))
    assert len(split) == len(texts)
    for text, pieces in zip(texts, split, strict=True):
        assert bare("".join(pieces)) == bare(text)
        place = 0
        for piece, count in zip(pieces, MEASURE.count(pieces), strict=True):
            assert piece and piece == piece.strip()
            assert count <= limit or len(piece) == 1
            place = text.index(piece, place) + len(piece)


def test_it_is_known_where_pieces_lie_and_which_of_them_hold_a_passage() -> None:
    text = "  " + "  ".join(f"The {n}th ship came in." for n in range(40)) + "\n"
    (pieces,) = tokens.split([text], 24, MEASURE)
    places = tokens.spans(text, pieces)
    assert len(pieces) > 10 and [text[start:end] for start, end in places] == pieces
    for at, character in enumerate(text):
        found = tokens.holding(places, at, at + 1)
        assert len(found) == 1 or (not found and character.isspace())
    last = len(places) - 1
    assert tokens.holding(places, 0, len(text)) == [*range(last + 1)]
    assert tokens.holding(places, places[3][1] - 1, places[5][0] + 1) == [3, 4, 5]
    assert tokens.holding(places, places[last][1], len(text)) == tokens.holding(places, 5, 5) == []


def test_words_stay_whole_and_pieces_are_nearly_full() -> None:
    words = [names.Names(Random(n)).person() + " walked home." for n in range(900)]
    text = " ".join(words)
    (pieces,) = tokens.split([text], 50, MEASURE)
    assert " ".join(pieces) == text
    counts = MEASURE.count(pieces)
    assert max(counts) <= 50
    assert min(counts[:-1]) > 35  # a name is of some ten tokens


@pytest.mark.parametrize("unit", ["word ", "x", "中", "中文。", "👩‍👩‍👧", "Tricis ", "a\n"])
def test_every_script_is_split_at_characters_and_filled(unit: str) -> None:
    (pieces,) = tokens.split([unit * 3000], 64, MEASURE)
    assert bare("".join(pieces)) == bare(unit * 3000)
    counts = MEASURE.count(pieces)
    assert max(counts) <= 64
    assert min(counts[:-1]) >= 32 - max(MEASURE.count([unit]))


def test_a_text_of_white_space_has_no_piece_and_a_short_one_is_one() -> None:
    assert list(tokens.split(["", " \n\t", "  one two  ", "x"], 8, MEASURE)) == [[], [], ["one two"], ["x"]]


def test_splitting_takes_linear_work(monkeypatch: pytest.MonkeyPatch) -> None:
    worked = 0

    def count(self: tokens.Tokens, texts: Sequence[str]) -> list[int]:
        nonlocal worked
        worked += sum(map(len, texts))
        return [len(e) for e in self.tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]

    monkeypatch.setattr(tokens.Tokens, "count", count)
    work = []
    for size in (10_000, 40_000):
        for unit in ("Tricis ", "中", "x "):
            worked = 0
            list(tokens.split([unit * (size // len(unit))], 50, MEASURE))
            work.append(worked)
    assert all(large <= 4.2 * small for small, large in zip(work[:3], work[3:], strict=True))


def test_counting_many_texts_holds_few_of_them_at_once() -> None:
    batches = list(tokens._batches("x" * 50_000 for _ in range(500)))
    assert sum(map(len, batches)) == 500 and max(map(len, batches)) < 50
    assert MEASURE.count(["one two", "", "three"] * 3000) == MEASURE.count(["one two", "", "three"]) * 3000
    assert list(MEASURE.stream(iter(["one two", ""]))) == [("one two", 2), ("", 0)]
