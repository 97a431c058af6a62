"""What a run or a cell says before it starts anything, and what a cell says at its end."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from suite_fakes import CELLS, GUIDED, PLAIN, called, made, root
from upkeep.beforehand import remarks
from upkeep.catalog import Catalog
from upkeep.errors import UpkeepError
from upkeep.jobs import Cell

__all__ = ["made", "root"]

OTHER = """{{label: l, summary: s, papers: [], {more} cells: [
  {{datasets: [toy], methods: [echo/a], models: [m]}}, {{datasets: [toy], methods: [guided/a], models: [none]}}]}}
"""


def said(root: Path, suite: str, *cells: str) -> list[str]:
    catalog = Catalog(root, chosen={"suite": suite})
    return list(remarks(catalog, suite, map(Cell.parse, cells)))


@pytest.mark.parametrize(
    ("more", "now"), [("seed: 6, trials: 2,", "seed 6, trials 2"), ("seed: 5,", "seed 5, trials 1")]
)
def test_what_takes_the_place_of_another_suites_cells_is_said_with_both_suites(root: Path, more: str, now: str) -> None:
    (root / "config/suites/other.yaml").write_text(OTHER.format(more=more))
    (line,) = (one for one in said(root, "other", PLAIN, GUIDED) if "asked before" in one)
    assert line.startswith(f"{PLAIN}: asked before by suite 'mini' with seed 5, trials 2, ")
    assert f"by suite 'other' with {now};" in line and "`./upkeep refresh mini` has the former again" in line


def test_what_asks_as_before_takes_no_place(root: Path) -> None:
    (root / "config/suites/other.yaml").write_text(OTHER.format(more="seed: 5, trials: 2,"))
    (line,) = said(root, "other", PLAIN, GUIDED)
    assert "asked before" not in line
    assert said(root, "other", GUIDED) == [], "of a cell without a model nothing was paid"


def test_trials_of_a_greedy_model_are_called_copies_and_those_of_a_sampled_one_are_not(root: Path) -> None:
    (line,) = said(root, "mini", *CELLS[:2], GUIDED)[:1] or [""]
    assert line.startswith("m is greedy (temperature 0): of 2 trials") and PLAIN in line
    card = root / "models/m/model.yaml"
    card.write_text(card.read_text().replace("{label", "{sampling: {temperature: 0.7, max_tokens: 9}, label"))
    assert said(root, "mini", *CELLS) == []


def test_a_cell_is_told_of_what_it_replaces_before_it_is_asked(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*_: object, **__: object) -> None:
        raise UpkeepError("it is asked")

    monkeypatch.setattr("upkeep.execution.supervise.run_cell", asked)
    (root / "config/suites/other.yaml").write_text(OTHER.format(more="seed: 6,"))
    status, errors = called(root, "cell", PLAIN, "--suite", "other")
    assert status == 1 and errors.endswith("it is asked\n")
    assert errors.startswith(f"warning: {PLAIN}: asked before by suite 'mini'"), errors


@pytest.mark.parametrize("words", [["run", "empty"], ["run", "empty", "-n"]])
def test_a_suite_without_cells_is_refused_before_it_takes_the_place_of_a_report(root: Path, words: list[str]) -> None:
    (root / "config/suites/empty.yaml").write_text("{label: l, summary: s, papers: [], cells: []}")
    page = root / "results/report/index.html"
    page.parent.mkdir()
    page.write_text("another suite's")
    status, errors = called(root, *words)
    assert status == 1 and f"{root}/config/suites/empty.yaml: suite 'empty' has no cells" in errors
    assert "remedy:" in errors and page.read_text() == "another suite's"


def test_a_cell_ends_with_what_it_came_to_where_it_lies_and_what_shows_it(root: Path) -> None:
    out: list[str] = []
    assert called(root, "cell", PLAIN, out=out)[0] == 0
    number = pl.read_parquet(root / f"results/graded/{PLAIN}/verdicts.parquet")["right"].sum()
    total, right, place, after = out[0].splitlines()[-4:]
    assert total.startswith(f"{PLAIN}: 60 predictions; complete since ") and "nothing was run (--force" in total
    assert right == f"  {number} of 60 right by the answer key ({number / 60:.1%})"
    assert place.endswith(f"results/cells/{PLAIN}") and after == f"next: ./upkeep show {PLAIN}"


def test_a_cell_that_no_table_has_says_where_it_is_seen(root: Path) -> None:
    (root / "papers/toy/tables.yaml").unlink()
    out: list[str] = []
    assert called(root, "cell", PLAIN, out=out)[0] == 0
    assert "in no table, for toy is of no paper" in out[0] and "./upkeep new suite NAME" in out[0]
