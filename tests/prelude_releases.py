"""Releases and books of PRELUDE, as they may lie on disk, for tests."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest
import yaml

from conftest import ROOT, put_dataset, spec_of
from prelude import library
from upkeep.building import store
from upkeep.building.build import build_dataset
from upkeep.building.store import validate
from upkeep.catalog import Catalog
from upkeep.contract import DatasetCard, FaultKind

PUBLISHED = ROOT / "papers" / "prelude" / "reference"
KINDS = ["consistent_core"] * 270 + ["consistent_irrelevant"] * 164 + ["contradict_local"] * 94
KINDS += ["contradict_global"] * 267


def printed(table: str) -> list[dict[str, str]]:
    with (PUBLISHED / f"{table}.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def table_2() -> dict[str, dict[str, Any]]:
    """Book -> what Table 2 prints of it, with the title that the release is taken to use."""
    known = {book["id"]: book["titles"] for book in yaml.safe_load(library.BOOKS.read_text(encoding="utf-8"))}
    found: dict[str, dict[str, Any]] = {}
    for line in printed("table_2"):
        settings = dict(part.split("=") for part in line["setting"].split(";") if part)
        if settings:
            titles = known[line["subset"]]
            book = found.setdefault(line["subset"], {**settings, "title": titles[settings["language"] == "chinese"]})
            book[line["metric"]] = int(line["value"])
    return found


def items() -> list[dict[str, Any]]:
    """795 invented items with the books, characters and labels of Tables 2 and 3."""
    kinds = list(KINDS)
    Random(1).shuffle(kinds)
    rows: list[dict[str, Any]] = []
    for book in table_2().values():
        for n in range(book["instances"]):
            label, kind = kinds[len(rows)].split("_")
            english = book["language"] == "english"
            rows.append(
                {
                    "book_name": book["title"],
                    "char": f"Person {n % book['characters']}" if english else f"人物{n % book['characters']}",
                    "subject": f"Title {n}" if english else f"标题{n}",
                    "content": f"There were {n} ships in {book['title']}."
                    if english
                    else f"{book['title']}里有{n}条船。",
                    "label": label,
                    "label_type": kind,
                    "generator": "r1" if n % 2 else "gpt-4o",
                    "public": book["public"] == "yes",
                }
            )
    return rows


def put(folder: Path, rows: Sequence[Mapping[str, Any]], splits: Mapping[str, Sequence[int]] | None = None) -> Path:
    """A release of these rows; `splits` are places of rows."""
    folder.mkdir(parents=True)
    frame = pl.DataFrame(rows).drop("public", strict=False)
    frame.write_parquet(folder / "all.parquet")
    for name, places in (splits or {}).items():
        frame[list(places)].write_parquet(folder / f"{name}.parquet")
    return folder


def official(folder: Path) -> Path:
    rows = items()
    subset = Random(2).sample(range(len(rows)), 100)
    return put(folder, rows, {"subset": subset, "public": [n for n, row in enumerate(rows) if row["public"]]})


def shelf(folder: Path, titles: Sequence[str]) -> Path:
    """A folder with a short text for each title."""
    folder.mkdir()
    for title in titles:
        (folder / f"{title}.txt").write_text(f"This is {title}. " + "A ship came in and left again. " * 200)
    return folder


def catalog(folder: Path, data: dict[str, Path], faults: dict[FaultKind, str] | None = None, **options: Any) -> Catalog:
    """A repository with the dataset `prelude` under other options."""
    spec = spec_of("prelude")
    spec["options"] |= options
    spec["faults"] = spec["faults"] if faults is None else faults
    put_dataset(folder, "prelude", spec)
    (folder / "config").mkdir()
    config = {"data": {f"prelude.{name}": str(path) for name, path in data.items()}}
    (folder / "config/config.yaml").write_text(yaml.safe_dump(config))
    (folder / "papers").symlink_to(ROOT / "papers")
    return Catalog(folder)


Build = Callable[..., tuple[DatasetCard, store.Dataset]]


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """Builds from a release and books, and checks what was built."""
    count = iter(range(100))

    def built(
        data: dict[str, Path], faults: dict[FaultKind, str] | None = None, **options: Any
    ) -> tuple[DatasetCard, store.Dataset]:
        repository = tmp_path / f"repository{next(count)}"
        build_dataset(catalog(repository, data, faults, **options), "prelude", repository / "built")
        return validate(repository / "built"), store.load(repository / "built")

    return built
