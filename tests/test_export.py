"""Scores and predictions that other programs read are those of the suite, whole and unchanged."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import polars as pl
import pytest
import yaml

from suite_fakes import CELLS, GUIDED, PLAIN, called, make, numbers, root
from test_diff import answer
from upkeep.catalog import Catalog
from upkeep.files import hash_file
from upkeep.jobs import Cell
from upkeep.operations.export.rows import PREDICTIONS
from upkeep.published import predictions

__all__ = ["root"]

HOSTILE = 'a "quoted", comma\nnew line; =1+1 \x00 \u00fc\U0001f600'


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("made") / "root"
    make(root, "text")
    answer(root, PLAIN, lambda probe, trial: probe.startswith("a0"), said=HOSTILE)
    return root


def exported(root: Path, form: str) -> Path:
    folder = root / f"out-{form}"
    out: list[str] = []
    assert called(root, "export", str(folder), "--as", form, out=out) == (0, "")
    assert f"{len(CELLS)} cells of suite mini" in out[0]
    return folder


def test_csv_has_every_prediction_as_it_was_said_and_every_score(root: Path) -> None:
    folder = exported(root, "csv")
    with (folder / "predictions.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert set(rows[0]) == {*PREDICTIONS}
    catalog = Catalog(root)
    said = {(c, p.probe_id, str(p.trial)): p.response for c in CELLS for p in predictions(catalog, Cell.parse(c))}
    assert len(rows) == len(said)
    for row in rows:
        told = said[row["cell"], row["probe_id"], row["trial"]]
        assert told is not None and row["response"] == told.replace("\x00", "\ufffd")
    mine = [row for row in rows if row["cell"] == PLAIN]
    assert {row["probe_id"] for row in mine if row["right"] == "TRUE"} == {f"a0@{t}" for t in range(6)}
    assert {row["verdict"] for row in mine} == {"right", "wrong"}
    assert json.loads(mine[0]["answers"]) == ["text a0."]
    with (folder / "scores.csv").open(newline="") as file:
        scores = {f"{r['cell']} {r['metric']} {r['subset']}": float(r["value"]) for r in csv.DictReader(file)}
    wanted = numbers(root)
    assert {name: wanted[name] for name in wanted if name.split()[0] in CELLS} == pytest.approx(
        {name: scores[name] for name in wanted if name.split()[0] in CELLS}
    )


def test_csv_is_the_same_table_in_pandas(root: Path) -> None:
    pandas = pytest.importorskip("pandas")
    folder = exported(root, "csv")
    frame = pandas.read_csv(folder / "predictions.csv")
    assert len(frame) == len(pl.read_csv(folder / "predictions.csv")) and list(frame.columns) == [*PREDICTIONS]
    assert frame[frame.cell == PLAIN].right.sum() == 12


def test_parquet_has_a_file_for_each_cell_with_typed_columns(root: Path) -> None:
    folder = exported(root, "parquet")
    assert len(list((folder / "predictions").iterdir())) == len(CELLS)
    rows = pl.read_parquet(folder / "predictions/*.parquet")
    assert dict(rows.schema) == {name: kind for name, (kind, _) in PREDICTIONS.items()}
    mine = rows.filter(pl.col("cell") == PLAIN)
    assert mine.filter("right")["response"].unique().len() == 6 and HOSTILE in mine["response"][-1]
    guided = rows.filter(pl.col("cell") == GUIDED)
    assert guided["retrieved"][0].to_list() == ["a_c0"] and guided["evidence"][0].to_list() == ["a_c0"]


def test_a_dataset_folder_has_a_card_that_names_its_files_columns_and_terms(root: Path) -> None:
    folder = exported(root, "huggingface")
    _, head, text = (folder / "README.md").read_text().split("---\n", 2)
    card = yaml.safe_load(head)
    assert {one["config_name"] for one in card["configs"]} == {"scores", "predictions"}
    for one in card["configs"]:
        assert list(folder.glob(one["data_files"])), one
    assert all(f"`{name}`" in text for name in PREDICTIONS) and "| toy |" in text and "CC0" in text


def test_a_dataset_folder_loads_as_the_hub_would_load_it(root: Path, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    folder = exported(root, "huggingface")
    loaded = datasets.load_dataset(str(folder), "predictions", cache_dir=str(tmp_path / "cache"))["train"]
    assert loaded.num_rows == len(pl.read_parquet(folder / "predictions/*.parquet"))
    assert set(loaded.column_names) == {*PREDICTIONS}
    assert datasets.load_dataset(str(folder), "scores", cache_dir=str(tmp_path / "cache"))["train"].num_rows > 0


def test_a_crate_names_every_file_with_its_hash_and_every_thing_that_it_refers_to(root: Path) -> None:
    for name in ("Snakefile", "rules/cells.smk"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("rule all:\n")
    folder = exported(root, "ro-crate")
    graph = json.loads((folder / "ro-crate-metadata.json").read_text())["@graph"]
    entities = {one["@id"]: one for one in graph}
    assert len(entities) == len(graph)
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert {one["@id"] for one in entities["./"]["hasPart"]} == files - {"ro-crate-metadata.json"}
    for name, one in entities.items():
        if "sha256" in one:
            assert one["sha256"] == hash_file(folder / name)
    run, main = entities["#run"], entities[entities["./"]["mainEntity"]["@id"]]
    assert run["instrument"]["@id"] == main["@id"] == "Snakefile" and "ComputationalWorkflow" in main["@type"]
    assert {one["@id"] for one in run["result"]} == {name for name in files if name.endswith(".parquet")}
    assert run["startTime"] <= run["endTime"] and entities["#suite-value"]["value"] == "mini"
    inside = [link for one in graph for value in one.values() for link in _links(value)]
    assert {link for link in inside if "//" not in link} <= entities.keys()


def _links(value: object) -> list[str]:
    if isinstance(value, list):
        return [link for one in value for link in _links(one)]
    return [value["@id"]] if isinstance(value, dict) and set(value) == {"@id"} else []


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("results",), 1, "remedy:   name another one, or remove it"),
        (("new", "--as", "exel"), 2, "unknown --as 'exel'"),
        (("new", "--suite", "minni"), 1, "did you mean mini?"),
        ((), 2, "the following arguments are required: folder"),
    ],
)
def test_what_cannot_be_exported_is_told(
    root: Path, words: tuple[str, ...], status: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    code, errors = called(root, "export", *words)
    assert code == status and said in errors and "remedy:" in errors, errors
    assert not (root / "new").exists()


def test_of_a_suite_without_complete_cells_there_is_nothing_to_export(root: Path) -> None:
    shutil.rmtree(root / "results/cells")
    code, errors = called(root, "export", str(root / "new"))
    assert code == 1 and "nothing to export" in errors and "./upkeep run mini" in errors and not (root / "new").exists()
