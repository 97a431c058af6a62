"""The transformers engine: one sequence at a time, on a CPU or a GPU, with exact reuse of the latest prefix.

Floating-point sums depend on the shapes they are computed in. So that an answer is the same, bit by bit, whether its
prefix was in the cache or not, a prompt is always computed in the same steps: segment by segment, and where segments
begin depends on the prompt alone (`upkeep.cell.tokens`). The cache holds the latest sequence and is cut back only to
the beginning of a segment. Order, resuming and other probes therefore never change an answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.cache_utils import Cache, DynamicLayer

from upkeep.cell.engines.lockstep import Engine, Generate, Generated, Outcome, Request, Score
from upkeep.cell.tokens import ChatTokens, Segment, shared_segments
from upkeep.contract import EngineSettings, ModelSpec, Sampling

GROWTH = 1024
"""Buffers hold a multiple of so many tokens, which keeps every head's first byte aligned alike."""


class GrowingLayer(DynamicLayer):  # type: ignore[misc]
    """Keys and values of one layer in buffers with room to spare: appending copies the new tokens alone, cropping
    nothing. `keys` and `values` are (1, heads, room, head size); the first `length` tokens count."""

    def __init__(self) -> None:
        super().__init__()
        self.length = 0

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        end = self.length + key_states.shape[-2]
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.keys, self.values = (x.new_empty((*x.shape[:2], 0, x.shape[3])) for x in (key_states, value_states))
        if end > self.keys.shape[2]:
            room = -(-max(end, 2 * self.keys.shape[2]) // GROWTH) * GROWTH
            self.keys, self.values = (self._grown(x, room) for x in (self.keys, self.values))
        self.keys[:, :, self.length : end] = key_states
        self.values[:, :, self.length : end] = value_states
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def _grown(self, old: torch.Tensor, room: int) -> torch.Tensor:
        new = old.new_empty((*old.shape[:2], room, old.shape[3]))
        new[:, :, : self.length] = old[:, :, : self.length]
        return new

    def get_seq_length(self) -> int:
        return self.length


class TransformersEngine(Engine):
    """A causal language model of the transformers library.

    Args:
        path: folder with weights and tokenizer.
        settings: `options` takes `device` (default: `cuda` where the model asks for a GPU, else `cpu`).

    Raises:
        ValueError: the model has layers whose state cannot be cut back to a shorter prefix (linear attention, Mamba).
    """

    name = "transformers"
    version = transformers.__version__

    def __init__(self, path: str, spec: ModelSpec, settings: EngineSettings) -> None:
        self.chat_tokens = ChatTokens(path, spec)
        super().__init__(self.chat_tokens, spec.context_length)
        torch.set_num_threads(settings.threads)
        self.device = torch.device(settings.options.get("device", "cuda" if spec.gpus else "cpu"))
        config = AutoConfig.from_pretrained(path)
        text_config = config.get_text_config()
        stateful = {t for t in getattr(text_config, "layer_types", None) or () if "attention" not in t or "linear" in t}
        if stateful:
            raise ValueError(f"{spec.label}: layers of type {sorted(stateful)} need the vllm engine")
        if spec.rope_scaling:
            text_config.rope_parameters = {**(text_config.rope_parameters or {}), **spec.rope_scaling}
        self.model: Any = AutoModelForCausalLM.from_pretrained(
            path, config=config, dtype=getattr(torch, spec.dtype), attn_implementation="sdpa", local_files_only=True
        )
        self.model.to(self.device).eval()
        self.prefix_cache = settings.prefix_cache
        self._layers = [GrowingLayer() for _ in range(text_config.num_hidden_layers)]
        self._cache = Cache(layers=self._layers)
        self._held: Sequence[Segment[int]] = ()
        """The segments whose keys and values the cache holds."""
        self._queue: deque[Request] = deque()

    def add(self, request: Request) -> None:
        self._queue.append(request)

    @property
    def busy(self) -> bool:
        return bool(self._queue)

    def reset(self) -> None:
        # Keys and values that are held change no answer, but they would change what a cell counts as cached.
        self._queue.clear()
        self._held = ()
        self.computed = 0

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def step(self) -> Iterable[tuple[Request, Outcome]]:
        """Answer the oldest request."""
        request = self._queue.popleft()
        if request.future.cancelled():
            return []
        outcome = self._generate(request) if isinstance(request, Generate) else self._score(request)
        return [(request, outcome)]

    # ------------------------------------------------------------ work

    def _generate(self, request: Generate) -> Generated:
        logits, cached = self._prefill(request.prompt.segments)
        sampler = Sampler(request.sampling, request.seed, request.prompt.ids(), self.device)
        while True:
            token = sampler.pick(logits[-1])
            if token in self.chat_tokens.stop_ids:
                return self._finish(request, sampler.generated, "stop", cached)
            if len(sampler.generated) == request.sampling.max_tokens:
                return self._finish(request, sampler.generated, "length", cached)
            logits = self._forward([token], keep=1)

    def _finish(self, request: Generate, ids: list[int], reason: Literal["stop", "length"], cached: int) -> Generated:
        self._crop(request.prompt.length)
        return Generated(ids, reason, cached)

    def _score(self, request: Score) -> list[float]:
        """Natural log-probability of each token of the continuation, from logits in float32."""
        last, cached = self._prefill(request.prompt.segments)
        self.computed += request.prompt.length - cached
        rows = [last]
        if len(request.continuation) > 1:
            rows.append(self._forward(request.continuation[:-1], keep=0))
            self._crop(request.prompt.length)
        logits = torch.cat(rows).float()[: len(request.continuation)]
        wanted = torch.tensor(request.continuation, device=self.device, dtype=torch.long)
        return logits.log_softmax(-1).gather(1, wanted[:, None])[:, 0].tolist()  # type: ignore[no-any-return]

    def _prefill(self, segments: Sequence[Segment[int]]) -> tuple[torch.Tensor, int]:
        """Compute a prompt. Returns the last token's logits (1, vocabulary) and how many tokens were reused.

        The last segment is always computed, for its logits are not kept.
        """
        reused = min(shared_segments(self._held, segments), len(segments) - 1) if self.prefix_cache else 0
        cached = sum(map(len, segments[:reused]))
        self._crop(cached)
        self._held = ()
        for segment in segments[reused:]:
            logits = self._forward(segment, keep=1)
        self._held = segments
        return logits, cached

    def _forward(self, ids: Sequence[int], keep: int) -> torch.Tensor:
        """Logits (keep, vocabulary) after `ids`, which extend what the cache holds; `keep` 0 is all of them."""
        tokens = torch.tensor([list(ids)], device=self.device)
        logits: torch.Tensor = self.model(
            input_ids=tokens, past_key_values=self._cache, use_cache=True, logits_to_keep=keep
        ).logits[0]
        return logits

    def _crop(self, length: int) -> None:
        for layer in self._layers:
            layer.length = length


class Sampler:
    """Picks tokens by explicit parameters, in the order penalties, temperature, top-k, top-p, min-p.

    Args:
        seed: of a generator of its own, on the CPU, so that a draw depends on nothing else.
        prompt: token ids; the repetition penalty (Keskar et al. 2019) covers them as well as the answer.
    """

    def __init__(self, sampling: Sampling, seed: int, prompt: Sequence[int], device: torch.device) -> None:
        from transformers.generation import logits_process as lp

        self.sampling = sampling
        self.generated: list[int] = []
        self._generator = torch.Generator().manual_seed(seed)
        self._penalty = None
        if sampling.repetition_penalty != 1:
            self._penalty = lp.RepetitionPenaltyLogitsProcessor(sampling.repetition_penalty)
            self._prompt = torch.tensor(list(prompt), device=device)
        self._warpers = lp.LogitsProcessorList()
        if sampling.temperature > 0:
            self._warpers.append(lp.TemperatureLogitsWarper(float(sampling.temperature)))
            if sampling.top_k:
                self._warpers.append(lp.TopKLogitsWarper(sampling.top_k))
            if sampling.top_p < 1:
                self._warpers.append(lp.TopPLogitsWarper(float(sampling.top_p)))
            if sampling.min_p > 0:
                self._warpers.append(lp.MinPLogitsWarper(sampling.min_p))

    def pick(self, logits: torch.Tensor) -> int:
        """Choose the next token from `logits` (vocabulary,) and remember it."""
        scores = logits.float()[None]
        seen = torch.tensor(self.generated, device=scores.device, dtype=torch.long)
        if self._penalty is not None:
            scores = self._penalty(torch.cat([self._prompt, seen])[None], scores)
        if self.sampling.presence_penalty and self.generated:
            scores = scores.clone()
            scores[0, seen.unique()] -= self.sampling.presence_penalty
        if self.sampling.temperature == 0:
            token = int(scores[0].argmax())
        else:
            probabilities = self._warpers(seen[None], scores).softmax(-1)[0].cpu()
            token = int(torch.multinomial(probabilities, 1, generator=self._generator))
        self.generated.append(token)
        return token
