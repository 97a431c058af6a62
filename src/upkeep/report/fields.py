"""Fields of a score as specs name them: a column of papers/FORMAT.md, or `setting.<key>`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import polars as pl

from upkeep.errors import UpkeepError, nearest
from upkeep.grading.judgements import WORDS
from upkeep.grading.settings import SETTING, as_rows, option
from upkeep.report.reference import COLUMNS
from upkeep.report.specs import Called, Match, several

PREFIX = "setting."
"""What the field of a setting begins with."""
REBUILD = "rebuild"
"""What marks a row on a dataset that was built anew."""
KNOWN = ("dataset_id", *COLUMNS[1:])


def field(name: str) -> pl.Expr:
    """A field of each row; a setting that it does not have is empty."""
    return option(name.removeprefix(PREFIX)) if name.startswith(PREFIX) else pl.col(name)


JUDGE = "judge"
"""The setting that says who decided a score."""


def as_judged(frame: pl.DataFrame, judge: str) -> pl.DataFrame:
    """Scores of our own without those that another judge decided than the paper's, and without that setting; on
    stand-ins the answer key's words are the judge."""
    by, wanted = option(JUDGE), pl.when(pl.col("stand_in") != "").then(pl.lit(WORDS)).otherwise(pl.lit(judge or WORDS))
    others = pl.element().filter(pl.element().struct.field("key") != JUDGE)
    return frame.filter((by == "") | (by == wanted)).with_columns(pl.col("setting").list.eval(others))


def by_words(frame: pl.DataFrame) -> pl.DataFrame:
    """Scores of our own that no model decided."""
    return frame.filter(option(JUDGE).is_in(["", WORDS]))


def holds(match: Match, read: Callable[[str], pl.Expr] = field) -> pl.Expr:
    """Whether each row has these values.

    Args:
        read: what gives a field of a frame.
    """
    each = (read(name).is_in(several(value)) for name, value in match.items())
    return pl.all_horizontal(pl.lit(value=True), *each)


def agrees(values: Mapping[str, Any], match: Match, but: Collection[str] = ()) -> bool:
    """Whether one row that is `expanded` has these values, fields of `but` aside."""
    return all((values.get(name) or "") in several(wanted) for name, wanted in match.items() if name not in but)


def expanded(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with a field for each of its settings."""
    return {**row, **{f"{PREFIX}{pair['key']}": pair["value"] for pair in row["setting"]}}


def data_of() -> pl.Expr:
    """What the data of a score are called where they are not the paper's release: REBUILD, or which stand-in."""
    return pl.when(pl.col("provenance") == "rebuild").then(pl.lit(REBUILD)).otherwise("stand_in").alias("data")


def check(names: Iterable[str], where: str) -> None:
    """Refuse what is no field.

    Raises:
        UpkeepError: there is no field of a name.
    """
    for name in names:
        if name not in KNOWN and not name.startswith(PREFIX):
            raise UpkeepError(
                f"unknown field {name!r}",
                where=where,
                expected=f"one of {', '.join(sorted(KNOWN))}, or {PREFIX}<key>",
                remedy=f"did you mean {' or '.join(nearest(name, KNOWN)) or f'{PREFIX}{name}'}?",
            )


def as_printed(frame: pl.DataFrame, called: Sequence[Called]) -> pl.DataFrame:
    """Scores of our own as a paper calls them.

    Each of `called` is applied to what those before it gave. Of a column that the frame does not have (cells that
    wait have no metric) nothing is asked.

    Args:
        frame: `grading.score.SCORE_SCHEMA`, or `waiting.PENDING_SCHEMA`.

    Raises:
        UpkeepError: one names a field that there is not.
    """
    for one in called:
        check([*one.where, *one.instead], "tables.yaml, called")
        there = {n: v for n, v in one.where.items() if n in frame.columns or n.startswith(PREFIX)}
        meant = holds(there)
        changed = [
            pl.when(meant).then(pl.lit(value)).otherwise(name).alias(name)
            for name, value in one.instead.items()
            if name in frame.columns
        ]
        settings = {n.removeprefix(PREFIX): v for n, v in one.instead.items() if n.startswith(PREFIX)}
        if settings:
            others = pl.element().filter(~pl.element().struct.field("key").is_in(list(settings)))
            added = pl.lit(pl.Series([as_rows(tuple((k, v) for k, v in settings.items() if v))], dtype=SETTING))
            setting = pl.col("setting").list.eval(others).list.concat(added)
            changed.append(pl.when(meant).then(setting).otherwise("setting").alias("setting"))
        frame = frame.with_columns(changed)
    return frame
