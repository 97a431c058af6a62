"""Other processes that do parts of a work while this one does something else."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from threading import Thread
from typing import Generic, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Begun(Generic[T]):
    """Something that a helper may do. Called, it waits for what comes of it, or raises what it raises."""

    def __init__(self, here: Callable[[], T], there: Future[T] | None = None) -> None:
        self._here, self._there = here, there

    @property
    def is_done(self) -> bool:
        """Whether a helper has done it."""
        return self._there is not None and self._there.done()

    def __call__(self) -> T:
        if self._there is None or self._there.cancel():
            return self._here()
        try:
            return self._there.result()
        except BrokenExecutor:
            return self._here()


class Helpers:
    """What none of them has begun when it is wanted is done here. Use as a context manager.

    Args:
        most: so many at most, each of which takes about a second to start; never more than one for each core but one.
    """

    def __init__(self, most: int) -> None:
        self.most = min(most, len(os.sched_getaffinity(0)) - 1)
        self._pool: ProcessPoolExecutor | None = None
        self._waiting: ThreadPoolExecutor | None = None
        """A thread for each process: what waits may be given up here, which a pool of processes would not survive."""

    def begin(self, work: Callable[P, T], *given: P.args, **named: P.kwargs) -> Begun[T]:
        """Have something done.

        Args:
            work: a function of a module, which another process can find.
        """
        here = partial(work, *given, **named)
        if not self.most:
            return Begun(here)
        if self._pool is None or self._waiting is None:
            try:  # started afresh, not forked: this process has threads
                self._pool = ProcessPoolExecutor(self.most, get_context("spawn"), _end_with_parent)
            except OSError:  # there is no room for processes
                self.most = 0
                return Begun(here)
            self._waiting = ThreadPoolExecutor(self.most, "helper")
        return Begun(here, self._waiting.submit(_there, self._pool, here))

    def end(self) -> None:
        """Have the processes end when they have done what they were given."""
        if self._pool is not None and self._waiting is not None:
            self._waiting.submit(self._pool.shutdown, wait=False)
            self._waiting.shutdown(wait=False)
        self.most = 0

    def __enter__(self) -> Helpers:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None and self._waiting is not None:
            self._waiting.shutdown(wait=False, cancel_futures=True)
            self._pool.shutdown(wait=False)


def _there(pool: ProcessPoolExecutor, work: Callable[[], T]) -> T:
    try:
        begun = pool.submit(work)
    except (OSError, RuntimeError) as error:  # no room for a process, one was killed, or they have ended
        raise BrokenExecutor from error
    return begun.result()


def _end_with_parent() -> None:
    """Have a process end with the one that it helps, which may be killed."""
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    Thread(target=watch, daemon=True).start()
