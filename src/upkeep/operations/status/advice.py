"""What to do next about a suite, by how far it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from upkeep.catalog import Catalog
from upkeep.errors import Kind
from upkeep.integrity import Damaged, Missing, read_record
from upkeep.jobs import Cell, untrained
from upkeep.layout import Layout
from upkeep.operations.status.states import JobView, Survey

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


def next_steps(catalog: Catalog, found: Survey) -> list[str]:
    """Commands, the most useful first."""
    counts, suite = found.counts, found.suite
    under_way = bool(found.of("running")) or bool(found.of("queued")) or bool(found.queued_jobs)
    lines = []
    for kind, failed in by_kind(found.of("failed")).items():
        first = failed[0]
        cell = Cell.parse(first.name)
        base = untrained(cell.model)
        card = "" if cell.model == "none" else catalog.model_card(cell.model)
        cards = " or ".join(filter(None, (f"methods/{cell.method}/method.yaml", card)))
        names = {"suite": suite, "cell": first.name, "method": cell.method, "model": base, "card": card, "cards": cards}
        text = ADVICE[kind].format_map(names)
        lines.append(f"{kind}: {text}")
    if under_way:
        lines.append("./upkeep status --watch    work is under way; this follows it")
    elif counts["done"] == sum(counts.values()):
        page = Layout(catalog.results).report(found.suite)
        if _is_reported(catalog, found):
            lines.append(f"{page}    every cell is complete, and the report was written after the last of them")
        else:
            lines.append(f"./upkeep run {suite}    every cell is complete: scores, tables, figures and the page")
    else:
        lines.append(f"./upkeep run {suite}    continues; what is complete and still right is reused")
        lines.append(f"./upkeep plan {suite} --count    says beforehand what it will take")
    return lines


class _Scored(Struct):
    """Of the scores' record, which suite they are of: what else it says takes libraries to read."""

    suite: str


def _is_reported(catalog: Catalog, found: Survey) -> bool:
    """Whether the page is of this suite, and younger than all of its cells."""
    layout = Layout(catalog.results)
    cells = (layout.cell(Cell.parse(job.name)) for job in found.jobs if job.of == "cells")
    try:
        scored = read_record(layout.scores_record(found.suite), _Scored)
        newest = max((cell / "manifest.json").stat().st_mtime_ns for cell in cells)
        return scored.suite == found.suite and layout.report(found.suite).stat().st_mtime_ns >= newest
    except (OSError, Missing, Damaged):
        return False


def by_kind(jobs: Iterable[JobView]) -> dict[Kind, list[JobView]]:
    """Failed jobs by the kind of their reason, the commonest first."""
    groups: dict[Kind, list[JobView]] = {}
    for job in jobs:
        groups.setdefault(job.kind or "other", []).append(job)
    return dict(sorted(groups.items(), key=lambda item: -len(item[1])))
