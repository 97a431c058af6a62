"""What a job asks of its model, in numbers."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from upkeep.contract import Count
from upkeep.execution.roofline import Work
from upkeep.jobs import Job

FIELDS = Work.__struct_fields__
"""What is summed."""


class Arrival(Work, frozen=True, kw_only=True):
    """What is asked of a model as documents arrive."""

    key: str
    """Hash of it: cells in which it is equal ask it once."""


class Tally(Work, frozen=True, kw_only=True):
    """What a job asks of its model in all, over the whole dataset; without what it asks as documents arrive."""

    arrival: Arrival | None = None
    records: Count = 0
    """Predictions."""
    counted: Count = 0
    """How many of them were counted; the others are inferred."""
    together: float = 0.0
    """Records that are worked on at a time, on average (`Order.together`)."""
    passes: Count = 1
    """How often its container is fed all documents."""
    own_tokens: bool = False
    """Whether the model's own tokenizer is at hand."""
    bytes_per_token: float = 0.0
    """Of the dataset's documents."""
    failed: float = 0.0
    """Share of the counted records that ended with an error."""
    unknown: str | None = None
    """Why there are no counts."""


def with_arrivals(tallies: Mapping[Job, Tally]) -> dict[Job, Tally]:
    """The counts with what is asked as documents arrive, which of several cells that ask the same the first one pays:
    the others find it in the record, and have no `arrival` any more."""
    paid: set[tuple[str, str]] = set()
    found = {}
    for job, tally in tallies.items():
        found[job] = tally
        if (arrival := tally.arrival) is None:
            continue
        if (job.model, arrival.key) in paid:
            found[job] = msgspec.structs.replace(tally, arrival=None)
        else:
            paid.add((job.model, arrival.key))
            sums = {field: getattr(tally, field) + getattr(arrival, field) for field in FIELDS}
            found[job] = msgspec.structs.replace(tally, **sums)
    return found
