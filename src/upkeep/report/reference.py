"""The papers' published numbers: `papers/<paper>/reference/<id>.csv` (papers/FORMAT.md)."""

from __future__ import annotations

import functools
from pathlib import Path

import polars as pl

from upkeep.card_numbers import MAX_BYTES, as_text
from upkeep.errors import UpkeepError
from upkeep.files import hash_file
from upkeep.grading.settings import column, pairs

COLUMNS = ("table", "label", "model", "method", "supervision", "setting", "dataset", "subset", "metric")


def read_reference(path: Path) -> pl.DataFrame:
    """Published numbers: the columns of papers/FORMAT.md as text, `value` as printed, but `setting` as pairs.

    Raises:
        UpkeepError: the file is missing or unreadable, its columns are others, a value is no number, or a setting is
            written otherwise.
    """
    if not path.exists():
        raise UpkeepError("no published numbers", where=path, remedy="see papers/FORMAT.md")
    return _read(path, hash_file(path, MAX_BYTES))


@functools.cache
def _read(path: Path, _content: str) -> pl.DataFrame:
    """`read_reference`, once for each content that a file has had: tables, figures and claims ask for the same ones."""
    frame = as_text(path, "not readable as CSV")
    if frame.columns != [*COLUMNS, "value", "unit"]:
        raise UpkeepError(
            "other columns than papers/FORMAT.md has",
            where=path,
            expected=", ".join([*COLUMNS, "value", "unit"]),
            found=", ".join(frame.columns)[:500],
        )
    odd = frame.with_row_index("line", 2).filter(pl.col("value").cast(pl.Float64, strict=False).is_null())
    if not odd.is_empty():
        raise UpkeepError(
            "not a number", where=f"{path}:{odd['line'][0]}", expected="a number in `value`", found=odd["value"][0]
        )
    settings = []
    for line, text in enumerate(frame["setting"], 2):
        try:
            settings.append(pairs(text))
        except ValueError as error:
            raise UpkeepError(
                f"not a setting: {error}", where=f"{path}:{line}", expected="`key=value` joined by `;`", found=text
            ) from None
    return frame.with_columns(column(settings))
