"""Which engine a reply is of: everything that determines what a model answers to a request."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from upkeep import weights
from upkeep.catalog import Catalog
from upkeep.contract import EngineSettings, ModelSpec, Resources, Role
from upkeep.fields import MODEL, hashed, part, plain
from upkeep.identity import ADAPTER_CODE, EMBEDDER_CODE, ENGINE_CODE, SET_CODE, engine_settings
from upkeep.images.environments import requirement_locks
from upkeep.images.locks import read_lock
from upkeep.jobs import Cell, Job
from upkeep.judges import judges_of
from upkeep.needs import embedder_resources
from upkeep.sources import meaning, tree

PACKAGES = ("numpy", "safetensors", "sentence-transformers", "tokenizers", "torch", "transformers")
"""What computes vectors."""


def answers_for_its_set(adapters: Sequence[Path], member: str) -> bool:
    """Whether an engine has the adapters of all members of a set, of which one is to answer: `serving.several`."""
    return bool(adapters) and bool(member)


def engine_parts(
    catalog: Catalog, dataset: str, model: str, settings: EngineSettings, member: str = ""
) -> dict[str, str]:
    """What determines a model's replies, by name; a trained one is that of a dataset, of a set it is a member.

    Weights with tokenizer and template, what the card says of reading and decoding, the engine with its locked packages
    and its settings, the kind of device, and the meaning of our code between (comments and docstrings are no part of
    it). How a request is sampled, and with which seed, is part of the request.

    Raises:
        UpkeepError: the weights are not there, or not what was taken in.
    """
    spec, found = weights.find(catalog, model, dataset, member)
    told = _read_by(spec, "sampling")
    shared = SET_CODE if answers_for_its_set(found.adapters, member) else ()
    code = (*ENGINE_CODE, *(ADAPTER_CODE if found.adapters else ()), *shared)
    fixed = hashed(settings)
    engine = {name: fixed[name] for name in ("name", "prefix_cache", "options")}
    if not spec.gpus:
        engine["threads"] = settings.threads  # they decide in which order numbers are added
    image = catalog.engine(model)
    return {
        "weights": found.sha256,
        "model": plain(told),
        "engine": plain(engine),
        "device": "gpu" if spec.gpus else "cpu",
        "packages": tree(catalog, "containers/base", f"containers/{image}"),
        "code": meaning(catalog, code),
    }


def _read_by(spec: ModelSpec, *without: str) -> dict[str, Any]:
    """What a card says of how its model reads."""
    return {name: value for name, value in (part(spec, MODEL, "in") or {}).items() if name not in without}


def served_parts(catalog: Catalog, job: Job, role: Role, model: str, member: str = "") -> dict[str, str]:
    """What determines what a model in a role of a job says, by name.

    Raises:
        Missing: its weights are not here.
    """
    if role == "embedder":
        return embedder_parts(catalog, job, model)
    return engine_parts(catalog, job.dataset, model, engine_settings(catalog, job, model), member)


def host_settings(catalog: Catalog, model: str) -> EngineSettings:
    """How a language model is served that the host asks by itself."""
    spec = catalog.model(model)
    return EngineSettings(name=spec.engine, threads=(spec.resources or Resources()).cpus)


def assistants(catalog: Catalog, dataset: str) -> list[str]:
    """The models that a dataset's builder may ask: those that its options name and an engine of the suite's serves."""
    named: set[str] = set()
    for value in catalog.dataset(dataset).options.values():
        named.update(name for name in (value if isinstance(value, list) else [value]) if isinstance(name, str))
    served = [name for name in catalog.models if name in named and catalog.engine(name) is not None]
    return [name for name in served if catalog.model(name).role == "generator"]


def judges(catalog: Catalog) -> list[str]:
    """The models that judge responses in some suite, of those that an engine of the suite's serves."""
    named = dict.fromkeys(judge for name in catalog.suites for judge in judges_of(catalog, catalog.suite(name)))
    return [name for name in named if catalog.engine(name) is not None]


def host_parts(catalog: Catalog, model: str) -> dict[str, str]:
    """What determines what a model says that the host asks by itself, by name.

    Raises:
        Missing: its weights are not here.
    """
    return engine_parts(catalog, "", model, host_settings(catalog, model))


def reader_parts(catalog: Catalog, cell: Cell) -> list[dict[str, str]]:
    """What determines the replies of a cell's model, by name, for each member of it where it is a set; none where no
    engine of the suite's serves it, but the method's own or an endpoint.

    Raises:
        Missing: its weights are not here.
    """
    if "reader" not in catalog.asked(cell) or catalog.engine(cell.model) is None:
        return []
    return all_parts(catalog, cell, "reader", cell.model)


def all_parts(catalog: Catalog, job: Job, role: Role, model: str) -> list[dict[str, str]]:
    """As `served_parts`, for each member of a model that is a set."""
    names = weights.members(catalog, model, job.dataset) if role == "reader" else [""]
    return [served_parts(catalog, job, role, model, member) for member in names]


def embedder_parts(catalog: Catalog, job: Job, embedder: str) -> dict[str, str]:
    """What determines the vectors of a job's embedder, by name, as `engine_parts` says it.

    Of its packages only those count that compute vectors, so that methods which retrieve in different ways share them.
    """
    spec, found = weights.find(catalog, embedder, job.dataset)
    threads = embedder_resources(catalog, job, embedder).cpus
    told = _read_by(spec, "sampling", "query_prefix", "document_prefix")  # these are in the texts
    return {
        "weights": found.sha256,
        "model": plain(told),
        "engine": plain({"name": "sentence-transformers"} | ({} if spec.gpus else {"threads": threads})),
        "device": "gpu" if spec.gpus else "cpu",
        "packages": plain(_pins(catalog, embedder, {*PACKAGES, spec.location})),
        "code": meaning(catalog, EMBEDDER_CODE),
    }


def _pins(catalog: Catalog, model: str, names: set[str]) -> list[str]:
    """The locked versions of some packages in the image that serves a model."""
    engine = catalog.engine(model)
    assert engine is not None  # it is served here, else it would have no such packages
    locks = requirement_locks(catalog, None, engine)
    return sorted(f"{p.name}=={p.version}" for lock in locks if lock for p in read_lock(lock) if p.name in names)
