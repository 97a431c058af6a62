"""Weights of models: fetched, made or found, and hashed. What a model's container gets is a folder of this module's."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import msgspec

from upkeep.catalog import ArtifactCell, Catalog, TrainedModel
from upkeep.contract import ModelSpec
from upkeep.errors import UpkeepError
from upkeep.files import exclusive, hash_file, write_atomically
from upkeep.paths import Layout

WANTED = ("*.json", "*.safetensors", "*.txt", "*.model", "*.jinja", "*.tiktoken")
"""What is downloaded of a hub's repository: weights as data, configuration, tokenizer. No pickles and no code."""


class WeightsRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`results/models/<model>.json`."""

    model: str
    path: str | None
    """The folder of the weights; None where a Python package in the image carries them, and for endpoints."""
    sha256: str
    """Content hash of the folder, or of package name and revision, or of an endpoint's address and fields."""


def hash_folder(folder: Path) -> str:
    """SHA-256 over names and contents of all files, in order of their names; hidden ones are a downloader's own."""
    total = hashlib.sha256()
    for path in files_of(folder):
        total.update(f"{path.relative_to(folder).as_posix()}\0{hash_file(path)}\n".encode())
    return total.hexdigest()


def files_of(folder: Path) -> list[Path]:
    """All files under a folder but hidden ones, in order of their names."""
    paths = (p for p in folder.rglob("*") if not any(part.startswith(".") for part in p.relative_to(folder).parts))
    return sorted(p for p in paths if p.is_file())


def find(catalog: Catalog, model: str, dataset: str) -> tuple[ModelSpec, WeightsRecord]:
    """A model's card and weights, trained ones included.

    Raises:
        UpkeepError: the weights are not there.
    """
    trained = TrainedModel.parse(model)
    if trained is None and catalog.model(model).source == "endpoint":
        return catalog.model(model), _endpoint(catalog, model)
    if trained is None:
        return catalog.model(model), _read(Layout(catalog.results).weights_record(model), model)
    folder = Layout(catalog.results).trained(ArtifactCell(dataset, trained.method, trained.variant, trained.base))
    manifest = folder / "manifest.json"
    if not manifest.is_file():
        raise UpkeepError(
            f"the model {model!r} has not been trained on {dataset}",
            where=folder,
            remedy=f"./upkeep artifact {dataset}/{trained.method}/{trained.variant}/{trained.base}",
        )
    files = msgspec.json.decode(manifest.read_bytes())["files"]
    sha = hashlib.sha256(msgspec.json.encode(sorted(files.items()))).hexdigest()
    return catalog.spec(model), WeightsRecord(model, str(folder / "model"), sha)


def _read(path: Path, model: str) -> WeightsRecord:
    try:
        record = msgspec.json.decode(path.read_bytes(), type=WeightsRecord)
    except FileNotFoundError:
        raise UpkeepError(
            f"no weights of the model {model!r}", where=path, remedy=f"./upkeep model fetch {model}"
        ) from None
    except msgspec.MsgspecError as error:
        raise UpkeepError(str(error), where=path, remedy=f"./upkeep model fetch {model}") from None
    if record.path is not None and not Path(record.path).is_dir():
        raise UpkeepError(
            f"the weights of {model!r} are gone", where=record.path, remedy=f"./upkeep model fetch {model}"
        )
    return record


def fetch(catalog: Catalog, model: str) -> WeightsRecord:
    """Make sure of a model's weights and write their record.

    Raises:
        UpkeepError: no such folder, package or repository, or the content hash differs from the card's.
    """
    spec = catalog.model(model)
    if spec.source == "endpoint":
        record = _endpoint(catalog, model)
        write_atomically(
            Layout(catalog.results).weights_record(model), msgspec.json.format(msgspec.json.encode(record))
        )
        return record
    folder = _folder(catalog, model, spec)
    if folder is None:
        sha = hashlib.sha256(f"{spec.location}\0{spec.revision}".encode()).hexdigest()
    else:
        if not any(folder.glob("*.json")):
            raise UpkeepError(
                f"no weights of the model {model!r} in this folder",
                where=folder,
                expected="a folder in the transformers format (config.json, weights, tokenizer)",
                remedy=f"put them there, or name another folder under `models: {{{model}: ...}}` in your configuration",
            )
        sha = hash_folder(folder)
    if spec.sha256 is not None and sha != spec.sha256:
        raise UpkeepError(
            f"the weights of {model!r} are not the pinned ones",
            where=folder,
            expected=spec.sha256,
            found=sha,
            remedy="fetch the revision that models/ names, or pin the new hash there",
        )
    record = WeightsRecord(model, str(folder) if folder else None, sha)
    write_atomically(Layout(catalog.results).weights_record(model), msgspec.json.format(msgspec.json.encode(record)))
    return record


def _endpoint(catalog: Catalog, model: str) -> WeightsRecord:
    """Nothing is fetched of a model behind an endpoint: the record is made of its card alone."""
    from upkeep.identity import endpoint_content  # which needs this module

    return WeightsRecord(model, None, endpoint_content(catalog.model(model)))


def _folder(catalog: Catalog, model: str, spec: ModelSpec) -> Path | None:
    if local := catalog.config.models.get(model):
        return (catalog.root / Path(local).expanduser()).resolve()
    match spec.source:
        case "package" | "endpoint":
            return None
        case "path":
            return (catalog.root / spec.location).resolve()
        case "hub":
            return _download(catalog, model, spec)
        case "rule":
            return _make(catalog, spec)


def _make(catalog: Catalog, spec: ModelSpec) -> Path:
    """Run a recipe of ours inside an engine's image; the result is kept by the hash of recipe and parameters."""
    from upkeep.host.runtimes import detect

    recipe = (catalog.root / "src/upkeep/cell/make_model.py").read_bytes()
    parameters = msgspec.json.encode(spec.extra, order="sorted")
    key = hashlib.sha256(recipe + spec.location.encode() + parameters).hexdigest()[:16]
    folder = Layout(catalog.results).weights(f"{spec.location}-{key}")
    # Several models may be made of one recipe (`tiny`, `tiny-vllm`): the second waits and finds the folder.
    with exclusive(folder.with_name(f".{folder.name}.lock")):
        if (folder / "config.json").is_file():
            return folder
        runtime = detect(catalog)
        prepared = runtime.prepare("closed_book", "transformers")
        building = folder.with_name(folder.name + ".partial")
        shutil.rmtree(building, ignore_errors=True)
        building.mkdir(parents=True)
        place = runtime.path_of("output", building)
        recipe_call = ["-m", "upkeep.cell.make_model", spec.location, place, parameters.decode()]
        runtime.run_tool(prepared, recipe_call, output=building)
        building.replace(folder)
        return folder


def _download(catalog: Catalog, model: str, spec: ModelSpec) -> Path:
    if spec.revision is None:
        raise UpkeepError(
            "a model from a hub needs a revision", where=catalog.root / "models" / f"{model}.yaml", expected="a commit"
        )
    folder = catalog.cache / "hub" / f"{spec.location.replace('/', '--')}@{spec.revision}"
    if (folder / ".complete").is_file():
        return folder
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
    return folder
