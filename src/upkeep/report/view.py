"""What the checks of claims ask: the view `scores` in a database in memory, with one value a score, or with many."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping

import duckdb
import numpy as np
import polars as pl

from upkeep.errors import UpkeepError
from upkeep.grading.resampling import Floats
from upkeep.text import printable, short

COLUMNS = ("label", "model", "method", "supervision", "setting", "dataset", "subset", "metric", "value", "unit")
"""Columns of the view `scores` that the queries see: texts, but for `value`, and `setting`, a map."""
Sides = Mapping[str, tuple[float, float]]
"""What a query gives: the name of each case -> its two sides. A row with a missing side is no case."""
_MOST = 1_000_000
"""Rows of scores that are held for one query."""
_VALUE = "CASE WHEN undefined THEN 'nan'::DOUBLE ELSE value END AS value"
"""DuckDB takes a number that is none for a missing one, which a mean would pass over."""


@functools.cache
def _database() -> duckdb.DuckDBPyConnection:
    """In memory, empty: what a view makes is temporary, of its connection. To start one takes longer than a query."""
    # Objects are not looked at for what they are (`pandas_analyze_sample`): they are texts.
    return duckdb.connect(
        ":memory:", config={"enable_external_access": "false", "threads": "1", "pandas_analyze_sample": "0"}
    )


class View:
    """A connection to DuckDB with the view `scores` and the macro `opt`; it reaches no file and no network.

    Args:
        numbers: the columns of COLUMNS, with `setting` as pairs (`grading.settings.SETTING`).
    """

    def __init__(self, numbers: pl.DataFrame) -> None:
        values = numbers["value"].cast(pl.Float64)
        self.values: Floats = values.to_numpy()
        self._asked: dict[str, Sides] = {}
        self._connection = _database().cursor()
        # Texts go over as they lie in memory, and of the settings the few that differ.
        each = numbers.select("setting").unique(maintain_order=True).with_row_index("at", 1)
        at = numbers.join(each, on="setting", how="left", maintain_order="left", nulls_equal=True)["at"]
        given = {name: numbers[name].cast(pl.String).to_numpy() for name in COLUMNS if name != "setting"}
        given |= {"value": self.values, "undefined": values.is_nan().fill_null(value=False).to_numpy()}
        self._connection.register("given_from", given | {"at": at.to_numpy()})
        self._connection.execute(
            f'CREATE TEMP TABLE given AS SELECT * EXCLUDE (undefined, "at") REPLACE ({_VALUE}), '
            'map((?::VARCHAR[][])["at"], (?::VARCHAR[][])["at"]) AS setting, '
            "row_number() OVER () - 1 AS place FROM given_from",
            [each["setting"].list.eval(pl.element().struct.field(name)).to_list() for name in ("key", "value")],
        )
        self._connection.unregister("given_from")
        self._connection.execute("CREATE TEMP VIEW scores AS SELECT * EXCLUDE (place) FROM given")
        self._connection.execute("CREATE TEMP MACRO opt(setting, name) AS coalesce(setting[name], '')")

    def __enter__(self) -> View:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def sides(self, query: str, where: str) -> Sides:
        """The cases of a query.

        Args:
            where: whose query it is, for messages.

        Raises:
            UpkeepError: it is no SQL, or does not give `lhs` and `rhs` as numbers.
        """
        if query not in self._asked:
            self._asked[query] = self._answered(query, where)
        return self._asked[query]

    def _answered(self, query: str, where: str) -> Sides:
        names, rows = self._ask(query, where)
        if not {"lhs", "rhs"} <= set(names):
            raise UpkeepError("the query of a check lacks a side", where=where, expected="lhs, rhs", found=names)
        return _cases(names, rows, where)

    def sides_of(self, query: str, where: str, values: Floats) -> Iterator[Sides]:
        """The cases of a query for other values of the same scores.

        Args:
            values: (rows, times): a value for each row, as often as the query is to be asked; infinite where the row is
                not there.

        Raises:
            UpkeepError: as `sides`.
        """
        step = max(1, _MOST // max(1, len(values)))
        for first in range(0, values.shape[1], step):
            yield from self._sides_of(query, where, values[:, first : first + step])

    def _sides_of(self, query: str, where: str, values: Floats) -> list[Sides]:
        """For all of the times in one query: to plan it takes longer than to answer it."""
        # The first time are the values as they are, for the query alone says what is to come of these.
        values = np.column_stack([self.values, values])
        self._draw(values)
        together = f"""
            SELECT each_time.time AS "each time", each_case.*
            FROM (SELECT unnest(range({values.shape[1]})) AS time) AS each_time, LATERAL (
              WITH scores AS (
                SELECT given.* EXCLUDE (place, value), drawn.value
                FROM given JOIN drawn USING (place) WHERE drawn.time = each_time.time
              )
              SELECT * FROM (
                {query.strip().rstrip(";")}
              )
            ) AS each_case"""
        expected = self.sides(query, where)
        try:
            names, rows_of = self._ask(together, where)
        except UpkeepError:  # SQL that cannot be asked of all at once
            return [self._once(query, where, values[:, time]) for time in range(1, values.shape[1])]
        at = names.index("each time")
        split: list[list[tuple[object, ...]]] = [[] for _ in range(values.shape[1])]
        for row in rows_of:
            split[int(row[at])].append(row[:at] + row[at + 1 :])  # type: ignore[call-overload]
        names = names[:at] + names[at + 1 :]
        found = [_cases(names, some, where) for some in split]
        if not same(found[0], expected):
            return [self._once(query, where, values[:, time]) for time in range(1, values.shape[1])]
        return found[1:]

    def _once(self, query: str, where: str, values: Floats) -> Sides:
        self._draw(values[:, None])
        scores = "SELECT given.* EXCLUDE (place, value), drawn.value FROM given JOIN drawn USING (place)"
        return self._answered(f"WITH scores AS ({scores}) SELECT * FROM (\n{query.strip().rstrip(';')}\n)", where)

    def _draw(self, values: Floats) -> None:
        """The table `drawn` (place, time, value) of values that are there."""
        rows, times = np.nonzero(~np.isinf(values))
        found = values[rows, times]
        drawn = {"place": rows, "time": times, "value": found, "undefined": np.isnan(found)}
        self._connection.register("drawn_from", drawn)
        self._connection.execute(
            f"CREATE OR REPLACE TEMP TABLE drawn AS SELECT * EXCLUDE (undefined) REPLACE ({_VALUE}) FROM drawn_from"
        )
        self._connection.unregister("drawn_from")

    def _ask(self, query: str, where: str) -> tuple[list[str], list[tuple[object, ...]]]:
        try:
            cursor = self._connection.execute(query)
            return [column[0] for column in cursor.description or []], cursor.fetchall()
        except duckdb.Error as error:
            raise UpkeepError(
                "the query of a check fails", where=where, expected="one SELECT of DuckDB over `scores`",
                found=short(printable(str(error)).partition("\n")[0]), remedy="mend its `query` (papers/FORMAT.md)",
            ) from None  # fmt: skip


def _cases(names: list[str], rows: list[tuple[object, ...]], where: str) -> Sides:
    """Cases in order of name. Those of one name, which runs of two settings have where a query does not tell these
    apart, are numbered in order of their sides."""
    found: dict[str, list[tuple[float, float]]] = {}
    left, right = names.index("lhs"), names.index("rhs")
    for row in rows:
        lhs, rhs = row[left], row[right]
        if lhs is None or rhs is None:
            continue
        try:
            both = float(lhs), float(rhs)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            raise UpkeepError(
                "a side is no number", where=where, expected="numbers", found=f"{lhs!r}, {rhs!r}"
            ) from None
        if math.isnan(both[0]) or math.isnan(both[1]):
            continue
        told = (str(value) for at, value in enumerate(row) if at not in (left, right) and value not in (None, ""))
        found.setdefault(", ".join(told), []).append(both)
    return {
        f"{name} ({number})" if number > 1 else name: both
        for name, alike in sorted(found.items())
        for number, both in enumerate(sorted(alike), 1)
    }


def same(one: Sides, other: Sides) -> bool:
    """Whether two answers have the same cases with the same sides, but for the order of additions."""
    return one.keys() == other.keys() and all(
        math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)
        for name in one
        for a, b in zip(one[name], other[name], strict=True)
    )
