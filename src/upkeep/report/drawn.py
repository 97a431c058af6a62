"""The folder of a paper's figures: one that would be drawn of the same as before is not drawn again.

Drawing is most of what a report takes, and most changes leave most figures as they are. What is to be drawn can be
drawn by others, while this process does the rest of the report.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from upkeep.contract import Fingerprint, Sealed, Sha256
from upkeep.files import digest, hash_file, write_atomically
from upkeep.helpers import Begun, Helpers
from upkeep.integrity import Damaged, Missing, fingerprint, read_sealed, verify_files, write_sealed

Draw = Callable[..., tuple[str, bytes]]
"""Gives a figure as (SVG text, PNG bytes)."""


class DrawnRecord(Sealed, frozen=True, kw_only=True):
    """`results/figures/<suite>/<paper>/drawn.json`: what the figures beside it are."""

    made_of: dict[str, Sha256]
    """Figure -> data, spec and code that it was drawn of."""
    files: dict[str, Fingerprint]


class Drawn:
    """The figures of a folder: `keep` has them all written.

    Args:
        helpers: draw them; by default this process does.
    """

    def __init__(self, folder: Path, helpers: Helpers | None = None) -> None:
        self.folder, self._helpers = folder, helpers or Helpers(0)
        self._code = [hash_file(Path(__file__).with_name("drawing.py")), version("matplotlib")]
        self._made_of: dict[str, str] = {}
        self._files: dict[str, Fingerprint] = {}
        self._begun: dict[str, Begun[tuple[str, bytes]]] = {}
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
            draw, given: as of `Helpers.begin`.
        """
        key = self._made_of[name] = digest([repr(made_of), *self._code])
        if self._is_there(name, key):
            self._files |= {path.name: self._last.files[path.name] for path in self._paths(name)}
        else:
            self._begun[name] = self._helpers.begin(draw, *given)

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
        for name in reversed(self._begun):  # the helpers begin with the first
            svg, png = self._begun[name]()
            for path, content in zip(self._paths(name), (svg.encode(), png), strict=True):
                write_atomically(path, content)
                self._files[path.name] = fingerprint(path)
        self._begun.clear()
        write_sealed(self._record, DrawnRecord(made_of=self._made_of, files=self._files))
