"""Of cells that tables call the same, the one that is shown."""

from __future__ import annotations

import random

import polars as pl

from upkeep.grading.score import SCORE_SCHEMA
from upkeep.grading.settings import as_rows, pairs
from upkeep.report.best import best_of

MATCH = {"metric": "pass_at_1", "subset": "all_but_dir_acq"}


def rows(cell: str, decides: float | None, **fields: str) -> list[dict[str, object]]:
    """The scores of a cell: the one that decides, and another one."""
    common = {"label": "SFT", "model": "M", "method": "sft", "supervision": "Q", "dataset": "d", "dataset_id": "d"}
    common |= {"cell": cell} | fields
    setting = as_rows(pairs(common.pop("setting", "adapter=lora")))
    found: list[dict[str, object]] = [
        common | {"setting": setting, "metric": "pass_at_1", "subset": "all", "value": 1.0},
    ]
    if decides is not None:
        found.append(common | MATCH | {"setting": setting, "value": decides})
    return found


def shown(*cells: list[dict[str, object]]) -> list[str]:
    frame = pl.DataFrame([row for cell in cells for row in cell], schema=SCORE_SCHEMA)
    return best_of(frame, MATCH)["cell"].unique(maintain_order=True).to_list()


def test_the_best_of_cells_of_one_name_is_shown_and_the_first_of_equals() -> None:
    assert shown(rows("a", 10), rows("b", 30), rows("c", 20)) == ["b"]
    assert shown(rows("a", 10), rows("b", 10)) == ["a"]


def test_cells_of_other_names_are_all_shown() -> None:
    others = [
        rows("a", 10),
        rows("b", 9, setting="adapter=full"),
        rows("c", 8, model="N"),
        rows("d", 7, dataset_id="d_mini"),
        rows("e", 6, method="cpt"),
    ]
    assert shown(*others) == ["a", "b", "c", "d", "e"]


def test_a_cell_without_the_score_that_decides_is_left_as_it_is() -> None:
    assert shown(rows("a", None), rows("b", 1), rows("c", 2)) == ["a", "c"]


def test_the_choice_is_the_same_in_whatever_order_and_keeps_all_scores_of_the_chosen() -> None:
    rng = random.Random(3)
    values = rng.sample(range(1000), 30)
    cells = [rows(f"c{n:02}", value, model=f"M{n % 4}") for n, value in enumerate(values)]
    wanted = {max((value, f"c{n:02}") for n, value in enumerate(values) if n % 4 == model)[1] for model in range(4)}
    for _ in range(5):
        rng.shuffle(cells)
        frame = pl.DataFrame([row for cell in cells for row in cell], schema=SCORE_SCHEMA)
        found = best_of(frame, MATCH)
        assert set(found["cell"]) == wanted and len(found) == 2 * len(wanted)
