"""No question and no id may hold its answer, and nothing that is asked may be among what a model was shown or taught.

Builders leave such items out and count them; `checking.check` refuses a dataset that has one.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from upkeep.questions import key as key  # what families compare questions by, too
from upkeep.questions import shared as shared

OPEN = frozenset({"yes", "no", "true", "false", "same", "unknown"})
"""Answers that say nothing about the question, so a question may hold their words."""


def tells(question: str, answers: Iterable[str]) -> bool:
    """Whether an open question holds one of its accepted answers, as whole words.

    One of the alternatives that a question offers (`A or B?`) does not count: it is named beside a wrong one.
    """
    asked = f" {key(question)} "
    return any((words := key(answer)) and words not in OPEN and _holds(asked, words) for answer in answers)


def _holds(asked: str, words: str) -> bool:
    alternative = f" {words} or " in asked or f" or {words} " in asked or f" or the {words} " in asked
    return f" {words} " in asked and not alternative


def named(id: str, stream: str, answers: Iterable[str]) -> bool:
    """Whether the id of a question holds one of its accepted answers, as whole words. Methods see ids.

    Digits count for nothing (`yes1`, `q3`), and neither do the words of the stream's id, which is no secret.
    """
    known = _letters(stream).split()
    words = f" {' '.join(word for word in _letters(id).split() if word not in known)} "
    return any(len(answer) > 1 and f" {answer} " in words for answer in map(_letters, answers))


def _letters(text: str) -> str:
    return " ".join(re.findall(r"[^\W\d_]+", unicodedata.normalize("NFKC", text).casefold()))
