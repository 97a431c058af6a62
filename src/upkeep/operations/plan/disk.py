"""What of a suite lies on disk at the end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from upkeep.catalog import Catalog
from upkeep.errors import UpkeepError
from upkeep.execution.roofline import weight_bytes
from upkeep.images.environments import packages_of
from upkeep.images.records import ImageRecord
from upkeep.integrity import read_sealed
from upkeep.jobs import Cell, Job
from upkeep.layout import Layout
from upkeep.needs import models_of
from upkeep.operations.plan.amounts import Disk
from upkeep.operations.plan.counts.tally import Tally

LINE_BYTES = 1600
"""Of a prediction without its reply, retrieved documents included."""
CHARACTERS = 4
"""Of a generated token in a prediction."""


def on_disk(catalog: Catalog, tallies: Mapping[Job, Tally], jobs: Iterable[Job]) -> list[Disk]:
    """Datasets, images, weights and predictions of some jobs.

    Args:
        tallies: of the cells among them.
    """
    layout, jobs = Layout(catalog.results), list(jobs)
    datasets = dict.fromkeys(job.dataset for job in jobs if isinstance(job, Cell))
    images = dict.fromkeys(image for job in jobs for image in catalog.images(job))
    models = dict.fromkeys(name for job in jobs for name in models_of(catalog, job))
    answers = [t for job, t in tallies.items() if isinstance(job, Cell)]
    written = [t.records * LINE_BYTES + t.output * CHARACTERS for t in answers if t.unknown is None]
    return [
        _disk("datasets", [_size(layout.dataset(name)) for name in datasets]),
        _images([(packages_of(engine), layout.image(method, engine)) for method, engine in images]),
        _disk("weights", [_weights_size(catalog, name) for name in models]),
        Disk(what="predictions", count=len(answers), bytes=sum(written), unknown=len(answers) - len(written)),
    ]


def _weights_size(catalog: Catalog, model: str) -> float | None:
    spec = catalog.spec(model)
    return 0.0 if spec.source in ("endpoint", "package") else weight_bytes(spec)


def _disk(what: str, sizes: Sequence[float | None]) -> Disk:
    known = [size for size in sizes if size is not None]
    return Disk(what=what, count=len(sizes), bytes=sum(known), unknown=len(sizes) - len(known))


def _size(folder: Path) -> float | None:
    return float(sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())) if folder.is_dir() else None


def _images(records: Sequence[tuple[str, Path]]) -> Disk:
    """Images, by the packages below and record; unknown is the size of one that is not built, or is an environment.

    Images that are built on the same share its layers, so beyond the smallest one only what is added counts.
    """
    sizes: dict[str, list[int]] = {}
    for engine, path in records:
        try:
            size = read_sealed(path, ImageRecord, "").size
        except UpkeepError:
            continue  # not there, or made again by the next run
        if size:
            sizes.setdefault(engine, []).append(size)
    added = sum(sum(of_engine) - min(of_engine) * (len(of_engine) - 1) for of_engine in sizes.values())
    unknown = len(records) - sum(map(len, sizes.values()))
    return Disk(what="images", count=len(records), bytes=added, unknown=unknown)
