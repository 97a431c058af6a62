"""Notes on documents that are linked to one another, and rewritten as others come."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from msgspec.structs import replace

from upkeep.cell import LLM, Answer, Context, Document, Method, Probe, Retrieved, Seen, Tools
from upkeep.cell.asking import instructed, json_object
from upkeep.cell.budget import cut
from upkeep.cell.interface import PromptTooLong

Form = dict[str, type]
"""Fields of a JSON object, and what each holds."""

ANALYSIS = """\
You keep notes on a stream of texts. Describe the text that you are given: its most telling words, in one sentence \
what it is about, and the subjects that it belongs to. Write JSON and nothing else: \
{"keywords": ["...", "..."], "context": "...", "tags": ["...", "..."]}"""
EVOLUTION = """\
You keep notes on a stream of texts. You are given a new note and the notes that are nearest to it. Say to which of \
them it should be linked, which tags it should have now, and for which of them the new note changes context or tags, \
and how. Leave out what stays as it is. Write JSON and nothing else: \
{"links": [0], "tags": ["..."], "neighbours": [{"note": 0, "context": "...", "tags": ["..."]}]}"""
QUERY = """\
Give the words by which notes that help to answer a question can be found. Write JSON and nothing else: \
{"keywords": ["...", "..."]}"""

DESCRIBED: Form = {"keywords": list, "context": str, "tags": list}
CHANGED: Form = {"links": list, "tags": list, "neighbours": list}
ASKED: Form = {"keywords": list}
"""What the JSON of a reply to each has."""

NOTES = 30
"""Notes that are read, those found and those linked to them (OAKS, C.1.1)."""
NEIGHBOURS, FOUND = 5, 10
"""Notes that a new one is compared with; notes that a question finds, before their links are followed."""
LONGEST = 1000
"""Tokens that a reply about notes may have."""


class AMem(Method):
    def __init__(self, parameters: dict[str, Any], tools: Tools) -> None:
        super().__init__(parameters, tools)
        if tools.embedder is None:
            raise ValueError("a_mem needs an embedder: name one under `embedder:` in method.yaml")
        self.embedder = tools.embedder
        self.notes: dict[str, list[Note]] = defaultdict(list)

    async def arrive(self, stream: str, documents: Sequence[Document], llm: LLM) -> None:
        for document in documents:
            note = await self.analysed(document, llm)
            self.notes[stream].append(note)
            if len(self.notes[stream]) > 1:
                await self.evolve(self.notes[stream], llm)
            note.embed(self)

    async def analysed(self, document: Document, llm: LLM) -> Note:
        """The note on a document, linked to none."""
        told = await self.told(ANALYSIS, "# Text\n", document.text, llm)
        note = Note(document)
        note.read(told)
        note.unread = not follows(told, DESCRIBED)
        note.embed(self)
        return note

    async def evolve(self, notes: Sequence[Note], llm: LLM) -> None:
        """Link the newest note, and rewrite what it changes."""
        *older, new = notes
        near = nearest(new.vector, older, NEIGHBOURS)
        shown = "\n\n".join(f"## Note {n}\n{older[place].described()}" for n, place in enumerate(near))
        told = await self.told(EVOLUTION, f"# Nearest notes\n{shown}\n\n# New note\n", new.described(), llm)
        new.unread = new.unread or not follows(told, CHANGED, whole=False)
        if told is None:
            return
        new.links += [near[n] for n in dict.fromkeys(_of(told, "links", int)) if 0 <= n < len(near)]
        new.tags = _of(told, "tags", str) or new.tags
        for change in _of(told, "neighbours", dict):
            place = change.get("note")
            if isinstance(place, int) and 0 <= place < len(near):
                older[near[place]].read(change)
                older[near[place]].embed(self)

    async def answer(self, probe: Probe, seen: Seen, llm: LLM) -> Answer:
        notes, k = self.notes[probe.stream], self.parameters.get("k", NOTES)
        told = await self.told(QUERY, "# Question\n", probe.question, llm)
        words = ", ".join(_of(told or {}, "keywords", str)) or probe.question
        query = self.embedder.queries([words])[0]
        near = nearest(query, notes, min(FOUND, k))
        linked = [place for found in near for place in notes[found].links]
        places = list(dict.fromkeys([*near, *linked]))[:k]
        found = [
            Retrieved(id=notes[place].document.id, score=float(notes[place].vector @ query), rank=rank)
            for rank, place in enumerate(places, start=1)
        ]
        shown = [replace(notes[place].document, text=notes[place].described()) for place in places]
        answer = await self.read(probe, llm, Context(retrieved=shown), found)
        answer.values = {
            "unread_notes": float(sum(note.unread for note in notes)),
            "unread_query": float(not follows(told, ASKED)),
        }
        return answer

    async def told(self, rules: str, before: str, text: str, llm: LLM) -> dict[str, Any] | None:
        """The JSON object of a reply to a text, which is cut where the model cannot read it whole; None where the reply
        is no such object.

        Raises:
            PromptTooLong: nothing of the text fits.
        """
        sampling = replace(llm.sampling, max_tokens=min(LONGEST, llm.context_length // 4))
        room = llm.context_length - sampling.max_tokens - llm.count_prompt(instructed(rules, before)) - 16
        if room < 1:
            raise PromptTooLong(f"notes cannot be kept in {llm.context_length} tokens of context")
        return json_object((await llm.chat(instructed(rules, before + cut(text, room, llm)), sampling)).text)


@dataclass
class Note:
    """What is kept of a document."""

    document: Document
    keywords: list[str] = field(default_factory=list)
    context: str = ""
    tags: list[str] = field(default_factory=list)
    links: list[int] = field(default_factory=list)
    """Places of other notes of the stream."""
    unread: bool = False
    """Whether a reply about it was not what was asked for."""
    vector: np.ndarray = field(default_factory=lambda: np.zeros(0))

    def read(self, told: dict[str, Any] | None) -> None:
        """Take over what a reply says of it."""
        if told is None:
            return
        self.keywords = _of(told, "keywords", str) or self.keywords
        self.tags = _of(told, "tags", str) or self.tags
        if isinstance(context := told.get("context"), str) and context.strip():
            self.context = context.strip()

    def embed(self, method: AMem) -> None:
        self.vector = method.embedder.documents([self.described()])[0]

    def described(self) -> str:
        """The text with what the note says of it."""
        said = (
            ("context", self.context),
            ("keywords", ", ".join(self.keywords)),
            ("tags", ", ".join(self.tags)),
        )
        return "\n".join([self.document.text, *(f"[{name}: {value}]" for name, value in said if value)])


def nearest(query: np.ndarray, notes: Sequence[Note], n: int) -> list[int]:
    """Places of the notes nearest to a vector, nearest first."""
    if not notes:
        return []
    likeness = np.stack([note.vector for note in notes]) @ query
    return [int(place) for place in np.argsort(-likeness, kind="stable")[:n]]


def follows(told: dict[str, Any] | None, form: Form, *, whole: bool = True) -> bool:
    """Whether a reply's JSON object is of a form: with all of its fields, or else with any of them or with nothing."""
    if told is None:
        return False
    there = told.keys() & form.keys()
    enough = there == form.keys() if whole else bool(there) or not told
    return enough and all(isinstance(told[name], form[name]) for name in there)


def _of(told: dict[str, Any], key: str, kind: type) -> list[Any]:
    """What the list under a key holds of one kind; nothing where there is no list."""
    found = told.get(key)
    return [one for one in found if type(one) is kind] if isinstance(found, list) else []
