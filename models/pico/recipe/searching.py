"""Lessons of searches (`rag_agentic`), as tool calls and in text, and of answers that are checked (`self_critique`)."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from recipe.lessons import Lesson, refusal_of
from recipe.memories import FROM_MEMORY, refused
from recipe.playing import Room, Said, play, shown
from upkeep.cell import Message
from upkeep.cell.prompts import Prompt
from upkeep.cell.searching import MARK

CALL, LINE = "a search as the method's tool call", "a search in text"
FOUND = "an answer after searches"
CRITIQUE = "whether an answer is right, and what is"


def searching(rng: Random, room: Room) -> list[Lesson]:
    """`rag_agentic`, and for PRELUDE `deep_research`: search until what was found tells the answer or no search is
    left."""
    told, native, limit = room.text(rng, 4, 3, 0.2, changes=False), rng.random() < 0.5, rng.choice((3, 5))
    (question,) = told.questions
    words = " ".join(question.words)

    def knows(messages: Sequence[Message], tools: bool) -> Said:
        found = [message for message in messages[2:] if message["role"] in ("user", "tool")]
        seen = " ".join("".join(message["parts"]) for message in found)
        if question.told_in(seen):
            return Said(question.reply, FOUND, "after a colon", (question.answer,))
        if len(found) >= limit:
            return refused(question, FOUND)
        if native:
            return Said("", CALL, "query", (words,), query=words)
        return Said(f"{MARK.capitalize()} {words}", LINE, "query", (words,))

    name = "deep_research" if told.prompt == "prelude" else "rag_agentic"
    return play(room, name, {"k": limit}, told, knows, native=native)


def critique(rng: Random, room: Room) -> list[Lesson]:
    """`self_critique`: an answer that is right, or the value of something else, or a refusal."""
    told = room.text(rng, 2, rng.choice((3, 5, 8)), 0.1, changes=False, form="short")
    (question,) = told.questions
    code, prompt = room.method("self_critique"), Prompt(room.prompts[told.prompt])
    right = rng.random() < 0.5
    others = [s.triple[2] for s in told.every if s.triple[2] != question.answer]
    student = (
        question.answer
        if right
        else rng.choice([rng.choice(others or [refusal_of(told.prompt)]), refusal_of(told.prompt)])
    )

    def knows(messages: Sequence[Message], tools: bool) -> Said:
        told_here = question.told_in(shown(messages))  # what is not shown cannot be known, nor checked
        if "".join(messages[0]["parts"]) != code.CHECK:
            learned = FROM_MEMORY if right and told_here else ""
            return Said(
                question.reply if right else prompt.target(student), learned, "after a colon", (question.answer,)
            )
        verdict = "Yes" if right else "No"
        why = " ".join(sentence.line for sentence in question.told_by)
        reply = f"{verdict}: {why}\nThe correct answer: {question.answer}"
        return Said(reply, CRITIQUE if told_here else "", "critique", (f"{verdict} {question.answer}",))

    parameters = {"answer": rng.choice(("memory", "rag_bm25")), "check": "rag_bm25", "k": rng.choice((2, 3))}
    return play(room, "self_critique", parameters, told, knows)
