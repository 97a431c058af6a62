"""How weights are changed: by which optimizer, and how fast at which step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor

from recipe.network import PRECISION, Llama
from recipe.settings import Stage

MOMENTUM = 0.95
A, B, C = 3.4445, -4.775, 2.0315
"""Of a polynomial that brings singular values near to 1 (Jordan et al. 2024)."""


class Muon(torch.optim.Optimizer):  # type: ignore[misc]
    """torch.optim.Muon for all matrices of a shape at once, and in the precision of the training: torch's own takes one
    after the other in bfloat16, half of a step where that is slow."""

    def __init__(self, matrices: Iterable[Tensor], lr: float, weight_decay: float) -> None:
        super().__init__(matrices, {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def step(self) -> None:
        for group in self.param_groups:
            alike = defaultdict[torch.Size, list[Tensor]](list)
            for matrix in group["params"]:
                alike[matrix.shape].append(matrix)
            for (rows, columns), matrices in alike.items():
                turned = orthogonal(torch.stack([self._direction(matrix) for matrix in matrices]))
                rate = group["lr"] * max(1, rows / columns) ** 0.5
                for matrix, direction in zip(matrices, turned, strict=True):
                    matrix.mul_(1 - group["lr"] * group["weight_decay"]).add_(direction, alpha=-rate)

    def _direction(self, matrix: Tensor) -> Tensor:
        """Nesterov's momentum."""
        mean = self.state[matrix].setdefault("mean", torch.zeros_like(matrix))
        mean.lerp_(matrix.grad, 1 - MOMENTUM)
        direction: Tensor = matrix.grad.lerp(mean, MOMENTUM)
        return direction


def orthogonal(matrices: Tensor, steps: int = 5) -> Tensor:
    """Matrices (n, rows, columns) with the same singular vectors and with singular values near to 1, by Newton and
    Schulz's iteration."""
    x = matrices.to(PRECISION)
    high = x.shape[1] > x.shape[2]
    x = x.mT if high else x
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = A * x + (B * gram + C * gram @ gram) @ x
    return (x.mT if high else x).to(matrices.dtype)


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
    muon = Muon(inner, lr=recipe.muon_rate, weight_decay=recipe.weight_decay)
    optimizers: list[torch.optim.Optimizer] = [muon, adam]
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["initial_lr"] = group["lr"]
    return optimizers
