"""How many sequences the transformers engine decodes at a time, and how long they may be."""

from __future__ import annotations

LANES = 8
"""Sequences that the transformers engine decodes together."""
LANE_TOKENS = 4096
"""Tokens of a prompt and its answer in a lane at most; longer ones are decoded alone. It bounds the memory: for all
lanes together 4.8 GB with a model of 8B parameters (147 kB a token), 0.13 GB with `pico`."""
