"""What the jobs of a suite ask their machines for."""

from __future__ import annotations

from dataclasses import dataclass

from upkeep.catalog import Catalog
from upkeep.contract import ModelSpec, Resources
from upkeep.jobs import Job


def models_of(catalog: Catalog, job: Job) -> list[str]:
    """The models whose weights or keys a job needs, each once: the one that it holds, and those that it asks."""
    held = [job.model] if catalog.method(job.method).holds_model else []
    return list(dict.fromkeys([*held, *catalog.asked(job).values()]))


def gpus_of(catalog: Catalog, job: Job) -> int:
    """GPUs on each node that a job asks for: as many as the one of its models that needs most, for they share them."""
    return max((catalog.spec(model).gpus for model in models_of(catalog, job)), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a job of the workflow asks its machine for."""

    threads: int
    mem_mb: int
    minutes: int
    """An upper bound: of every cell, one after the other."""
    gpus: int
    """On each node."""
    nodes: int
    gpu_type: str | None
    constraint: str | None

    @classmethod
    def of_model(cls, spec: ModelSpec) -> Needs:
        """Of a job that is its model's alone."""
        own = spec.resources or Resources()
        return cls(
            threads=own.cpus,
            mem_mb=1024 * own.memory_gb,
            minutes=own.minutes,
            gpus=spec.gpus,
            nodes=spec.nodes,
            gpu_type=own.gpu_type,
            constraint=own.constraint,
        )
