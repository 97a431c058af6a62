"""A plan on the terminal."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from upkeep.jobs import Training
from upkeep.operations.plan.amounts import AMOUNTS, TOKENS, Disk, JobPlan, Plan, Sum

if TYPE_CHECKING:
    from rich.console import RenderableType


_HEADS = {
    "requests": "requests",
    "prompt_tokens": "prompt tokens",
    "computed_tokens": "not reused",
    "output_tokens": "output tokens",
    "gpu_hours": "GPU-h",
    "cpu_hours": "CPU-h",
    "usd": "US$",
    "usd_at_most": "at most",
}


def render(plan: Plan, cells: bool = False) -> RenderableType:
    """The plan as a table: a line a model (a cell, with `cells`), the total, disk, what is unknown, assumptions."""
    from rich.console import Group

    shown = [f for f in AMOUNTS if f in TOKENS or f in plan.total.incomplete or getattr(plan.total.plan, f)]
    table = _table(f"plan of {plan.suite}", ["jobs", *(_HEADS[f] for f in shown)])
    for model in plan.models:
        if cells:
            for job in plan.jobs:
                if job.model == model.name:
                    marks = [_cell(f, getattr(job.plan, f), False) for f in shown]
                    table.add_row(_name(job), "", *marks)
        table.add_row(*_sum_row(model, shown), end_section=cells, style="bold" if cells else "")
    table.add_section()
    table.add_row(*_sum_row(plan.total, shown), style="bold")
    return Group(table, *_trainings(plan), *_below(plan))


def _trainings(plan: Plan) -> list[RenderableType]:
    """Memory of trainings on GPUs, a line for those that are alike: they differ in their learning rates."""
    heads = [
        "trainings",
        "GPUs",
        "samples",
        "tokens",
        "weights",
        "optimizer",
        "gradients",
        "activations",
        "at the peak",
    ]
    rows: Counter[tuple[str, ...]] = Counter()
    for job in plan.jobs:
        if (told := job.training) is not None:
            training, m = Training.parse(job.job), told.memory
            sizes = (m.weights, m.optimizer, m.gradients, m.activations, m.peak)
            what = f"{training.method} of {training.model} on {training.dataset}"
            samples = f"{told.at_once} x {told.parts}" if told.parts > 1 else str(told.at_once)
            marks = (f"{told.gpus} {told.gpu}", samples, f"{told.longest:,}", *(f"{size / 1e9:,.1f}" for size in sizes))
            rows[(what, *marks)] += 1
    if not rows:
        return []
    table = _table("trainings: memory of each GPU, in GB", heads)
    for row, count in rows.items():
        table.add_row(row[0], str(count), *row[1:])
    return [table]


def render_actual(plan: Plan, cells: bool = False) -> RenderableType:
    """Plan, actual and their ratio of the jobs that are complete, a line a model (a cell, with `cells`)."""
    from rich.console import Group

    done = [job for job in plan.jobs if job.actual is not None]
    shown = [f for f in AMOUNTS if f != "usd_at_most" and any(getattr(j.actual, f) for j in done)]
    table = _table(f"{plan.suite}: plan, actual, actual / plan", ["jobs", *(_HEADS[f] for f in shown)])
    for model in dict.fromkeys(job.model for job in done):
        mine = [job for job in done if job.model == model]
        for job in mine if cells else ():
            table.add_row(_name(job), "", *_compared([job], shown))
        table.add_row(model, str(len(mine)), *_compared(mine, shown), style="bold" if cells else "", end_section=cells)
    table.add_section()
    table.add_row("total", str(len(done)), *_compared(done, shown), style="bold")
    left = len(plan.jobs) - len(done)
    more = f"; the other {left} are not in this table" if left else ""
    return Group(table, f"{len(done)} of {len(plan.jobs)} jobs are complete{more}")


def _table(title: str, heads: Sequence[str]):  # type: ignore[no-untyped-def]
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("", no_wrap=True)
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    return table


def _name(job: JobPlan) -> str:
    return job.job if job.kind == "cell" else f"{job.job} ({job.kind})"


def _sum_row(of: Sum, shown: Sequence[str]) -> list[str]:
    return [of.name, str(of.jobs), *(_cell(f, getattr(of.plan, f), f in of.incomplete) for f in shown)]


def _cell(field: str, value: float | None, incomplete: bool) -> str:
    if value is None:
        return "unknown"
    more = " +?" if incomplete else ""
    if field.startswith("usd"):
        return f"{value:,.2f}{more}"
    if field.endswith("hours"):
        return f"{value:,.1f}{more}" if value >= 10 or not value else f"{value:.2g}{more}"
    return f"{value:,.0f}{more}"


def _compared(jobs: Sequence[JobPlan], shown: Sequence[str]) -> list[str]:
    """Plan, actual, ratio over the jobs where both are known."""
    texts = []
    for field in shown:
        pairs = [(getattr(job.plan, field), getattr(job.actual, field)) for job in jobs]
        both = [(p, a) for p, a in pairs if p is not None and a is not None]
        planned, actual = math.fsum(p for p, _ in both), math.fsum(a for _, a in both)
        if not both:
            texts.append("unknown")
            continue
        ratio = f"{actual / planned:.2f}" if planned else ("1.00" if not actual else "-")
        texts.append(f"{_cell(field, planned, False)}  {_cell(field, actual, len(both) < len(pairs))}  {ratio}")
    return texts


def _below(plan: Plan) -> list[str]:
    unknown: dict[str, int] = {}
    for job in plan.jobs:
        for reason in job.unknown:
            unknown[reason] = unknown.get(reason, 0) + 1
    lines = [f"disk: {', '.join(_disk_text(disk) for disk in plan.disk)}"]
    if unknown:
        lines += ["", "unknown (+? marks a sum that is without them):"]
        lines += [f"- {n} {'job' if n == 1 else 'jobs'}: {reason}" for reason, n in unknown.items()]
    return [*lines, "", "assumptions:", *(f"- {text}" for text in plan.assumptions)]


def _disk_text(disk: Disk) -> str:
    from rich.filesize import decimal

    if disk.count and disk.unknown == disk.count:
        return f"{disk.count} {disk.what} of unknown size"
    more = f" and {disk.unknown} of unknown size" if disk.unknown else ""
    return f"{disk.count} {disk.what} {decimal(int(disk.bytes))}{more}"
