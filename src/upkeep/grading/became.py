"""What became of a prediction, in one word."""

from __future__ import annotations

import polars as pl

BECAME = (
    pl.when("failed")
    .then(pl.lit("failed"))
    .when("right")
    .then(pl.lit("right"))
    .when("outdated")
    .then(pl.lit("outdated"))
    .when(pl.col("parse") == "none")
    .then(pl.lit("unread"))
    .otherwise(pl.lit("wrong"))
)
"""Of a row of `graded.VERDICTS`: right; right before and not now; wrong; no answer that can be read; no response."""
