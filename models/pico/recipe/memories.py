"""Lessons of memories and summaries: `memory_scaffold`, `memagent`, `chunked_summary`, `document_summary`.

What is kept is the sentences that hold in the end, as many of the newest as the budget has room for. A space comes
before the first, as where it was read, so that its first word is written with the tokens that it was read with.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from recipe.lessons import ACTIVE, Lesson, refusal_of
from recipe.playing import OPEN, Room, Said, between, play, shown
from recipe.statements import Statement, Text, latest, text
from upkeep.cell import Message, Probe
from upkeep.cell.prompts import Prompt

REWRITTEN, ASKED, SUMMED = "a memory rewritten under a budget", "a memory for one question", "a summary to a length"
FROM_MEMORY = "an answer from a memory or summary"


def kept(told: Sequence[Statement], budget: int, room: Room, head: str = "") -> list[Statement]:
    """The newest statements of which the sentences are within the budget."""
    found: list[Statement] = []
    for statement in reversed(told):
        if room.size(head + "\n".join(s.line for s in [statement, *found])) > budget:
            break
        found.insert(0, statement)
    return found


def _asked(rng: Random, told: Text, count: int) -> list[tuple[Statement, Probe]]:
    chosen = rng.sample(told.latest, min(count, len(told.latest)))
    return [(s, s.probe(rng, len(told.documents) - 1)) for s in chosen]


def answered(prompt: str, room: Room, asked: Sequence[tuple[Statement, Probe]], messages: Sequence[Message]) -> Said:
    """The answer to the question of a chat from what it shows; a refusal where it shows nothing."""
    seen = shown(messages)
    statement = next(s for s, probe in asked if probe.question in seen)
    says = statement.says(seen.replace("\n", " "))
    answer = statement.value if says else refusal_of(prompt)
    return Said(Prompt(room.prompts[prompt]).target(answer), FROM_MEMORY, "after a colon", (answer,))


def rewriting(rng: Random, room: Room) -> list[Lesson]:
    """`memory_scaffold`."""
    told, prompt = text(rng, room.pools, 3, rng.choice((3, 6, 10)), 0.3), rng.choice(OPEN)
    budget = rng.choice((64, 96, 128, 256))
    asked = _asked(rng, told, 2)

    def knows(messages: Sequence[Message], tools: bool) -> Said:
        seen = shown(messages)
        if "# Next text\n" not in seen:
            return answered(prompt, room, asked, messages)
        before, _, after = seen.partition("\n\n# Next text\n")
        lines = kept(latest([*told.said_in(before), *told.said_in(after)]), budget, room, ACTIVE)
        return _listed([s.line for s in lines], ACTIVE, REWRITTEN)

    probes = [probe for _, probe in asked]
    return play(room, "memory_scaffold", {"budget": budget}, told, probes, knows, rng, prompt=prompt)


def _listed(lines: Sequence[str], head: str, skill: str) -> Said:
    return Said(f"{head} " + "\n".join(lines), skill, "lines", tuple(lines))


def questioning(rng: Random, room: Room) -> list[Lesson]:
    """`memagent`."""
    told, prompt = text(rng, room.pools, 3, rng.choice((4, 8, 14)), 0.2), rng.choice(OPEN)
    asked = _asked(rng, told, 2)
    nothing = room.method("memagent").NOTHING

    def knows(messages: Sequence[Message], tools: bool) -> Said:
        seen = shown(messages)
        if "\n\n# Section\n" not in seen:
            return answered(prompt, room, asked, messages)
        wanted = next(s for s, probe in asked if probe.question in seen)
        said = [*told.said_in(between(seen, "\n\n# Memory\n", "\n\n# Section\n"))]
        said += told.said_in(between(seen, "\n\n# Section\n"))
        lines = [s.line for s in latest(s for s in said if s.key == wanted.key)]
        return _listed(lines or [nothing], "", ASKED)

    probes = [probe for _, probe in asked]
    return play(room, "memagent", {"budget": 256}, told, probes, knows, rng, prompt=prompt)


def summing(rng: Random, room: Room) -> list[Lesson]:
    """`chunked_summary` and `document_summary`."""
    name = rng.choice(("chunked_summary", "document_summary"))
    budget = rng.choice((48, 96, 172, 256))
    told, prompt = text(rng, room.pools, rng.choice((1, 2)), rng.choice((3, 6, 10)), 0.5), rng.choice(OPEN)
    asked = _asked(rng, told, 2)

    def knows(messages: Sequence[Message], tools: bool) -> Said:
        if len(messages) == 2 and any(probe.question in shown(messages) for _, probe in asked):
            return answered(prompt, room, asked, messages)
        lines = [s.line for s in kept(latest(told.said_in(shown(messages))), budget, room)]
        return Said(" " + " ".join(lines), SUMMED, "lines", tuple(lines))

    probes = [probe for _, probe in asked]
    return play(room, name, {"budget": budget}, told, probes, knows, rng, prompt=prompt)
