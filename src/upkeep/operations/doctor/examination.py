"""The doctor's round: all checks at once, and so what can run.

They run at the same time, each in a thread of its own. One that hangs or breaks is a finding like any other: no check
raises, and none is waited for beyond a few seconds. Nothing is changed, nothing is downloaded, and of a key only its
name is told.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence

import psutil

from upkeep.catalog import Catalog
from upkeep.contract import Record
from upkeep.operations.doctor import containers, disk, machine, models, slurm
from upkeep.operations.doctor.findings import EVERY_SUITE, Check, Facts, Finding
from upkeep.operations.doctor.runnable import SuiteReport, runtime_of, suite_report
from upkeep.text import printable

PATIENCE_S = 4.5
"""What all checks together are given."""
THREADS = "upkeep doctor"
CHECKS: tuple[tuple[str, str, Check], ...] = (
    ("Python", "packages", machine.python),
    ("Container engines", "docker", containers.container("docker")),
    ("Container engines", "podman", containers.container("podman")),
    ("Apptainer", "apptainer", containers.apptainer),
    ("Apptainer", "namespaces", containers.namespaces),
    ("SLURM", "slurm", slurm.slurm),
    ("GPUs", "nvidia-smi", machine.gpus),
    ("Machine", "limits", machine.machine),
    ("Disk", "results", disk.results),
    ("Disk", "cache", disk.cache),
    ("Disk", "TMPDIR", disk.temporary),
    ("Disk", "quota", disk.quota),
    ("Weights", "models", models.models),
)
"""(group, name, check) each."""


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
    runtime, problem = runtime_of(catalog, facts)
    suites = []
    for name in dict.fromkeys([suite, *catalog.suites]):
        wanted = cells if name == suite else catalog.cells(catalog.suite(name))
        suites.append(suite_report(catalog, name, wanted, facts))
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
