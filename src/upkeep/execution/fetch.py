"""Gets weights: from a hub, from a recipe of ours, or from where a user says that they are; and takes them in."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from upkeep.catalog import Catalog
from upkeep.contract import Fingerprint, ModelSpec
from upkeep.errors import UpkeepError
from upkeep.execution.detection import detect
from upkeep.fields import endpoint_content
from upkeep.file_locks import exclusive
from upkeep.integrity import fingerprint, write_sealed
from upkeep.layout import Layout
from upkeep.weights import Weights, WeightsRecord, content_of, files_of, parameters, place

WANTED = ("*.json", "*.safetensors", "*.txt", "*.model", "*.jinja", "*.tiktoken")
"""What is downloaded of a hub's repository: weights as data, configuration, tokenizer. No pickles and no code."""


def fetch(catalog: Catalog, model: str) -> Weights:
    """Make sure of a model's weights and write their record.

    Raises:
        UpkeepError: no such folder, package or repository, or the content hash differs from the card's.
    """
    spec = catalog.model(model)
    folder, files = place(catalog, model, spec), dict[str, Fingerprint]()
    if spec.source == "endpoint":
        sha = endpoint_content(catalog.model(model))
    elif folder is None:
        sha = hashlib.sha256(f"{spec.location}\0{spec.revision}".encode()).hexdigest()
    else:
        if catalog.own_weights(model) is None:
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
            remedy=f"put back the pinned ones, or pin these under `sha256:` in {catalog.model_card(model)}",
        )
    write_sealed(Layout(catalog.results).weights_record(model), WeightsRecord(model=model, sha256=sha, files=files))
    return Weights(folder, sha)


def _get(catalog: Catalog, model: str, spec: ModelSpec, folder: Path) -> None:
    """Fetch or make what belongs into a folder of the suite's own."""
    if spec.source == "hub":
        _download(catalog, model, spec, folder)
    elif spec.source == "rule":
        _make(catalog, spec, folder)


def _make(catalog: Catalog, spec: ModelSpec, folder: Path) -> None:
    """Run a recipe of ours inside an engine's image; the result is kept by the hash of recipe and parameters."""
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
        recipe_call = ["-m", "upkeep.serving.make_model", spec.location, output, parameters(spec).decode()]
        runtime.run_tool(prepared, recipe_call, output=building)
        building.replace(folder)


def _download(catalog: Catalog, model: str, spec: ModelSpec, folder: Path) -> None:
    if spec.revision is None:
        raise UpkeepError(
            "a model from a hub needs a revision", where=catalog.root / catalog.model_card(model), expected="a commit"
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
