"""Rows of a release's table: CSV, JSON lines, a JSON array with an element a line, or Parquet."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from upkeep.building.reading import Faults, open_packed, records, whole
from upkeep.errors import UpkeepError

SUFFIXES = (".csv", ".jsonl", ".json", ".parquet")
MAX_FIELD = 2**26
"""Characters of one field of a CSV file."""

Row = dict[str, Any]

_NO_TEXT = re.compile("[\udc80-\udcff]")
"""Bytes that are no UTF-8, as `surrogateescape` reads them."""


def files(path: Path) -> list[Path]:
    """The tables at a path: the file itself, or those of a folder, by name.

    Raises:
        UpkeepError: there is none of a known form.
    """
    found = sorted(f for f in path.iterdir() if f.suffix in SUFFIXES) if path.is_dir() else [path]
    if not found or not found[0].is_file() or found[0].suffix not in SUFFIXES:
        raise UpkeepError("no table here", where=path, expected=f"a file that ends in {', '.join(SUFFIXES)}")
    return found


def rows(
    path: Path,
    columns: Sequence[str],
    faults: Faults,
    only: Collection[str] | None = None,
    needed: Sequence[str] = (),
) -> Iterator[Row]:
    """The rows of a table, each with its place under the key "" and `columns` beside it, in the order of the file.

    Args:
        columns: those to read; a missing value is None.
        only: values of the first column; other rows are passed over.
        needed: columns that have to be there besides, for a later pass.

    Raises:
        UpkeepError: a column is missing; the file is no such table.
    """
    read = {".csv": _csv, ".parquet": _parquet}.get(path.suffix, _json)
    for row in read(path, columns, faults, only, dict.fromkeys([*columns, *needed])):
        if only is None or str(row[columns[0]]) in only:
            yield row


def _csv(
    path: Path, columns: Sequence[str], faults: Faults, only: Collection[str] | None, needed: Collection[str]
) -> Iterator[Row]:
    before = csv.field_size_limit(MAX_FIELD)
    try:
        # Bytes that are no UTF-8 come through as lone surrogates, so that only their row is left out.
        with (
            whole(path),
            io.TextIOWrapper(open_packed(path), "utf-8-sig", errors="surrogateescape", newline="") as file,
        ):
            reader = csv.reader(file)
            header = next(reader, [])
            _check_columns(path, needed, header)
            start = reader.line_num + 1
            while True:
                where = f"{path}, line {start}"
                try:
                    fields = next(reader)
                except StopIteration:
                    return
                except csv.Error as error:
                    start = reader.line_num + 1
                    faults("broken_record", where, f"not a row: {error}")
                    continue
                start = reader.line_num + 1
                if not fields:
                    continue
                if len(fields) != len(header):
                    faults("broken_record", where, f"a row of {len(fields)} fields", f"{len(header)} columns")
                elif any(_NO_TEXT.search(one) for one in fields):
                    faults("encoding", where, "not UTF-8")
                else:
                    named = dict(zip(header, fields, strict=True))
                    yield {"": where, **{column: named[column] for column in columns}}
    finally:
        csv.field_size_limit(before)


def _json(
    path: Path, columns: Sequence[str], faults: Faults, only: Collection[str] | None, needed: Collection[str]
) -> Iterator[Row]:
    for where, record in records(path, dict[str, Any], faults):
        if missing := [column for column in needed if column not in record]:
            faults("broken_record", where, f"no field `{missing[0]}`", ", ".join(record))
        else:
            yield {"": where, **{column: record[column] for column in columns}}


def _parquet(
    path: Path, columns: Sequence[str], faults: Faults, only: Collection[str] | None, needed: Collection[str]
) -> Iterator[Row]:
    try:
        table = pl.scan_parquet(path)
        _check_columns(path, needed, table.collect_schema().names())
        table = table.select(columns).with_row_index("")
        if only is not None:
            table = table.filter(pl.col(columns[0]).cast(pl.String).is_in(sorted(only)))
        frame = table.collect()
    except (pl.exceptions.PolarsError, OSError) as error:
        raise UpkeepError(f"not readable as Parquet: {error}", where=path) from None
    for row in frame.iter_rows(named=True):
        yield row | {"": f"{path}, row {row['']}"}


def _check_columns(path: Path, columns: Collection[str], found: Sequence[str]) -> None:
    if missing := [column for column in columns if column not in found]:
        raise UpkeepError(
            f"no column `{missing[0]}`: not the release's format",
            where=path,
            expected=", ".join(columns),
            found=", ".join(found) or "nothing",
        )


def within(value: Any, kind: Any, where: str, faults: Faults) -> Any:
    """A JSON value that a column holds, as text or already as a structure; None where it is not of that form."""
    try:
        return msgspec.json.decode(value, type=kind) if isinstance(value, str) else msgspec.convert(value, kind)
    except (msgspec.MsgspecError, UnicodeEncodeError) as error:
        faults("broken_record", where, f"not of the release's form: {error}", str(value)[:80])
        return None
