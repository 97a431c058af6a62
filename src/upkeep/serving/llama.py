"""The forward pass of Llama and of models built like it, for the transformers engine.

It does the operations of transformers' own modules in their order, so its numbers are theirs bit by bit (not those of
`attention_divided`, which transformers does not have), and leaves out what costs a small model more than its sums: a
call of Python's for every module, masks and positions that every layer or step makes anew.
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
Attend = Callable[[int, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""Puts keys and values of a layer (its number) beside the earlier ones and lets queries attend to them, each (rows,
heads, tokens, head size)."""
Weights = Mapping[str, torch.Tensor]
"""By the names that transformers gives them."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a model's configuration says, beside what its weights show."""

    layers: int
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
        return cls(config["num_hidden_layers"], config["num_key_value_heads"], size, config["rms_norm_eps"])


@dataclass(frozen=True, slots=True)
class Linear:
    weight: torch.Tensor
    bias: torch.Tensor | None

    @classmethod
    def of(cls, weights: Weights, name: str) -> Linear:
        return cls(weights[f"{name}.weight"], weights.get(f"{name}.bias"))

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
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
        return self.words(self._norm(self.states(tokens, positions, attend)[:, -keep:]))

    def states(self, tokens: torch.Tensor, positions: torch.Tensor, attend: Attend) -> torch.Tensor:
        """What comes out of the last layer (rows, tokens, width), where keys and values are wanted and no logits."""
        x = functional.embedding(tokens, self.embedding)
        cos, sin = self._cos[positions][:, None], self._sin[positions][:, None]
        for number, layer in enumerate(self._layers):
            normed = layer.before(x)
            query = layer.heads(normed, layer.query, layer.query_norm)
            key = layer.heads(normed, layer.key, layer.key_norm)
            both = _rotated(torch.cat((query, key), 1), cos, sin)
            query, key = both.split((query.shape[1], key.shape[1]), 1)
            found = attend(number, query, key, layer.heads(normed, layer.value))
            x = x + layer.output(found.transpose(1, 2).flatten(2))
            normed = layer.after(x)
            x = x + layer.down(self._activation(layer.gate(normed)) * layer.up(normed))
        return x


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
    """Of queries to keys and values of fewer heads or as many, as transformers has it done by PyTorch."""
    ratio = query.shape[1] // keys.shape[1]
    if ratio > 1 and mask is not None:  # no kernel takes both
        keys, values = (x.repeat_interleave(ratio, 1) for x in (keys, values))
    return functional.scaled_dot_product_attention(query, keys, values, mask, enable_gqa=ratio > 1 and mask is None)


def attention_divided(
    query: torch.Tensor, first: Sequence[torch.Tensor], rest: Sequence[Sequence[torch.Tensor]], size: int
) -> torch.Tensor:
    """Of the queries of some sequences, on a CPU, each to keys and values that all have and to its own. What either
    gives has the weight of the sum of its exponentials, whose logarithms are at hand.

    Args:
        query: (sequences, heads, 1, head size).
        first: keys and values that all have.
        rest: those of each sequence.
        size: how many sequences attend to the first ones; what there are fewer is filled up, for the numbers of a row
            depend on how many there are.
    """
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    sequences, heads = len(query), first[0].shape[1]
    asked = query.new_zeros((size, heads, query.shape[1] // heads, query.shape[3]))  # by the heads of keys
    asked[:sequences] = query.view(sequences, *asked.shape[1:])
    own, sums = asked.new_zeros(asked.shape), asked.new_zeros(asked.shape[:3], dtype=torch.float)
    for row, parts in enumerate(rest):
        own[row : row + 1], sums[row : row + 1] = flash(asked[row : row + 1], *parts)
    found, others = flash(asked.permute(1, 2, 0, 3).flatten(1, 2)[None], *first)
    shared = found.view(*asked.shape[1:3], size, -1).permute(2, 0, 1, 3).contiguous()
    weight = others.view(*asked.shape[1:3], size).permute(2, 0, 1) - sums
    # As wide as what it weighs, for the last few of numbers are computed another way than those before.
    weight = weight[..., None].expand_as(shared).contiguous().sigmoid()
    return torch.lerp(own, shared, weight.to(query.dtype))[:sequences].view_as(query)
