"""The settings of a score as data: whatever else tells its row from its neighbours (papers/FORMAT.md, `setting`).

A frame has them in one column, a list of pairs: made once for a score of our own, read once from a published one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import polars as pl

SETTING = pl.List(pl.Struct({"key": pl.String, "value": pl.String}))
"""The column `setting`: pairs, in the order in which they are printed."""

Pairs = tuple[tuple[str, str], ...]


def pairs(text: str) -> Pairs:
    """The settings that a published row has, as its file writes them: `k=30;thinking=off`.

    Raises:
        ValueError: a part is no `key=value`, or a key stands twice.
    """
    found: dict[str, str] = {}
    for part in text.split(";") if text else ():
        key, equals, value = part.partition("=")
        if not key or not equals or key in found:
            raise ValueError(f"{part!r}: {'a key twice' if key in found else 'no key=value'}")
        found[key] = value
    return tuple(found.items())


def as_rows(setting: Pairs) -> list[dict[str, str]]:
    """The settings of one row, as its column holds them."""
    return [{"key": key, "value": value} for key, value in setting]


def column(settings: Iterable[Pairs]) -> pl.Series:
    """The column `setting` of these rows, made of the few that differ."""
    settings = list(settings)
    place = {setting: place for place, setting in enumerate(dict.fromkeys(settings))}
    each = pl.Series("setting", [as_rows(setting) for setting in place], dtype=SETTING)
    return each.gather([place[setting] for setting in settings])


def option(key: str) -> pl.Expr:
    """One setting of each row; empty where it has none of that key."""
    pair = pl.element()
    found = pair.filter(pair.struct.field("key") == key).struct.field("value")
    return pl.col("setting").list.eval(found).list.first().fill_null("")


def has_others(keys: Collection[str]) -> pl.Expr:
    """Whether a row has a setting besides these."""
    return pl.col("setting").list.eval(~pl.element().struct.field("key").is_in(list(keys))).list.any()


def as_text(frame: pl.DataFrame) -> pl.DataFrame:
    """The same rows with `setting` as `printed` has it."""
    pair = pl.element().struct
    text = pl.format("{}={}", pair.field("key"), pair.field("value"))
    return frame.with_columns(pl.col("setting").list.eval(text).list.join(", "))


def printed(setting: Iterable[Mapping[str, str]], leave_out: Collection[tuple[str, str]] = ()) -> str:
    """A row's settings for a reader: `k=30, thinking=on`."""
    found = [(pair["key"], pair["value"]) for pair in setting]
    return ", ".join(f"{key}={value}" for key, value in found if (key, value) not in leave_out)
