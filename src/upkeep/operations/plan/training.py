"""Memory and time of a training on GPUs.

Bytes, at the step's peak, of P weights of which p are trained, in a dtype of s bytes, T tokens at once (the samples of
`device_batch`, filled up to the longest):

    weights       P s, and p 4 more of an adapter, which is kept in float32
    optimizer     2 p s' : AdamW's two means, in the dtype of what is trained (s' = s, of an adapter 4)
    gradients     p s'   : in the update, and all along where a batch is learnt from in parts
    activations   T (layers b + 12 V + head), with checkpoints T (layers h s + max(b + 2 f s, 12 V + head))
    update        p s'   : what PyTorch's AdamW makes beside them, which works on all weights at once on GPUs

    peak = weights + optimizer + max(activations + gradients of parts, gradients + update)

of a layer of width h, attention width a = heads * head size, feed-forward width f, and a vocabulary of V, whose logits,
their log-softmax and its gradient are float32 (Korthikanti et al. 2022, "Reducing Activation Recomputation in Large
Transformer Models", count so, for another layer). What a layer keeps for its backward pass (b, bytes a token), as
PyTorch's autograd keeps it of transformers' Llama:

    feed-forward  4 f s              gate, up, its activation, their product
    attention     4 a s + t s        queries, keys and values for each head, what comes out; the mask of t tokens
    norms         2 h (4 + 2 s)      trained: float32 input, normed, output; frozen: 2 h 4, and 2 h s without dropout
    adapters      7 r s, with dropout (5 h + a) s + (5 h + a + f) m     its own copies of inputs, masks of m bytes

A mixture of experts has f for the experts of a token; its adapters stand beside the attention alone. On the N GPUs of
the one node that a training runs on, weights, optimizer and gradients are divided by N (FSDP, Zhao et al. 2023), and
each holds one whole layer besides.

Floating-point operations (Kaplan et al. 2020, 2.1): 2 P a token forward, as many for the gradients of what passes a
layer and of what is trained in it: 6 P, of an adapter 4 P; 2 P more where checkpoints are recomputed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from upkeep.contract import ModelSpec
from upkeep.execution.roofline import BYTES
from upkeep.operations.plan.amounts import Memory

ADAPTER = 4
"""Bytes of an adapter's value: PEFT keeps it in float32."""
LOGITS = 12
"""Bytes of a token's logits: log-softmax, and the two gradients that come out of it and the loss, in float32."""


def lacking(spec: ModelSpec) -> list[str]:
    """The fields that a card would need."""
    return [name for name in ("parameters_b", "attention", "widths") if getattr(spec, name) is None]


@dataclass(frozen=True, slots=True)
class Dimensions:
    """Of a model, as the formulas have them."""

    total: float
    """Weights, P."""
    s: int
    """Bytes of one."""
    h: int
    f: int
    a: int
    kv: int
    """Width of keys, and of values."""
    layers: int
    vocabulary: int

    @property
    def layer(self) -> float:
        """Bytes of one layer's weights."""
        return (self.total - 2 * self.vocabulary * self.h) / self.layers * self.s


def dimensions(spec: ModelSpec) -> Dimensions:
    """Of a model whose card has them."""
    shape, widths = spec.attention, spec.widths
    assert spec.parameters_b is not None and shape is not None and widths is not None
    return Dimensions(
        total=spec.parameters_b * 1e9,
        s=BYTES[spec.dtype],
        h=widths.hidden,
        f=widths.feed_forward,
        a=shape.heads * shape.head_size,
        kv=shape.kv_heads * shape.head_size,
        layers=widths.layers,
        vocabulary=widths.vocabulary,
    )


@dataclass(frozen=True, slots=True)
class Learnt:
    """What of a model is trained by a recipe, and what that keeps."""

    weights: float
    """Bytes, of all."""
    trained: float
    """How many of them."""
    each: int
    """Bytes of one of these."""
    largest: float
    """Bytes of the largest matrix of these."""
    kept: float
    """Bytes that a layer keeps of a token."""
    head: float
    """Those that stand before the logits."""


def learnt(spec: ModelSpec, recipe: Mapping[str, Any], longest: int, on_gpus: bool) -> Learnt:
    """In full or by LoRA; the arguments are those of `memory`."""
    d = dimensions(spec)
    kept = 4 * d.f * d.s + 4 * d.a * d.s + longest * d.s
    if recipe.get("adapter") != "lora":
        largest = max(d.vocabulary * d.h, d.h * d.f) * d.s
        norms = d.h * (4 + 2 * d.s)
        return Learnt(d.total * d.s, d.total, d.s, largest, kept + 2 * norms, norms)
    rank, dropout, whole = recipe["lora_rank"], recipe.get("lora_dropout"), recipe.get("train_whole") or ()
    beside = 2 * (d.h + d.a) + 2 * (d.h + d.kv) + (0 if spec.active_b else 3 * (d.h + d.f))
    trained = d.layers * rank * beside + d.vocabulary * d.h * len(whole)
    kept += 2 * d.h * 4 + 7 * rank * d.s
    inputs, masks = 5 * d.h + d.a, 5 * d.h + d.a + d.f
    kept += inputs * d.s + masks * (1 if on_gpus else 4) if dropout else 2 * d.h * d.s
    largest = d.vocabulary * d.h * ADAPTER if whole else 0
    return Learnt(d.total * d.s + trained * ADAPTER, trained, ADAPTER, largest, kept, 4 * d.h)


def memory(
    spec: ModelSpec,
    recipe: Mapping[str, Any],
    at_once: int,
    parts: int,
    longest: int,
    *,
    devices: int = 1,
    checkpoints: bool = True,
    on_gpus: bool = True,
) -> Memory:
    """What a step of `upkeep.cell.finetuning` takes; of `lacking` there is nothing.

    Args:
        recipe: a variant's parameters.
        at_once: samples on a device.
        parts: of a batch, one after the other.
        longest: tokens of the longest sample.
        devices: over which the model is divided.
        checkpoints: whether of a layer its input alone is kept.
        on_gpus: else on a CPU, where dropout's masks are numbers and weights are updated one matrix after the other.
    """
    d, of = dimensions(spec), learnt(spec, recipe, longest, on_gpus)
    head = of.head + LOGITS * d.vocabulary
    # A layer is computed again, with two gradients as wide as its feed-forward, when those of the logits are gone.
    again = d.layers * d.h * d.s + max(of.kept + 2 * d.f * d.s, head)
    held = again if checkpoints else d.layers * of.kept + head
    return divided(spec, of, float(at_once * longest * held), parts, devices=devices, on_gpus=on_gpus)


def divided(
    spec: ModelSpec,
    of: Learnt,
    activations: float,
    parts: int,
    *,
    devices: int,
    on_gpus: bool,
    beside: float = 0.0,
) -> Memory:
    """The same on each of its GPUs.

    Args:
        beside: bytes of weights that nothing trains.
    """
    return Memory(
        weights=(of.weights + beside) / devices + (dimensions(spec).layer if devices > 1 else 0.0),
        optimizer=2 * of.trained * of.each / devices,
        gradients=of.trained * of.each / devices,
        activations=activations,
        update=of.trained * of.each / devices if on_gpus else 2.0 * of.largest,
        parts=parts > 1,
    )


def operations(spec: ModelSpec, recipe: Mapping[str, Any], tokens: float, *, checkpoints: bool = True) -> float:
    """Floating-point operations of a training that reads so many tokens, without those between tokens."""
    each = (4 if recipe.get("adapter") == "lora" else 6) + (2 if checkpoints else 0)
    return each * used(spec) * tokens


def used(spec: ModelSpec) -> float:
    """Weights that a token meets; of a mixture of experts, those that are active."""
    assert spec.parameters_b is not None
    return 1e9 * (spec.active_b or spec.parameters_b)
