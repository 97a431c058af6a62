"""What a check of the doctor is: a function that yields findings, and fills in its part of the facts.

A check may raise and may hang: the doctor makes a finding of that, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal

from upkeep.catalog import Catalog
from upkeep.contract import Record

GIB = 2**30
EVERY_SUITE = "every suite"


class Finding(Record, frozen=True):
    """One thing about this machine."""

    group: str
    name: str
    state: Literal["ok", "warning", "missing"]
    found: str
    rules_out: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Nodes:
    """Nodes of a kind in a partition that takes jobs."""

    count: int
    gpus: int
    """Of each."""
    memory_gb: float


@dataclass(slots=True)
class Facts:
    """What the checks found, for what can run. Each field is one check's own."""

    runtimes: dict[str, str | None] = field(default_factory=dict)
    """Runtime -> why it does not work."""
    gpus: int = 0
    memory_gb: float | None = None
    """What a job may use, in GiB as cards count it."""
    cluster: list[Nodes] = field(default_factory=list)
    models: dict[str, str] = field(default_factory=dict)
    """Model -> what its cells lack, here and anywhere."""


Check = Callable[[Catalog, str, Facts], Iterable[Finding]]
"""Of a catalog, and of the suite whose needs are looked at."""


def ok(group: str, name: str, found: str) -> Finding:
    return Finding(group, name, "ok", found)


def warning(group: str, name: str, found: str, rules_out: str, remedy: str) -> Finding:
    return Finding(group, name, "warning", found, rules_out, remedy)


def missing(group: str, name: str, found: str, rules_out: str, remedy: str) -> Finding:
    return Finding(group, name, "missing", found, rules_out, remedy)
