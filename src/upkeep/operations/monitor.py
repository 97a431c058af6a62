"""How far a suite is: from what is published, from the statuses that jobs write, and from the batch system's queue.

The jobs themselves are not asked, so this works from every machine that sees the results folder, at any time. What is
published is verified as it is for scoring (`published.read_published`).
"""

from __future__ import annotations

import contextlib
import getpass
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import msgspec
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from upkeep.batches import batches
from upkeep.catalog import Catalog, Cell, TrainedModel, Training
from upkeep.contract import Record
from upkeep.errors import Kind, UpkeepError
from upkeep.execution.status import ENDED, Status, alive, read
from upkeep.gateway.endpoints.ledger import read as read_ledger
from upkeep.integrity import Damaged
from upkeep.layout import Layout
from upkeep.machine.ask import ask
from upkeep.machine.clock import age, now
from upkeep.published import Standing, standing
from upkeep.text import duration, printable, short

State = Literal["done", "running", "queued", "failed", "interrupted", "stale", "not begun"]
"""`stale`: published, but damaged, or made of something else than what is there now; it runs again. `interrupted`:
begun, and nobody is at work on it. `queued`: waits in the batch system, or for its turn in a job that runs."""

STATES: tuple[State, ...] = get_args(State)

COLOURS: Mapping[State, str] = {
    "done": "green",
    "running": "cyan",
    "queued": "blue",
    "failed": "red",
    "interrupted": "yellow",
    "stale": "yellow",
    "not begun": "dim",
}

ADVICE: Mapping[Kind, str] = {
    "input": "./upkeep setup {suite}    prepares what is missing; the reason above names what is wrong",
    "machine": "./upkeep doctor    says what this machine lacks, and the remedy",
    "image": "./upkeep image build {method}    builds it again, with the reason in full",
    "engine": "./upkeep logs {cell}    shows what the engine printed; its needs are in {card}",
    "method": "./upkeep logs {cell}    shows what it printed; mend methods/{method}/",
    "output": "./upkeep logs {cell}    names the refused line; mend what methods/{method}/ writes",
    "memory": "raise resources.memory_gb in {cards}",
    "time": "raise resources.minutes in {cards}; what is done is kept",
    "disk": "raise resources.disk_gb in methods/{method}/method.yaml, or make room (./upkeep doctor)",
    "endpoint": "check key and limits in {card} (./upkeep doctor); what was answered is not paid again",
    "budget": "raise `budget: {{{model}: US dollars}}` in your configuration; what was answered is not paid again",
    "interrupted": "nothing to mend: it continues where it was",
    "other": "./upkeep logs {cell}    most likely a mistake of the suite itself: please report it",
}
"""What to do about a kind of failure."""


# ---------------------------------------------------------------- records


class JobView(Record, frozen=True, kw_only=True):
    """One cell or training."""

    name: str
    of: Literal["cells", "trained"]
    state: State
    kind: Kind | None = None
    reason: str = ""
    """Why it failed, in one line."""
    done: int = 0
    total: int = 0
    per_second: float | None = None
    left_s: float | None = None
    """Seconds to its end at this rate."""
    node: str = ""
    job: str | None = None
    """The batch system's job."""
    failed: int = 0
    """Predictions of a published cell that failed; they count as wrong."""
    mostly_failed: bool = False
    """More than half of them."""


class Survey(Record, frozen=True, kw_only=True):
    """What `./upkeep status --json` prints."""

    suite: str
    time: str
    counts: dict[State, int]
    """Cells by state."""
    jobs: list[JobView]
    """Every cell, then every training that they need."""
    queued_jobs: int | None
    """Jobs of the suite's rules that wait in the batch system; None where there is none, or it cannot be asked."""
    queue_problem: str | None
    """Why the batch system cannot be asked."""
    seconds: float
    """Of all attempts behind what is published."""
    gpu_hours: float
    cost_usd: float
    """Of endpoints, behind what is published."""
    spent_usd: dict[str, float]
    """Model -> what its endpoint has cost over all runs of these results, whatever came of them."""
    next: list[str]

    def of(self, *states: State) -> list[JobView]:
        return [job for job in self.jobs if job.state in states]


@dataclass(frozen=True, slots=True)
class _Job:
    of: Literal["cells", "trained"]
    job: Cell | Training
    status: Status | None
    standing: Standing

    @property
    def seconds(self) -> float:
        """Of all attempts behind what is published."""
        manifest = self.standing.manifest
        return sum(age(a.start, a.end) for a in manifest.attempts if a.end is not None) if manifest else 0.0


# ---------------------------------------------------------------- the queue


@dataclass(frozen=True, slots=True)
class Waiting:
    """A job in the batch system."""

    id: str
    state: str
    node: str
    why: str
    comment: str
    """`rule_batch <batch>` or `rule_train_wildcards_<names>`, as Snakemake's executor writes it."""

    @property
    def subject(self) -> str | None:
        """The batch, or the wildcards; None for a job that is none of the workflow's."""
        rule, _, wildcards = self.comment.removeprefix("rule_").partition("_wildcards_")
        if not self.comment.startswith("rule_"):
            return None
        return wildcards or rule.removeprefix("batch ")

    @property
    def at_work(self) -> bool:
        return self.state in ("RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "CONFIGURING", "SIGNALING", "STAGE_OUT")


@dataclass(frozen=True)
class Queue:
    """The user's jobs in SLURM."""

    jobs: Sequence[Waiting] = ()
    problem: str | None = None
    there: bool = True
    """Whether this machine has SLURM's commands."""

    @classmethod
    def ask(cls) -> Queue:
        answer = _squeue("--user", getpass.getuser())
        if answer.problem and answer.problem.endswith("is not on the PATH"):
            return cls(there=False)
        return answer

    @property
    def known(self) -> bool:
        return self.there and self.problem is None

    @cached_property
    def by_id(self) -> dict[str, Waiting]:
        return {job.id: job for job in self.jobs}

    def with_jobs(self, ids: Iterable[str]) -> Queue:
        """Also these jobs, which may be another user's, where they are still there."""
        missing = sorted(set(ids) - self.by_id.keys())
        if not self.known or not missing:
            return self
        more = _squeue("--jobs", ",".join(missing))
        if more.problem and "Invalid job id" not in more.problem:
            return Queue(self.jobs, more.problem)
        return Queue((*self.jobs, *more.jobs))


def _squeue(*options: str) -> Queue:
    answer = ask("squeue", "--noheader", "--array", "--format", "%A|%T|%N|%r|%k", *options, timeout_s=5.0)
    if not answer:
        return Queue(problem=answer.problem)
    rows = (line.strip().split("|", 4) for line in answer.out.splitlines())
    return Queue([Waiting(*row) for row in rows if len(row) == 5])


# ---------------------------------------------------------------- the survey


def survey(catalog: Catalog, suite: str, queue: Queue | None = None) -> Survey:
    """How far each cell of a suite is, and each training that it needs.

    Args:
        queue: the batch system's; by default it is asked.

    Raises:
        UpkeepError: no such suite, or its cards are wrong. What lies under the results never raises.
    """
    moment = now()
    cells = catalog.cells(catalog.suite(suite))
    wanted: list[tuple[Literal["cells", "trained"], Cell | Training]]
    wanted = [("cells", cell) for cell in cells]
    wanted += trainings(catalog, cells)
    with ThreadPoolExecutor(8) as pool:  # a shared file system answers slowly, but many at a time
        jobs = list(pool.map(lambda one: _read(catalog, *one), wanted))
    queue = queue or Queue.ask()
    queue = queue.with_jobs(s.job for j in jobs if (s := j.status) and s.job and s.state in ("starting", "running"))
    running = frozenset(job.id for job in queue.jobs if job.at_work) if queue.known else None
    waiting = _names_of_waiting(catalog, cells, queue)
    views = [_view(job, moment, running, waiting, queue) for job in jobs]
    views = _in_turn(catalog, cells, views)
    published = [(job, job.standing.manifest) for job in jobs if job.standing.manifest]
    seen = Counter(view.state for view in views if view.of == "cells")
    found = Survey(
        suite=suite,
        time=moment,
        counts={state: seen[state] for state in STATES},
        jobs=views,
        queued_jobs=sum(job.subject is not None and not job.at_work for job in queue.jobs) if queue.known else None,
        queue_problem=queue.problem if queue.there else None,
        seconds=sum(job.seconds for job, _ in published),
        gpu_hours=sum(job.seconds / 3600 * _gpus(catalog, job.job) for job, _ in published),
        cost_usd=sum(p.measured.get("cost_usd", 0.0) for _, p in published),
        spent_usd=_spent(catalog, cells),
        next=[],
    )
    return msgspec.structs.replace(found, next=_next(catalog, found))


def trainings(catalog: Catalog, cells: Iterable[Cell]) -> list[tuple[Literal["cells", "trained"], Cell | Training]]:
    """The trainings that cells need, each once."""
    found: dict[tuple[Literal["cells", "trained"], Cell | Training], None] = {}
    for cell in cells:
        training = catalog.training_of(cell)
        while training:
            found.setdefault(("trained", training))
            training = catalog.training_of(training)
    return list(found)


def _read(catalog: Catalog, of: Literal["cells", "trained"], job: Cell | Training) -> _Job:
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


def _gpus(catalog: Catalog, job: Cell | Training) -> int:
    if not catalog.method(job.method).model:
        return 0
    spec = catalog.spec(job.model)
    return spec.gpus * spec.nodes


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
    known = {str(job).replace("/", "_"): [str(job)] for job in (*cells, *(a for _, a in trainings(catalog, cells)))}
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


# ---------------------------------------------------------------- what to do next


def _next(catalog: Catalog, found: Survey) -> list[str]:
    """Commands, the most useful first."""
    counts, suite = found.counts, found.suite
    under_way = bool(found.of("running")) or bool(found.of("queued")) or bool(found.queued_jobs)
    lines = []
    for kind, failed in by_kind(found.of("failed")).items():
        first = failed[0]
        cell = Cell.parse(first.name)
        base = model.base if (model := TrainedModel.parse(cell.model)) else cell.model
        card = "" if cell.model == "none" else catalog.model_card(cell.model)
        cards = " or ".join(filter(None, (f"methods/{cell.method}/method.yaml", card)))
        names = {"suite": suite, "cell": first.name, "method": cell.method, "model": base, "card": card, "cards": cards}
        text = ADVICE[kind].format_map(names)
        lines.append(f"{kind}: {text}")
    if under_way:
        lines.append("./upkeep status --watch    work is under way; this follows it")
    elif counts["done"] == sum(counts.values()):
        lines.append(f"./upkeep report --suite {suite}    every cell is complete: tables, figures and the page")
    else:
        lines.append(f"./upkeep run {suite}    continues; what is complete and still right is reused")
        lines.append(f"./upkeep plan {suite}    says beforehand what it will take")
    return lines


def by_kind(jobs: Iterable[JobView]) -> dict[Kind, list[JobView]]:
    """Failed jobs by the kind of their reason, the commonest first."""
    groups: dict[Kind, list[JobView]] = {}
    for job in jobs:
        groups.setdefault(job.kind or "other", []).append(job)
    return dict(sorted(groups.items(), key=lambda item: -len(item[1])))


# ---------------------------------------------------------------- on the terminal


@dataclass(frozen=True)
class Shown:
    """A survey for the terminal."""

    survey: Survey
    each: bool = False
    """Every failed job by itself."""
    most: int = 15
    """Running jobs at most."""

    def __rich__(self) -> RenderableType:
        return Group(*self._parts())

    def _parts(self) -> Iterable[RenderableType]:
        found = self.survey
        total = sum(found.counts.values())
        yield Text.assemble(("suite ", "dim"), (found.suite, "bold"), f": {total:,} cells   ", *self._counts())
        if running := found.of("running"):
            yield from (Text(), Text("running", style="bold"), self._running(running[: self.most]))
            if len(running) > self.most:
                yield Text(f"  and {len(running) - self.most} more", style="dim")
        if stopped := found.of("interrupted"):
            yield from (Text(), Text("interrupted: nobody is at work on them", style="bold"))
            yield from self._reasons(stopped)
        if failed := found.of("failed"):
            yield from (Text(), Text("failed", style="bold"))
            yield from self._reasons(failed)
        if stale := found.of("stale"):
            yield from (Text(), Text("stale: published, and made again by the next run", style="bold"))
            yield from self._reasons(stale)
        if without := [job for job in found.of("done") if job.failed]:
            yield from (Text(), Text("failed predictions, counted as wrong", style="bold"))
            for job in without[: self.most]:
                style = "red" if job.mostly_failed else ""
                more = "  more than half: its numbers say nothing about the method" if job.mostly_failed else ""
                yield Text(f"  {job.name}: {job.failed:,} of {job.total:,}{more}", style=style)
            if len(without) > self.most:
                yield Text(f"  and {len(without) - self.most} more cells", style="dim")
        spent = f"time of what is published {duration(found.seconds)}"
        spent += f", {found.gpu_hours:,.1f} GPU-hours" if found.gpu_hours else ""
        spent += f", {found.cost_usd:,.2f} US dollars" if found.cost_usd else ""
        yield from (Text(), Text(spent))
        for model, dollars in found.spent_usd.items():
            yield Text(f"endpoint of {model}: {dollars:,.2f} US dollars over all runs")
        if found.queued_jobs:
            yield Text(f"SLURM: {found.queued_jobs:,} jobs wait in the queue")
        elif found.queue_problem:
            yield Text(f"SLURM cannot be asked: {found.queue_problem}", style="dim")
        yield from (Text(), Text("next", style="bold"), *(Text(f"  {line}") for line in found.next))

    def _counts(self) -> Iterable[tuple[str, str]]:
        shown = [(state, count) for state, count in self.survey.counts.items() if count]
        for number, (state, count) in enumerate(shown):
            yield (f"{' · ' if number else ''}{count:,} {state}", COLOURS[state])

    def _running(self, jobs: Sequence[JobView]) -> Table:
        table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
        for _ in range(4):
            table.add_column(no_wrap=True)
        for job in jobs:
            share = f"{job.done:,} of {job.total:,} ({job.done / job.total:.0%})" if job.total else job.reason
            rate = f"{job.per_second:,.2f}/s" if job.per_second is not None else ""
            left = f"about {duration(job.left_s)} left" if job.left_s is not None else ""
            where = f"{job.node}{f' job {job.job}' if job.job else ''}"
            name = job.name if job.of == "cells" else f"{job.name} ({_WHAT[job.of]})"
            table.add_row(*(Text(text) for text in (f"  {name}", share, f"{rate}  {left}".strip(), where)))
        return table

    def _reasons(self, jobs: Sequence[JobView]) -> Iterable[Text]:
        for kind, group in by_kind(jobs).items():
            if self.each:
                for job in group:
                    yield Text.assemble("  ", (f"{kind:11} ", "red"), f"{job.name}: {job.reason}")
                continue
            reasons = Counter(job.reason for job in group)
            for reason, count in reasons.most_common(5):
                example = next(job.name for job in group if job.reason == reason)
                cells = example if count == 1 else f"{count:,} jobs, as {example}"
                yield Text.assemble("  ", (f"{kind:11} ", "red"), f"{reason}  ", (f"[{cells}]", "dim"))
            if len(reasons) > 5:
                yield Text(f"  {kind:11} {len(reasons) - 5} other reasons (--failed lists all)", style="dim")


_WHAT = {"cells": "cell", "trained": "training"}


def watch(catalog: Catalog, suite: str, seconds: float, each: bool = False) -> None:
    """Draw a survey again and again, until Ctrl-C."""
    with contextlib.suppress(KeyboardInterrupt), Live(auto_refresh=False, screen=Console().is_terminal) as live:
        while True:
            live.update(Shown(survey(catalog, suite), each=each), refresh=True)
            time.sleep(max(0.5, seconds))
