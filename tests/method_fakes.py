"""Stand-ins for the model and the embedder that record what they are given."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from upkeep.catalog import Catalog
from upkeep.cell import Message, Method, Reply, Sampling, ScoredToken
from upkeep.cell.interface import PromptTooLong
from upkeep.cell.prompts import Prompt
from upkeep.contract import Document, Gold, Probe

ROOT = Path(__file__).resolve().parents[1]
PROMPTS = {name: Prompt(Catalog(ROOT).prompt(name)) for name in Catalog(ROOT).prompts}
"""Those of the repository."""
SAID = {
    '"entities"': {"entities": ["Mira", "attic"]},
    '"triples"': {"triples": [["Mira", "is in", "the attic"]]},
    '"facts"': {"facts": [1]},
    '"neighbours"': {"links": [0], "tags": ["place"], "neighbours": [{"note": 0, "context": "Mira", "tags": ["a"]}]},
    '"keywords"': {"keywords": ["Mira"], "context": "Mira is in the attic.", "tags": ["place"]},
}
"""What a model that can write JSON says to a prompt that asks for some."""


def json_said(prompt: str) -> str | None:
    """The JSON that a prompt asks for; None where it asks for none."""
    return next((json.dumps(said) for key, said in SAID.items() if key in prompt), None)


def text_of(messages: Sequence[Message]) -> str:
    return "\n".join(f"<{m['role']}>{''.join(m['parts'])}" for m in messages)


class FakeLLM:
    """Counts words as tokens, keeps every prompt, and answers with a digest of the prompt."""

    def __init__(
        self, context_length: int = 1_000_000, max_tokens: int = 16, count: Callable[[str], int] | None = None
    ) -> None:
        self.context_length = context_length
        self.sampling = Sampling(max_tokens=max_tokens)
        self.trial = 0
        self.prompts: list[str] = []
        self.exact_counts = 0
        self._count = count or (lambda text: len(text.split()))

    def count(self, text: str) -> int:
        return self._count(text)

    def count_prompt(self, messages: Sequence[Message]) -> int:
        self.exact_counts += 1
        return sum(4 + self._count("".join(m["parts"])) for m in messages)

    async def chat(self, messages: Sequence[Message], sampling: Sampling | None = None, **options: Any) -> Reply:
        assert not options, "no such model is there"
        tokens = self.count_prompt(messages)
        if tokens + (sampling or self.sampling).max_tokens > self.context_length:
            raise PromptTooLong(f"{tokens} tokens")
        prompt = text_of(messages)
        self.prompts.append(prompt)
        return Reply(f"thinking\n## Answer: {zlib.crc32(prompt.encode())}", None, "stop", tokens, 2, 0)

    async def logprobs(self, prompt: str | Sequence[Message], continuation: str) -> list[ScoredToken]:
        before = prompt if isinstance(prompt, str) else text_of(prompt)
        if self._count(before) + (tokens := self._count(continuation)) > self.context_length:
            raise PromptTooLong(f"{tokens} tokens")
        self.prompts.append(before + continuation)
        return [
            ScoredToken(match.start(), match.end(), -float(len(prompt))) for match in re.finditer(r"\S+", continuation)
        ]


class FakeEmbedder:
    """A bag of hashed words, normalised; reads 50 words at a time."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def documents(self, texts: Sequence[str]) -> np.ndarray:
        self.seen += texts
        return np.stack([self._vector(text) for text in texts])

    def queries(self, texts: Sequence[str]) -> np.ndarray:
        return np.stack([self._vector(text) for text in texts])

    def windows(self, text: str) -> list[str]:
        words = text.split()
        return [" ".join(words[i : i + 50]) for i in range(0, len(words), 50)] or [text]

    def _vector(self, text: str) -> np.ndarray:
        vector = np.zeros(256, dtype=np.float32)
        vector[0] = 0.01
        for word in text.lower().split():
            vector[zlib.crc32(word.strip(".,?:").encode()) % 256] += 1
        return vector / np.linalg.norm(vector)


def document(position: int, text: str | None = None, stream: str = "s") -> Document:
    """A document whose text holds the word `sentinel<position>`, which no other holds."""
    return Document(
        id=f"{stream}-{position}",
        stream=stream,
        position=position,
        timestamp=None,
        text=f"sentinel{position}x{stream} {text or f'Mira went to room {position}.'}",
    )


def probe(position: int, question: str = "Where is Mira?", stream: str = "s", **other: Any) -> Probe:
    return Probe(
        id=f"{stream}-q@{position}",
        question_id=f"{stream}-q",
        stream=stream,
        position=position,
        question=question,
        options=other.get("options"),
        form=other.get("form", "short"),
    )


def gold(position: int, stream: str = "s", answers: Sequence[str] = ("attic", "loft")) -> Gold:
    """Its evidence names a document of the past, the present one, and one of the future."""
    ids = [f"{stream}-{p}" for p in (max(0, position - 1), position, position + 1)]
    return Gold(probe_id=f"{stream}-q@{position}", answers=list(answers), outdated=[], evidence=ids)


def load(method: str, root: Path = ROOT) -> type[Method]:
    """The one subclass of Method that `methods/<method>/method.py` defines."""
    spec = importlib.util.spec_from_file_location(f"loaded_{method}", root / "methods" / method / "method.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    (found,) = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Method) and value.__module__ == module.__name__
    ]
    return found
