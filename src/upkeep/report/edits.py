"""What of the papers' numbers and prompts and of the suites is not as it was shipped: a report says it, for a reader
cannot see it.

These files are the user's to edit; `papers/SHA256SUMS` says what they were. `sha256sum -c papers/SHA256SUMS` tells the
same without this program. Code is not among them, a paper's `metrics.py` no more than a method or a builder: which code
it was is what the copy of the suite says.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from upkeep.catalog import Catalog
from upkeep.errors import UpkeepError
from upkeep.files import hash_file, open_regular

SUMS = Path("papers/SHA256SUMS")
MAX_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Edit:
    """One file that is not as it was shipped."""

    file: str
    how: Literal["changed", "added", "gone", "unreadable"]


def edited(catalog: Catalog, suite: str) -> list[Edit]:
    """The edits among what a suite's report is made from: its file, its papers' tables, figures, claims,
    numbers, prompts.

    The file of a suite of one's own was never shipped, so it is no edit; no more is a paper of one's own.
    """
    root = catalog.root
    shipped = _shipped(root / SUMS)
    if shipped is None:
        return [Edit(str(SUMS), "unreadable")]
    places = [f"papers/{paper}/" for paper in catalog.suite(suite).papers if not is_own(catalog, paper)]
    file = str(catalog.suites[suite].relative_to(root))
    there = {file}
    for place in places:
        there |= {str(p.relative_to(root)) for p in files_of(root / place)}
    wanted = there | {name for name in shipped if name.startswith(tuple(places))}
    wanted -= {file} - shipped.keys()
    found = (Edit(name, how) for name in sorted(wanted) if (how := _how(root / name, shipped.get(name))))
    return list(found)


def is_own(catalog: Catalog, paper: str) -> bool:
    """Whether a paper is one of the user's own: none of its files was shipped."""
    shipped = _shipped(catalog.root / SUMS)
    return shipped is not None and not any(name.startswith(f"papers/{paper}/") for name in shipped)


def files_of(paper: Path) -> list[Path]:
    """The files of a paper's folder that decide what a report says of it."""
    return [file for files in ("*.yaml", "*/*.yaml", "reference/*.csv") for file in paper.glob(files)]


def _shipped(path: Path) -> dict[str, str] | None:
    """File -> SHA-256; None where nobody can tell."""
    try:
        with open_regular(path, 1 << 20) as file:
            lines = file.read().decode("ascii").splitlines()
    except (UpkeepError, UnicodeDecodeError):
        return None
    found = [re.fullmatch(r"([0-9a-f]{64})  (\S+)", line) for line in lines]
    return {line[2]: line[1] for line in found if line} if found and all(found) else None


def _how(path: Path, shipped: str | None) -> Literal["changed", "added", "gone", "unreadable"] | None:
    if not path.exists():
        return "gone"
    if shipped is None:
        return "added"
    try:
        return None if hash_file(path, MAX_BYTES) == shipped else "changed"
    except UpkeepError:
        return "unreadable"
