"""A line of `predictions.jsonl`, and what is measured beside it."""

from typing import Annotated, Literal

from msgspec import Meta

from upkeep.contract.base import Count, Measurement, Positive, Record, Seconds, Sha256, Text


class Retrieved(Record, frozen=True, kw_only=True):
    """One retrieved document."""

    id: str
    """Document id."""
    score: float
    """The retriever's score; comparable within one prediction only."""
    rank: Positive
    """1 for the best."""


class Usage(Record, frozen=True, kw_only=True):
    """Tokens of all model calls behind one prediction."""

    prompt: Count = 0
    """Prompt tokens sent."""
    completion: Count = 0
    """Tokens generated, reasoning included."""
    calls: Count = 0
    """Model calls."""


class ContextUse(Record, frozen=True, kw_only=True):
    """What of the arrived documents reached the prompt."""

    documents: Count = 0
    """Documents in the prompt."""
    dropped: Count = 0
    """Documents left out because the model's limit was reached, oldest first (OAKS, 4 and C.1.3)."""


class Measured(Record, frozen=True, kw_only=True):
    """What a machine measured. It differs from run to run, so it is kept apart from the predictions when published."""

    latency_s: Seconds = 0.0
    """From the first model call to the response."""
    cached: Count = 0
    """Prompt tokens whose keys and values came from the prefix cache."""


MAX_VALUES = 64
"""Names of numbers that the predictions of a cell may have."""

Form = Literal["short", "choice", "label"]
"""How an answer is asked for: in a few words; as an option's letter; as one of the options themselves (`yes`, `no`)."""

Finish = Literal["stop", "length", "none"]
"""Why generation ended; `none` where no model was called or the call failed."""


class Prediction(Record, frozen=True, kw_only=True):
    """One answer to one probe in one trial: a line of `predictions.jsonl`. A failure is a line with `error` set."""

    probe_id: Annotated[str, Meta(min_length=1, max_length=400)]
    trial: Count
    response: Text | None
    """The model's raw text, reasoning removed; null where there is none."""
    reasoning: Text | None
    """The thinking text of a reasoning model; null where there is none."""
    finish_reason: Finish
    retrieved: list[Retrieved]
    usage: Usage
    context: ContextUse
    error: Annotated[str, Meta(max_length=10_000)] | None
    """Why there is no answer; null where there was no failure."""
    values: Annotated[
        dict[Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._%+-]*$", max_length=60)], Measurement],
        Meta(max_length=MAX_VALUES),
    ] = {}
    """Numbers that the method measured, by name. Metrics read them as the column `value_<name>`."""
    calls: list[Sha256] = []
    """What the host keeps each call of a model by, in order: `upkeep show` finds prompt and reply by it. None of a call
    that nothing was said to, nor where no gateway stands between."""
    measured: Measured | None = None
    """Only in the container's own output; published predictions have none."""
