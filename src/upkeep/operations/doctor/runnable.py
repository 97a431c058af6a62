"""Which suites can run, on this machine and on its cluster, by what the checks found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from upkeep.catalog import Catalog
from upkeep.contract import Record
from upkeep.identity import resources
from upkeep.jobs import Cell
from upkeep.needs import gpus_of
from upkeep.operations.doctor.findings import Facts
from upkeep.operations.needs import models_of


class SuiteReport(Record, frozen=True, kw_only=True):
    """How much of a suite can run."""

    suite: str
    cells: int
    here: int
    """Cells that can run on this machine."""
    cluster: int | None
    """Cells that can run here or as jobs of its cluster; None where there is no cluster."""
    obstacles: dict[str, int]
    """What is lacking here -> cells that need it."""


def runtime_of(catalog: Catalog, facts: Facts) -> tuple[str, str | None]:
    """Where cells would run, and why they cannot."""
    wanted: str = catalog.config.runtime
    if wanted == "auto":
        # The order of `detection.detect`; a plain process is what remains.
        order = ("docker", "podman", "apptainer")
        wanted = next((name for name in order if facts.runtimes.get(name, "") is None), "process")
    return wanted, facts.runtimes.get(wanted, "it did not answer")


def suite_report(catalog: Catalog, name: str, cells: Sequence[Cell], facts: Facts) -> SuiteReport:
    obstacles: Counter[str] = Counter()
    here = cluster = 0
    for cell in cells:
        everywhere, of_machine = _obstacles(catalog, cell, facts)
        obstacles.update([*everywhere, *of_machine])
        here += not everywhere and not of_machine
        cluster += not everywhere and (not of_machine or _on_cluster(catalog, cell, facts))
    return SuiteReport(
        suite=name,
        cells=len(cells),
        here=here,
        cluster=cluster if facts.cluster else None,
        obstacles=dict(obstacles.most_common()),
    )


def _obstacles(catalog: Catalog, cell: Cell, facts: Facts) -> tuple[list[str], list[str]]:
    """What a cell lacks wherever it would run, and what on this machine."""
    needed = resources(catalog, cell.method, cell.model)
    of_machine = []
    if facts.memory_gb is not None and needed.memory_gb > facts.memory_gb:
        of_machine.append(f"{needed.memory_gb} GB of memory")
    if not catalog.method(cell.method).model:
        return [], of_machine
    spec = catalog.spec(cell.model)
    gpus = gpus_of(catalog, cell)
    if gpus > facts.gpus or spec.nodes > 1:
        nodes = f" on each of {spec.nodes} nodes" if spec.nodes > 1 else ""
        of_machine.append(f"{gpus} GPU{'s' if gpus > 1 else ''}{nodes}")
    return [problem for model in models_of(catalog, cell) if (problem := facts.models.get(model))], of_machine


def _on_cluster(catalog: Catalog, cell: Cell, facts: Facts) -> bool:
    gpus, nodes = gpus_of(catalog, cell), catalog.spec(cell.model).nodes if catalog.method(cell.method).model else 1
    memory = resources(catalog, cell.method, cell.model).memory_gb
    return any(node.gpus >= gpus and node.count >= nodes and node.memory_gb >= memory for node in facts.cluster)
