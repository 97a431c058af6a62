"""Lessons of searches (`rag_agentic`), as tool calls and in text, and of answers that are checked (`self_critique`)."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from recipe.lessons import Lesson, refusal_of
from recipe.memories import FROM_MEMORY
from recipe.playing import OPEN, Room, Said, play, shown
from recipe.statements import Statement, text
from upkeep.cell import Message
from upkeep.cell.prompts import Prompt
from upkeep.cell.searching import MARK

CALL, LINE = "a search as the method's tool call", "a search in text"
FOUND = "an answer after searches"
CRITIQUE = "whether an answer is right, and what is"


def searching(rng: Random, room: Room) -> list[Lesson]:
    """`rag_agentic`: search until what was found tells the answer or no search is left."""
    told, prompt, native = text(rng, room.pools, 4, 3, 0.2, changes=False), rng.choice(OPEN), rng.random() < 0.5
    wanted, limit = rng.choice(told.latest), rng.choice((3, 5))
    probe = wanted.probe(rng, 3)

    def knows(messages: Sequence[Message], tools: bool) -> Said:
        found = [message for message in messages[2:] if message["role"] in ("user", "tool")]
        seen = " ".join("".join(message["parts"]) for message in found)
        if wanted.says(seen) or len(found) >= limit:
            answer = wanted.value if wanted.says(seen) else refusal_of(prompt)
            target = Prompt(room.prompts[prompt]).target(answer)
            return Said(target, FOUND, "after a colon", (answer,))
        if native:
            return Said("", CALL, "query", (wanted.query,), query=wanted.query)
        return Said(f"{MARK.capitalize()} {wanted.query}", LINE, "query", (wanted.query,))

    return play(room, "rag_agentic", {"k": limit}, told, [probe], knows, rng, prompt=prompt, native=native)


def critique(rng: Random, room: Room) -> list[Lesson]:
    """`self_critique`: an answer that is right, or the value of something else, or a refusal."""
    told, prompt = text(rng, room.pools, 2, rng.choice((3, 5, 8)), 0.1, changes=False), rng.choice(OPEN)
    wanted = rng.choice(told.latest)
    probe = wanted.probe(rng, 1)
    code = room.method("self_critique")
    right = rng.random() < 0.5
    others = [s.value for s in told.every if s.value != wanted.value] or [refusal_of(prompt)]
    student = wanted.value if right else rng.choice([rng.choice(others), refusal_of(prompt)])

    def knows(messages: Sequence[Message], tools: bool) -> Said:
        told_here = _tells(wanted, messages)  # what is not shown cannot be known, nor checked
        if "".join(messages[0]["parts"]) != code.CHECK:
            learned = FROM_MEMORY if right and told_here else ""
            return Said(Prompt(room.prompts[prompt]).target(student), learned, "after a colon", (student,))
        verdict = "Yes" if right else "No"
        reply = f"{verdict}: {wanted.line}\nThe correct answer: {wanted.value}"
        return Said(reply, CRITIQUE if told_here else "", "critique", (f"{verdict} {wanted.value}",))

    parameters = {"answer": rng.choice(("memory", "rag_bm25")), "check": "rag_bm25", "k": rng.choice((2, 3))}
    return play(room, "self_critique", parameters, told, [probe], knows, rng, prompt=prompt)


def _tells(statement: Statement, messages: Sequence[Message]) -> bool:
    return statement.says(shown(messages))
