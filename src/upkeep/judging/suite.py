"""One judge and all cells of a suite."""

from __future__ import annotations

from collections.abc import Iterator

from upkeep.catalog import Catalog
from upkeep.contract import Sealed, Sha256
from upkeep.grading.basis import Basis
from upkeep.grading.judged import has_say
from upkeep.integrity import write_sealed
from upkeep.judges import judges_beside, judges_by_cell
from upkeep.judging.judge import Judge
from upkeep.layout import Layout


class JudgingRecord(Sealed, frozen=True, kw_only=True):
    """`results/judged/<judge>/<suite>.json`: which cells a judge has judged."""

    judged: dict[str, Sha256]
    """Cell -> the seal of its verdicts' record."""


def judge_suite(catalog: Catalog, suite: str, judge: str) -> Iterator[str]:
    """Have a model judge every cell of a suite that counts and of which it has something to say, and those beside it
    that do; a line for each.

    Cells that have not been run are left out: the same command judges them later.

    Raises:
        UpkeepError: a cell's dataset is not there, or the model cannot be had; what it has said is kept.
    """
    by_cell = judges_by_cell(catalog, catalog.suite(suite))
    own = [cell for cell, judges in by_cell.items() if judge in judges and has_say(catalog, cell, judge)]
    basis = Basis(catalog, suite)
    cells = {cell: basis.cells[cell].manifest for cell in own}
    if judge in judges_beside(catalog, catalog.suite(suite)):
        cells |= {cell: one.manifest for cell, one in basis.beside.items() if has_say(catalog, cell, judge)}
    done: dict[str, str] = {}
    with Judge(catalog, judge, suite) as judging:
        for cell, manifest in cells.items():
            if manifest is None:
                continue
            found, was_there = judging.judge_cell(cell, manifest)
            done[str(cell)] = found.seal
            if not was_there:
                unread = f", {found.unread:,} not read" if found.unread else ""
                yield f"{cell}: {found.rows.height:,} verdicts, {found.asked:,} questions to {judge}{unread}"
    write_sealed(Layout(catalog.results).judging(judge, suite), JudgingRecord(judged=done))
    left = len(cells) - len(done)
    yield f"{judge}: {len(done)} cells judged" + (f"; {left} are not run" if left else "")
