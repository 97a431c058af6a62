"""How weights are changed: by which optimizer, and how fast at which step."""

from __future__ import annotations

import torch

from recipe.network import Llama
from recipe.settings import Stage


def pace(step: int, recipe: Stage) -> float:
    """Of the learning rates: a warm-up, a slow fade, and a linear fall at the end."""
    start = recipe.steps * (1 - recipe.decay)
    fall = 1 - 0.95 * max(0.0, (step - start) / (recipe.steps - start))
    return min(1.0, (step + 1) / recipe.warmup) * fall / (1 + step / recipe.fade)


def optimizers_of(network: Llama, recipe: Stage) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the layers, which learn in half of the steps by it, and AdamW for the others."""
    named = dict(network.named_parameters())
    inner = [p for name, p in named.items() if p.dim() == 2 and name.startswith("layers")]
    embedding = [named["embed_tokens.weight"]]
    gains = [p for p in named.values() if p.dim() < 2]
    adam = torch.optim.AdamW(
        [{"params": embedding, "weight_decay": recipe.weight_decay}, {"params": gains, "weight_decay": 0.0}],
        lr=recipe.learning_rate,
        betas=(0.9, 0.98),
        eps=1e-9,
        fused=True,
    )
    muon = torch.optim.Muon(inner, lr=recipe.muon_rate, weight_decay=recipe.weight_decay)
    optimizers: list[torch.optim.Optimizer] = [muon, adam]
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["initial_lr"] = group["lr"]
    return optimizers
