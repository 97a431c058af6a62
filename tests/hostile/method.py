"""A method that attacks whoever runs it: `test_hostile.py` makes this folder a method of its own, `methods/hostile/`.

The variant's parameter `attack` names what is tried at the first probe; `None` is an honest method. An attempt that is
prevented ends the container with what stood in its way; one that succeeds says BREACH and goes on as an honest method
would, so that its cell is published. What lies to the host waits afterwards for the host to end it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from upkeep.cell import LLM, Answer, Document, Method, Probe, Seen

sys.path.insert(0, str(Path(__file__).parent))  # a method of several files says where they are

from attacks import AT_THE_END, do


class Hostile(Method):
    begun = False

    async def arrive(self, stream: str, documents: Sequence[Document], llm: LLM) -> None:
        if self.parameters["attack"] == "search_as_documents_arrive":
            self._begin(None)

    async def answer(self, probe: Probe, seen: Seen, llm: LLM) -> Answer:
        self._begin(probe)
        return Answer(None)

    async def close(self) -> None:
        for step in AT_THE_END:
            step()

    def _begin(self, probe: Probe | None) -> None:
        if not self.begun and (name := self.parameters["attack"]):
            self.begun = True
            do(name, self.parameters, probe)
