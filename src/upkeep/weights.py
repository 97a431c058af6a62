"""Weights of models: fetched, made or found, and hashed. What a model's container gets is a folder of this module's."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from upkeep import inputs
from upkeep.catalog import Catalog, TrainedModel, Training
from upkeep.contract import Fingerprint, ModelSpec, Sealed, Sha256
from upkeep.errors import UpkeepError
from upkeep.files import exclusive
from upkeep.integrity import (
    Damaged,
    Missing,
    fingerprint,
    read_sealed,
    verify_files,
    verify_names,
    write_sealed,
)
from upkeep.paths import Layout

WANTED = ("*.json", "*.safetensors", "*.txt", "*.model", "*.jinja", "*.tiktoken")
"""What is downloaded of a hub's repository: weights as data, configuration, tokenizer. No pickles and no code."""


class WeightsRecord(Sealed, frozen=True, kw_only=True):
    """`results/models/<model>.json`: what was fetched, made or found. Where it lies follows from the card."""

    model: str
    sha256: Sha256
    """Content hash of the folder, or of package name and revision, or of an endpoint's address and fields."""
    files: dict[str, Fingerprint]
    """Of the folder; none where a Python package in the image carries the weights, nor for endpoints."""


@dataclass(frozen=True, slots=True)
class Weights:
    """A model's weights, verified."""

    path: Path | None
    """Their folder; None where a Python package in the image carries them, and for endpoints."""
    sha256: str


def content_of(files: Mapping[str, Fingerprint]) -> str:
    """The content hash of a folder: SHA-256 over names and contents of its files, in order of their names."""
    total = hashlib.sha256()
    for name, found in sorted(files.items()):
        total.update(f"{name}\0{found.sha256}\n".encode())
    return total.hexdigest()


def files_of(folder: Path) -> list[Path]:
    """All files under a folder but hidden ones, which are a downloader's own, in order of their names."""
    paths = (p for p in folder.rglob("*") if not any(part.startswith(".") for part in p.relative_to(folder).parts))
    return sorted(p for p in paths if p.is_symlink() or not p.is_dir())


def find(catalog: Catalog, model: str, dataset: str) -> tuple[ModelSpec, Weights]:
    """A model's card and weights, trained ones included, after checking that they are the ones that were taken in.

    Raises:
        Missing: the weights are not there.
        Damaged: a file of theirs, or their record, is not what was written.
    """
    if trained := TrainedModel.parse(model):
        job = Training(dataset, trained.method, trained.variant, trained.base)
        files = {name: found.sha256 for name, found in inputs.trained(catalog, job).files.items()}
        sha = hashlib.sha256(msgspec.json.encode(sorted(files.items()))).hexdigest()
        return catalog.spec(model), Weights(Layout(catalog.results).trained(job) / "model", sha)
    spec = catalog.model(model)
    if spec.source == "endpoint":
        return spec, Weights(None, _endpoint(catalog, model))
    remedy = f"./upkeep model fetch {model}"
    path = Layout(catalog.results).weights_record(model)
    try:
        record = read_sealed(path, WeightsRecord, remedy)
    except Missing:
        raise Missing(f"no weights of the model {model!r}", where=path, remedy=remedy) from None
    itself = not record.files or content_of(record.files) == record.sha256
    if record.model != model or spec.sha256 not in (None, record.sha256) or not itself:
        raise Damaged(
            f"not the record of {model!r}",
            where=path,
            expected=f"{model}, sha256 {spec.sha256 or 'of its files'}",
            found=f"{record.model}, sha256 {record.sha256}",
            remedy=remedy,
        )
    folder = place(catalog, model, spec)
    if folder is not None:
        if not folder.is_dir():
            raise Missing(f"the weights of {model!r} are gone", where=folder, remedy=remedy)
        restore = f"put back what was there, or take in what is there now: {remedy}"
        verify_files(folder, record.files, restore, catalog.hashes, links=True)
        verify_names(folder, files_of(folder), record.files, restore)
    return spec, Weights(folder, record.sha256)


def fetch(catalog: Catalog, model: str) -> Weights:
    """Make sure of a model's weights and write their record.

    Raises:
        UpkeepError: no such folder, package or repository, or the content hash differs from the card's.
    """
    spec = catalog.model(model)
    folder, files = place(catalog, model, spec), dict[str, Fingerprint]()
    if spec.source == "endpoint":
        sha = _endpoint(catalog, model)
    elif folder is None:
        sha = hashlib.sha256(f"{spec.location}\0{spec.revision}".encode()).hexdigest()
    else:
        if model not in catalog.config.models:
            _get(catalog, model, spec, folder)
        if not any(folder.glob("*.json")):
            raise UpkeepError(
                f"no weights of the model {model!r} in this folder",
                where=folder,
                expected="a folder in the transformers format (config.json, weights, tokenizer)",
                remedy=f"put them there, or name another folder under `models: {{{model}: ...}}` in your configuration",
            )
        files = {p.relative_to(folder).as_posix(): fingerprint(p, catalog.hashes, links=True) for p in files_of(folder)}
        sha = content_of(files)
    if spec.sha256 is not None and sha != spec.sha256:
        raise UpkeepError(
            f"the weights of {model!r} are not the pinned ones",
            where=folder,
            expected=f"sha256 {spec.sha256}",
            found=f"sha256 {sha}",
            remedy=f"put back the pinned ones, or pin these under `sha256:` in models/{model}.yaml",
        )
    write_sealed(Layout(catalog.results).weights_record(model), WeightsRecord(model=model, sha256=sha, files=files))
    return Weights(folder, sha)


def _endpoint(catalog: Catalog, model: str) -> str:
    """Nothing is fetched of a model behind an endpoint: what stands for its weights is made of its card alone."""
    from upkeep.identity import endpoint_content  # which needs this module

    return endpoint_content(catalog.model(model))


def place(catalog: Catalog, model: str, spec: ModelSpec) -> Path | None:
    """The folder where a model's weights are, or will be; None where a package carries them, and for endpoints."""
    if local := catalog.config.models.get(model):
        return (catalog.root / Path(local).expanduser()).resolve()
    match spec.source:
        case "package" | "endpoint":
            return None
        case "path":
            return (catalog.root / spec.location).resolve()
        case "hub":
            return catalog.cache / "hub" / f"{spec.location.replace('/', '--')}@{spec.revision}"
        case "rule":
            return Layout(catalog.results).weights(f"{spec.location}-{_recipe_key(catalog, spec)}")


def _get(catalog: Catalog, model: str, spec: ModelSpec, folder: Path) -> None:
    """Fetch or make what belongs into a folder of the suite's own."""
    if spec.source == "hub":
        _download(catalog, model, spec, folder)
    elif spec.source == "rule":
        _make(catalog, spec, folder)


def _parameters(spec: ModelSpec) -> bytes:
    return msgspec.json.encode(spec.extra, order="sorted")


def _recipe_key(catalog: Catalog, spec: ModelSpec) -> str:
    recipe = (catalog.root / "src/upkeep/cell/make_model.py").read_bytes()
    return hashlib.sha256(recipe + spec.location.encode() + _parameters(spec)).hexdigest()[:16]


def _make(catalog: Catalog, spec: ModelSpec, folder: Path) -> None:
    """Run a recipe of ours inside an engine's image; the result is kept by the hash of recipe and parameters."""
    from upkeep.host.runtimes import detect

    # Several models may be made of one recipe (`tiny`, `tiny-vllm`): the second waits and finds the folder.
    with exclusive(folder.with_name(f".{folder.name}.lock")):
        if (folder / "config.json").is_file():
            return
        runtime = detect(catalog)
        prepared = runtime.prepare(None, "transformers")
        building = folder.with_name(folder.name + ".partial")
        shutil.rmtree(building, ignore_errors=True)
        building.mkdir(parents=True)
        output = runtime.path_of("output", building)
        recipe_call = ["-m", "upkeep.cell.make_model", spec.location, output, _parameters(spec).decode()]
        runtime.run_tool(prepared, recipe_call, output=building)
        building.replace(folder)


def _download(catalog: Catalog, model: str, spec: ModelSpec, folder: Path) -> None:
    if spec.revision is None:
        raise UpkeepError(
            "a model from a hub needs a revision", where=catalog.root / "models" / f"{model}.yaml", expected="a commit"
        )
    if (folder / ".complete").is_file():
        return
    if catalog.config.offline or os.environ.get("HF_HUB_OFFLINE") == "1":
        raise UpkeepError(
            f"the weights of {model!r} are not on this machine and it is set to stay offline",
            where=folder,
            remedy=f"download {spec.location} at {spec.revision}, and name its folder under `models:` in your file",
        )
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError

        snapshot_download(
            spec.location,
            revision=spec.revision,
            local_dir=folder,
            token=os.environ.get("HF_TOKEN"),
            allow_patterns=list(WANTED),
        )
    except (HfHubHTTPError, OSError) as error:
        raise UpkeepError(
            f"could not download {spec.location} at {spec.revision}: {error}",
            where=folder,
            remedy=f"try again with a network, or name a local folder under `models: {{{model}: ...}}`",
        ) from None
    if not any(folder.glob("*.safetensors")):
        raise UpkeepError(
            f"{spec.location} has no weights as safetensors at {spec.revision}; pickles are not fetched",
            where=folder,
            remedy=f"save them anew and name their folder under `models: {{{model}: ...}}`; models/README.md says how",
        )
    (folder / ".complete").touch()
