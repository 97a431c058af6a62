"""Other processes that do parts of a work while this one does something else."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Generic, ParamSpec, TypeVar

MOST = 4
"""Helpers at most, each of which takes about a second to start."""
P = ParamSpec("P")
T = TypeVar("T")


class _NotDone(Exception):
    """A helper was given something and has not done it."""


class Begun(Generic[T]):
    """Something that a helper may do. Called, it waits for what comes of it, or raises what it raises."""

    def __init__(self, here: Callable[[], T], there: Future[T] | None = None) -> None:
        self._here, self._there = here, there

    @property
    def is_done(self) -> bool:
        """Whether a helper is done with it."""
        return self._there is not None and self._there.done()

    def __call__(self) -> T:
        if self._there is None or self._there.cancel():
            return self._here()
        try:
            return self._there.result()
        except _NotDone:
            return self._here()


class Helpers:
    """What none of them has begun when it is wanted is done here, and so is what fails there or was begun by one that
    is killed. Use as a context manager.

    Each is a process with a thread here that waits for it. (Of Python's own pool of processes one that is killed may
    leave the others' work waiting for ever.)

    Args:
        most: so many at most; never more than one for each core but one.
    """

    def __init__(self, most: int = MOST) -> None:
        self.most = min(most, len(os.sched_getaffinity(0)) - 1)
        self._wanted: _Wanted = SimpleQueue()
        self._helpers: list[_Helper] = []

    def begin(self, work: Callable[P, T], *given: P.args, **named: P.kwargs) -> Begun[T]:
        """Have something done.

        Args:
            work: a function of a module, which another process can find.
        """
        here = partial(work, *given, **named)
        if not self.most:
            return Begun(here)
        try:
            packed = pickle.dumps(here)
        except Exception:
            return Begun(here)
        if len(self._helpers) < self.most:
            helper = _Helper(self._wanted)
            try:
                helper.start()
            except RuntimeError:  # there is no room for threads
                self.most = len(self._helpers)
            else:
                self._helpers.append(helper)
        if not self._helpers:
            return Begun(here)
        there: Future[T] = Future()
        self._wanted.put((packed, there))
        return Begun(here, there)

    def end(self) -> None:
        """Have the processes end when they have done what they were given."""
        for _ in self._helpers:
            self._wanted.put(None)
        self.most = 0

    def __enter__(self) -> Helpers:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        while True:  # nobody wants it any more
            try:
                self._wanted.get_nowait()
            except Empty:
                break
        self.end()
        if kind is not None:
            for helper in self._helpers:
                helper.kill()


_Wanted = SimpleQueue[tuple[bytes, Future[Any]] | None]
"""What is to be done, as bytes, with what waits for it; None ends a helper."""


class _Helper(Thread):
    def __init__(self, wanted: _Wanted) -> None:
        super().__init__(daemon=True)
        self._wanted, self._process = wanted, None

    _process: SpawnProcess | None

    def run(self) -> None:
        # Whoever interrupts this process does not mean the other, which ends with it. It inherits that.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        channel: Connection | None = None
        while (wanted := self._wanted.get()) is not None:
            work, there = wanted
            if not there.set_running_or_notify_cancel():
                continue
            try:
                if channel is None:
                    channel = self._begin()
                channel.send_bytes(work)
                told = channel.recv_bytes()
            except (OSError, EOFError):  # there is no room for a process, or it was killed
                there.set_exception(_NotDone())
                break
            try:
                there.set_result(pickle.loads(told))
            except Exception:
                there.set_exception(_NotDone())
        if channel is not None:
            channel.close()

    def _begin(self) -> Connection:
        context = get_context("spawn")  # started afresh, not forked: this process has threads
        ours, theirs = context.Pipe()
        self._process = context.Process(target=_help, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        return ours

    def kill(self) -> None:
        """End its process whatever it does."""
        if self._process is not None and self._process.pid is not None:
            self._process.kill()


def _help(channel: Connection) -> None:
    """Do what comes, until nothing can come any more. What fails, or cannot be told, is done again where it is wanted,
    and fails there."""
    _end_with_parent()
    while True:
        try:
            work = channel.recv_bytes()
        except (EOFError, OSError):
            return
        try:
            told = pickle.dumps(pickle.loads(work)())
        except BaseException:
            told = b""
        channel.send_bytes(told)


def _end_with_parent() -> None:
    """Have a process end with the one that it helps, which may be killed."""
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    Thread(target=watch, daemon=True).start()
