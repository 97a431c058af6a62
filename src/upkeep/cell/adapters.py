"""Adapters in the format of PEFT: LoRA's, which are added to the weights that they were trained on, and prefixes.

A LoRA adapter holds two matrices A (rank, in) and B (out, rank) for each adapted layer; with them its weights are
W + s B A, where s is alpha / rank (Hu et al. 2022, section 4.1), or alpha / sqrt(rank) for rank-stabilised ones.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."
"""Before the names of layers in an adapter."""


def merge(base: Path, adapters: Sequence[Path], output: Path) -> None:
    """Write a model with adapters added to its weights, one after the other.

    Sums are made in 32 bits and rounded once for each adapter, as PEFT does it when it merges.

    Args:
        base: folder of a model in the transformers format, with safetensors.
        output: an empty folder.

    Raises:
        ValueError: an adapter is of another kind, or adapts a layer that the model does not have.
    """
    given = [_read(adapter) for adapter in adapters]
    left = [set(one) for one in given]
    for path in sorted(base.iterdir()):
        if path.suffix != ".safetensors":
            if path.is_file():
                shutil.copyfile(path, output / path.name)
            continue
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata()
        tensors = load_file(path)
        for layers, missing in zip(given, left, strict=True):
            for name in missing & tensors.keys():
                tensors[name] = _added(tensors[name], *layers[name])
            missing.difference_update(tensors)
        save_file(tensors, output / path.name, metadata)
    for adapter, missing in zip(adapters, left, strict=True):
        if missing:
            raise ValueError(f"{adapter}: the model in {base} has no {', '.join(sorted(missing)[:3])}")


def join(adapters: Sequence[Path], output: Path) -> None:
    """Write one adapter that adds what several add, each of which was trained on the ones before.

    Its matrices are theirs, side by side, with B scaled, so its rank is the sum of theirs and its scale 1.

    Args:
        output: a folder that is not there. What lies beside weights and settings is that of the last.

    Raises:
        ValueError: an adapter is of another kind, or two of them adapt other layers.
    """
    given = [_read(adapter) for adapter in adapters]
    if lost := {name for one in given for name in given[0].keys() ^ one.keys()}:
        raise ValueError(f"{adapters[-1]}: adapts other layers than {adapters[0]}: {min(lost)}")
    shutil.copytree(adapters[-1], output)
    if len(adapters) == 1:
        return
    tensors = {}
    for name in given[0]:
        layer = PREFIX + name.removesuffix(".weight")
        parts = [one[name] for one in given]
        tensors[f"{layer}.lora_A.weight"] = torch.cat([a for a, _, _ in parts])
        tensors[f"{layer}.lora_B.weight"] = torch.cat([(scale * b.float()).to(b.dtype) for _, b, scale in parts], dim=1)
    save_file(tensors, output / TENSORS, {"format": "pt"})
    whole = sum(rank(adapter) for adapter in adapters)
    config = _raw_config(adapters[-1]) | {"r": whole, "lora_alpha": whole, "use_rslora": False}
    (output / CONFIG).write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", "utf-8")


def rank(adapter: Path) -> int:
    """The rank of a LoRA adapter.

    Raises:
        ValueError: it is of another kind.
    """
    return int(_config(adapter)["r"])


def is_prefix(adapter: Path) -> bool:
    """Whether it is trained keys and values, which stand before every prompt."""
    return _raw_config(adapter).get("peft_type") in ("PREFIX_TUNING", "CARTRIDGE")


def prefix(adapter: Path) -> torch.Tensor:
    """The keys and values of a prefix: (layers, 2, heads, tokens, head size), as they are in a cache, so keys are
    turned to positions from 0 on.

    Raises:
        ValueError: it has none.
    """
    config, tensors = _raw_config(adapter), load_file(adapter / TENSORS)
    if "prompt_embeddings" not in tensors or config.get("prefix_projection"):
        raise ValueError(f"{adapter}: expected `prompt_embeddings`, without `prefix_projection`")
    layers, heads = int(config["num_layers"]), int(config["num_attention_heads"])
    found = tensors["prompt_embeddings"]
    return found.view(len(found), layers, 2, heads, -1).permute(1, 2, 3, 0, 4)


def _raw_config(adapter: Path) -> dict[str, Any]:
    return json.loads((adapter / CONFIG).read_text("utf-8"))  # type: ignore[no-any-return]


def _config(adapter: Path) -> dict[str, Any]:
    """Raises ValueError where it is an adapter that is not just two matrices a layer."""
    config = _raw_config(adapter)
    plain = {"peft_type": "LORA", "bias": "none", "use_dora": False, "fan_in_fan_out": False}
    plain |= dict.fromkeys(("modules_to_save", "rank_pattern", "alpha_pattern", "trainable_token_indices"))
    if other := sorted(name for name, value in plain.items() if (config.get(name) or value) != value):
        raise ValueError(f"{adapter / CONFIG}: {', '.join(other)} other than plain LoRA's; merge it when it is trained")
    return config


def _read(adapter: Path) -> dict[str, tuple[torch.Tensor, torch.Tensor, float]]:
    """(A, B, scale) by the name of the weights that they are added to."""
    config = _config(adapter)
    tensors = load_file(adapter / TENSORS)
    r, alpha = int(config["r"]), float(config["lora_alpha"])
    scale = alpha / (r**0.5 if config.get("use_rslora") else r)
    ends = (".lora_A.weight", ".lora_B.weight")
    if strange := [name for name in tensors if not name.startswith(PREFIX) or not name.endswith(ends)]:
        raise ValueError(f"{adapter / TENSORS}: {strange[0]!r} belongs to no plain LoRA; merge it when it is trained")
    layers = sorted({name.rpartition(".lora_")[0] for name in tensors})
    return {
        f"{layer.removeprefix(PREFIX)}.weight": (tensors[layer + ends[0]], tensors[layer + ends[1]], scale)
        for layer in layers
    }


def _added(weights: torch.Tensor, a: torch.Tensor, b: torch.Tensor, scale: float) -> torch.Tensor:
    return (weights.float() + scale * (b.float() @ a.float())).to(weights.dtype)
