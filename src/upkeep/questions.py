"""When two questions are the same one."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

# Chinese and Japanese are written without spaces: each of their characters counts as a word.
_UNSPACED = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+")


def key(text: str) -> str:
    """A text's words, however they are encoded and in whatever case: questions with one key are the same question."""
    return " ".join(_WORD.findall(unicodedata.normalize("NFKC", text).casefold()))


def shared(asked: Iterable[str], shown: Sequence[str]) -> list[int]:
    """The places of those texts of `shown` that are among the questions `asked`, whatever their case or punctuation."""
    known = {key(question) for question in asked}
    return [place for place, text in enumerate(shown) if key(text) in known]
