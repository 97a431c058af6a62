"""Which engine a reply is of: everything that determines what a model answers to a request."""

from __future__ import annotations

import ast
import functools
from collections.abc import Sequence
from pathlib import Path

import msgspec

from upkeep import weights
from upkeep.catalog import Catalog, Job
from upkeep.contract import EngineSettings, Resources
from upkeep.files import digest
from upkeep.host.environments import requirement_locks
from upkeep.host.locks import read_lock
from upkeep.identity import MODEL, plain, tree

CODE = (
    "engines/__init__.py",
    "engines/lockstep.py",
    "engines/transformers_engine.py",
    "engines/vllm_engine.py",
    "engines/vllm_small_blocks.py",
    "tokens.py",
)
"""The suite's code between a request and a reply, in `cell/`."""

EMBEDDING = ("embedding.py", "engines/embedder.py")
"""The same between a text and its vector."""
PACKAGES = ("numpy", "safetensors", "sentence-transformers", "tokenizers", "torch", "transformers")
"""What computes vectors."""


def engine_parts(catalog: Catalog, job: Job, settings: EngineSettings) -> dict[str, str]:
    """What determines a job's model's replies, by name.

    Weights with tokenizer and template, what the card says of reading and decoding, the engine with its locked packages
    and its settings, the kind of device, and the meaning of our code between (comments and docstrings are no part of
    it). How a request is sampled, and with which seed, is part of the request.

    Raises:
        UpkeepError: the weights are not there, or not what was taken in.
    """
    spec, found = weights.find(catalog, job.model, job.dataset)
    fields = msgspec.to_builtins(spec)
    told = {name: fields[name] for name, kind in MODEL.items() if kind == "in" and name != "sampling"}
    fixed = msgspec.to_builtins(settings)
    engine = {name: fixed[name] for name in ("name", "prefix_cache", "options")}
    if not spec.gpus:
        engine["threads"] = settings.threads  # they decide in which order numbers are added
    image = catalog.engine(job.method, job.model)
    return {
        "weights": found.sha256,
        "model": plain(told),
        "engine": plain(engine),
        "device": "gpu" if spec.gpus else "cpu",
        "packages": tree(catalog, "containers/base", f"containers/{image}"),
        "code": _meaning(catalog.root / "src" / "upkeep" / "cell", CODE),
    }


def embedder_resources(catalog: Catalog, job: Job, embedder: str) -> Resources:
    """What an embedder may use: what its card says, or the method's."""
    return catalog.model(embedder).resources or catalog.method(job.method).resources


def embedder_parts(catalog: Catalog, job: Job, embedder: str) -> dict[str, str]:
    """What determines the vectors of a job's embedder, by name, as `engine_parts` says it.

    Of its packages only those count that compute vectors, so that methods which retrieve in different ways share them.
    """
    spec, found = weights.find(catalog, embedder, job.dataset)
    fields = msgspec.to_builtins(spec)
    threads = embedder_resources(catalog, job, embedder).cpus
    left_out = ("sampling", "query_prefix", "document_prefix")  # these are in the texts
    told = {name: fields[name] for name, kind in MODEL.items() if kind == "in" and name not in left_out}
    return {
        "weights": found.sha256,
        "model": plain(told),
        "engine": plain({"name": "sentence-transformers"} | ({} if spec.gpus else {"threads": threads})),
        "device": "gpu" if spec.gpus else "cpu",
        "packages": plain(_pins(catalog, job, {*PACKAGES, spec.location})),
        "code": _meaning(catalog.root / "src" / "upkeep" / "cell", EMBEDDING),
    }


def _pins(catalog: Catalog, job: Job, names: set[str]) -> list[str]:
    """The locked versions of some packages in a job's image."""
    locks = requirement_locks(catalog, job.method, catalog.engine(job.method, job.model))
    return sorted(f"{p.name}=={p.version}" for lock in locks if lock for p in read_lock(lock) if p.name in names)


def _meaning(folder: Path, code: Sequence[str]) -> str:
    """Hash of what our code between a request and a reply does; as in `identity.tree`, there may be none."""
    return digest([_without_words(path.read_text("utf-8")) for name in code if (path := folder / name).is_file()])


@functools.lru_cache(maxsize=32)
def _without_words(source: str) -> str:
    """A module's syntax tree without comments, layout and docstrings."""
    parsed = ast.parse(source)
    for node in ast.walk(parsed):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [  # type: ignore[attr-defined]
                one for one in body if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))
            ]
    return ast.dump(parsed, annotate_fields=False)
