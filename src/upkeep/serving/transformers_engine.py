"""The transformers engine, on a CPU or a GPU: prompts one at a time with exact reuse of earlier ones, answers in lanes.

Floating-point sums depend on the shapes they are computed in. So that an answer is the same, bit by bit, whether its
prefix was in the cache or not, a prompt is computed in segments, and where they begin depends on the prompt alone
(`upkeep.cell.tokens`). A pass over several segments has one of `PASS_ROWS` rows, the end of its last layer the fewest
that hold what is wanted of it, and each segment attends by itself.
The cache holds the latest prompt and is cut back only to the beginning of a segment; of other prompts that came last,
segments are kept and copied into it.

The tokens of answers are computed for up to `LANES` sequences at a time, of each the next one and some more that are
drafted (`upkeep.serving.drafts`): those count that it would have picked anyway. A step has one of `ROWS` rows, empty
ones too, and each sequence attends to its own keys by itself, but for a long beginning, to which all that have it
attend together. Which sequences are decoded alone, and what their beginnings are, depends on the model and their own
prompts. What is drafted for those in lanes depends on earlier answers, too, and has no part in what a token finds
(`upkeep.serving.keys.Lanes`).

No row of a product depends on another one or on how many there are: the engine looks for which numbers of rows that is
so when it starts. So order, resuming and other probes never change an answer.
"""

from __future__ import annotations

import functools
import importlib.metadata
import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from upkeep.cell import adapters
from upkeep.cell.lockstep import Engine, Generate, Generated, Outcome, Request, Score
from upkeep.cell.tokens import ChatTokens, Segment, nearest, shared_segments
from upkeep.contract import EngineSettings, ModelSpec
from upkeep.serving import llama, llama_files
from upkeep.serving.drafts import Answers, Drafts
from upkeep.serving.keys import Cut, Held, Lanes, as_cache, cut, extend
from upkeep.serving.lanes import DRAFTED, KEPT_TOKENS, LANE_TOKENS, LANES, PASS_ROWS, ROWS, fewest, of_last
from upkeep.serving.sampling import Constraint, Running, Sampler
from upkeep.serving.segments import KeptSegments, passes

SCORED_TOKENS = 256
"""Tokens whose probabilities are computed at a time: bounds the memory, for each has one number a word known."""
OWN_SEGMENTS = 2
"""At the end of a prompt, that no other one has: its question, and what a template puts after it."""
MOVING = frozenset({"dynamic", "longrope"})
"""Types of rotary positions that depend on the longest sequence of a step."""


class TransformersEngine(Engine):
    """A causal language model of the transformers library.

    Args:
        path: folder with weights and tokenizer.
        settings: `options` takes `device` (default: `cuda` where the model asks for a GPU, else `cpu`).
        prefix: folder of trained keys and values that stand before every prompt (`upkeep.cell.adapters.prefix`).

    Raises:
        ValueError: the prefix is of another model; or the model has layers whose state cannot be cut back to a
            shorter text (linear attention, Mamba).
    """

    name = "transformers"
    version = importlib.metadata.version("transformers")

    def __init__(self, path: str, spec: ModelSpec, settings: EngineSettings, prefix: Path | None = None) -> None:
        self.chat_tokens = ChatTokens(path, spec)
        kept = None if prefix is None else adapters.prefix(prefix)
        self._before = 0 if kept is None else kept.shape[3]
        """Tokens of the prefix."""
        super().__init__(self.chat_tokens, spec.context_length - self._before)
        torch.set_num_threads(settings.threads)
        self.device = torch.device(settings.options.get("device", "cuda" if spec.gpus else "cpu"))
        self.dtype = getattr(torch, spec.dtype)
        self._model: Any = None
        """Of transformers, where it computes; None where `_llama` does."""
        self._llama: llama.Llama | None = None
        if not spec.rope_scaling:
            self._llama = llama_files.read(Path(path), self.dtype, self.device, spec.context_length)
        if self._llama is None:
            self._load(path, spec)
        self._drafted = DRAFTED if self._llama is not None else 0
        """Attention of transformers' own models copies all keys where it masks some of a few."""
        layers, heads, size = self._shape
        self.prefix_cache = settings.prefix_cache
        self._layers = [Held() for _ in range(layers)]
        if kept is not None:
            self._put_before(kept, (layers, 2, heads, self._before, size))
        self._cache = None if self._llama is not None else as_cache(self._layers)
        self._held: Sequence[Segment[int]] = ()
        """The segments whose keys and values the cache holds."""
        self._kept: KeptSegments[Cut] = KeptSegments(KEPT_TOKENS)
        """Of segments of earlier prompts the keys and values."""
        self._queue: list[Request] = []
        self._rows = [] if self._llama is None else self._llama.agreeing(ROWS, steps=True)
        """How many a step may have."""
        self._pass_rows = [] if self._llama is None else self._llama.agreeing(PASS_ROWS, steps=False)
        """How many a pass over segments may have."""
        self._answers: Answers | None = None
        """From which drafts are made in lanes, where they have no part in the answers."""
        if self._llama is not None and self._rows:
            queries, like = self._llama.shape.queries, self._llama.embedding
            self._held_in_lanes = Lanes(layers, queries, heads, size, like, self._rows)
            self._answers = Answers() if self._held_in_lanes.steady else None
        self.lanes = most = min(LANES, max(self._rows, default=1 + DRAFTED) // (1 + DRAFTED))
        self._lanes: list[Running | None] = [None] * most

    def _load(self, path: str, spec: ModelSpec) -> None:
        """By transformers, which takes seconds to import."""
        from transformers import AutoConfig, AutoModelForCausalLM

        config = AutoConfig.from_pretrained(path)
        text = config.get_text_config()
        types = set(getattr(text, "layer_types", None) or ())
        if stateful := {t for t in types if "attention" not in t or "linear" in t}:
            raise ValueError(f"{spec.label}: layers of type {sorted(stateful)} need the vllm engine")
        if spec.rope_scaling:
            text.rope_parameters = {**(text.rope_parameters or {}), **spec.rope_scaling}
        rope = (getattr(text, "rope_parameters", None) or {}).get("rope_type")
        model: Any = AutoModelForCausalLM.from_pretrained(
            path, config=config, dtype=self.dtype, attn_implementation="sdpa", local_files_only=True
        )
        model.to(self.device).eval()
        if rope not in MOVING:
            with torch.inference_mode():
                self._llama = llama.of(model, spec.context_length)
        self._model = model if self._llama is None else None

    @property
    def _shape(self) -> tuple[int, int, int]:
        """Layers, heads of keys, and numbers in each."""
        if self._llama is not None:
            return self._llama.shape.layers, self._llama.shape.heads, self._llama.shape.size
        text = self._model.config.get_text_config()
        heads = getattr(text, "num_key_value_heads", text.num_attention_heads)
        size = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
        return text.num_hidden_layers, heads, size

    def add(self, request: Request) -> None:
        self._queue.append(request)

    @property
    def busy(self) -> bool:
        return bool(self._queue) or any(self._lanes)

    def reset(self) -> None:
        # What is held changes no answer, but it would change what a cell counts as cached: earlier answers, too, for
        # of two that are decoded together the one ends first whose drafts are right.
        self._queue.clear()
        self._lanes = [None] * len(self._lanes)
        if self._rows:
            self._held_in_lanes.empty()
        if self._answers is not None:
            self._answers.clear()
        self._held = ()
        self._kept.clear()
        self.computed = 0

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def step(self) -> Iterable[tuple[Request, Outcome]]:
        """Fill the lanes, with prompts that begin alike one after the other, and go on until a request is answered."""
        self._give_up()
        finished: list[tuple[Request, Outcome]] = []
        while self._queue and None in self._lanes and not finished:
            held = self._held if self.prefix_cache else ()
            request = self._queue.pop(nearest(held, (request.prompt for request in self._queue)))
            if request.future.cancelled():
                continue
            outcome = self._begin(request) if isinstance(request, Generate) else self._score(request)
            if outcome is not None:
                finished.append((request, outcome))
        while not finished and any(self._lanes):
            finished += self._decode()
        return finished

    # ------------------------------------------------------------ work

    def _give_up(self) -> None:
        """Empty the lanes whose answers nobody waits for any more."""
        for n, lane in enumerate(self._lanes):
            if lane and lane.request.future.cancelled():
                self.computed += lane.request.prompt.length - lane.cached
                self._lanes[n] = None

    @functools.cached_property
    def _permitting(self) -> Any:
        """The tokenizer as constraints read it."""
        from llguidance.hf import from_tokenizer

        known = self._llama.words if self._llama is not None else self._model.get_output_embeddings()
        words = len(known.weight)
        return from_tokenizer(self.chat_tokens.tokenizer, words, eos_token=sorted(self.chat_tokens.stop_ids))

    def _begin(self, request: Generate) -> Generated | ValueError | None:
        """Compute a prompt and put it in a free lane; the answer where that ends it, or where it takes no lane."""
        constraint = None
        if request.options.grammar is not None:
            try:
                constraint = Constraint(request.options.grammar, self._permitting)
            except ValueError as error:
                return error
        logits, cached = self._prefill(request.prompt.segments)
        sampler = Sampler(request.sampling, request.seed, request.prompt.ids(), self.device)
        most = self._before + request.prompt.length + request.sampling.max_tokens
        in_lanes = bool(self._rows) and most <= LANE_TOKENS
        drafts = Drafts(request.prompt.segments, self._answers if in_lanes else None)
        running = Running(request, sampler, self.chat_tokens.stop_ids, cached, self.chat_tokens, constraint, drafts)
        generated = running.saw(logits[-1])
        if generated is None and in_lanes:
            lane = self._lanes.index(None)
            self._lanes[lane] = running
            leading = request.prompt.segments[:-OWN_SEGMENTS]
            self._held_in_lanes.fill(lane, self._layers, leading, self._before + sum(map(len, leading)), most)
            return None
        while generated is None:
            tokens = running.next(self._drafted)
            generated = running.went_on(tokens, self._pass([tokens], keep=0))
            self._crop(running.place)
        self._crop(request.prompt.length)
        return generated

    def _decode(self) -> list[tuple[Request, Outcome]]:
        """One more token for each lane, or several; what is answered leaves it."""
        used: list[tuple[int, Running, int, Sequence[int]]] = []
        for n, lane in enumerate(self._lanes):
            if lane is not None:
                place = self._before + lane.place
                used.append((n, lane, place, lane.next(min(self._drafted, self._held_in_lanes.most(n, place) - 1))))
        logits = self._step([(n, place, tokens) for n, _, place, tokens in used])
        finished: list[tuple[Request, Outcome]] = []
        for n, lane, _, tokens in used:
            generated = lane.went_on(tokens, logits)
            logits = logits[len(tokens) :]
            if generated is not None:
                self._lanes[n] = None
                if isinstance(generated, Generated):
                    lane.drafts.ended(generated.ids)
                finished.append((lane.request, generated))
        return finished

    def _step(self, lanes: Sequence[tuple[int, int, Sequence[int]]]) -> torch.Tensor:
        """Logits (rows, vocabulary) after the next tokens of some lanes, which are the first rows.

        Args:
            lanes: each with the position of its first token, and its tokens.
        """
        assert self._llama is not None
        self._held_in_lanes.begin([(lane, position, len(tokens)) for lane, position, tokens in lanes])
        rows = [(token, place) for _, position, tokens in lanes for place, token in enumerate(tokens, position)]
        rows += [(0, 0)] * (fewest(self._rows, len(rows)) - len(rows))
        tokens, positions = torch.tensor(rows, device=self.device).T[..., None]
        return self._llama(tokens, positions, self._held_in_lanes.attend, keep=1)[:, 0]

    def _score(self, request: Score) -> list[float]:
        """Natural log-probability of each token of the continuation, from logits in float32."""
        logits, cached = self._prefill(request.prompt.segments)
        self.computed += request.prompt.length - cached
        wanted = torch.tensor(request.continuation, device=self.device, dtype=torch.long)
        found: list[float] = []
        for start in range(0, len(wanted), SCORED_TOKENS):
            block = request.continuation[start : start + SCORED_TOKENS]
            logits = torch.cat([logits[-1:], self._pass([block], keep=0)])
            known = logits[:-1].float().log_softmax(-1)
            found += known.gather(1, wanted[start : start + len(block), None])[:, 0].tolist()
        self._crop(request.prompt.length)
        return found

    def _prefill(self, segments: Sequence[Segment[int]]) -> tuple[torch.Tensor, int]:
        """Compute a prompt. Returns the last token's logits (1, vocabulary) and how many tokens were reused.

        The last segment is always computed, for its logits are not kept.
        """
        ends = [0, *itertools.accumulate(map(len, segments))]
        held, kept = 0, []
        if self.prefix_cache:
            held, kept = shared_segments(self._held, segments[:-1]), self._kept.find(segments[:-1])
        self._crop(ends[held])
        self._held = ()
        extend(self._layers, kept[held:])
        reused = max(held, len(kept))
        *before, last = passes(segments[reused:], max(self._pass_rows, default=0))
        for together in before:
            self._pass(together, keep=None)
        logits = self._pass(last, keep=1)
        self._held = segments
        if self.prefix_cache:
            self._kept.keep(segments, lambda n: cut(self._layers, *(self._before + end for end in ends[n : n + 2])))
        return logits, ends[reused]

    def _pass(self, segments: Sequence[Sequence[int]], keep: int | None) -> torch.Tensor:
        """Logits (keep, vocabulary) after segments, which extend what the cache holds; `keep` 0 is all of them, None
        that none are wanted. Each segment attends by itself, and has no part in how many rows there are."""
        ids = [*itertools.chain.from_iterable(segments)]
        if self._llama is None:
            tokens, last = torch.tensor([ids], device=self.device), 1 if keep is None else keep
            given = {"input_ids": tokens, "past_key_values": self._cache, "use_cache": True, "logits_to_keep": last}
            logits: torch.Tensor = self._model(**given).logits[0]
            return logits
        most = max(self._pass_rows, default=0)
        empty = fewest(self._pass_rows, len(ids)) - len(ids) if len(ids) <= most else 0
        before, top = self._layers[0].length, len(self._layers) - 1
        wanted = None if keep is None else of_last(self._pass_rows, len(ids) + empty, len(ids), keep)
        first_kept = len(ids) - (keep or len(ids))
        rows = [*zip(ids, itertools.count(before), strict=False), *[(0, 0)] * empty]
        tokens, positions = torch.tensor(rows, device=self.device).T[:, None]
        ends = [0, *itertools.accumulate(map(len, segments))]
        parts = [
            (slice(first, end), llama.causal_mask(before + first, end - first, self.dtype, self.device))
            for first, end in itertools.pairwise(ends)
        ]

        def attend(number: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
            found = query.new_zeros(query.shape)
            for here, mask in parts:
                held = self._layers[number].update(key[:, :, here], value[:, :, here])
                if number == top and (wanted is None or here.stop <= first_kept):
                    continue
                # A copy, for sums may depend on where in memory numbers are.
                asked = query[:, :, here].clone(memory_format=torch.contiguous_format)
                found[:, :, here] = llama.attention(asked, *held, mask)
            return found

        states = self._llama.states(tokens, positions, attend, wanted=wanted)
        if wanted is None:
            return states[0]
        return self._llama.logits(states[:, first_kept - wanted.start : len(ids) - wanted.start])[0]

    def _crop(self, length: int) -> None:
        for layer in self._layers:
            layer.length = self._before + length

    def _put_before(self, kept: torch.Tensor, expected: tuple[int, ...]) -> None:
        """Fill the cache with a prefix (layers, 2, heads, tokens, head size); it is never cut off."""
        if expected != (found := tuple(kept.shape)):
            raise ValueError(
                f"a prefix of another model: expected (layers, 2, heads, tokens, size) {expected}, {found}"
            )
        for layer, (keys, values) in zip(self._layers, kept.to(self.device, self.dtype), strict=True):
            layer.update(keys[None], values[None])
