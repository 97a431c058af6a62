"""A Llama in as few operations as training on a CPU wants; its weights are those of transformers' LlamaForCausalLM."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_ABLE = torch.cpu.get_capabilities()
PRECISION = torch.bfloat16 if _ABLE.get("avx512_bf16") or _ABLE.get("amx_bf16") else torch.float32
"""Of the products while it trains. Without instructions for them those in bfloat16 take from twice as long as those in
float32 (where there is AVX-512) to twenty times; on x86, where it was measured."""


@dataclass(frozen=True, slots=True)
class Shape:
    vocabulary: int
    hidden: int = 128
    layers: int = 4
    heads: int = 4
    feed_forward: int = 384
    positions: int = 2048
    rope_theta: float = 1_000_000.0

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads


class Attention(nn.Module):  # type: ignore[misc]
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (
            nn.Linear(shape.hidden, shape.hidden, bias=False) for _ in range(4)
        )

    def forward(self, x: Tensor, turn: tuple[Tensor, Tensor], mask: Tensor) -> Tensor:
        """`mask` is added to the scores: 0 where a token may look, minus infinity elsewhere."""
        batch, length, hidden = x.shape
        qkv = F.linear(x, torch.cat([self.q_proj.weight, self.k_proj.weight, self.v_proj.weight]))
        q, k, v = qkv.view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k = rotate(q, turn) * q.shape[-1] ** -0.5, rotate(k, turn)
        q, k = q.to(v.dtype), k.to(v.dtype)
        mixed = torch.cat([_attended(q, k, v, mask, at) for at in range(0, length, BLOCK)], 2).transpose(1, 2)
        y: Tensor = self.o_proj(mixed.reshape(batch, length, hidden))
        return y


BLOCK = 256
"""Tokens that attend together: none of them looks at what comes after the last."""


def _attended(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, first: int) -> Tensor:
    """What the block of tokens from `first` on attends to. Written out, it takes two thirds of the time of
    scaled_dot_product_attention's backward pass on a CPU."""
    end = first + BLOCK
    scores = q[:, :, first:end] @ k[:, :, :end].transpose(-1, -2)
    return (scores + mask[:, :, first:end, :end]).softmax(-1) @ v[:, :, :end]


def rotate(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    """Rotary positions. `turn`: cosine and sine, (batch, 1, length, head size / 2)."""
    cos, sin = turn
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Mlp(nn.Module):  # type: ignore[misc]
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden, shape.feed_forward, bias=False)
        self.up_proj = nn.Linear(shape.hidden, shape.feed_forward, bias=False)
        self.down_proj = nn.Linear(shape.feed_forward, shape.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = F.linear(x, torch.cat([self.gate_proj.weight, self.up_proj.weight])).chunk(2, -1)
        y: Tensor = self.down_proj(F.silu(gate) * up)
        return y


class Layer(nn.Module):  # type: ignore[misc]
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(shape.hidden, eps=1e-6)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = nn.RMSNorm(shape.hidden, eps=1e-6)
        self.mlp = Mlp(shape)

    def forward(self, x: Tensor, turn: tuple[Tensor, Tensor], mask: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), turn, mask)
        y: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return y


QUICK, STILL = 0.05, 0.004
"""Radians a token: what turns faster tells neighbours apart, what turns more slowly hardly depends on distance."""
SHARP, MATCH = 1.2, 2.0
"""How sure the first heads are of the token before, and the second ones of a match, at the beginning."""


def _orthonormal(rows: int, columns: int) -> Tensor:
    """Rows of length 1 at right angles, none of which reads the first dimension."""
    if rows >= columns:
        raise ValueError(f"{rows} rows at right angles need more than {columns} columns")
    drawn = torch.linalg.qr(torch.randn(columns - 1, rows))[0].T
    return torch.cat([torch.zeros(rows, 1), drawn], 1)


class Llama(nn.Module):  # type: ignore[misc]
    """Args:
    shape: of the network; embedding and head are the same matrix.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embed_tokens = nn.Embedding(shape.vocabulary, shape.hidden)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.hidden, eps=1e-6)
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                deep = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(weight, std=0.1 if "embed" in name else 0.7 / shape.hidden**0.5 / (8 if deep else 1))
        half = torch.arange(0, shape.head_dim, 2) / shape.head_dim
        self.register_buffer("_angle", 1.0 / shape.rope_theta**half, persistent=False)

        self._begin_copying()

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def _begin_copying(self) -> None:
        """Begin with heads that together go on as the text went on before (Olsson et al. 2022, induction heads).

        They would form by themselves, at the cost of much of a short training. One dimension is the same for all
        tokens: turned by one position it makes a query of the first layer that meets the key of the place before. What
        is seen there is written where the second layer's heads look for the token at hand; what they find, they give
        as the next token.
        """
        shape, size = self.shape, self.shape.head_dim
        self.embed_tokens.weight[:, 0] = 1.2
        first, second = self.layers[0].self_attn, self.layers[1].self_attn
        half = size // 2
        angle = shape.rope_theta ** -(torch.arange(half) / half)
        quick = (angle > QUICK).float()
        still = torch.cat([angle < STILL] * 2)[:, None]
        for head in range(2):
            mine = slice(head * size, (head + 1) * size)
            seen, place, copied = (_orthonormal(size, shape.hidden) for _ in range(3))
            key, query = first.k_proj.weight[mine], first.q_proj.weight[mine]
            key.zero_()[:half, 0] = SHARP * quick
            query.zero_()[:, 0] = SHARP * torch.cat([angle.cos() * quick, -angle.sin() * quick])
            first.v_proj.weight[mine] = seen * still
            first.o_proj.weight[:, mine] = 0.4 * place.T
            second.q_proj.weight[mine] = MATCH * seen * still
            second.k_proj.weight[mine] = MATCH * place * still
            second.v_proj.weight[mine] = copied
            second.o_proj.weight[:, mine] = 0.5 * copied.T

    def forward(self, ids: Tensor, positions: Tensor, mask: Tensor, at: tuple[Tensor, Tensor]) -> Tensor:
        """Logits (n, vocabulary) at the n places `at` (rows, columns).

        Args:
            ids, positions: (batch, length).
            mask: (batch, 1, length, length), true where a token may look.
        """
        angles = (positions[..., None] * self._angle)[:, None]
        turn = (angles.cos(), angles.sin())
        closed = torch.zeros(mask.shape, dtype=PRECISION).masked_fill_(~mask, float("-inf"))
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=PRECISION is torch.bfloat16):
            x = self.embed_tokens(ids)
            for layer in self.layers:
                x = layer(x, turn, closed)
            logits = F.linear(self.norm(x[at]), self.embed_tokens.weight)
        return logits.float()

    def save(self, folder: Path, end: int) -> None:
        """Write weights (bfloat16) and configuration as transformers reads them."""
        from safetensors.torch import save_file

        weights = {f"model.{name}": w.detach().to(torch.bfloat16).contiguous() for name, w in self.state_dict().items()}
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        (folder / "model.safetensors").chmod(0o644)
        s = self.shape
        config = {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "attention_bias": False,
            "bos_token_id": None,
            "eos_token_id": end,
            "head_dim": s.head_dim,
            "hidden_act": "silu",
            "hidden_size": s.hidden,
            "intermediate_size": s.feed_forward,
            "max_position_embeddings": s.positions,
            "mlp_bias": False,
            "num_attention_heads": s.heads,
            "num_hidden_layers": s.layers,
            "num_key_value_heads": s.heads,
            "rms_norm_eps": 1e-6,
            "rope_theta": s.rope_theta,
            "tie_word_embeddings": True,
            "torch_dtype": "bfloat16",
            "vocab_size": s.vocabulary,
        }
        (folder / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
