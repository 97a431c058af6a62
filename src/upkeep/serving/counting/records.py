"""What is counted, and what was: read and written by the host, too."""

from __future__ import annotations

import msgspec

from upkeep.contract import CellDescription, Count, Record, Usage


class Assumed(Record, frozen=True, kw_only=True):
    """How long replies are taken to be, in tokens."""

    reply: Count
    """Of a reply without its reasoning. Where a method bounds a reply itself, it is half of that bound."""
    thinking: Count
    """Reasoning before it, of a model that thinks."""


class CountJob(Record, frozen=True, kw_only=True):
    """One cell to count."""

    cell: CellDescription
    """`model_path` leads to a tokenizer, weights beside it are not read; null where `tokens_per_byte` is given."""
    tokens_per_byte: float | None
    passes: list[str]
    """File of rounds (JSON Lines) of each pass, which has a method and an engine of its own; one at least."""
    assumed: Assumed
    held: bool | None = None
    """Of a sample, whether the prompt that a question had before is still kept when its next one comes; None where that
    follows from the engine and the rounds alone."""
    room: Count | None = None
    """Tokens of vLLM's cache; None where it keeps all."""
    beside: list[CellDescription] = msgspec.field(default_factory=list)
    """Cells that are asked side by side with it, each before it in every round."""


class Line(Record, frozen=True, kw_only=True):
    """What one probe in one trial, or the arrival of one stream's documents, asked of the model."""

    key: str
    """Id of the probe, or the stream."""
    trial: Count = 0
    usage: Usage
    cached: Count
    error: str | None = None
    """Why there is no answer; what was asked up to then counts."""


class Counts(Record, frozen=True, kw_only=True):
    """What was counted of one job."""

    lines: list[Line]
    """Of the probes."""
    arrivals: list[Line] = msgspec.field(default_factory=list)
    """Of the streams in which anything was asked as documents arrived."""
    arrival: str = ""
    """Hash of all that was asked then: cells in which it is equal ask it once."""
    error: str | None = None
    """Why it cannot be counted."""
