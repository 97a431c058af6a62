"""What is said of a suite and of its jobs."""

from __future__ import annotations

from typing import Literal, get_args

from upkeep.contract import Record
from upkeep.errors import Kind
from upkeep.operations.needs import Of

State = Literal["done", "running", "queued", "failed", "interrupted", "stale", "not begun"]
"""`stale`: published, but damaged, or made of something else than what is there now; it runs again. `interrupted`:
begun, and nobody is at work on it. `queued`: waits in the batch system, or for its turn in a job that runs."""
STATES: tuple[State, ...] = get_args(State)


class JobView(Record, frozen=True, kw_only=True):
    """One cell or training."""

    name: str
    of: Of
    state: State
    kind: Kind | None = None
    reason: str = ""
    """Why it failed, in one line."""
    done: int = 0
    total: int = 0
    per_second: float | None = None
    left_s: float | None = None
    """Seconds to its end at this rate."""
    node: str = ""
    job: str | None = None
    """The batch system's job."""
    failed: int = 0
    """Predictions of a published cell that failed; they count as wrong."""
    mostly_failed: bool = False
    """More than half of them."""


class Survey(Record, frozen=True, kw_only=True):
    """What `./upkeep status --json` prints."""

    suite: str
    time: str
    counts: dict[State, int]
    """Cells by state."""
    jobs: list[JobView]
    """Every cell, then every training that they need."""
    queued_jobs: int | None
    """Jobs of the suite's rules that wait in the batch system; None where there is none, or it cannot be asked."""
    queue_problem: str | None
    """Why the batch system cannot be asked."""
    seconds: float
    """Of all attempts behind what is published."""
    gpu_hours: float
    cost_usd: float
    """Of endpoints, behind what is published."""
    spent_usd: dict[str, float]
    """Model -> what its endpoint has cost over all runs of these results, whatever came of them."""
    next: list[str]

    def of(self, *states: State) -> list[JobView]:
        return [job for job in self.jobs if job.state in states]
