"""All documents in one prompt, and of its keys and values those alone that the model needs most to repeat it."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from upkeep.cell import LLM, Answer, Context, Message, OwnEngine, Probe, Seen
from upkeep.cell.lockstep import Engine, Generate, Generated, Outcome, Request
from upkeep.cell.tokens import ChatTokens, TokenPrompt, shared_segments
from upkeep.cell.wire import NO_OPTIONS
from upkeep.contract import ModelSpec

RATIO, CHUNK = 16, 2048
"""How many pairs of keys and values there are for each that is kept, and how many tokens are repeated at a time
(ImprintBench, C.4)."""
KEPT = "kept_share"
"""Of the pairs of keys and values of what stands before the question, among the values of a prediction."""


class KVzip(OwnEngine):
    """Kim et al. 2025, as ImprintBench runs it (3.1, C.4): KVzip of kvpress."""

    cache: Compressed | None = None

    def engine(self, weights: Path, spec: ModelSpec) -> Compressed:
        self.cache = Compressed(weights, spec, self.parameters.get("ratio", RATIO), self.tools.threads)
        return self.cache

    async def answer(self, probe: Probe, seen: Seen, llm: LLM) -> Answer:
        answer = await self.read(probe, llm, Context(recent=seen.documents))
        if self.cache is not None:  # it answers one after the other, and this was the last one
            answer.values[KEPT] = self.cache.kept_share
        return answer


@dataclass(frozen=True, eq=False)
class Parted(TokenPrompt):
    """A prompt that says where its question begins."""

    context: int
    """Tokens before it: those that are the same whatever is asked."""


class PartedTokens(ChatTokens):
    """Tells what of a prompt stands before the question, which is its last part."""

    def prompt(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]] = ()) -> Parted:
        asked = super().prompt(messages, tools)
        *before, last = messages
        bare = super().prompt([*before, Message(role=last["role"], parts=last["parts"][:-1])], tools)
        shared = shared_segments(asked.segments, bare.segments)
        context = sum(map(len, asked.segments[:shared]))
        context += common(asked.ids()[context:-1], bare.ids()[context:])
        return Parted(asked.segments, asked.length, min(context, asked.length - 1))


def common(these: Sequence[int], those: Sequence[int]) -> int:
    """With how many equal tokens both begin."""
    pairs = enumerate(zip(these, those, strict=False))
    return next((n for n, (one, other) in pairs if one != other), min(len(these), len(those)))


class Compressed(Engine):
    """A model that answers from a compressed cache, one request after the other. What stands before the question is
    computed and compressed without it, and kept as long as the next request begins with the same.

    Args:
        weights: folder of the model, in the transformers format.
        ratio: pairs of keys and values that there are, for each that is kept; 1 keeps all.

    Raises:
        ValueError: kvpress does not run a model of this kind.
    """

    name = "kvpress"

    def __init__(self, weights: Path, spec: ModelSpec, ratio: float, threads: int) -> None:
        import kvpress  # first: it replaces the attention of models that are loaded afterwards
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM

        self.version = importlib.metadata.version("kvpress")
        self.chat_tokens = PartedTokens(str(weights), spec)
        super().__init__(self.chat_tokens, spec.context_length)
        torch.set_num_threads(threads)
        config = AutoConfig.from_pretrained(weights)
        if spec.rope_scaling:
            config.rope_parameters = {**(config.rope_parameters or {}), **spec.rope_scaling}
        self.model: Any = AutoModelForCausalLM.from_pretrained(
            weights,
            config=config,
            dtype=getattr(torch, spec.dtype),
            attn_implementation="sdpa",
            device_map="auto" if spec.gpus > 1 else "cuda" if spec.gpus else None,
            local_files_only=True,
            use_safetensors=True,
        ).eval()
        _require_known(self.model, spec)
        self._press = kvpress.KVzipPress(compression_ratio=1 - 1 / ratio, chunk_size=CHUNK)
        self._cache: Any = None
        self._context: list[int] = []
        """The tokens whose keys and values the cache holds, compressed."""
        self._question: list[int] = []
        """Those that it holds after them, but for an answer's."""
        self._queue: list[Request] = []

    def add(self, request: Request) -> None:
        self._queue.append(request)

    @property
    def busy(self) -> bool:
        return bool(self._queue)

    def reset(self) -> None:
        self._queue.clear()
        self._context = []

    def step(self) -> Iterable[tuple[Request, Outcome]]:
        import torch

        request = self._queue.pop(0)
        if request.future.cancelled():
            return []
        with torch.inference_mode():
            return [(request, self._answered(request))]

    @property
    def kept_share(self) -> float:
        """The share of the held pairs of keys and values that are not dropped."""
        layers = [layer.self_attn for layer in self.model.model.layers]
        dropped = sum(len(one.masked_key_indices[0]) for one in layers if one.masked_key_indices is not None)
        pairs: int = len(layers) * self.model.config.num_key_value_heads * len(self._context)
        return 1 - dropped / pairs

    def _answered(self, request: Request) -> Outcome:
        from upkeep.serving.sampling import Sampler

        if not isinstance(request, Generate) or request.options != NO_OPTIONS:
            return ValueError("kvzip answers in plain text: no probabilities, tools, schemas or stop strings")
        assert isinstance(request.prompt, Parted)
        ids, context = request.prompt.ids(), request.prompt.context
        if ids[:context] != self._context:
            self._compress(ids[:context])
            cached = 0
        else:
            cached = context + common(ids[context:-1], self._question)
        before = max(cached, context)
        self._cache.crop(before)
        self._question = ids[context:]
        sampler = Sampler(request.sampling, request.seed, ids, self.model.device)
        try:
            for token in ids[before:]:
                logits = self._forward(token)
            while (token := sampler.pick(logits)) not in self.chat_tokens.stop_ids:
                if len(sampler.generated) == request.sampling.max_tokens:
                    return Generated(sampler.generated, "length", cached)
                logits = self._forward(token)
        except ValueError as error:  # see `_forward`
            self._question = []
            return error
        return Generated(sampler.generated, "stop", cached)

    def _forward(self, token: int) -> Any:
        """Logits (vocabulary,) after a token that follows what the cache holds.

        One token at a time: kvpress masks a dropped key by one that no query attends to, which it searches for, and for
        the queries of a whole question there is often none.

        Raises:
            ValueError: it has found none.
        """
        import torch

        tokens = torch.tensor([[token]], device=self.model.device)
        return self.model(input_ids=tokens, past_key_values=self._cache, logits_to_keep=1).logits[0, -1]

    def _compress(self, ids: list[int]) -> None:
        """Hold these tokens' keys and values, and choose which of them are dropped."""
        import torch
        from transformers import DynamicCache

        self._context, self._question, self._cache = [], [], DynamicCache()
        with self._press(self.model):
            # Upstream takes the chat's first tokens for a prefix that need not be repeated, and drops them first; here
            # the rules stand there.
            self._press.prefix_length = 0
            self.model.model(input_ids=torch.tensor([ids], device=self.model.device), past_key_values=self._cache)
        self._context = ids


def _require_known(model: Any, spec: ModelSpec) -> None:
    """Refuse a model whose attention kvpress would read in another way than it is computed.

    Its KVzip takes no Gemma. Of Qwen3's mixtures of experts, which it does not list, it would leave out the norm of the
    queries; it is taught that they have one, as Qwen3's other models.
    """
    import kvpress
    from transformers.models.qwen3.modeling_qwen3 import Qwen3Attention
    from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeAttention

    kvpress.utils.Qwen3Attention = (Qwen3Attention, Qwen3MoeAttention)
    known = {one.__name__ for one in kvpress.SUPPORTED_MODELS if "Gemma" not in one.__name__} | {"Qwen3MoeForCausalLM"}
    if (found := type(model).__name__) not in known:
        raise ValueError(f"{spec.label}: kvzip runs {', '.join(sorted(known))}; this is {found}")
