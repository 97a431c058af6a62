"""vLLM's CPU attention with blocks of 16 tokens.

vLLM shares prefixes in whole blocks of the key-value cache, so every question computes, besides its own tokens, what
the shared prefix has beyond its last whole block: 16 tokens on average with the blocks of 32 that the CPU backend
declares, which is half a short question. Its kernels have a variant for 16 (`vec16`), which this declaration allows.
"""

from __future__ import annotations

from typing import Any

from vllm.v1.attention.backend import MultipleOf
from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend


class SmallBlocks(CPUAttentionBackend):  # type: ignore[misc]
    """Put in the place of `CPU_ATTN` by `register_backend`."""

    @staticmethod
    def get_supported_kernel_block_sizes(kv_cache_spec: Any = None) -> list[int | MultipleOf]:
        return [MultipleOf(16)]
