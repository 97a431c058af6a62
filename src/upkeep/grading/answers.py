"""The family `answers`: metrics of datasets whose questions are asked once, where their paper has none of its own."""

from __future__ import annotations

import polars as pl

from upkeep.grading.metrics import Family, as_counts, pass_at_k, rates, shares


def measure(graded: pl.DataFrame, retrieved: int) -> pl.DataFrame:
    """Every score of one cell, as counts per question; the shares over all questions and over each slice.

    - `accuracy`: share of right answers (evolveQA, 4.1; PRELUDE, 4; the Pass@1 of ImprintBench, C.3).
    - `outdated_rate`: share of answers that were right before and are not now (EvoWiki, 4.1; evolveQA, 4.1).
    - `parse_rate`, `error_rate`, `pass_at_k`: as `upkeep.grading.metrics` has them.

    Args:
        graded: `metrics.GRADED_SCHEMA`.
        retrieved: the most documents that any prediction retrieved; 0 for a method without retrieval.

    Returns:
        `metrics.COUNTS_SCHEMA`.
    """
    own = shares(graded, accuracy=pl.col("right"), outdated_rate=pl.col("outdated"))
    return as_counts(own, rates(graded), pass_at_k(graded, retrieved))


FAMILY = Family(measure)
