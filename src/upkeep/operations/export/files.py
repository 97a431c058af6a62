"""Scores and predictions as files, each kind in a folder of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from upkeep.contract import Provenance
from upkeep.errors import UpkeepError
from upkeep.files import write_atomically
from upkeep.jobs import Cell
from upkeep.operations.export.rows import PREDICTIONS, TEXTS, Exported

_SAID: dict[Provenance, str] = {
    "release": "the paper's release",
    "rebuild": "built anew by the paper's rules",
    "stand_in": "a small stand-in",
    "own": "the suite's own",
}


def require_new(folder: Path) -> None:
    """Refuse a folder that holds anything.

    Raises:
        UpkeepError: it does, or is none.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UpkeepError(
            "something is there already",
            where=folder,
            expected="a folder that is empty, or not there",
            remedy="name another one, or remove it",
        )


def to_csv(exported: Exported, folder: Path) -> Iterator[Path]:
    """`scores.csv` and `predictions.csv`; lists are JSON, booleans as R reads them, and a NUL is replaced, which no
    reader takes."""
    booleans = pl.col(pl.Boolean).cast(pl.String).str.to_uppercase()
    yield written(folder / "scores.csv", exported.score_rows().with_columns(booleans).write_csv().encode())
    path = folder / "predictions.csv"
    with path.open("wb") as file:
        for number, (_, rows) in enumerate(exported.prediction_rows()):
            flat = (
                rows.with_columns(booleans)
                .with_columns(
                    pl.col(name).map_elements(_json, return_dtype=pl.String)
                    for name, (kind, _) in PREDICTIONS.items()
                    if kind == TEXTS
                )
                .with_columns(pl.col(pl.String).str.replace_all("\x00", "\N{REPLACEMENT CHARACTER}", literal=True))
            )
            flat.write_csv(file, include_header=number == 0)
    yield path


def _json(values: pl.Series) -> str:
    import msgspec

    return msgspec.json.encode(values.to_list()).decode()


def to_parquet(exported: Exported, folder: Path) -> Iterator[Path]:
    """`scores.parquet`, and a file of predictions for each cell."""
    path = folder / "scores.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    exported.score_rows().write_parquet(path)
    yield path
    (folder / "predictions").mkdir()
    for cell, rows in exported.prediction_rows():
        path = folder / "predictions" / f"{file_name(cell)}.parquet"
        rows.write_parquet(path)
        yield path


def file_name(cell: Cell) -> str:
    """A cell's name as that of one file."""
    return str(cell).replace("/", "__")


def to_huggingface(exported: Exported, folder: Path) -> Iterator[Path]:
    """A dataset folder as `datasets.load_dataset(FOLDER, "predictions")` reads it, with its card."""
    yield from to_parquet(exported, folder)
    yield written(folder / "README.md", card(exported).encode())


def card(exported: Exported) -> str:
    """The card: how it is loaded, what the columns are, and under which terms the texts of each dataset stand."""
    catalog, suite = exported.catalog, exported.catalog.suite(exported.suite)
    cells = exported.cells
    columns = [f"| `{name}` | {_cell(what)} |" for name, (_, what) in PREDICTIONS.items()]
    datasets = dict.fromkeys(cell.dataset for cell in cells)
    rows = []
    for name in datasets:
        spec, built = catalog.dataset(name), exported.scores.basis.datasets.get(name)
        provenance = getattr(built, "provenance", spec.provenance)
        rows.append(f"| {name} | {_cell(spec.label)} | {_SAID.get(provenance, provenance)} | {_cell(spec.licence)} |")
    models = sorted({cell.model for cell in cells} - {"none"})
    many = sum(manifest.predictions for manifest in cells.values())
    return "\n".join(
        [
            "---",
            f'pretty_name: "upkeep, suite {exported.suite}"',
            "license: other",
            "license_name: by-dataset",
            "license_link: README.md",
            "task_categories: [question-answering]",
            f"size_categories: [{_size(many)}]",
            "configs:",
            "- {config_name: scores, data_files: scores.parquet}",
            "- {config_name: predictions, data_files: 'predictions/*.parquet', default: true}",
            "---",
            "",
            f"# {suite.label}: scores and predictions",
            "",
            suite.summary,
            "",
            f"{len(cells):,} cells, {many:,} predictions by {', '.join(models) or 'no model'}; seed {suite.seed}.",
            f"Made by `./upkeep export --suite {exported.suite} --as huggingface`.",
            "",
            '    datasets.load_dataset(FOLDER, "predictions")',
            '    datasets.load_dataset(FOLDER, "scores")',
            "",
            "| column of a prediction | |",
            "| --- | --- |",
            *columns,
            "",
            "Questions, answers and documents' names are of these datasets, each under its own terms:",
            "",
            "| dataset | | data | licence |",
            "| --- | --- | --- | --- |",
            *rows,
            "",
        ]
    )


def _size(count: int) -> str:
    for limit, name in ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M")):
        if count < limit:
            return name
    return "1M<n<10M" if count < 10_000_000 else "10M<n<100M"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def written(path: Path, content: bytes) -> Path:
    """Write a file, and say where."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content)
    return path
