"""What this machine has, what each missing thing rules out, and the remedy; and so, which suites can run here.

The checks (`upkeep.operations.checks`) run at the same time, each in a thread of its own. One that hangs or breaks is a
finding like any other: no check raises, and none is waited for beyond a few seconds. Nothing is changed, nothing is
downloaded, and of a key only its name is told.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence

import psutil
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from upkeep.catalog import Catalog, Cell
from upkeep.contract import Record
from upkeep.identity import resources
from upkeep.operations.checks import CHECKS, EVERY_SUITE, Check, Facts, Finding, models_of
from upkeep.text import printable

PATIENCE_S = 4.5
"""What all checks together are given."""
THREADS = "upkeep doctor"
MARKS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "missing": ("✗", "red")}


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


class Report(Record, frozen=True, kw_only=True):
    """What `./upkeep doctor --json` prints."""

    suite: str
    """The configured one."""
    runtime: str
    """Where cells would run: the configured runtime, or what `auto` takes."""
    runtime_problem: str | None
    findings: list[Finding]
    suites: list[SuiteReport]
    can_run: bool
    """Whether the configured suite can run: every cell here or on the cluster, and on the configured runtime."""

    def __rich__(self) -> RenderableType:
        return Group(*_drawn(self))


def examine(
    catalog: Catalog,
    suite: str,
    checks: Sequence[tuple[str, str, Check]] = CHECKS,
    patience_s: float = PATIENCE_S,
) -> Report:
    """Look at this machine.

    Args:
        suite: whose weights, keys and needs are looked at.
        checks: (group, name, check) each.

    Raises:
        UpkeepError: no such suite, or a card is wrong. Whatever is wrong with the machine is a finding.
    """
    cells = catalog.cells(catalog.suite(suite))  # a wrong card is said now, before anything is looked at
    facts, found = Facts(), [_Result(group, name) for group, name, _ in checks]
    deadline = time.monotonic() + patience_s
    threads = []
    for result, (_, _, check) in zip(found, checks, strict=True):
        thread = threading.Thread(target=result.fill, args=(check, catalog, suite, facts), name=THREADS, daemon=True)
        thread.start()
        threads.append(thread)
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    findings = [finding for result in found for finding in result.taken(patience_s)]
    runtime, problem = _runtime(catalog, facts)
    suites = []
    for name in dict.fromkeys([suite, *catalog.suites]):
        wanted = cells if name == suite else catalog.cells(catalog.suite(name))
        suites.append(_suite(catalog, name, wanted, facts))
    mine = suites[0]
    reached = mine.here if mine.cluster is None else mine.cluster
    return Report(
        suite=suite,
        runtime=runtime,
        runtime_problem=problem,
        findings=findings,
        suites=suites,
        can_run=problem is None
        and reached == mine.cells
        and not any(f.state == "missing" and f.rules_out == EVERY_SUITE for f in findings),
    )


class _Result:
    """What one check found, as far as it has come."""

    def __init__(self, group: str, name: str) -> None:
        self._group, self._name = group, name
        self._findings: list[Finding] = []
        self._over = False

    def fill(self, check: Check, catalog: Catalog, suite: str, facts: Facts) -> None:
        try:
            for finding in check(catalog, suite, facts):
                self._findings.append(finding)
        except Exception as error:  # a check must not keep the others from being told
            text = printable(f"{type(error).__name__}: {error}")
            self._findings.append(Finding(self._group, self._name, "warning", f"could not be looked at: {text[:300]}"))
        self._over = True

    def taken(self, patience_s: float) -> list[Finding]:
        if self._over:
            return self._findings
        return [
            *self._findings,
            Finding(
                self._group,
                self._name,
                "warning",
                f"no answer within {patience_s:g} s",
                "whatever needs it would hang, too",
                "see why it does not answer: a server that is away, a file system that is stale",
            ),
        ]


def release(patience_s: float = 1.0) -> None:
    """End what checks that were not waited for have left running, and so those checks. For a process that ends."""
    deadline = time.monotonic() + patience_s
    while any(thread.name == THREADS for thread in threading.enumerate()) and time.monotonic() < deadline:
        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                child.kill()
        time.sleep(0.01)


# ---------------------------------------------------------------- what can run


def _runtime(catalog: Catalog, facts: Facts) -> tuple[str, str | None]:
    """Where cells would run, and why they cannot."""
    wanted: str = catalog.config.runtime
    if wanted == "auto":
        # The order of `detection.detect`; a plain process is what remains.
        order = ("docker", "podman", "apptainer")
        wanted = next((name for name in order if facts.runtimes.get(name, "") is None), "process")
    return wanted, facts.runtimes.get(wanted, "it did not answer")


def _suite(catalog: Catalog, name: str, cells: Sequence[Cell], facts: Facts) -> SuiteReport:
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
    if spec.gpus > facts.gpus or spec.nodes > 1:
        nodes = f" on each of {spec.nodes} nodes" if spec.nodes > 1 else ""
        of_machine.append(f"{spec.gpus} GPU{'s' if spec.gpus > 1 else ''}{nodes}")
    return [problem for model in models_of(catalog, cell) if (problem := facts.models.get(model))], of_machine


def _on_cluster(catalog: Catalog, cell: Cell, facts: Facts) -> bool:
    spec = catalog.spec(cell.model) if catalog.method(cell.method).model else None
    gpus, nodes = (spec.gpus, spec.nodes) if spec else (0, 1)
    memory = resources(catalog, cell.method, cell.model).memory_gb
    return any(node.gpus >= gpus and node.count >= nodes and node.memory_gb >= memory for node in facts.cluster)


# ---------------------------------------------------------------- on the terminal


def _drawn(report: Report) -> Iterable[RenderableType]:
    for group in dict.fromkeys(finding.group for finding in report.findings):
        yield Text(group, style="bold")
        table = Table(box=None, show_header=False, padding=(0, 1, 0, 0))
        table.add_column(width=2, justify="right")
        table.add_column(no_wrap=True, min_width=16)
        table.add_column(overflow="fold")
        for finding in report.findings:
            if finding.group == group:
                table.add_row(Text(*MARKS[finding.state]), Text(finding.name), _told(finding))
        yield table
        yield Text()
    yield Text("what you can run here", style="bold")
    yield _runtime_line(report)
    table = Table(box=None, show_header=False, padding=(0, 1, 0, 0))
    table.add_column(width=2, justify="right")
    table.add_column(no_wrap=True, min_width=16)
    table.add_column(overflow="fold")
    for suite in report.suites:
        reached = suite.here if suite.cluster is None else suite.cluster
        state = "ok" if reached == suite.cells else "warning" if reached else "missing"
        text = f"{suite.here:,} of {suite.cells:,} cells here"
        text += f", {suite.cluster:,} with the cluster" if suite.cluster is not None else ""
        lacking = [f"{what} ({count:,})" for what, count in list(suite.obstacles.items())[:6]]
        shown = Text(text)
        if lacking:
            shown.append(f"\nlacking, for so many cells: {', '.join(lacking)}", style="dim")
        table.add_row(
            Text(*MARKS[state]), Text(suite.suite, style="bold" if suite.suite == report.suite else ""), shown
        )
    yield table
    if not report.can_run:
        yield Text(f"\nThe suite {report.suite} cannot run here as configured.", style="red")


def _runtime_line(report: Report) -> Text:
    problem = report.runtime_problem
    isolation = "" if report.runtime != "process" else " (cells are not isolated)"
    text = f"cells run in {report.runtime}{isolation}" if problem is None else f"{report.runtime}: {problem}"
    return Text.assemble((" ", ""), MARKS["missing" if problem else "ok"], f" {text}")


def _told(finding: Finding) -> Text:
    text = Text(finding.found)
    if finding.rules_out:
        text.append(f"\nrules out: {finding.rules_out}", style="dim")
    if finding.remedy:
        text.append(f"\nremedy: {finding.remedy}", style="dim")
    return text
