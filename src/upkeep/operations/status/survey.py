"""Looks at every cell of a suite, and every training that it needs."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import msgspec

from upkeep.batches import batches
from upkeep.catalog import Catalog
from upkeep.errors import Kind, UpkeepError
from upkeep.execution.status import ENDED, Status, alive, read
from upkeep.gateway.endpoints.ledger import read as read_ledger
from upkeep.integrity import Damaged
from upkeep.jobs import Cell, Job
from upkeep.layout import Layout
from upkeep.machine.clock import now
from upkeep.needs import gpus_of
from upkeep.operations.needs import Of, trainings
from upkeep.operations.plan.taken import worked_s
from upkeep.operations.status.advice import next_steps
from upkeep.operations.status.queue import Queue, Waiting
from upkeep.operations.status.states import STATES, JobView, State, Survey
from upkeep.published import Standing, standing
from upkeep.text import printable, short


def survey(catalog: Catalog, suite: str, queue: Queue | None = None) -> Survey:
    """How far each cell of a suite is, and each training that it needs.

    Args:
        queue: the batch system's; by default it is asked.

    Raises:
        UpkeepError: no such suite, or its cards are wrong. What lies under the results never raises.
    """
    moment = now()
    cells = catalog.cells(catalog.suite(suite))
    wanted: list[Job] = [*cells, *trainings(catalog, cells)]
    # A shared file system answers slowly, but many at a time.
    with catalog.hashes.at_once(), ThreadPoolExecutor(8) as pool:
        jobs = list(pool.map(lambda job: _read(catalog, job), wanted))
    queue = queue or Queue.ask()
    queue = queue.with_jobs(s.job for j in jobs if (s := j.status) and s.job and s.state in ("starting", "running"))
    running = frozenset(job.id for job in queue.jobs if job.at_work) if queue.known else None
    waiting = _names_of_waiting(catalog, cells, queue)
    views = [_view(job, moment, running, waiting, queue) for job in jobs]
    views = _in_turn(catalog, cells, views)
    published = [(job.job, manifest) for job in jobs if (manifest := job.standing.manifest)]
    seen = Counter(view.state for view in views if view.of == "cells")
    found = Survey(
        suite=suite,
        time=moment,
        counts={state: seen[state] for state in STATES},
        jobs=views,
        queued_jobs=sum(job.subject is not None and not job.at_work for job in queue.jobs) if queue.known else None,
        queue_problem=queue.problem if queue.there else None,
        seconds=sum(worked_s(manifest) for _, manifest in published),
        gpu_hours=sum(worked_s(manifest) / 3600 * _gpus(catalog, job) for job, manifest in published),
        cost_usd=sum(manifest.measured.get("cost_usd", 0.0) for _, manifest in published),
        spent_usd=_spent(catalog, cells),
        next=[],
    )
    return msgspec.structs.replace(found, next=next_steps(catalog, found))


@dataclass(frozen=True, slots=True)
class _Job:
    of: Of
    job: Job
    status: Status | None
    standing: Standing


def _read(catalog: Catalog, job: Job) -> _Job:
    of: Of = "cells" if isinstance(job, Cell) else "trained"
    return _Job(of, job, read(Layout(catalog.results).status(of, job)), standing(catalog, job))


def _view(
    job: _Job,
    moment: str,
    running: frozenset[str] | None,
    waiting: Mapping[str, Waiting],
    queue: Queue,
) -> JobView:
    name, status = str(job.job), job.status
    plain = JobView(name=name, of=job.of, state="not begun")
    if status is not None:
        plain = JobView(
            name=name,
            of=job.of,
            state="running",
            done=status.done,
            total=status.total,
            node=printable(status.node),
            job=status.job,
        )
        if alive(status, moment, running):
            remark = short(f"{status.state} {printable(status.message)}".rstrip())
            return msgspec.structs.replace(plain, reason=remark, per_second=status.rate, left_s=status.left_s(moment))
    if manifest := job.standing.manifest:
        return msgspec.structs.replace(
            plain,
            state="done",
            total=manifest.predictions,
            failed=manifest.failed,
            mostly_failed=manifest.mostly_failed,
        )
    if waits := waiting.get(name) or (
        queue.by_id.get(status.job or "") if status and status.state not in ENDED else None
    ):
        return msgspec.structs.replace(plain, state="queued", job=waits.id, reason=waits.why, node="")
    if status is not None and status.state not in ("done", "reused"):
        failed = status.state == "failed"
        kind: Kind = (status.kind or "other") if failed else "interrupted"
        reason = short(printable(status.message)) if status.state in ENDED else _vanished(status)
        state: State = "interrupted" if kind == "interrupted" else "failed"
        return msgspec.structs.replace(plain, state=state, kind=kind, reason=_without_name(reason, name))
    if problem := job.standing.problem:
        where = f"{problem.where}: " if isinstance(problem, Damaged) else ""
        return msgspec.structs.replace(plain, state="stale", reason=printable(f"{where}{problem.problem}"))
    return JobView(name=name, of=job.of, state="not begun")


def _vanished(status: Status) -> str:
    where = f" on {printable(status.node)}" if status.node else ""
    return f"its supervisor{where} is gone; last heard of {status.updated[:19]}Z, while {status.state}"


def _without_name(reason: str, name: str) -> str:
    """Reasons of several cells are the same when their names are left out."""
    return reason.replace(f"{name}: ", "").replace(name, "…")


def _gpus(catalog: Catalog, job: Job) -> int:
    return gpus_of(catalog, job) * (1 if job.model == "none" else catalog.spec(job.model).nodes)


def _spent(catalog: Catalog, cells: Iterable[Cell]) -> dict[str, float]:
    layout, spent = Layout(catalog.results), {}
    for model in dict.fromkeys(cell.model for cell in cells):
        if (ledger := layout.ledger(model)).is_file():
            # A damaged ledger stops the cells that would spend more, with the reason.
            with contextlib.suppress(UpkeepError, OSError):
                spent[model] = read_ledger(ledger).total
    return spent


def _names_of_waiting(catalog: Catalog, cells: Sequence[Cell], queue: Queue) -> dict[str, Waiting]:
    """The jobs of the suite that wait in the queue, by name; those of a batch all with the batch's."""
    waiting = {job.subject: job for job in queue.jobs if job.subject and not job.at_work}
    if not waiting:
        return {}
    known = {str(job).replace("/", "_"): [str(job)] for job in (*cells, *trainings(catalog, cells))}
    known |= {batch.name: [str(job) for job in batch.cells] for batch in batches(catalog, cells)}
    return {name: job for subject, job in waiting.items() for name in known.get(subject, ())}


def _in_turn(catalog: Catalog, cells: Sequence[Cell], views: list[JobView]) -> list[JobView]:
    """Cells of a batch whose job runs wait for their turn in it."""
    if not any(view.state == "running" for view in views):
        return views
    at_work = {view.name: view for view in views if view.state == "running"}
    turn: dict[str, JobView] = {}
    for batch in batches(catalog, cells):
        names = [str(job) for job in batch.cells]
        if runs := next((at_work[name] for name in names if name in at_work), None):
            after = names[names.index(runs.name) + 1 :]
            turn |= dict.fromkeys(after, runs)
    return [
        msgspec.structs.replace(view, state="queued", job=runs.job, reason="its batch is running")
        if view.state in ("not begun", "stale", "interrupted") and (runs := turn.get(view.name))
        else view
        for view in views
    ]
