"""The engine: it answers each request at once, and counts."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from upkeep.cell.lockstep import Engine, Generate, Generated, Outcome, Request, Score
from upkeep.cell.tokens import nearest
from upkeep.contract import ModelSpec
from upkeep.serving.counting.forms import FormTokens, filled
from upkeep.serving.counting.records import Assumed
from upkeep.serving.counting.reuse import Reuse, Segments

FILLER = (
    " the harbour was quiet when she came back from the market and nobody had seen where he went with an old letter"
    " before they closed all doors of that house which stood near their bridge for many years under grey stone"
)


class CountingEngine(Engine):
    """Answers each request at once, in the order in which the engine would take them, with words without meaning; where
    a prompt asks for JSON, for a line, or offers a tool, in that form, for a method's further calls hang on that.

    Args:
        tokens: of the model, or of what stands in for it.
        calls: requests after which the method is taken to go round in circles.

    Raises (from `step`):
        RuntimeError: there are more requests than that.
    """

    name = "counting"
    version = "1"

    def __init__(self, tokens: FormTokens, spec: ModelSpec, reuse: Reuse, assumed: Assumed, calls: int) -> None:
        super().__init__(tokens, spec.context_length)
        self._spec, self._reuse, self._assumed, self._left = spec, reuse, assumed, calls
        self._queue: list[Request] = []
        self._forms, self._words = tokens, tokens.encode(FILLER)
        self._closing = tokens.encode(f"\n{spec.thinking_tags[1]}\n") if spec.thinking_tags else []

    def add(self, request: Request) -> None:
        self._queue.append(request)

    @property
    def busy(self) -> bool:
        return bool(self._queue)

    def reset(self) -> None:
        self._queue.clear()
        self._reuse.forget()

    def step(self) -> Iterable[tuple[Request, Outcome]]:
        held = self._reuse.held if isinstance(self._reuse, Segments) else ()
        request = self._queue.pop(nearest(held, (request.prompt for request in self._queue)))
        if request.future.cancelled():
            return []
        if not self._left:
            raise RuntimeError("the method makes more and more calls: its number cannot be counted without a model")
        self._left -= 1
        cached = self._reuse.reused(request.prompt)
        if isinstance(request, Score):
            # vLLM computes a prompt anew where it is to give log-probabilities.
            self.computed += request.prompt.length - (cached if isinstance(self._reuse, Segments) else 0)
            return [(request, [-1.0] * len(request.continuation))]
        ids = self._reply(request)
        self._reuse.generated(request.prompt, ids)
        reason = "length" if len(ids) == request.sampling.max_tokens else "stop"
        return [(request, Generated(ids, reason, cached))]  # type: ignore[arg-type]

    def _reply(self, request: Generate) -> list[int]:
        limit, spec = request.sampling.max_tokens, self._spec
        length = self._assumed.reply if limit == spec.sampling.max_tokens else limit // 2
        reasoning: list[int] = []
        # No two replies are alike, so that a memory made of one shares no prefix with another.
        drawn = random.Random(request.seed)
        if not spec.trained:
            length = limit
        elif spec.thinking == "on":
            length = min(length, limit)
            room = max(0, limit - length - len(self._closing))
            reasoning = [*drawn.choices(self._words, k=min(self._assumed.thinking, room)), *self._closing]
        if (form := self._forms.form(request.prompt)) is None:
            said: Sequence[int] = ()
        else:
            said = self._forms.encode(filled(form, FILLER.split(), drawn))
            length = max(len(said), length) if form.endswith("}") else len(said)
        return [*reasoning, *said, *drawn.choices(self._words, k=length - len(said))][:limit]
