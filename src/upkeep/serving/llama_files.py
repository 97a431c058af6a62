"""A Llama, or a model built like it, from its own files: transformers' models take longer to import than such a model
to load."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from upkeep.serving.llama import EMBEDDING, Llama, Shape

NAMED = frozenset(
    {"model_type", "hidden_act", "hidden_size", "intermediate_size", "vocab_size", "rms_norm_eps"}
    | {"num_hidden_layers", "num_attention_heads", "num_key_value_heads"}
)
"""What a configuration must say itself: what it does not, transformers takes for granted."""
LEFT = ("rope_scaling", "partial_rotary_factor", "use_sliding_window", "quantization_config")
"""What it may not say."""


def read(folder: Path, dtype: torch.dtype, device: torch.device, context_length: int) -> Llama | None:
    """A model from its files; None where it is of another kind, or not plainly what its configuration says in
    safetensors' files: then transformers loads it, or says what is wrong with it.

    Args:
        context_length: tokens that a sequence has at most.
    """
    config = json.loads((folder / "config.json").read_bytes())
    base = _plain(config)
    files = _files(folder)
    if base is None or not all(file.is_file() for file in files) or (folder / "adapter_config.json").exists():
        return None
    if (shape := Shape.of(config)) is None or _shapes(files) != _expected(config, shape):
        return None
    from safetensors.torch import load_file

    # Each in memory of its own: where a number lies decides in which order some kernels add.
    weights = {name: weight.to(device, dtype, copy=True) for file in files for name, weight in load_file(file).items()}
    weights.setdefault("lm_head.weight", weights[EMBEDDING])
    turns = 1.0 / base ** (torch.arange(0, shape.size, 2, dtype=torch.float) / shape.size)
    angles = torch.arange(context_length, device=device)[:, None].float() * turns.to(device)
    both = torch.cat((angles, angles), -1)
    return Llama(weights, shape, both.cos().to(dtype), both.sin().to(dtype))


def _plain(config: Mapping[str, Any]) -> float | None:
    """The base of a model's rotary positions; None where its configuration leaves anything to transformers."""
    rotary = config.get("rope_parameters") or {}
    scaled = rotary.keys() - {"rope_theta", "rope_type"} or rotary.get("rope_type", "default") != "default"
    if scaled or NAMED - config.keys() or any(config.get(name) for name in LEFT) or config["hidden_act"] != "silu":
        return None
    if config["model_type"] == "qwen3" and "head_dim" not in config:
        return None
    base: float | None = rotary.get("rope_theta", config.get("rope_theta"))
    return base


def _files(folder: Path) -> list[Path]:
    """The files of the weights, where they are in safetensors' format."""
    whole, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if whole.is_file() or not index.is_file():
        return [whole]
    return [folder / name for name in sorted(set(json.loads(index.read_bytes())["weight_map"].values()))]


def _shapes(files: Sequence[Path]) -> dict[str, tuple[int, ...]]:
    """Of each tensor of some files."""
    from safetensors import safe_open

    found: dict[str, tuple[int, ...]] = {}
    for file in files:
        with safe_open(file, "pt") as tensors:
            found |= {name: tuple(tensors.get_slice(name).get_shape()) for name in tensors.keys()}  # noqa: SIM118
    return found


def _expected(config: Mapping[str, Any], shape: Shape) -> dict[str, tuple[int, ...]]:
    """The shape of each tensor that a plain model has, by its configuration."""
    kind, hidden, inner = config["model_type"], config["hidden_size"], config["intermediate_size"]
    asking, asked = config["num_attention_heads"] * shape.size, shape.heads * shape.size
    products = {
        "self_attn.q_proj": (asking, hidden),
        "self_attn.k_proj": (asked, hidden),
        "self_attn.v_proj": (asked, hidden),
        "self_attn.o_proj": (hidden, asking),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    asks = "qkv" if kind == "qwen2" else "qkvo" if config.get("attention_bias") else ""
    biased = [f"self_attn.{part}_proj" for part in asks]
    biased += [name for name in products if name.startswith("mlp") and kind == "llama" and config.get("mlp_bias")]
    layer: dict[str, tuple[int, ...]] = {f"{name}.weight": size for name, size in products.items()}
    layer |= {f"{name}.bias": products[name][:1] for name in biased}
    layer |= {f"{part}_layernorm.weight": (hidden,) for part in ("input", "post_attention")}
    layer |= {f"self_attn.{part}_norm.weight": (shape.size,) for part in "qk" if kind == "qwen3"}
    words = [EMBEDDING] if config.get("tie_word_embeddings") else [EMBEDDING, "lm_head.weight"]
    return {
        **dict.fromkeys(words, (config["vocab_size"], hidden)),
        **{f"model.layers.{n}.{name}": size for n in range(shape.layers) for name, size in layer.items()},
        "model.norm.weight": (hidden,),
    }
