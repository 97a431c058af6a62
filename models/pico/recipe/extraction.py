"""Lessons of what is taken out of texts as JSON: entities, triples and facts (`hipporag2`), notes and their links
(`a_mem`)."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from random import Random
from typing import Any

from recipe.lessons import Lesson
from recipe.memories import answered
from recipe.playing import Room, Said, between, play, shown
from recipe.statements import Sentence, named
from upkeep.cell import Message

ENTITIES, TRIPLES, FACTS = "entities as JSON", "triples as JSON", "facts that help, as JSON"
NOTE, LINKS, WORDS = "a note's keywords and tags as JSON", "a note's links as JSON", "words to find notes by, as JSON"
_SHOWN = re.compile(r"^## Note (\d+)\n", re.MULTILINE)
MOST = 6
"""Keywords and tags of a note."""


def _json(value: Any, skill: str) -> Said:
    return Said(json.dumps(value, ensure_ascii=False), skill, "json")


def graph(rng: Random, room: Room) -> list[Lesson]:
    """`hipporag2`."""
    told = room.text(rng, 2, rng.choice((3, 5, 8)), 0.2, questions=2)
    code = room.method("hipporag2")

    def knows(messages: Sequence[Message], tools: bool) -> Said:
        seen = shown(messages)
        match "".join(messages[0]["parts"]):
            case code.ENTITIES:
                return _json({"entities": named(told.said_in(seen))}, ENTITIES)
            case code.TRIPLES:
                return _json({"triples": [s.triple for s in told.said_in(seen)]}, TRIPLES)
            case code.FILTER:
                asked = between(seen, "# Question\n", "\n\n# Facts\n")
                question = next(q for q in told.questions if q.probe.question == asked)
                # As the graph has facts.
                helping = {" ".join(code.normal(s.triple)) for s in told.every if s.key in question.keys}
                lines = between(seen, "# Facts\n").split("\n")
                helps = [n for n, line in enumerate(lines, 1) if line.partition(". ")[2] in helping]
                return _json({"facts": helps}, FACTS)
        return answered(told, messages)

    return play(room, "hipporag2", {"k": 2}, told, knows)


def notes(rng: Random, room: Room) -> list[Lesson]:
    """`a_mem`: a note is linked to those that name what it names."""
    told = room.text(rng, 3, rng.choice((2, 3, 5)), 0.2)
    code = room.method("a_mem")

    def knows(messages: Sequence[Message], tools: bool) -> Said:
        seen = shown(messages)
        match "".join(messages[0]["parts"]):
            case code.ANALYSIS:
                return _json(_note(told.said_in(seen)), NOTE)
            case code.EVOLUTION:
                near, _, new = seen.partition("\n\n# New note\n")
                names = set(named(told.said_in(new)))
                _, *parts = _SHOWN.split(near)
                pairs = zip(parts[::2], parts[1::2], strict=True)
                links = [int(n) for n, note in pairs if names & set(named(told.said_in(note)))]
                return _json({"links": links}, LINKS)
            case code.QUERY:
                return _json({"keywords": told.questions[0].words}, WORDS)
        return answered(told, messages)

    return play(room, "a_mem", {}, told, knows)


def _note(said: Sequence[Sentence]) -> dict[str, Any]:
    subjects = list(dict.fromkeys(s.triple[0] for s in said))
    tags = list(dict.fromkeys(s.triple[1] for s in said))
    about = f"It tells of {' and '.join(subjects)}." if subjects else "It tells of nobody."
    return {"keywords": named(said)[:MOST], "context": about, "tags": tags[:MOST]}
