"""Jobs that are done in steps, so that several can be done side by side: while one is at work the others wait."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator, Mapping
from typing import TypeVar

from upkeep.contract import Manifest
from upkeep.errors import UpkeepError
from upkeep.jobs import Job

J = TypeVar("J", bound=Job)

Place = tuple[tuple[str, int], int]
"""Where a job is before a step: what its container is asked (`cell_job.Portion`), and the number of the round."""
Steps = Generator[Place, None, Manifest]
START: Place = (("", -1), 0)


def to_end(steps: Steps) -> Manifest:
    """Do all steps of one job.

    Raises:
        UpkeepError: it fails.
    """
    while True:
        try:
            next(steps)
        except StopIteration as done:
            manifest: Manifest = done.value
            return manifest


def in_turns(jobs: Mapping[J, Steps]) -> Iterator[tuple[J, Manifest | UpkeepError]]:
    """Do the jobs' steps, always the next one of the job that is furthest behind, of several that of the first. Gives
    what has come of each job when it has ended. Where one is interrupted, all are.
    """
    places = dict.fromkeys(jobs, START)
    try:
        while places:
            job = min(places, key=lambda one: places[one])
            try:
                places[job] = next(jobs[job])
            except StopIteration as done:
                del places[job]
                yield job, done.value
            except UpkeepError as error:
                del places[job]
                yield job, error
    except BaseException as error:
        stop = type(error) if isinstance(error, KeyboardInterrupt) else KeyboardInterrupt
        for job in places:
            with contextlib.suppress(Exception, KeyboardInterrupt):
                jobs[job].throw(stop("it was asked side by side with one that was interrupted"))
        raise
