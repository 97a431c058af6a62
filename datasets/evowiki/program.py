"""The program that replies in the assistant's place: it writes questions and training pairs about a synthetic world."""

from __future__ import annotations

import re

from upkeep.building.assistant import Script

from . import questions
from .synthetic import ALL

_TOLD = {
    re.compile(re.escape(relation.told).replace(r"\{0\}", "(.+?)").replace(r"\{1\}", "([^.]+)")): relation.asked
    for relation in ALL.values()
}


def script() -> Script:
    """For each step what it replies, from what it is given alone."""
    return {questions.REWRITE.name: _rewrite, questions.PAIRS.name: _pairs}


def _rewrite(chain: questions.Chain) -> questions.Rewritten:
    _, _, asked = chain.template.removesuffix("?").partition(" is ")
    return questions.Rewritten(f"Please name {asked}.", chain.answers[0])


def _pairs(passage: questions.Passage) -> list[questions.Written]:
    found = []
    for sentence in re.findall(r"[^.\n]+\.", passage.context):
        for form, asked in _TOLD.items():
            if match := form.fullmatch(sentence.strip()):
                found.append(questions.Written(asked.format(*match.groups()), match[2]))
    return found[: passage.count]
