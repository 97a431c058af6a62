"""What a plan says: of each job, of jobs together, of the disk. A figure that is not known stays unknown: it is never
taken as zero, nor made up."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from upkeep.contract import Count, Record


class Amounts(Record, frozen=True, kw_only=True):
    """What a job takes. Null where it is not known; 0 where there is none of it."""

    requests: float | None = None
    prompt_tokens: float | None = None
    computed_tokens: float | None = None
    """Prompt tokens that are not reused from the engine's prefix cache."""
    output_tokens: float | None = None
    gpu_hours: float | None = None
    cpu_hours: float | None = None
    """Wall-clock hours of models that run on a CPU."""
    usd: float | None = None
    usd_at_most: float | None = None
    """Nothing reused, replies as long as they may be, text in the endpoint's most tokens a byte."""


AMOUNTS = Amounts.__struct_fields__
TOKENS = AMOUNTS[:4]
NONE = Amounts(**dict.fromkeys(AMOUNTS, 0.0))


class Memory(Record, frozen=True, kw_only=True):
    """Bytes on one GPU at the peak of a training's step (`upkeep.operations.plan.training`)."""

    weights: float
    optimizer: float
    gradients: float
    activations: float
    update: float
    parts: bool
    """Whether a batch is learnt from in several parts, so that gradients are there all along."""

    @property
    def peak(self) -> float:
        learning = self.activations + (self.gradients if self.parts else 0.0)
        return self.weights + self.optimizer + max(learning, self.gradients + self.update)


class TrainingPlan(Record, frozen=True, kw_only=True):
    """How a training stands on its GPUs, in the stage that takes most."""

    gpus: Count
    gpu: str
    at_once: Count
    """Samples on each GPU."""
    parts: Count
    """Of a batch, one after the other."""
    longest: Count
    """Tokens of the longest sample."""
    memory: Memory


class JobPlan(Record, frozen=True, kw_only=True):
    """One cell or training, or what a judge does on a dataset."""

    job: str
    kind: Literal["cell", "training", "judging"]
    model: str
    plan: Amounts
    counted: str
    """How its requests were counted."""
    unknown: list[str] = msgspec.field(default_factory=list)
    """What is not known, and why."""
    actual: Amounts | None = None
    """What it took; null where it is not complete."""
    training: TrainingPlan | None = None
    """Of a training on GPUs."""


class Sum(Record, frozen=True, kw_only=True):
    """Several jobs together. Of an amount that is unknown for some of them, it is the sum of the others'."""

    name: str
    jobs: Count
    plan: Amounts
    incomplete: dict[str, Count] = msgspec.field(default_factory=dict)
    """Amount -> for how many jobs it is unknown."""


class Disk(Record, frozen=True, kw_only=True):
    """What lies on disk at the end."""

    what: str
    count: Count
    bytes: float
    unknown: Count = 0
    """How many of them have no known size."""


class Plan(Record, frozen=True, kw_only=True):
    """What a suite takes; `--json` writes it."""

    version: Literal[1] = 1
    suite: str
    made: str
    gpu: str
    jobs: list[JobPlan]
    models: list[Sum]
    total: Sum
    disk: list[Disk]
    assumptions: list[str]


def sum_of(name: str, jobs: Sequence[JobPlan], of: Callable[[JobPlan], Amounts | None] = lambda job: job.plan) -> Sum:
    """Jobs together; those whose amounts are null are left out."""
    amounts = [found for job in jobs if (found := of(job)) is not None]
    columns = {field: [getattr(one, field) for one in amounts] for field in AMOUNTS}
    return Sum(
        name=name,
        jobs=len(amounts),
        plan=Amounts(**{f: _total(values) for f, values in columns.items()}),
        incomplete={f: n for f, values in columns.items() if (n := values.count(None))},
    )


def _total(values: Sequence[float | None]) -> float | None:
    """The sum of what is known; None where nothing is."""
    known = [value for value in values if value is not None]
    return math.fsum(known) if known or not values else None
