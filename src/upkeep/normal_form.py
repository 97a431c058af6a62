"""The files of a dataset in the suite's normal form: their columns, and how they are read (docs/architecture.md)."""

from __future__ import annotations

from pathlib import Path

import msgspec
import polars as pl

from upkeep.contract import DatasetCard, Pair
from upkeep.errors import UpkeepError

TEXTS = pl.List(pl.String)
SCHEMAS: dict[str, dict[str, pl.DataType | type[pl.DataType]]] = {
    "documents": {
        "document_id": pl.String,
        "stream": pl.String,
        "position": pl.Int32,
        "timestamp": pl.String,
        "text": pl.String,
        "tokens": pl.Int32,
    },
    "probes": {
        "probe_id": pl.String,
        "question_id": pl.String,
        "stream": pl.String,
        "position": pl.Int32,
        "question": pl.String,
        "options": TEXTS,
        "form": pl.String,
    },
    "gold": {"probe_id": pl.String, "answers": TEXTS, "outdated": TEXTS, "evidence": TEXTS, "phase": pl.Int32},
}
"""Columns of each table; `gold` may have those of OPTIONAL and any number of `slice_<name>` more, and `documents` such
slices."""
OPTIONAL = ("context", "quotes")
"""Lists of texts in `gold`: the very words that a question was made from, which the oracle reads; and the sentences
that tell the right answer, which no method gets and a judge may."""

NULLABLE = {("documents", "timestamp"), ("probes", "options")}
TABLES = tuple(SCHEMAS)
PAIRS = "pairs.jsonl"
EXAMPLES = "examples.jsonl"


def read_table(folder: Path, table: str) -> pl.DataFrame:
    """One of `documents`, `probes`, `gold`, with exactly the documented columns.

    Raises:
        UpkeepError: the file is missing or is no Parquet file, or a column is missing, unknown or of a wrong type.
    """
    path = folder / f"{table}.parquet"
    try:
        frame = pl.read_parquet(path)
    except FileNotFoundError:
        raise UpkeepError("file not found", where=path, remedy=f"./upkeep dataset build {folder.name}") from None
    except (pl.exceptions.PolarsError, OSError) as error:
        raise UpkeepError(f"not readable as Parquet: {error}", where=path) from None
    check_schema(table, frame, path)
    return frame


def read_pairs(folder: Path, card: DatasetCard) -> list[Pair]:
    """The training pairs; empty where the dataset has none.

    Raises:
        UpkeepError: the file is missing although the card counts pairs, or a line is no pair.
    """
    return _pairs_in(folder / PAIRS, card.pairs)


def read_examples(folder: Path, card: DatasetCard) -> list[Pair]:
    """The worked examples; empty where the dataset has none. As `read_pairs`."""
    return _pairs_in(folder / EXAMPLES, card.examples)


def _pairs_in(path: Path, counted: int) -> list[Pair]:
    if not counted and not path.exists():
        return []
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        raise UpkeepError("file not found", where=path, expected=f"{counted} pairs") from None
    pairs: list[Pair] = []
    for number, line in enumerate(lines, 1):
        try:
            pairs.append(msgspec.json.decode(line, type=Pair))
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise UpkeepError(str(error), where=f"{path}, line {number}", expected="a question and an answer") from None
    return pairs


def check_schema(table: str, frame: pl.DataFrame, path: Path) -> None:
    """Refuse a table that has other columns than documented, or values missing in them.

    Raises:
        UpkeepError: names the file, the column and what was expected.
    """
    wanted = SCHEMAS[table]
    if table != "probes":
        wanted = wanted | {column: pl.String for column in frame.columns if column.startswith("slice_")}
    if table == "gold":
        wanted |= {column: TEXTS for column in OPTIONAL if column in frame.columns}
    for column, kind in wanted.items():
        if column not in frame.columns:
            raise UpkeepError(f"no column `{column}`", where=path, expected=", ".join(wanted), found=frame.columns)
        if frame[column].dtype != kind:
            raise UpkeepError(
                "wrong type", where=f"{path}, column `{column}`", expected=str(kind), found=str(frame[column].dtype)
            )
        if frame[column].null_count() and (table, column) not in NULLABLE:
            row = frame[column].is_null().arg_max()
            raise UpkeepError(
                "no value", where=f"{path}, row {row}, column `{column}`", expected=str(kind), found="null"
            )
    if unknown := [column for column in frame.columns if column not in wanted]:
        raise UpkeepError(f"unknown column `{unknown[0]}`", where=path, expected=", ".join(wanted))


def check_subsets(gold: pl.DataFrame, where: object) -> None:
    """Refuse slices that share a value: a score says its subset and not the slice that it is of.

    Raises:
        UpkeepError: names the file, the column and the value.
    """
    owners = {"all": "the name of all questions"}
    for column in (c for c in gold.columns if c.startswith("slice_")):
        for value in sorted(gold[column].drop_nulls().unique()):
            if value in owners:
                raise UpkeepError(
                    "one name for two subsets",
                    where=f"{where}, column `{column}`",
                    expected="values that no other slice has",
                    found=f"{value!r}, which is {owners[value]}",
                    remedy=f"name the subset after its slice, as in {column.removeprefix('slice_')}_{value}",
                )
            owners[value] = f"a value of column `{column}`, too"
