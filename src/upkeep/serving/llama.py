"""The forward pass of Llama and of models built like it, for the transformers engine.

It does the operations of transformers' own modules in their order, so its numbers are theirs bit by bit, and leaves out
what costs a small model more than its sums: a call of Python's for every module, masks and positions that every layer
or step makes anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

KINDS = frozenset({"llama", "qwen2", "qwen3"})
"""Types of models that are built like this."""
Attend = Callable[[int, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""Puts keys and values of a layer (its number) beside the earlier ones and lets queries attend to them, each (rows,
heads, tokens, head size)."""


@dataclass(frozen=True, slots=True)
class Linear:
    weight: torch.Tensor
    bias: torch.Tensor | None

    @classmethod
    def of(cls, module: Any) -> Linear:
        return cls(module.weight, module.bias)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return functional.linear(x, self.weight, self.bias)


@dataclass(frozen=True, slots=True)
class Norm:
    """Division by the root of the mean square, in float32."""

    weight: torch.Tensor
    epsilon: float

    @classmethod
    def of(cls, module: Any) -> Norm:
        return cls(module.weight, module.variance_epsilon)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.epsilon)
        return self.weight * wide.to(x.dtype)


class Layer:
    """One layer.

    Args:
        module: of transformers.
    """

    def __init__(self, module: Any) -> None:
        attention, mlp = module.self_attn, module.mlp
        self.query, self.key, self.value = map(Linear.of, (attention.q_proj, attention.k_proj, attention.v_proj))
        self.output, self.head_size = Linear.of(attention.o_proj), attention.head_dim
        norms = [getattr(attention, name, None) for name in ("q_norm", "k_norm")]  # Qwen 3 has them
        self.query_norm, self.key_norm = (None if norm is None else Norm.of(norm) for norm in norms)
        self.before, self.after = Norm.of(module.input_layernorm), Norm.of(module.post_attention_layernorm)
        self.gate, self.up, self.down = map(Linear.of, (mlp.gate_proj, mlp.up_proj, mlp.down_proj))
        self.activation = mlp.act_fn

    def heads(self, x: torch.Tensor, linear: Linear, norm: Norm | None = None) -> torch.Tensor:
        """(rows, heads, tokens, head size)"""
        found = linear(x).view(*x.shape[:2], -1, self.head_size)
        return (found if norm is None else norm(found)).transpose(1, 2)


class Llama:
    """Use where no gradient is wanted.

    Args:
        model: of transformers, one of `KINDS`.
        context_length: tokens that a sequence has at most.
    """

    def __init__(self, model: Any, context_length: int) -> None:
        self._embedding, self._words = model.model.embed_tokens.weight, Linear.of(model.lm_head)
        self._layers = [*map(Layer, model.model.layers)]
        self._norm = Norm.of(model.model.norm)
        places = torch.arange(context_length, device=self._embedding.device)[None]
        self._cos, self._sin = (table[0] for table in model.model.rotary_emb(self._embedding, places))

    def __call__(self, tokens: torch.Tensor, positions: torch.Tensor, attend: Attend, keep: int) -> torch.Tensor:
        """Logits (rows, keep, vocabulary) after tokens (rows, tokens), whose positions are given alike; `keep` 0 is all
        of them."""
        x = functional.embedding(tokens, self._embedding)
        cos, sin = self._cos[positions][:, None], self._sin[positions][:, None]
        for number, layer in enumerate(self._layers):
            normed = layer.before(x)
            query = _rotated(layer.heads(normed, layer.query, layer.query_norm), cos, sin)
            key = _rotated(layer.heads(normed, layer.key, layer.key_norm), cos, sin)
            found = attend(number, query, key, layer.heads(normed, layer.value))
            x = x + layer.output(found.transpose(1, 2).flatten(2))
            normed = layer.after(x)
            x = x + layer.down(layer.activation(layer.gate(normed)) * layer.up(normed))
        return self._words(self._norm(x[:, -keep:]))


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
