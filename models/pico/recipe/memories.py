"""Lessons of memories and summaries: `memory_scaffold`, `memagent`, `chunked_summary`, `document_summary`.

What is kept is the sentences that hold in the end, as many of the newest as the budget has room for. A space comes
before the first, as where it was read, so that its first word is written with the tokens that it was read with.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from recipe.lessons import ACTIVE, Lesson
from recipe.playing import Room, Said, between, play, shown
from recipe.statements import Question, Sentence, Text, latest
from upkeep.cell import Message

REWRITTEN, ASKED, SUMMED = "a memory rewritten under a budget", "a memory for one question", "a summary to a length"
NOTHING = "Nothing."
"""The summary of what says nothing, and of what is longer than the summary may be."""
FROM_MEMORY = "an answer from a memory or summary"


def kept(told: Sequence[Sentence], budget: int, room: Room, head: str = "") -> list[Sentence]:
    """The newest sentences within the budget: none, and so nothing to learn, where the newest alone is longer."""
    found: list[Sentence] = []
    for sentence in reversed(told):
        if room.size(head + "\n".join(s.line for s in [sentence, *found])) > budget:
            break
        found.insert(0, sentence)
    return found


def answered(text: Text, messages: Sequence[Message]) -> Said:
    """The answer to the question of a chat from what it shows; a refusal where it shows nothing."""
    seen = shown(messages)
    question = next(q for q in text.questions if q.probe.question in seen)
    if question.told_in(seen.replace("\n", " ")):
        return Said(question.reply, FROM_MEMORY, "after a colon", (question.answer,))
    return refused(question, FROM_MEMORY)


def refused(question: Question, skill: str) -> Said:
    """What is said where nothing tells; nothing to learn, where a question cannot be left open."""
    if not question.refusal:
        return Said(question.reply)
    return Said(question.refusal, skill, "after a colon", (question.refusal.rpartition(":")[2].strip(),))


def rewriting(rng: Random, room: Room) -> list[Lesson]:
    """`memory_scaffold`."""
    told = room.text(rng, 3, rng.choice((3, 6, 10)), 0.3, questions=2)
    budget = rng.choice((64, 96, 128, 256))

    def knows(messages: Sequence[Message], tools: bool) -> Said:
        seen = shown(messages)
        if "# Next text\n" not in seen:
            return answered(told, messages)
        before, _, after = seen.partition("\n\n# Next text\n")
        said = latest([*told.said_in(before), *told.said_in(after)])
        lines = [s.line for s in kept(said, budget, room, ACTIVE)]
        return _listed(lines, ACTIVE, "" if said and not lines else REWRITTEN)

    return play(room, "memory_scaffold", {"budget": budget}, told, knows)


def _listed(lines: Sequence[str], head: str, skill: str) -> Said:
    return Said(f"{head} " + "\n".join(lines), skill, "lines", tuple(lines))


def questioning(rng: Random, room: Room) -> list[Lesson]:
    """`memagent`."""
    told = room.text(rng, 3, rng.choice((4, 8, 14)), 0.2, questions=2)
    nothing = room.method("memagent").NOTHING

    def knows(messages: Sequence[Message], tools: bool) -> Said:
        seen = shown(messages)
        if "\n\n# Section\n" not in seen:
            return answered(told, messages)
        wanted = next(q for q in told.questions if q.probe.question in seen)
        said = [*told.said_in(between(seen, "\n\n# Memory\n", "\n\n# Section\n"))]
        said += told.said_in(between(seen, "\n\n# Section\n"))
        lines = [s.line for s in latest(s for s in said if s.key in wanted.keys)]
        return _listed(lines or [nothing], "", ASKED)

    return play(room, "memagent", {"budget": 256}, told, knows)


def summing(rng: Random, room: Room) -> list[Lesson]:
    """`chunked_summary` and `document_summary`."""
    name = rng.choice(("chunked_summary", "document_summary"))
    budget = rng.choice((32, 48, 64, 96, 128, 172, 256))
    count = rng.choice((1, 2, 4, 8) if name == "chunked_summary" else (1, 2))
    told = room.text(rng, count, rng.choice((3, 6, 10) if count <= 2 else (2, 3)), 0.5, questions=2)

    def knows(messages: Sequence[Message], tools: bool) -> Said:
        if len(messages) == 2 and any(q.probe.question in shown(messages) for q in told.questions):
            return answered(told, messages)
        said = latest(told.said_in(shown(messages)))
        lines = [s.line for s in kept(said, budget, room)]
        skill = "" if said and not lines else SUMMED
        lines = lines or [NOTHING]
        return Said(" " + " ".join(lines), skill, "lines", tuple(lines))

    return play(room, name, {"budget": budget}, told, knows)
