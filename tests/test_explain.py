"""From a place of a published table to the cell behind it, and to the cells that would fill it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from host_fakes import ScriptedRuntime
from suite_fakes import PLAIN, TRAINED, called, make, root
from test_diff import answer
from upkeep.catalog import Catalog
from upkeep.errors import UpkeepError
from upkeep.jobs import Cell
from upkeep.layout import Layout
from upkeep.operations.explain import _one, explain
from upkeep.operations.part import chosen, listed

__all__ = ["root"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("made") / "root"
    make(root, "text")
    for name, old, new in (
        ("tables.yaml", "{metric: accuracy}", '{metric: accuracy, setting.thinking: "off"}'),
        ("reference/table_1.csv", "Echo,M,echo,,,toy", "Echo,M,echo,,thinking=off,toy"),
    ):
        path = root / "papers/toy" / name
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))
    answer(root, PLAIN, lambda probe, trial: probe.startswith("a"))
    assert called(root, "report")[0] == 0
    return root


def test_a_place_is_told_with_the_number_of_the_table_and_the_cell_behind_it(root: Path) -> None:
    table, (place,) = explain(Catalog(root), "mini", "table_1", "M", "Toy")
    assert place.published == "61.5" and place.own is not None
    assert place.own == pytest.approx(60)
    assert place.difference == pytest.approx(place.own - 61.5) and place.state == "within the interval"
    assert place.low is not None and place.high is not None and place.low < place.own < place.high
    behind = place.behind
    assert behind is not None and behind.cell == PLAIN and place.n == behind.predictions == 2 * behind.probes
    manifest = json.loads((root / behind.folder / "manifest.json").read_text())
    assert (behind.identity, behind.seed, behind.trials) == (manifest["identity"], 5, 2)
    assert place.command == f"./upkeep cell {PLAIN} --force" and table.spec.id == "table_1"


def test_all_that_is_known_is_printed_and_the_same_is_there_for_programs(root: Path) -> None:
    out: list[str] = []
    assert called(root, "explain", "table_1", "M", "Toy", out=out) == (0, "")
    for part in ("published  61.5", "95% interval", "difference", f"./upkeep show {PLAIN}", "seed 5", "identity"):
        assert part in out[0], out[0]
    assert called(root, "explain", "toy/table_1", "1", "1", "--json", out=out) == (0, "")
    (place,) = json.loads(out[1])
    assert place["published"] == "61.5" and place["behind"]["cell"] == PLAIN
    assert called(root, "explain", "table_1", out=out) == (0, "")
    assert "columns: 1 Toy" in out[2] and "61.5" in out[2] and "explain toy/table_1 ROW COLUMN" in out[2]


def test_a_place_without_a_number_is_told_with_the_reason_and_the_command(root: Path) -> None:
    shutil.rmtree(Layout(Catalog(root).results).cell(PLAIN))
    _, (place,) = explain(Catalog(root), "mini", "table_1", "M", "Toy")
    assert (place.own, place.behind, place.state) == (None, None, "not run")
    assert place.command == "./upkeep run mini"
    out: list[str] = []
    assert called(root, "explain", "table_1", "M", "Toy", out=out)[0] == 0
    assert "ours       none: not run" in out[0] and "command    ./upkeep run mini" in out[0]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("table_9",), "did you mean table_1"),
        (("table_1", "GPT"), "expected: the number or words of one: 1 M"),
        (("table_1", "M", "Tea"), "expected: the number or words of one: 1 Toy"),
        (("table_1", "7"), "no rows of table_1 fit '7'"),
    ],
)
def test_a_place_that_there_is_not_is_told_with_those_that_there_are(
    root: Path, names: tuple[str, ...], said: str
) -> None:
    status, errors = called(root, "explain", *names)
    assert status == 1 and said in errors and "remedy:" in errors, errors


def test_a_name_fits_what_begins_with_it_before_what_has_its_words() -> None:
    rows = ["RAG (BM25) (k=3)", "RAG (k=3) with pico", "SFT and RAG (k=3)", "Base"]
    for name, place in (("rag (k=3)", 1), ("4", 3), ("base", 3), ("sft rag", 2), ("RAG (BM25) (k=3)", 0)):
        assert _one("row", name, rows, "table_1") == place, name
    with pytest.raises(UpkeepError, match="2 rows of table_1 fit 'RAG'"):
        _one("row", "RAG", rows, "table_1")


# ---------------------------------------------------------------- a part of a suite


def test_the_cells_of_a_table_and_of_a_method_are_those_of_the_suite(root: Path) -> None:
    catalog = Catalog(root)
    assert [str(cell) for cell in chosen(catalog, "mini", "table_1", None)] == [PLAIN]
    assert [str(cell) for cell in chosen(catalog, "mini", None, "echo")] == [PLAIN, TRAINED]
    assert [str(cell) for cell in chosen(catalog, "mini", "table_1", "echo/a")] == [PLAIN]


def test_a_method_that_the_suite_has_not_is_asked_where_the_others_are(root: Path) -> None:
    catalog = Catalog(root)
    assert [str(cell) for cell in chosen(catalog, "mini", None, "keen")] == ["toy/keen/a/none"]
    found = chosen(catalog, "mini", None, "echo/b")
    assert {str(cell) for cell in found} == {"toy/echo/b/m", "toy/echo/b/m+trainer.a"}
    assert [str(cell) for cell in chosen(catalog, "mini", "table_1", "echo/b")] == ["toy/echo/b/m"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--method", "ehco"), "did you mean echo?"),
        (("--method", "echo/z"), "expected: one of a, b"),
        (("--method", "trainer"), "trainer"),
        (("--table", "table_4"), "did you mean table_1"),
    ],
)
def test_a_part_that_there_is_not_is_told(root: Path, words: tuple[str, ...], said: str) -> None:
    status, errors = called(root, "run", "mini", *words)
    assert status == 1 and said in errors and "Traceback" not in errors, errors


def test_a_method_is_run_alone_and_set_beside_the_others_paired(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("upkeep.execution.detection.detect", lambda _: Described())
    monkeypatch.setattr("upkeep.execution.batch.detect", lambda _: Described())
    out: list[str] = []
    status, errors = called(root, "run", "mini", "--method", "echo/b", "-n", out=out)
    assert (status, errors) == (0, "") and "0 cells are complete, 2 would be run" in out[0]
    status, errors = called(root, "run", "mini", "--table", "table_1", "--method", "echo/b", out=out)
    assert status == 0, errors
    assert (root / "results/cells/toy/echo/b/m/manifest.json").is_file()
    assert not (root / "results/cells/toy/echo/b/m+trainer.a").exists()
    assert "toy/guided" not in out[1].partition("paired")[2], "another model's"
    status, errors = called(root, "run", "mini", "--method", "guided/b", out=out)
    assert status == 0, errors
    assert "right; less" not in out[2], "nothing else was asked without a model but itself"
    again: list[str] = []
    status, errors = called(root, "run", "mini", "--method", "keen", out=again)
    assert status == 0, errors
    assert "paired, clustered by question; p by Holm for 1 comparisons" in again[0]
    assert "toy/guided/a/none" in again[0]


class Described(ScriptedRuntime):
    def describe(self) -> str:
        return "scripted"


def test_a_dry_run_says_which_cells_are_run_and_why(root: Path) -> None:
    catalog = Catalog(root)
    cells = [Cell.parse(name) for name in (PLAIN, TRAINED, "toy/echo/b/m")]
    (Layout(catalog.results).cell(TRAINED) / "predictions.jsonl").write_text("")
    told = list(listed(catalog, cells))
    assert told == [
        "1 cells are complete, 2 would be run:",
        f"  {TRAINED}  not the file that was written",
        "  toy/echo/b/m  not begun",
    ]


def test_several_papers_with_one_table_are_told_apart(root: Path) -> None:
    shutil.copytree(root / "papers/toy", root / "papers/tay")
    shutil.rmtree(root / "papers/tay/prompts")
    suite = root / "config/suites/mini.yaml"
    suite.write_text(suite.read_text().replace("papers: [toy]", "papers: [toy, tay]"))
    with pytest.raises(UpkeepError, match="2 papers have a table 'table_1'"):
        explain(Catalog(root), "mini", "table_1")
