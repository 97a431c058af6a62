"""What the exit status of every command says: the same of all of them (docs/running.md has this table)."""

from __future__ import annotations

from collections.abc import Mapping

WRONG, USAGE, MOSTLY_FAILED, DIFFER, INTERRUPTED = 1, 2, 3, 4, 130

MEANINGS: Mapping[int, str] = {
    0: "all is well",
    WRONG: "something is wrong that the message names; of `run`: cells are not complete, or have no scores; "
    "of `score`: no cell has any, and some were refused",
    USAGE: "the command line is none: an unknown or missing command, word or option; nothing was done",
    MOSTLY_FAILED: "complete, but more than half of a cell's predictions failed",
    DIFFER: "of `diff` and `dataset diff`: the two differ",
    INTERRUPTED: "interrupted; the same command continues",
}
