"""Progress of a run in the terminal: `snakemake --logger upkeep`.

Cells done, running and failed, and the time left; each job's failure as it comes, with the reason that the job gave.
Where the output is no terminal, one line for each finished job.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from logging import ERROR, LogRecord
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

LONG = ("batch", "image", "judge", "train")
"""Those of which one may take longer than all that has ended so far."""
SHOWN = ("batch", "train", "image", "dataset", "weights", "score", "report")
"""The rules that do work, in the words of the suite. Each batch of cells is a rule, `batch NAME`."""


class LogHandler(LogHandlerBase):
    """Draws one bar over all jobs of the run."""

    def __post_init__(self) -> None:
        self.console = Console(stderr=not self.common_settings.stdout, soft_wrap=True)
        self.jobs: dict[int, str] = {}
        self.started: dict[int, float] = {}
        self.running: set[int] = set()
        self.failed: set[int] = set()
        self.done = self.total = 0
        self.waiting: Counter[str] = Counter()
        """Jobs that have not ended, by kind."""
        self.took: dict[str, list[float]] = {}
        """Seconds of those that have, by kind."""
        self.bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("[dim]elapsed"),
            TimeElapsedColumn(),
            TextColumn("[dim]{task.fields[left]}"),
            console=self.console,
        )
        self.task: Any = None
        self.begin = time.monotonic()

    # What Snakemake asks of a handler.
    writes_to_stream = property(lambda self: True)
    writes_to_file = property(lambda self: False)
    has_filter = property(lambda self: True)
    has_formatter = property(lambda self: True)
    needs_rulegraph = property(lambda self: False)

    def emit(self, record: LogRecord) -> None:
        event = getattr(record, "event", None)
        if event == LogEvent.RUN_INFO:
            self._plan(getattr(record, "stats", {}))
        elif event == LogEvent.JOB_INFO:
            self.jobs[record.jobid] = _name(record)  # type: ignore[attr-defined]
        elif event == LogEvent.JOB_STARTED:
            self._start(record.jobs)  # type: ignore[attr-defined]
        elif event == LogEvent.JOB_FINISHED:
            self._finish(record.job_id)  # type: ignore[attr-defined]
        elif event == LogEvent.JOB_ERROR:
            self._fail(record)
        elif (event is None and record.levelno >= ERROR) or (event == LogEvent.ERROR and not self.failed):
            # Besides what is said of jobs: an error of the workflow itself, a locked folder say.
            self.console.print(_said(record.getMessage()), markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        if self.task is not None:
            self.bar.stop()
        super().close()

    def _plan(self, stats: dict[str, Any]) -> None:
        self.total = int(stats.get("total", 0)) - int(stats.get("all", 0))
        jobs = Counter[str]()
        for rule, number in stats.items():
            jobs[rule.partition(" ")[0]] += int(number)
        self.waiting = Counter({kind: number for kind, number in jobs.items() if kind not in ("all", "total")})
        counts = ", ".join(f"{jobs[rule]} {rule}" for rule in SHOWN if jobs[rule])
        if self.total > 0 and not self.common_settings.dryrun:
            self.console.print(f"to do: {counts}", highlight=False, soft_wrap=True)
            self.task = self.bar.add_task("starting", total=self.total, left="")
            if self.console.is_terminal:
                self.bar.start()
        elif self.common_settings.dryrun:
            self.console.print(f"would run: {counts or 'nothing'}", highlight=False, soft_wrap=True)

    def _start(self, jobs: list[int]) -> None:
        self.running |= set(jobs)
        for job in jobs:
            self.started[job] = time.monotonic()
        self._draw()

    def _finish(self, job: int) -> None:
        self.running.discard(job)
        if self.jobs.get(job) == "all":
            return
        self.done += 1
        seconds = time.monotonic() - self.started.get(job, self.begin)
        self.waiting -= Counter([self._kind(job)])
        self.took.setdefault(self._kind(job), []).append(seconds)
        if not self.console.is_terminal:
            self.console.print(
                f"[{self.done}/{self.total}] {self.jobs.get(job, '?')}  {seconds:.0f} s{self._left()}",
                markup=False,
                highlight=False,
            )
        self._draw()

    def _fail(self, record: LogRecord) -> None:
        job = getattr(record, "jobid", None)
        if job is not None:
            self.failed.add(job)
            self.running.discard(job)
        self.console.print(f"failed: {_name(record)}", style="red", markup=False, highlight=False, soft_wrap=True)
        for log in getattr(record, "log", ()):
            self.console.print(_tail(Path(str(log).split(" (")[0])), markup=False, highlight=False, soft_wrap=True)
        self._draw()

    def _kind(self, job: int) -> str:
        return self.jobs.get(job, "?").partition(" ")[0]

    def _left(self) -> str:
        """Time left, from the mean time of the jobs of each kind so far: a dataset takes seconds and a batch of cells
        minutes. Of a kind of which none has ended nobody knows; then it is a lower bound."""
        if not 0 < self.done < self.total:
            return ""
        moment = time.monotonic()
        running = {job: moment - self.started.get(job, moment) for job in self.running}
        ended = [seconds for took in self.took.values() for seconds in took]
        work, least = 0.0, False
        for kind, number in self.waiting.items():
            so_far = [seconds for job, seconds in running.items() if self._kind(job) == kind]
            if took := self.took.get(kind):
                mean = sum(took) / len(took)
            else:
                mean, least = max([sum(ended) / len(ended), *so_far]), least or kind in LONG
            work += number * mean - sum(min(seconds, mean) for seconds in so_far)
        side_by_side = (sum(ended) + sum(running.values())) / max(1e-9, moment - self.begin)
        seconds = work / max(1.0, side_by_side)
        told = f"{seconds / 60:.0f} min left" if seconds > 90 else f"{seconds:.0f} s left"
        return f"  {'more than' if least else 'about'} {told}"

    def _draw(self) -> None:
        if self.task is None:
            return
        now = ", ".join(sorted(self.jobs.get(job, "?") for job in self.running))
        failed = f" [red]{len(self.failed)} failed[/red]" if self.failed else ""
        self.bar.update(
            self.task,
            completed=self.done,
            description=f"{len(self.running)} running{failed} [dim]{now[:60]}",
            left=self._left(),
        )


def _tail(log: Path, lines: int = 12) -> str:
    """What a failed job said last."""
    try:
        text = log.read_text(errors="replace").strip().splitlines()
    except OSError:
        return f"  (no log at {log})"
    return "\n".join([f"  {line}" for line in text[-lines:]] + [f"  log: {log}"])


def _said(message: str) -> str:
    """What the suite says of a fault that is met while jobs are planned, without the words and traceback around it."""
    found = re.search(r"^\s*(?:UpkeepError|Damaged|Missing|Stale|Held): (.*?)\s*\nWildcards:", message, re.S | re.M)
    return f"upkeep: {found[1]}" if found else message


def _name(record: LogRecord) -> str:
    """A job in the suite's words: `image rag_dense/transformers`, `batch tiny.transformers.1cpu.0 (10 cells)`."""
    rule = getattr(record, "rule_name", None) or getattr(record, "name", "job")
    wildcards = getattr(record, "wildcards", None) or {}
    names = [str(wildcards[w]) for w in ("dataset", "method", "variant", "model", "engine") if wildcards.get(w)]
    cells = sum(str(file).endswith("/predictions.jsonl") for file in getattr(record, "output", None) or ())
    number = f" ({cells} cell{'s' if cells > 1 else ''})" if cells else ""
    return f"{rule} {'/'.join(names)}".strip() + number
