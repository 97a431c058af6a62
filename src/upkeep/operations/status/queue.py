"""The user's jobs in the batch system."""

from __future__ import annotations

import getpass
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from upkeep.machine.ask import ask

NO_SLURM = ("is not on the PATH", "Could not establish a configuration source")
"""What is said where there is no SLURM: neither its commands, nor, where these are installed, a cluster of theirs."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A job in the batch system."""

    id: str
    state: str
    node: str
    why: str
    comment: str
    """`rule_batch <batch>` or `rule_train_wildcards_<names>`, as Snakemake's executor writes it."""

    @property
    def subject(self) -> str | None:
        """The batch, or the wildcards; None for a job that is none of the workflow's."""
        rule, _, wildcards = self.comment.removeprefix("rule_").partition("_wildcards_")
        if not self.comment.startswith("rule_"):
            return None
        return wildcards or rule.removeprefix("batch ")

    @property
    def at_work(self) -> bool:
        return self.state in ("RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "CONFIGURING", "SIGNALING", "STAGE_OUT")


@dataclass(frozen=True)
class Queue:
    """The user's jobs in SLURM."""

    jobs: Sequence[Waiting] = ()
    problem: str | None = None
    there: bool = True
    """Whether this machine is one of a cluster's."""

    @classmethod
    def ask(cls) -> Queue:
        answer = _squeue("--user", getpass.getuser())
        if answer.problem and answer.problem.endswith(NO_SLURM):
            return cls(there=False)
        return answer

    @property
    def known(self) -> bool:
        return self.there and self.problem is None

    @cached_property
    def by_id(self) -> dict[str, Waiting]:
        return {job.id: job for job in self.jobs}

    def with_jobs(self, ids: Iterable[str]) -> Queue:
        """Also these jobs, which may be another user's, where they are still there."""
        missing = sorted(set(ids) - self.by_id.keys())
        if not self.known or not missing:
            return self
        more = _squeue("--jobs", ",".join(missing))
        if more.problem and "Invalid job id" not in more.problem:
            return Queue(self.jobs, more.problem)
        return Queue((*self.jobs, *more.jobs))


def _squeue(*options: str) -> Queue:
    answer = ask("squeue", "--noheader", "--array", "--format", "%A|%T|%N|%r|%k", *options, timeout_s=5.0)
    if not answer:
        return Queue(problem=answer.problem)
    rows = (line.strip().split("|", 4) for line in answer.out.splitlines())
    return Queue([Waiting(*row) for row in rows if len(row) == 5])
