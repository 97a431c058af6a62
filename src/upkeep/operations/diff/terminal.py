"""What differs, on the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from upkeep.grading.paired import sentences
from upkeep.operations.diff.comparing import CellDifference, Difference
from upkeep.text import one_line

ANSWER = 40
"""Characters of an answer, and of a value in an identity."""


def lines(found: Difference) -> Iterator[str]:
    """The difference as text; nothing where there is none."""
    if found.same:
        return
    yield f"A: {found.first}"
    yield f"B: {found.second}"
    several = len(found.cells) > 1
    other = [cell for cell in found.cells if not cell.same]
    if several:
        counted = f"{len(found.cells):,} cells in both: {len(found.cells) - len(other):,} the same, {len(other):,} not"
        yield f"{counted}. p (Holm) takes into account that there are several"
    for cell in other:
        yield ""
        yield from _cell(cell, several=several)
        if cell.probes and not Path(found.second).is_dir():
            yield f"  one of them: ./upkeep show {cell.second} {one_line(cell.probes[0].probe)}"
    for name, alone in (("A", found.first_alone), ("B", found.second_alone)):
        if alone:
            yield ""
            yield f"in {name} alone: {len(alone):,}"
            yield from (f"  {cell}" for cell in alone[:10])
            if len(alone) > 10:
                yield f"  and {len(alone) - 10:,} more (--json has all)"


def _cell(cell: CellDifference, *, several: bool) -> Iterator[str]:
    if several:
        yield cell.first if cell.first == cell.second else f"{cell.first} and {cell.second}"
    if cell.problem is not None:
        yield f"  cannot be compared: {one_line(cell.problem)}"
        return
    if (paired := cell.paired) is not None and not cell.same_predictions:
        yield from (f"  {line}" for line in sentences(paired, cell.p_holm if several else None))
    if cell.same_predictions:
        yield "  the predictions are the same bytes"
    yield from _identity(cell)
    if cell.moved:
        yield f"  predictions with another answer or verdict: {cell.moved:,}"
    for row in cell.probes:
        place = one_line(row.probe) + (f" trial {row.trial}" if row.trial else "")
        said = [f"{one.verdict} {_answer(one.answer)}" for one in (row.first, row.second)]
        yield f"    {place}: {said[0]} -> {said[1]}; right: {one_line(' | '.join(row.right), ANSWER)}"
    if cell.moved > len(cell.probes):
        yield f"    and {cell.moved - len(cell.probes):,} more (--rows N, --json)"


def _identity(cell: CellDifference) -> Iterator[str]:
    if cell.commits is not None:
        yield f"  commit {cell.commits[0]} -> {cell.commits[1]}"
    if not cell.identity:
        yield "  the identity is the same: nothing that determines the answers changed"
        return
    yield "  what changed in the identity:"
    width = max(len(name) for name in cell.identity)
    for name, (one, other) in cell.identity.items():
        yield f"    {name:{width}}  {one_line(one, ANSWER)} -> {one_line(other, ANSWER)}"


def _answer(answer: str | None) -> str:
    return "(none)" if answer is None else repr(one_line(answer, ANSWER))
