"""How many sequences the transformers engine decodes at a time, how long they may be, and what it keeps of prompts."""

from __future__ import annotations

LANES = 16
"""Sequences that the transformers engine decodes together at most."""
ROWS = (4, 8, LANES)
"""How many rows a step of them may have: it has the fewest that hold all. Fewer than four are multiplied in another
order."""
LANE_TOKENS = 4096
"""Tokens of a prompt and its answer in a lane at most; longer ones are decoded alone. It bounds the memory: for all
lanes together 9.7 GB with a model of 8B parameters (147 kB a token), 0.4 GB with `pico`, and on a CPU as much again
where they have long beginnings that differ."""
KEPT_TOKENS = 8 * LANE_TOKENS
"""Tokens of earlier prompts whose keys and values are kept at most: half as many as may be in the lanes."""
BEGINNING_TOKENS = 512
"""Tokens before a prompt's own segments from which on lanes that have them alike hold them once."""
