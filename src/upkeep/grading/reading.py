"""Reading the final answer out of a model's raw text (OAKS, B.2.1 and C.1.5).

Pure functions, linear in the length of the text: what they read comes from a model and may be anything.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from upkeep.contract import Form
from upkeep.grading.markers import MARKER

Parse = Literal["marker", "lenient", "whole", "none"]
"""How an answer was read: after the marker that the prompt demands, after another spelling of it, from the whole text
where there is none; or there is no answer."""

_DRESS = " \t\r\n*_\"'`#“”{}"
# A capital letter that stands alone, markup and punctuation aside.
_LETTER = re.compile(r"(?<![^\W_])[A-Z](?![^\W_])")
# `I` as a word ("I choose C", "I'm sure"), not as the ninth option ("I", "I.", "I is right").
_PRONOUN = re.compile(r"I(?:['’]|\s+(?!is\b)[a-z])")
_LONGEST = 100_000
"""Characters of an answer that are kept; no gold answer comes near it."""


def read_answer(
    response: str, form: Form, options: Sequence[str] | None = None, marker: str = "## Answer:"
) -> tuple[str | None, Parse]:
    """The answer that a response gives, and how it was read.

    All forms look after the last answer marker, in any spelling; `marker` says that it was exactly the one demanded,
    `lenient` that it was another.

    - `short` (OAKS-B): everything after the marker, or the `whole` output where there is none.
    - `choice` (OAKS-N): the first capital letter that stands alone after the marker; the pronoun `I` is not taken for
      one, as the official release does. No marker or no letter: no answer.
    - `label` (PRELUDE, C.2; ImprintBench, E.1): the first of the labels, whatever its case, after the marker, or in the
      `whole` output where there is none.

    Args:
        response: the model's text, reasoning removed.
        options: the labels.
        marker: what the prompt demands before the answer.

    Returns:
        The answer, or None where none can be read (it counts as wrong), and the kind of reading.
    """
    found, tail = _after_marker(response, marker)
    if form == "choice":
        letter = _letter(tail) if found != "whole" else None
        return (letter, found) if letter else (None, "none")
    if form == "label":
        label = _label(tail, options or ())
        return (label, found) if label is not None else (None, "none")
    answer = tail.strip(_DRESS)[:_LONGEST] if found != "whole" else tail.strip()[:_LONGEST]
    return (answer, found) if answer else (None, "none")


def _after_marker(text: str, marker: str) -> tuple[Parse, str]:
    last = None
    for last in MARKER.finditer(text):  # noqa: B007 (the last one is wanted)
        pass
    if last is None:
        return "whole", text
    return "marker" if text.endswith(marker, 0, last.end()) else "lenient", text[last.end() :]


def _label(text: str, labels: Sequence[str]) -> str | None:
    """The first label in a text, as a whole word where it is written in letters with word breaks."""
    # A label without word breaks around it may still be the end of its own negation.
    words = [rf"(?<![^\W_]){re.escape(w)}(?![^\W_])" if w.isascii() else rf"(?<!不){re.escape(w)}" for w in labels]
    if not words or (found := re.search("|".join(f"({word})" for word in words), text, re.IGNORECASE)) is None:
        return None
    return labels[(found.lastindex or 1) - 1]


def _letter(text: str) -> str | None:
    return next((m.group() for m in _LETTER.finditer(text) if not _PRONOUN.match(text, m.start())), None)
