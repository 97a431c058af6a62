"""`upkeep new model NAME` and `upkeep new suite NAME`: what they write works at once, and nothing is overwritten.

What `upkeep new method` writes is in `test_new_method.py`, a card of weights that there are in `test_models.py`.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import polars as pl
import pytest

from conftest import CACHE
from upkeep import cli
from upkeep.building.build import build_dataset
from upkeep.building.store import validate
from upkeep.catalog import Catalog
from upkeep.contract import Sampling
from upkeep.errors import UpkeepError
from upkeep.execution.fetch import fetch
from upkeep.execution.supervise import run_cell
from upkeep.grading.scores import score_suite
from upkeep.jobs import Cell
from upkeep.layout import Layout
from upkeep.new import add_model, new_model, new_suite

BABI = "oaks_babi_mini"


def test_a_new_suite_on_a_new_model_is_run_and_scored_at_once(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card, file = new_model(repository, "my-model-7b"), new_suite(repository, "my-suite")
    assert card == repository / "models/my-model-7b/model.yaml" and file.stem == "my-suite"
    for name, value in (("RUNTIME", "process"), ("CACHE", str(CACHE)), ("MODEL", "my-model-7b"), ("SUITE", "my-suite")):
        monkeypatch.setenv(f"UPKEEP_{name}", value)
    catalog = Catalog(repository)
    build_dataset(catalog, BABI, Layout(catalog.results).dataset(BABI))
    assert validate(Layout(catalog.results).dataset(BABI)).probes > 0
    fetch(catalog, "my-model-7b")
    cells = catalog.cells(catalog.suite("my-suite"))
    assert Cell(BABI, "rag_bm25", "k3", "my-model-7b") in cells and Cell(BABI, "null", "default", "none") in cells
    for cell in cells:
        run_cell(catalog, cell)
    scores = score_suite(catalog, "my-suite")
    assert not scores.refused
    accuracy = scores.table.filter(pl.col("metric") == "accuracy", pl.col("subset") == "all")
    assert len(accuracy) == len(cells)
    assert {"new-model", "new-suite"}.isdisjoint(re.findall(r"[\w-]+", card.read_text() + file.read_text()))


def test_the_preset_that_a_new_card_shows_is_one(repository: Path) -> None:
    card = new_model(repository, "mine")
    assert "mine-sampled" not in Catalog(repository).models
    text = card.read_text()
    card.write_text(text[: text.index("# presets:")] + text[text.index("# presets:") :].replace("# ", ""))
    catalog = Catalog(repository)
    sampling = Sampling(temperature=0.7, top_p=0.95, max_tokens=16)
    changes = {"label": "mine sampled", "sampling": sampling}
    assert catalog.model("mine-sampled") == msgspec.structs.replace(catalog.model("mine"), **changes)


BAD = [
    "",
    "2",
    "1.5",
    "My",
    "a b",
    "../x",
    "a/b",
    "-a",
    "a-",
    ".a",
    "a.",
    "x" * 61,
    "é",
    "a\n",
    "none",
    "any",
    "on",
    "null",
]


@pytest.mark.parametrize("make", [new_model, new_suite])
@pytest.mark.parametrize("name", [*BAD, "2024-01-01"])
def test_a_bad_name_is_refused_and_nothing_written(
    tmp_path: Path, make: Callable[[Path, str], Path], name: str
) -> None:
    with pytest.raises(UpkeepError, match="no name for a"):
        make(tmp_path, name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["pico", "qwen3-4b-imprintbench", "gpt-4o"])
def test_no_model_is_written_over_another(repository: Path, name: str) -> None:
    before = {path: path.read_bytes() for path in repository.glob("models/*/model.yaml")}
    with pytest.raises(UpkeepError, match="there already"):
        new_model(repository, name)
    assert before == {path: path.read_bytes() for path in repository.glob("models/*/model.yaml")}


def test_no_suite_is_written_over_another(repository: Path) -> None:
    for name in ("mini", "oaks"):
        with pytest.raises(UpkeepError, match="there already"):
            new_suite(repository, name)


def test_weights_in_a_folder_of_models_get_their_card_beside_them(repository: Path) -> None:
    folder = repository / "models" / "mine"
    shutil.copytree(repository / "models" / "pico", folder)
    (folder / "model.yaml").unlink()
    card = add_model(repository, str(folder), 0)
    assert card == folder / "model.yaml"
    assert Catalog(repository).model("mine").location == str(folder)


def test_the_command_line_tells_a_name_from_a_place(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def new(*arguments: str) -> tuple[object, str]:
        monkeypatch.setattr(sys, "argv", ["upkeep", "--root", str(repository), "new", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        told = capsys.readouterr()
        return ended.value.code, told.out + told.err

    assert new("model", "mine") == (
        0,
        f"{repository}/models/mine/model.yaml\nnext: read it, then `./upkeep run mini --model mine`\n",
    )
    code, told = new("suite", "mine")
    assert code == 0 and "./upkeep run mine" in told
    code, told = new("model", f"{repository}/nowhere/mine-2")
    assert code == 1 and "no model there" in told
    code, told = new("model", "other", "--gpus", "2")
    assert code == 2 and "write `gpus` into the card" in told and not (repository / "models/other").exists()
