"""Which commit of the suite this is, and whether anything in it was changed since."""

from __future__ import annotations

import functools
import re
from pathlib import Path

from upkeep import __version__
from upkeep.contract import Checkout
from upkeep.machine.ask import ask

ASK_S = 5.0
"""A clone on a slow file system takes seconds to be looked through."""


@functools.cache
def checkout(root: Path) -> Checkout | None:
    """The commit that is checked out; None where the suite is no clone, or git is not there or does not answer. Looked
    up once for a process."""
    if not (root / ".git").exists():  # a clone around it is another project's
        return None
    git = ("git", "-C", str(root))
    commit = ask(*git, "rev-parse", "HEAD", timeout_s=ASK_S)
    if not commit or not re.fullmatch(r"[0-9a-f]{40,64}", commit.out.strip()):
        return None
    status = ask(*git, "status", "--porcelain", timeout_s=ASK_S)
    return Checkout(commit=commit.out.strip(), changed=bool(status.out.strip()) if status else None)


def version(root: Path) -> str:
    """The version in one line, with the commit where it is known."""
    found = checkout(root)
    if found is None:
        return f"upkeep {__version__}"
    return f"upkeep {__version__}, commit {told(found)}"


def told(found: Checkout) -> str:
    """A commit in a few words."""
    changed = {True: ", and files were changed since", False: "", None: ", and perhaps files were changed since"}
    return found.commit[:12] + changed[found.changed]
