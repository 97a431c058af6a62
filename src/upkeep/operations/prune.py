"""What could be removed to make room: images, environments, wheels, cells that do not count, samples.

*In use* is what this copy of the suite would take as it is now; all else is *unused*: of an earlier code, lock or card,
or of another copy that shares the cache. Whatever is removed is made again when it is wanted: images and environments
from wheels, wheels from the package index, cells from the record of replies. Weights and the record are left alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from upkeep.catalog import Catalog
from upkeep.contract import Record
from upkeep.errors import UpkeepError
from upkeep.files import digest, remove
from upkeep.images.debian import MADE_BASE
from upkeep.images.docker import CommandLine, find_client, layer_names
from upkeep.images.environments import code_files, file_hashes, packages_sha, requirement_locks
from upkeep.images.locks import read_lock
from upkeep.images.plans import image_for
from upkeep.layout import SAMPLES, Layout
from upkeep.published import standing
from upkeep.text import one_line

Kind = Literal["images", "environments", "wheels", "cells", "samples"]
KINDS: tuple[Kind, ...] = get_args(Kind)
DAY_S = 86400
GB = 10**9
SHOWN = 15
ENGINES = ("docker:", "podman:")
ASK_S = 30.0
"""What an engine may take to say which images it has."""


class Item(Record, frozen=True, kw_only=True):
    """Something that could be removed."""

    kind: Kind
    name: str
    place: str
    """A path; of an image of an engine `docker:TAG`."""
    bytes: int
    """On disk; of an image of an engine those also that it shares with others."""
    days: float
    """Since it was made or last changed."""
    used: bool
    """Whether this copy of the suite would take it as it is now."""
    why: str = ""
    """Of a cell: why it does not count."""
    layers: dict[str, int] = msgspec.field(default_factory=dict)
    """Of an image of an engine: bytes of each layer which only the suite's images have; it goes with the last."""


class Pruning(Record, frozen=True, kw_only=True):
    """What there is, what was chosen of it, and what became of that."""

    items: list[Item]
    """All of the kinds that were looked for."""
    chosen: list[Item]
    frees: int
    """Bytes that go with what was chosen: a layer that several images share counts once, and not where one stays."""
    freed: int
    """Bytes; 0 where nothing was removed."""
    failed: dict[str, str] = msgspec.field(default_factory=dict)
    """Place -> why it could not be removed."""
    unasked: list[str] = msgspec.field(default_factory=list)
    """Engines that did not say which images they have."""


def prune(catalog: Catalog, kinds: Sequence[Kind], older_than: float | None, *, used: bool, delete: bool) -> Pruning:
    """Look for what could be removed, and remove it where that is asked for.

    Args:
        kinds: what is looked for; all where there are none.
        older_than: days.
        used: also what is in use.
    """
    unasked: list[str] = []
    find: dict[Kind, Callable[[], Iterable[Item]]] = {
        "images": lambda: [*_images(catalog, unasked), *_sif(catalog)],
        "environments": lambda: _environments(catalog),
        "wheels": lambda: _wheels(catalog),
        "cells": lambda: _cells(catalog),
        "samples": lambda: _samples(catalog),
    }
    items = [item for kind in KINDS if not kinds or kind in kinds for item in find[kind]()]
    old = [item for item in items if older_than is None or item.days >= older_than]
    chosen = [item for item in old if used or not item.used]
    gone, failed = list[Item](), dict[str, str]()
    for item in chosen if delete else ():
        try:
            _remove(catalog, item)
        except (UpkeepError, OSError) as error:
            failed[item.place] = error.problem if isinstance(error, UpkeepError) else str(error)
        else:
            gone.append(item)
    frees = frees_of(chosen, items)
    return Pruning(items=items, chosen=chosen, frees=frees, freed=frees_of(gone, items), failed=failed, unasked=unasked)


def frees_of(chosen: Iterable[Item], items: Iterable[Item]) -> int:
    """Bytes that go when what was chosen of the items goes."""
    places = {item.place: item for item in chosen}
    kept = {layer for item in items if item.place not in places for layer in item.layers}
    layers = {layer: size for item in places.values() for layer, size in item.layers.items() if layer not in kept}
    return sum(layers.values()) + sum(item.bytes for item in places.values() if not item.place.startswith(ENGINES))


def _remove(catalog: Catalog, item: Item) -> None:
    client, _, tag = item.place.partition(":")
    if client in ("docker", "podman"):
        found = find_client(client)
        done = found.run("image", "rm", tag) if found is not None else None
        if done is None or done.returncode:
            said = "the engine is gone" if done is None else done.stderr.strip()
            raise UpkeepError(f"{client} keeps it: {one_line(said, 200)}", where=tag)
        return
    remove(Path(item.place))
    if item.kind == "cells":
        layout = Layout(catalog.results)
        remove(layout.verdicts(item.name).parent)
    if item.kind == "images":
        remove(Path(f"{item.place}.json"))


# ---------------------------------------------------------------- what is in use


def _built(catalog: Catalog) -> Iterator[tuple[str | None, str]]:
    """Every image that this copy of the suite could ask for: method (None for an engine's own) and engine."""
    engines = sorted(path.parent.name for path in (catalog.root / "containers").glob("*/requirements.lock"))
    yield from ((None, engine) for engine in engines)
    for method in catalog.methods:
        yield method, "base"
        with contextlib.suppress(UpkeepError):  # of a card that cannot be read nothing is in use
            if catalog.method(method).holds_model:
                yield from ((method, engine) for engine in ("transformers", "vllm-gpu"))


def _each(catalog: Catalog, of: Callable[[str | None, str], Iterable[str]]) -> set[str]:
    found: set[str] = set()
    for method, engine in _built(catalog):
        with contextlib.suppress(UpkeepError, OSError):
            found.update(of(method, engine))
    return found


def _tags(catalog: Catalog) -> set[str]:
    def of(method: str | None, engine: str) -> Iterator[str]:
        plan = image_for(catalog, method, engine)
        yield plan.tag
        if plan.packages is not None:
            yield plan.packages.tag

    return _each(catalog, of)


def _folders(catalog: Catalog) -> set[str]:
    """Names of the folders under envs/, extras/ and code/."""

    def of(method: str | None, engine: str) -> Iterator[str]:
        locks = (lock for lock in requirement_locks(catalog, method, engine) if lock is not None)
        yield from (packages_sha(lock)[:32] for lock in locks)
        yield digest(file_hashes(code_files(catalog, method, engine)))[:32]

    return _each(catalog, of)


def _hashes(catalog: Catalog) -> set[str]:
    """Hashes of the files that any lock accepts."""
    folders = (catalog.root / "containers", catalog.root / "methods")
    locks = [lock for folder in folders for lock in folder.glob("*/requirements*.lock")]
    return {one for lock in locks for pin in read_lock(lock) for one in pin.hashes}


# ---------------------------------------------------------------- what there is


def _images(catalog: Catalog, unasked: list[str]) -> Iterator[Item]:
    """Of Docker and Podman."""
    used = _tags(catalog)
    for name in ("docker", "podman"):
        client = find_client(name)
        if client is None:
            continue
        known = _known(client)
        if known is None:
            unasked.append(name)
            continue
        tagged = sorted((str(tag), n) for n, one in enumerate(known) for tag in one.get("RepoTags") or [""])
        others = {layer for tag, n in tagged if not _is_own(tag) for layer in layer_names(known[n])}
        for tag, n in tagged:
            if not _is_own(tag):
                continue
            one, plain = known[n], tag.removeprefix("localhost/")
            layers = client.layers(one).items()
            yield Item(
                kind="images",
                name=plain,
                place=f"{name}:{tag}",
                bytes=int(one.get("Size") or 0),
                days=_days_since(str(one.get("Created", ""))),
                used=plain in used or plain.startswith(MADE_BASE),
                layers={f"{name}:{layer}": size for layer, size in layers if layer not in others},
            )


def _is_own(tag: str) -> bool:
    return tag.removeprefix("localhost/").startswith("upkeep/")


def _known(client: CommandLine) -> list[dict[str, Any]] | None:
    """What an engine says of each of its images; None where it does not answer."""
    try:
        done = client.run("image", "ls", "--quiet", "--no-trunc", timeout=ASK_S)
        if done.returncode:
            return None
        # One that is removed meanwhile is told as an error, beside what the others are.
        names = dict.fromkeys(done.stdout.split())
        told = client.run("image", "inspect", *names, timeout=ASK_S).stdout if names else "[]"
        found: list[dict[str, Any]] = json.loads(told)
        return found
    except Exception:
        return None


def _days_since(made: str) -> float:
    try:
        return max(0.0, (time.time() - datetime.fromisoformat(made[:19] + "+00:00").timestamp()) / DAY_S)
    except ValueError:
        return 0.0


def _sif(catalog: Catalog) -> Iterator[Item]:
    """Apptainer's: which base they are on is not known here, so what has the inputs of one in its name is in use where
    its method or engine is there at all and nothing newer of it is."""
    newest: dict[str, float] = {}
    files = [path for path in (catalog.cache / "sif").glob("*") if path.suffix in (".sif", ".sqsh")]
    for path in files:
        of = path.stem.rpartition("-")[0]
        newest[of] = max(newest.get(of, 0.0), path.with_name(f"{path.name}.json").stat().st_mtime)
    for path in files:
        when = path.with_name(f"{path.name}.json").stat().st_mtime
        yield _item("images", path.name, path, when >= newest[path.stem.rpartition("-")[0]], when)


def _environments(catalog: Catalog) -> Iterator[Item]:
    used = _folders(catalog)
    for kind in ("envs", "extras", "code"):
        for path in _inside(catalog.cache / kind):
            yield _item("environments", f"{kind}/{path.name}", path, path.name in used)


def _wheels(catalog: Catalog) -> Iterator[Item]:
    used = _hashes(catalog)
    for path in _inside(catalog.cache / "wheels"):
        names = [one.name for one in path.iterdir()]
        yield _item("wheels", names[0] if names else path.name, path, path.name in used)


def _cells(catalog: Catalog) -> Iterator[Item]:
    """Published cells that do not count as things are now, whatever suite they are of."""
    layout = Layout(catalog.results)
    with catalog.hashes.at_once():
        for dataset in _inside(layout.results / "cells"):
            for cell in layout.cells_of(dataset.name):
                try:
                    catalog.check(cell)
                    problem = standing(catalog, cell, as_asked=True).problem
                except UpkeepError as error:
                    problem = error
                if problem is not None:
                    why = one_line(problem.problem, 120)
                    yield _item("cells", str(cell), layout.cell(cell), used=False, why=why)


def _samples(catalog: Catalog) -> Iterator[Item]:
    for path in _inside(Layout(catalog.results).shared / SAMPLES):
        yield _item("samples", path.name, path, used=False)


def _inside(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def _item(kind: Kind, name: str, path: Path, used: bool, when: float | None = None, why: str = "") -> Item:
    days = max(0.0, (time.time() - (path.stat().st_mtime if when is None else when)) / DAY_S)
    return Item(kind=kind, name=name, place=str(path), bytes=_size(path), days=days, used=used, why=why)


def _size(path: Path) -> int:
    """Bytes on disk under a path; what has several names counts once."""
    if path.is_file():
        return path.stat().st_blocks * 512
    seen: dict[tuple[int, int], int] = {}
    for folder, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):  # gone meanwhile
                found = Path(folder, name).lstat()
                seen[found.st_dev, found.st_ino] = found.st_blocks * 512
    return sum(seen.values())


# ---------------------------------------------------------------- on the terminal


def lines(found: Pruning, *, delete: bool, used: bool) -> Iterator[str]:
    """What there is by kind, and what would go or went."""
    kinds = [kind for kind in KINDS if any(item.kind == kind for item in found.items)]
    for kind in kinds:
        those = [item for item in found.items if item.kind == kind]
        parts = [(word, [item for item in those if item.used == is_used]) for word, is_used in _WORDS]
        told = (f"{word} {len(some):,} ({_gb(frees_of(some, those))})" for word, some in parts if some)
        yield f"{kind:13} {', '.join(told)}"
    if not kinds:
        yield "nothing is there that could be removed"
    yield from (f"{name} did not say which images it has" for name in found.unasked)
    if found.chosen:
        yield ""
    largest = sorted(found.chosen, key=lambda item: -item.bytes)
    for item in largest[:SHOWN]:
        yield f"  {_gb(item.bytes):>9}  {item.days:5.0f} days  {item.kind:12}  {item.name}" + (
            f": {item.why}" if item.why else ""
        )
    if len(largest) > SHOWN:
        yield f"  and {len(largest) - SHOWN:,} more (--json has all)"
    for place, why in found.failed.items():
        yield f"not removed: {place}: {why}"
    if delete:
        yield f"removed {len(found.chosen) - len(found.failed):,}: {_gb(found.freed)} freed"
    elif found.chosen:
        what = "all of this" if used else "what is unused"
        yield f"nothing was removed; --delete removes {what}: {_gb(found.frees)}"
    if not used and any(item.used and item.kind != "cells" for item in found.items):
        yield "--used adds what is in use: it is made again when it is wanted"


_WORDS = (("unused", False), ("in use", True))


def _gb(size: int) -> str:
    return f"{size / GB:.2f} GB" if size >= GB / 10 else f"{size / 10**6:.1f} MB"
