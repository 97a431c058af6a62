"""What a job printed: where its logs lie, and their ends, made fit for a terminal."""

from __future__ import annotations

import difflib
import glob
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from upkeep.batches import batches
from upkeep.catalog import Catalog
from upkeep.contract import Record
from upkeep.errors import UpkeepError
from upkeep.execution.status import ENDED, Status, alive, read
from upkeep.layout import Layout
from upkeep.machine.clock import now
from upkeep.operations.needs import Of, trainings
from upkeep.text import printable

KINDS: tuple[Of, ...] = ("cells", "trained")
SHOWN_LINES = 40
BLOCK_BYTES = 64 * 1024
"""What is read of a log's end: a line may be of any length."""
POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class Log:
    what: str
    path: Path


@dataclass(frozen=True, slots=True)
class JobLogs:
    """The logs of a cell or a training."""

    of: Of
    name: str
    status: Status | None
    logs: list[Log]
    """Where they lie, or will: the container's last."""


class ToldLog(Record, frozen=True, kw_only=True):
    """A log of a job, for programs."""

    what: str
    """`container`, `job`, `batch`, `engine`, `engine of its own` or `SLURM job`."""
    path: str
    there: bool
    lines: list[str]
    """The last 40; with `--full` all."""


class ToldJob(Record, frozen=True, kw_only=True):
    """A cell or training; `./upkeep logs CELL --json` prints a list of these: one, or both where they share a name."""

    of: Of
    name: str
    state: str | None
    """`status.state`; `interrupted` where its supervisor is gone; null without a status."""
    status: Status | None
    logs: list[ToldLog]
    """The container's last."""


# ---------------------------------------------------------------- which job


def find(catalog: Catalog, text: str) -> str:
    """The name of the job that a user means: DATASET/METHOD/VARIANT/MODEL, the beginning of it, or any part.

    Known are the cells of the configured suite with what they need, and whatever has a log or a status.

    Raises:
        UpkeepError: none, or several.
    """
    wanted = text.strip().strip("/")
    known = _known(catalog)
    if wanted in known:
        return wanted
    ways: tuple[Callable[[str], bool], ...] = (
        lambda name: name.endswith(f"/{wanted}"),
        lambda name: name.startswith(wanted),
        lambda name: name.endswith(wanted),
        lambda name: wanted in name,
        lambda name: all(part in name for part in wanted.split("/")),
    )
    matches = next((found for way in ways if (found := [name for name in known if way(name)])), [])
    if len(matches) == 1:
        return matches[0]
    if matches:
        listed = "\n            ".join([*matches[:12], *(["..."] if len(matches) > 12 else [])])
        raise UpkeepError(f"{len(matches)} jobs match {text!r}", expected="one", found=listed, remedy="say more of it")
    close = difflib.get_close_matches(wanted, known, n=3, cutoff=0.4)
    raise UpkeepError(
        f"no cell or training {text!r}",
        expected="DATASET/METHOD/VARIANT/MODEL, or a part of it that fits one alone",
        remedy=f"did you mean {' or '.join(close)}?" if close else "./upkeep list cells",
    )


def _known(catalog: Catalog) -> dict[str, None]:
    cells = catalog.cells(catalog.suite(catalog.config.suite))
    names = dict.fromkeys(str(job) for job in (*cells, *trainings(catalog, cells)))
    layout = Layout(catalog.results)
    for of in KINDS:
        places = {layout.status(of, "_").parent: ".json", layout.log(of, "_").parent: ".log"}
        for folder, suffix in places.items():
            for path in sorted(folder.glob(f"*/*/*/*{suffix}")):
                name = path.relative_to(folder).as_posix().removesuffix(suffix).removesuffix(".container")
                names.setdefault(name)
    return names


def logs_of(catalog: Catalog, name: str) -> list[JobLogs]:
    """The logs of the jobs of this name: a cell or a training, or of both where they have the same name."""
    layout, found = Layout(catalog.results), []
    batch = _batch(catalog, name)
    for of in KINDS:
        log, status = layout.log(of, name), read(layout.status(of, name))
        places = [Log("container", log.with_name(f"{log.stem}.container.log")), Log("job", log)]
        if status is None and not any(place.path.is_file() for place in places):
            continue
        if status is not None and status.job is not None:
            logs = catalog.root / ".snakemake" / "slurm_logs"
            places += [Log("SLURM job", path) for path in sorted(logs.rglob(f"{glob.escape(status.job)}.log"))]
        if batch is not None and of != "trained":
            places += [Log("batch", layout.log("batches", batch)), Log("engine", layout.log("engines", batch))]
        if (own := layout.log("engines", name)).is_file():
            places.append(Log("engine of its own", own))
        found.append(JobLogs(of, name, status, places[::-1]))
    return found


def _batch(catalog: Catalog, name: str) -> str | None:
    cells = catalog.cells(catalog.suite(catalog.config.suite))
    return next((batch.name for batch in batches(catalog, cells) if name in map(str, batch.cells)), None)


# ---------------------------------------------------------------- what they say


def tail(path: Path, lines: int | None = SHOWN_LINES, end: int | None = None) -> Iterator[str]:
    """The last lines of a log, all of it where `lines` is None; made fit for a terminal.

    Args:
        end: where to stop, in bytes; by default at its end.
    """
    if lines is not None:
        try:
            with path.open("rb") as file:
                end = file.seek(0, os.SEEK_END) if end is None else end
                start = max(0, end - BLOCK_BYTES)
                file.seek(start)
                text = printable(file.read(end - start).decode("utf-8", "replace"))
        except OSError as error:
            yield f"[cannot be read: {error.strerror}]"
            return
        kept = text.splitlines()
        yield from kept[1 if start and len(kept) > 1 else 0 :][-lines:]
        return
    followed = Followed(path)
    while new := followed.new(end):
        yield from new
    yield from followed.rest()


@dataclass(slots=True)
class Followed:
    """A log that grows; one that is begun anew is read anew."""

    path: Path
    place: int = 0
    _part: bytes = b""

    def new(self, end: int | None = None) -> list[str]:
        """The lines that have become whole since the last call, as far as one reading (and `end`) holds them."""
        try:
            with self.path.open("rb") as file:
                if file.seek(0, os.SEEK_END) < self.place:
                    self.place, self._part = 0, b""
                file.seek(self.place)
                block = file.read(BLOCK_BYTES if end is None else min(BLOCK_BYTES, end - self.place))
        except OSError:
            return []
        self.place += len(block)
        *whole, self._part = (self._part + block).split(b"\n")
        if len(self._part) >= BLOCK_BYTES:
            whole, self._part = [*whole, self._part], b""
        return [line for one in whole for line in printable(one.decode("utf-8", "replace")).split("\n")]

    def rest(self) -> list[str]:
        """A last line that nothing ended; once."""
        part, self._part = self._part, b""
        return printable(part.decode("utf-8", "replace")).splitlines()


def follow(catalog: Catalog, jobs: Iterable[JobLogs], followed: Iterable[tuple[Log, Followed]]) -> Iterator[str]:
    """Lines as they come, with the log's name where it is another one than before; ends with the jobs."""
    jobs, followed, last = list(jobs), list(followed), None
    layout = Layout(catalog.results)
    while True:
        statuses = [read(layout.status(job.of, job.name)) for job in jobs]
        at_work = any(status is not None and alive(status, now()) for status in statuses)
        for log, file in followed:
            while lines := file.new() or ([] if at_work else file.rest()):
                if log is not last:
                    yield heading(log)
                    last = log
                yield from lines
        if not at_work:
            return
        time.sleep(POLL_S)


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def heading(log: Log) -> str:
    return f"==== {log.what}: {log.path}"


def lines(catalog: Catalog, name: str, *, full: bool, following: bool) -> Iterator[str]:
    """What `./upkeep logs` prints of a job.

    Raises:
        UpkeepError: it has not been begun.
    """
    jobs, followed = _begun(catalog, name), []
    for job in jobs:
        yield _headline(job)
        for log in job.logs:
            end = _size(log.path)
            followed.append((log, Followed(log.path, end)))
            if log.path.is_file():
                yield heading(log)
                yield from tail(log.path, None if full else SHOWN_LINES, end)
    if following:
        yield from follow(catalog, jobs, followed)


def tell(catalog: Catalog, name: str, *, full: bool) -> list[ToldJob]:
    """The same for programs.

    Raises:
        UpkeepError: it has not been begun.
    """
    return [
        ToldJob(
            of=job.of,
            name=job.name,
            state=_state(job.status),
            status=job.status,
            logs=[
                ToldLog(
                    what=log.what,
                    path=str(log.path),
                    there=log.path.is_file(),
                    lines=list(tail(log.path, None if full else SHOWN_LINES)) if log.path.is_file() else [],
                )
                for log in job.logs
            ],
        )
        for job in _begun(catalog, name)
    ]


def _begun(catalog: Catalog, name: str) -> list[JobLogs]:
    if jobs := logs_of(catalog, name):
        return jobs
    raise UpkeepError(f"{name}: no log and no status: it has not been begun", remedy="./upkeep status")


def _state(status: Status | None) -> str | None:
    """Of a job: as its supervisor said, or `interrupted` where that is gone; None where it said nothing."""
    if status is None or status.state in ENDED or alive(status, now()):
        return None if status is None else status.state
    return "interrupted"


def _headline(job: JobLogs) -> str:
    what = {"cells": "cell", "trained": "training"}[job.of]
    if (status := job.status) is None:
        return f"{what} {job.name}: no status"
    state = f"interrupted while {status.state}" if (said := _state(status)) == "interrupted" else said
    text = f"{what} {job.name}: {state}, {status.done:,} of {status.total:,} records, {status.updated[:19]}Z"
    text += f", on {status.node}" if status.node else ""
    text += f", SLURM job {status.job}" if status.job else ""
    if status.state == "failed":
        text += f"\n{status.kind or 'other'}: {status.message}"
    return printable(text)
