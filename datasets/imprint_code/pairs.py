"""Training pairs: by rule from the notes, and as the assistant writes them (ImprintBench, D.2)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from upkeep.building import leaks
from upkeep.building.assembling import Item
from upkeep.building.assistant import Assistant
from upkeep.contract import Pair

from . import steps
from .features import PARAMETER
from .patterns import NOUN
from .questions import Entry


def by_rule(entries: Sequence[Entry]) -> list[Pair]:
    """Direct recall of each feature, and what the notes say of it without its name."""
    found: list[Pair] = []
    for entry in entries:
        found += [msgspec.structs.replace(pair, document=entry.documents[-1]) for pair in _of(entry)]
    return found


def without_name(told: str, leaf: str) -> str:
    """A text without a name: beside its noun it is left out (`the new function computes`), elsewhere it is `it`."""
    name = rf"[\w.]*\b{re.escape(leaf)}\b(?:\(\))?"
    told = re.sub(rf"(?i)\b({NOUN}) (?:called |named )?(?-i:{name})", r"\1", told)
    told = re.sub(rf"(?i)\b((?:the|an?|new) )(?-i:{name}) (?={NOUN}\b)", r"\1", told)
    return re.sub(name, "it", told)


def _of(entry: Entry) -> list[Pair]:
    found: list[Pair] = []
    feature, library = entry.feature, entry.feature.library
    name = feature.canonical
    if feature.kind == PARAMETER:
        owners = ", ".join(feature.parents)
        name = f"parameter {feature.leaf} of {feature.parents[0]}"
        found.append(
            Pair(question=f"To what did {library} {feature.version} add the parameter {feature.leaf}?", answer=owners)
        )
    else:
        found += [
            Pair(question=f"Is there a {feature.kind} {name} in {library}?", answer="Yes"),
            Pair(question=f"What is the import path of {feature.leaf} in {library}?", answer=name),
            Pair(question=f"Which new {feature.kind} is at {name} in {library}?", answer=feature.leaf),
        ]
    found.append(Pair(question=f"Which version of {library} added the {name}?", answer=feature.version))
    told = " ".join(feature.block.phrase.plain.replace("`", "").split())
    hidden = without_name(told, feature.leaf)
    if hidden != told and not leaks.tells(hidden, [feature.leaf]) and feature.kind != PARAMETER:
        found.append(
            Pair(
                question=f"What {feature.kind} do the notes of {library} {feature.version} announce so: {hidden}",
                answer=name,
            )
        )
    return found


def asked(entries: Sequence[Entry], helper: Assistant, count: int) -> list[Pair]:
    """Recall, reference resolution and usage, as the assistant writes them from a feature's document."""
    given = [
        steps.PairsOf(
            library=entry.feature.library,
            path=entry.feature.canonical,
            kind=entry.feature.kind,
            document=entry.body,
            count=count,
        )
        for entry in entries
    ]
    replies = helper.ask(steps.PAIRS, given)
    return [
        Pair(question=pair.question.strip(), answer=pair.answer.strip(), document=entry.documents[-1])
        for entry, reply in zip(entries, replies, strict=True)
        for pair in reply or ()
        if pair.question.strip() and pair.answer.strip()
    ]


def distinct(pairs: Sequence[Pair], items: Sequence[Item]) -> tuple[list[Pair], Mapping[str, int]]:
    """Pairs that are not asked in the evaluation, each question once.

    A question with several answers would teach none, so all of it goes.
    """
    answers: dict[str, set[str]] = {}
    for pair in pairs:
        answers.setdefault(leaks.key(pair.question), set()).add(pair.answer)
    asked = {leaks.key(item.text) for item in items}
    kept: dict[str, Pair] = {}
    left_out: Counter[str] = Counter()
    for pair in pairs:
        key = leaks.key(pair.question)
        if key in asked:
            left_out["pairs that are evaluation questions"] += 1
        elif len(answers[key]) > 1:
            left_out["pairs with several answers"] += 1
        elif key in kept:
            left_out["pairs given twice"] += 1
        else:
            kept[key] = pair
    return list(kept.values()), left_out
