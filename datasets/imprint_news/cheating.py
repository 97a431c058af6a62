"""The two-pass cheatability filter (ImprintBench, D.1)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from upkeep.building import leaks
from upkeep.building.assistant import Assistant, Step

from .candidates import Candidate
from .corpus import Corpus
from .steps import AGREES, BLIND, WITH_CONTEXT, Asked, Graded

_YES_NO = re.compile(r"\b(yes|no)\b", re.IGNORECASE)


def unambiguous(candidates: Sequence[Candidate], left: Counter[str]) -> list[Candidate]:
    """Each question once, and none that holds its answer or is asked with two answers."""
    answers: dict[str, set[tuple[str, ...]]] = {}
    for one in candidates:
        answers.setdefault(leaks.key(one.question), set()).add(tuple(map(leaks.key, one.answers)))
    found: dict[str, Candidate] = {}
    for one in candidates:
        key = leaks.key(one.question)
        if not key:
            left[f"{one.family}, empty question"] += 1
        elif not one.options and leaks.tells(one.question, one.answers):
            left[f"{one.family}, answer in question"] += 1
        elif len(answers[key]) > 1:
            left[f"{one.family}, asked with two answers"] += 1
        elif key in found:
            left[f"{one.family}, asked twice"] += 1
        else:
            found[key] = one
    return list(found.values())


def fair(
    candidates: Sequence[Candidate], corpus: Corpus, helper: Assistant, blind: int, context: int, left: Counter[str]
) -> list[Candidate]:
    """Those that cannot be answered blind and can be answered from what they were made from.

    Args:
        blind: trials without the article; one right answer drops the question.
        context: trials with it; one wrong answer drops the question.
    """
    kept = list(candidates)
    for trial in range(blind):
        right = _right(BLIND, kept, [Asked(one.question, one.options) for one in kept], helper, trial)
        left.update(
            f"{one.family}, right without the article" for one, is_right in zip(kept, right, strict=True) if is_right
        )
        kept = [one for one, is_right in zip(kept, right, strict=True) if is_right is False]
    for trial in range(context):
        given = [Asked(one.question, one.options, one.passages(corpus)) for one in kept]
        right = _right(WITH_CONTEXT, kept, given, helper, trial)
        left.update(_families(kept, right, False, "wrong with the article"))
        kept = [one for one, is_right in zip(kept, right, strict=True) if is_right]
    return kept


def _families(candidates: Sequence[Candidate], right: Sequence[bool | None], dropped: bool, why: str) -> Iterator[str]:
    return (f"{one.family}, {why}" for one, found in zip(candidates, right, strict=True) if found is dropped)


def _right(
    step: Step[Asked, str], candidates: Sequence[Candidate], given: Sequence[Asked], helper: Assistant, trial: int
) -> list[bool | None]:
    """Whether each reply is right; None where there is no readable one.

    Labels are read by rule. An open reply that has the words of an accepted answer is right; else a judge decides.
    """
    replies = helper.ask(step, given, trial)
    right: list[bool | None] = []
    for one, reply in zip(candidates, replies, strict=True):
        if reply is None:
            right.append(None)
        elif one.options:
            said = _YES_NO.search(reply)
            right.append(said is not None and said[1].lower() == one.answers[0])
        else:
            right.append(leaks.tells(reply, one.answers))
    unclear = [n for n, one in enumerate(candidates) if right[n] is False and not one.options]
    graded = [Graded(candidates[n].question, candidates[n].answers[0], replies[n] or "") for n in unclear]
    verdicts = helper.ask(AGREES, graded, trial)
    for n, verdict in zip(unclear, verdicts, strict=True):
        right[n] = None if verdict is None else verdict.agrees
    return right
