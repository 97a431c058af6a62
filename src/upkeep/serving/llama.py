"""The forward pass of Llama and of models built like it, for the transformers engine.

It does the operations of transformers' own modules in their order, so its numbers are theirs but for the order of sums
in products (`Linear`) and in attention to what other sequences have, too, or to masked keys; and leaves out what costs
a small model more than its sums: a call of Python's for every module, masks and positions that every layer or step
makes anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

KINDS = frozenset({"llama", "qwen2", "qwen3"})
"""Types of models that are built like this."""
EMBEDDING = "model.embed_tokens.weight"
WIDE = 8
"""Rows of random numbers by which an activation is tried."""
FEW = 16
"""Tokens up to which queries are put together by the heads of keys, and no keys are copied."""
LARGE = 500_000
"""Numbers of a matrix from which on oneDNN is faster whatever it is multiplied with."""
EVERY = slice(None)
Attend = Callable[[int, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""Puts keys and values of a layer (its number) beside the earlier ones and lets queries attend to them, each (rows,
heads, tokens, head size). Of the last layer there are no queries where nothing is wanted of it."""
Weights = Mapping[str, torch.Tensor]
"""By the names that transformers gives them."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a model's configuration says, beside what its weights show."""

    layers: int
    queries: int
    """Heads of queries."""
    heads: int
    """Of keys and values."""
    size: int
    """Numbers of a head."""
    epsilon: float

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Shape | None:
        """None for a model of another kind, or one whose weights are numbers of a few bits."""
        types = {*(config.get("layer_types") or ())}
        if config["model_type"] not in KINDS or not types <= {"full_attention"} or config.get("quantization_config"):
            return None
        heads = config["num_attention_heads"]
        size = config.get("head_dim") or config["hidden_size"] // heads
        return cls(config["num_hidden_layers"], heads, config["num_key_value_heads"], size, config["rms_norm_eps"])


@dataclass(frozen=True, slots=True)
class Linear:
    """On a CPU in float32 by oneDNN, which is up to twice as fast as MKL (on processors that are not Intel's); but not
    small matrices in steps, of which each row is one token of a sequence, for it takes longer to begin."""

    weight: torch.Tensor
    bias: torch.Tensor | None
    by_onednn: bool

    @classmethod
    def of(cls, weights: Weights, name: str) -> Linear:
        weight = weights[f"{name}.weight"]
        plain = weight.device.type == "cpu" and weight.dtype == torch.float32
        return cls(weight, weights.get(f"{name}.bias"), plain and torch.backends.mkldnn.is_available())

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Of (rows, tokens, width)."""
        if self.by_onednn and (x.shape[1] > 1 or self.weight.numel() >= LARGE):
            found: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")
            return found
        return functional.linear(x, self.weight, self.bias)


@dataclass(frozen=True, slots=True)
class Norm:
    """Division by the root of the mean square, in float32."""

    weight: torch.Tensor
    epsilon: float

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.epsilon)
        return self.weight * wide.to(x.dtype)


class Layer:
    """One layer, of so many that `name` has its number."""

    def __init__(self, weights: Weights, name: str, shape: Shape) -> None:
        self.size = shape.size
        self.query, self.key, self.value, self.output = (
            Linear.of(weights, f"{name}.self_attn.{part}_proj") for part in "qkvo"
        )
        norms = (f"{name}.self_attn.{part}_norm.weight" for part in "qk")  # Qwen 3 has them
        self.query_norm, self.key_norm = (
            Norm(weights[norm], shape.epsilon) if norm in weights else None for norm in norms
        )
        self.before, self.after = (
            Norm(weights[f"{name}.{part}_layernorm.weight"], shape.epsilon) for part in ("input", "post_attention")
        )
        self.gate, self.up, self.down = (
            Linear.of(weights, f"{name}.mlp.{part}_proj") for part in ("gate", "up", "down")
        )

    def heads(self, x: torch.Tensor, linear: Linear, norm: Norm | None = None) -> torch.Tensor:
        """(rows, heads, tokens, head size)"""
        found = linear(x).view(*x.shape[:2], -1, self.size)
        return (found if norm is None else norm(found)).transpose(1, 2)


class Llama:
    """Use where no gradient is wanted.

    Args:
        cosine, sine: (tokens, head size), of all positions.
    """

    def __init__(
        self,
        weights: Weights,
        shape: Shape,
        cosine: torch.Tensor,
        sine: torch.Tensor,
        activation: Callable[[torch.Tensor], torch.Tensor] = functional.silu,
    ) -> None:
        self._activation = activation
        self.shape, self.embedding = shape, weights[EMBEDDING]
        self.words = Linear.of(weights, "lm_head")
        self._layers = [Layer(weights, f"model.layers.{n}", shape) for n in range(shape.layers)]
        self._norm = Norm(weights["model.norm.weight"], shape.epsilon)
        self._cos, self._sin = cosine, sine

    def __call__(self, tokens: torch.Tensor, positions: torch.Tensor, attend: Attend, keep: int) -> torch.Tensor:
        """Logits (rows, keep, vocabulary) after tokens (rows, tokens), whose positions are given alike; `keep` 0 is all
        of them."""
        return self.logits(self.states(tokens, positions, attend)[:, -keep:])

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """Of what came out of the last layer."""
        return self.words(self._norm(states))

    def states(
        self,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        attend: Attend,
        layers: int | None = None,
        wanted: slice | None = EVERY,
    ) -> torch.Tensor:
        """What comes out of the last layer, or that of this number, (rows, tokens, width).

        Args:
            wanted: of which tokens. Of others the last layer leaves out what comes after attention, for nothing that is
                asked later has a use for it; with None, of no token, it has keys and values alone.
        """
        x = functional.embedding(tokens, self.embedding)
        cos, sin = self._cos[positions][:, None], self._sin[positions][:, None]
        *_, last = used = self._layers[:layers]
        for number, layer in enumerate(used):
            normed = layer.before(x)
            key, value = layer.heads(normed, layer.key, layer.key_norm), layer.heads(normed, layer.value)
            if wanted is None and layer is last:
                attend(number, key[:, :, :0], _rotated(key, cos, sin), value)
                return x[:, :0]
            query = layer.heads(normed, layer.query, layer.query_norm)
            both = _rotated(torch.cat((query, key), 1), cos, sin)
            query, key = both.split((query.shape[1], key.shape[1]), 1)
            found = attend(number, query, key, value)
            if wanted is not EVERY and layer is last:
                # A copy, for sums may depend on where in memory numbers are.
                x, found = x[:, wanted], found[:, :, wanted].clone(memory_format=torch.contiguous_format)
            x = x + layer.output(found.transpose(1, 2).flatten(2))
            normed = layer.after(x)
            x = x + layer.down(self._activation(layer.gate(normed)) * layer.up(normed))
        return x

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def agreeing(self, sizes: Sequence[int], steps: bool) -> list[int]:
        """Of numbers of rows the most with which a token gives the same bits, in whatever row it is and whatever is in
        the others. It does not where a machine divides the work among threads in the middle of a row, or computes few
        rows in another order. One layer tells it, for all are alike.

        Args:
            steps: the rows are the next tokens of sequences, of which logits are wanted; or else of one sequence.
        """
        device, layer = self.embedding.device, self._layers[0]
        places = torch.zeros(1, 1, dtype=torch.long, device=device)
        wide = torch.randn(WIDE, len(layer.gate.weight), generator=torch.Generator().manual_seed(0))

        def itself(_: int, query: torch.Tensor, __: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
            return value.repeat_interleave(query.shape[1] // value.shape[1], 1)

        def computed(tokens: torch.Tensor) -> torch.Tensor:
            states = self.states(tokens[:, None] if steps else tokens[None], places, itself, layers=1)
            return self.logits(states)[:, 0] if steps else states[0]

        def alike(rows: int, one: torch.Tensor) -> bool:
            rolled = (computed(tokens[:rows].roll(n)).roll(-n, 0) for n in (1, rows // 2))
            # An activation by itself, too, for what differs there is lost in later sums: the last few numbers that a
            # thread has are computed another way than those before.
            each = wide.to(self.embedding)[:, None].expand(-1, rows, -1)
            active = (self._activation(row.contiguous()) for row in each)
            return all(torch.equal(one, other) for other in rolled) and all((row == row[0]).all() for row in active)

        tokens = torch.arange(max(sizes), device=device) % len(self.embedding)
        found = {rows: computed(tokens[:rows]) for rows in sizes}
        found = {rows: one for rows, one in found.items() if alike(rows, one)}
        groups = ([n for n, other in found.items() if all(map(torch.equal, one, other))] for one in found.values())
        return max(groups, key=len, default=[])


def of(model: Any, context_length: int) -> Llama | None:
    """A model that transformers has loaded; None where it is of another kind."""
    if (shape := Shape.of(model.config.to_dict())) is None:
        return None
    weights = model.state_dict()
    places = torch.arange(context_length, device=model.device)[None]
    cosine, sine = (table[0] for table in model.model.rotary_emb(weights[EMBEDDING], places))
    return Llama(weights, shape, cosine, sine, model.model.layers[0].mlp.act_fn)


def _rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


def causal_mask(before: int, new: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor | None:
    """What `new` tokens after `before` others may not attend to, as numbers to be added; None for a single token."""
    if new == 1:
        return None
    return torch.full((new, before + new), -math.inf, dtype=dtype, device=device).triu(before + 1)


def attention(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None = None
) -> torch.Tensor:
    """Of queries to keys and values of fewer heads or as many, as transformers has it done by PyTorch, but for a few
    tokens that are masked."""
    ratio = query.shape[1] // keys.shape[1]
    if ratio > 1 and mask is not None:  # no kernel takes both
        if query.shape[2] <= FEW:
            asked = by_heads(query.transpose(1, 2), keys.shape[1])
            found = functional.scaled_dot_product_attention(asked, keys, values, mask.repeat(ratio, 1))
            return by_tokens(found, ratio).transpose(1, 2)
        keys, values = (x.repeat_interleave(ratio, 1) for x in (keys, values))
    return functional.scaled_dot_product_attention(query, keys, values, mask, enable_gqa=ratio > 1 and mask is None)


def attention_with_sums(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """On a CPU, of queries to keys and values of as many heads; and the logarithms of their sums of exponentials
    (rows, heads, queries)."""
    found, sums = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(query, keys, values, attn_mask=mask)
    return found, sums


def attention_divided(
    query: torch.Tensor,
    own: torch.Tensor,
    sums: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    size: int,
) -> torch.Tensor:
    """Of tokens of some sequences, on a CPU, to keys and values that all have and to those of its own. What either
    gives has the weight of the sum of its exponentials, whose logarithms are at hand.

    Args:
        query: (tokens, heads, head size).
        own: what they find in those of their own sequence, alike.
        sums: and the logarithms there (tokens, heads).
        keys, values: those that all have.
        size: how many tokens attend to these; what there are fewer is filled up, for the numbers of a token depend on
            how many there are.
    """
    tokens, ratio = len(query), query.shape[1] // keys.shape[1]
    asked, rest, others = (one.new_zeros((size, *one.shape[1:])) for one in (query, own, sums))
    asked[:tokens], rest[:tokens], others[:tokens] = query, own, sums
    found, logarithms = attention_with_sums(by_heads(asked[None], keys.shape[1]), keys, values)
    shared, of_shared = by_tokens(found, ratio)[0], by_tokens(logarithms[..., None], ratio)[0]
    # As wide as what it weighs, for the last few of numbers are computed another way than those before.
    weight = (of_shared - others[..., None]).expand_as(shared).contiguous().sigmoid()
    return torch.lerp(rest, shared, weight.to(query.dtype))[:tokens]


def by_heads(query: torch.Tensor, heads: int) -> torch.Tensor:
    """Queries of some sequences (rows, tokens, heads of queries, head size), as many as belong to each of the heads of
    keys together: (rows, heads, queries, head size). It is a copy, for sums may depend on where in memory numbers
    are."""
    asked = query.unflatten(2, (heads, -1)).permute(0, 2, 3, 1, 4)
    return asked.clone(memory_format=torch.contiguous_format).flatten(2, 3)


def by_tokens(found: torch.Tensor, ratio: int) -> torch.Tensor:
    """`by_heads` undone, with so many heads of queries to one of keys."""
    return found.unflatten(2, (ratio, -1)).permute(0, 3, 1, 2, 4).flatten(2, 3)
