"""How the transformers engine picks the tokens of an answer: what is permitted, what is drawn, and where it ends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from upkeep.cell.interface import GeneratedToken
from upkeep.cell.lockstep import Generate, Generated
from upkeep.cell.tokens import ChatTokens
from upkeep.contract import Sampling
from upkeep.serving.drafts import Drafts

if TYPE_CHECKING:
    from transformers.generation.logits_process import LogitsProcessorList


class Constraint:
    """Permits the tokens alone that go on as a grammar says.

    Args:
        grammar: as `upkeep.cell.toolcalls` makes it.
        tokens: the tokenizer as llguidance reads it.

    Raises:
        ValueError: it is no such grammar, or holds a JSON schema that cannot be followed.
    """

    def __init__(self, grammar: str, tokens: Any) -> None:
        from llguidance import LLMatcher

        self._matcher = LLMatcher(tokens, LLMatcher.grammar_from_lark(grammar), log_level=0)
        self._require_sound()

    def permitted(self, logits: torch.Tensor) -> torch.Tensor:
        """`logits` (vocabulary,) with minus infinity for all tokens that are not permitted now."""
        mask = torch.frombuffer(bytearray(self._matcher.compute_bitmask()), dtype=torch.uint8)
        self._require_sound()
        bits = (mask[:, None] >> torch.arange(8, dtype=torch.uint8)) & 1
        return logits.masked_fill(bits.flatten()[: len(logits)].to(logits.device) == 0, -math.inf)

    def take(self, token: int) -> None:
        """Take notice of a token that was generated."""
        if not self._matcher.is_stopped():
            self._matcher.consume_token(token)
            self._require_sound()

    def _require_sound(self) -> None:
        if self._matcher.is_error():
            raise ValueError(f"the answer cannot be constrained: {self._matcher.get_error()}")


class Sampler:
    """Picks tokens by explicit parameters, in the order penalties, temperature, top-k, top-p, min-p.

    Args:
        seed: of a generator of its own, on the CPU, so that a draw depends on nothing else.
        prompt: token ids; the repetition penalty (Keskar et al. 2019) covers them as well as the answer.
    """

    def __init__(self, sampling: Sampling, seed: int, prompt: Sequence[int], device: torch.device) -> None:
        self.sampling = sampling
        self.generated: list[int] = []
        self._device = device
        self._generator = torch.Generator().manual_seed(seed)
        self._penalty = None
        if sampling.repetition_penalty != 1:
            from transformers.generation.logits_process import RepetitionPenaltyLogitsProcessor

            self._penalty = RepetitionPenaltyLogitsProcessor(sampling.repetition_penalty)
            self._prompt = torch.tensor(list(prompt), device=device)
        self._warpers = _warpers(sampling) if sampling.temperature > 0 else None

    def pick(self, logits: torch.Tensor) -> int:
        """Choose the next token from `logits` (vocabulary,) and remember it."""
        scores = logits.float()[None]
        if self._penalty is not None:
            scores = self._penalty(torch.cat([self._prompt, self._seen()])[None], scores)
        if self.sampling.presence_penalty and self.generated:
            scores = scores.clone()
            scores[0, self._seen().unique()] -= self.sampling.presence_penalty
        if self._warpers is None:
            token = int(scores[0].argmax())
        else:
            probabilities = self._warpers(self._seen()[None], scores).softmax(-1)[0].cpu()
            token = int(torch.multinomial(probabilities, 1, generator=self._generator))
        self.generated.append(token)
        return token

    def _seen(self) -> torch.Tensor:
        return torch.tensor(self.generated, device=self._device, dtype=torch.long)


def _warpers(sampling: Sampling) -> LogitsProcessorList:
    """What shapes the probabilities that a token is drawn by. The module takes half a second to load, which greedy
    replies need not wait for."""
    from transformers.generation import logits_process as lp

    warpers = lp.LogitsProcessorList([lp.TemperatureLogitsWarper(float(sampling.temperature))])
    if sampling.top_k:
        warpers.append(lp.TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1:
        warpers.append(lp.TopPLogitsWarper(float(sampling.top_p)))
    if sampling.min_p > 0:
        warpers.append(lp.MinPLogitsWarper(sampling.min_p))
    return warpers


@dataclass(slots=True)
class Running:
    """A sequence that is being decoded."""

    request: Generate
    sampler: Sampler
    stop_ids: frozenset[int]
    cached: int
    """Tokens of the prompt that were reused."""
    tokens: ChatTokens
    constraint: Constraint | None
    drafts: Drafts
    told: list[GeneratedToken] = field(default_factory=list)

    def next(self, drafted: int) -> list[int]:
        """The latest token, and up to `drafted` more that may follow it."""
        left = self.request.sampling.max_tokens - len(self.sampler.generated) - 1
        return [self.latest, *self.drafts.after(self.sampler.generated, min(drafted, left))]

    def went_on(self, tokens: Sequence[int], logits: torch.Tensor) -> Generated | ValueError | None:
        """Pick tokens from `logits` (tokens, vocabulary) after what `next` gave, for as long as it is what was drafted;
        returns what `saw` does."""
        for row, following in zip(logits, [*tokens[1:], None], strict=False):
            if (outcome := self.saw(row)) is not None or self.latest != following:
                return outcome
        raise AssertionError("no token follows the last one")

    def saw(self, logits: torch.Tensor) -> Generated | ValueError | None:
        """Pick the next token from `logits` (vocabulary,); the answer, where it ends the sequence, or why there is
        none."""
        generated, options = self.sampler.generated, self.request.options
        if self.constraint is None:
            token = self.sampler.pick(logits)
        else:
            try:
                logits = self.constraint.permitted(logits)
                token = self.sampler.pick(logits)
                self.constraint.take(token)
            except ValueError as error:
                return error
        if options.top_logprobs:
            self.told.append(self._told(logits, token))
        if token in self.stop_ids or (options.stop and self.tokens.stops(options.stop)(generated)):
            return Generated(generated, "stop", self.cached, self.told)
        if len(generated) == self.request.sampling.max_tokens:
            return Generated(generated, "length", self.cached, self.told)
        return None

    def _told(self, logits: torch.Tensor, token: int) -> GeneratedToken:
        known = logits.float().log_softmax(-1)
        values, ids = (found.tolist() for found in known.topk(self.request.options.top_logprobs))
        top = tuple((self.tokens.token(i), value) for value, i in zip(values, ids, strict=True) if value > -math.inf)
        return GeneratedToken(self.tokens.token(token), known[token].item(), top)

    @property
    def latest(self) -> int:
        return self.sampler.generated[-1]

    @property
    def place(self) -> int:
        """Of the latest token, among prompt and answer."""
        return self.request.prompt.length + len(self.sampler.generated) - 1
