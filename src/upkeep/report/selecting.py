"""Which scores belong to a table, and where: the same experiment as a published row's, or one of our own beside it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from upkeep.grading.judgements import WORDS
from upkeep.report.comparing import UNRUN
from upkeep.report.fields import JUDGE, PREFIX, agrees, data_of, expanded
from upkeep.report.specs import Match, TableSpec, several

Values = dict[str, Any]
"""One row of scores, of published numbers or of waiting cells, with `setting.<key>` for each of its settings, `data`
(`fields.data_of`), and `place`, its row in the frame; and, once it is selected, `read_as`, which settings of a stand-in
are read as others."""

JUDGED = f"{PREFIX}{JUDGE}"
AT = f"{PREFIX}at"
"""The k of a metric at k: no setting of an experiment, so no row of a table lacks one."""
OF_SCORES = frozenset({"subset", "metric", AT})
"""Fields that a cell without scores has not."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What tells one row of a table from another."""

    key: tuple[str, ...]
    """Values of the spec's row fields."""
    data: str = ""
    setting: str = ""
    """Settings that the paper's rows have otherwise, or do not have, as text; empty in all of the paper's rows."""
    cell: str = ""
    """Where two cells have all else in common, the second."""

    @property
    def foreign(self) -> int:
        """How many settings `setting` has."""
        return len(self.setting.split(", ")) if self.setting else 0


def values_of(frame: pl.DataFrame) -> list[Values]:
    """The rows of a frame, which every table of a paper selects from."""
    return [expanded(row) for row in frame.with_row_index("place").with_columns(data_of()).iter_rows(named=True)]


class Selection:
    """The rows and columns of a table that rows of a frame belong to."""

    def __init__(
        self,
        spec: TableSpec,
        columns: Sequence[Match],
        stand_in: Mapping[str, Mapping[str, str]] | None = None,
        judge: str = WORDS,
    ) -> None:
        """
        Args:
            columns: what each of the table's columns asks for, besides `spec.where`.
            stand_in: field -> value on a stand-in -> the published value that it is read as.
            judge: who judged the published numbers, where columns do not say it.
        """
        self._spec = spec
        self._columns = [spec.where | column for column in columns]
        self._stand_in = stand_in or {}
        if not any(JUDGED in column for column in self._columns):
            # What no judge decides has no such setting.
            self._columns = [column | {JUDGED: ["", judge]} for column in self._columns]
            self._stand_in = {**self._stand_in, JUDGED: {WORDS: judge}}
        self._allowed: dict[str, set[str]] = {}
        for column in self._columns:
            for name, wanted in column.items():
                self._allowed.setdefault(name, set()).update(several(wanted))
        self._settings = {name: allowed for name, allowed in self._allowed.items() if name.startswith(PREFIX)}
        self._named = {*spec.rows, *self._allowed}

    def rows(self, found: Iterable[Values]) -> Iterator[Values]:
        """Those of some rows (`values_of`) that have what every column of the table asks for in the fields that are no
        settings."""
        common = set.intersection(*(set(column) for column in self._columns)) - self._stand_in.keys()
        asked = [(name, self._allowed[name]) for name in sorted(common) if not name.startswith(PREFIX)]
        for row in found:
            if any(name in row and row[name] not in allowed for name, allowed in asked):
                continue
            values, told = dict(row), []
            for name, read_as in self._stand_in.items():
                if values["stand_in"] and (value := values.get(name)):
                    values[name] = read_as.get(value, f"not {value}")
                    if value in read_as:
                        told.append(f"{name.removeprefix(PREFIX)}={value} stands for {values[name]}")
            values["read_as"] = ", ".join(told)
            yield values

    def published(self, values: Values) -> Iterator[tuple[int, Entry]]:
        """The columns of a published number, and its row. One with a setting that the spec does not name is of another
        experiment, which the table does not show."""
        if not self._foreign(values):
            for index, column in enumerate(self._columns):
                if agrees(values, column):
                    yield index, Entry(self._key(values))

    def own(self, values: Values) -> Iterator[tuple[int, Entry]]:
        """The columns of a score of our own, and its row.

        Where a setting is one that no column of the table has, the score goes to the only column that asks for all
        else; where there are several, it is not of this table.
        """
        foreign = self._foreign(values)
        if AT in foreign:
            return
        columns, off = [i for i, column in enumerate(self._columns) if agrees(values, column)], set[str]()
        if not columns:
            off = self._off(values) - {AT}
            columns = [i for i, column in enumerate(self._columns) if agrees(values, column, but=off)]
            if len(columns) != 1:
                return
        entry = Entry(self._key(values), values["data"], _printed(values, foreign | off))
        for index in columns:
            yield index, entry

    def waiting(self, values: Values, known: Collection[Entry]) -> Iterator[tuple[int, Entry]]:
        """The places that a cell without scores leaves empty: in rows that are known, and in one of its own where it is
        not `aside` and its reason is a failure.

        Where subset or metric tell rows apart, a cell leaves places in each such row that is known. A cell on a rebuild
        leaves the paper's: with a copy of the release it is the paper's.
        """
        if "method" not in self._named:  # what a dataset holds waits for no cell
            return
        off = self._off(values) - OF_SCORES
        entries = self._entries(values, _printed(values, self._foreign(values) | off), known)
        if values["aside"] or values["reason"] in UNRUN:
            entries = [entry for entry in entries if entry in known]
        for index, column in enumerate(self._columns) if entries else ():
            metrics = column.get("metric", "")
            lacks = values["lacks"] in ("", *several(metrics))
            if lacks and agrees(values, column, but=OF_SCORES | off):
                for entry in entries:
                    yield index, entry

    def _entries(self, values: Values, setting: str, known: Collection[Entry]) -> list[Entry]:
        said = [(place, values.get(name) or "") for place, name in enumerate(self._spec.rows) if name not in OF_SCORES]
        if len(said) == len(self._spec.rows):
            return [Entry(self._key(values), values["stand_in"], setting)]
        alike = [entry for entry in known if (entry.data, entry.setting) == (values["stand_in"], setting)]
        return [entry for entry in alike if all(entry.key[place] == value for place, value in said)]

    def _key(self, values: Values) -> tuple[str, ...]:
        return tuple(values.get(name) or "" for name in self._spec.rows)

    def _foreign(self, values: Values) -> set[str]:
        """Settings of a row that the spec does not name."""
        return {f"{PREFIX}{pair['key']}" for pair in values["setting"]} - self._named

    def _off(self, values: Values) -> set[str]:
        """Settings whose value no column of the table asks for."""
        return {name for name, allowed in self._settings.items() if (values.get(name) or "") not in allowed}


def _printed(values: Values, names: Collection[str]) -> str:
    """These settings as the cell has them, whatever a stand-in's are read as."""
    given = [(pair["key"], pair["value"]) for pair in values["setting"] if f"{PREFIX}{pair['key']}" in names]
    there = {f"{PREFIX}{key}" for key, _ in given}
    without = sorted(name.removeprefix(PREFIX) for name in names if name not in there)
    return ", ".join([f"{key}={value}" for key, value in given] + [f"no {key}" for key in without])
