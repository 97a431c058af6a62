"""The record of replies as a whole: what is in it, from machine to machine, and less."""

from __future__ import annotations

import re
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Literal

from upkeep.catalog import Catalog
from upkeep.contract import Record
from upkeep.errors import UpkeepError
from upkeep.files import digest, replacing
from upkeep.gateway.engines import all_parts, assistants, host_parts, judges
from upkeep.gateway.record import Replies, engines
from upkeep.integrity import Missing
from upkeep.jobs import Job
from upkeep.layout import Layout

_MEMBER = re.compile(r"([0-9a-f]{64})/(engine\.json|[\w.-]+\.log)")


Use = Literal["in use", "unknown", "unused"]
_SAID: dict[Use, str] = {
    "in use": "in use",
    "unknown": "unknown, its weights are not here",
    "unused": "of other weights, packages or code",
}


class Kept(Record, frozen=True, kw_only=True):
    """An engine or endpoint with replies on record; `./upkeep record list --json` prints a list of these."""

    engine: str
    """What the replies are kept by, whole."""
    model: str
    """The name that it was last asked by."""
    package: str
    """Of the engine, with its version; empty where it said none."""
    entries: int
    bytes: int
    """On disk."""
    use: Use
    """Whether a cell of this copy can use it: `in use`; `unknown` where its weights are not here; `unused`: of other
    weights, packages or code."""


def kept(catalog: Catalog) -> Iterator[Kept]:
    """Each engine or endpoint with replies on record."""
    record = Layout(catalog.results).record
    used, unknown = _used(catalog)
    for one in engines(record):
        use: Use = "in use" if one.engine in used else "unknown" if one.model in unknown else "unused"
        yield Kept(
            engine=one.engine,
            model=one.model,
            package=" ".join(str(one.ready[name]) for name in ("name", "version") if name in one.ready),
            entries=len(Replies(record, one.parts, one.model)),
            bytes=sum(path.stat().st_size for path in (record / one.engine).iterdir()),
            use=use,
        )


def listing(catalog: Catalog) -> Iterator[str]:
    """A line for each engine: model, package, replies, bytes, and whether a cell of this copy can use it."""
    for one in kept(catalog):
        size = f"{one.entries:,} entries  {one.bytes / 1e6:,.1f} MB"
        yield f"{one.engine[:16]}  {one.model}  {one.package}  {size}  {_SAID[one.use]}"


def export(catalog: Catalog, target: Path) -> Iterator[str]:
    """Write the whole record to one file (tar).

    Raises:
        UpkeepError: there is nothing on record, or no room.
    """
    record = Layout(catalog.results).record
    known = engines(record)
    if not known:
        raise UpkeepError("there is nothing on record", where=record, remedy="run a cell first")
    with replacing(target) as file, tarfile.open(fileobj=file, mode="w") as archive:
        for one in known:
            folder = record / one.engine
            for path in [folder / "engine.json", *sorted(folder.glob("*.log"))]:
                archive.add(path, f"{one.engine}/{path.name}", recursive=False)
    for one in known:
        yield f"{one.engine[:16]}  {one.model}: {len(Replies(record, one.parts, one.model)):,} entries"


def take_in(catalog: Catalog, source: Path) -> Iterator[str]:
    """Add the replies of an exported file to the record. Each is verified; what is not whole is passed over.

    Raises:
        UpkeepError: the file is no exported record, or says of an engine what is not so.
    """
    record = Layout(catalog.results).record
    with tempfile.TemporaryDirectory(prefix="upkeep-") as place:
        folder = Path(place)
        with source.open("rb") as file:
            _unpack(file, source, folder)
        for one in engines(folder):
            theirs, ours = Replies(folder, one.parts, one.model), Replies(record, one.parts, one.model)
            if ours.ready() is None:
                ours.say_ready(one.ready)
            new = 0
            for stamp, key, value in theirs.entries():
                if ours.get(key) != value:
                    ours.put(key, value, stamp)
                    new += 1
            ours.close()
            yield f"{one.engine[:16]}  {one.model}: {new:,} new entries of {len(theirs):,}"


def _unpack(file: IO[bytes], source: Path, folder: Path) -> None:
    try:
        with tarfile.open(fileobj=file, mode="r:") as archive:
            for member in archive:
                found = _MEMBER.fullmatch(member.name)
                content = archive.extractfile(member) if found and member.isreg() else None
                if found is None or content is None:
                    raise UpkeepError(
                        "no exported record",
                        where=source,
                        expected="ENGINE/engine.json and ENGINE/....log",
                        found=repr(member.name[:100]),
                    )
                path = folder / found[1] / found[2]
                path.parent.mkdir(exist_ok=True)
                with path.open("xb") as target:
                    shutil.copyfileobj(content, target)
    except (tarfile.TarError, EOFError, FileExistsError) as error:
        raise UpkeepError(
            "no exported record", where=source, expected="a file that `record export` wrote", found=error
        ) from None


def prune(catalog: Catalog) -> Iterator[str]:
    """Remove the replies of engines that nothing of this copy can ask: of other weights, packages or code.

    An engine whose model's weights are not on this machine is left.
    """
    record = Layout(catalog.results).record
    used, unknown = _used(catalog)
    for one in engines(record):
        if one.engine in used or one.model in unknown:
            continue
        shutil.rmtree(record / one.engine)
        yield f"removed {one.engine[:16]}  {one.model}"


def _used(catalog: Catalog) -> tuple[set[str], set[str]]:
    """Engines and embedders that cells of any suite, builders of datasets or judging ask; models of which nobody can
    tell, for want of their weights."""
    record, unknown = Layout(catalog.results).record, set[str]()
    found = {one.engine for one in engines(record) if "endpoint" in one.parts}  # paid for: in use, whoever asks
    cells = {cell for name in catalog.suites for cell in catalog.cells(catalog.suite(name))}
    # Datasets make no other engine, unless a model is trained on what it is asked about.
    kinds = {(c.method, c.variant, c.model, *map(str, catalog.trainings_of(c))): c for c in sorted(cells)}
    jobs: list[Job] = list(kinds.values())
    jobs += dict.fromkeys(training for cell in kinds.values() for training in catalog.trainings_of(cell))
    for job in jobs:
        for role, model in catalog.asked(job).items():
            if catalog.engine(model) is None:
                continue
            try:
                found.update(map(digest, all_parts(catalog, job, role, model)))
            except Missing:
                unknown.add(model)
    for model in {*judges(catalog), *(one for dataset in catalog.datasets for one in assistants(catalog, dataset))}:
        try:
            found.add(digest(host_parts(catalog, model)))
        except Missing:
            unknown.add(model)
    return found, unknown
