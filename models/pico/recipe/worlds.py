"""The worlds that `pico` learns from, as a file: what a dataset's builder made of one seed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from upkeep.contract import Document, Gold, Pair, Probe


class World(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A small dataset of one seed, with its answers."""

    dataset: str
    seed: int
    prompt: str
    """The name of the dataset's prompt."""
    documents: list[Document]
    probes: list[Probe]
    golds: list[Gold]
    """One a probe, in their order."""
    pairs: list[Pair]
    examples: list[Pair]
    """Worked examples of the prompt."""


def write(path: Path, worlds: Sequence[World]) -> None:
    """One world a line."""
    path.write_bytes(msgspec.json.Encoder().encode_lines(worlds))


def read(path: Path) -> list[World]:
    """What `write` wrote."""
    return msgspec.json.Decoder(World).decode_lines(path.read_bytes())
