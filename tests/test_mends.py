"""What once went wrong in everyday use and no other test would notice: whose numbers are shown, what a wrong card
blocks, what is listed before anything is started."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path

import pytest

from conftest import ROOT
from suite_fakes import CELLS, GUIDED, PLAIN, TRAINED, called, made, printed, root
from table_scores import frame, score, table
from test_explain import Described
from upkeep.catalog import Catalog
from upkeep.errors import FEW, UpkeepError
from upkeep.jobs import Cell
from upkeep.report.written import to_csv

__all__ = ["made", "root"]


# ---------------------------------------------------------------- whose numbers


def test_the_status_of_a_suite_is_of_its_own_cells(root: Path) -> None:
    suite = (root / "config/suites/mini.yaml").read_text()
    (root / "config/suites/other.yaml").write_text(suite.replace("[echo/a]", "[echo/b]"))
    shutil.rmtree(root / "results/cells" / TRAINED)
    for name, done in (("mini", {PLAIN, GUIDED}), ("other", {GUIDED})):
        out: list[str] = []
        assert called(root, "status", name, "--json", out=out)[0] == 0
        found = json.loads(out[0])
        cells = [job for job in found["jobs"] if job["of"] == "cells"]
        assert found["suite"] == name and len(cells) == len(CELLS) == sum(found["counts"].values())
        assert {job["name"] for job in cells if job["state"] == "done"} == done


def test_a_report_that_nobody_has_scored_for_has_the_numbers_of_one_that_was(root: Path) -> None:
    out: list[str] = []
    assert called(root, "report", out=out) == (0, "")
    first = printed(root)
    assert first and (root / "results/report/mini/index.html").is_file() and str(root) in out[0]
    shutil.rmtree(root / "results/tables")
    assert called(root, "score")[0] == called(root, "report")[0] == 0
    assert printed(root) == first


def test_a_stand_ins_line_has_every_setting_that_it_ran_with(tmp_path: Path) -> None:
    """The mini retrieves 2 documents and shows the last 2; the paper's row, in whose place it stands, 15 of each."""
    own = score(
        method="rag_rolling_window", label="RAG + Rolling Window", dataset_id="oaks_babi_mini",
        setting="k=2;window=2;thinking=off", cell="oaks_babi_mini/rag_rolling_window/k2w2/pico",
    )  # fmt: skip
    lines = [line for line in csv.DictReader(io.StringIO(to_csv(table("table_4", frame(own))))) if line["own"]]
    assert lines
    for line in lines:
        settings = dict(part.split("=") for part in line["setting"].split(";") if part)
        settings |= {
            name.removeprefix("setting."): value for name, value in line.items() if name.startswith("setting.")
        }
        assert (settings["k"], settings["window"]) == ("2", "2"), line


# ---------------------------------------------------------------- before anything is started


def test_a_dry_run_of_a_suite_lists_the_cells_that_it_would_run(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr("upkeep.execution.detection.detect", lambda _: Described())
    monkeypatch.setattr("upkeep.commands.suite._snakemake", lambda _, rest, __: started.append(rest) or 0)
    shutil.rmtree(root / "results/cells" / GUIDED)
    out: list[str] = []
    assert called(root, "run", "mini", "-n", out=out)[0] == 0
    lines = out[0].splitlines()
    assert f"{len(CELLS) - 1} cells are complete, 1 would be run:" in lines and f"  {GUIDED}  not begun" in lines
    assert not any(PLAIN in line for line in lines) and ["-n" in rest for rest in started] == [True]


BROKEN = {
    "config/suites/other.yaml": "suites",
    "models/other/model.yaml": "models",
    "methods/other/method.yaml": "methods",
    "datasets/other/dataset.yaml": "datasets",
    "papers/other/tables.yaml": "papers",
    "papers/other/prompts/words.yaml": "",
}
"""A file that nothing of the suite names, and the listing that needs it."""


@pytest.mark.parametrize(
    ("file", "text"), [*((file, "label: [") for file in BROKEN), *((file, "lable: x\n") for file in BROKEN)]
)
def test_a_broken_file_blocks_nothing_that_does_not_need_it(root: Path, file: str, text: str) -> None:
    (root / file).parent.mkdir(parents=True, exist_ok=True)
    (root / file).write_text(text)
    listings = [f"list {what}" for what in ("methods", "models", "datasets", "papers", "suites", "prompts")]
    about = [f"show {GUIDED}", f"diff {PLAIN} {PLAIN}", f"logs {PLAIN}"]
    for words in (*listings, "list cells", "status", "score", "report", *about):
        status, said = called(root, *words.split())
        needs = words == f"list {BROKEN[file]}"
        assert status == needs, (words, said)
        assert (file in said) == needs or not said, (words, said)


# ---------------------------------------------------------------- what is near comes first


def test_of_many_names_only_those_that_are_near_are_told() -> None:
    catalog = Catalog(ROOT)
    assert min(len(catalog.datasets), len(catalog.methods), len(catalog.models)) > FEW
    for wrong, right in (
        ("oaks_baby_mini/closed_book/default/pico", "oaks_babi_mini"),
        ("oaks_babi_mini/closed_bok/default/pico", "closed_book"),
        ("oaks_babi_mini/closed_book/default/picco", "pico"),
    ):
        with pytest.raises(UpkeepError) as refused:
            catalog.check(Cell.parse(wrong))
        told = str(refused.value)
        assert f"did you mean {right}" in told and len(told) < 400, told


def test_a_command_that_is_near_one_is_told_that_one_and_not_all(root: Path) -> None:
    status, said = called(root, "stauts")
    assert status == 2 and "remedy:   did you mean status?" in said and "expected:" not in said
    status, said = called(root, "xyzzy")
    assert status == 2 and "expected: one of run, " in said and "did you mean" not in said
