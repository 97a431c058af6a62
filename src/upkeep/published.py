"""Reads what the suite has published: the one place that says whether a cell or a trained model counts.

Scoring, report, status and the workflow ask here, so that none believes what another refuses.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from upkeep import inputs
from upkeep.catalog import Catalog
from upkeep.contract import (
    Manifest,
    Prediction,
    Usage,
)
from upkeep.errors import UpkeepError
from upkeep.files import digest, open_regular
from upkeep.identity import BY_SUITE, DATASET_VERSION, identity, plan_dataset
from upkeep.inputs import command_of, remedy_of
from upkeep.integrity import Damaged, Missing, Stale, verified_once, verify_folder
from upkeep.jobs import Cell, Job
from upkeep.layout import Layout


class MadeOtherwise(Stale):
    """What a job has published was made, or asked, otherwise than it would be now; what it is made from is as it should
    be."""


def folder_of(catalog: Catalog, job: Job) -> Path:
    """Where a job is published."""
    layout = Layout(catalog.results)
    return layout.cell(job) if isinstance(job, Cell) else layout.trained(job)


@verified_once
def read_published(catalog: Catalog, job: Job, *, as_asked: bool = False) -> Manifest:
    """The manifest of a published job, after checking all that its numbers rest on: its seal, its files, its name, and
    that it was made of what is there now.

    Args:
        as_asked: it may have been asked by another suite: by its seed, as often as that one says.

    Raises:
        Missing: it is not published, or an input is not there.
        Damaged: it, or an input, is not what was written.
        Stale: it, or an input, was made of other code, data or settings than are here now.
    """
    path = folder_of(catalog, job) / "manifest.json"
    manifest = verify_folder(path.parent, catalog.hashes) if isinstance(job, Cell) else inputs.trained(catalog, job)
    if manifest.cell != str(job):
        raise Damaged(
            "the results of another job",
            where=path,
            expected=str(job),
            found=manifest.cell,
            remedy=remedy_of(catalog, job),
        )
    require_fresh(catalog, job)
    current, parts = identity(catalog, job)
    old = manifest.identity_parts
    asked = {name: old[name] for name in BY_SUITE if name in old and old[name] != parts.get(name)}
    if as_asked and asked:
        parts |= asked
        current = digest(parts)
    if manifest.identity != current:
        differs = sorted(name for name in parts | old if parts.get(name) != old.get(name))
        if not isinstance(job, Cell):
            problem = "the trained model was made of something else than what is there now"
        elif DATASET_VERSION in differs:
            was, now = (given.get(DATASET_VERSION, "1") for given in (old, parts))
            problem = f"stale: of version {was} of {job.dataset}, which is at version {now}; run it again"
        elif differs and set(differs) <= set(BY_SUITE):
            suite = catalog.config.suite
            problem = f"stale: asked by another suite than {suite!r}, with another {' and '.join(differs)}"
        else:
            problem = "stale: made with other code, data or settings; run it again"
        raise MadeOtherwise(
            problem,
            where=path,
            expected=f"identity {current}",
            found=f"identity {manifest.identity}; what differs: {', '.join(differs)}",
            remedy=remedy_of(catalog, job),
        )
    return manifest


def predictions(catalog: Catalog, cell: Cell) -> Iterator[Prediction]:
    """The predictions of a published cell, in the order of its probes, whether or not they count as things are now.

    Raises:
        Missing: it is not published.
        Damaged: it is not what was written.
    """
    folder = folder_of(catalog, cell)
    if not os.path.lexists(folder / "manifest.json"):
        raise Missing("this cell is not published", where=folder, remedy=command_of(cell))
    verify_folder(folder, catalog.hashes)
    decoder = msgspec.json.Decoder(Prediction)
    with open_regular(folder / "predictions.jsonl") as file:
        for line in file:
            yield decoder.decode(line)


def arrival(manifest: Manifest) -> Usage:
    """Of the calls that a cell made as documents arrived, as where a memory is written."""
    return Usage(**{name: int(manifest.measured.get(f"arrival_{name}", 0)) for name in Usage.__struct_fields__})


def asked(manifest: Manifest) -> Usage:
    """Of all calls: those behind the predictions, which `usage` has, and those as documents arrived."""
    both = (manifest.usage, arrival(manifest))
    return Usage(**{name: sum(getattr(one, name) for one in both) for name in Usage.__struct_fields__})


def told(manifest: Manifest) -> str:
    """How many predictions a cell has, in words; and how many versions of a model gave them, where that is several."""
    failed = f", {manifest.failed:,} of them failed" if manifest.failed else ""
    versions = int(manifest.measured.get("versions", 1))
    mixed = f", answered by {versions} versions of the model (`./upkeep show`)" if versions > 1 else ""
    return f"{manifest.predictions:,} predictions{failed}{mixed}"


def require_fresh(catalog: Catalog, job: Job) -> None:
    """Refuse a job whose dataset or trained model was made of something else than what is there now.

    Raises:
        Missing, Damaged, Stale: as `read_published`.
    """
    card = inputs.dataset(catalog, job.dataset)
    if card.plan != (plan := plan_dataset(catalog, job.dataset)):
        was, now = card.dataset_version, catalog.dataset(job.dataset).version
        other = f"is of version {was} of {now}" if was != now else "was built from other options, code or inputs"
        raise Stale(
            f"the dataset {job.dataset!r} {other}",
            where=Layout(catalog.results).dataset(job.dataset) / "card.json",
            expected=f"plan {plan}",
            found=card.plan or "none",
            remedy=f"./upkeep dataset build {job.dataset}",
        )
    if training := catalog.training_of(job):
        read_published(catalog, training)


@dataclass(frozen=True, slots=True)
class Standing:
    """Whether a job's results count."""

    manifest: Manifest | None
    """Of one that counts."""
    problem: UpkeepError | None
    """Why one that is published does not; with neither, it has not been run."""


def standing(catalog: Catalog, job: Job, *, as_asked: bool = False) -> Standing:
    """How a job stands (`as_asked` as of `read_published`). Nothing that lies under the results raises."""
    try:
        return Standing(read_published(catalog, job, as_asked=as_asked), None)
    except UpkeepError as error:
        return Standing(None, error if os.path.lexists(folder_of(catalog, job)) else None)
