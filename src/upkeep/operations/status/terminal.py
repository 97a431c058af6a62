"""How far a suite is, on the terminal."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from upkeep.catalog import Catalog
from upkeep.operations.status.advice import by_kind
from upkeep.operations.status.states import JobView, State, Survey
from upkeep.operations.status.survey import survey
from upkeep.text import duration

COLOURS: Mapping[State, str] = {
    "done": "green",
    "running": "cyan",
    "queued": "blue",
    "failed": "red",
    "interrupted": "yellow",
    "stale": "yellow",
    "not begun": "dim",
}


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
