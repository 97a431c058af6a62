"""Memory and time on GPUs of the two trainings that learn from what a model says, in the words of `training`.

**Self-distillation** (TRL's `SDFTTrainer`): B samples at once of a batch of N, whose student reads at most p tokens,
whose teacher q, and which answers c. The teacher is a second copy of the weights (P s more), by LoRA the same ones
without the adapter. Of a layer its input alone is kept, and logits are computed of the answer's tokens alone. A step
answers, reads as the teacher, and learns, one after the other; the one that takes most counts:

    answers    N ((p + c) 2 layers k s + max(p w, 12 V)), before there are any gradients
    teacher    B ((p + c) (layers + 1) h s + 4 c V + max(q' w + q' q', 8 c V + q' h s)),   q' = q + c
    learning   B ((p + c) (layers + 1) h s + max((p + c) (b + 2 f s), (p + c) head + 20 c V))

where k is the width of keys, w = (4 h + 3 f) s what a layer has of a token where nothing is kept, b what it keeps
else, and q' q' a mask. 20 V: the student's logits, in float32, of their gradient the two terms (of the teacher's
likeliest tokens, and of all), and what the second is computed by.

**A prefix** (PEFT's `CARTRIDGE`): keys and values of n tokens before every sample, D = 2 layers k numbers each, in
float32. The model's weights are frozen, so a layer keeps no inputs of theirs, and PEFT has no checkpoints beside a
prefix. B samples of t tokens, of which r are the reply's:

    prefix      4 n D, and twice as much of the optimizer, as much again of the gradients
    layers      B layers (t (3 f s + 2 a s + 2 h 4 + (n + t) s) + (n + t) 2 a s)
    logits      B max(V (s t + 12 r) + (n + t) D s, V (2 s t + 4 r)), first beside the cache, which is a copy of its own
                where several heads share their keys
    at the end  the prefix's own gradient, sample by sample: n D (B (s + 4) + 4), when the layers' are gone

The teacher's pass over a piece comes before that, keeps nothing and takes less.

Floating-point operations, beside those of saying what is learnt from, which is an engine's work (`roofline`):

    self-distillation   2 P (q + c) of the teacher, and `training.operations` of p + c, for each answer of each epoch
    a prefix            2 P n to begin with, 2 P (piece + t) of the teacher for each conversation, and for each of each
                        epoch 4 P t + 12 layers a t (n + t / 2): weights are frozen, and all tokens attend to the prefix
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from upkeep.contract import ModelSpec
from upkeep.execution.roofline import Work
from upkeep.operations.plan.amounts import Memory
from upkeep.operations.plan.training import LOGITS, Dimensions, Learnt, dimensions, divided, learnt, operations, used

VALUE = 4
"""Bytes of a logit, and of a number of a prefix."""
DISTILLED = 20
"""Bytes of a logit that is learnt from by a divergence over the likeliest tokens."""


def self_distillation(
    spec: ModelSpec,
    recipe: Mapping[str, Any],
    at_once: int,
    parts: int,
    asked: int,
    shown: int,
    *,
    devices: int = 1,
    on_gpus: bool = True,
) -> Memory:
    """What a step of TRL's trainer takes.

    Args:
        recipe: a variant's parameters.
        asked: tokens of the longest prompt of the student.
        shown: of the teacher.
        at_once, parts, devices, on_gpus: as `training.memory` has them.
    """
    answer = recipe["completion_tokens"]
    d, of = dimensions(spec), learnt(spec, recipe, asked + answer, on_gpus)
    read, told, logits = asked + answer, shown + answer, answer * d.vocabulary
    inputs = read * (d.layers + 1) * d.h * d.s
    passing = told * (_passing(d) + told)
    teacher = inputs + VALUE * logits + max(passing, 2 * VALUE * logits + told * d.h * d.s)
    learning = inputs + max(read * (of.kept + 2 * d.f * d.s), read * of.head + DISTILLED * logits)
    answers = read * 2 * d.layers * d.kv * d.s + max(asked * _passing(d), LOGITS * d.vocabulary)
    meanwhile = of.trained * of.each / devices if parts > 1 else 0.0
    return divided(
        spec,
        of,
        max(at_once * teacher, at_once * learning, at_once * parts * answers - meanwhile),
        parts,
        devices=devices,
        on_gpus=on_gpus,
        beside=0.0 if recipe.get("adapter") == "lora" else d.total * d.s,
    )


def cartridge(
    spec: ModelSpec,
    at_once: int,
    parts: int,
    longest: int,
    reply: int,
    prefix: int,
    *,
    devices: int = 1,
    on_gpus: bool = True,
) -> Memory:
    """What a step of a prefix takes.

    Args:
        longest: tokens of the longest sample, without the prefix.
        reply: of its reply.
        prefix: tokens of the prefix.
        at_once, parts, devices, on_gpus: as `training.memory` has them.
    """
    d = dimensions(spec)
    numbers = prefix * 2 * d.layers * d.kv
    kept = 3 * d.f * d.s + 2 * d.a * d.s + 2 * d.h * 4 + (prefix + longest) * d.s
    layers = d.layers * (longest * kept + (prefix + longest) * 2 * d.a * d.s)
    cache = (prefix + longest) * 2 * d.layers * d.kv * d.s if d.kv < d.a else 0
    first = d.vocabulary * (d.s * longest + LOGITS * reply) + cache
    logits = max(first, d.vocabulary * (2 * d.s * longest + VALUE * reply))
    end = numbers * (at_once * (d.s + VALUE) + VALUE)
    activations = max(at_once * (layers + logits), end)
    of = Learnt(d.total * d.s + numbers * VALUE, numbers, VALUE, numbers * VALUE, kept, 0)
    return divided(spec, of, float(activations), parts, devices=devices, on_gpus=on_gpus)


def answering(answers: float, asked: float, said: float) -> Work:
    """What it takes to say the answers that a student learns from.

    Args:
        answers: how many, in all epochs.
        asked: tokens of the prompt of one.
        said: tokens of one.
    """
    prompt, output = answers * asked, answers * said
    return Work(
        requests=answers,
        prompt=prompt,
        computed=prompt,
        output=output,
        attended=prompt * asked / 2,
        read=output * (asked + said / 2),
    )


def distilled(
    spec: ModelSpec, recipe: Mapping[str, Any], answers: float, asked: float, shown: float, said: float
) -> float:
    """Floating-point operations of what the teacher reads and the student learns.

    Args:
        shown: tokens of the teacher's prompt of one.
        answers, asked, said: as `answering` has them.
    """
    return 2 * used(spec) * answers * (shown + said) + operations(spec, recipe, answers * (asked + said))


def studying(
    pieces: float, piece: float, studies: int, pairs: float, asked: float, written: float, said: float
) -> Work:
    """What an engine is asked by a self-study: of each piece some questions, and a reply to each of them and of the
    pairs over its piece. A prompt that asks begins with what kind of question it wants, those of the replies with the
    piece, which is computed once.

    Args:
        pieces, pairs: how many.
        piece: tokens of one.
        studies: questions that the model asks about each piece.
        asked: tokens of a question as the dataset's prompt puts it.
        written: of a question as the model writes it.
        said: of a reply.
    """
    own = studies * pieces
    replies = own + pairs
    return Work(
        requests=own + replies,
        prompt=own * piece + replies * (piece + asked),
        computed=own * piece + pieces * piece + replies * asked,
        output=own * written + replies * said,
        attended=(own + pieces) * piece**2 / 2 + replies * asked * piece,
        read=own * written * (piece + written / 2) + replies * said * (piece + asked + said / 2),
    )


def studied(
    spec: ModelSpec, epochs: float, conversations: float, piece: float, asked: float, said: float, prefix: int
) -> float:
    """Floating-point operations of what the teacher reads and the prefix learns.

    Args:
        prefix: its tokens.
        piece, asked, said: as `studying` has them.
    """
    d, longest = dimensions(spec), asked + said
    teacher = 2 * used(spec) * (piece + longest)
    attending = 12 * d.layers * d.a * longest * (prefix + longest / 2)
    return 2 * used(spec) * prefix + conversations * (teacher + epochs * (4 * used(spec) * longest + attending))


def _passing(d: Dimensions) -> float:
    """Bytes of a token that passes a layer of which nothing is kept: the text's and the layer's input, what its
    attention made of it, and that normed; three as wide as its feed-forward."""
    return (4 * d.h + 3 * d.f) * d.s
