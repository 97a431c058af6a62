"""What the jobs of a suite ask their machines for."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from upkeep import identity
from upkeep.catalog import Catalog
from upkeep.contract import ModelSpec, Resources
from upkeep.jobs import Cell, Job
from upkeep.sweeps import sweeps


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


def needs_of(catalog: Catalog, jobs: Sequence[Job]) -> Needs:
    """What jobs that are done together ask for: an engine, the cell that is at work beside it, and its other models."""
    model = jobs[0].model
    spec = None if model == "none" else catalog.spec(model)
    asked = [identity.resources(catalog, job.method, job.model) for job in jobs]
    others = [_others(catalog, job) for job in jobs]
    beside = 0
    if spec is not None and not catalog.method(jobs[0].method).holds_model:
        beside = max(
            sum(catalog.method(cell.method).resources.memory_gb for cell in some) for some in _abreast(catalog, jobs)
        )
        beside += max(sum(one.memory_gb for one in of_job) for of_job in others)
    every = [*asked, *itertools.chain.from_iterable(others)]
    return Needs(
        threads=max(one.cpus for one in every),
        mem_mb=1024 * (max(one.memory_gb for one in asked) + beside),
        minutes=sum(one.minutes for one in asked),
        gpus=max(gpus_of(catalog, job) for job in jobs),
        nodes=spec.nodes if spec else 1,
        gpu_type=next((one.gpu_type for one in every if one.gpu_type), None),
        constraint=next((one.constraint for one in every if one.constraint), None),
    )


def _abreast(catalog: Catalog, jobs: Sequence[Job]) -> list[tuple[Job, ...]]:
    """Jobs that may be at work side by side."""
    cells = [job for job in jobs if isinstance(job, Cell)]
    return [*sweeps(catalog, cells), *((job,) for job in jobs if not isinstance(job, Cell))]


def embedder_resources(catalog: Catalog, job: Job, embedder: str) -> Resources:
    """What an embedder may use: what its card says, or the method's."""
    return catalog.model(embedder).resources or catalog.method(job.method).resources


def _others(catalog: Catalog, job: Job) -> list[Resources]:
    """What a job's models beside its reader may use, of those that are served here."""
    asked = catalog.asked(job)
    embedder, writer = asked.get("embedder"), asked.get("writer")
    found = [embedder_resources(catalog, job, embedder)] if embedder else []
    if writer and catalog.engine(writer) is not None:
        found.append(identity.resources(catalog, job.method, writer))
    return found
