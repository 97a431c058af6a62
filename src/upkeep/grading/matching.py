"""When an answer is right.

An equivalence maps an answer to a canonical text. A prediction is right if its canonical text is that of an accepted
gold answer or, with `within`, holds it as whole words; it has changed if its text is not that of the one before (OAKS,
B.2.1 and 6.1). An option's letter and a label are taken as they are, whatever the equivalence of the dataset.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import polars as pl

from upkeep.errors import UpkeepError

Canonical = Callable[[str], str]

_ARTICLE = re.compile(r"\b(?:a|an|the)\b")
_JOINER = re.compile(r"[\s\-\u2010-\u2015/_]+")
_POINT = re.compile(r"(?<![0-9])\.|\.(?![0-9])")
_PUNCTUATION = re.compile(r"[^\w\s.]")

# fmt: off
_UNITS = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
]
_TENS = {
    "twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90,
}
# fmt: on
_NUMBERS: dict[str, int] = (
    {word: n for n, word in enumerate(_UNITS)}
    | _TENS
    | {
        f"{tens}{gap}{_UNITS[unit]}": value + unit
        for tens, value in _TENS.items()
        for unit in range(1, 10)
        for gap in (" ", "")
    }
)
_ADVERBS = {"never": 0, "once": 1, "twice": 2, "thrice": 3}


def normalise(text: str) -> str:
    """Lower case, no punctuation, no a/an/the, single spaces.

    The paper leaves the normalisation open ("normalized text", B.2.1). Ours splits words at hyphens and slashes and
    keeps a decimal point between digits, so that `3.0` is not `30`. A text of nothing but articles or punctuation
    stays as it is, in lower case: a gold answer `A` must not become empty.
    """
    lowered = text.lower()
    bare = _PUNCTUATION.sub("", _POINT.sub("", _JOINER.sub(" ", lowered)))
    return " ".join(_ARTICLE.sub(" ", bare).split()) or " ".join(bare.split()) or lowered.strip()


def short_answer(text: str) -> str:
    """Canonical form of an open answer: normalised, and a number as digits whichever way it is written.

    `3`, `three`, `3 times`, `three times` and `thrice` are one answer; so are `0`, `zero` and `never` (B.2.1, case i).
    """
    words = normalise(text)
    if words in _ADVERBS:
        return str(_ADVERBS[words])
    number = words.removesuffix(" times").removesuffix(" time")
    if number in _NUMBERS:
        return str(_NUMBERS[number])
    if number.isascii() and number.isdigit():
        return number.lstrip("0") or "0"
    return words


def letter(text: str) -> str:
    """Canonical form of a choice: the letter as it is, not normalised (B.2.1)."""
    return text


def words(text: str) -> str:
    """Canonical form for finding one answer in another: normalised, and a dotted name as its parts.

    EvoWiki, 4.1 leaves its normalisation open; lower case, without punctuation and articles, is the usual one.
    """
    return normalise(_POINT.sub(" ", text))


@dataclass(frozen=True, slots=True)
class Equivalence:
    """How a dataset's open answers are compared."""

    canonical: Canonical
    within: bool = False
    """Whether a response is right that names an accepted answer among other words (EvoWiki, 4.1)."""
    overlap: bool = False
    """Whether it is said as well how many words a response shares with an accepted answer (`token_f1`)."""


EQUIVALENCES: Mapping[str, Equivalence] = {
    "short_answer": Equivalence(short_answer),
    "letter": Equivalence(letter),
    "label": Equivalence(letter),
    "contains": Equivalence(words, within=True),
    "token_f1": Equivalence(normalise, overlap=True),
}
"""By the name that `dataset.yaml` gives in `equivalence`."""


def token_f1(answer: str, accepted: str) -> float:
    """How many words two canonical answers share, from 0 to 1: the harmonic mean of precision and recall, where a word
    counts as often as both have it (P. Rajpurkar et al., SQuAD, EMNLP 2016; InfiniteBench's `qa_f1_score`)."""
    own, wanted = answer.split(), accepted.split()
    shared = (Counter(own) & Counter(wanted)).total()
    return 2 * shared / (len(own) + len(wanted)) if shared else 0.0


def equivalence(name: str) -> Equivalence:
    """The equivalence of a dataset.

    Raises:
        UpkeepError: there is none of this name.
    """
    if name not in EQUIVALENCES:
        raise UpkeepError(f"unknown answer equivalence {name!r}", expected=f"one of {', '.join(EQUIVALENCES)}")
    return EQUIVALENCES[name]


def canonical(answers: pl.Series, form: Canonical) -> pl.Series:
    """Canonical text of each answer; null stays null. Each distinct answer is worked on once."""
    distinct = answers.drop_nulls().unique()
    if distinct.is_empty():
        return answers
    return answers.replace_strict(distinct, [form(answer) for answer in distinct], return_dtype=pl.String)
