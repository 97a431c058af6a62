"""Weights of models, found and verified. What a model's container gets is a folder of this module's."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from upkeep import inputs
from upkeep.catalog import Catalog
from upkeep.contract import Fingerprint, ModelSpec, Sealed, Sha256
from upkeep.fields import endpoint_content
from upkeep.integrity import (
    Damaged,
    Missing,
    read_sealed,
    verified_once,
    verify_files,
    verify_names,
)
from upkeep.jobs import Training
from upkeep.layout import Layout
from upkeep.model_cards import CARD, RECIPE

ADAPTER = "adapter_config.json"
"""What says that a folder holds an adapter, in the format of PEFT, and no whole model."""


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
    adapters: tuple[Path, ...] = ()
    """Folders of adapters on them, in the order in which they were trained."""


def content_of(files: Mapping[str, Fingerprint]) -> str:
    """The content hash of a folder: SHA-256 over names and contents of its files, in order of their names."""
    total = hashlib.sha256()
    for name, found in sorted(files.items()):
        total.update(f"{name}\0{found.sha256}\n".encode())
    return total.hexdigest()


def files_of(folder: Path) -> list[Path]:
    """All files under a folder in order of their names, but hidden ones, which are a downloader's own, pages, and the
    suite's card and recipe: what is written about a model, or makes it, is no part of what it answers."""
    parts = {p: p.relative_to(folder).parts for p in folder.rglob("*")}
    found = (p for p, names in parts.items() if names[0] != RECIPE and not any(name.startswith(".") for name in names))
    beside = (p for p in found if p.suffix != ".md" and p != folder / CARD)
    return sorted(p for p in beside if p.is_symlink() or not p.is_dir())


@verified_once
def find(catalog: Catalog, model: str, dataset: str, member: str = "") -> tuple[ModelSpec, Weights]:
    """A model's card and weights, trained ones included, after checking that they are the ones that were taken in.

    Args:
        dataset: what it is asked about.
        member: of a model that was trained as a set, which one; empty for all of it, which has a hash and no folder.

    Raises:
        Missing: the weights are not there.
        Damaged: a file of theirs, or their record, is not what was written.
    """
    if (training := catalog.made_by(model, dataset)) is not None:
        return catalog.spec(model), _trained(catalog, training, member)
    spec = catalog.model(model)
    if spec.source == "endpoint":
        return spec, Weights(None, endpoint_content(catalog.model(model)))
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
        there = (path.relative_to(folder).as_posix() for path in files_of(folder))
        verify_names(folder, there, record.files, restore)
    return spec, Weights(folder, record.sha256)


def _trained(catalog: Catalog, training: Training, member: str) -> Weights:
    """What a training made; an adapter with what it lies on."""
    files = {name: found.sha256 for name, found in inputs.trained(catalog, training).files.items()}
    folder = Layout(catalog.results).trained(training) / "model"
    if catalog.training_set(training).by is not None:
        if not member:
            return Weights(None, _content_of_trained(files))
        folder, start = folder / member, f"model/{member}/"
        files = {f"model/{name.removeprefix(start)}": sha for name, sha in files.items() if name.startswith(start)}
        if not files:
            remedy = inputs.remedy_of(catalog, training)
            raise Missing(f"{training} has no member {member!r}", where=folder, remedy=remedy)
    content = _content_of_trained(files)
    if f"model/{ADAPTER}" not in files:
        return Weights(folder, content)
    below = find(catalog, training.model, training.dataset)[1]
    both = hashlib.sha256(f"{below.sha256}\n{content}".encode()).hexdigest()
    return Weights(below.path, both, (*below.adapters, folder))


def members(catalog: Catalog, model: str, dataset: str) -> list[str]:
    """The members of a model that was trained as a set, by name; one without a name for any other model.

    Raises:
        Missing, Damaged: it has not been made, or is not what was made.
    """
    training = catalog.made_by(model, dataset)
    if training is None or catalog.training_set(training).by is None:
        return [""]
    return sorted({name.split("/")[1] for name in inputs.trained(catalog, training).files if name.count("/") > 1})


def _content_of_trained(files: Mapping[str, str]) -> str:
    return hashlib.sha256(msgspec.json.encode(sorted(files.items()))).hexdigest()


def place(catalog: Catalog, model: str, spec: ModelSpec) -> Path | None:
    """The folder where a model's weights are, or will be; None where a package carries them, and for endpoints."""
    if local := catalog.own_weights(model):
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


def parameters(spec: ModelSpec) -> bytes:
    """What a recipe is given, as text."""
    return msgspec.json.encode(spec.extra, order="sorted")


def _recipe_key(catalog: Catalog, spec: ModelSpec) -> str:
    recipe = (catalog.root / "src/upkeep/serving/make_model.py").read_bytes()
    return hashlib.sha256(recipe + spec.location.encode() + parameters(spec)).hexdigest()[:16]
