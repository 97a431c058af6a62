"""What Snakemake is told of a suite: what a job needs, and when it runs again."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from host_fakes import ScriptedRuntime
from suite_fakes import GUIDED, PLAIN, made, root, workflow
from upkeep.catalog import Catalog
from upkeep.execution.supervise import run_cell
from upkeep.jobs import Cell

__all__ = ["made", "root"]


def needed(root: Path, cell: str) -> list[str]:
    """What the batch of a cell is made from, but for its own plan."""
    suite = workflow(root)
    batch = next(batch for batch in suite.batches if Cell.parse(cell) in batch.cells)
    *files, plan = suite.inputs_of_batch(batch)(None)
    assert plan == f"results/plans/batches/{batch.name}/plan"
    return files


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


SECOND = "toy/echo/b/m"


@pytest.fixture
def two(root: Path) -> Path:
    """A repository of which one batch has two cells, both published."""
    suite = root / "config/suites/mini.yaml"
    suite.write_text(
        suite.read_text().replace("methods: [echo/a], models: [m, m+trainer.a]", "methods: [echo], models: [m]")
    )
    for cell in (PLAIN, SECOND):
        run_cell(Catalog(root), Cell.parse(cell), runtime=ScriptedRuntime(), force=True)
    return root


def to_be_run(root: Path) -> bool:
    """Whether Snakemake would run the batch of the two cells: the file that it is asked for is not there, or one of its
    files is older than its plan."""
    suite = workflow(root)
    (batch,) = (batch for batch in suite.batches if Cell.parse(PLAIN) in batch.cells)
    *_, plan = suite.inputs_of_batch(batch)(None)
    made = [root / file for file in suite.files_of_batch(batch)]
    (asked,) = {*suite.wanted} & {*suite.files_of_batch(batch)}
    there = [file.stat().st_mtime_ns for file in made if file.exists()]
    return not (root / asked).exists() or (root / plan).stat().st_mtime_ns > min(there)


def test_cells_that_count_are_not_run_again_because_others_share_their_batch_now(
    two: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not to_be_run(two)
    monkeypatch.setenv("UPKEEP_CELLS_PER_JOB", "1")
    assert not to_be_run(two)
    monkeypatch.delenv("UPKEEP_CELLS_PER_JOB")
    assert not to_be_run(two)


@pytest.mark.parametrize("cell", [PLAIN, SECOND], ids=["the first", "another"])
@pytest.mark.parametrize("what", ["lost", "a manifest lost", "damaged", "made of other code"])
def test_a_batch_is_run_again_for_any_of_its_cells_until_that_is_made_by_whatever_command(
    two: Path, cell: str, what: str
) -> None:
    assert not to_be_run(two)
    folder = two / "results/cells" / cell
    match what:
        case "lost":
            shutil.rmtree(folder)
        case "a manifest lost":
            (folder / "manifest.json").unlink()
        case "damaged":
            (folder / "predictions.jsonl").write_bytes(b"damaged")
        case _:
            method = two / "methods/echo/method.py"
            method.write_text(method.read_text() + "\nMORE = 1\n")
    assert to_be_run(two) and to_be_run(two)
    for one in [PLAIN, SECOND] if what == "made of other code" else [cell]:
        run_cell(Catalog(two), Cell.parse(one), runtime=ScriptedRuntime())
    assert not to_be_run(two)


def test_what_is_made_of_a_batch_is_made_again_when_any_of_its_cells_was(two: Path) -> None:
    for cell in (SECOND, PLAIN):
        run_cell(Catalog(two), Cell.parse(cell), runtime=ScriptedRuntime(), force=True)
        assert f"results/cells/{cell}/predictions.jsonl" in workflow(two).wanted


def test_asked_anew_cells_are_made_and_the_models_of_their_trainings_are_not(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UPKEEP_FRESH", "true")
    suite = workflow(root)
    (training,) = {t for cell in suite.cells for t in suite.catalog.trainings_of(cell)}
    names = SimpleNamespace(**{n: getattr(training, n) for n in ("dataset", "method", "variant", "model")})
    *_, plan = suite.inputs_of_training(names)
    assert (root / plan).stat().st_mtime_ns <= (root / suite.trained(str(training))).stat().st_mtime_ns
    assert any(suite.trained(str(training)) in suite.inputs_of_batch(batch)(None) for batch in suite.batches)
