"""Of several cells that tables call the same, the one that a paper shows: the best of its learning rates."""

from __future__ import annotations

import polars as pl

from upkeep.report.fields import holds
from upkeep.report.specs import Match

NAMES = ("label", "model", "method", "supervision", "setting", "dataset", "dataset_id")
"""What tables call a cell."""


def best_of(scores: pl.DataFrame, match: Match) -> pl.DataFrame:
    """The scores without those of cells that tables call the same as a better one.

    Args:
        scores: `grading.score.SCORE_SCHEMA`.
        match: the score that decides, over all of the data. Where two are equal, the first in the suite's order is
            taken; cells that do not have it are left as they are.
    """
    deciding = scores.filter(holds(match)).sort("value", descending=True, maintain_order=True)
    cells = deciding.group_by(NAMES, maintain_order=True).agg("cell")["cell"]
    others = cells.list.slice(1).explode().drop_nulls()
    return scores.filter(~pl.col("cell").is_in(others.implode()))
