"""Of several cells that tables call the same, the one that a paper shows: the best of its learning rates."""

from __future__ import annotations

import polars as pl

from upkeep.grading.settings import option
from upkeep.report.fields import JUDGE, as_judged, holds
from upkeep.report.specs import Match

NAMES = ("label", "model", "method", "supervision", "setting", "dataset", "dataset_id")
"""What tables call a cell."""


def best_of(scores: pl.DataFrame, match: Match, judge: str = "") -> pl.DataFrame:
    """The scores without those of cells that tables call the same as a better one.

    Args:
        scores: `grading.score.SCORE_SCHEMA`.
        match: the score that decides, over all of the data. Where two are equal, the first in the suite's order is
            taken; cells that do not have it are left as they are.
        judge: the paper's, who decides it; where it has not judged, the answer key's words do.
    """
    of_words = scores.filter(option(JUDGE) != judge) if judge else scores
    by_judge = as_judged(scores.with_columns(stand_in=pl.lit("")), judge)
    by_judge = pl.concat([by_judge, as_judged(of_words.with_columns(stand_in=pl.lit("")), "")])
    found = by_judge.filter(holds(match)).unique("cell", keep="first", maintain_order=True)
    deciding = found.sort("value", descending=True, maintain_order=True)
    cells = deciding.group_by(NAMES, maintain_order=True).agg("cell")["cell"]
    others = cells.list.slice(1).explode().drop_nulls()
    return scores.filter(~pl.col("cell").is_in(others.implode()))
