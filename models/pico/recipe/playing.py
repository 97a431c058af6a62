"""Lessons of what methods ask a model besides a dataset's questions: the method itself runs over a short text, and
the model that it has knows what to say. So a lesson and what is asked later have one form.

Each call of the model is a lesson, but for those in which it was to say something wrong.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from recipe.groups import Group
from recipe.lessons import Lesson, Read
from recipe.passages import passage
from recipe.renaming import Pools
from recipe.statements import STREAM, Text, invented, statements
from recipe.tokenizer import POSITIONS
from upkeep.cell import Message, Method, Reply, Seen, Tools
from upkeep.cell.interface import ToolCall
from upkeep.cell.prompts import Prompt
from upkeep.contract import Form, PromptCard, Rubric, Sampling


@dataclass(frozen=True, slots=True)
class Said:
    """What the model says to one call."""

    text: str
    skill: str = ""
    """Empty where it is nothing to learn."""
    read: Read = "whole"
    accepted: Sequence[str] = ()
    """What is right, where it is not the text itself."""
    query: str | None = None
    """Of a search as a tool call."""


Knows = Callable[[Sequence[Message], bool], Said]
"""What to say to a chat; with whether the model is given tools."""


@dataclass(frozen=True, slots=True)
class Room:
    """What lessons are made of and with."""

    pools: Pools
    prompts: Mapping[str, PromptCard]
    rubrics: Sequence[tuple[str, Rubric]]
    """Each with its paper."""
    methods: Path
    """The folder of their code."""
    size: Callable[[str], int]
    """Tokens of a text."""
    groups: Sequence[Sequence[Group]] = ()
    """Of the small datasets' worlds, those of each dataset together."""
    names: frozenset[str] = frozenset()
    """The invented ones of these."""
    share: float = 0.0
    """How often a text is one of theirs."""

    def text(
        self,
        rng: Random,
        documents: int,
        most: int,
        idle: float = 0.0,
        *,
        questions: int = 1,
        changes: bool = True,
        form: Form | None = None,
    ) -> Text:
        """Documents for a method to run over; the limits are those of invented ones.

        Args:
            most: statements of one document, at most.
            idle: sentences that tell nothing, by statement.
            changes: whether a later statement may take the place of an earlier one.
            form: of the questions of a small dataset's text; default: any.
        """
        if self.share and rng.random() < self.share:
            return passage(
                rng, self.prompts, self.groups, self.pools, self.names, self.size, documents, questions, form
            )
        told = statements(rng, self.pools, documents, most, changes=changes)
        return invented(rng, self.prompts, told, idle, questions)

    def method(self, name: str) -> Any:
        """The module of a method."""
        return _module(self.methods / name / "method.py")


@cache
def _module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"method_{path.parent.name}", path)
    assert spec is not None and spec.loader is not None, path
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where a dataclass looks for its own
    spec.loader.exec_module(module)
    return module


def rendered(messages: Sequence[Message], tools: Sequence[dict[str, Any]] = ()) -> str:
    """A chat as the tokenizer's template has it (`recipe.tokenizer.TEMPLATE`), up to where the reply begins."""
    found = []
    for n, message in enumerate(messages):
        text = "".join(message["parts"])
        if n == 0 and tools:
            text += "\n\n# Tools\n" + "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
        for call in message.get("tool_calls", ()):
            text += called(call.name, json.loads(call.arguments))
        if message["role"] == "tool":
            found.append(f"<|user|><tool_response>\n{text}\n</tool_response><|end|>")
        else:
            found.append(f"<|{message['role']}|>{text}<|end|>")
    return "".join(found) + "<|assistant|>"


def called(name: str, arguments: Mapping[str, Any]) -> str:
    """A call of a tool as the model writes it (`hermes` in upkeep.cell.toolcalls)."""
    return f'<tool_call>\n{{"name": "{name}", "arguments": {json.dumps(arguments, ensure_ascii=False)}}}\n</tool_call>'


@dataclass(slots=True)
class Model:
    """An `LLM` that knows what to say."""

    knows: Knows
    count: Callable[[str], int]
    sampling: Sampling = field(default_factory=lambda: Sampling(max_tokens=96))
    context_length: int = POSITIONS
    trial: int = 0
    of: str = ""
    """Said after a skill."""
    lessons: list[Lesson] = field(default_factory=list)

    def count_prompt(self, messages: Sequence[Message]) -> int:
        return self.count(rendered(messages))

    async def logprobs(self, prompt: Any, continuation: str) -> Any:
        raise TypeError("it writes and weighs nothing")

    async def chat(
        self,
        messages: Sequence[Message],
        sampling: Sampling | None = None,
        *,
        tools: Sequence[dict[str, Any]] = (),
        **options: Any,
    ) -> Reply:
        said = self.knows(messages, bool(tools))
        calls: tuple[ToolCall, ...] = ()
        text = said.text
        if said.query is not None:
            calls = (ToolCall(f"c{len(self.lessons)}", "search", json.dumps({"query": said.query})),)
            text += called("search", {"query": said.query})
        if said.skill:
            lesson = lesson_of(messages, text, said, tools)
            self.lessons.append(replace(lesson, skill=said.skill + self.of))
        return Reply(said.text, None, "stop", 0, 0, 0, tool_calls=calls)


def lesson_of(messages: Sequence[Message], reply: str, said: Said, tools: Sequence[dict[str, Any]] = ()) -> Lesson:
    """The lesson of one call."""
    prefix, end, _ = rendered(messages, tools).rpartition("<|end|><|assistant|>")
    return Lesson(said.skill, prefix, [(f"{end}", f"{reply}<|end|>")], said.read, said.accepted or (reply,))


class Words:
    """An embedder: texts are near that share words."""

    SIZE = 128

    def documents(self, texts: Sequence[str]) -> np.ndarray:
        found = np.zeros((len(texts), self.SIZE), np.float32)
        for row, text in zip(found, texts, strict=True):
            for word in {w.strip(".,?:\"'()").lower() for w in text.split()}:
                row[int.from_bytes(hashlib.sha256(word.encode()).digest()[:2], "big") % self.SIZE] += 1
            row /= max(1.0, float(np.linalg.norm(row)))
        return found

    queries = documents

    def windows(self, text: str) -> list[str]:
        return [text]


def play(
    room: Room,
    name: str,
    parameters: Mapping[str, Any],
    text: Text,
    knows: Knows,
    *,
    native: bool = False,
) -> list[Lesson]:
    """The lessons that a method gives over a text.

    Args:
        native: whether the model is given tools.
    """
    code = room.method(name)
    (made,) = (
        one
        for one in vars(code).values()
        if isinstance(one, type) and issubclass(one, Method) and one.__module__ == code.__name__
    )
    method = made(dict(parameters), Tools(Prompt(room.prompts[text.prompt]), Words(), calls_tools=native))
    model = Model(knows, room.size, of=text.of)

    async def run() -> None:
        for document in text.documents:
            await method.arrive(STREAM, [document], model)
        for question in text.questions:
            await method.answer(question.probe, Seen(text.documents), model)

    asyncio.run(run())
    return model.lessons


def shown(messages: Sequence[Message]) -> str:
    """What the last message says."""
    return "".join(messages[-1]["parts"])


def between(text: str, start: str, end: str = "") -> str:
    """What stands after one heading and before another."""
    rest = text.partition(start)[2]
    return rest.partition(end)[0] if end else rest
