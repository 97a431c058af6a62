"""A dataset's numbers: what its card counts, and where its paper prints the same."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import polars as pl

from upkeep.contract import DatasetCard, DatasetSpec, Published
from upkeep.errors import UpkeepError
from upkeep.files import open_regular

Read = Callable[[Path], pl.DataFrame]


def files_read_once() -> Read:
    """`reference`, reading each file once; whoever asks for another one sees what has changed."""
    return functools.cache(reference)


def numbers(card: DatasetCard) -> dict[str, float]:
    """Counts and statistics of a built dataset by name; of slices in questions and percent."""
    own: dict[str, float] = {"streams": card.streams, "documents": card.documents, "questions": card.questions}
    own |= {"probes": card.probes, "training pairs": card.pairs} | card.statistics
    for name, values in card.slices.items():
        for value, n in values.items():
            own |= {f"{name}: {value}": n, f"{name}: {value}, percent": 100 * n / card.questions}
    return own


def published(spec: DatasetSpec, papers: Path) -> dict[str, float]:
    """What the paper prints for statistics of a dataset's card.

    Args:
        papers: the folder `papers/`.

    Raises:
        UpkeepError: a place in its tables does not name exactly one number, or they cannot be read.
    """
    read = files_read_once()
    return {
        name: float(_line(name, given, spec, papers, read)["value"]) if isinstance(given, Published) else given
        for name, given in spec.published.items()
    }


def places(spec: DatasetSpec, papers: Path, read: Read | None = None) -> dict[str, list[dict[str, str]]]:
    """Statistic of a dataset's card -> every line of the paper's files that prints it, in whichever table.

    That is the line that `published` names, and then those of the same dataset, subset and metric, and of no model,
    that it names for no other statistic.

    Args:
        papers: the folder `papers/`.
        read: gives a file of published numbers; with `files_read_once()` of the caller's, each is read once for all
            datasets.

    Raises:
        UpkeepError: as `published`.
    """
    read = read or files_read_once()
    given = {name: place for name, place in spec.published.items() if isinstance(place, Published)}
    named = {name: _line(name, place, spec, papers, read) for name, place in given.items()}
    files = sorted((papers / spec.paper / "reference").glob("*.csv"))
    found: dict[str, list[dict[str, str]]] = {}
    for name, line in named.items():
        same = [pl.col(column) == line[column] for column in ("dataset", "subset", "metric")]
        others = [row for path in files for row in read(path).filter(*same, model="").to_dicts()]
        found[name] = [line, *(row for row in others if row not in named.values())]
    return found


def _line(name: str, given: Published, spec: DatasetSpec, papers: Path, read: Read) -> dict[str, str]:
    path = papers / spec.paper / "reference" / f"{given.table}.csv"
    printed = read(path)
    if unknown := given.where.keys() - set(printed.columns):
        raise UpkeepError(
            f"`published: {name}` names no column",
            where=path,
            expected=f"one of {', '.join(printed.columns)}",
            found=min(unknown),
        )
    lines = printed.filter(*(pl.col(column) == value for column, value in given.where.items()))
    if len(lines) != 1:
        raise UpkeepError(
            f"`published: {name}` does not name one number",
            where=path,
            expected="one line with " + ", ".join(f"{k}={v}" for k, v in given.where.items()),
            found=f"{len(lines)} lines",
        )
    return lines.to_dicts()[0]


MAX_BYTES = 16 * 2**20
_NEEDED = ("table", "label", "model", "setting", "dataset", "subset", "metric", "value", "unit")


def reference(path: Path) -> pl.DataFrame:
    """A file of published numbers, as text.

    Raises:
        UpkeepError: it is not there, is no CSV, or lacks a column.
    """
    problem = "published numbers that cannot be read"
    printed = as_text(path, problem)
    if lost := [name for name in _NEEDED if name not in printed.columns]:
        raise UpkeepError(f"{problem}: no column {lost[0]!r}", where=path, remedy="see papers/FORMAT.md")
    return printed


def as_text(path: Path, problem: str) -> pl.DataFrame:
    """A CSV file with every value as text, empty where there is none.

    Args:
        problem: what a file that is no CSV is called.

    Raises:
        UpkeepError: it is not there, or is no CSV.
    """
    with open_regular(path, MAX_BYTES, links=True) as file:
        content = file.read()
    try:
        return pl.read_csv(content, infer_schema=False).fill_null("")
    except pl.exceptions.PolarsError as error:
        reason = str(error).splitlines()[0]
        raise UpkeepError(f"{problem}: {reason}", where=path, remedy="see papers/FORMAT.md") from None
