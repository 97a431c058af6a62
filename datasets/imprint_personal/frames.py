"""Facts as the generators of questions take them: compact frames, made by the assistant (ImprintBench, D.3).

Every step keeps to the rules of the paper's E.3, in our own words.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from upkeep.building import leaks
from upkeep.building.assistant import Step

AFFORDANCES = ("meal", "schedule", "trip", "writing", "support")
"""Tasks that facts bear on: choosing a meal, a time, a journey, help with writing, a way to support somebody."""


class FactGiven(Struct, frozen=True):
    claim: str
    kind: str
    topic: str
    user: str


class Frame(Struct, frozen=True):
    """A fact as the generators of questions take it (D.3)."""

    normalized_claim: str
    attribute: str
    value: str
    polarity: str
    domains: list[str]
    constraint_dimension: str
    task_affordances: list[str]
    decision_levers: list[str]
    surface_forms: list[str]
    """Wording that questions must not use."""
    rejected_value: str | None = None


def _frame(given: FactGiven) -> str:
    return f"""Turn a fact about a user into a compact frame, from which questions that recall the fact and
questions that apply it can be written.

User: {given.user}
Fact: {given.claim}
Category: {given.kind}
Topic: {given.topic}

Give one JSON object with the keys
- normalized_claim: the fact as one plain sentence that names the user as above
- attribute: what is described, in two to four words ("favourite breakfast")
- value: what it is, in a few words
- rejected_value: what the user turned down, or null
- polarity: "positive" or "negative"
- domains: a list of areas of life
- constraint_dimension: the one kind of constraint that it puts on a decision ("budget", "time", "taste", ...)
- task_affordances: a list of the tasks it bears on, out of {", ".join(AFFORDANCES)}; empty where it bears on none
- decision_levers: a list of what it changes about a decision
- surface_forms: a list of words and phrases that would give the value away"""


FRAME = Step("imprint_personal.frame", Frame, _frame)


def as_json(frame: Frame) -> str:
    """A frame as prompts show it."""
    return msgspec.json.format(msgspec.json.encode(frame)).decode()


def all_as_json(frames: Sequence[Frame]) -> str:
    """Frames as prompts show them, in order."""
    return "\n".join(as_json(frame) for frame in frames)


def affordances(frame: Frame) -> set[str]:
    """The tasks that a fact bears on, whatever their case and punctuation."""
    return {leaks.key(name).replace(" ", "_") for name in frame.task_affordances}
