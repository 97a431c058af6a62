"""How much the transformers engine computes at a time, and what it keeps of prompts."""

from __future__ import annotations

from collections.abc import Sequence

LANES = 8
"""Sequences that the transformers engine decodes together at most."""
DRAFTED = 7
"""Tokens that are drafted after the latest one of a sequence at most: each is a row of a step, too."""
ROWS = (1 + DRAFTED, 16, 24, 32, 48, LANES * (1 + DRAFTED))
"""How many rows a step may have: it has the fewest that hold all. Fewer than four are multiplied in another order."""
PASS_ROWS = (8, *range(16, 128, 16), 128, 160, 192, 224, 256)
"""How many rows a pass over the next segments of a prompt may have: it has the fewest that hold all. A longer segment
has a pass of its own."""
LANE_TOKENS = 4096
"""Tokens of a prompt and its answer in a lane at most; longer ones are decoded alone. It bounds the memory: for all
lanes together 4.8 GB with a model of 8B parameters (147 kB a token), 0.2 GB with `pico`, and on a CPU as much again
where they have long beginnings that differ."""
KEPT_TOKENS = LANES * LANE_TOKENS
"""Tokens of earlier prompts whose keys and values are kept at most: as many as may be in the lanes."""
ANSWER_TOKENS = 16_384
"""Tokens of the latest answers that drafts are made from, and of as many before them."""
BLOCK = 64
"""A lane attends to keys up to the next multiple of so many, the later ones masked, and no step of it goes beyond that.
`LANE_TOKENS` is such a multiple."""
TOGETHER = 32
"""Rows that attend to a beginning at a time at most: with many more, kernels take them in larger blocks."""
BEGINNING_TOKENS = 512
"""Tokens before a prompt's own segments from which on lanes that have them alike hold them once."""


def fewest(sizes: Sequence[int], rows: float) -> int:
    """Of some numbers of rows the smallest that holds so many."""
    return min(size for size in sizes if size >= rows)


def of_last(sizes: Sequence[int], rows: int, tokens: int, keep: int) -> slice:
    """Of the rows of a pass, the first of which are its tokens, those that the end of its last layer is computed for:
    all of them where all tokens are wanted (`keep` 0) or no number of rows agrees with another (`sizes`); or else the
    fewest that agree and hold the last `keep` tokens."""
    if not keep or not sizes:
        return slice(0, rows)
    few = fewest(sizes, keep)
    first = max(0, tokens - few)
    return slice(first, first + few)
