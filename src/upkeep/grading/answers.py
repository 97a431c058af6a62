"""Metrics of datasets whose questions are asked once: pure functions from graded predictions to per-question counts."""

from __future__ import annotations

import polars as pl

from upkeep.grading import oaks
from upkeep.grading.statistics import QUESTION_SCHEMA


def measure(graded: pl.DataFrame, retrieved: int) -> pl.DataFrame:
    """Every score of one cell, as counts per question, over all questions and over each slice.

    - `accuracy`: share of right answers (EvoWiki, 4.1; evolveQA, 4.1; PRELUDE, 4; the Pass@1 of ImprintBench, C.3).
    - `outdated_rate`: share of answers that were right before and are not now (EvoWiki, 4.1; evolveQA, 4.1).
    - `parse_rate`, `error_rate`, `pass_at_k`: as for OAKS.

    Args:
        graded: `oaks.GRADED_SCHEMA`, and `outdated`.
        retrieved: the most documents that any prediction retrieved; 0 for a method without retrieval.

    Returns:
        QUESTION_SCHEMA, for `statistics.estimate`.
    """
    slices = [name for name in graded.columns if name.startswith("slice_")]
    members = pl.concat(
        [graded.with_columns(subset=pl.lit("all"))] + [graded.with_columns(subset=pl.col(name)) for name in slices]
    )
    counts = (
        members.group_by("subset", "question_id", maintain_order=True)
        .agg(accuracy=pl.col("right").sum(), outdated_rate=pl.col("outdated").sum(), n=pl.len())
        .unpivot(
            ["accuracy", "outdated_rate"],
            index=["subset", "question_id", "n"],
            variable_name="metric",
            value_name="hits",
        )
        .with_columns(total=pl.col("n"), at=None)
        .sort("subset", "metric", "question_id")
    )
    parts = [counts, oaks.rates(graded), oaks.pass_at_k(graded, min(retrieved, oaks.MAX_K))]
    return pl.concat([part.select(pl.col(c).cast(t) for c, t in QUESTION_SCHEMA.items()) for part in parts])
