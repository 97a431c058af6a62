"""The folder of a paper's figures: one that would be drawn of the same as before is not drawn again.

Drawing is most of what a report takes, and most changes leave most figures as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from upkeep.contract import Fingerprint, Sealed, Sha256
from upkeep.files import digest, hash_file, write_atomically
from upkeep.integrity import Damaged, Missing, fingerprint, read_sealed, verify_files, write_sealed


class DrawnRecord(Sealed, frozen=True, kw_only=True):
    """`results/figures/<suite>/<paper>/drawn.json`: what the figures beside it are."""

    made_of: dict[str, Sha256]
    """Figure -> data, spec and code that it was drawn of."""
    files: dict[str, Fingerprint]


class Drawn:
    """The figures of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._code = [hash_file(Path(__file__).with_name("drawing.py")), version("matplotlib")]
        self._made_of: dict[str, str] = {}
        self._files: dict[str, Fingerprint] = {}
        try:
            self._last = read_sealed(self._record, DrawnRecord, "")
        except (Missing, Damaged):  # it follows from what is there
            self._last = DrawnRecord(made_of={}, files={})

    @property
    def _record(self) -> Path:
        return self.folder / "drawn.json"

    def figure(self, name: str, made_of: object, draw: Callable[[], tuple[str, bytes]]) -> str:
        """A figure, drawn if what is there was made of something else or is not what was written.

        Args:
            made_of: all that decides it; its `repr` tells two apart.
            draw: gives it as (SVG text, PNG bytes).

        Returns:
            The SVG text.
        """
        key, paths = digest([repr(made_of), *self._code]), [self.folder / f"{name}.{kind}" for kind in ("svg", "png")]
        if not self._is_there(name, key, paths):
            svg, png = draw()
            for path, content in zip(paths, (svg.encode(), png), strict=True):
                write_atomically(path, content)
        self._made_of[name] = key
        self._files |= {path.name: fingerprint(path) for path in paths}
        return paths[0].read_text()

    def _is_there(self, name: str, key: str, paths: list[Path]) -> bool:
        if self._last.made_of.get(name) != key:
            return False
        try:
            verify_files(self.folder, {path.name: self._last.files[path.name] for path in paths}, "")
        except (KeyError, Damaged):
            return False
        return True

    def none(self, name: str) -> None:
        """A figure that there is nothing to draw of."""
        for kind in ("svg", "png"):
            (self.folder / f"{name}.{kind}").unlink(missing_ok=True)

    def keep(self) -> None:
        """Write down what the figures are that were asked for."""
        write_sealed(self._record, DrawnRecord(made_of=self._made_of, files=self._files))
