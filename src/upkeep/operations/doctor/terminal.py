"""What the doctor found, on the terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from upkeep.operations.doctor.examination import Report
from upkeep.operations.doctor.findings import Finding

MARKS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "missing": ("✗", "red")}


def drawn(report: Report) -> RenderableType:
    """Findings by group, what can run, and what is lacking for the rest."""
    return Group(*_parts(report))


def _parts(report: Report) -> Iterable[RenderableType]:
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
