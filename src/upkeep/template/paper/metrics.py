"""The metrics of NewPaper, for datasets whose card says `metrics: new_paper` (papers/FORMAT.md, `metrics.py`)."""

from __future__ import annotations

import polars as pl

from upkeep.grading.metrics import Family, as_counts, rates, shares


def measure(graded: pl.DataFrame, retrieved: int) -> pl.DataFrame:
    """Every score of one cell, as counts per question; the shares over all questions and over each slice.

    - `accuracy`: share of right answers.
    - `wrong_answer_rate`: share of predictions that give an answer, and a wrong one. Write the paper's own here.
    - `parse_rate`, `error_rate`: shares of predictions that could be read, and that failed.
    """
    answered = pl.col("answer").is_not_null()
    own = shares(graded, accuracy=pl.col("right"), wrong_answer_rate=answered & ~pl.col("right"))
    return as_counts(own, rates(graded))


FAMILY = Family(measure)
