"""What counts as the answer in a model's raw text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from upkeep.contract import Form
from upkeep.grading.reading import read_answer

FORMS: tuple[Form, ...] = ("short", "choice", "label")


@pytest.mark.parametrize(
    ("response", "answer", "parse"),
    [
        ("## Answer: kitchen", "kitchen", "marker"),
        ("He left.\n## Answer: kitchen\n", "kitchen", "marker"),
        ("## Answer: hall\nWait.\n## Answer: kitchen", "kitchen", "marker"),
        ("## Answer: **kitchen**", "kitchen", "marker"),
        ("# answer: kitchen", "kitchen", "lenient"),
        ("## ANSWER: kitchen", "kitchen", "lenient"),
        ("**Final Answer**: kitchen", "kitchen", "lenient"),
        ("**Final Answer:** kitchen", "kitchen", "lenient"),
        ('{"answer": "kitchen"}', "kitchen", "lenient"),
        ("The answer is kitchen", "The answer is kitchen", "whole"),
        ("  kitchen \n", "kitchen", "whole"),
        ("kitchen\n## Answer:", None, "none"),
        ("## Answer: ** **", None, "none"),
        ("", None, "none"),
        (" \n\t", None, "none"),
        ("## Answer: two\nlines", "two\nlines", "marker"),
        ("## Answer: Ölkrug €5", "Ölkrug €5", "marker"),
        ("unanswer: no marker", "unanswer: no marker", "whole"),
        ("## Answer： kitchen", "kitchen", "lenient"),
    ],
)
def test_short_answer_is_the_text_after_the_last_marker(response: str, answer: str | None, parse: str) -> None:
    assert read_answer(response, "short") == (answer, parse)


@pytest.mark.parametrize(
    ("response", "letter", "parse"),
    [
        ("## Answer: C", "C", "marker"),
        ('"answer": "C"', "C", "lenient"),
        ("**Final Answer**: C", "C", "lenient"),
        ("**Final Answer:** **C**", "C", "lenient"),
        ("## Answer: [C]", "C", "marker"),
        ("## Answer: (C) the attic", "C", "marker"),
        ("## Answer: _C_", "C", "marker"),
        ("## Answer: C. The Attic", "C", "marker"),
        ("## Answer: Option C", "C", "marker"),
        ("## Answer: I choose C", "C", "marker"),
        ("## Answer: I'm sure it is C.", "C", "marker"),
        ("## Answer: I", "I", "marker"),
        ("## Answer: I.", "I", "marker"),
        ("## Answer: I is right", "I", "marker"),
        ("## Answer: A is right, not B", "A", "marker"),
        ("## Answer: I don't know", None, "none"),
        ("## Answer: the attic", None, "none"),
        ("## Answer: ATTIC", None, "none"),
        ("## Answer: c", None, "none"),
        ("## Answer: A\nNo, wait.\n## Answer: B", "B", "marker"),
        ("It must be C", None, "none"),
        ("C", None, "none"),
        ("", None, "none"),
        ("## Answer: É", None, "none"),
    ],
)
def test_choice_is_the_first_lone_capital_after_the_last_marker(response: str, letter: str | None, parse: str) -> None:
    assert read_answer(response, "choice") == (letter, parse)


@pytest.mark.parametrize(
    "hostile",
    [
        "answer" * 170_000,
        "answer:" * 140_000,
        "answer" + "*" * 1_000_000,
        "answer " * 150_000 + ":",
        "I I " * 250_000,
        "## Answer: " + "I think " * 120_000,
        "## Answer: I" + " " * 1_000_000,
        "#" * 1_000_000,
        "a" * 1_000_000,
        '"' * 500_000 + "answer" + '"' * 500_000,
    ],
    ids=range(10),
)
@pytest.mark.parametrize("form", ["short", "choice", "label"])
def test_a_megabyte_of_anything_is_read_and_fits_the_schema(form: Form, hostile: str) -> None:
    answer, _ = read_answer(hostile, form, ["yes", "no"])
    assert answer is None or len(answer) <= 100_000


@given(st.text())
def test_any_text_is_read_without_an_error_and_null_means_unread(text: str) -> None:
    for form in FORMS:
        answer, parse = read_answer(text, form, ["yes", "no"])
        assert (answer is None) == (parse == "none")
        assert answer != ""


@given(st.text(alphabet=st.characters(whitelist_categories=("L", "N")), min_size=1), st.text())
def test_what_stands_before_the_demanded_line_does_not_matter(answer: str, before: str) -> None:
    assert read_answer(f"{before}\n## Answer: {answer}", "short") == (answer, "marker")


@pytest.mark.parametrize(
    ("response", "label", "parse"),
    [
        ("Think: the harbour did not exist.\nAnswer: Contradict", "Contradict", "marker"),
        ("answer - none. Consistent, I think, not Contradict", "Consistent", "whole"),
        ("**ANSWER**: consistent.", "Consistent", "lenient"),
        ("Answer: Inconsistent", None, "none"),
        ("Answer: it is neither", None, "none"),
        ("", None, "none"),
    ],
)
def test_a_label_is_the_first_one_after_the_marker_or_in_the_whole(
    response: str, label: str | None, parse: str
) -> None:
    assert read_answer(response, "label", ["Consistent", "Contradict"], "Answer:") == (label, parse)


@pytest.mark.parametrize(
    ("response", "label"), [("Answer: 矛盾", "矛盾"), ("Answer: 两者一致。", "一致"), ("Answer: 不一致", None)]
)
def test_a_chinese_label_needs_no_word_breaks_and_is_not_read_out_of_its_negation(
    response: str, label: str | None
) -> None:
    assert read_answer(response, "label", ["一致", "矛盾"], "Answer:")[0] == label
