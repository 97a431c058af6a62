"""Counts of several datasets together, where a paper prints their sum."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from upkeep.card_numbers import Read
from upkeep.catalog import Catalog
from upkeep.grading.score import SCORE_SCHEMA, tidy


def sums(scores: pl.DataFrame, names: Iterable[str]) -> pl.DataFrame:
    """Counts of several datasets that a paper prints the sum of, under their names joined by `+`.

    Args:
        scores: SCORE_SCHEMA.
        names: of datasets, as published numbers have them.

    Returns:
        SCORE_SCHEMA; no row where one of the datasets lacks the count.
    """
    counts = scores.filter(pl.col("unit") == "count", pl.col("cell") == "")
    found = [pl.DataFrame(schema=SCORE_SCHEMA)]
    for name in names:
        parts = name.split("+")
        if len(parts) > 1:
            of_parts = counts.filter(pl.col("dataset").is_in(parts))
            total = of_parts.group_by("subset", "metric", "setting", "stand_in", "unit", maintain_order=True).agg(
                pl.col("value").sum(),
                pl.col("dataset").n_unique().alias("parts"),
                pl.len().alias("rows"),
                pl.col("label", "dataset_id").str.join("+"),
                pl.when((pl.col("provenance") == "rebuild").any())
                .then(pl.lit("rebuild"))
                .otherwise(pl.col("provenance").first())
                .alias("provenance"),
            )
            whole = total.filter(pl.col("parts") == len(parts), pl.col("rows") == len(parts))
            found.append(tidy(whole.with_columns(dataset=pl.lit(name), trained=pl.lit(value=True))))
    return pl.concat(found)


def printed_names(catalog: Catalog, papers: Iterable[str], read: Read) -> set[str]:
    """The names of datasets that the published numbers of these papers have; of several together joined by `+`.

    Args:
        read: as in `card_numbers.places`.

    Raises:
        UpkeepError: their files cannot be read.
    """
    files = [file for paper in papers for file in sorted((catalog.root / "papers" / paper / "reference").glob("*.csv"))]
    return {name for file in files for name in read(file)["dataset"]}


def joined(catalog: Catalog, papers: Iterable[str], read: Read) -> list[str]:
    """Of `printed_names`, those of several datasets together."""
    return sorted(name for name in printed_names(catalog, papers, read) if "+" in name)
