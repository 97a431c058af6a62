"""Options are dealt so that no letter is right more often than another, and nothing else of a question changes."""

from __future__ import annotations

import itertools
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from upkeep.building.assembling import LETTERS, Item
from upkeep.building.dealing import Deal, dealt

OPTIONS = ("red", "green", "blue", "grey")


def items(count: int, form: str = "choice") -> list[Item]:
    """All with the first option right and the second outdated; half of them in a slice of their own."""
    return [
        Item(
            id=f"q{n}",
            stream="s",
            text=f"Question {n}?",
            answers=["A"],
            outdated=["B", "C"],
            options=OPTIONS,
            form=form,  # type: ignore[arg-type]
            slices={"half": "one" if n % 2 else "other"},
        )
        for n in range(count)
    ]


@settings(deadline=None, max_examples=20)
@given(st.text(max_size=8))
def test_each_letter_is_right_as_often_as_any_other_in_all_and_in_each_slice(seed: str) -> None:
    found = dealt(items(64), seed)
    for some in (found, found[::2], found[1::2]):
        counts = Counter(item.answers[0] for item in some)
        assert max(counts.values()) - min(counts[letter] for letter in "ABCD") <= 2, counts


@settings(deadline=None)
@given(st.text(max_size=8), st.integers(1, 20))
def test_the_right_and_the_outdated_options_stay_what_they_are(seed: str, count: int) -> None:
    for item in dealt(items(count), seed):
        options = list(item.options or ())
        assert sorted(options) == sorted(OPTIONS)
        assert options[LETTERS.index(item.answers[0])] == "red"
        assert {options[LETTERS.index(letter)] for letter in item.outdated} == {"green", "blue"}
        assert list(item.outdated) == sorted(item.outdated)


def test_what_is_asked_again_offers_the_same_order_and_other_forms_are_left_alone() -> None:
    again = [item for item in items(9) for _ in range(3)]
    orders = {item.id: {tuple(one.options or ()) for one in dealt(again, "s") if one.id == item.id} for item in again}
    assert all(len(order) == 1 for order in orders.values()) and len({*map(str, orders.values())}) > 1
    assert dealt(items(5, "label"), "s") == items(5, "label")


def test_a_deal_is_the_same_for_the_same_seed_and_knows_no_pattern() -> None:
    assert dealt(items(40), "s") == dealt(items(40), "s") != dealt(items(40), "t")
    letters = [item.answers[0] for item in dealt(items(400), "s")]
    following = Counter(itertools.pairwise(letters))
    assert len(following) > 12, "letters do not take turns"


def test_a_question_that_is_asked_often_weighs_as_often() -> None:
    deal = Deal("s")
    first = deal.order(4, [(0, {})] * 6)
    others = [deal.order(4, [(0, {})] * 2) for _ in range(9)]
    counts = Counter({first.index(0): 6}) + Counter(order.index(0) for order in others for _ in range(2))
    assert max(counts.values()) == 6, counts
