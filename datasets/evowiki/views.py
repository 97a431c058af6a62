"""How often pages of Wikipedia were read in a month, from a file of the user's."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from upkeep.errors import UpkeepError


def page_views(path: Path, titles: pl.Series) -> pl.DataFrame:
    """Views of pages, as a frame of `title` and `views`.

    Args:
        path: Parquet or CSV (with a header, packed or not) with columns `title` and `views`. Underscores in titles are
            spaces; rows of one title are added up (days, or access from phones and others).
        titles: those that are wanted.

    Raises:
        UpkeepError: the file is missing, unreadable, or lacks a column; views that are not whole numbers.
    """
    wanted = titles.unique().to_frame("title").lazy()
    try:
        table = pl.scan_parquet(path) if path.suffix == ".parquet" else pl.scan_csv(path, infer_schema=False)
        return (
            table.select(pl.col("title").str.replace_all("_", " ", literal=True), pl.col("views").cast(pl.Int64))
            .join(wanted, on="title", how="semi")
            .group_by("title")
            .agg(pl.col("views").sum())
            .collect(engine="streaming")
        )
    except (pl.exceptions.PolarsError, OSError) as error:
        raise UpkeepError(f"not readable: {error}", where=path, expected="columns `title` and `views`") from None
