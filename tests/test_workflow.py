"""What Snakemake is told of a suite: what a job needs, and when it runs again."""

from __future__ import annotations

from pathlib import Path

import pytest

from host_fakes import ScriptedRuntime
from suite_fakes import GUIDED, PLAIN, made, root, workflow
from upkeep.catalog import Catalog
from upkeep.execution.supervise import run_cell
from upkeep.jobs import Cell

__all__ = ["made", "root"]


def needed(root: Path, cell: str) -> list[str]:
    """What a cell is made from, but for its own plan."""
    files = workflow(root)._inputs(Cell.parse(cell))
    assert files[-1] == f"results/plans/cells/{cell}"
    return files[:-1]


@pytest.mark.parametrize("cell", [PLAIN, GUIDED])
def test_nothing_is_made_for_a_cell_that_counts(root: Path, cell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run_cell(Catalog(root), Cell.parse(cell), runtime=ScriptedRuntime())
    assert needed(root, cell) == []
    with monkeypatch.context() as asked_anew:
        asked_anew.setenv("UPKEEP_FRESH", "true")
        assert any("images" in file for file in needed(root, cell))
    (root / "results/cells" / cell / "predictions.jsonl").write_bytes(b"damaged")
    assert "results/datasets/toy/card.json" in needed(root, cell)
    assert any("images" in file for file in needed(root, cell))


@pytest.mark.parametrize(
    ("file", "again"),
    [("papers/toy/reference/table_1.csv", True), ("papers/toy/claims/toy.yaml", True), ("README.md", False)],
)
def test_a_report_is_written_again_for_what_the_papers_print_and_find(root: Path, file: str, again: bool) -> None:
    plan = root / workflow(root).plan_of_report(None)
    before = plan.stat().st_mtime_ns
    workflow(root).plan_of_report(None)
    assert plan.stat().st_mtime_ns == before
    path = root / file
    path.write_text(path.read_text() + "\n" if path.exists() else "words")
    workflow(root).plan_of_report(None)
    assert (plan.stat().st_mtime_ns != before) is again
    now = plan.stat().st_mtime_ns
    path.unlink()
    workflow(root).plan_of_report(None)
    assert (plan.stat().st_mtime_ns != now) is again
