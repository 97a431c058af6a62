"""The folder of a paper's figures: one that would be drawn of the same as before is not drawn again.

Drawing is most of what a report takes, and most changes leave most figures as they are. What is to be drawn can be
drawn by other processes, while this one does the rest of the report.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, ProcessPoolExecutor
from functools import partial
from importlib.metadata import version
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from pathlib import Path
from threading import Thread

from upkeep.contract import Fingerprint, Sealed, Sha256
from upkeep.files import digest, hash_file, write_atomically
from upkeep.integrity import Damaged, Missing, fingerprint, read_sealed, verify_files, write_sealed

MOST = 4
"""Processes that draw at most; each takes about a second to start."""
Draw = Callable[..., tuple[str, bytes]]
"""Gives a figure as (SVG text, PNG bytes)."""


class Drawers:
    """Other processes that draw while this one does something else. What none has begun when it is wanted is drawn
    here. Use as a context manager.

    Args:
        most: so many at most; by default one for each core but one.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = min(most, len(os.sched_getaffinity(0)) - 1)
        self._pool: Executor | None = None

    def begin(self, draw: Draw, *given: object) -> Callable[[], tuple[str, bytes]]:
        """Have a figure drawn; what is returned waits for it.

        Args:
            draw: a function of a module, which another process can find.
        """
        here = partial(draw, *given)
        if not self._most:
            return here
        try:
            if self._pool is None:  # started afresh, not forked: this process has threads
                self._pool = ProcessPoolExecutor(self._most, get_context("spawn"), _end_with_parent)
            begun = self._pool.submit(draw, *given)
        except (OSError, BrokenExecutor):  # there is no room for processes, or one was killed
            self._most = 0
            return here

        def drawn() -> tuple[str, bytes]:
            if begun.cancel():
                return here()
            try:
                return begun.result()
            except BrokenExecutor:
                return here()

        return drawn

    def end(self) -> None:
        """Have the processes end when they have drawn what they were given."""
        if self._pool is not None:
            self._pool.shutdown(wait=False)
        self._most = 0

    def __enter__(self) -> Drawers:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


def _end_with_parent() -> None:
    """Have a process that draws end with the one that it draws for, which may be killed."""
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    Thread(target=watch, daemon=True).start()


class DrawnRecord(Sealed, frozen=True, kw_only=True):
    """`results/figures/<suite>/<paper>/drawn.json`: what the figures beside it are."""

    made_of: dict[str, Sha256]
    """Figure -> data, spec and code that it was drawn of."""
    files: dict[str, Fingerprint]


class Drawn:
    """The figures of a folder: `keep` has them all written.

    Args:
        drawers: draw them; by default this process does.
    """

    def __init__(self, folder: Path, drawers: Drawers | None = None) -> None:
        self.folder, self._drawers = folder, drawers or Drawers(0)
        self._code = [hash_file(Path(__file__).with_name("drawing.py")), version("matplotlib")]
        self._made_of: dict[str, str] = {}
        self._files: dict[str, Fingerprint] = {}
        self._begun: dict[str, Callable[[], tuple[str, bytes]]] = {}
        try:
            self._last = read_sealed(self._record, DrawnRecord, "")
        except (Missing, Damaged):  # it follows from what is there
            self._last = DrawnRecord(made_of={}, files={})

    @property
    def _record(self) -> Path:
        return self.folder / "drawn.json"

    def _paths(self, name: str) -> list[Path]:
        return [self.folder / f"{name}.{kind}" for kind in ("svg", "png")]

    def figure(self, name: str, made_of: object, draw: Draw, *given: object) -> None:
        """Have a figure, drawn if what is there was made of something else or is not what was written.

        Args:
            made_of: all that decides it; its `repr` tells two apart.
            draw, given: as of `Drawers.begin`.
        """
        key = self._made_of[name] = digest([repr(made_of), *self._code])
        if self._is_there(name, key):
            self._files |= {path.name: self._last.files[path.name] for path in self._paths(name)}
        else:
            self._begun[name] = self._drawers.begin(draw, *given)

    def svg(self, name: str) -> str:
        """The SVG text of a figure that is kept."""
        return self._paths(name)[0].read_text()

    def _is_there(self, name: str, key: str) -> bool:
        if self._last.made_of.get(name) != key:
            return False
        try:
            verify_files(self.folder, {path.name: self._last.files[path.name] for path in self._paths(name)}, "")
        except (KeyError, Damaged):
            return False
        return True

    def none(self, name: str) -> None:
        """A figure that there is nothing to draw of."""
        for path in self._paths(name):
            path.unlink(missing_ok=True)

    def keep(self) -> None:
        """Write the figures that were asked for and were not there, and down what all of them are."""
        for name in reversed(self._begun):  # the drawers begin with the first
            svg, png = self._begun[name]()
            for path, content in zip(self._paths(name), (svg.encode(), png), strict=True):
                write_atomically(path, content)
                self._files[path.name] = fingerprint(path)
        self._begun.clear()
        write_sealed(self._record, DrawnRecord(made_of=self._made_of, files=self._files))
