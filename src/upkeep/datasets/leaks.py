"""No question may hold its own answer, and nothing that is asked may be among what a model was shown or trained on.

Builders leave such items out and count them; `store.check` refuses a dataset that has one.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

# Chinese and Japanese are written without spaces: each of their characters counts as a word.
_UNSPACED = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+")

OPEN = frozenset({"yes", "no", "true", "false", "same", "unknown"})
"""Answers that say nothing about the question, so a question may hold their words."""


def key(text: str) -> str:
    """A text's words, however they are encoded and in whatever case: questions with one key are the same question."""
    return " ".join(_WORD.findall(unicodedata.normalize("NFKC", text).casefold()))


def tells(question: str, answers: Iterable[str]) -> bool:
    """Whether an open question holds one of its accepted answers, as whole words.

    One of the alternatives that a question offers (`A or B?`) does not count: it is named beside a wrong one.
    """
    asked = f" {key(question)} "
    return any((words := key(answer)) and words not in OPEN and _holds(asked, words) for answer in answers)


def _holds(asked: str, words: str) -> bool:
    alternative = f" {words} or " in asked or f" or {words} " in asked or f" or the {words} " in asked
    return f" {words} " in asked and not alternative


def shared(asked: Iterable[str], shown: Sequence[str]) -> list[int]:
    """The places of those texts of `shown` that are among the questions `asked`, whatever their case or punctuation."""
    known = {key(question) for question in asked}
    return [place for place, text in enumerate(shown) if key(text) in known]
