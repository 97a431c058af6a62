"""What was run for a suite, and what was not: where, when, from which copy of the suite, and what is to be done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import msgspec
import polars as pl
from msgspec import Struct

from upkeep.catalog import Catalog
from upkeep.contract import Manifest
from upkeep.jobs import Cell
from upkeep.layout import Layout
from upkeep.machine.ask import ask
from upkeep.published import Standing, arrival, asked
from upkeep.report.comparing import UNRUN
from upkeep.report.fields import by_words

COMPLETE = "complete"


@dataclass(frozen=True, slots=True)
class CellRow:
    """A cell of the suite, or one beside it."""

    cell: Cell
    state: str
    """COMPLETE, or the reason why there are no scores."""
    command: str
    """What would give them."""
    manifest: Manifest | None
    unread: int
    """Predictions that hold no answer that can be read."""
    accuracy: float | None
    """Over all questions, in percent; None where there is none."""

    @property
    def is_wrong(self) -> bool:
        """Whether something went wrong, rather than that it was not run."""
        return self.state not in (COMPLETE, *UNRUN)


def cell_rows(cells: Mapping[Cell, Standing], waiting: pl.DataFrame, scores: pl.DataFrame) -> list[CellRow]:
    """A row for each of some cells, in their order.

    Args:
        waiting: `waiting.PENDING_SCHEMA`.
        scores: `score.SCORE_SCHEMA`.
    """
    whole = waiting.filter(pl.col("lacks") == "").unique("cell", keep="first", maintain_order=True)
    reasons = {cell: (reason, command) for cell, reason, command in whole.select("cell", "reason", "command").rows()}
    unread = dict(scores.select("cell", "unread").unique("cell").iter_rows())
    over_all = by_words(scores).filter(pl.col("metric") == "accuracy", pl.col("subset") == "all")
    accuracy = dict(over_all.unique("cell", keep="first").select("cell", "value").iter_rows())
    rows = []
    for cell, found in cells.items():
        name = str(cell)
        state, command = reasons.get(name, (COMPLETE, ""))
        manifest = found.manifest if state == COMPLETE else None
        rows.append(CellRow(cell, state, command or "", manifest, unread.get(name, 0), accuracy.get(name)))
    return rows


@dataclass(frozen=True, slots=True)
class Copy:
    """The copy of the suite that wrote a report."""

    commit: str
    """Empty where it is no clone."""
    changed: int
    """Files that are not as they were committed."""


def copy_of(root: Path) -> Copy:
    """What `git` says of a copy of the suite."""
    git = ("git", "-C", str(root))
    top = ask(*git, "rev-parse", "--show-toplevel", "HEAD")
    place, _, commit = top.out.strip().partition("\n")
    if not top or Path(place).resolve() != root.resolve():
        return Copy("", 0)
    status = ask(*git, "status", "--porcelain", timeout_s=10.0)
    return Copy(commit, len(status.out.splitlines()))


def runtimes(manifests: Iterable[Manifest]) -> list[tuple[str, bool, int]]:
    """(runtime, isolated, cells), the commonest first."""
    found = Counter((m.environment.runtime, m.environment.isolated) for m in manifests)
    return [(runtime, isolated, count) for (runtime, isolated), count in found.most_common()]


def machines(manifests: Iterable[Manifest]) -> list[tuple[str, int]]:
    """(machine in words, cells), the commonest first."""
    found: Counter[str] = Counter()
    for manifest in manifests:
        hardware, job = manifest.environment.hardware, manifest.environment.job
        served = [gpu for one in manifest.environment.served.values() for gpu in one.hardware.get("gpus") or ()]
        gpus = Counter(map(str, served or hardware.get("gpus") or ()))
        cores = hardware.get("cores")
        parts = [str(hardware.get("cpu") or "processor not known"), f"{cores} cores" if cores else ""]
        parts += [f"{count} x {gpu}" for gpu, count in gpus.items()]
        parts += [f"SLURM node {job.node}" if job else ""]
        found[", ".join(filter(None, parts))] += 1
    return found.most_common()


def span(manifests: Sequence[Manifest]) -> tuple[str, str]:
    """When the first cell began and the last one ended; empty where there is none."""
    return (min(m.start for m in manifests), max(m.end for m in manifests)) if manifests else ("", "")


def totals(rows: Sequence[CellRow]) -> dict[str, float]:
    """Sums over all complete cells."""
    manifests = [row.manifest for row in rows if row.manifest]
    return {
        "predictions": sum(m.predictions for m in manifests),
        "unread": sum(row.unread for row in rows),
        "error": sum(m.failed for m in manifests),
        "prompt": sum(asked(m).prompt for m in manifests),
        "completion": sum(asked(m).completion for m in manifests),
        "calls": sum(asked(m).calls for m in manifests),
        "computed": sum(computed(m) for m in manifests),
        "seconds": sum(seconds(m) for m in manifests),
    }


def computed(manifest: Manifest) -> float:
    """Prompt tokens that were computed, and not taken from a prefix cache. All of documents' arrival count: it is not
    told of them."""
    return manifest.measured.get("computed_prompt_tokens", manifest.usage.prompt) + arrival(manifest).prompt


def seconds(manifest: Manifest) -> float:
    """Wall-clock time of a cell from its first start to its end, pauses between attempts included."""
    return (datetime.fromisoformat(manifest.end) - datetime.fromisoformat(manifest.start)).total_seconds()


class _Error(Struct, gc=False):
    error: str | None


def error_kinds(catalog: Catalog, rows: Iterable[CellRow]) -> list[tuple[str, int]]:
    """Failed predictions by the first words of their error (up to a colon), the commonest first."""
    decode, layout = msgspec.json.Decoder(_Error).decode, Layout(catalog.results)
    kinds: Counter[str] = Counter()
    for row in rows:
        if row.manifest and row.manifest.outcomes.get("error"):
            with (layout.cell(row.cell) / "predictions.jsonl").open("rb") as file:
                errors = (decode(line).error for line in file)
                kinds.update(error.splitlines()[0].partition(":")[0][:80] for error in errors if error)
    return kinds.most_common()
