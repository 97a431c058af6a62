"""Runs of methods on small streams, for tests."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from method_fakes import PROMPTS, ROOT, FakeEmbedder, FakeLLM, document, gold, load, probe
from upkeep.cell import Answer, Method, Seen, Tools
from upkeep.contract import Document, MethodCard, Sees
from upkeep.method_cards import CHOSEN, sees_of
from upkeep.yaml_files import read_yaml


@cache
def card(method: str) -> MethodCard:
    return read_yaml(ROOT / "methods" / method / "method.yaml", MethodCard)


def make(method: str, variant: str, root: Path = ROOT, **tools: Any) -> Method:
    described = read_yaml(root / "methods" / method / "method.yaml", MethodCard)
    tools.setdefault("prompt", PROMPTS["oaks_babi"])
    chosen = described.variants[variant].get("embedder", described.embedder)
    tools.setdefault("embedder", FakeEmbedder() if chosen else None)
    parameters = {name: value for name, value in described.variants[variant].items() if name not in CHOSEN}
    return load(method, root)(parameters, Tools(**tools))


def sees(method: str, variant: str, root: Path = ROOT) -> Sees:
    """What of the answer key a variant is given."""
    return sees_of(read_yaml(root / "methods" / method / "method.yaml", MethodCard), variant)


class Run:
    """A method led through a stream as the runner leads it: documents arrive one by one, each followed by a probe."""

    def __init__(
        self,
        method: str,
        variant: str,
        documents: Sequence[Document],
        llm: FakeLLM | None = None,
        root: Path = ROOT,
        **tools: Any,
    ) -> None:
        self.llm = llm or FakeLLM()
        self.prompts: list[list[str]] = []
        self.answers: list[Answer] = []
        self.asked: list[list[str]] = []
        """What each document's arrival asked."""
        asyncio.run(self._lead(make(method, variant, root, **tools), sees(method, variant, root), documents))

    async def _lead(self, method: Method, sees: Sees, documents: Sequence[Document]) -> None:
        for n, arrived in enumerate(documents, start=1):
            await method.arrive(arrived.stream, [arrived], self.llm)
            self.asked.append(list(self.llm.prompts))
            self.llm.prompts.clear()
            key = gold(arrived.position, arrived.stream) if sees != "documents" else None
            asked = probe(arrived.position, stream=arrived.stream)
            self.answers.append(await method.answer(asked, Seen(documents[:n], key), self.llm))
            self.prompts.append(list(self.llm.prompts))
            self.llm.prompts.clear()


def stream(n: int = 7, text: str | None = None) -> list[Document]:
    return [document(p, text) for p in range(n)]


def sentinels(text: str) -> set[int]:
    return {int(p) for p in re.findall(r"sentinel(\d+)xs", text)}


def shown(run: Run) -> list[set[int]]:
    return [sentinels(prompts[-1]) for prompts in run.prompts]
